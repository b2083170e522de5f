"""A loop at one size: all that is known of a call before its tensors are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from metarnn.engines.cpu.kernels import loop
from metarnn.engines.cpu.memory import CPU, Shape, maker, plain
from metarnn.engines.plan import Key, Plan
from metarnn.engines.zeros import zeros


class Size(NamedTuple):
    """What a loop computes, and how much of it."""

    plan: Plan
    steps: int
    batch: int
    dtype: torch.dtype


class Pass:
    """The loop "infer", "train" or "back" of a plan over so many steps of so many sequences.

    Its arrays are what it is given, then its `room`, then where gradients of weights go, if it is
    `driven`; see `kernels.Loop`.
    """

    def __init__(self, size: Size, which: str, driven: bool = False) -> None:
        plan, steps, batch, dtype = size
        made = loop(plan, which, dtype, driven)
        self.plan, self.steps, self.batch, self.dtype = size
        self.count = len(plan.states)
        self._kernel = made.kernel
        self._places = [(place, k) for k, place in enumerate(made.places) if place is not None]
        self._slots = [steps + 1 if whole else 2 for _, whole in made.states]
        rooms: dict[Key, tuple[Callable[..., Tensor], Shape]] = {}
        if driven and which != "back":
            for key, node in plan.drives:
                rooms[key] = maker((steps, batch, node.width), dtype)
        for k, (n, (width, _)) in enumerate(zip(self._slots, made.states, strict=True)):
            rooms["state", str(k)] = maker((n, batch, width), dtype)
        for k, (width, _) in enumerate(made.states):
            # A layer has states [1, B, n]; the gradients of those of a call are [B, n].
            lead = (1,) if driven and which != "back" else ()
            rooms["final", str(k)] = torch.empty, (*lead, batch, width)
        for name, width, summed in made.outputs:
            whole = maker((steps, batch, width), dtype)
            rooms["output", name] = (torch.zeros, (batch, width)) if summed else whole
        rooms = {key: room for key, room in rooms.items() if key not in made.inner}
        self._makers = list(rooms.values())
        # Where in the room everything is.
        at = {key: k for k, key in enumerate(rooms)}
        self.drives = [at[key] for key, _ in plan.drives if key in at]
        numbered = ((k, ("state", str(k))) for k in range(self.count))
        self.states = {k: at[key] for k, key in numbered if key in at}
        first = at.get(("final", "0"), 0)
        self.finals = slice(first, first + self.count)
        names = {name: name for name, *_ in made.outputs} | made.aliases
        self.outputs = {
            alias: at["output", name] for alias, name in names.items() if ("output", name) in at
        }

    def room(self) -> list[Tensor]:
        """Memory for what the loop finds, and passes on from step to step."""
        dtype = self.dtype
        return [make(shape, dtype=dtype, device=CPU) for make, shape in self._makers]

    def run(self, arrays: Sequence[Tensor]) -> None:
        self._kernel(self._places, arrays, self._slots, self.steps, self.batch)


class Forward(Pass):
    """A loop that finds states."""

    def __init__(self, size: Size, which: str, driven: bool = False) -> None:
        super().__init__(size, which, driven)
        products = range(len(self.plan.products)) if which == "train" else ()
        self.products = [self.outputs[f"product.{i}"] for i in products]
        self._saved = [*self.drives, *self.states.values(), *self.products]
        # Kept outputs, each with whether it lies in the history of a state, behind the first row.
        self._kept = [
            (self.outputs[name], False) if shared is None else (self.states[shared], True)
            for name, shared in self.plan.results
        ]

    def saved(self, room: Sequence[Tensor]) -> list[Tensor]:
        """What the reverse loop reads: drives, histories of states, results of products."""
        return [room[k] for k in self._saved]

    def results(self, room: Sequence[Tensor]) -> list[Tensor]:
        """Final states, then kept outputs."""
        kept = [room[k][1:] if within else room[k] for k, within in self._kept]
        return [*room[self.finals], *kept]


class Back(Pass):
    """A loop that goes back and finds adjoints; if it is driven, gradients of all weights too."""

    def __init__(self, size: Size, driven: bool = False) -> None:
        super().__init__(size, "back", driven)
        plan, steps, batch, dtype = size
        nodes, made = plan.loop.nodes, loop(plan, "back", dtype, driven)
        self._grads = [(batch, width) for width in plan.loop.states]
        self._grads += [(steps, batch, nodes[k].width) for k in plan.loop.outputs.values()]
        inside = {("input", "x"): self.outputs.get("dinput.x")}
        shapes: dict[Key, Shape] = {key: shape for key, _, shape in plan.named_weights}
        width = plan.parts.whole.nodes[plan.parts.whole.named("input")["x"]].width
        shapes["input", "x"] = (steps, batch, width)
        # Of each tensor that a driven loop reads: how to make room for its gradient, or where in
        # the room it is (to that of x the loop may have a part, too), or neither.
        self._gradients: list[tuple[Callable[..., Tensor] | None, Shape, int | None, bool]] = []
        for key in plan.driven if driven else ():
            kind, name = key
            if key in made.outside.written and inside.get(key) is None:
                make, shape = maker(shapes[key], dtype)
                make = torch.zeros if key in made.outside.zeroed else make
                self._gradients.append((make, shape, None, False))
            else:
                where = self.outputs.get(f"d{kind}.{name}")
                self._gradients.append((None, (), where, kind == "vector"))

    def given(self, grads: Sequence[Tensor | None], own: bool = False) -> list[Tensor]:
        """The gradients of all results, with zeros (its `own`) for those that nobody asked for."""
        return [
            zeros(shape, self.dtype, CPU, own) if grad is None else plain(grad)
            for grad, shape in zip(grads, self._grads, strict=True)
        ]

    def gradients(self, room: Sequence[Tensor], needed: Sequence[bool]) -> list[Tensor | None]:
        """Where the gradients of what drives the loop go, or None."""
        found: list[Tensor | None] = []
        for (make, shape, where, _), need in zip(self._gradients, needed, strict=True):
            if not need:
                found.append(None)
            elif make is not None:
                found.append(make(shape, dtype=self.dtype, device=CPU))
            else:
                found.append(None if where is None else room[where])
        return found

    def summed(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The same, with those of vectors, which have a row for each sequence, summed."""
        return [
            grad.sum(0) if vector and grad is not None else grad
            for grad, (*_, vector) in zip(gradients, self._gradients, strict=True)
        ]


forward_pass = lru_cache(maxsize=4096)(Forward)
back_pass = lru_cache(maxsize=4096)(Back)
