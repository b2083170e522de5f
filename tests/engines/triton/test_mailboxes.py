"""Programs that publish and poll values find what one program finds, whoever is quick or slow.

The interpreter runs programs one after the other. Here each has a thread of its own, one of them
runs at a time, and which one goes on is drawn by lot whenever a number is read or written.
"""

import inspect
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from metarnn import Cell, Map, cells, hyper
from metarnn.bench.cells import MGU
from metarnn.bench.cells import random_graph as random_cell
from metarnn.engines.triton import kernel, program, runtime, tiling
from metarnn.engines.triton.loops import loop_kernels
from metarnn.graph import GraphCell
from tests.helpers import interpreter
from tests.helpers.cases import EVERY, LINEAR
from tests.helpers.compare import assert_close
from tests.helpers.oracle import agree_from_a_random_state, from_a_random_state
from tests.helpers.random_graphs import random_graph

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(interpreter.ON_GPU, reason="on a GPU programs run at the same time"),
]
PROGRAMS, STEPS = 3, 9  # more steps than it takes to use all slots twice


class Together:
    """Programs in threads that take turns, drawn by lot."""

    def __init__(self, seed: int) -> None:
        self.lot = random.Random(seed)
        self.turns = threading.Condition()
        self.alive: list[int] = []
        self.now = -1
        self.errors: list[BaseException] = []

    def run(self, program: Callable[[], None], count: int) -> None:
        self.alive = list(range(count))
        threads = [threading.Thread(target=self._one, args=(i, program)) for i in range(count)]
        for thread in threads:
            thread.start()
        self._next()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def switch(self, chance: float) -> None:
        """Perhaps let another program go on."""
        if len(self.alive) > 1 and self.lot.random() < chance:
            me = self.now
            self._next()
            self._wait(me)

    def _one(self, me: int, program: Callable[[], None]) -> None:
        self._wait(me)
        try:
            program()
        except BaseException as error:
            self.errors.append(error)
        self.alive.remove(me)
        self._next()

    def _next(self) -> None:
        with self.turns:
            self.now = self.lot.choice(self.alive) if self.alive else -1
            self.turns.notify_all()

    def _wait(self, me: int) -> None:
        from triton.runtime.interpreter import interpreter_builder

        with self.turns:
            self.turns.wait_for(lambda: self.now == me)
        interpreter_builder.set_grid_idx(me, 0, 0)


@pytest.fixture(params=["gathered", "summed"])
def together(device, request, monkeypatch):
    """Kernels of several programs that publish, and run at the same time."""
    import triton.language as tl
    from triton.runtime.interpreter import (
        GridExecutor,
        InterpreterBuilder,
        _implicit_cvt,
        _patch_lang,
        interpreter_builder,
    )

    from metarnn.engines.triton import synchronization

    all_of_them = Together(seed=0)
    published: list[bool] = []

    def launch(self, *tensors, **constants):
        scope = _patch_lang(self.fn)
        try:
            given = inspect.getcallargs(self.fn, *tensors, **constants)
            given = {k: v if k in self.constexprs else _implicit_cvt(v) for k, v in given.items()}
            interpreter_builder.set_grid_dim(self.grid[0], 1, 1)
            all_of_them.run(partial(self.fn, **given), self.grid[0])
        finally:
            scope.restore()

    def switching(name: str) -> Callable[..., Any]:
        as_it_is = getattr(InterpreterBuilder, name)

        def access(self: Any, *arguments: Any) -> Any:
            all_of_them.switch(0.05)
            return as_it_is(self, *arguments)

        return access

    def patient(name: str) -> Callable[..., Any]:
        """Who looks for something in vain lets others go on."""
        as_it_is = getattr(synchronization, name)

        def look(*arguments: Any) -> Any:
            found, late = as_it_is(*arguments)
            if late.handle.data.max():
                all_of_them.switch(1.0)
            return found, late

        return look

    def look(counter: Any) -> Any:
        all_of_them.switch(0.5)
        return tl.load(counter)

    def tile(program, batch, weight_bytes, sm_count, budget=1.0):
        if not program.synchronizes and not program.groups:  # such programs are not shared so
            return tiling.tile(program, batch, weight_bytes, 8, budget)
        found = interpreter.shared(
            program, batch, weight_bytes, PROGRAMS, budget, request.param == "summed", True, 4
        )
        published.append(found.publish)
        return found

    for name in ("create_masked_load", "create_masked_store", "create_atomic_rmw"):
        monkeypatch.setattr(InterpreterBuilder, name, switching(name))
    monkeypatch.setattr(GridExecutor, "__call__", launch)
    for name in ("_load_published", "_add_partials"):
        monkeypatch.setattr(synchronization, name, patient(name))
    monkeypatch.setattr(synchronization, "_load_acquire", look)
    monkeypatch.setattr(synchronization, "SPIN_LIMIT", 1_000)
    monkeypatch.setattr(kernel, "tile", tile)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)  # the interpreter is exact anyway
    loop_kernels.cache_clear()
    yield published
    loop_kernels.cache_clear()
    _, flag = runtime.timeout_flag(torch.device("cpu"))
    stuck, flag[0] = bool(flag[0]), 0
    assert not stuck, "somebody waited in vain"


def agree(cell: Cell) -> None:
    agree_from_a_random_state(cell, 3, STEPS)


PUBLISHED = {
    "lstm": cells.LSTM(3, 20),
    "peephole": cells.LSTM(3, 20, peephole=True),
    "gru": cells.GRU(3, 20),
    "gru-before": cells.GRU(3, 20, reset="before"),
    "user": MGU(3, 20),
    "graph8": random_cell(3, 20),
}


LATER = [pytest.param(name, marks=pytest.mark.slow) for name in PUBLISHED if name != "lstm"]


@pytest.mark.parametrize("name", ["lstm", *LATER])
def test_published_values_are_what_eager_finds(name, together):
    agree(PUBLISHED[name])
    assert together == [True, True]


class Part(Cell):
    """A product of the first half of a state."""

    @property
    def maps(self) -> dict[str, Map]:
        H = self.hidden_size
        return {"ih": Map(self.input_size, H), "hh": Map(H // 2, H, recurrent=True)}

    def step(self, theta: Any, drive: Any, state: Any) -> Any:
        (h,) = state
        half = h[..., : self.hidden_size // 2]
        return (torch.tanh(theta.ih(drive) + theta.hh(half) + 0.5 * h),)


# Of a program without units, or whose units nobody reads, nobody would know what it has read.
MEET = {
    "few units": cells.LSTM(3, 4),
    "layer norm": cells.LSTM(3, 20, layer_norm=True),
    "part": Part(3, 40),
}


@pytest.mark.parametrize(
    "cell",
    [pytest.param(MEET[name], marks=pytest.mark.slow) for name in MEET if name != "part"]
    + [MEET["part"]],
    ids=list(MEET),
)
@pytest.mark.parametrize("together", ["gathered"], indirect=True)
def test_there_is_a_barrier_where_not_all_can_be_published(cell, together):
    agree(cell)
    assert not all(together)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EVERY if name not in LINEAR])
def test_all_cells_find_what_eager_finds_published_or_not(name, together):
    agree(EVERY[name])


class Ahead(Cell):
    """A state that needs nothing of other programs, and another that is made of it: a program may
    be ahead of others by as much as there can be."""

    @property
    def maps(self) -> dict[str, Map]:
        H = self.hidden_size
        return {"ih": Map(self.input_size, H), "hh": Map(H, H, recurrent=True)}

    @property
    def states(self) -> tuple[int, ...]:
        return self.hidden_size, self.hidden_size

    def step(self, theta: Any, drive: Any, state: Any) -> Any:
        h, c = state
        c = torch.tanh(theta.ih(drive) + c)
        return torch.tanh(theta.hh(state[1]) + 0.5 * h), c


@pytest.mark.parametrize("together", ["gathered"], indirect=True)
def test_a_program_that_is_two_steps_ahead_of_another_waits_for_it(together):
    agree(Ahead(3, 20))
    assert all(together)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mogrifier", "lowrank"])
def test_generated_weights_are_published(name, together):
    if name == "mogrifier":
        agree(hyper.Mogrifier(cells.LSTM(4, 20), rounds=3, rank=2))
    else:
        layers = [
            hyper.MetaRecurrent(cells.LSTM(3, 40), form="lowrank", engine=engine, dtype=dtype)
            for engine, dtype in (("triton", torch.float32), ("eager", torch.float64))
        ]
        for weight in layers[0].parameters():
            torch.nn.init.normal_(weight, std=0.3)
        layers[1].load_state_dict(layers[0].state_dict())
        found, right = (from_a_random_state(layer, 5, STEPS) for layer in layers)
        assert_close(found, right, 1e-5)
    assert any(together)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_find_what_eager_finds(seed, together):
    agree(GraphCell(random_graph(seed)))


@pytest.mark.parametrize("together", ["gathered"], indirect=True)
def test_with_fewer_slots_they_would_not(together, monkeypatch):
    from metarnn.engines.triton import synchronization

    monkeypatch.setattr(synchronization, "SPIN_LIMIT", 30)
    for module in (program, kernel):
        monkeypatch.setattr(module, "MAILBOX_DEPTH", 1)
    with pytest.raises((AssertionError, RuntimeError)):  # wrong numbers, or waiting in vain
        agree(PUBLISHED["lstm"])
    _, flag = runtime.timeout_flag(torch.device("cpu"))
    flag[0] = 0
