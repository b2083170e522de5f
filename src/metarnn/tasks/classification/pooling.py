"""One vector of a sequence of them: the last, the mean, the largest, or by attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metarnn.cells import check

POOLS = ("last", "mean", "max", "attention")


class Pool(nn.Module):
    """[T, B, n] and the lengths [B] -> [B, n].

    >>> Pool("mean", 2)(torch.ones(5, 3, 2), torch.tensor([5, 2, 1])).shape
    torch.Size([3, 2])

    last       the last output; of two directions each one's own last, at the end and at the start
    mean, max  over all steps
    attention  Σ_t a_t y_t, a = softmax_t(v · tanh(W y_t + b))
    """

    def __init__(self, kind: str, width: int, *, bidirectional: bool = False) -> None:
        super().__init__()
        self.kind = check.one_of("pool", kind, POOLS)
        self.width, self.bidirectional = width, bidirectional
        self.score = None
        if kind == "attention":
            self.score = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, y: Tensor, lengths: Tensor) -> Tensor:
        if self.kind == "last":
            return self._last(y, lengths)
        alive = torch.arange(len(y), device=y.device).unsqueeze(1) < lengths
        alive = alive.unsqueeze(-1)
        if self.kind == "mean":
            return y.masked_fill(~alive, 0).sum(0) / lengths.unsqueeze(-1).to(y.dtype)
        if self.kind == "max":
            return y.masked_fill(~alive, -torch.inf).amax(0)
        assert self.score is not None
        weights = self.score(y).masked_fill(~alive, -torch.inf).softmax(0)
        return (weights * y).sum(0)

    def _last(self, y: Tensor, lengths: Tensor) -> Tensor:
        index = (lengths - 1).view(1, -1, 1).expand(1, -1, y.shape[-1])
        last = y.gather(0, index).squeeze(0)
        if not self.bidirectional:
            return last
        half = y.shape[-1] // 2
        return torch.cat([last[:, :half], y[0, :, half:]], -1)

    def begin(self, y: Tensor) -> tuple[Tensor, ...]:
        """What `step` carries, before the first of the rows y, [B, n]."""
        if self.kind == "last":
            return ()
        if self.kind == "max":
            return (torch.full_like(y, -torch.inf),)
        zero = torch.zeros_like(y)
        if self.kind == "mean":
            return zero, zero[:, :1]
        return zero, zero[:, :1], torch.full_like(y[:, :1], -torch.inf)

    def step(self, y: Tensor, carried: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The pool of all rows so far: y [B, n] -> [B, n], in constant memory."""
        if self.kind == "last":
            return y, ()
        if self.kind == "max":
            largest = torch.maximum(carried[0], y)
            return largest, (largest,)
        if self.kind == "mean":
            total, count = carried[0] + y, carried[1] + 1
            return total / count, (total, count)
        assert self.score is not None
        total, weight, top = carried
        score = self.score(y)
        higher = torch.maximum(top, score)  # the softmax over time, relative to the largest so far
        old, new = (top - higher).exp(), (score - higher).exp()
        total, weight = total * old + y * new, weight * old + new
        return total / weight, (total, weight, higher)
