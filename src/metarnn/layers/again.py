"""Calls like one before: nothing is found out twice.

What a layer was given, which engine can run that, with which kernel: some hundred calls of Python,
which take longer than a small loop itself. All of it follows from a few things, so it is kept by
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from metarnn.engines import cpu, triton
from metarnn.engines.cpu.driven import driven
from metarnn.engines.cpu.kernels import drivable
from metarnn.engines.cpu.passes import Size
from metarnn.engines.modes import observed, transformed
from metarnn.engines.plan import Plan, X, plan_cell
from metarnn.engines.zeros import zeros
from metarnn.layers.edges import Inputs
from metarnn.layers.stack import alone
from metarnn.layers.unroll import Heads

MOST = 1000  # kinds of calls that a layer keeps
PLAIN = (nn.Parameter, Tensor)  # kinds of weights whose numbers lie where they say


class Calls:
    """What a layer keeps of its calls."""

    def __init__(self) -> None:
        self.known: dict[Any, Again | None] = {}

    def __reduce__(self) -> Any:
        return Calls, ()  # a copy of the layer begins anew

    def repeat(self, layer: Any, x: Any, arguments: Sequence[Any]) -> tuple[Tensor, Any] | None:
        """What a layer finds; None unless it is a call like one before, from whatever state."""
        state, *others = arguments
        for each in others:
            if each is not None:
                return None
        about = _about(x)
        known = self.known.get(_of_layer(layer, about))
        return None if known is None else known(layer, x, state, about)

    def keep(
        self,
        layer: Any,
        engine: str,
        names: Mapping[str, str],
        x: Any,
        given: Mapping[str, Tensor],
    ) -> None:
        """Have the next call like this one, of that engine, take less time.

        `given` is what the layer's source has made for its cell this time.
        """
        key = _key(layer, x)
        if key is not None and key not in self.known and len(self.known) < MOST:
            kind = OnCpu if engine == "cpu" else OnGpu
            fixed = tuple(name for name, value in given.items() if value.dim() == 2)
            plan = plan_cell(layer.cell, (), (), (), fixed, kind.products_only)
            read = {name for _, name in plan.driven}
            suits = kind.suits(plan, x) and read.issuperset(given)
            suits = suits and bool(given) == (layer.source(0, 0) is not None)
            self.known[key] = kind(plan, layer, names, x) if suits else None


class Again(ABC):
    """A call: one layer, one direction, no masks."""

    products_only: ClassVar[bool]  # see `plan_cell`

    def __init__(self, plan: Plan, layer: Any, names: Mapping[str, str], x: Tensor) -> None:
        self.cell, self.steps, self.batch = layer.cell, x.shape[0], x.shape[1]
        self.states = [(self.batch, n) for n in layer.state_sizes]
        self.own = len(plan.states)  # the cell's; those after them are the source's
        assert plan.output is not None
        self.output = self.own + plan.output
        known = {key: (name, torch.Size(shape)) for key, name, shape in plan.named_weights}
        keys = [key for key in plan.driven if key != X]
        read = [known[key] for key in keys if key in known]
        self.weights = [(names[name], shape) for name, shape in read]
        leads = {"input": (self.steps, self.batch), "context": (self.batch,)}
        # What the source makes: where among the weights each comes, its name and its shape.
        self.given = [
            (k, key[1], (*leads[key[0]], layer.cell.given[key[1]]))
            for k, key in enumerate(keys)
            if key not in known
        ]

    @classmethod
    def suits(cls, plan: Plan, x: Tensor) -> bool:
        """Whether there is no more to a call than products of x, weights, what is given and the
        loop."""
        return bool(plan.drives) and plan.output is not None

    def __call__(self, layer: Any, x: Tensor, state: Any, about: Any) -> tuple[Tensor, Any] | None:
        """Output and state; None where cell, weights or state are not what they were."""
        initial, weights = self._initial(state, x), self.read(layer, x)
        if initial is None or weights is None:
            return None
        if self.given:
            return self._from_source(layer, x, initial, weights, about)
        results = self.run(initial, x, weights)
        if results is None:
            return None
        return results[self.output], results[0] if self.own == 1 else tuple(results[: self.own])

    def read(self, layer: Any, x: Tensor) -> list[Tensor] | None:
        """The weights; None where they, or the cell, are not what they were."""
        return read(layer, self.weights, x) if layer.cell is self.cell else None

    def _from_source(
        self, layer: Any, x: Tensor, state: list[Tensor], weights: list[Tensor], about: Any
    ) -> tuple[Tensor, Any]:
        """The same with what the layer's source makes, which is asked once."""
        source = layer.source(0, 0)
        heads = source.heads()
        results = None
        if heads is not None:
            encoder: Any = heads.layer
            ahead = encoder._calls.known.get(_of_layer(encoder, about))
            results = self.written(ahead, heads, x, state, weights)
        if results is not None:
            finals = (*results[: self.own], *results[len(results) - len(state) + self.own :])
            return results[self.output], finals
        call = Inputs(x, None, None, None, True, False, None, None)
        own, before = state[: self.own], tuple(state[self.own :])
        made, kept = source(x, before, call, None)
        if all(made[name].shape == shape for _, name, shape in self.given):
            for k, name, _ in self.given:
                weights.insert(k, made[name].resolve_neg().contiguous())
            results = self.run(own, x, weights)
        if results is None:
            return layer._run_one(call, tuple(own), made, kept, "triton")
        final = (*results[: self.own], *map(alone, kept))
        return results[self.output], final[0] if len(final) == 1 else final

    def _initial(self, state: Any, x: Tensor) -> list[Tensor] | None:
        """The state [B, n] that a call begins with; None for one that a layer would not return."""
        dtype, device = x.dtype, x.device
        if state is None:
            return [zeros(shape, dtype, device) for shape in self.states]
        parts = (state,) if type(state) is Tensor else state
        if type(parts) is not tuple or len(parts) != len(self.states):
            return None
        for part, shape in zip(parts, self.states, strict=True):
            if type(part) is not Tensor or part.shape != (1, *shape) or part.dtype != dtype:
                return None
            if part.device != device or not part.is_contiguous() or part.is_neg():
                return None
        return [part[0] for part in parts]

    @abstractmethod
    def run(self, state: list[Tensor], x: Tensor, weights: list[Tensor]) -> Sequence[Tensor] | None:
        """Final states [1, B, n] and kept outputs; None where a kernel cannot be compiled."""

    def written(
        self,
        ahead: Again | None,
        heads: Heads,
        x: Tensor,
        state: list[Tensor],
        weights: list[Tensor],
    ) -> Sequence[Tensor] | None:
        """The same and the final states of the layer that heads read, as one function with it;
        None where that cannot be."""
        return None


class OnCpu(Again):
    products_only = True

    def __init__(self, plan: Plan, layer: Any, names: Mapping[str, str], x: Tensor) -> None:
        super().__init__(plan, layer, names, x)
        self.loop = driven(Size(plan, self.steps, self.batch, x.dtype))

    @classmethod
    def suits(cls, plan: Plan, x: Tensor) -> bool:
        # Other types, and what autocast makes of these, are computed in one of these.
        plain = x.dtype in (torch.float32, torch.float64) and _narrow(x) is None
        known = {X, *(key for key, *_ in plan.named_weights)}
        plain = plain and known.issuperset(plan.driven)
        return plain and super().suits(plan, x) and drivable(plan)

    def run(self, state: list[Tensor], x: Tensor, weights: list[Tensor]) -> Sequence[Tensor] | None:
        try:
            return self.loop([*state, x, *weights])
        except cpu.CannotCompile:
            return None


class OnGpu(Again):
    products_only = False

    def __init__(self, plan: Plan, layer: Any, names: Mapping[str, str], x: Tensor) -> None:
        from metarnn.engines.triton.driven import Call, driven  # imports Triton
        from metarnn.engines.triton.written import written

        super().__init__(plan, layer, names, x)
        self.plan = plan
        self.call = Call(self.steps, self.batch, _narrow(x) or x.dtype, stacked=True)
        self.loop, self.both = partial(driven, plan, self.call), written

    def run(self, state: list[Tensor], x: Tensor, weights: list[Tensor]) -> Sequence[Tensor] | None:
        try:
            return self.loop([*state, x, *weights])
        except triton.CannotLaunch:
            return None

    def written(
        self,
        ahead: Again | None,
        heads: Heads,
        x: Tensor,
        state: list[Tensor],
        weights: list[Tensor],
    ) -> Sequence[Tensor] | None:
        if not isinstance(ahead, OnGpu) or ahead.given:
            return None
        before = ahead.read(heads.layer, x)
        shapes = [(name, (shape[-1], heads.width)) for _, name, shape in self.given]
        matrices = read(heads.weights, shapes, x)
        if before is None or matrices is None:
            return None
        places = tuple(k + 1 for k, *_ in self.given)  # x comes before all
        own, others = state[: self.own], state[self.own :]
        tensors = [*others, x, *before, *matrices, *own, *weights]
        try:
            return self.both(ahead.plan, self.plan, heads.norm, places, self.call, tensors)
        except triton.CannotLaunch:
            return None


def read(
    module: Any, weights: Sequence[tuple[str, Sequence[int]]], x: Tensor
) -> list[Tensor] | None:
    """A module's own weights of these names and shapes, where kernels can read them as they lie."""
    found, dtype, device, own = [], x.dtype, x.device, module._parameters
    for name, shape in weights:
        weight = own.get(name)
        if type(weight) not in PLAIN or weight.shape != shape or weight.dtype != dtype:
            return None
        if weight.device != device or not weight.is_contiguous() or weight.is_neg():
            return None
        found.append(weight)
    return found


def _narrow(x: Tensor) -> torch.dtype | None:
    """The type of number that autocast has products computed in, if it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _key(layer: Any, x: Any) -> Any:
    """By what a call of a layer is kept; None for one that is not."""
    return _of_layer(layer, _about(x))


def _about(x: Any) -> Any:
    """What is to be known of an input and of those who look on; None where no call is kept."""
    if type(x) is not Tensor or x.dim() != 3 or not x.is_contiguous() or x.is_neg():
        return None
    if not (x.is_cpu or x.is_cuda) or transformed() or observed():
        return None
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return None  # a graph has zeros of its own
    return (
        x.shape,
        x.dtype,
        x.device,
        _narrow(x),
        torch.is_grad_enabled(),
        cpu.broken(),
        triton.broken(),
    )


def _of_layer(layer: Any, about: Any) -> Any:
    """The same with what is to be known of the layer."""
    training = layer.training
    if about is None or layer.batch_first or "weights" in layer.__dict__:
        return None
    if layer.dropouts.any(training):
        return None
    return about, training, layer.engine, layer.checkpoint_every
