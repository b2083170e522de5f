"""Programs put weights in the order in which they read them."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from metarnn.engines.triton import kernel, pack
from metarnn.engines.triton.emit import HEAD, LOOP
from metarnn.engines.triton.program import Block, Group, power
from metarnn.engines.triton.text import indented
from metarnn.engines.triton.tiling import Chunks, Tiling
from tests.helpers import interpreter
from tests.helpers.cases import randn

pytestmark = pytest.mark.skipif(interpreter.ON_GPU, reason="one small launch after the other")
N = 6  # the width of a segment
WEIGHTS = {
    "w": randn(5 * N, 10, dtype=torch.float32)[N:],  # a part of a larger tensor
    "v": randn(2 * N, 10, seed=2, dtype=torch.float32),
    "wide": randn(8 * N, 32, seed=3, dtype=torch.float32),
}


def block(product, start, name, column, reads, transposed=False, offset=0) -> Block:
    across = WEIGHTS[name].shape[1]
    return Block(product, start, name, column, transposed, across, reads, offset)


def gates(name: str, count: int, column=0, reads=10, transposed=False) -> tuple[Block, ...]:
    return tuple(block(0, i * N, name, column, reads, transposed) for i in range(count))


GROUPS = {
    "one block": Group(0, N, 10, gates("w", 1)),
    "four gates": Group(0, N, 10, gates("w", 4)),
    "three gates": Group(0, N, 10, gates("w", 3)),
    "some columns": Group(0, N, 4, gates("w", 4, 3, 4)),
    "later gates": Group(0, N, 10, gates("w", 4)[1:3]),
    "transposed": Group(0, N, 8 * N, gates("wide", 1, 5, 8 * N, transposed=True)),
    "transposed rows": Group(0, N, 2 * N, (block(0, 2, "v", 1, 2 * N, True),)),
    "two maps": Group(0, N, 10, (*gates("w", 2), block(1, N, "v", 0, 10))),
    "not in order": Group(0, N, 10, gates("w", 4)[::-1]),
    "parts of a row": Group(
        0, N, 10, (block(0, 0, "w", 2, 4, offset=1), block(1, N, "v", 0, 3, offset=7))
    ),
    "a part of a row": Group(0, N, 10, (block(0, 0, "w", 0, 3),)),
    "transposed parts of a row": Group(
        0, N, 9, (block(0, 1, "w", 2, 4, True), block(1, 0, "v", 0, 5, True, offset=4))
    ),
}
PARTIAL = {
    "one tile": Group(0, N, 10, gates("w", 1), tiles=1),
    "two tiles": Group(0, N, 10, gates("w", 1), tiles=2),
    "three gates": Group(0, N, 10, gates("w", 3), tiles=2),
    "some columns": Group(0, N, 4, gates("w", 4, 3, 4), tiles=2),
    "transposed": Group(0, N, 8 * N, gates("wide", 1, 5, 8 * N, transposed=True), tiles=8),
    "three tiles": Group(0, N, 2 * N, (block(0, 2, "v", 1, 2 * N, True),), tiles=3),
    "two maps": Group(0, N, 10, (*gates("w", 2), block(1, N, "v", 0, 10)), tiles=1),
    "whole": Group(0, N, 10, gates("w", 1), whole=True, tiles=2),
}


def packed(group: Group, t: Tiling, dot: torch.dtype = torch.float32, split=False) -> Tensor:
    """What all programs have put in order, in a kernel that does nothing else."""
    arrays = {("pack", ""): "packs"} | {("weight", name): name for name in WEIGHTS}

    def array(kind: str, name: str) -> str:
        return arrays[kind, name]

    lines = pack.packed(group, array, str(N))
    if group.tiles:
        lines = pack.packed_for_all(group, array)
    taken = {f"U{n}": units for n, units in t.units.items()}
    taken |= {"SPLIT": split, "P": t.programs, "AT0": 0}
    taken |= {n: v for n, v in t.constants.items() if n in ("CHUNK0", "INNER0", "PARTS0")}
    given = ", ".join([*arrays.values(), *(f"{name}: tl.constexpr" for name in taken)])
    head = (HEAD + LOOP).replace('do_not_specialize=["steps", "batch", "first"]', "")
    source = "\n".join([f"{head}{given}):", "    me = tl.program_id(0)", *indented(lines), ""])
    *_, size = pack.places([group], t, 2 if split else 1)
    found = torch.full([size], torch.nan, dtype=dot)
    kernel.function(source)[t.programs,](found, *WEIGHTS.values(), **taken)
    return found


def naive(group: Group, t: Tiling) -> Tensor:
    """[programs, units, blocks, inner], number by number; 0 is padding."""
    units, inner = t.units[group.width], t.chunks[group.number].inner
    found = torch.zeros(t.programs, units, group.padded, inner)
    for p, u in product(range(t.programs), range(units)):
        row = p * units + u
        for b, each in enumerate(group.blocks):
            for k in range(each.reads if row < group.width else 0):
                i, j = each.start + row, k
                i, j = (j, i) if each.transposed else (i, j)
                found[p, u, b, each.offset + k] = WEIGHTS[each.map][i, each.column + j]
    return found.flatten()


def naive_partial(group: Group, t: Tiling) -> Tensor:
    """[programs, all units, blocks, own units of the argument, its tiles], number by number."""
    own, source = t.units[group.source], group.source
    rows = t.chunks[group.number].inner // group.padded
    found = torch.zeros(t.programs, rows, group.padded, own, power(group.tiles))
    for p, row, (b, each) in product(
        range(t.programs), range(group.width), enumerate(group.blocks)
    ):
        for u, tile in product(range(own), range(group.tiles)):
            if p * own + u < source:
                i, j = each.start + row, tile * source + p * own + u
                i, j = (j, i) if each.transposed else (i, j)
                found[p, row, b, u, tile] = WEIGHTS[each.map][i, each.column + j]
    return found.flatten()


def tiling(programs: int, units: int, inner: int, chunk: int = 16) -> Tiling:
    inner = -(-inner // chunk) * chunk
    return Tiling(programs, 1, 16, 16, {N: units}, (Chunks(chunk, inner, True),), 4, 1, 0.0)


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
    own = max(own, power(-(-group.source // programs)))  # all of the argument is somebody's
    inner = -(-N * group.padded // 16) * 16 + 16
    chunks = (Chunks(16, inner, True, 1, partial=True),)
    t = Tiling(programs, 1, 16, 16, {N: 8, group.source: own}, chunks, 4, 1, 0.0)
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
