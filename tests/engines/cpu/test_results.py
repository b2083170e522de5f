"""The cpu engine against eager: odd sizes, number types, gradients of every kind."""

import pytest
import torch

from metarnn import Cell, Map, Recurrent, cells
from tests.helpers.cases import make, parts, randn, random_state
from tests.helpers.compare import assert_close, cotangents, inputs, leaves, measure

KINDS = {
    "elman": lambda n: cells.Elman(3, n),
    "lstm": lambda n: cells.LSTM(3, n),
    "lstm-all": lambda n: cells.LSTM(3, n, peephole=True, coupled=True, layer_norm=True),
    "gru": lambda n: cells.GRU(3, n),
    "gru-before": lambda n: cells.GRU(3, n, reset="before"),
    "onlstm": lambda n: cells.ONLSTM(3, n),
    "mingru": lambda n: cells.MinGRU(3, n),
    "minlstm": lambda n: cells.MinLSTM(3, n),
    "sru": lambda n: cells.SRU(3, n, activation="tanh"),
    "sru-2": lambda n: cells.SRU(3, n, version=2),
}


def pair(cell, **options) -> tuple[Recurrent, Recurrent]:
    return make(cell, engine="cpu", **options), make(cell, engine="eager", **options)


def everything(layer: Recurrent, x: torch.Tensor, state: tuple[torch.Tensor, ...]):
    """Values and all gradients."""
    x, *start = inputs(x, *state)
    return measure(lambda: layer(x, tuple(start)), [x, *start, *layer.parameters()])


# Narrower than any vector; as wide as some and a bit.
SIZES = [(kind, width) for kind in KINDS for width in (3, 17)]
SIZES += [(kind, width) for kind in ("lstm-all", "onlstm", "minlstm") for width in (1, 2)]


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "width"), SIZES)
def test_small_and_odd_sizes(kind, width):
    ours, eager = pair(KINDS[kind](width))
    for batch in range(1, 10):
        for steps in (1, 2):
            x, state = randn(steps, batch, 3), random_state(ours, batch)
            assert_close(everything(ours, x, state), everything(eager, x, state))
            with torch.no_grad():
                assert_close(ours(x, state), eager(x, state))


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["lstm", "onlstm", "mingru"])
def test_no_sequences_and_none_but_one(kind):
    ours, eager = pair(KINDS[kind](4))
    for batch in (0, 1):
        x, state = randn(3, batch, 3), random_state(ours, batch)
        assert_close(everything(ours, x, state), everything(eager, x, state))


TYPES = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.mark.medium
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("kind", ["lstm", "gru-before", "onlstm", "mingru"])
def test_number_types(kind, dtype):
    ours, oracle = pair(KINDS[kind](5))
    ours.to(dtype)
    oracle.load_state_dict(ours.state_dict())  # as rounded
    x = randn(6, 3, 3, dtype=dtype)
    state = random_state(ours, 3)
    wide = [part.double() for part in state]
    found, expected = everything(ours, x, state), everything(oracle, x.double(), tuple(wide))
    assert {t.dtype for t in leaves(found)} == {dtype}
    assert_close(found, expected, TYPES[dtype])


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["elman", "gru-before", "lstm-all", "onlstm", "minlstm"])
def test_derivatives_of_derivatives(kind):
    layer = make(KINDS[kind](2), engine="cpu")
    weights = dict(layer.named_parameters())
    x, *state = inputs(randn(2, 2, 3), *random_state(layer, 2))

    def function(x, *rest):
        given = dict(zip(weights, rest[len(state) :], strict=True))
        found = torch.func.functional_call(layer, given, (x, tuple(rest[: len(state)])))
        return tuple(leaves(found))

    arguments = (x, *state, *inputs(*weights.values()))
    assert torch.autograd.gradcheck(function, arguments)
    assert torch.autograd.gradgradcheck(function, arguments)


@pytest.mark.medium
@pytest.mark.parametrize("asked", ["x", "state", "weights", "one weight"])
@pytest.mark.parametrize("kind", ["lstm-all", "gru-before", "onlstm", "sru-2"])
def test_gradients_by_some_of_the_tensors_only(kind, asked):
    found = []
    for layer in pair(KINDS[kind](4)):
        x, state = randn(4, 2, 3), random_state(layer, 2)
        chosen = {
            "x": [x],
            "state": list(state),
            "weights": list(layer.parameters()),
            "one weight": [next(layer.parameters())],
        }[asked]
        layer.requires_grad_(False)
        for tensor in chosen:
            tensor.requires_grad_()
        found.append(measure(lambda: layer(x, state), chosen))  # noqa: B023
    assert_close(*found)


@pytest.mark.medium
@pytest.mark.parametrize("which", ["output", "state"])
@pytest.mark.parametrize("kind", ["lstm", "onlstm", "sru"])
def test_gradients_of_the_output_or_of_the_final_state_alone(kind, which):
    found = []
    for layer in pair(KINDS[kind](4)):
        x = randn(4, 2, 3).requires_grad_()
        y, final = layer(x)
        values = [y] if which == "output" else list(parts(final))
        wrt = [x, *layer.parameters()]
        found.append(
            torch.autograd.grad(
                values, wrt, cotangents(values), allow_unused=True, materialize_grads=True
            )
        )
    assert_close(*found)


@pytest.mark.medium
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", ["lstm", "gru-before", "onlstm", "lstm-all", "mingru"])
def test_what_is_not_finite_stays_in_its_sequence_and_is_as_in_torch(kind, value):
    ours, eager = pair(KINDS[kind](5))
    x = randn(4, 3, 3)
    x[1, 1, 0] = value
    with torch.no_grad():
        (y, final), (expected, expected_final) = ours(x), eager(x)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12, equal_nan=True)
    torch.testing.assert_close(final, expected_final, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert y[:, [0, 2]].isfinite().all()


@pytest.mark.medium
def test_large_values_saturate_as_in_torch():
    ours, eager = pair(KINDS["lstm"](5), dtype=torch.float32)
    x = 1e30 * randn(4, 3, 3, dtype=torch.float32)
    assert_close(ours(x), eager(x), 2e-6)


@pytest.mark.medium
def test_inputs_may_lie_in_memory_in_any_way():
    ours, eager = pair(KINDS["lstm"](4))
    x = randn(3, 4, 5).permute(2, 1, 0)  # T = 5, B = 4, I = 3
    state = tuple(
        part.transpose(0, 1).contiguous().transpose(0, 1) for part in random_state(ours, 4)
    )
    assert_close(everything(ours, x, state), everything(eager, x, state))
    x = randn(1, 1, 3).expand(5, 4, 3)
    assert_close(ours(x), eager(x))


@pytest.mark.medium
def test_torch_func_is_refused_when_cpu_is_asked_for_and_served_by_auto():
    x = randn(3, 2, 3)
    asked, eager = pair(KINDS["lstm"](4))
    auto = make(KINDS["lstm"](4))

    def gradient(layer):
        return torch.func.grad(lambda x: layer(x)[0].square().sum())(x)

    assert auto.choose(x).engine == "cpu"
    assert_close(gradient(auto), gradient(eager))
    message = "engine='cpu' cannot run this: torch.func and forward-mode derivatives"
    with pytest.raises(ValueError, match=message):
        gradient(asked)
    with pytest.raises(ValueError, match=message):
        torch.func.jvp(lambda x: asked(x)[0], (x,), (x,))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(ValueError, match=message):
        asked(x)
    found, wanted = (
        torch.func.jvp(lambda x, layer=layer: layer(x)[0], (x,), (x,)) for layer in (auto, eager)
    )
    assert_close(found, wanted)
    asked(x)  # outside of it, as ever


class Biased(Cell):
    """Its step needs a row that depends on no input: the softmax of a weight."""

    @property
    def maps(self):
        return {"hh": Map(self.hidden_size, self.hidden_size, recurrent=True)}

    @property
    def vectors(self):
        return {"prior": self.hidden_size}

    def step(self, theta, drive, state):
        (h,) = state
        return (torch.tanh(theta.hh(h) + torch.softmax(theta.prior, -1) + drive),)


def test_what_depends_on_no_input_is_the_same_at_all_steps():
    layers = [Recurrent(Biased(5, 5), engine=e, dtype=torch.float64) for e in ("cpu", "eager")]
    layers[1].load_state_dict(layers[0].state_dict())
    x = torch.randn(7, 3, 5, dtype=torch.float64)
    outputs = [layer(x)[0] for layer in layers]
    grads = [
        torch.autograd.grad(y.square().sum(), list(layer.parameters()))
        for y, layer in zip(outputs, layers, strict=True)
    ]
    torch.testing.assert_close(outputs[0], outputs[1])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


class Clock(Cell):
    """h_t = tanh(U h_{t-1} + b), whatever x is."""

    @property
    def maps(self):
        return {"hh": Map(self.hidden_size, self.hidden_size, recurrent=True)}

    def step(self, theta, drive, state):
        return (torch.tanh(theta.hh(state[0])),)


def test_a_cell_may_ignore_its_input():
    ours, eager = pair(Clock(3, 4))
    eager.load_state_dict(ours.state_dict())
    x, state = randn(5, 2, 3), (randn(1, 2, 4),)
    found, expected = (everything(layer, x, state) for layer in (ours, eager))
    assert_close(found, expected)


def test_weights_of_another_shape_are_refused_before_generated_code_reads_them():
    layer = Recurrent(cells.LSTM(3, 4), engine="cpu").eval()
    weights = {n: p[:8] if n.startswith("weight_hh") else p for n, p in layer.named_parameters()}
    with pytest.raises(ValueError, match=r"weight_hh\.shape=\(8, 4\)"):
        torch.func.functional_call(layer, weights, (torch.zeros(2, 1, 3),))
