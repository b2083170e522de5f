"""Products before and after the loop, which its programs compute together with it."""

import pytest
import torch

from metarnn import Cell, Map, Recurrent, cells
from metarnn.engines.cpu.loops import projectable
from metarnn.engines.cpu.projections import KC, KC_MAX
from metarnn.engines.cpu.threads import MIN_PROJECTION_WORK, MIN_STEP_WORK
from metarnn.engines.plan import plan_loop
from tests.helpers.cases import make, randn, random_state
from tests.helpers.compare import assert_close, assert_same, inputs, measure

pytestmark = pytest.mark.medium


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def everything(layer: Recurrent, steps: int = 4, batch: int = 3):
    """Output, states and all gradients."""
    x, *start = inputs(randn(steps, batch, layer.input_size), *random_state(layer, batch))
    return measure(lambda: layer(x, tuple(start)), [x, *start, *layer.parameters()])


def assert_as_eager(cell: Cell, steps: int = 4, batch: int = 3) -> None:
    assert projectable(plan_loop(cell))
    ours, eager = make(cell, engine="cpu"), make(cell, engine="eager")
    assert_close(everything(ours, steps, batch), everything(eager, steps, batch), 1e-11)


@pytest.mark.parametrize("sizes", [(1, 1), (5, 65), (33, 16), (70, 13)], ids=str)
def test_whole_and_broken_tiles(sizes):
    assert_as_eager(cells.MinGRU(*sizes), steps=17)


def test_sums_of_several_blocks():
    assert_as_eager(cells.MinGRU(KC_MAX + 3, 2), steps=2)
    assert_as_eager(cells.MinGRU(3, 2), steps=KC_MAX + KC + 1, batch=1)


class Reading(Cell):
    """h' = tanh(U h + x) + W x: what flows back into x is what flows back into U h, and more."""

    @property
    def maps(self):
        n = self.hidden_size
        return {"ih": Map(n, n), "hh": Map(n, n, recurrent=True)}

    def drive(self, theta, x):
        return {"x": x, "w": theta.ih(x)}

    def step(self, theta, drive, state):
        return (torch.tanh(theta.hh(state[0]) * drive["x"]) + drive["w"],)


class Adding(Reading):
    """h' = U h + x + W x: all three have the same adjoint."""

    def step(self, theta, drive, state):
        return (theta.hh(state[0]) + drive["x"] + drive["w"],)


class Together(Cell):
    """h' = tanh(W [x, h]): the two parts of one weight have gradients of their own."""

    @property
    def maps(self):
        n = self.hidden_size
        return {"both": Map(self.input_size + n, n, recurrent=True)}

    def step(self, theta, drive, state):
        return (torch.tanh(theta.both(torch.cat([drive, state[0]], -1))),)


class Twice(Cell):
    """h' = tanh(W x + U h + U tanh(h)): of U there are two gradients."""

    @property
    def maps(self):
        n = self.hidden_size
        return {"ih": Map(self.input_size, n), "hh": Map(n, n, recurrent=True)}

    def step(self, theta, drive, state):
        (h,) = state
        return (torch.tanh(theta.ih(drive) + theta.hh(h) + theta.hh(torch.tanh(h))),)


@pytest.mark.parametrize("kind", [Reading, Together, Twice])
def test_inputs_and_weights_with_several_uses(kind):
    assert_as_eager(kind(5, 5))


def test_an_adjoint_that_is_that_of_x_and_of_something_else_is_not_added_to():
    cell = Adding(5, 5)
    assert not projectable(plan_loop(cell))
    assert_close(everything(make(cell, engine="cpu")), everything(make(cell, engine="eager")))


@pytest.mark.parametrize("frozen", ["x", "weight_ih_l0", "bias_ih_l0", "weight_hh_l0"])
def test_what_needs_no_gradient_gets_none_and_all_else_its_own(frozen):
    layer = make(Reading(4, 4), engine="cpu")
    x = randn(6, 2, 4)
    named = {"x": x, **dict(layer.named_parameters())}
    x.requires_grad_()
    wanted = torch.autograd.grad(layer(x)[0].square().sum(), list(named.values()))
    named[frozen].requires_grad_(False)
    layer(x)[0].square().sum().backward()
    for name, grad in zip(named, wanted, strict=True):
        if name == frozen:
            assert named[name].grad is None
        else:
            assert torch.equal(named[name].grad, grad)


def test_long_sums_are_exact_to_a_few_units():
    layer = make(cells.MinGRU(8, 8), engine="cpu")
    x = randn(6000, 1, 8)
    exact = torch.autograd.grad(layer(x)[0].sum(), layer.weight_ih_l0)[0]
    layer = layer.float()
    ours = torch.autograd.grad(layer(x.float())[0].sum(), layer.weight_ih_l0)[0]
    assert (ours - exact).abs().max() < 2e-6 * exact.abs().max()


@pytest.mark.parametrize("cell", [cells.LSTM(70, 64), cells.Elman(1100, 40)], ids=["lstm", "wide"])
def test_the_number_of_threads_changes_no_bit(cell, threads):
    steps, batch = 130, 1
    if isinstance(cell, cells.Elman):  # one thread goes through the loop, the others wait
        assert cell.hidden_size**2 < MIN_STEP_WORK
        assert steps * cell.input_size * cell.hidden_size > MIN_PROJECTION_WORK
    layer, found = make(cell, engine="cpu", dtype=torch.float32), []
    x = randn(steps, batch, cell.input_size, dtype=torch.float32)
    for count in (1, 2, 3):
        threads(count)
        found.append(measure(lambda: layer(x), layer.parameters()))
    assert_same(found[1], found[0])
    assert_same(found[2], found[0])
