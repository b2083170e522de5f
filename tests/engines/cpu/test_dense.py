"""Products of whole matrices against torch's."""

import pytest
import torch

from metarnn import Cell, Map, Recurrent
from metarnn.engines.cpu.dense import BLOCK, LONGEST, Dense
from tests.helpers.cases import make, randn, random_state
from tests.helpers.compare import assert_close, inputs, measure

SIZES = [(1, 1, 1), (2, 3, 5), (17, 64, 33), (100, 65, 16), (13, 70, LONGEST + BLOCK + 3)]


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_each_product_is_that_of_torch(sizes):
    M, N, K = sizes
    x, w, bias, d = randn(M, K), randn(N, K, seed=2), randn(N, seed=3), randn(M, N, seed=4)
    dense = Dense(torch.float64)
    y, dx, dw, sums = dense.linear(x, w, bias), randn(M, K), randn(N, K), randn(N)
    before = dx.clone(), dw.clone(), sums.clone()
    dense.pull(d, w, dx, add=True)
    dense.outer(d, x, dw, add=True)
    dense.total(d, sums, add=True)
    dense.run()
    expected = (x @ w.t() + bias, before[0] + d @ w, before[1] + d.t() @ x, before[2] + d.sum(0))
    assert_close((y, dx, dw, sums), expected)


def test_rows_of_weights_and_of_their_gradients_may_lie_apart():
    both, x, d = randn(6, 9), randn(4, 5, seed=2), randn(4, 6, seed=3)
    found = torch.zeros_like(both)
    dense = Dense(torch.float64)
    y = dense.linear(x, both[:, 2:7], None)
    dense.outer(d, x, found[:, 2:7])
    dense.run()
    expected = torch.zeros_like(both)
    expected[:, 2:7] = d.t() @ x
    assert_close((y, found), (x @ both[:, 2:7].t(), expected))


def test_long_sums_err_no_more_than_those_of_torch():
    x, w = randn(40, 6000), randn(64, 6000, seed=2)
    dense = Dense(torch.float32)
    y = dense.linear(x.float(), w.float(), None)
    dense.run()
    exact, theirs = x @ w.t(), x.float() @ w.float().t()
    assert (y - exact).abs().max() < 2 * (theirs - exact).abs().max()


def test_the_number_of_threads_changes_no_bit(threads):
    found = []
    shapes = ((300, 130), (90, 130), (90,), (300, 90))
    x, w, bias, d = (randn(*shape, dtype=torch.float32) for shape in shapes)
    for count in (1, 2, 3):
        threads(count)
        dense = Dense(torch.float32)
        y, dx, dw, sums = dense.linear(x, w, bias), *map(torch.empty_like, (x, w, bias))
        dense.pull(d, w, dx)
        dense.outer(d, x, dw)
        dense.total(d, sums)
        dense.run()
        found.append((y, dx, dw, sums))
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


class Skipping(Cell):
    """h' = tanh(U h + x) + W x: what flows back into x is what flows back into U h, and more."""

    @property
    def maps(self):
        n = self.hidden_size
        return {"ih": Map(n, n), "hh": Map(n, n, recurrent=True)}

    def drive(self, theta, x):
        return {"x": x, "w": theta.ih(x)}

    def step(self, theta, drive, state):
        return (torch.tanh(theta.hh(state[0]) + drive["x"]) + drive["w"],)


class Leaking(Skipping):
    """h' = U h + x + W x: all three have the same adjoint."""

    def step(self, theta, drive, state):
        return (theta.hh(state[0]) + drive["x"] + drive["w"],)


@pytest.mark.medium
@pytest.mark.parametrize("kind", [Skipping, Leaking])
def test_an_input_that_is_read_beside_its_products(kind):
    cell = kind(5, 5)

    def everything(layer: Recurrent):
        x, *start = inputs(randn(4, 3, 5), *random_state(layer, 3))
        return measure(lambda: layer(x, tuple(start)), [x, *start, *layer.parameters()])

    ours, eager = make(cell, engine="cpu"), make(cell, engine="eager")
    assert_close(everything(ours), everything(eager))
