"""Several programs that share the units find what one program finds.

The interpreter runs programs one after the other, so that they read what others have not written
yet. But no number is written twice in two steps, and a program that is run again reads what was
written the last time: after as many launches as there are barriers, all is as if they had waited.
"""

import sys
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch

from metarnn import Cell, Map, Recurrent, cells, hyper
from metarnn.bench.cells import random_graph as random_cell
from metarnn.engines.plan import plan_loop
from metarnn.engines.triton import kernel, tiling
from metarnn.engines.triton.chunks import Chunks
from metarnn.engines.triton.loops import loop_kernels
from metarnn.engines.triton.program import ProductGroup, Program
from metarnn.graph import GraphCell
from tests.helpers import interpreter
from tests.helpers.cases import EVERY, LINEAR
from tests.helpers.compare import assert_close
from tests.helpers.oracle import agree_from_a_random_state, from_a_random_state
from tests.helpers.random_graphs import random_graph

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(interpreter.ON_GPU, reason="on a GPU programs wait"),
    # What is read before it is written may be any number.
    pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning"),
]
PROGRAMS, STEPS = 3, 2  # scratch has a slot for each of two steps


def in_pieces(group: ProductGroup, found: tiling.Tiling) -> Chunks:
    """The same sums, not all at once."""
    c = found.chunks[group.number]
    chunk, inner, parts = 16, group.inner, 1
    if c.partial:
        chunk, inner, parts = max(16, found.share.columns(group)), c.inner, 2
    return replace(c, chunk=chunk, inner=-(-inner // chunk) * chunk, resident=False, parts=parts)


def launches(program: Program) -> int:
    return 1 + STEPS * (1 + program.exchanges)


@pytest.fixture(params=["", "pieces", "partial", "streamed"])
def shared(device, request, monkeypatch):
    """Kernels whose work is shared by programs that never wait, each launched many times."""
    from metarnn.engines.triton import synchronization

    once, as_they_are = kernel.Kernel._run, kernel.allocate

    def prepared(self, launch, case, arrays, *rest):
        monkeypatch.setattr(kernel, "allocate", lru_cache(as_they_are))
        for (kind, _), array in arrays.items():  # another test may have left what this one needs
            if kind in ("state", "scratch"):
                array.fill_(torch.nan)
        for _ in range(launches(self.program)):
            for kind, name in arrays:
                if kind == "sum":
                    arrays[kind, name].zero_()
            once(self, launch, case, arrays, *rest)

    def tile(program, batch, weight_bytes, sm_count, budget=1.0):
        partial = request.param in ("partial", "streamed")
        found = interpreter.shared(program, batch, weight_bytes, PROGRAMS, budget, partial)
        cut = {"streamed": True, "pieces": False}.get(request.param)  # sums of this kind
        pairs = zip(program.groups, found.chunks, strict=True)
        chunks = (
            in_pieces(g, found) if c.partial is cut and not g.in_registers else c for g, c in pairs
        )
        return replace(found, chunks=tuple(chunks))

    monkeypatch.setattr(synchronization, "barrier_arrive", lambda counter, single: None)
    monkeypatch.setattr(synchronization, "barrier_wait", lambda counter, target, ok, single: ok)
    monkeypatch.setattr(kernel.Kernel, "_run", prepared)
    monkeypatch.setattr(kernel, "tile", tile)
    loop_kernels.cache_clear()
    yield
    loop_kernels.cache_clear()


def run(layer: Recurrent) -> Any:
    return from_a_random_state(layer, 2, STEPS)


def agree(cell: Cell, batch: int = 2) -> None:
    agree_from_a_random_state(cell, batch, STEPS)


# One of many cells: the record of races has them all.
LATER = [name for name in EVERY if name not in LINEAR and name != "lstm"]


@pytest.mark.parametrize("shared", ["partial", "streamed"], indirect=True)
def test_partial_sums_are_there_where_a_test_says_so(shared):
    made = loop_kernels(plan_loop(EVERY["lstm"]))
    (chunks,) = kernel.tile(made.backward.program, 2, 8, 1).chunks
    assert chunks.partial


class Parted(Cell):
    """A product of two short ones' rows: on the way back each takes a part of what it gives."""

    @property
    def maps(self) -> dict[str, Map]:
        H = self.hidden_size
        short = Map(H, 4, recurrent=True)
        return {"ih": Map(self.input_size, H), "a": short, "b": short, "c": Map(8, H)}

    def step(self, theta: Any, drive: Any, state: Any) -> Any:
        (h,) = state
        both = torch.cat([theta.a(h), theta.b(h)], -1)
        return (torch.tanh(theta.ih(drive) + theta.c(both)),)


@pytest.mark.parametrize("size", [5, 20])
def test_parts_of_short_rows_are_taken_on_the_way_back(size, shared):
    agree(Parted(3, size))


TWO_MAPS = random_cell(3, 20)  # of the same argument


@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize("cell", [cells.LSTM(3, 20), TWO_MAPS], ids=["one map", "two maps"])
def test_weights_are_put_in_order_whole_or_in_two_parts(cell, tf32, shared, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    agree(cell)


@pytest.mark.parametrize(
    "name", ["lstm", *(pytest.param(n, marks=pytest.mark.slow) for n in LATER)]
)
def test_programs_find_what_eager_finds(name, shared):
    agree(EVERY[name])


def test_with_fewer_launches_they_would_not(shared, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "launches", lambda program: 1)
    with pytest.raises(AssertionError):
        agree(EVERY["lstm"])


WRITTEN = {
    "hyperlstm": hyper.HyperLSTM(2, 6, 4, embedding=2),
    "mogrifier": hyper.Mogrifier(cells.LSTM(4, 8), rounds=3, rank=2),
    "rank 1": hyper.Mogrifier(cells.GRU(4, 8), rounds=2, rank=1),
}
LONG = [pytest.param(name, marks=pytest.mark.slow) for name in ("hyperlstm", "rank 1")]


@pytest.mark.parametrize("name", [*LONG, "mogrifier"])
def test_rows_that_each_program_computes_whole(name, shared):
    agree(WRITTEN[name])


def test_rows_that_are_computed_whole_beside_others(shared):
    layers = [
        hyper.MetaRecurrent(cells.LSTM(3, 40), form="lowrank", engine=engine, dtype=dtype)
        for engine, dtype in (("triton", torch.float32), ("eager", torch.float64))
    ]
    for weight in layers[0].parameters():
        torch.nn.init.normal_(weight, std=0.3)
    layers[1].load_state_dict(layers[0].state_dict())
    assert_close(run(layers[0]), run(layers[1]), 1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_programs_find_of_random_graphs_what_eager_finds(seed, shared):
    agree(GraphCell(random_graph(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 100))
def test_programs_find_of_many_random_graphs_what_eager_finds(seed, shared):
    agree(GraphCell(random_graph(seed)), batch=17)
