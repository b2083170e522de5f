"""A stretch of time to first order: ds' = D ds + Σ ∂s'/∂θ dθ, for each sequence by itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.gradients.nested import leaves, rows, tensors
from metarnn.gradients.rule import LossFunction, derivative, take, trained
from metarnn.gradients.taps import Taps, Use, in_plain_torch


@dataclass
class Source:
    """A parameter (a weight with its bias, a vector, or any other) and how it enters a stretch.

    names  its own, and its bias's
    shape  of the weight
    kind   "map" [z, n], "table" [n, z] (an embedding), "vector" [z], or "other": not row by row
    uses   where it enters row by row
    """

    names: tuple[str, ...]
    shape: torch.Size
    kind: str
    uses: list[Use]

    @property
    def inputs(self) -> Tensor:
        """[K, B, n]: what a map saw, with a 1 for its bias; just that 1 for a vector."""
        found = []
        for use in self.uses:
            ones = use.ε.new_ones(*use.ε.shape[:-1], 1)
            a = ones if use.a is None else use.a
            found.append(_time(torch.cat([a, ones], -1) if use.bias else a))
        return torch.cat(found)

    def named(self, grad: Tensor) -> dict[str, Tensor]:
        """A gradient [z, n], as this parameter and its bias have it."""
        if self.kind in ("vector", "other"):
            return {self.names[0]: grad.reshape(self.shape)}
        weight, *bias = self.names
        if bias:
            return {weight: grad[:, :-1], bias[0]: grad[:, -1]}
        return {weight: grad.T if self.kind == "table" else grad}


class Linearization:
    """A stretch that was run, to be asked for derivatives; each of its sequences counts alone.

    Where it is known that the state depends on the parameters `only`, fused engines may run it:
    they compute zeros for others, which looks as if it did.

    value, notes  what the loss function returned
    after, s      the state after it, as it came and as one row a sequence, [B, S]
    sources       the parameters that it depends on
    """

    def __init__(
        self,
        loss: LossFunction,
        model: nn.Module,
        stretch: Any,
        state: Any,
        *,
        cut: bool = False,
        only: Collection[str] | None = None,
    ) -> None:
        self.notes: list[Any] = []
        self.parameters = trained(model)
        fused = only is not None
        with torch.enable_grad(), in_plain_torch(model, fused), Taps(model, cut=cut) as taps:
            fresh, self.before = leaves(state)
            self.value, self.after = take(loss(model, stretch, fresh), self.notes)
        if not any(part.is_floating_point() for part in tensors(self.after)):
            check.refuse("state", self.after, "tensors [n, B, ...] for the next step to start from")
        self.s = rows(self.after)  # [B, S]
        self.batch, self.size = self.s.shape
        self.sources = self._sources(taps, only)

    def gradients(self) -> tuple[dict[str, Tensor], Tensor | None]:
        """Of the loss: by the parameters within this stretch, and by the state before, [B, S]."""
        inputs = [*self.parameters.values(), *self.before]
        found = derivative([self.value], inputs, [None], keep=True)
        pairs = zip(self.parameters, found, strict=False)
        named = {name: grad for name, grad in pairs if grad is not None}
        if not self.before:
            return named, None
        return named, self._row(found[len(self.parameters) :])

    def pull(self, seeds: Tensor) -> tuple[Tensor | None, list[Tensor]]:
        """Derivatives of seed · s' for each of the seeds [C, B, S].

        Returns:
            by the state before, [C, B, S], None where there was none; and by each source: by what
            came out of it [C, K, B, z], its uses one after the other, or of kind "other" by its
            numbers, [C, B, numel]
        """
        tapped = [use.ε for source in self.sources for use in source.uses]
        inputs = [*self.before, *tapped]
        found = self._each(inputs, seeds)
        before = None
        if self.before:
            before = torch.stack([self._row([f[c] for f in found[: len(self.before)]])
                                  for c in range(len(seeds))])  # fmt: skip
        taps = iter(found[len(self.before) :])
        parts = []
        for source in self.sources:
            if source.uses:
                each = [next(taps) for _ in source.uses]
                parts.append(torch.cat([_time(t, 1) for t in each], 1))
            else:
                parts.append(self._alone(source, seeds))
        return before, parts

    def push(self, tangents: Tensor) -> Tensor:
        """D · tangent for one, [B, S], or for each of several, [C, B, S]."""
        if self._adjoint is None:
            return torch.zeros_like(tangents)
        seed, row = self._adjoint
        batched = tangents.dim() == 3
        return torch.autograd.grad(
            row, seed, tangents, retain_graph=True, is_grads_batched=batched
        )[0]

    @cached_property
    def _adjoint(self) -> tuple[Tensor, Tensor] | None:
        """A seed and Dᵀ · seed, whose derivative by the seed is D; None where D is zero."""
        if not self.before:
            return None
        seed = torch.zeros_like(self.s, requires_grad=True)
        found = torch.autograd.grad(self.s, self.before, seed, create_graph=True, allow_unused=True)
        row = self._row(found)
        return (seed, row) if row.requires_grad else None

    def _row(self, parts: Sequence[Tensor | None]) -> Tensor:
        known = [torch.zeros_like(b) if p is None else p
                 for p, b in zip(parts, self.before, strict=True)]  # fmt: skip
        return rows(known)

    def _each(self, inputs: list[Tensor], seeds: Tensor) -> list[Tensor]:
        """The derivatives of seed · s' by each input, [C, ...]."""
        if not inputs or not self.s.requires_grad:
            return [t.new_zeros(len(seeds), *t.shape) for t in inputs]
        options: dict[str, Any] = {"retain_graph": True, "allow_unused": True}
        if len(seeds) <= 2:  # a few passes one by one cost less than one of many at once
            each = [torch.autograd.grad(self.s, inputs, seed, **options) for seed in seeds]
            return [
                torch.stack([torch.zeros_like(t) if g is None else g for g in grads])
                for t, grads in zip(inputs, zip(*each, strict=True), strict=True)
            ]
        found = torch.autograd.grad(self.s, inputs, seeds, is_grads_batched=True, **options)
        return [
            t.new_zeros(len(seeds), *t.shape) if g is None else g
            for t, g in zip(inputs, found, strict=True)
        ]

    def _alone(self, source: Source, seeds: Tensor) -> Tensor:
        """For a parameter that sequences share in some other way: one pass for each sequence."""
        count, batch, _ = seeds.shape
        apart = torch.diag_embed(seeds.transpose(1, 2), dim1=1, dim2=2)  # [C, B, B, S]
        (found,) = self._each([self.parameters[source.names[0]]], apart.flatten(0, 1))
        return found.reshape(count, batch, -1)

    def _sources(self, taps: Taps, only: Collection[str] | None) -> list[Source]:
        """The parameters that the state depends on, looked for where it is not known."""
        used = [u for u in taps.uses if not {u.weight, u.bias} & taps.other]
        shared = {u.bias for u in used if u.bias} & {u.weight for u in used}
        used = [u for u in used if not {u.weight, u.bias} & shared]
        found: dict[str, Source] = {}
        if only is None:
            grads = derivative([self.s], [u.ε for u in used], [None], keep=True)
            reaching = [use for use, grad in zip(used, grads, strict=True) if grad is not None]
        else:
            reaching = [use for use in used if use.weight in only]
        for use in reaching:
            names = (use.weight, use.bias) if use.bias else (use.weight,)
            shape = self.parameters[use.weight].shape
            source = Source(names, shape, use.kind, [])
            found.setdefault(use.weight, source).uses.append(use)
        if only is not None:
            return list(found.values())
        covered = {name for use in used for name in (use.weight, use.bias)}
        rest = {name: w for name, w in self.parameters.items() if name not in covered}
        grads = derivative([self.s], list(rest.values()), [None], keep=True)
        for (name, w), grad in zip(rest.items(), grads, strict=True):
            if grad is not None:
                found[name] = Source((name,), w.shape, "other", [])
        return list(found.values())


def _time(t: Tensor, place: int = 0) -> Tensor:
    """[B, n] as one step, [1, B, n]."""
    return t.unsqueeze(place) if t.dim() == place + 2 else t
