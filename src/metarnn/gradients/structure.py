"""Which numbers of a state depend on which, whatever the values: found by following NaNs.

Anything computed from a NaN is one, even 0 · NaN. So a step that is run with a NaN in one place
shows all that this place can reach, for any cell, however it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.gradients.linearize import Linearization
from metarnn.gradients.nested import rows, tensors
from metarnn.gradients.rule import LossFunction, take
from metarnn.gradients.taps import Taps, in_plain_torch
from metarnn.layers.nested import map_tensors


class Structure:
    """What a step can reach.

    D  [S, S], true where a number of the state after (row) may depend on one before (column)
    M  by a source's first name, [S, z]: where on what comes out of a map, or on a vector

    With `forever` only what is reached sooner or later counts: where all states see one another
    that is everything, and M is not looked for.
    """

    def __init__(
        self,
        loss: LossFunction,
        model: nn.Module,
        stretch: Any,
        lin: Linearization,
        *,
        cut: bool = False,
        forever: bool = False,
    ) -> None:
        self.cut = cut
        self.size, self.batch = lin.size, lin.batch
        widths = {s.names[0]: s.uses[0].ε.shape[-1] for s in lin.sources if s.uses}
        device = lin.s.device
        self.D = torch.zeros(self.size, self.size, dtype=torch.bool, device=device)
        self.M = {
            name: torch.zeros(self.size, width, dtype=torch.bool, device=device)
            for name, width in widths.items()
        }
        # What is true or false in a chunk may say that a state starts anew there, or that a
        # sequence has ended: both ways count.
        kinds: list[bool | None] = [None]
        if any(t.dtype == torch.bool for t in tensors(stretch)):
            kinds = [False, True]
        with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            for kind in kinds:
                chunk = stretch if kind is None else _flags(stretch, kind)
                for first in range(0, self.size, self.batch):
                    _mark(self.D, first, self._run(loss, model, chunk, lin.after, "", first))
                if forever and bool(self.D.all()):
                    for each in self.M.values():
                        each.fill_(True)
                    return
                for name, found in self.M.items():
                    for first in range(0, found.shape[1], self.batch):
                        _mark(found, first, self._run(loss, model, chunk, lin.after, name, first))

    def reach(self, steps: int | None) -> dict[str, Tensor]:
        """Where each source gets to within so many steps, [S, z]; None: where it ever gets to."""
        D, found = self.D.float(), {}
        for name, at_once in self.M.items():
            reached, count = at_once, 1
            while steps is None or count < steps:
                wider = at_once | (D @ reached.float() > 0)
                if bool((wider == reached).all()):
                    break
                reached, count = wider, count + 1
            found[name] = reached
        return found

    def closed(self) -> tuple[Tensor, dict[str, Tensor]]:
        """D and M over any number of steps."""
        D = self.D
        while True:
            wider = D | (D.float() @ D.float() > 0)
            if bool((wider == D).all()):
                return D, self.reach(None)
            D = wider

    def _run(
        self, loss: LossFunction, model: nn.Module, chunk: Any, like: Any, name: str, first: int
    ) -> Tensor:
        """Which numbers are NaN after a step, [B, S], where sequence b has one in column first + b
        of the source of that name, or of the state where there is none."""
        width = self.M[name].shape[1] if name else self.size
        poison = torch.zeros(self.batch, width, device=self.D.device)
        count = min(self.batch, width - first)
        poison[range(count), range(first, first + count)] = torch.nan
        given = map_tensors(torch.randn_like, like)
        if not name:
            given, poisoned = unrows(poison, given), {}
        else:
            poisoned = {name: poison}
        with in_plain_torch(model), Taps(model, cut=self.cut, poison=poisoned):
            _, after = take(loss(model, chunk, given), [])
        return rows(after).isnan()


def unrows(row: Tensor, like: Any) -> Any:
    """`like`, nested tensors [n, B, ...], plus one row a sequence: [B, S]."""
    floats = [t for t in tensors(like) if t.is_floating_point()]
    sizes = [t.shape[0] * t.shape[2:].numel() for t in floats]
    parts: Iterator[Tensor] = iter(row.split(sizes, 1))

    def place(t: Tensor) -> Tensor:
        if not t.is_floating_point():
            return t
        shape = (t.shape[1], t.shape[0], *t.shape[2:])
        return t + next(parts).reshape(shape).transpose(0, 1).to(t.dtype)

    return map_tensors(place, like)


def colors(needed: Tensor, reached: Tensor) -> Tensor:
    """A color for each row, so that rows of one color can be summed and still told apart.

    Rows r, r' may share one where neither reaches a column that the other needs: in the sum of both
    such a column is one row's alone (Curtis, Powell & Reid 1974).

    needed, reached: [S, columns], bool -> [S]

    >>> colors(torch.eye(3).bool(), torch.eye(3).bool())
    tensor([0, 0, 0])
    >>> colors(torch.eye(3).bool(), torch.ones(3, 3).bool())
    tensor([0, 1, 2])
    """
    overlap = needed.float() @ reached.float().T > 0
    conflict = (overlap | overlap.T).fill_diagonal_(False)
    count = len(needed)
    if not bool(conflict.any()):
        return torch.zeros(count, dtype=torch.long, device=needed.device)
    found = torch.full((count,), -1)
    conflict = conflict.cpu()
    for row in range(count):
        taken = found[conflict[row]].unique()
        free = torch.ones(count + 1, dtype=torch.bool)
        free[taken[taken >= 0]] = False
        found[row] = free.nonzero()[0, 0]
    return found.to(needed.device)


def _flags(chunk: Any, value: bool) -> Any:
    return map_tensors(lambda t: torch.full_like(t, value) if t.dtype == torch.bool else t, chunk)


def _mark(found: Tensor, first: int, seen: Tensor) -> None:
    count = min(len(seen), found.shape[1] - first)
    found[:, first : first + count] |= seen[:count].T
