import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from metarnn import GRU, LSTM, MetaRecurrent, MinGRU, Recurrent, cells, hyper
from metarnn.gradients import KFRTRL, RFLO, RTRL, TBPTT, UORO, SnAp
from tests.gradients.models import Regression, close, data, exact, regression, through
from tests.helpers.cases import COMBINED, EVERY, LINEAR, OPTIONS, make, randomize

I, H = 3, 4


@pytest.mark.parametrize("layers", [1, pytest.param(2, marks=pytest.mark.medium)])
@pytest.mark.parametrize("name", EVERY)
def test_rtrl_equals_backpropagation_for_every_cell(name, layers):
    model, chunk = regression(EVERY[name], layers), data()
    close(through(RTRL(1), model, chunk, (4,)), exact(model, chunk))


@pytest.mark.medium
@pytest.mark.parametrize("name", COMBINED)
def test_rtrl_equals_backpropagation_for_every_option_of_a_cell(name):
    cell = OPTIONS[name]
    model, chunk = regression(cell, 2), data(6, inputs=cell.input_size)
    close(through(RTRL(1), model, chunk, (3,)), exact(model, chunk))


@pytest.mark.parametrize("stretch", [0, 2, 5])
@pytest.mark.parametrize("name", ["elman", "lstm-all", "qrnn-3", "sru-2"])
def test_any_length_of_stretch_gives_the_same(name, stretch):
    model, chunk = regression(EVERY[name], 2), data()
    close(through(RTRL(stretch), model, chunk, (4, 5)), exact(model, chunk))


class Generated(nn.Module):
    """Weights that a network writes from a code, which is learned: generated, as hyper/ does it."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.code = nn.Parameter(torch.randn(5, dtype=torch.float64))
        self.net = nn.Linear(5, shape.numel(), dtype=torch.float64)
        self.shape = shape

    def forward(self, weight):
        return weight + torch.tanh(self.net(self.code)).view(self.shape)


def generated():
    layer = make(cells.GRU(I, H))
    for name in ("weight_hh_l0", "weight_ih_l0"):
        module = Generated(getattr(layer, name).shape)
        parametrize.register_parametrization(layer, name, module)
    return layer


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, I, dtype=torch.float64)
        self.encoder = nn.Linear(I, I, dtype=torch.float64)

    def forward(self, x):
        return torch.tanh(self.encoder(self.embedding(x.sum(-1).long() % 5)))


def meta(**options):
    layer = MetaRecurrent(cells.LSTM(I, H), **options).double()
    randomize(layer)
    return Regression(layer, H)


MODELS = {
    "generated weights": lambda: Regression(generated(), H),
    "generated from inputs": lambda: meta(form=("scale", "lowrank")),
    "generated from the state": lambda: meta(context="state"),
    "hyperlstm": lambda: Regression(make(hyper.HyperLSTM(I, H, 2)), H),
    "mogrifier": lambda: Regression(make(hyper.Mogrifier(cells.GRU(I, H), 3)), H),
    "layers of different cells": lambda: Regression(
        Chain([make(cells.LSTM(I, H)), make(cells.MinGRU(H, 3))]), 3
    ),
    "embedding and encoder": lambda: Regression(make(cells.GRU(I, H)), H, Words()),
    "residual": lambda: Regression(make(cells.SRU(I, I), 2, residual=True), I),
    "feedback": lambda: Regression(make(cells.GRU(I, H), feedback=True), H),
    "one matrix, used twice": lambda: Regression(make(Twice(H, H)), H, nn.Linear(I, H).double()),
}


class Chain(nn.Module):
    def __init__(self, layers) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, state):
        state, after = [None] * len(self.layers) if state is None else state, []
        for layer, own in zip(self.layers, state, strict=True):
            x, final = layer(x, own)
            after.append(final)
        return x, tuple(after)


class Twice(cells.Cell):
    @property
    def maps(self):
        return {"w": cells.Map(self.hidden_size, self.hidden_size, recurrent=True)}

    def step(self, theta, drive, state):
        (h,) = state
        return (torch.tanh(theta.w(h) + theta.w(drive)),)


@pytest.mark.parametrize("kind", MODELS)
def test_rtrl_equals_backpropagation_for_models_of_all_kinds(kind):
    torch.manual_seed(0)
    model, chunk = MODELS[kind](), data()
    close(through(RTRL(1), model, chunk, (4,)), exact(model, chunk))
    close(through(RTRL(), model, chunk, (4,)), exact(model, chunk))


@pytest.mark.parametrize("name", LINEAR)
def test_an_elementwise_cell_costs_one_pass_and_one_number_a_parameter(name):
    model, rule = regression(LINEAR[name]), RTRL()
    found = rule.step(model, data())
    known = rule._known[model]
    assert len(known.seeds) == 1
    for kept, influence in found.carried[1].items():
        weight = dict(model.named_parameters())[kept]
        biases = weight.shape[0] if len(influence) > weight.shape[-1] else 0
        assert influence.numel() == 2 * (weight.numel() + biases)  # two sequences


def test_a_reset_takes_the_influence_with_it():
    layer = make(cells.GRU(I, H))
    model = Regression(layer, H)
    x, y = data()
    resets = torch.zeros(9, 2, dtype=torch.bool)
    resets[4, 0] = resets[6, 1] = True

    def loss(model, chunk, state):
        x, y, resets = chunk
        h, state = model.layer(x, state, resets=resets)
        return (model.readout(h) - y).square().sum(), state

    whole = loss(model, (x, y, resets), None)[0]
    names, weights = zip(*model.named_parameters(), strict=True)
    true = dict(zip(names, torch.autograd.grad(whole, weights), strict=True))
    for rule in (RTRL(1, loss=loss), RTRL(3, loss=loss)):
        close(through(rule, model, (x, y, resets), (5,)), true)


def test_memory_does_not_grow_with_time():
    model, rule = Regression(MinGRU(I, 8, dtype=torch.float64), 8), RTRL()
    sizes, carried = set(), None
    for _ in range(3):
        carried = rule.step(model, data(100), carried).carried
        sizes.add(sum(t.numel() for t in (carried[0], *carried[1].values())))
    assert len(sizes) == 1


def test_what_is_carried_has_sequences_along_dimension_one():
    for rule in (RTRL(), SnAp(), RFLO(), UORO(), KFRTRL()):
        _, influence = rule.step(regression(EVERY["lstm"]), data(batch=7)).carried
        for kept in influence.values():
            for tensor in kept if isinstance(kept, tuple) else (kept,):
                assert tensor.shape[1] == 7


@pytest.mark.parametrize("name", LINEAR)
def test_snap_1_and_rflo_are_exact_where_units_keep_to_themselves(name):
    model, chunk = regression(LINEAR[name]), data()
    for rule in (SnAp(1), RFLO()):
        close(rule.step(model, chunk).named, exact(model, chunk))


@pytest.mark.parametrize("name", ["elman", "lstm", "gru"])
def test_snap_2_keeps_all_where_units_see_one_another(name):
    model, chunk = regression(EVERY[name]), data()
    close(SnAp(2).step(model, chunk).named, exact(model, chunk))


def test_snap_1_keeps_the_own_unit_of_a_simple_network():
    """J[i, jk] of h_i by W_jk, followed for i = j alone: the recursion written out."""
    layer = make(cells.Elman(I, H))
    model, (x, y) = Regression(layer, H), data(6, batch=1)
    W = layer.weight_hh_l0.detach()
    h, e, total = torch.zeros(H).double(), torch.zeros(H, H).double(), torch.zeros(H, H).double()
    for t in range(6):
        now = h.clone().requires_grad_()
        state = now.view(1, 1, H)
        value, after = model((x[t : t + 1], y[t : t + 1]), state)
        δ, direct = torch.autograd.grad(value, (now, layer.weight_hh_l0))
        total += direct + δ.unsqueeze(1) * e
        new = after.detach().view(H)
        slope = 1 - new**2
        e = slope.unsqueeze(1) * (W.diagonal().unsqueeze(1) * e + h)
        h = new
    found = SnAp(1).step(model, (x, y)).named
    torch.testing.assert_close(found["layer.weight_hh_l0"], total)


def test_rflo_of_a_simple_network_looks_two_steps_back():
    model, chunk = regression(EVERY["elman"]), data()
    close(RFLO().step(model, chunk).named, TBPTT(1, 2).step(model, chunk).named)


def test_rflo_of_an_lstm_follows_its_memory():
    """The trace of c by W_g: e ← f ⊙ e + i ⊙ g' ⊗ x, whatever the recurrent weights."""
    layer = LSTM(I, H, dtype=torch.float64)
    randomize(layer)
    model, rule = Regression(layer, H), RFLO()
    x, y = data(5, batch=1)
    influence = rule.step(model, (x, y)).carried[1]["layer.weight_ih_l0"]  # [n, 1, z, places]
    e, h, c = torch.zeros(H, I).double(), torch.zeros(H).double(), torch.zeros(H).double()
    w = {k: v.detach() for k, v in layer.weights(0).items()}
    for t in range(5):
        gates = w["weight_ih"] @ x[t, 0] + w["bias_ih"] + w["weight_hh"] @ h + w["bias_hh"]
        i, f, g, o = gates.chunk(4)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        e = f.unsqueeze(1) * e + (i * (1 - g**2)).unsqueeze(1) * x[t, 0]
        c = f * c + i * g
        h = o * c.tanh()
    torch.testing.assert_close(influence[:I, 0, 2 * H : 3 * H, 1].T, e)


def test_an_influence_that_no_memory_holds_is_refused_before_any_work():
    model = Regression(GRU(64, 512, dtype=torch.float64), 512)
    x = torch.zeros(2, 64, 64).double(), torch.zeros(2, 64, 2).double()
    with pytest.raises(ValueError, match=r"GiB.*cheaper rule"):
        RTRL().step(model, x)


def test_what_is_dropped_does_not_depend_on_the_first_look_at_a_model():
    layer = LSTM(I, H, dtype=torch.float64)
    model, rule = Regression(layer, H, nn.Dropout(0.5)), RTRL()
    torch.manual_seed(1)
    first = rule.step(model, data()).named
    torch.manual_seed(1)
    close(first, rule.step(model, data()).named)


def test_a_model_that_carries_nothing_on_is_refused():
    def loss(model, chunk, state):
        return (model(chunk[0]) - chunk[1]).square().sum(), None

    with pytest.raises(ValueError, match="for the next step to start from"):
        RTRL(loss=loss).step(nn.Linear(3, 2, dtype=torch.float64), data())


def test_layers_get_their_engine_back():
    model = regression(EVERY["lstm"])
    RTRL().step(model, data())
    assert isinstance(model.layer, Recurrent)
    assert model.layer.engine == "auto"
