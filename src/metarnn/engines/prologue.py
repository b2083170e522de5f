"""What comes before a loop and belongs to the same differentiable function.

Most loops read products of x, W x + b: `InputProjection`. A unit whose weights are generated also
reads d_t = M norm(c_t), where c is the output of an encoder's loop: `GeneratedCall`. Such a call
takes the host longer than a GPU; as one function, x is cast once, and autograd records nothing
between the loops.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from metarnn.engines.autograd import CallPlan, EngineFailure, LoopResults, Tensors, cast
from metarnn.engines.plan import Key, LoopPlan
from metarnn.engines.reference import run_loop, run_projected_loop
from metarnn.engines.weight_gradients import Sums, embedded, multiply

EPSILON = 1e-5  # of torch's layer norm


def loop_outputs(plan: LoopPlan, results: LoopResults) -> list[Tensor]:
    """The final states, then the results of the loop, all of one dtype."""
    own, dtype = iter(results.outputs), results.finals[0].dtype
    outputs = (next(own) if k is None else results.states[k][1:] for _, k in plan.results)
    return [*results.finals, *(y if y.dtype == dtype else y.to(dtype) for y in outputs)]


class LoopCall(CallPlan):
    """A loop by itself: from the initial states [B, n] and `plan.loop_arguments`."""

    plan: LoopPlan
    steps: int
    batch: int

    @abstractmethod
    def launch(self, arguments: Sequence[Tensor], train: bool, dry: bool = False) -> LoopResults:
        """Run the loop; with `dry` only allocate its results."""

    @abstractmethod
    def loop_backward(
        self,
        arguments: Tensors,
        states: Sequence[Tensor],
        saved: Sequence[Tensor],
        gradients: Tensors,
        needed: Sequence[bool],
        dry: bool = False,
        sums: Sums | None = None,
    ) -> list[Tensor | None]:
        """The gradients of the arguments that need one."""

    def forward(self, arguments: Sequence[Tensor], train: bool) -> tuple[Sequence[Tensor], Tensors]:
        results = self.launch(arguments, train)
        return loop_outputs(self.plan, results), (*results.states, *results.saved)

    def backward(
        self, arguments: Tensors, saved: Any, gradients: Tensors, needed: Sequence[bool]
    ) -> Tensors:
        count = len(self.plan.states)
        return self.loop_backward(arguments, saved[:count], saved[count:], gradients, needed)

    def factors(self, arguments: Sequence[Any]) -> list[Any]:
        """As of `InputProjection`: none, for an engine that projects in its loop's program."""
        return []

    def run(
        self, arguments: Sequence[Tensor], factors: Sequence[Tensor], train: bool
    ) -> tuple[Sequence[Tensor], Tensors]:
        return self.forward(arguments, train)

    def run_backward(
        self,
        arguments: Tensors,
        factors: Sequence[Tensor],
        saved: Any,
        gradients: Tensors,
        needed: Sequence[bool],
    ) -> Tensors:
        return self.backward(arguments, saved, gradients, needed)

    def reference(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        return run_loop(self.plan, self.steps, self.batch, arguments)


class Projection(NamedTuple):
    """x times a weight: which of `plan.projection_arguments` it and its bias are."""

    weight: int
    bias: int | None
    columns: slice | None  # None for all


class InputProjection(CallPlan):
    """A loop and the products of x before it: from the states and `plan.projection_arguments`."""

    def __init__(self, loop: LoopCall, unread: frozenset[Key]) -> None:
        """`unread` are the loop arguments that the backward loop does not read."""
        plan = loop.plan
        self.loop, self.plan, self.dtype = loop, plan, loop.dtype
        self.states, self.arguments = len(plan.states), len(plan.projection_arguments)
        keys = [*plan.projection_arguments, *(key for key, _ in plan.projections)]
        place = {key: i for i, key in enumerate(keys)}
        self.loop_places = [place[key] for key in plan.loop_arguments]
        # A projection, the largest tensor of all, is kept only if the backward loop reads it.
        self.keeps = [key not in unread for key, _ in plan.projections]
        shapes = {key: shape for key, _, shape in plan.weights}
        self.projections: list[Projection] = []
        for _, node in plan.projections:
            weight, bias = ("weight", node["map"]), ("bias", node["map"])
            columns = slice(node["start"], node["stop"])
            full = (columns.start, columns.stop) == (0, shapes[weight][1])
            self.projections.append(
                Projection(
                    place[weight],
                    place[bias] if node["bias"] else None,
                    None if full else columns,
                )
            )
        weights = dict.fromkeys(product.weight for product in self.projections)
        biases = dict.fromkeys(p.bias for p in self.projections if p.bias is not None)
        self.factor_places = [0, *weights, *biases]

    @property
    def saved_count(self) -> int:
        return len(self.projections) + self.loop.saved_count

    def factors(self, arguments: Sequence[Any]) -> list[Any]:
        """The arguments that the products take, x first: they are cast to `dtype` together."""
        return [arguments[self.states + i] for i in self.factor_places]

    def forward(self, arguments: Sequence[Tensor], train: bool) -> tuple[Sequence[Tensor], Tensors]:
        wide = self.factors(arguments)
        factors = cast(wide, self.dtype)
        results, saved = self.run(arguments, factors, train)
        return results, (*changed(factors, wide), *saved)

    def backward(
        self, arguments: Any, saved: Any, gradients: Tensors, needed: Sequence[bool]
    ) -> Tensors:
        narrow, saved = split_sizes(saved, (len(self.factor_places),))
        factors = restored(narrow, self.factors(arguments))
        return self.run_backward(arguments, factors, saved, gradients, needed)

    def run(
        self, arguments: Sequence[Tensor], factors: Sequence[Tensor], train: bool
    ) -> tuple[Sequence[Tensor], Tensors]:
        """As `forward`, with the factors cast."""
        known = dict(zip(self.factor_places, factors, strict=True))
        projected = [
            F.linear(
                factors[0],
                known[weight] if columns is None else known[weight][:, columns],
                None if bias is None else known[bias],
            )
            for weight, bias, columns in self.projections
        ]
        results = self.loop.launch(self._loop_arguments(arguments, projected), train)
        kept = (y if keep else None for y, keep in zip(projected, self.keeps, strict=True))
        return loop_outputs(self.plan, results), (*kept, *results.states, *results.saved)

    def run_backward(
        self,
        arguments: Any,
        factors: Sequence[Tensor],
        saved: Any,
        gradients: Tensors,
        needed: Sequence[bool],
    ) -> Tensors:
        """As `backward`, with the factors cast."""
        count, sums = self.states, Sums()
        inputs, need = arguments[count:], needed[count:]
        projected, states, rest = split_sizes(saved, (len(self.projections), count))
        read = self._loop_arguments(arguments, projected)
        wanted = self._loop_arguments(needed, [True] * len(projected))
        adjoints = self.loop.loop_backward(read, states, rest, gradients, wanted, sums=sums)
        found: list[Tensor | None] = [None] * (self.arguments + len(self.projections))
        for i, adjoint in zip(self.loop_places, adjoints[count:], strict=True):
            found[i] = adjoint

        def add(i: int, part: Tensor) -> None:
            before = found[i]
            found[i] = part if before is None else before + part

        known = dict(zip(self.factor_places, factors, strict=True))
        x, rows = inputs[0], factors[0].flatten(0, 1)
        for (weight, bias, columns), adjoint in zip(
            self.projections, found[self.arguments :], strict=True
        ):
            if adjoint is None:
                continue
            flat = adjoint.flatten(0, 1)
            if need[0]:
                factor = known[weight] if columns is None else known[weight][:, columns]
                add(0, multiply(flat, factor, x.dtype).view(x.shape))
            if need[weight]:
                part = multiply(flat.t(), rows, inputs[weight].dtype)
                add(weight, part if columns is None else embedded(part, inputs[weight], columns))
            if bias is not None and need[bias]:
                add(bias, sums(adjoint, inputs[bias].dtype))
        return [*adjoints[:count], *found[: self.arguments]]

    def _loop_arguments(self, arguments: Sequence[Any], projected: Sequence[Any]) -> list[Any]:
        known = [*arguments[self.states :], *projected]
        return [*arguments[: self.states], *(known[i] for i in self.loop_places)]

    def reference(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        loop = self.loop
        return run_projected_loop(self.plan, loop.steps, loop.batch, arguments, self.dtype)

    def give_up(self, error: EngineFailure) -> None:
        self.loop.give_up(error)


ProjectedCall = LoopCall | InputProjection


class GeneratedCall(CallPlan):
    """An encoder's loop, the heads of a generator, and the loop of the unit that reads their rows.

    The arguments are those of the encoder (states, x, its weights), the heads [n, C], then states
    and weights of the unit. The results are those of the unit, then the encoder's final states.
    """

    def __init__(
        self, encoder: ProjectedCall, unit: ProjectedCall, norm: bool, places: tuple[int, ...]
    ) -> None:
        """
        Args:
            encoder: The call whose output is the context c.
            unit: The call that reads the rows that the heads compute from c.
            norm: Whether c is brought to mean 0 and variance 1.
            places: Where among the unit's `projection_arguments` each head's rows come.
        """
        self.encoder, self.unit, self.dtype = encoder, unit, unit.dtype
        self.norm, self.places = norm, places
        assert encoder.plan.output is not None
        self.encoder_states, self.unit_states = len(encoder.plan.states), len(unit.plan.states)
        self.encoder_results = len(encoder.plan.results)
        self.context = self.encoder_states + encoder.plan.output  # the result that is c
        # Where the heads begin among the arguments, and where the unit's own do.
        self.first_head = self.encoder_states + len(encoder.plan.projection_arguments)
        self.first_own = self.first_head + len(places)
        weights = len(unit.plan.projection_arguments) - 1 - len(places)  # without x and the rows
        arguments = range(self.first_own + self.unit_states + weights)
        # Factors of the encoder (x first), the heads, those of the unit except x.
        own = unit.factors(self.unit_arguments(arguments, places))[1:]
        of_encoder = encoder.factors(arguments)
        self.factor_places = [*of_encoder, *arguments[self.first_head : self.first_own], *own]
        self.factor_sizes = len(of_encoder), len(places)

    def unit_arguments(self, arguments: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        """The arguments of the unit, with the rows of the heads in their places."""
        inputs = [arguments[self.encoder_states], *arguments[self.first_own + self.unit_states :]]
        for place, row in zip(self.places, rows, strict=True):
            inputs.insert(place, row)
        return [*arguments[self.first_own : self.first_own + self.unit_states], *inputs]

    @property
    def saved_count(self) -> int:
        return 4 + len(self.places) + self.encoder.saved_count + self.unit.saved_count

    def factors(self, arguments: Sequence[Any]) -> list[Any]:
        return [arguments[i] for i in self.factor_places]

    def _split_factors(self, factors: Sequence[Tensor]) -> tuple[Sequence[Tensor], ...]:
        """The factors of the encoder, the heads, those of the unit."""
        of_encoder, heads, own = split_sizes(factors, self.factor_sizes)
        return of_encoder, heads, [factors[0], *own] if of_encoder else own

    def forward(self, arguments: Sequence[Tensor], train: bool) -> tuple[Sequence[Tensor], Tensors]:
        wide = self.factors(arguments)
        factors = cast(wide, self.dtype)
        of_encoder, heads, of_unit = self._split_factors(factors)
        encoded, encoder_saved = self.encoder.run(arguments[: self.first_head], of_encoder, train)
        c = normed = encoded[self.context]
        mean = rstd = None
        if self.norm:
            normed, mean, rstd = torch.native_layer_norm(c, c.shape[-1:], None, None, EPSILON)
        normed = normed.to(self.dtype)
        rows = [F.linear(normed, head) for head in heads]
        results, unit_saved = self.unit.run(self.unit_arguments(arguments, rows), of_unit, train)
        saved = [*changed(factors, wide), c, normed, mean, rstd]
        saved += [*rows, *encoder_saved, *unit_saved]
        return [*results, *encoded[: self.encoder_states]], saved

    def backward(
        self, arguments: Any, saved: Any, gradients: Tensors, needed: Sequence[bool]
    ) -> Tensors:
        """Back through the unit's loop, the heads and the encoder's loop."""
        sizes = len(self.factor_places), 4, len(self.places), self.encoder.saved_count
        narrow, (c, normed, mean, rstd), rows, *loops = split_sizes(saved, sizes)
        encoder_saved, unit_saved = loops
        factors = restored(narrow, self.factors(arguments))
        of_encoder, heads, of_unit = self._split_factors(factors)
        heads_needed = needed[self.first_head : self.first_own]
        encoder_needed = any(needed[: self.first_head])
        own = self.unit_arguments(arguments, rows)
        own_needed = self.unit_arguments(needed, [encoder_needed or n for n in heads_needed])
        count = len(gradients) - self.encoder_states
        of_own: Tensors = [None] * len(own)
        if any(gradient is not None for gradient in gradients[:count]):  # else only the encoder's
            of_own = self.unit.run_backward(own, of_unit, unit_saved, gradients[:count], own_needed)
        states, inputs = of_own[: self.unit_states], list(of_own[self.unit_states :])
        of_rows = [inputs.pop(place) for place in reversed(self.places)][::-1]
        of_x, *weights = inputs

        flat = [None if adjoint is None else adjoint.flatten(0, 1) for adjoint in of_rows]
        normed, dtype = normed.flatten(0, 1), c.dtype
        # Rounded as autocast does, so that it makes no difference whether calls are one function.
        of_heads = [
            torch.mm(d.t(), normed).to(dtype) if d is not None and need else None
            for d, need in zip(flat, heads_needed, strict=True)
        ]
        if not encoder_needed:
            return [*(None for _ in range(self.first_head)), *of_heads, *states, *weights]
        of_c = _sum(
            (torch.mm(d, head) for d, head in zip(flat, heads, strict=True) if d is not None), dtype
        )
        if of_c is not None:
            of_c = of_c.view(c.shape)
            if self.norm:
                of_c, _, _ = torch.ops.aten.native_layer_norm_backward(
                    of_c, c, c.shape[-1:], mean, rstd, None, None, [True, False, False]
                )
        outputs: list[Tensor | None] = [None] * self.encoder_results
        outputs[self.context - self.encoder_states] = of_c
        of_encoded = list(
            self.encoder.run_backward(
                arguments[: self.first_head],
                of_encoder,
                encoder_saved,
                [*gradients[count:], *outputs],
                needed[: self.first_head],
            )
        )
        x = self.encoder_states
        of_encoded[x] = _sum((of_x, of_encoded[x]), dtype)
        return [*of_encoded, *of_heads, *states, *weights]

    def reference(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        encoded = self.encoder.reference(*arguments[: self.first_head])
        c = encoded[self.context]
        c = F.layer_norm(c, c.shape[-1:], eps=EPSILON) if self.norm else c
        heads = arguments[self.first_head : self.first_own]
        rows = [F.linear(c.to(self.dtype), head.to(self.dtype)) for head in heads]
        results = self.unit.reference(*self.unit_arguments(arguments, rows))
        return *results, *encoded[: self.encoder_states]

    def give_up(self, error: EngineFailure) -> None:
        self.unit.give_up(error)


def changed(narrow: Sequence[Tensor], wide: Sequence[Tensor]) -> list[Tensor | None]:
    """The tensors that were cast: the others are kept among the arguments."""
    return [None if a is b else a for a, b in zip(narrow, wide, strict=True)]


def restored(narrow: Tensors, wide: Sequence[Tensor]) -> list[Tensor]:
    """What `changed` was made from."""
    return [b if a is None else a for a, b in zip(narrow, wide, strict=True)]


def _sum(parts: Iterable[Tensor | None], dtype: torch.dtype) -> Tensor | None:
    """The sum of those that are there, in a dtype."""
    terms = [part.to(dtype) for part in parts if part is not None]
    return reduce(torch.add, terms) if terms else None


def split_sizes(items: Sequence[Any], sizes: Sequence[int]) -> list[Sequence[Any]]:
    """The items in pieces of these sizes, and the rest."""
    pieces = []
    for size in sizes:
        pieces.append(items[:size])
        items = items[size:]
    return [*pieces, items]
