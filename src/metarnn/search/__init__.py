"""Units that are found: a space of them, ways to search it, and an honest verdict at the end."""

from metarnn.search import known
from metarnn.search.darts_space import DartsSpace
from metarnn.search.genotype import Genotype
from metarnn.search.guards import SearchStopped
from metarnn.search.options import SearchOptions
from metarnn.search.problem import Problem
from metarnn.search.run import Found, Search
from metarnn.search.space import Choices, Decision, Space
from metarnn.search.unit_space import UnitSpace
from metarnn.search.verdict import Verdict, VerdictOptions, judge
from metarnn.search.workers import Workers

__all__ = [
    "Choices",
    "DartsSpace",
    "Decision",
    "Found",
    "Genotype",
    "Problem",
    "Search",
    "SearchOptions",
    "SearchStopped",
    "Space",
    "UnitSpace",
    "Verdict",
    "VerdictOptions",
    "Workers",
    "judge",
    "known",
]
