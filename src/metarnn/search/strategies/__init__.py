"""Ways to search a space, all with one interface: see `base.Strategy`."""

from metarnn.search.strategies.base import Given, Strategy
from metarnn.search.strategies.darts import Darts
from metarnn.search.strategies.enas import Enas
from metarnn.search.strategies.evolution import Evolution
from metarnn.search.strategies.gdas import Gdas
from metarnn.search.strategies.random_search import RandomSearch
from metarnn.search.strategies.random_sharing import RandomSharing
from metarnn.search.strategies.written import Written

STRATEGIES: dict[str, type[Strategy]] = {
    "darts": Darts,
    "gdas": Gdas,
    "written": Written,
    "random-sharing": RandomSharing,
    "enas": Enas,
    "random": RandomSearch,
    "evolution": Evolution,
}

__all__ = ["STRATEGIES", "Given", "Strategy"]
