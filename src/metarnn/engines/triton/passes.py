"""What is known of a loop at one size: which arrays its kernel takes, and where it finds them.

A small loop takes less time than to think about it, so that is done once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from metarnn.engines.composition import Found
from metarnn.engines.triton.program import Key
from metarnn.engines.zeros import zeros

if TYPE_CHECKING:
    from metarnn.engines.triton.fused import Loop
    from metarnn.engines.triton.kernel import Kernel
    from metarnn.engines.triton.scan import Scan


class Size(NamedTuple):
    """How much a loop computes, in which types of number, and where."""

    steps: int
    batch: int
    states: tuple[torch.dtype, ...]  # of each part of the state: under autocast they may differ
    dot: torch.dtype  # of products
    device: torch.device
    share: int = 1  # how many loops share the GPU
    stacked: bool = False  # whether final states are [1, B, n], as of a stack of one layer


class Array(NamedTuple):
    key: Key
    shape: tuple[int, ...]
    dtype: torch.dtype


class Pass:
    """A kernel over so many steps of so many sequences: it is given arrays, and makes others.

    The states in `full` have a slot for every step.
    """

    def __init__(
        self, kernel: Kernel | Scan, size: Size, given: Sequence[Key], full: frozenset[int]
    ) -> None:
        self.kernel, self.size, self.full = kernel, size, full
        self.made = [*self._states(), *self._others()]
        self.keys = [*given, *(each.key for each in self.made)]
        self.place = {each.key: k for k, each in enumerate(self.made)}

    def _states(self) -> list[Array]:
        """The last states, and an array for each that has one: with three slots, if not full."""
        program, size = self.kernel.program, self.size
        # Not a view of the array: whoever zeroes a state that was returned must not zero an output.
        lead = (1,) if size.stacked else ()
        found = [
            Array(("final", str(i)), (*lead, size.batch, width), dtype)
            for i, ((width, _, _), dtype) in enumerate(
                zip(program.states, size.states, strict=True)
            )
        ]
        for i, (width, has_array, exactly) in enumerate(program.states):
            shape = size.steps + 1 if i in self.full else 3, size.batch, width
            kind = torch.float32 if exactly else size.states[i]
            found += [Array(("state", str(i)), shape, kind)] if has_array else []
        return found

    def _others(self) -> list[Array]:
        program, (steps, batch, _, dot, *_) = self.kernel.program, self.size
        found = [
            Array(("output", name), (steps, batch, width), dot)
            for name, width in program.outputs.items()
        ]
        for name, (width, rounded) in program.scratch.items():
            kind = dot if rounded else torch.float32
            found.append(Array(("scratch", name), (2, batch, width), kind))
        # Sums of one kind and width lie together.
        self.sums: dict[Key, list[str]] = {}
        for name, width in program.sums.items():
            self.sums.setdefault((name.partition(".")[0], str(width)), []).append(name)
        for key, names in self.sums.items():
            found.append(Array(key, (len(names), batch, int(key[1])), torch.float32))
        return found

    def run(self, given: Sequence[Tensor], dry: bool = False) -> list[Tensor]:
        """What the kernel makes; with `dry` only room for it."""
        device, make = self.size.device, torch.empty
        room = [make(shape, dtype=dtype, device=device) for _, shape, dtype in self.made]
        if dry:
            return room
        arrays = dict(zip(self.keys, (*given, *room), strict=True))
        for key, names in self.sums.items():
            rows = arrays[key]
            if self.kernel.program.rows:  # they are added up in memory
                rows.zero_()
            arrays |= {("sum", name): row for name, row in zip(names, rows, strict=True)}
        self.kernel(arrays, self.size, self.full)
        return room

    def outputs(self, room: Sequence[Tensor]) -> dict[str, Tensor]:
        """By name what is put out [T, B, n], summed over time [B, n] or, of vectors, over sequences
        too [n]."""
        program = self.kernel.program
        found = {name: room[self.place["output", name]] for name in program.outputs}
        for key, names in self.sums.items():
            rows = room[self.place[key]]
            rows = rows.sum(1, dtype=self.size.states[0]) if key[0] == "dvector" else rows
            found |= zip(names, rows, strict=True)
        return found | {alias: found[name] for alias, name in program.aliases.items()}


class Forward(Pass):
    """A loop that finds states; to `train`, all of them and what its gradients need besides."""

    def __init__(self, loop: Loop, size: Size, train: bool) -> None:
        plan, count = loop.plan, len(loop.graph.states)
        shared = set(plan.shared.values())
        full = frozenset(i for i in range(count) if train or i in shared)
        given: list[Key] = [*(("initial", str(i)) for i in range(count)), *plan.sources]
        super().__init__(loop.train if train else loop.infer, size, given, full)
        own = [("output", name) for name, index in plan.results if index is None]
        saved = [("output", f"product.{i}") for i in range(len(loop.saved) if train else 0)]
        self._own, self._saved = ([self._output(key) for key in keys] for keys in (own, saved))
        # Of a state without an array nobody asks for it.
        self._arrays = [self.place.get(("state", str(i)), i) for i in range(count)]

    def _output(self, key: Key) -> int:
        name = self.kernel.program.aliases.get(key[1], key[1])
        return self.place[key[0], name]

    def found(self, room: Sequence[Tensor]) -> Found:
        return Found(
            list(room[: len(self._arrays)]),  # the last states come first
            [room[k] for k in self._own],
            [room[k] for k in self._arrays],
            [room[k] for k in self._saved],
        )


class Back(Pass):
    """A loop that goes back and finds adjoints."""

    def __init__(self, loop: Loop, size: Size) -> None:
        plan, graph = loop.plan, loop.graph
        count = len(graph.states)
        given: list[Key] = [
            *plan.sources,
            *(("input", f"before.{i}") for i in range(count)),
            *(("input", f"product.{i}") for i in range(len(loop.saved))),
            *(("initial", str(i)) for i in range(count)),
            *(("input", f"grad.{name}") for name in graph.outputs),
        ]
        super().__init__(loop.reverse, size, given, frozenset())
        first, widths = size.states[0], (graph.nodes[k].width for k in graph.outputs.values())
        self._grads: list[tuple[tuple[int, ...], torch.dtype]] = [
            *(((size.batch, n), kind) for n, kind in zip(graph.states, size.states, strict=True)),
            *(((size.steps, size.batch, width), first) for width in widths),
        ]

    def _states(self) -> list[Array]:
        return [each._replace(dtype=torch.float32) for each in super()._states()]

    def grads(self, grads: Sequence[Tensor | None], own: bool) -> list[Tensor]:
        """Of states and kept outputs: zeros for those that nothing depends on."""
        device = self.size.device
        return [
            zeros(shape, dtype, device, own=own) if grad is None else grad
            for grad, (shape, dtype) in zip(grads, self._grads, strict=True)
        ]


@lru_cache(maxsize=4096)
def forward_pass(loop: Loop, size: Size, train: bool) -> Forward:
    return Forward(loop, size, train)


@lru_cache(maxsize=4096)
def back_pass(loop: Loop, size: Size) -> Back:
    return Back(loop, size)
