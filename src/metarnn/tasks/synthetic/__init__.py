"""Generated problems by which the field judges recurrent units."""

from metarnn.tasks.synthetic.adding import adding
from metarnn.tasks.synthetic.copying import copying
from metarnn.tasks.synthetic.counting import counting
from metarnn.tasks.synthetic.dynamics import lorenz, mackey_glass, van_der_pol
from metarnn.tasks.synthetic.problems import PROBLEMS, Problem, SyntheticTask, build_model

__all__ = [
    "PROBLEMS",
    "Problem",
    "SyntheticTask",
    "adding",
    "build_model",
    "copying",
    "counting",
    "lorenz",
    "mackey_glass",
    "van_der_pol",
]
