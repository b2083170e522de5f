"""The kernels of a plan, each made when it is first needed."""

from __future__ import annotations

from functools import lru_cache, partial

import torch

from metarnn.engines.cpu.emit import emit
from metarnn.engines.cpu.kernel import Kernel
from metarnn.engines.cpu.layout import SUMMED
from metarnn.engines.cpu.outside import drives, gradients, nothing
from metarnn.engines.plan import Graphs, Key, Plan


class Loop:
    """One of a plan's loops as a kernel: "infer", "train" (keeps what the backward pass needs) or
    "back".

    If it is `driven`, its program also computes what it reads of x, or all gradients of weights.
    `places` tells where among the kernel's pointers each tensor of a call belongs, in the order of
    `_keys`, then of the outputs and of the gradients, without what is `inner`; None for what this
    kernel does not read.
    """

    def __init__(self, plan: Plan, which: str, dtype: torch.dtype, driven: bool = False) -> None:
        graphs = _graphs(plan)
        if which == "back":
            outside = partial(gradients, plan) if driven else nothing
            program = emit(graphs.back.graph, backward=True, outside=outside)
        else:
            outside = partial(drives, plan) if driven else nothing
            graph = graphs.train if which == "train" else graphs.infer
            program = emit(graph, outside=outside)
        # Of each output its name, its width, and whether it is a sum over time [B, n].
        self.outputs = [(n, w, n.startswith(SUMMED)) for n, w in program.outputs.items()]
        self.aliases = program.aliases
        # Of each state its width and whether all steps of it are kept.
        self.states = [
            (width, which == "train" or (which == "infer" and holds_output))
            for width, holds_output in plan.states
        ]
        self.inner = self._inner(plan, which) if driven else {}
        self.kernel, self.outside = Kernel(program, dtype, self.inner), program.outside
        keys = [*_keys(plan, which, driven), *(("output", name) for name in program.outputs)]
        if driven and which == "back":
            keys += [("gradient", f"{kind}.{name}") for kind, name in plan.driven]
        self.places = [self.kernel.given.get(key) for key in keys if key not in self.inner]

    def _inner(self, plan: Plan, which: str) -> dict[Key, tuple[int, int]]:
        """What only the program itself reads: see `Kernel`."""
        found: dict[Key, tuple[int, int]] = {
            ("state", str(k)): (2 * width, 0)
            for k, (width, whole) in enumerate(self.states)
            if not whole
        }
        if which == "infer":
            found |= {key: (0, node.width) for key, node in plan.drives}
        elif which == "back":  # adjoints of which the program makes gradients of weights
            asked = {f"d{kind}.{name}" for kind, name in plan.driven}
            asked |= {name for alias, name in self.aliases.items() if alias in asked}
            found |= {("output", n): (0, w) for n, w, _ in self.outputs if n not in asked}
        return found


def _keys(plan: Plan, which: str, driven: bool) -> list[Key]:
    """The arrays of a call but its outputs, in the order in which `fused` has them."""
    states = range(len(plan.states))
    sources = [*plan.driven, *(key for key, _ in plan.drives)] if driven else plan.sources
    before, after, final = (
        [(kind, str(k)) for k in states] for kind in ("initial", "state", "final")
    )
    if which != "back":
        return [*before, *sources, *after, *final]
    saved = [("input", f"before.{k}") for k in states]
    saved += [("input", f"product.{i}") for i in range(len(plan.products))]
    grads = [*before, *(("input", f"grad.{name}") for name in plan.loop.outputs)]
    return [*sources, *saved, *grads, *after, *final]


@lru_cache(maxsize=512)
def _graphs(plan: Plan) -> Graphs:
    return plan.graphs()


@lru_cache(maxsize=512)
def drivable(plan: Plan) -> bool:
    """Whether programs can compute what comes before a loop: products of x and nothing else."""
    outputs = _graphs(plan).back.graph.outputs
    # To the adjoint of x others are added: it must not be that of something else, too.
    lonely = list(outputs.values()).count(outputs.get("dinput.x", -1)) < 2
    return bool(plan.drives) and lonely


loop = lru_cache(maxsize=2048)(Loop)
