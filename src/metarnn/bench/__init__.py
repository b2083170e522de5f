"""Side-by-side measurements: ours against torch's, in one run, one after the other."""

from metarnn.bench.cells import Case, Row, cases, measure
from metarnn.bench.timing import interleaved

__all__ = ["Case", "Row", "cases", "interleaved", "measure"]
