"""Each kind of dropout drops what its name says, and nothing in evaluation."""

import math

import pytest
import torch

import metarnn
from metarnn import cells
from tests.helpers.cases import EVERY, LINEAR, QUICK, make, parts, randn, random_state
from tests.helpers.compare import assert_close, assert_same

T, B, H = 6, 50, 40
ONES = torch.ones(T, B, H, dtype=torch.float64)


def pass_through(num_layers: int, **options):
    """Layers that hand on their input as it is, so that what comes out shows what was dropped."""
    layer = metarnn.Recurrent(
        cells.Elman(H, H, "identity", bias=False), num_layers, dtype=torch.float64, **options
    )
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            weight.copy_(torch.eye(H) if "ih" in name else torch.zeros(H, H))
    return layer


def assert_share(dropped: torch.Tensor, p: float) -> None:
    """The share of independent draws that came out true is p, within five standard deviations."""
    assert abs(dropped.double().mean() - p) < 5 * math.sqrt(p * (1 - p) / dropped.numel())


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_dropout_between_layers_is_drawn_anew_at_each_step(p):
    torch.manual_seed(0)
    output, _ = pass_through(2, dropout=p)(ONES)
    assert_close(output.unique(), torch.tensor([0, 1 / (1 - p)], dtype=torch.float64))
    assert_share(output == 0, p)
    assert len(output.unique(dim=0)) == T


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_variational_dropout_is_one_mask_for_all_steps(p):
    torch.manual_seed(0)
    output, _ = pass_through(2, variational_dropout=p)(ONES)
    assert_close(output.unique(), torch.tensor([0, 1 / (1 - p)], dtype=torch.float64))
    assert_share(output[0] == 0, p)
    assert len(output.unique(dim=0)) == 1
    assert len(output[0].unique(dim=0)) == B  # another for each sequence


@pytest.mark.parametrize("num_layers", [1, 2])
def test_input_dropout_is_one_mask_for_all_steps_on_x_alone(num_layers):
    torch.manual_seed(0)
    output, _ = pass_through(num_layers, input_dropout=0.3)(ONES)
    assert_close(output.unique(), torch.tensor([0, 1 / 0.7], dtype=torch.float64))
    assert_share(output[0] == 0, 0.3)
    assert len(output.unique(dim=0)) == 1


def test_every_gap_between_layers_has_a_mask_of_its_own():
    torch.manual_seed(0)
    output, _ = pass_through(3, variational_dropout=0.5)(ONES)
    assert_share(output[0] == 0, 0.75)


def test_recurrent_dropout_acts_on_the_input_of_recurrent_maps_alone():
    """h_t = x_t + m ⊙ h_{t-1}: a dropped unit still has its x_t, a kept one sums them up."""
    torch.manual_seed(0)
    layer = pass_through(1, recurrent_dropout=0.5)
    torch.nn.init.eye_(layer.get_parameter("weight_hh_l0"))
    output, final = layer(ONES)
    dropped = output[1] == 1
    assert_share(dropped, 0.5)
    h = torch.zeros(B, H, dtype=torch.float64)
    for t in range(T):
        h = 1 + torch.where(dropped, 0, 2) * h  # one mask for all steps, kept units scaled
        assert_close(output[t], h)
    assert_close(final[0], h)  # the state itself is not dropped


@pytest.mark.parametrize("name", [n for n, c in EVERY.items() if "hh" in c.maps or "yh" in c.maps])
def test_recurrent_dropout_of_everything_is_a_recurrence_without_its_maps(name):
    layer, x = make(EVERY[name], recurrent_dropout=1.0), randn(4, 2, 3)
    severed = make(EVERY[name])
    with torch.no_grad():
        for weight, m in EVERY[name].maps.items():
            if m.recurrent:
                getattr(severed, f"weight_{weight}_l0").zero_()
    assert_close(layer(x), severed(x))


@pytest.mark.parametrize("part", [0, 1])
def test_zoneout_keeps_a_unit_as_it_was_or_lets_it_change(part):
    torch.manual_seed(0)
    rates = (0.3, 0.0) if part == 0 else (0.0, 0.3)
    zoned = make(cells.LSTM(3, H), zoneout=rates)
    plain = make(cells.LSTM(3, H))
    state, kept = random_state(zoned, B), []
    for x in randn(T, 1, B, 3):
        _, expected = plain(x, state)
        _, new = zoned(x, state)
        held = new[part] == state[part]
        assert_close(new[part], torch.where(held, state[part], expected[part]))
        assert_close(new[1 - part], expected[1 - part])
        kept.append(held)
        state = new
    assert_share(torch.stack(kept), 0.3)
    assert len(torch.stack(kept).unique(dim=0)) == T  # drawn anew at each step


def test_zoneout_draws_every_step_of_one_call_anew():
    torch.manual_seed(0)
    layer = pass_through(1, zoneout=0.3)
    x = torch.arange(1, T + 1).double().view(T, 1, 1).expand(T, B, H)
    output, _ = layer(x)
    before = torch.cat([torch.zeros_like(output[:1]), output[:-1]])
    held = output == before
    assert_close(output, torch.where(held, before, x))
    assert_share(held, 0.3)
    assert len(held.unique(dim=0)) == T


@pytest.mark.parametrize("engine_of", ["eager", "auto"])
@pytest.mark.parametrize("name", EVERY)
def test_zoneout_in_evaluation_is_its_expectation(name, engine_of):
    rates = tuple(0.1 * (k + 1) for k in range(len(EVERY[name].states)))
    zoned = make(EVERY[name], zoneout=rates, engine=engine_of).eval()
    plain = make(EVERY[name])
    state = random_state(zoned, 2)
    whole = zoned(randn(T, 2, 3), state)[1]
    for x in randn(T, 1, 2, 3):
        _, new = plain(x, state)
        mixed = [p * old + (1 - p) * n for p, old, n in zip(rates, state, parts(new), strict=False)]
        state = (*mixed, *parts(new)[len(rates) :])  # past inputs are no state of the cell
    assert_close(whole, list(state))


def test_weight_drop_acts_on_whole_weights_for_a_call():
    torch.manual_seed(0)
    plain = make(cells.Elman(3, H, "identity"))
    layer = make(cells.Elman(3, H, "identity"), weight_drop=0.4)
    x = torch.zeros(1, H, 3, dtype=torch.float64)
    bias = plain.bias_ih_l0 + plain.bias_hh_l0
    start = torch.eye(H, dtype=torch.float64).unsqueeze(0)  # row b reads column b of W_hh
    seen = (layer(x, start)[0][0] - bias).T
    weight = plain.weight_hh_l0
    dropped = seen.abs() < 1e-9
    assert_share(dropped, 0.4)
    assert_close(seen, torch.where(dropped, 0, weight / 0.6))
    again = (layer(x, start)[0][0] - bias).T
    assert not torch.equal(again.abs() < 1e-9, dropped)  # another mask for another call
    assert_same(layer.weight_hh_l0, weight)


def test_weight_drop_is_one_mask_for_all_steps_and_sequences():
    torch.manual_seed(0)
    layer = make(cells.Elman(3, 8, "identity"), weight_drop={"ih": 0.5})
    torch.nn.init.zeros_(layer.weight_hh_l0)
    output, _ = layer(torch.ones(T, B, 3, dtype=torch.float64))
    assert len(output.flatten(0, 1).unique(dim=0)) == 1


def test_a_map_that_only_some_layers_have_is_dropped_where_it_is():
    """SRU has a highway map where its sizes differ: in the first of these layers alone."""
    layer = make(cells.SRU(3, 4), 2, weight_drop={"highway": 1.0})
    severed = make(cells.SRU(3, 4), 2)
    torch.nn.init.zeros_(severed.weight_highway_l0)
    assert_close(layer(randn(T, 2, 3)), severed(randn(T, 2, 3)))


KINDS = (
    "dropout",
    "variational_dropout",
    "input_dropout",
    "recurrent_dropout",
    "weight_drop",
    "zoneout",
)


@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("name", ["lstm", "gru-before", "jordan", "onlstm", "own"])
def test_nothing_is_dropped_in_evaluation(name, kind):
    x = randn(T, 2, 3)
    layer = make(EVERY[name], 2, **{kind: 0.5})
    assert_close(layer.eval()(x), make(EVERY[name], 2)(x))
    assert not torch.equal(layer.train()(x)[0], layer.eval()(x)[0])


@pytest.mark.parametrize(("name", "engine"), QUICK)
def test_a_probability_of_0_is_no_dropout_bit_for_bit(name, engine):
    x = randn(T, 2, 3)
    layer = make(EVERY[name], 2, engine=engine, **dict.fromkeys(KINDS, 0.0))
    assert_same(layer(x), make(EVERY[name], 2, engine=engine)(x))


@pytest.mark.parametrize("name", EVERY)
def test_a_probability_of_1_leaves_no_nan(name):
    kinds = dict.fromkeys(KINDS, 1.0)
    if not any(m.recurrent for m in EVERY[name].maps.values()):
        kinds |= {"recurrent_dropout": 0.0, "weight_drop": dict.fromkeys(EVERY[name].maps, 1.0)}
    layer = make(EVERY[name], 2, **kinds)
    output, final = layer(randn(T, 2, 3))
    gradients = torch.autograd.grad(output.sum(), list(layer.parameters()), allow_unused=True)
    values = [output, *parts(final), *[g for g in gradients if g is not None]]
    assert all(value.isfinite().all() for value in values)


@pytest.mark.parametrize("name", LINEAR)
def test_zoneout_of_1_never_changes_the_state(name):
    layer = make(EVERY[name], zoneout=1.0)
    state = random_state(layer, 2)
    assert_close(parts(layer(randn(T, 2, 3), state)[1])[0], state[0])


def test_dropout_with_nothing_between_layers_warns_as_torch_does():
    with pytest.warns(UserWarning, match="num_layers=1"):
        metarnn.LSTM(3, 4, dropout=0.5)
