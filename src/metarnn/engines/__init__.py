"""How T steps are run: engines, and the choice among them."""

from metarnn.engines.choose import ENGINES, Choice, Request, choose, circumstances, explain
from metarnn.engines.recurrence import Recurrence

__all__ = ["ENGINES", "Choice", "Recurrence", "Request", "choose", "circumstances", "explain"]
