"""Calls of one layer in one direction without masks: planned once, whatever comes later."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metarnn.engines import Recurrence, run
from metarnn.engines.autograd import EngineFailure
from metarnn.engines.engine import FusedEngine
from metarnn.engines.modes import autocast_dtype
from metarnn.engines.plan import X, plan_loop
from metarnn.engines.prologue import GeneratedCall, ProjectedCall
from metarnn.engines.zeros import zeros
from metarnn.layers.edges import Inputs, single
from metarnn.layers.unroll import Generator, Heads

Results = tuple[Tensor, Sequence[Tensor]]
OWN_MEMORY = (nn.Parameter, Tensor)  # types of weights whose elements lie where they say


class NotPlannable(ValueError):
    """There is more to a call than products of x, a loop and its output."""


class PlannedLoop(NamedTuple):
    """The loop of a planned call and the arguments that it reads."""

    call: ProjectedCall
    output: int  # the result that is the layer's output
    weights: list[tuple[str, torch.Size]]  # name and shape of each parameter
    extra: list[tuple[int, str, tuple[int, ...]]]  # of each extra input: place, name and shape


class PlannedCall:
    """A call of a layer over inputs of one shape, dtype and mode.

    It computes what `Recurrent` computes step by step from checked arguments; a call with any other
    state, or of a layer whose weights have changed their kind, is left to that.
    """

    def __init__(self, engine: FusedEngine, layer: Any, x: Tensor) -> None:
        self.engine, self.cell, self.batch_first = engine, layer.cells[0], layer.batch_first
        self.steps, self.batch = x.shape[1::-1] if layer.batch_first else x.shape[:2]
        self.states = [(self.batch, width) for width in layer.state_sizes]
        self.own = len(self.cell.states)  # those after them are the generator's
        self._names = layer._names[0, 0]
        generator = layer.generator(0, 0)
        constant = tuple(self.cell.extra_inputs) if generator and generator.constant else ()
        self.loop = self._plan(x, constant)

    def __call__(self, layer: Any, x: Tensor, state: Any) -> tuple[Tensor, Any] | None:
        """Output and state; None for a call that is not as planned."""
        if layer.cells[0] is not self.cell:
            return None
        if self.batch_first:
            x = x.transpose(0, 1)
        x = x if x.is_contiguous() else x.contiguous()
        initial = self._initial(state, x)
        if initial is None:
            return None
        run_loop = self._generated if self.loop.extra else self._run
        try:
            results = run_loop(layer, x, initial)
        except EngineFailure:
            return None  # the next engine runs it
        if results is None:
            return None
        output, final = results
        if self.batch_first:
            output = output.transpose(0, 1)
        return output, final[0] if len(final) == 1 else tuple(final)

    def _run(self, layer: Any, x: Tensor, state: list[Tensor]) -> Results | None:
        """The output and the final states [1, B, n]."""
        loop = self.loop
        weights = parameters(layer, loop.weights, x)
        if weights is None:
            return None
        results = loop.call([*state, x, *weights])
        return results[loop.output], results[: self.own]

    def _generated(self, layer: Any, x: Tensor, state: list[Tensor]) -> Results | None:
        """The same of a cell whose extra inputs are generated from x."""
        generator: Generator = layer.generator(0, 0)
        heads, loop = generator.heads(), self.loop
        computed = None if heads is None else self._with_encoder(layer, x, state, heads)
        if computed is not None:
            return computed
        weights = parameters(layer, loop.weights, x)
        if weights is None:
            return None
        call = Inputs(x, None, None, None, True, False, None, None)
        extra, kept = generator(x, tuple(state[self.own :]), call, None)
        own = tuple(state[: self.own])
        if any(extra[name].shape != shape for _, name, shape in loop.extra):  # not as planned
            recurrence = Recurrence(self.cell, layer.weights(0), {}, x, own, extra_inputs=extra)
            output, final = run(self.engine.name, recurrence)
            return output, tuple(map(single, (*final, *kept)))
        for place, name, _ in loop.extra:
            weights.insert(place, extra[name].resolve_neg().contiguous())
        results = loop.call([*own, x, *weights])
        return results[loop.output], (*results[: self.own], *map(single, kept))

    def _with_encoder(
        self, layer: Any, x: Tensor, state: list[Tensor], heads: Heads
    ) -> Results | None:
        """Encoder, heads and unit as one function; None where they cannot be."""
        encoder_layer: Any = heads.layer
        planned: PlannedCall | None = encoder_layer.planned(x)
        if planned is None or planned.engine is not self.engine or planned.batch_first:
            return None
        encoder, unit = planned.loop, self.loop
        if encoder.extra:
            return None
        shapes = [(name, torch.Size((shape[-1], heads.width))) for _, name, shape in unit.extra]
        read = (
            parameters(heads.layer, encoder.weights, x),
            parameters(heads.weights, shapes, x),
            parameters(layer, unit.weights, x),
        )
        if any(weights is None for weights in read):
            return None
        before, matrices, weights = (weights or [] for weights in read)
        places = tuple(place + 1 for place, *_ in unit.extra)  # x comes before all
        call = generated_call(encoder.call, unit.call, heads.norm, places)
        own, of_encoder = state[: self.own], state[self.own :]
        results = call([*of_encoder, x, *before, *matrices, *own, *weights])
        finals = (*results[: self.own], *results[len(results) - len(of_encoder) :])
        return results[unit.output], finals

    def _plan(self, x: Tensor, constant: tuple[str, ...]) -> PlannedLoop:
        """The loop if these extra inputs are the same at all steps."""
        cell, engine = self.cell, self.engine
        plan = plan_loop(cell, constant=constant, products_only=engine.products_only)
        read = {name for _, name in plan.projection_arguments}
        if plan.output is None or not engine.projects(plan, x) or not read >= {*cell.extra_inputs}:
            raise NotPlannable
        shapes = {key: (name, torch.Size(shape)) for key, name, shape in plan.weights}
        keys = [key for key in plan.projection_arguments if key != X]
        weights = [shapes[key] for key in keys if key in shapes]
        lead = {"input": (self.steps, self.batch), "context": (self.batch,)}
        extra = [
            (k, name, (*lead[kind], cell.extra_inputs[name]))
            for k, (kind, name) in enumerate(keys)
            if (kind, name) not in shapes
        ]
        state = [x.new_empty(0)] * self.own
        dtype = autocast_dtype(x) or x.dtype
        call = engine.projected_call(plan, self.steps, self.batch, dtype, state)
        named = [(self._names[name], shape) for name, shape in weights]
        return PlannedLoop(call, self.own + plan.output, named, extra)

    def _initial(self, state: Any, x: Tensor) -> list[Tensor] | None:
        """The initial states [B, n]; None for a state that no layer returns."""
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


@lru_cache(maxsize=512)
def generated_call(
    encoder: ProjectedCall, unit: ProjectedCall, norm: bool, places: tuple[int, ...]
) -> GeneratedCall:
    return GeneratedCall(encoder, unit, norm, places)


def parameters(
    module: Any, weights: Sequence[tuple[str, torch.Size]], x: Tensor
) -> list[Tensor] | None:
    """A module's parameters of these names and shapes; None unless kernels can read all of them."""
    read, dtype, device, own = [], x.dtype, x.device, module._parameters
    for name, shape in weights:
        weight = own.get(name)
        if type(weight) not in OWN_MEMORY or weight.shape != shape or weight.dtype != dtype:
            return None
        if weight.device != device or not weight.is_contiguous() or weight.is_neg():
            return None
        read.append(weight)
    return read
