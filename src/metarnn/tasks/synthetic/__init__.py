"""Generated problems that isolate one ability, here memory over long stretches of time."""

from metarnn.tasks.synthetic.adding import adding
from metarnn.tasks.synthetic.copying import copying

__all__ = ["adding", "copying"]
