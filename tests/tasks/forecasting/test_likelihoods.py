"""Losses, quantiles and CRPS against sampling, closed forms and one another."""

import math

import pytest
import torch

from metarnn.tasks.forecasting.likelihoods import (
    LEVELS,
    LIKELIHOODS,
    incomplete_beta,
    likelihood,
    student_cdf,
)

NAMES = list(LIKELIHOODS)


def parameters(name, shape=(5,)):
    torch.manual_seed(0)
    unit = likelihood(name)
    return unit, unit.parameters(torch.randn(*shape, unit.size, dtype=torch.float64))


def test_incomplete_beta_in_closed_form():
    x = torch.linspace(0.01, 0.99, 20, dtype=torch.float64)
    one, two = torch.ones_like(x), torch.full_like(x, 2.0)
    torch.testing.assert_close(incomplete_beta(one, one, x), x)
    torch.testing.assert_close(incomplete_beta(two, one, x), x**2)
    torch.testing.assert_close(incomplete_beta(one, two, x), 1 - (1 - x) ** 2)


def test_students_distribution_is_cauchys_for_one_degree_and_nearly_normal_for_many():
    z = torch.linspace(-4, 4, 33, dtype=torch.float64)
    cauchy = 0.5 + z.atan() / math.pi
    torch.testing.assert_close(student_cdf(z, torch.ones_like(z)), cauchy)
    normal = 0.5 * (1 + torch.erf(z / math.sqrt(2)))
    torch.testing.assert_close(student_cdf(z, torch.full_like(z, 1e5)), normal, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["gaussian", "student"])
def test_quantiles_and_crps_are_those_of_what_is_drawn(name):
    unit, p = parameters(name)
    drawn = unit.sample(p.expand(40_000, *p.shape))
    y = torch.tensor([-1.0, 0, 0.5, 1, 3], dtype=torch.float64)
    for level in (0.1, 0.5, 0.9):
        found = unit.quantile(p, level)
        torch.testing.assert_close(found, drawn.quantile(level, 0), atol=0.05, rtol=0.05)
    half = len(drawn) // 2
    energy = (drawn - y).abs().mean(0) - 0.5 * (drawn[:half] - drawn[half:]).abs().mean(0)
    torch.testing.assert_close(unit.crps(p, y), energy, atol=0.03, rtol=0.03)


def test_quantiles_never_cross_and_are_found_between_their_levels():
    unit, p = parameters("quantiles", (100,))
    assert (p[:, :-1].diff() > 0).all()
    torch.testing.assert_close(unit.quantile(p, 0.2), p[:, LEVELS.index(0.2)])
    between = (p[:, LEVELS.index(0.2)] + p[:, LEVELS.index(0.3)]) / 2
    torch.testing.assert_close(unit.quantile(p, 0.25), between)


def test_the_loss_of_quantiles_is_least_at_the_quantiles_and_the_mean():
    unit = likelihood("quantiles")
    y = torch.linspace(0, 1, 1001, dtype=torch.float64) ** 2
    best = torch.tensor([q**2 for q in LEVELS] + [1 / 3], dtype=torch.float64)
    least = unit.loss(best.expand(1001, -1), y).mean()
    for k in range(unit.size):
        for shift in (-0.03, 0.03):
            other = best.clone()
            other[k] += shift
            assert unit.loss(other.expand(1001, -1), y).mean() > least


@pytest.mark.parametrize("name", NAMES)
def test_moving_the_distribution_moves_what_it_says(name):
    unit, p = parameters(name)
    by, scale = torch.randn(5).double(), torch.rand(5).double() + 0.5
    moved = unit.moved(p, by, scale)
    y = torch.randn(5).double()
    torch.testing.assert_close(unit.mean(moved), unit.mean(p) * scale + by)
    torch.testing.assert_close(unit.quantile(moved, 0.3), unit.quantile(p, 0.3) * scale + by)
    torch.testing.assert_close(unit.crps(moved, y * scale + by), unit.crps(p, y) * scale)
