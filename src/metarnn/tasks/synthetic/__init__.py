"""Generated problems that isolate one ability, here memory over long stretches of time."""

from metarnn.tasks.synthetic.adding import adding
from metarnn.tasks.synthetic.copying import copying
from metarnn.tasks.synthetic.counting import counting

__all__ = ["adding", "copying", "counting"]
