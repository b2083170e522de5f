"""The loops of a plan as kernels, and what is known of one before its tensors are there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metarnn.engines.autograd import LoopResults, Tensors
from metarnn.engines.plan import Key, LoopPlan
from metarnn.engines.triton.emit import emit
from metarnn.engines.triton.kernel import Kernel
from metarnn.engines.triton.scan import Scan, scannable
from metarnn.engines.zeros import zeros
from metarnn.graph import Graph, preactivations


class CallShape(NamedTuple):
    """How much a loop computes, in which dtypes, and where."""

    steps: int
    batch: int
    states: tuple[torch.dtype, ...]  # of each part of the state: under autocast they may differ
    dot: torch.dtype  # of products
    device: torch.device


class LoopKernels:
    """A plan's loop without gradients, with them, and its backward pass."""

    def __init__(self, plan: LoopPlan) -> None:
        self.plan, self.graph = plan, plan.loop
        self.saved = preactivations(self.graph)
        self.graphs = plan.graphs(self.saved)

    @cached_property
    def forgotten(self) -> frozenset[Key]:
        """The loop's inputs that are products of x or the like and that no backward pass reads."""
        read = self.graphs.backward.graph.named("input")
        hoisted = (("input", name) for name in self.plan.parts.hoisted)
        return frozenset(key for key in hoisted if key[1] not in read)

    @cached_property
    def infer(self) -> Kernel | Scan:
        return self._kernel(self.graphs.infer, kept=frozenset(self.plan.shared.values()))

    @cached_property
    def train(self) -> Kernel | Scan:
        return self._kernel(self.graphs.train, kept=frozenset(range(len(self.graph.states))))

    @cached_property
    def backward(self) -> Kernel | Scan:
        return self._kernel(self.graphs.backward.graph, backward=True)

    def of(self, gradient: bool) -> dict[str, Kernel | Scan]:
        """The kernels of a call, with gradients or without."""
        if gradient:
            return {"forward": self.train, "backward": self.backward}
        return {"forward": self.infer}

    def _kernel(
        self, graph: Graph, *, backward: bool = False, kept: frozenset[int] = frozenset()
    ) -> Kernel | Scan:
        name = f"{self.plan.name}_{'backward' if backward else 'forward'}" if self.plan.name else ""
        if scannable(graph):
            return Scan(graph, name=name, backward=backward, kept=kept)
        return Kernel(emit(graph, name=name, backward=backward, kept=kept))


@lru_cache(maxsize=512)
def loop_kernels(plan: LoopPlan) -> LoopKernels:
    return LoopKernels(plan)


class ArraySpec(NamedTuple):
    """An array that a kernel writes."""

    key: Key
    shape: tuple[int, ...]
    dtype: torch.dtype


class KernelCall:
    """A kernel over so many steps of so many sequences: it is given arrays and writes others.

    The states in `full` have a slot for every step.
    """

    def __init__(
        self, kernel: Kernel | Scan, shape: CallShape, given: Sequence[Key], full: frozenset[int]
    ) -> None:
        self.kernel, self.shape, self.full = kernel, shape, full
        self.written = [*self._states(), *self._others()]
        self.keys = [*given, *(array.key for array in self.written)]
        self.place = {array.key: k for k, array in enumerate(self.written)}

    def _states(self) -> list[ArraySpec]:
        """The final states, and a history for each that has one: with three slots, if not full."""
        program, shape = self.kernel.program, self.shape
        # Not a view of a history: whoever zeroes a state that was returned must not zero an output.
        arrays = [
            ArraySpec(("final", str(i)), (*self._lead, shape.batch, width), dtype)
            for i, ((width, _, _), dtype) in enumerate(
                zip(program.states, shape.states, strict=True)
            )
        ]
        for i, (width, has_array, exactly) in enumerate(program.states):
            slots = shape.steps + 1 if i in self.full else 3
            dtype = torch.float32 if exactly else shape.states[i]
            if has_array:
                arrays.append(ArraySpec(("state", str(i)), (slots, shape.batch, width), dtype))
        return arrays

    _lead: tuple[int, ...] = ()

    def _others(self) -> list[ArraySpec]:
        program, (steps, batch, _, dot, _) = self.kernel.program, self.shape
        arrays = [
            ArraySpec(("output", name), (steps, batch, width), dot)
            for name, width in program.outputs.items()
        ]
        for name, (width, rounded) in program.scratch.items():
            dtype = dot if rounded else torch.float32
            arrays.append(ArraySpec(("scratch", name), (2, batch, width), dtype))
        # Sums of one kind and width lie together.
        self.sums: dict[Key, list[str]] = {}
        for name, width in program.sums.items():
            self.sums.setdefault((name.partition(".")[0], str(width)), []).append(name)
        for key, names in self.sums.items():
            arrays.append(ArraySpec(key, (len(names), batch, int(key[1])), torch.float32))
        return arrays

    def run(self, given: Sequence[Any], dry: bool = False) -> list[Tensor]:
        """The arrays that the kernel writes; with `dry` they are only allocated."""
        device, empty = self.shape.device, torch.empty
        written = [empty(shape, dtype=dtype, device=device) for _, shape, dtype in self.written]
        if dry:
            return written
        arrays = dict(zip(self.keys, (*given, *written), strict=True))
        for key, names in self.sums.items():
            rows = arrays[key]
            if self.kernel.program.rows:  # they are added up in memory
                rows.zero_()
            arrays |= {("sum", name): row for name, row in zip(names, rows, strict=True)}
        self.kernel(arrays, self.shape, self.full)
        return written

    def outputs(self, written: Sequence[Tensor]) -> dict[str, Tensor]:
        """The outputs by name: [T, B, n]; sums over time [B, n], of vectors [n]."""
        program = self.kernel.program
        outputs = {name: written[self.place["output", name]] for name in program.outputs}
        for key, names in self.sums.items():
            rows = written[self.place[key]]
            rows = rows.sum(1, dtype=self.shape.states[0]) if key[0] == "dvector" else rows
            outputs |= zip(names, rows, strict=True)
        return outputs | {alias: outputs[name] for alias, name in program.aliases.items()}


class ForwardCall(KernelCall):
    """A loop that computes states and outputs; to `train`, all that its gradients need as well."""

    _lead = (1,)

    def __init__(self, loop: LoopKernels, shape: CallShape, train: bool) -> None:
        plan, count = loop.plan, len(loop.graph.states)
        shared = set(plan.shared.values())
        full = frozenset(i for i in range(count) if train or i in shared)
        given: list[Key] = [*(("initial", str(i)) for i in range(count)), *plan.loop_arguments]
        super().__init__(loop.train if train else loop.infer, shape, given, full)
        own = [("output", name) for name, state in plan.results if state is None]
        saved = [("output", f"product.{i}") for i in range(len(loop.saved) if train else 0)]
        self._own, self._saved = ([self._output(key) for key in keys] for keys in (own, saved))
        # Of a state without a history nobody asks for it.
        self._histories = [self.place.get(("state", str(i)), i) for i in range(count)]

    def _output(self, key: Key) -> int:
        name = self.kernel.program.aliases.get(key[1], key[1])
        return self.place[key[0], name]

    def results(self, written: Sequence[Tensor]) -> LoopResults:
        return LoopResults(
            list(written[: len(self._histories)]),  # the final states come first
            [written[k] for k in self._own],
            [written[k] for k in self._histories],
            [written[k] for k in self._saved],
        )


class BackwardCall(KernelCall):
    """A backward loop, which computes adjoints."""

    def __init__(self, loop: LoopKernels, shape: CallShape) -> None:
        plan, graph = loop.plan, loop.graph
        count = len(graph.states)
        given: list[Key] = [
            *plan.loop_arguments,
            *(("input", f"before.{i}") for i in range(count)),
            *(("input", f"product.{i}") for i in range(len(loop.saved))),
            *(("initial", str(i)) for i in range(count)),
            *(("input", f"grad.{name}") for name in graph.outputs),
        ]
        super().__init__(loop.backward, shape, given, frozenset())
        first, widths = shape.states[0], (graph.nodes[k].width for k in graph.outputs.values())
        self._results: list[tuple[tuple[int, ...], torch.dtype]] = [
            *(
                ((shape.batch, n), dtype)
                for n, dtype in zip(graph.states, shape.states, strict=True)
            ),
            *(((shape.steps, shape.batch, width), first) for width in widths),
        ]

    def _states(self) -> list[ArraySpec]:
        return [array._replace(dtype=torch.float32) for array in super()._states()]

    def result_gradients(self, gradients: Tensors, own: bool) -> list[Tensor]:
        """The gradients of all results, with zeros (of their `own`) for those that have none."""
        device = self.shape.device
        return [
            zeros(shape, dtype, device, own=own) if gradient is None else gradient
            for gradient, (shape, dtype) in zip(gradients, self._results, strict=True)
        ]


@lru_cache(maxsize=4096)
def forward_call(loop: LoopKernels, shape: CallShape, train: bool) -> ForwardCall:
    return ForwardCall(loop, shape, train)


@lru_cache(maxsize=4096)
def backward_call(loop: LoopKernels, shape: CallShape) -> BackwardCall:
    return BackwardCall(loop, shape)
