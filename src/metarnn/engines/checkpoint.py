"""Less memory for more time: of a sequence only the states between stretches of it are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import State
from metarnn.engines import eager
from metarnn.engines.anyorder import composed, further
from metarnn.engines.recurrence import Recurrence

Run = Callable[[Recurrence], tuple[Tensor, State]]


def checkpointed(run: Run, recurrence: Recurrence, every: int) -> tuple[Tensor, State]:
    """What `run` returns; its backward pass runs stretches of `every` steps once more.

    Kept are inputs, outputs and the state at every k-th step; all else, the hoisted products
    included, is there for one stretch at a time: memory for T/k + k steps instead of T, at the
    price of one more forward pass (docs/results.md has figures).
    """
    tensors = _tensors(recurrence)
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
        return run(recurrence)
    output, *final = _Checkpointed.apply(run, _shell(recurrence), every, *tensors)  # type: ignore[misc]
    return output, tuple(final)


class _Checkpointed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Run, shell: Recurrence, every: int, *tensors: Tensor) -> Any:
        whole = _filled(shell, tensors)
        pieces = whole.split(every)
        # All states in one array: kept one by one, they would lie scattered between the large
        # arrays of the stretches, whose memory could then not be used again.
        starts = [s.new_empty(len(pieces), *s.shape) for s in whole.state]
        state, output = whole.state, None
        for i, piece in enumerate(pieces):
            for start, part in _pairs(starts, state):
                start[i] = part
            y, state = run(replace(piece, state=state))
            if output is None:
                output = y.new_empty(len(whole.x), *y.shape[1:])
            output[i * every : (i + 1) * every] = y
        ctx.save_for_backward(*tensors, *starts)
        ctx.run, ctx.shell, ctx.every = run, shell, every
        kind = tensors[0].device.type
        ctx.autocast = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        ctx.set_materialize_grads(False)
        return output, *state

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        shell, needed = ctx.shell, ctx.needs_input_grad[3:]
        tensors, starts = ctx.saved_tensors[: len(needed)], ctx.saved_tensors[len(needed) :]
        if further(grads):  # derivatives of derivatives keep all steps
            return None, None, None, *composed(lambda *t: _eager(shell, t), tensors, grads)
        whole = _filled(shell, [t.detach().requires_grad_(n) for t, n in _pairs(tensors, needed)])
        parts = len(whole.state)
        totals: list[Tensor | None] = [None] * len(tensors)
        grad, adjoints = grads[0], list(grads[1:])
        pieces = whole.split(ctx.every)
        for i in range(len(pieces) - 1, -1, -1):
            stretch = slice(i * ctx.every, (i + 1) * ctx.every)
            piece = _leaves(pieces[i], tuple(start[i] for start in starts), needed)
            kind, dtype, on = ctx.autocast
            with torch.enable_grad(), torch.autocast(kind, dtype, enabled=on):
                y, final = ctx.run(piece)
            reached = [(y, None if grad is None else grad[stretch]), *_pairs(final, adjoints)]
            reached = [(v, g) for v, g in reached if g is not None and v.requires_grad]
            if not reached:
                continue
            wrt = _tensors(piece)
            wanted = [k for k, t in enumerate(wrt) if t.requires_grad]
            found = torch.autograd.grad(
                [v for v, _ in reached],
                [wrt[k] for k in wanted],
                [g for _, g in reached],
                allow_unused=True,
            )
            known = dict(zip(wanted, found, strict=True))
            adjoints = [known.get(1 + k) for k in range(parts)]
            for k, found in known.items():
                if found is not None and not 1 <= k <= parts:
                    totals[k] = _added(totals[k], found, tensors[k], stretch)
        return None, None, None, totals[0], *adjoints, *totals[1 + parts :]


def _added(total: Tensor | None, grad: Tensor, like: Tensor, stretch: slice) -> Tensor:
    """The gradient so far: in its place of what differs from step to step, summed of the rest."""
    if like.dim() == 3:
        total = torch.zeros_like(like) if total is None else total
        total[stretch] = grad
        return total
    return grad if total is None else total.add_(grad)


def _leaves(piece: Recurrence, state: State, needed: Sequence[bool]) -> Recurrence:
    """A stretch from a state, made of leaves where autograd is to find what differs in time."""

    def leaf(value: Tensor, wanted: bool) -> Tensor:
        return value.detach().requires_grad_(wanted)

    given = needed[len(needed) - len(piece.given) :]
    return replace(
        piece,
        x=leaf(piece.x, needed[0]),
        state=tuple(leaf(part, True) for part in state),
        given={
            name: leaf(value, wanted) if value.dim() == 3 else value
            for (name, value), wanted in _pairs(list(piece.given.items()), given)
        },
    )


def _pairs(left: Sequence[Any], right: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(left, right, strict=True))


def _tensors(recurrence: Recurrence) -> list[Tensor]:
    """All that a gradient may be asked for: inputs, states, weights, what else the step reads."""
    r = recurrence
    return [r.x, *r.state, *r.weights.values(), *r.columns.values(), *r.given.values()]


def _shell(recurrence: Recurrence) -> Recurrence:
    """A recurrence without those tensors, which autograd is to hold."""
    nothing = recurrence.x.new_empty(0)
    return replace(
        recurrence,
        x=nothing,
        state=(nothing,) * len(recurrence.state),
        weights=dict.fromkeys(recurrence.weights, nothing),
        columns=dict.fromkeys(recurrence.columns, nothing),
        given=dict.fromkeys(recurrence.given, nothing),
    )


def _filled(shell: Recurrence, tensors: Sequence[Tensor]) -> Recurrence:
    rest = iter(tensors)
    return replace(
        shell,
        x=next(rest),
        state=tuple(next(rest) for _ in shell.state),
        weights={name: next(rest) for name in shell.weights},
        columns={name: next(rest) for name in shell.columns},
        given={name: next(rest) for name in shell.given},
    )


def _eager(shell: Recurrence, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    output, final = eager.run(_filled(shell, tensors))
    return output, *final
