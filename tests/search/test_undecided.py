"""A mixture whose shares a network writes."""

import pytest
import torch

from metarnn.hyper import MetaRecurrent
from metarnn.hyper.watch import watch
from metarnn.layers import Recurrent
from metarnn.search import UnitSpace, known
from metarnn.search.undecided import LOGITS, Undecided, WrittenNet
from tests.helpers import planted

SPACE = UnitSpace(slots=("lin", "lin", "mix"), states=1)
UNIT = SPACE.encode(known.ELMAN)


@pytest.fixture
def net():
    torch.manual_seed(0)
    model = planted.Answers(lambda inputs, width: Undecided(inputs, width, SPACE), 4)
    return WrittenNet(SPACE, model)


def test_with_choices_the_written_model_is_the_unit_of_those_choices(net):
    x = torch.randn(6, 2, planted.INPUTS)
    with torch.no_grad():
        for weight in net.writers:
            weight.normal_()
    net.use(UNIT)
    (layer,) = net.layers
    weights = {n: w for n, w in layer.weights(0).items() if n in ("weight_ih", "weight_hh", "bias")}
    unit = Recurrent(SPACE.genotype(UNIT).cell(planted.INPUTS, 4))
    with torch.no_grad():
        for name, value in SPACE.inherited(UNIT, weights, 4).items():
            unit.weights(0)[name].copy_(value)
    torch.testing.assert_close(layer(x)[0], unit(x)[0])


def test_shares_differ_from_step_to_step_and_their_mean_is_counted_over_all(net):
    net.temperature = 0.5
    net.use(net.alpha)
    with torch.no_grad():
        for weight in net.writers:
            weight.normal_()
        with watch() as records:
            net.model(torch.randn(6, 2, planted.INPUTS))
    total, count = net.shares(records)
    assert count == 12
    for row in (total / count).split(SPACE.sizes):
        torch.testing.assert_close(row.sum(), torch.tensor(1.0))
    (record,) = records
    written = (net.alpha + record.numbers["shift_choice_mix"]) / 0.5
    shares = SPACE.probabilities(written)
    assert shares.std((0, 1)).max() > 0.01
    torch.testing.assert_close(total / count, shares.mean((0, 1)))


def test_what_writes_is_no_weight_and_gets_the_gradient_of_the_structure(net):
    trained = {id(w) for w in net.model.parameters() if w.requires_grad}
    assert not trained & {id(w) for w in net.writers}
    net.use(net.alpha)
    with net.writing() as learned:
        loss = net.model(torch.randn(6, 2, planted.INPUTS))[0].square().mean()
        gradients = torch.autograd.grad(loss, learned, allow_unused=True)
    assert gradients[0] is not None
    assert any(g is not None and g.abs().max() > 0 for g in gradients[1:])
    assert not any(w.requires_grad for w in net.writers)


@pytest.mark.parametrize("form", ["", "structure", "scale"])
def test_by_itself_it_learns_what_to_be(form):
    """Every decision gets a gradient, generated or not."""
    unit = Undecided(3, 5, SPACE)
    layer = MetaRecurrent(unit, form=form) if form else Recurrent(unit)
    y, _ = layer(torch.randn(6, 2, 3))
    y.square().sum().backward()
    (logits,) = [w for n, w in layer.named_parameters() if n.startswith(LOGITS)]
    assert logits.grad is not None
    assert (logits.grad != 0).float().mean() > 0.8
