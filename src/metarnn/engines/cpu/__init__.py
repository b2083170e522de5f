"""Any cell on a CPU: its graph as generated C, forward and backward."""

from metarnn.engines.cpu.compile import CannotCompile
from metarnn.engines.cpu.engine import CpuEngine
from metarnn.engines.cpu.stream import Step

__all__ = ["CannotCompile", "CpuEngine", "Step"]
