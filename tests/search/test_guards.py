"""What goes wrong is noticed, and said with advice."""

import math
import random

import pytest
import torch

from metarnn.search import DartsSpace, SearchStopped, UnitSpace, known
from metarnn.search.derive import perturbed, probable
from metarnn.search.guards import check_loss, check_mix, entropy, masses

SPACE = UnitSpace()


def test_entropy_is_1_for_equal_shares_and_0_for_a_unit():
    equal = SPACE.probabilities(torch.zeros(sum(SPACE.sizes)))
    assert entropy(SPACE, equal) == pytest.approx(1)
    assert entropy(SPACE, SPACE.one_hot(SPACE.encode(known.GRU))) == pytest.approx(0, abs=1e-9)


def test_the_mass_of_an_operation_is_its_mean_share():
    space = DartsSpace(nodes=2)
    mix = space.one_hot((3, 1))  # identity of s_0, relu of s_0
    found = masses(space, mix)
    assert found == {"tanh": 0.0, "relu": 0.5, "sigmoid": 0.0, "identity": 0.5}


def test_known_units_and_equal_shares_are_no_collapse():
    check_mix(SPACE, SPACE.probabilities(torch.zeros(sum(SPACE.sizes))))
    for name in ("lstm", "gru", "elman"):
        check_mix(SPACE, SPACE.one_hot(SPACE.encode(known.KNOWN[name])))


def test_collapse_to_identity_stops_with_advice():
    space = DartsSpace(nodes=4)
    mix = space.one_hot((3, 3, 7, 3))
    with pytest.raises(SearchStopped, match=r"collapsed to identity.*--alpha-lr"):
        check_mix(space, mix)


def test_a_unit_without_input_or_past_stops_with_advice():
    choices = list(SPACE.encode(known.ELMAN))
    reads = [d.name for d in SPACE.decisions].index("n0.reads")
    choices[reads] = SPACE.decisions[reads].options.index("x")
    with pytest.raises(SearchStopped, match="no input, or on no past"):
        check_mix(SPACE, SPACE.one_hot(tuple(choices)))


@pytest.mark.parametrize("now", [math.nan, math.inf, 10.0])
def test_a_loss_that_blows_up_stops_with_advice(now):
    check_loss(3.0, 4.0)
    with pytest.raises(SearchStopped, match="blew up"):
        check_loss(3.0, now)


def test_the_likeliest_unit_comes_first_and_useless_ones_never():
    mix = SPACE.probabilities(torch.zeros(sum(SPACE.sizes)))
    gru = SPACE.one_hot(SPACE.encode(known.GRU))
    found = probable(SPACE, 0.8 * gru + 0.2 * mix, 3, random.Random(0))
    assert SPACE.genotype(found[0]) == SPACE.genotype(SPACE.encode(known.GRU))
    units = {SPACE.genotype(each) for each in found}
    assert len(units) == 3
    assert all(unit.useful for unit in units)


def test_perturbation_takes_what_the_loss_needs_whatever_its_share():
    space = DartsSpace(nodes=2)
    wanted = space.one_hot((2, 5))

    def loss(mix):
        return float((1 - mix[wanted > 0]).sum())  # falls with the shares of what is wanted

    shares = space.probabilities(torch.randn(sum(space.sizes), generator=torch.manual_seed(3)))
    assert space.likeliest(shares) != (2, 5)
    assert space.likeliest(perturbed(space, shares, loss, random.Random(0))) == (2, 5)
