"""Any cell on a GPU: its graph as one Triton kernel for all time steps, forward and backward.

Triton is imported when a kernel is first needed: that takes a second.
"""

from metarnn.engines.triton.engine import CannotLaunch, TritonEngine, interpreted

__all__ = ["CannotLaunch", "TritonEngine", "interpreted"]
