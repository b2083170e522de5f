"""The loops of a plan as compiled programs, and the arrays of one at a given size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from metarnn.engines.codegen.dataflow import SUMMED
from metarnn.engines.cpu.kernel import Kernel
from metarnn.engines.cpu.memory import CPU, Shape, allocator, contiguous
from metarnn.engines.cpu.program import emit
from metarnn.engines.cpu.projections import all_gradients, input_projections, no_projections
from metarnn.engines.plan import Key, LoopGraphs, LoopPlan, X
from metarnn.engines.zeros import zeros

Allocator = Callable[..., Tensor]


class CallShape(NamedTuple):
    """What a loop computes, and how much of it."""

    plan: LoopPlan
    steps: int
    batch: int
    dtype: torch.dtype


@lru_cache(maxsize=512)
def _graphs(plan: LoopPlan) -> LoopGraphs:
    return plan.graphs()


@lru_cache(maxsize=512)
def projectable(plan: LoopPlan) -> bool:
    """Whether programs can compute what comes before a loop: products of x and nothing else."""
    outputs = _graphs(plan).backward.graph.outputs
    # The adjoint of x is added to: it must not be that of something else, too.
    alone = list(outputs.values()).count(outputs.get("dinput.x", -1)) < 2
    return bool(plan.projections) and alone


class LoopKernel:
    """One of a plan's loops, compiled: "infer", "train" (keeps what the backward pass needs) or
    "backward".

    If it is `projected`, its program also computes the products of x that it reads, or, backward,
    the gradients of all weights. `places` says where among the kernel's pointers each array of a
    call belongs, None for one that this kernel does not read: in the order of `_keys`, then the
    outputs, then the gradients, without what is `private`.
    """

    def __init__(self, plan: LoopPlan, which: str, dtype: torch.dtype, projected: bool) -> None:
        graphs, backward = _graphs(plan), which == "backward"
        graph = graphs.backward.graph if backward else getattr(graphs, which)
        around = partial(all_gradients if backward else input_projections, plan)
        program = emit(
            graph,
            name=plan.name,
            backward=backward,
            projections=around if projected else no_projections,
        )
        # Of each output its name, its width, and whether it is a sum over time [B, n].
        self.outputs = [(n, w, n.startswith(SUMMED)) for n, w in program.outputs.items()]
        self.aliases = program.aliases
        # Of each state its width and whether all steps of it are kept.
        self.states = [
            (width, which == "train" or (which == "infer" and holds_output))
            for width, holds_output in plan.states
        ]
        self.private = self._private(plan, which) if projected else {}
        self.source = program.source
        self.kernel, self.products = Kernel(program, dtype, self.private), program.projections
        keys = [*_keys(plan, backward, projected), *(("output", name) for name in program.outputs)]
        if projected and backward:
            keys += [("gradient", f"{kind}.{name}") for kind, name in plan.projection_arguments]
        self.places = [self.kernel.places.get(key) for key in keys if key not in self.private]

    def _private(self, plan: LoopPlan, which: str) -> dict[Key, tuple[int, int]]:
        """The arrays that only the program itself reads: see `Kernel`."""
        private: dict[Key, tuple[int, int]] = {
            ("state", str(k)): (2 * width, 0)
            for k, (width, all_steps) in enumerate(self.states)
            if not all_steps
        }
        if which == "infer":
            private |= {key: (0, node.width) for key, node in plan.projections}
        elif which == "backward":  # adjoints from which the program computes gradients of weights
            returned = {f"d{kind}.{name}" for kind, name in plan.projection_arguments}
            returned |= {name for alias, name in self.aliases.items() if alias in returned}
            private |= {("output", n): (0, w) for n, w, _ in self.outputs if n not in returned}
        return private


def _keys(plan: LoopPlan, backward: bool, projected: bool) -> list[Key]:
    """The arrays of a call except its outputs, in the order in which `engine.CpuCall` has them."""
    states = range(len(plan.states))
    arguments = plan.loop_arguments
    if projected:
        arguments = [*plan.projection_arguments, *(key for key, _ in plan.projections)]
    initial, history, final = (
        [(kind, str(k)) for k in states] for kind in ("initial", "state", "final")
    )
    if not backward:
        return [*initial, *arguments, *history, *final]
    saved = [("input", f"before.{k}") for k in states]
    saved += [("input", f"product.{i}") for i in range(len(plan.products))]
    adjoints = [*initial, *(("input", f"grad.{name}") for name in plan.loop.outputs)]
    return [*arguments, *saved, *adjoints, *history, *final]


loop_kernel = lru_cache(maxsize=2048)(LoopKernel)


class KernelCall:
    """A loop over so many steps of so many sequences.

    The arrays of a call are its arguments, then the workspace that `allocate` makes for its
    results, then, of a projected backward loop, where the gradients of weights go.
    """

    def __init__(self, shape: CallShape, which: str, projected: bool) -> None:
        plan, steps, batch, dtype = shape
        loop = loop_kernel(plan, which, dtype, projected)
        self.plan, self.steps, self.batch, self.dtype = shape
        self._kernel = loop.kernel
        self._places = [(place, k) for k, place in enumerate(loop.places) if place is not None]
        self._slots = [steps + 1 if all_steps else 2 for _, all_steps in loop.states]
        arrays: dict[Key, tuple[Allocator, Shape]] = {}
        if projected and which != "backward":
            for key, node in plan.projections:
                arrays[key] = allocator((steps, batch, node.width), dtype)
        for k, (slots, (width, _)) in enumerate(zip(self._slots, loop.states, strict=True)):
            arrays["state", str(k)] = allocator((slots, batch, width), dtype)
        lead = () if which == "backward" else (1,)  # states are [1, B, n], their gradients [B, n]
        for k, (width, _) in enumerate(loop.states):
            arrays["final", str(k)] = torch.empty, (*lead, batch, width)
        for name, width, summed in loop.outputs:
            per_step = allocator((steps, batch, width), dtype)
            arrays["output", name] = (torch.zeros, (batch, width)) if summed else per_step
        arrays = {key: array for key, array in arrays.items() if key not in loop.private}
        self._allocators = list(arrays.values())
        # Where in the workspace everything is.
        at = {key: k for k, key in enumerate(arrays)}
        self.projections = [at[key] for key, _ in plan.projections if key in at]
        numbered = ((k, ("state", str(k))) for k in range(len(plan.states)))
        self.states = {k: at[key] for k, key in numbered if key in at}
        first = at.get(("final", "0"), 0)
        self.finals = slice(first, first + len(plan.states))
        names = {name: name for name, *_ in loop.outputs} | loop.aliases
        self.outputs = {
            alias: at["output", name] for alias, name in names.items() if ("output", name) in at
        }

    def allocate(self) -> list[Tensor]:
        """The workspace: memory for the results, and for what passes from step to step."""
        dtype = self.dtype
        return [allocate(shape, dtype=dtype, device=CPU) for allocate, shape in self._allocators]

    def run(self, arrays: Sequence[Tensor]) -> None:
        self._kernel(self._places, arrays, self._slots, self.steps, self.batch)


class ForwardCall(KernelCall):
    """A loop that computes states and outputs."""

    def __init__(self, shape: CallShape, which: str, projected: bool) -> None:
        super().__init__(shape, which, projected)
        products = range(len(self.plan.products)) if which == "train" else ()
        self.products = [self.outputs[f"product.{i}"] for i in products]
        self._saved = [*self.projections, *self.states.values(), *self.products]
        self.own = [self.outputs[name] for name, state in self.plan.results if state is None]
        # The results, each with whether it lies in the history of a state, after its first row.
        self._results = [
            (self.outputs[name], False) if state is None else (self.states[state], True)
            for name, state in self.plan.results
        ]

    @property
    def saved_count(self) -> int:
        return len(self._saved)

    def saved(self, workspace: Sequence[Tensor]) -> list[Tensor]:
        """What the backward loop reads: projections, histories of states, results of products."""
        return [workspace[k] for k in self._saved]

    def results(self, workspace: Sequence[Tensor]) -> list[Tensor]:
        """The final states, then the results of the loop."""
        outputs = [workspace[k][1:] if history else workspace[k] for k, history in self._results]
        return [*workspace[self.finals], *outputs]


class BackwardCall(KernelCall):
    """A backward loop, which computes adjoints; if projected, gradients of all weights too."""

    def __init__(self, shape: CallShape, projected: bool) -> None:
        super().__init__(shape, "backward", projected)
        plan, steps, batch, dtype = shape
        nodes, products = plan.loop.nodes, loop_kernel(plan, "backward", dtype, projected).products
        self._result_shapes = [(batch, width) for width in plan.loop.states]
        self._result_shapes += [(steps, batch, nodes[k].width) for k in plan.loop.outputs.values()]
        # For each argument of a projected loop: how to allocate its gradient, or where in the
        # workspace the loop puts it (or adds to it, for x), or neither; and whether it is a vector,
        # whose gradient has a row for each sequence.
        self._gradients: list[tuple[Allocator | None, Shape, int | None, bool]] = []
        if not projected:
            return
        x = plan.parts.full.nodes[plan.parts.full.named("input")["x"]]
        shapes: dict[Key, Shape] = {key: size for key, _, size in plan.weights}
        shapes[X] = (steps, batch, x.width)
        in_loop = {X: self.outputs.get("dinput.x")}
        for key in plan.projection_arguments:
            kind, name = key
            if key in products.gradients and in_loop.get(key) is None:
                allocate, size = allocator(shapes[key], dtype)
                allocate = torch.zeros if key in products.zeroed else allocate
                self._gradients.append((allocate, size, None, False))
            else:
                place = self.outputs.get(f"d{kind}.{name}")
                self._gradients.append((None, (), place, kind == "vector"))

    def result_gradients(
        self, gradients: Sequence[Tensor | None], own: bool = False
    ) -> list[Tensor]:
        """The gradients of all results, with zeros (of their `own`) for those that have none."""
        return [
            zeros(shape, self.dtype, CPU, own) if gradient is None else contiguous(gradient)
            for gradient, shape in zip(gradients, self._result_shapes, strict=True)
        ]

    def gradients(self, workspace: Sequence[Tensor], needed: Sequence[bool]) -> list[Tensor | None]:
        """Where the gradients of a projected loop's arguments go, or None."""
        places: list[Tensor | None] = []
        for (allocate, shape, k, _), need in zip(self._gradients, needed, strict=True):
            if not need:
                places.append(None)
            elif allocate is not None:
                places.append(allocate(shape, dtype=self.dtype, device=CPU))
            else:
                places.append(None if k is None else workspace[k])
        return places

    def summed(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The same, with those of vectors summed over sequences."""
        return [
            gradient.sum(0) if vector and gradient is not None else gradient
            for gradient, (*_, vector) in zip(gradients, self._gradients, strict=True)
        ]


forward_call = lru_cache(maxsize=4096)(ForwardCall)
backward_call = lru_cache(maxsize=4096)(BackwardCall)
