"""How T steps are run: engines, and the choice among them."""

from metarnn.engines.choose import ENGINES, Choice, choose, circumstances, explain, run
from metarnn.engines.engine import Engine, FusedEngine, Request
from metarnn.engines.recurrence import Recurrence

__all__ = [
    "ENGINES",
    "Choice",
    "Engine",
    "FusedEngine",
    "Recurrence",
    "Request",
    "choose",
    "circumstances",
    "explain",
    "run",
]
