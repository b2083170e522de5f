"""The operations a cell graph is made of: their widths, their meaning in torch.

Every value is a row of numbers, [..., width]. Elementwise operations take rows of one width and
rows of width 1, which are repeated. What an operation's derivative is stands in `reverse`, how it
is written in a formula in `formula`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Attributes = dict[str, Any]


@dataclass(frozen=True)
class Op:
    arity: int  # -1: any number
    compute: Callable[..., Tensor]  # compute(*rows, **attributes)
    elementwise: bool = True
    attributes: tuple[str, ...] = ()


def _join(*rows: Tensor) -> Tensor:
    leading = torch.broadcast_shapes(*(row.shape[:-1] for row in rows))
    return torch.cat([row.expand(*leading, row.shape[-1]) for row in rows], -1)


def _fold(x: Tensor, times: int) -> Tensor:
    return x.unflatten(-1, (-1, times)).sum(-1)


def _rstd(x: Tensor, eps: float) -> Tensor:
    return (x.var(-1, correction=0, keepdim=True) + eps).rsqrt()


OPS: dict[str, Op] = {
    "add": Op(2, torch.add),
    "sub": Op(2, torch.sub),
    "mul": Op(2, torch.mul),
    "div": Op(2, torch.div),
    "max": Op(2, torch.maximum),
    "min": Op(2, torch.minimum),
    "greater": Op(2, lambda a, b: (a > b).to(a.dtype)),  # 1 where a > b, else 0
    "where": Op(3, lambda mask, a, b: torch.where(mask != 0, a, b)),
    "sigmoid": Op(1, torch.sigmoid),
    "tanh": Op(1, torch.tanh),
    "relu": Op(1, torch.relu),
    "exp": Op(1, torch.exp),
    "softplus": Op(1, F.softplus),
    "identity": Op(1, lambda x: x),
    # Rows become rows of another width, or numbers of a row meet one another.
    "slice": Op(1, lambda x, start, stop: x[..., start:stop], False, ("start", "stop")),
    "join": Op(-1, _join, False),
    "repeat": Op(1, lambda x, times: x.repeat_interleave(times, -1), False, ("times",)),
    "fold": Op(1, _fold, False, ("times",)),  # sums of `times` neighbours
    "sum": Op(1, lambda x: x.sum(-1, keepdim=True), False),
    "mean": Op(1, lambda x: x.mean(-1, keepdim=True), False),
    "softmax": Op(1, lambda x: torch.softmax(x, -1), False),
    "cumsum": Op(1, lambda x: x.cumsum(-1), False),
    "cumsum_back": Op(1, lambda x: x.flip(-1).cumsum(-1).flip(-1), False),
    "norm": Op(1, lambda x, eps: F.layer_norm(x, x.shape[-1:], eps=eps), False, ("eps",)),
    "rstd": Op(1, _rstd, False, ("eps",)),  # 1 / standard deviation
}
SOURCES = {"input": ("name",), "context": ("name",), "state": ("index",), "vector": ("name",),
           "number": ("value",)}  # fmt: skip
LINEAR = ("map", "start", "stop", "bias")


def width(op: str, widths: list[int], attributes: Attributes) -> int:
    """The width of an operation's result; a ValueError says why there is none."""
    if op == "slice":
        start, stop = attributes["start"], attributes["stop"]
        if not 0 <= start < stop <= widths[0]:
            raise ValueError(f"slice [{start}, {stop}) of a row of {widths[0]}")
        return stop - start
    if op == "join":
        return sum(widths)
    if op == "repeat":
        return widths[0] * attributes["times"]
    if op == "fold":
        if widths[0] % attributes["times"]:
            raise ValueError(f"fold of {widths[0]} numbers by {attributes['times']}")
        return widths[0] // attributes["times"]
    if op in ("sum", "mean", "rstd"):
        return 1
    broad = {w for w in widths if w != 1} or {1}
    if len(broad) > 1:
        raise ValueError(f"{op} of rows of different widths {widths}")
    return broad.pop()
