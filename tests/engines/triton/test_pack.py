"""Weights in the order in which programs read them."""

from itertools import product

import pytest
import torch
from torch import Tensor

from metarnn.engines.triton.pack import Pack
from metarnn.engines.triton.program import Block, Group, power
from metarnn.engines.triton.tiling import Chunks, Tiling
from tests.helpers.cases import randn

N = 6  # the width of a segment
WEIGHTS = {
    "w": randn(5 * N, 10, dtype=torch.float32)[N:],  # a part of a larger tensor
    "v": randn(2 * N, 10, seed=2, dtype=torch.float32),
    "wide": randn(8 * N, 32, seed=3, dtype=torch.float32),
}


def gates(name: str, count: int, columns=(0, 10), transposed=False) -> tuple[Block, ...]:
    return tuple(Block(0, i * N, name, columns, transposed) for i in range(count))


GROUPS = {
    "one block": Group(0, N, 10, gates("w", 1)),
    "four gates": Group(0, N, 10, gates("w", 4)),
    "three gates": Group(0, N, 10, gates("w", 3)),
    "some columns": Group(0, N, 4, gates("w", 4, columns=(3, 7))),
    "later gates": Group(0, N, 10, gates("w", 4)[1:3]),
    "transposed": Group(0, N, 4 * N, gates("wide", 1, columns=(5, 5 + N), transposed=True)),
    "transposed rows": Group(0, N, 2 * N, (Block(0, 2, "v", (1, 9), True),)),
    "two maps": Group(0, N, 10, (*gates("w", 2), Block(1, N, "v", (0, 10), False))),
    "not in order": Group(0, N, 10, gates("w", 4)[::-1]),
    "parts of a row": Group(
        0, N, 10, (Block(0, 0, "w", (2, 6), False, 1), Block(1, N, "v", (0, 3), False, 7))
    ),
    "a part of a row": Group(0, N, 10, (Block(0, 0, "w", (0, 3), False, 0),)),
}
GROUPS["transposed"] = Group(0, N, 8 * N, GROUPS["transposed"].blocks)


def tiling(programs: int, units: int, inner: int) -> Tiling:
    return Tiling(programs, 1, 16, {N: units}, (Chunks(inner, inner, True),), 4, 1, 0.0)


def naive(group: Group, t: Tiling) -> Tensor:
    """[programs, units, blocks, inner], number by number; 0 is padding."""
    units, inner = t.units[group.width], t.chunks[group.number].inner
    found = torch.zeros(t.programs, units, group.padded, inner)
    for p in range(t.programs):
        for u in range(units):
            row = p * units + u
            for b, block in enumerate(group.blocks):
                weight, (first, last) = WEIGHTS[block.map], block.columns
                read = group.inner if block.offset is None else last - first
                for k in range(read):
                    if row < group.width:
                        i, j = block.start + row, k
                        i, j = (j, i) if block.transposed else (i, j)
                        found[p, u, b, (block.offset or 0) + k] = weight[i, first + j]
    return found


def pack(group: Group, t: Tiling, weights, dot: torch.dtype, split: bool) -> Tensor:
    return Pack(group, t)(weights, dot, split)


def naive_partial(group: Group, t: Tiling) -> Tensor:
    """[programs, all units, blocks, own units of the argument, its tiles], number by number."""
    own, source = t.units[group.source], group.source
    rows = t.chunks[group.number].inner // group.padded
    found = torch.zeros(t.programs, rows, group.padded, own, power(group.tiles))
    for p, row, (b, block) in product(
        range(t.programs), range(group.width), enumerate(group.blocks)
    ):
        for u, tile in product(range(own), range(group.tiles)):
            if p * own + u < source:
                i, j = block.start + row, tile * source + p * own + u
                i, j = (j, i) if block.transposed else (i, j)
                found[p, row, b, u, tile] = WEIGHTS[block.map][i, block.columns[0] + j]
    return found


PARTIAL = {
    "one tile": Group(0, N, 10, gates("w", 1), tiles=1),
    "two tiles": Group(0, N, 10, gates("w", 1), tiles=2),
    "three gates": Group(0, N, 10, gates("w", 3), tiles=2),
    "some columns": Group(0, N, 4, gates("w", 4, columns=(3, 7)), tiles=2),
    "transposed": Group(0, N, 8 * N, gates("wide", 1, (5, 5 + N), transposed=True), tiles=8),
    "three tiles": Group(0, N, 2 * N, (Block(0, 2, "v", (1, 9), True),), tiles=3),
    "two maps": Group(0, N, 10, (*gates("w", 2), Block(1, N, "v", (0, 10), False)), tiles=1),
    "whole": Group(0, N, 10, gates("w", 1), whole=True, tiles=2),
}


@pytest.mark.parametrize("padding", [0, 16])
@pytest.mark.parametrize(("programs", "own"), [(1, 64), (2, 32), (3, 4), (5, 2), (10, 1), (12, 1)])
@pytest.mark.parametrize("name", PARTIAL)
def test_so_are_those_of_parts_of_sums(name, programs, own, padding):
    group = PARTIAL[name]
    own = max(own, -(-group.source // programs))  # all of the argument is somebody's
    inner = -(-N * group.padded // 16) * 16 + padding
    chunks = (Chunks(inner, inner, True, 1, partial=True),)
    t = Tiling(programs, 1, 16, {N: 8, group.source: own}, chunks, 4, 1, 0.0)
    packed = pack(group, t, WEIGHTS, torch.float32, split=False)
    assert packed.is_contiguous()
    assert torch.equal(packed, naive_partial(group, t))


SHARES = [(1, 8), (1, N), (2, 3), (2, 4), (3, 2), (6, 1), (7, 1)]


@pytest.mark.parametrize("padding", [0, 1, 7])
@pytest.mark.parametrize(("programs", "units"), SHARES)
@pytest.mark.parametrize("name", GROUPS)
def test_packed_weights_are_those_of_a_loop_over_all_numbers(name, programs, units, padding):
    group = GROUPS[name]
    t = tiling(programs, units, group.inner + padding)
    expected = naive(group, t)
    packed = pack(group, t, WEIGHTS, torch.float32, split=False)
    assert packed.is_contiguous()
    assert torch.equal(packed, expected)
    assert torch.equal(pack(group, t, WEIGHTS, torch.bfloat16, split=False), expected.bfloat16())


@pytest.mark.parametrize("name", GROUPS)
def test_weights_that_lie_in_memory_another_way_are_packed_the_same(name):
    t = tiling(2, 3, GROUPS[name].inner)
    turned = {n: w.T.contiguous().T for n, w in WEIGHTS.items()}
    cut = {n: torch.stack([w, w + 1], -1)[..., 0] for n, w in WEIGHTS.items()}
    expected = pack(GROUPS[name], t, WEIGHTS, torch.float32, split=False)
    for weights in (turned, cut):
        assert torch.equal(pack(GROUPS[name], t, weights, torch.float32, split=False), expected)


@pytest.mark.parametrize("name", GROUPS)
def test_a_weight_is_the_sum_of_two_that_tensor_cores_multiply_exactly(name):
    """TF32 keeps 10 bits behind the point: those below are zero in the high part, and the low
    part has at most 13 bits, of which the tensor core rounds the last two away."""
    t = tiling(2, 4, 64)
    whole = pack(GROUPS[name], t, WEIGHTS, torch.float32, split=False)
    high, low = pack(GROUPS[name], t, WEIGHTS, torch.float32, split=True)
    assert torch.equal(high + low, whole)
    assert torch.equal(high.double() + low.double(), whole.double())
    assert torch.equal(tf32(high), high)
    assert ((tf32(low) - low).abs() <= 2.0**-21 * whole.abs()).all()


def tf32(x: Tensor) -> Tensor:
    return (x.view(torch.int32) & ~((1 << 13) - 1)).view(torch.float32)
