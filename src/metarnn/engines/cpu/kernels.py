"""The kernels of a plan, each made when it is first needed."""

from __future__ import annotations

from functools import lru_cache

import torch

from metarnn.engines.cpu.emit import emit
from metarnn.engines.cpu.kernel import Kernel
from metarnn.engines.plan import Graphs, Plan


@lru_cache(maxsize=512)
def _graphs(plan: Plan) -> Graphs:
    return plan.graphs()


@lru_cache(maxsize=2048)
def kernel(plan: Plan, which: str, dtype: torch.dtype) -> Kernel:
    """The kernel "infer", "train" (keeps what the backward pass needs) or "back"."""
    graphs = _graphs(plan)
    if which == "back":
        return Kernel(emit(graphs.back.graph, backward=True), dtype)
    return Kernel(emit(graphs.train if which == "train" else graphs.infer), dtype)
