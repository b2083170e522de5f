"""Programs that run at the same time never read and write the same number unordered.

The interpreter runs programs one after the other, so their results are of no use here. But which
addresses they read and write, and where they meet, does not depend on any number: from a record
of that follows every race there could be.
"""

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from metarnn import Cell, cells, hyper
from metarnn.engines.codegen.statements import If
from metarnn.engines.triton import kernel, product_text, scan, tiling
from metarnn.engines.triton.emit import Emitter
from metarnn.engines.triton.layout import Layout
from metarnn.engines.triton.loops import loop_kernels
from metarnn.engines.triton.statements import BarrierWait
from metarnn.graph import GraphCell
from tests.helpers import interpreter
from tests.helpers.cases import EVERY, LINEAR, make, randn, random_state
from tests.helpers.compare import leaves
from tests.helpers.random_graphs import random_graph

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(interpreter.ON_GPU, reason="what is recorded is the interpreter's work"),
]
PROGRAMS, STEPS = 3, 5  # more steps than a ring of states has slots


@dataclass(frozen=True)
class Access:
    program: int
    value: bytes | None  # what is written
    arrived: int  # how often the program had arrived at a barrier,
    awaited: int  # for how many of these barriers it had waited,
    phase: int  # and how often its own threads had waited for one another


@dataclass
class Past:
    """What one program has done so far."""

    accesses: list[tuple[int, Access]] = field(default_factory=list)  # with addresses
    arrived: int = 0
    awaited: int = 0
    phase: int = 0


class Record:
    """The accesses of all programs of a launch; the races of all launches."""

    def __init__(self) -> None:
        self.programs: dict[int, Past] = {}
        self.sums: list[range] = []
        self.launches = 0
        self.races: set[tuple[Access, Access]] = set()

    def now(self, program: int) -> Past:
        return self.programs.setdefault(program, Past())

    def access(self, program: int, pointers: Any, mask: Any, value: Any = None) -> None:
        now = self.now(program)
        addresses, asked = np.broadcast_arrays(pointers.data, mask.data.astype(bool))
        written = None if value is None else np.broadcast_to(value.data, addresses.shape)[asked]
        for i, address in enumerate(addresses[asked].tolist()):
            bits = None if written is None else written[i].tobytes()
            access = Access(program, bits, now.arrived, now.awaited, now.phase)
            now.accesses.append((address, access))

    def finish(self) -> None:
        """Find the races of a launch, and make room for the next."""
        self.launches += 1
        found: dict[int, set[Access]] = {}
        for past in self.programs.values():
            for address, access in past.accesses:
                found.setdefault(address, set()).add(access)
        for address, accesses in found.items():
            if _written_alike(accesses):
                continue
            for pair in combinations(accesses, 2):
                if not (_ordered(*pair) or self._added(address, *pair)):
                    self.races.add(pair)
        self.programs = {}

    def _added(self, address: int, a: Access, b: Access) -> bool:
        """Whether a program adds to its sum: it reads first, since it stores what it has read."""
        return a.program == b.program and any(address in each for each in self.sums)


def _written_alike(accesses: set[Access]) -> bool:
    """Whether all write the same, and nobody reads before it has written: as weights are packed."""
    writes = [a for a in accesses if a.value is not None]
    reads = [a for a in accesses if a.value is None]
    return len({a.value for a in writes}) == 1 and all(
        any(w.program == r.program and w.phase < r.phase for w in writes) for r in reads
    )


def _ordered(a: Access, b: Access) -> bool:
    """Whether it is the same whichever comes first, or known which, at any speed of programs."""
    if a.value == b.value:  # both read, or (one number a sequence) both write the same
        return True
    if a.program == b.program:  # which of its threads it is we do not know
        return a.phase != b.phase
    if a.program // PROGRAMS != b.program // PROGRAMS:  # of two groups, which share no barrier
        return False
    return b.awaited > a.arrived or a.awaited > b.arrived


@pytest.fixture
def record(device, request, monkeypatch):
    """A record of kernels that hand out partial sums, if so asked, wherever they can."""
    from triton.runtime.interpreter import InterpreterBuilder, interpreter_builder

    from metarnn.engines.triton import synchronization

    record, summed = Record(), getattr(request, "param", False)
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    start, prepare, scan_all = kernel.start, kernel.Kernel._run, scan.Scan.__call__

    def create_masked_load(self, pointers, mask, *rest):
        record.access(self.grid_idx[0], pointers, mask)
        return load(self, pointers, mask, *rest)

    def create_masked_store(self, pointers, value, mask, *rest):
        record.access(self.grid_idx[0], pointers, mask, value)
        return store(self, pointers, value, mask, *rest)

    def create_barrier(self):
        record.now(self.grid_idx[0]).phase += 1

    def arrive(counter, single):
        now = record.now(interpreter_builder.grid_idx[0])
        now.phase += 1
        now.arrived += 1

    def wait(counter, target, ok, single):
        now = record.now(interpreter_builder.grid_idx[0])
        now.awaited = int(np.max(target.handle.data)) // PROGRAMS
        assert now.awaited <= now.arrived, "a program waits for itself"
        now.phase += 1
        return ok

    def started(*arguments):
        start(*arguments)
        record.finish()

    def prepared(self, launch, case, arrays, *rest):
        sums = [tensor for (kind, _), tensor in arrays.items() if kind == "sum"]
        record.sums = [range(t.data_ptr(), t.data_ptr() + t.nbytes) for t in sums]
        prepare(self, launch, case, arrays, *rest)

    def scanned(self, *arguments, **options):
        scan_all(self, *arguments, **options)
        record.programs = {}  # a value that is published there is its own signal

    def tile(program, batch, weight_bytes, sm_count, budget=1.0):
        if not program.exchanges and not program.groups:
            return tiling.tile(program, batch, weight_bytes, 8, budget)
        return interpreter.shared(program, batch, weight_bytes, PROGRAMS, budget, summed)

    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", create_masked_load)
    monkeypatch.setattr(InterpreterBuilder, "create_masked_store", create_masked_store)
    monkeypatch.setattr(InterpreterBuilder, "create_barrier", create_barrier)
    monkeypatch.setattr(synchronization, "barrier_arrive", arrive)
    monkeypatch.setattr(synchronization, "barrier_wait", wait)
    monkeypatch.setattr(kernel, "start", started)
    monkeypatch.setattr(kernel.Kernel, "_run", prepared)
    monkeypatch.setattr(kernel, "tile", tile)
    monkeypatch.setattr(scan.Scan, "__call__", scanned)
    # Kernels made under these circumstances are for this test alone.
    loop_kernels.cache_clear()
    yield record
    loop_kernels.cache_clear()


def run(cell: Cell, batch: int = 2, **call: Any) -> None:
    """All three kernels of a cell: with and without gradients, and backward."""
    layer = make(cell, engine="triton", dtype=torch.float32)
    x = randn(STEPS, batch, cell.input_size, dtype=torch.float32)
    state = random_state(layer, batch)
    with torch.no_grad():
        layer(x, state, **call)
    torch.cat([value.flatten() for value in leaves(layer(x, state, **call))]).sum().backward()


# Scans are not recorded: their programs have no barrier, see `lookback`.
@pytest.mark.parametrize("name", [name for name in EVERY if name not in LINEAR])
def test_no_cell_has_a_race(name, record):
    run(EVERY[name])
    assert record.launches == 3
    assert not record.races


WRITTEN = {
    "hyperlstm": hyper.HyperLSTM(2, 6, 4, embedding=2),
    "hyperlstm, normed": hyper.HyperLSTM(2, 6, 4, embedding=2, layer_norm=True),
    "mogrifier": hyper.Mogrifier(cells.LSTM(4, 8), rounds=3, rank=2),
}


NORMED = pytest.param("hyperlstm, normed", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", ["hyperlstm", NORMED, "mogrifier"])
def test_no_cell_whose_weights_depend_on_its_state_has_a_race(name, record):
    run(WRITTEN[name])
    assert record.launches == 3
    assert not record.races


@pytest.mark.parametrize("form", ["lowrank", "scale"])
@pytest.mark.parametrize("context", ["step", "state"])
def test_no_layer_that_writes_weights_has_a_race(form, context, record):
    layer = hyper.MetaRecurrent(cells.LSTM(3, 8), form=form, context=context, engine="triton")
    layer(randn(STEPS, 2, 3, dtype=torch.float32))[0].sum().backward()
    assert record.launches
    assert not record.races


@pytest.mark.slow
def test_the_record_shows_a_race_where_nobody_waits_for_the_first_state(record, monkeypatch):
    exchange = Emitter._first_exchange

    def hasty(self):
        return without_waits(exchange(self))

    def without_waits(block):
        kept = (each for each in block if not isinstance(each, BarrierWait))
        return tuple(
            replace(each, otherwise=without_waits(each.otherwise)) if isinstance(each, If) else each
            for each in kept
        )

    monkeypatch.setattr(Emitter, "_first_exchange", hasty)
    run(WRITTEN["hyperlstm"])
    assert record.races


@pytest.mark.parametrize("name", ["lstm", "lstm-all"])
def test_the_record_shows_a_race_where_a_barrier_is_left_out(name, record, monkeypatch):
    monkeypatch.setattr(Layout, "_awaited", lambda self: {})
    run(EVERY[name])
    assert record.races


@pytest.mark.parametrize("seed", range(5))
def test_no_random_graph_has_a_race(seed, record):
    run(GraphCell(random_graph(seed)))
    assert not record.races


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5, 200))
def test_none_of_many_random_graphs_has_a_race(seed, record):
    run(GraphCell(random_graph(seed)), batch=17)
    assert not record.races


def test_two_groups_share_nothing_but_weights(record):
    run(cells.LSTM(3, 5), batch=17)
    assert record.launches == 3
    assert not record.races


partial = pytest.mark.parametrize("record", [True], indirect=True)


@partial
@pytest.mark.parametrize("name", ["lstm", "gru", "lstm-all"])
def test_no_cell_whose_programs_have_parts_of_sums_has_a_race(name, record):
    run(EVERY[name])
    assert record.launches == 3
    assert not record.races


@partial
def test_no_layer_whose_programs_have_parts_of_sums_has_a_race(record):
    layer = hyper.MetaRecurrent(cells.LSTM(3, 40), form="lowrank", engine="triton")
    layer(randn(STEPS, 2, 3, dtype=torch.float32))[0].sum().backward()
    assert record.launches
    assert not record.races


@partial
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_the_record_shows_a_race_where_sums_of_two_steps_lie_in_one_place(
    name, record, monkeypatch
):
    apart = product_text.partial_sums

    def in_one_place(group, array):
        return apart(group, array).replace("s64 % 2", "s64 * 0")

    monkeypatch.setattr(product_text, "partial_sums", in_one_place)
    run(EVERY[name])
    assert record.races
