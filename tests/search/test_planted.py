"""Data that a hidden unit made: the search finds a unit as good as that one."""

import random
from dataclasses import replace

import pytest

from metarnn.search import Genotype, Search, SearchOptions, UnitSpace, known
from metarnn.search.trial import Trial
from metarnn.training import Settings, World
from tests.helpers import planted

HIDDEN = Genotype.parse("""
    z = sigmoid(lin(x, h))
    g = tanh(lin(x, h))
    h' = blend(z, h, g)
""")
SPACE = UnitSpace(
    slots=("lin", "lin", "mix"),
    states=1,
    activations=("sigmoid", "tanh"),
    operations=("sum", "prod", "blend"),
)
SETTINGS = Settings(batch=16, lr=0.03, steps=500, schedule="cosine", warmup=10)
OPTIONS = SearchOptions(
    strategy="darts",
    alpha_lr=0.03,
    search_width=16,
    candidate_steps=100,
    polish=12,
    finalists=3,
    finalist_steps=400,
    check_every=200,
)


def score(unit, problem):
    """The loss of a unit trained as a finalist is."""
    settings = replace(SETTINGS, steps=OPTIONS.finalist_steps)
    trial = Trial(unit.cell, settings, OPTIONS.search_width, decisive=True)
    return trial.run(problem, World()).score


@pytest.mark.medium
def test_a_differentiable_search_finds_a_unit_as_good_as_the_hidden_one():
    problem = planted.problem(HIDDEN, sequences=256)
    assert SPACE.allows(SPACE.genotype(SPACE.encode(HIDDEN)))
    true, simple = score(HIDDEN, problem), score(known.ELMAN, problem)
    found = Search(problem, SPACE, SETTINGS, OPTIONS).run()
    assert found.score <= 1.02 * true < simple / 2


WHOLE = UnitSpace()
LONG = replace(
    OPTIONS, strategy="evolution", candidate_steps=150, population=20, tournament=6, polish=30,
    finalists=6,
)  # fmt: skip


@pytest.mark.slow
def test_a_search_of_the_whole_space_finds_a_unit_as_good_as_one_drawn_from_it():
    hidden = WHOLE.genotype(WHOLE.draw(random.Random(4)))
    settings = replace(SETTINGS, steps=55 * LONG.candidate_steps)
    problem = planted.problem(hidden, sequences=256)
    found = Search(problem, WHOLE, settings, LONG).run()
    assert found.score <= 1.02 * score(hidden, problem) < score(known.GRU, problem)
