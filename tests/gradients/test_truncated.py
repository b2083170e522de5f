import math

import pytest
import torch

from metarnn import cells
from metarnn.gradients import ARTBP, BPTT, KFRTRL, TBPTT, UORO, RandomTBPTT, SampledTBPTT
from tests.gradients.models import close, data, exact, flat, regression
from tests.helpers.cases import EVERY


def brute_force(model, x, y, k1, k2):
    """Each loss by itself, from a state that is cut off where the rule cuts it off."""
    total: dict[str, torch.Tensor] = {}
    states = [None]
    for t in range(len(x)):
        states.append(BPTT().step(model, (x[t : t + 1], y[t : t + 1]), states[-1]).carried)
    for t in range(len(x)):
        end = min(-(-(t + 1) // k1) * k1, len(x))  # where this loss is followed back from
        start = max(end - k2, 0)
        state = states[start]
        if t > start:
            _, state = model.layer(x[start:t], state)
        value, _ = model((x[t : t + 1], y[t : t + 1]), state)
        names, weights = zip(*model.named_parameters(), strict=True)
        grads = torch.autograd.grad(value, weights)
        for name, grad in zip(names, grads, strict=True):
            total[name] = total.get(name, 0) + grad
    return total


@pytest.mark.parametrize(("k1", "k2"), [(1, 1), (1, 3), (2, 4), (2, 3), (4, 6), (3, 100)])
def test_every_k1_steps_losses_reach_k2_steps_back(k1, k2):
    model, (x, y) = regression(EVERY["lstm"]), data(12)
    close(TBPTT(k1, k2).step(model, (x, y)).named, brute_force(model, x, y, k1, k2))


@pytest.mark.parametrize("rule", [TBPTT(3, 9), RandomTBPTT(1.0), SampledTBPTT(1e15)])
def test_without_a_cut_all_is_backpropagation(rule):
    model, chunk = regression(EVERY["gru"], 2), data()
    close(rule.step(model, chunk).named, exact(model, chunk), 1e-9)


def test_a_cut_at_every_border_leaves_each_stretch_alone(monkeypatch):
    model, chunk = regression(EVERY["gru"]), data()
    monkeypatch.setattr(torch, "rand", lambda *shape: torch.ones(shape))
    close(RandomTBPTT(0.5, every=3).step(model, chunk).named, TBPTT(3, 3).step(model, chunk).named)


UNBIASED = {
    "random": RandomTBPTT(0.7),
    "random-2": RandomTBPTT(0.5, every=2),
    "sampled": SampledTBPTT(3),
    "artbp": ARTBP(4),
    "uoro": UORO(),
    "kf-rtrl": KFRTRL(),
}


@pytest.mark.medium
@pytest.mark.parametrize("kind", UNBIASED)
@pytest.mark.parametrize("cell", [cells.Elman(3, 4), cells.LSTM(3, 3, peephole=True)])
def test_the_mean_over_many_draws_is_the_exact_gradient(kind, cell):
    """Within 3 standard errors, in each parameter along the direction of its exact gradient and
    along two random ones."""
    torch.manual_seed(0)
    # Sequences draw for themselves, so that copies of one are as many draws; but for this rule.
    steps, copies = (120, 1) if kind == "sampled" else (25, 40)
    model, (x, y) = regression(cell), data(6, batch=1)
    true = exact(model, (x, y))
    chunk = x.expand(-1, copies, -1), y.expand(-1, copies, -1)
    found = [UNBIASED[kind].step(model, chunk).named for _ in range(steps)]
    for name, gradient in true.items():
        directions = torch.stack([gradient.flatten(), *torch.randn(2, gradient.numel())]).double()
        along = torch.stack([directions @ each[name].flatten() / copies for each in found])
        error = along.std(0) / math.sqrt(steps)
        off = (along.mean(0) - directions @ gradient.flatten()).abs()
        assert (off <= 3 * error + 1e-9).all(), (name, off / error)


@pytest.mark.parametrize("rule", [RandomTBPTT(0.7), SampledTBPTT(3), ARTBP(4), UORO(), KFRTRL()])
def test_what_is_drawn_matters(rule):
    model, chunk = regression(EVERY["elman"]), data()
    one, other = (flat(rule.step(model, chunk).named) for _ in range(2))
    assert not torch.allclose(one, other)


def test_the_lengths_of_anticipated_truncation_have_the_mean_asked_for():
    torch.manual_seed(0)
    kept = ARTBP(20.0, alpha=6.0).factors(2000, 100) > 0
    assert 1 / (~kept).double().mean() == pytest.approx(20, rel=0.05)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TBPTT(4, 2), "k2=2: expected at least k1=4"),
        (lambda: RandomTBPTT(0.0), "above 0"),
        (lambda: RandomTBPTT(1.5), "probability"),
        (lambda: ARTBP(1.0), "length"),
        (lambda: SampledTBPTT(0), "above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
