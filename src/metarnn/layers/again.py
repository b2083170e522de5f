"""Calls like one before: nothing is found out twice.

What a layer was given, which engine can run that, with which kernel: some hundred calls of Python,
which take longer than a small loop itself. All of it follows from a few things, so it is kept by
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import Cell
from metarnn.engines.choose import circumstances
from metarnn.engines.cpu import CannotCompile
from metarnn.engines.cpu.driven import driven
from metarnn.engines.cpu.kernels import drivable
from metarnn.engines.cpu.run import watched
from metarnn.engines.plan import Plan, plan_cell
from metarnn.engines.zeros import zeros

MOST = 1000  # kinds of calls that a layer keeps


class Calls:
    """What a layer keeps of its calls."""

    def __init__(self) -> None:
        self.known: dict[Any, Again | None] = {}

    def __reduce__(self) -> Any:
        return Calls, ()  # a copy of the layer begins anew

    def repeat(self, layer: Any, x: Any, arguments: Sequence[Any]) -> tuple[Tensor, Any] | None:
        """What a layer finds; None unless it is a call like one before."""
        for each in arguments:
            if each is not None:
                return None
        known = self.known.get(_key(layer, x))
        return None if known is None else known(layer._parameters, x)

    def keep(self, layer: Any, names: Mapping[str, str], x: Any) -> None:
        """Have the next call like this one on x alone take less time."""
        key = _key(layer, x)
        if key is not None and key not in self.known and len(self.known) < MOST:
            self.known[key] = Again.of(layer.cell, names, x)


class Again:
    """A call of the cpu engine: one layer, one direction, from a state of zeros, no masks."""

    def __init__(self, plan: Plan, names: Mapping[str, str], x: Tensor) -> None:
        self.plan, self.steps, self.batch = plan, x.shape[0], x.shape[1]
        self.state = [zeros((self.batch, n), x.dtype, x.device) for n, _ in plan.states]
        assert plan.output is not None
        self.output = len(self.state) + plan.output
        known = {key: (name, torch.Size(shape)) for key, name, shape in plan.named_weights}
        self.weights = [(names[known[key][0]], known[key][1]) for key in plan.driven[1:]]

    @classmethod
    def of(cls, cell: Cell, names: Mapping[str, str], x: Tensor) -> Again | None:
        """What to keep of a call on x; None where there is more to it than weights and x."""
        if x.dtype not in (torch.float32, torch.float64):  # others are computed in one of these
            return None
        plan = plan_cell(cell, (), (), (), (), True)
        known = {("input", "x"), *(key for key, *_ in plan.named_weights)}
        if plan.output is None or not drivable(plan) or not known.issuperset(plan.driven):
            return None
        return cls(plan, names, x)

    def __call__(self, parameters: Mapping[str, Any], x: Tensor) -> tuple[Tensor, Any] | None:
        """Output and state; None where the weights are not what they were."""
        tensors, dtype = [*self.state, x], x.dtype
        for name, shape in self.weights:
            weight = parameters.get(name)
            if weight is None or weight.shape != shape or weight.dtype != dtype:
                return None
            if not (weight.is_cpu and weight.is_contiguous()):
                return None
            tensors.append(weight)
        try:
            results = driven(self.plan, self.steps, self.batch, tensors)
        except CannotCompile:
            return None
        final = tuple([part.unsqueeze(0) for part in results[: len(self.state)]])
        return results[self.output], final[0] if len(final) == 1 else final


def _key(layer: Any, x: Any) -> Any:
    """By what a call of a layer on x alone is kept; None for one that is not."""
    if type(x) is not Tensor or x.dim() != 3 or not (x.is_cpu and x.is_contiguous()):
        return None
    if layer.batch_first or layer.dropouts.any(layer.training) or watched():
        return None
    if torch._C._len_torch_dispatch_stack():  # pyright: ignore[reportPrivateUsage]
        return None
    return (
        x.shape,
        x.dtype,
        torch.is_grad_enabled(),
        layer.training,
        layer.engine,
        layer.checkpoint_every,
        circumstances(),
    )
