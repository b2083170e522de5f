"""Checkpointing over time: only the states between stretches of a sequence are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import State
from metarnn.engines import reference
from metarnn.engines.autograd import higher_order, pull_back
from metarnn.engines.recurrence import Recurrence

Run = Callable[[Recurrence], tuple[Tensor, State]]


def checkpointed(run: Run, recurrence: Recurrence, every: int) -> tuple[Tensor, State]:
    """Return what `run` returns; the backward pass runs stretches of `every` steps once more.

    Inputs, outputs and the state at every k-th step are kept; everything else, hoisted products
    included, exists for one stretch at a time: memory for T/k + k steps instead of T, at the price
    of one more forward pass (docs/results.md has figures).
    """
    tensors = _tensors(recurrence)
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
        return run(recurrence)
    output, *final = _Checkpointed.apply(run, _shell(recurrence), every, *tensors)  # type: ignore[misc]
    return output, tuple(final)


class _Checkpointed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Run, shell: Recurrence, every: int, *tensors: Tensor) -> Any:
        full = _filled(shell, tensors)
        pieces = full.split(every)
        # All states in one array: kept one by one, they would lie scattered between the large
        # arrays of the stretches, whose memory could then not be used again.
        starts = [s.new_empty(len(pieces), *s.shape) for s in full.state]
        state, output = full.state, None
        for i, piece in enumerate(pieces):
            for start, part in _pairs(starts, state):
                start[i] = part
            y, state = run(replace(piece, state=state))
            if output is None:
                output = y.new_empty(len(full.x), *y.shape[1:])
            output[i * every : (i + 1) * every] = y
        ctx.save_for_backward(*tensors, *starts)
        ctx.run, ctx.shell, ctx.every = run, shell, every
        device = tensors[0].device.type
        enabled = torch.is_autocast_enabled(device)
        ctx.autocast = device, torch.get_autocast_dtype(device), enabled
        ctx.set_materialize_grads(False)
        return output, *state

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        shell, needed = ctx.shell, ctx.needs_input_grad[3:]
        tensors, starts = ctx.saved_tensors[: len(needed)], ctx.saved_tensors[len(needed) :]
        if higher_order(grads):  # derivatives of derivatives keep all steps
            return None, None, None, *pull_back(lambda *t: _reference(shell, t), tensors, grads)
        full = _filled(shell, [t.detach().requires_grad_(n) for t, n in _pairs(tensors, needed)])
        parts = len(full.state)
        totals: list[Tensor | None] = [None] * len(tensors)
        grad, adjoints = grads[0], list(grads[1:])
        pieces = full.split(ctx.every)
        for i in range(len(pieces) - 1, -1, -1):
            stretch = slice(i * ctx.every, (i + 1) * ctx.every)
            piece = _leaves(pieces[i], tuple(start[i] for start in starts), needed)
            device, dtype, enabled = ctx.autocast
            with torch.enable_grad(), torch.autocast(device, dtype, enabled=enabled):
                y, final = ctx.run(piece)
            reached = [(y, None if grad is None else grad[stretch]), *_pairs(final, adjoints)]
            reached = [(v, g) for v, g in reached if g is not None and v.requires_grad]
            if not reached:
                continue
            leaves = _tensors(piece)
            places = [k for k, leaf in enumerate(leaves) if leaf.requires_grad]
            pulled = torch.autograd.grad(
                [v for v, _ in reached],
                [leaves[k] for k in places],
                [g for _, g in reached],
                allow_unused=True,
            )
            of_leaves = dict(zip(places, pulled, strict=True))
            adjoints = [of_leaves.get(1 + k) for k in range(parts)]
            for k, gradient in of_leaves.items():
                if gradient is not None and not 1 <= k <= parts:
                    totals[k] = _added(totals[k], gradient, tensors[k], stretch)
        return None, None, None, totals[0], *adjoints, *totals[1 + parts :]


def _added(total: Tensor | None, grad: Tensor, like: Tensor, stretch: slice) -> Tensor:
    """The gradient so far: in its place of what differs from step to step, summed of the rest."""
    if like.dim() == 3:
        total = torch.zeros_like(like) if total is None else total
        total[stretch] = grad
        return total
    return grad if total is None else total.add_(grad)


def _leaves(piece: Recurrence, state: State, needed: Sequence[bool]) -> Recurrence:
    """A stretch from a state, whose inputs are leaves of the graph where they need a gradient."""

    def leaf(value: Tensor, need: bool) -> Tensor:
        return value.detach().requires_grad_(need)

    extra_needed = needed[len(needed) - len(piece.extra_inputs) :]
    return replace(
        piece,
        x=leaf(piece.x, needed[0]),
        state=tuple(leaf(part, True) for part in state),
        extra_inputs={
            name: leaf(value, need) if value.dim() == 3 else value
            for (name, value), need in _pairs(list(piece.extra_inputs.items()), extra_needed)
        },
    )


def _pairs(left: Sequence[Any], right: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(left, right, strict=True))


def _tensors(recurrence: Recurrence) -> list[Tensor]:
    """The tensors that may need a gradient: inputs, states, weights, factors, extra inputs."""
    r = recurrence
    return [r.x, *r.state, *r.weights.values(), *r.columns.values(), *r.extra_inputs.values()]


def _shell(recurrence: Recurrence) -> Recurrence:
    """A recurrence without those tensors, which autograd holds."""
    empty = recurrence.x.new_empty(0)
    return replace(
        recurrence,
        x=empty,
        state=(empty,) * len(recurrence.state),
        weights=dict.fromkeys(recurrence.weights, empty),
        columns=dict.fromkeys(recurrence.columns, empty),
        extra_inputs=dict.fromkeys(recurrence.extra_inputs, empty),
    )


def _filled(shell: Recurrence, tensors: Sequence[Tensor]) -> Recurrence:
    rest = iter(tensors)
    return replace(
        shell,
        x=next(rest),
        state=tuple(next(rest) for _ in shell.state),
        weights={name: next(rest) for name in shell.weights},
        columns={name: next(rest) for name in shell.columns},
        extra_inputs={name: next(rest) for name in shell.extra_inputs},
    )


def _reference(shell: Recurrence, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    output, final = reference.run(_filled(shell, tensors))
    return output, *final
