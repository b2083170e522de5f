"""Programs put weights in the order in which they read them."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from metarnn.engines.codegen.statements import Code
from metarnn.engines.triton import kernel
from metarnn.engines.triton.chunks import Chunks, Share
from metarnn.engines.triton.module_text import kernel as kernel_source
from metarnn.engines.triton.program import ProductGroup, WeightBlock, next_power_of_2
from metarnn.engines.triton.runtime import function
from metarnn.engines.triton.statements import PackWeights
from metarnn.engines.triton.tiling import Tiling
from tests.helpers import interpreter
from tests.helpers.cases import randn

pytestmark = pytest.mark.skipif(interpreter.ON_GPU, reason="one small launch after the other")
N = 6  # the width of a segment
WEIGHTS = {
    "w": randn(5 * N, 10, dtype=torch.float32)[N:],  # a part of a larger tensor
    "v": randn(2 * N, 10, seed=2, dtype=torch.float32),
    "wide": randn(8 * N, 32, seed=3, dtype=torch.float32),
}


def block(product, start, name, column, reads, transposed=False, offset=0) -> WeightBlock:
    across = WEIGHTS[name].shape[1]
    return WeightBlock(product, start, name, column, transposed, across, reads, offset)


def gates(name: str, count: int, column=0, reads=10, transposed=False) -> tuple[WeightBlock, ...]:
    return tuple(block(0, i * N, name, column, reads, transposed) for i in range(count))


def group(inner: int, blocks: tuple[WeightBlock, ...], **options: Any) -> ProductGroup:
    return ProductGroup(0, "p", N, inner, blocks, **options)


GROUPS = {
    "one block": group(10, gates("w", 1)),
    "four gates": group(10, gates("w", 4)),
    "three gates": group(10, gates("w", 3)),
    "some columns": group(4, gates("w", 4, 3, 4)),
    "later gates": group(10, gates("w", 4)[1:3]),
    "transposed": group(8 * N, gates("wide", 1, 5, 8 * N, transposed=True)),
    "transposed rows": group(2 * N, (block(0, 2, "v", 1, 2 * N, True),)),
    "two maps": group(10, (*gates("w", 2), block(1, N, "v", 0, 10))),
    "not in order": group(10, gates("w", 4)[::-1]),
    "parts of a row": group(
        10, (block(0, 0, "w", 2, 4, offset=1), block(1, N, "v", 0, 3, offset=7))
    ),
    "a part of a row": group(10, (block(0, 0, "w", 0, 3),)),
    "transposed parts of a row": group(
        9, (block(0, 1, "w", 2, 4, True), block(1, 0, "v", 0, 5, True, offset=4))
    ),
}
PARTIAL = {
    "one tile": group(10, gates("w", 1), partial_tiles=1),
    "two tiles": group(10, gates("w", 1), partial_tiles=2),
    "three gates": group(10, gates("w", 3), partial_tiles=2),
    "some columns": group(4, gates("w", 4, 3, 4), partial_tiles=2),
    "transposed": group(8 * N, gates("wide", 1, 5, 8 * N, transposed=True), partial_tiles=8),
    "three tiles": group(2 * N, (block(0, 2, "v", 1, 2 * N, True),), partial_tiles=3),
    "two maps": group(10, (*gates("w", 2), block(1, N, "v", 0, 10)), partial_tiles=1),
    "whole": group(10, gates("w", 1), replicated=True, partial_tiles=2),
}


def packed(
    group: ProductGroup, t: Tiling, dot: torch.dtype = torch.float32, split: bool = False
) -> Tensor:
    """What all programs have packed, in a kernel that does nothing else."""
    weights = tuple(f"{group.blocks[begin].map}_ptr" for begin, _ in group.runs)
    taken: dict[str, int] = {f"UNITS_{n}": units for n, units in t.share.units.items()}
    taken |= {"SPLIT_FP32": split, "PROGRAMS": t.share.programs, "OFFSET_P": 0}
    (chunks,) = t.chunks
    taken |= {"CHUNK_P": chunks.chunk, "INNER_P": chunks.inner, "PARTS_P": chunks.parts}
    taken |= {"PARTIAL_P": chunks.partial, "RESIDENT_P": False}
    pointers = ["packed_ptr,", *(f"{name}_ptr," for name in WEIGHTS)]
    statements = [Code("program = tl.program_id(0)"), PackWeights(group, weights, "packed_ptr")]
    source = kernel_source("pack", pointers, taken, statements, ())
    *_, size = kernel.weight_offsets([group], t, 2 if split else 1)
    found = torch.full([size], torch.nan, dtype=dot)
    function("pack", source)[t.share.programs,](found, *WEIGHTS.values(), **taken)
    return found


def naive(group: ProductGroup, t: Tiling) -> Tensor:
    """[programs, units, blocks, inner], number by number; 0 is padding."""
    units, inner = t.share.units[group.width], t.chunks[group.number].inner
    found = torch.zeros(t.share.programs, units, group.padded_blocks, inner)
    for p, u in product(range(t.share.programs), range(units)):
        row = p * units + u
        for b, each in enumerate(group.blocks):
            for k in range(each.reads if row < group.width else 0):
                i, j = each.start + row, k
                i, j = (j, i) if each.transposed else (i, j)
                found[p, u, b, each.offset + k] = WEIGHTS[each.map][i, each.column + j]
    return found.flatten()


def naive_partial(group: ProductGroup, t: Tiling) -> Tensor:
    """[programs, all units, blocks, own units of the argument, its tiles], number by number."""
    own, source = t.share.units[group.tile_width], group.tile_width
    rows = t.chunks[group.number].inner // group.padded_blocks
    found = torch.zeros(
        t.share.programs, rows, group.padded_blocks, own, next_power_of_2(group.partial_tiles)
    )
    for p, row, (b, each) in product(
        range(t.share.programs), range(group.width), enumerate(group.blocks)
    ):
        for u, tile in product(range(own), range(group.partial_tiles)):
            if p * own + u < source:
                i, j = each.start + row, tile * source + p * own + u
                i, j = (j, i) if each.transposed else (i, j)
                found[p, row, b, u, tile] = WEIGHTS[each.map][i, each.column + j]
    return found.flatten()


def tiling(programs: int, units: int, inner: int, chunk: int = 16) -> Tiling:
    inner = -(-inner // chunk) * chunk
    share = Share(programs, 1, 16, 16, {N: units})
    return Tiling(share, (Chunks(chunk, inner, True),), 4, 1, 0.0)


@pytest.mark.parametrize(("chunk", "padding"), [(16, 0), (16, 16), (128, 0)])
@pytest.mark.parametrize(("programs", "units"), [(1, 8), (2, 4), (3, 2), (7, 1)])
@pytest.mark.parametrize("name", GROUPS)
def test_they_are_those_of_a_loop_over_all_numbers(name, programs, units, chunk, padding, device):
    group = GROUPS[name]
    t = tiling(programs, units, group.inner + padding, chunk)
    assert torch.equal(packed(group, t), naive(group, t))


@pytest.mark.parametrize(("programs", "own"), [(1, 64), (2, 32), (3, 4), (5, 2), (12, 1)])
@pytest.mark.parametrize("name", PARTIAL)
def test_so_are_those_of_parts_of_sums(name, programs, own, device):
    group = PARTIAL[name]
    own = max(
        own, next_power_of_2(-(-group.tile_width // programs))
    )  # all of the argument is somebody's
    inner = -(-N * group.padded_blocks // 16) * 16 + 16
    chunks = (Chunks(16, inner, True, 1, partial=True),)
    t = Tiling(Share(programs, 1, 16, 16, {N: 8, group.tile_width: own}), chunks, 4, 1, 0.0)
    assert torch.equal(packed(group, t), naive_partial(group, t))


@pytest.mark.parametrize("name", GROUPS)
def test_they_are_cast_to_what_products_are_computed_in(name, device):
    t = tiling(2, 4, GROUPS[name].inner)
    expected = naive(GROUPS[name], t).half()
    assert torch.equal(packed(GROUPS[name], t, torch.float16), expected)


@pytest.mark.parametrize("name", GROUPS)
def test_split_weights_are_two_numbers_of_eleven_bits_and_the_rest(name, device):
    t = tiling(2, 4, GROUPS[name].inner)
    high, low = packed(GROUPS[name], t, split=True).chunk(2)
    assert torch.equal(high + low, naive(GROUPS[name], t))
    assert not (high.numpy().view(np.int32) & 0x1FFF).any()
    assert torch.all(low.abs() <= high.abs() * 2**-10)
