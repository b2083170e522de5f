"""Optimisers as pure functions: (params, gradients, state) -> (params, state), differentiable.

A rate is a number, or a tensor (one for all), or tensors by the names of the parameters: rates that
are learned, as in Meta-SGD (Li et al. 2017), are tensors that need a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from metarnn.cells import check

Params: TypeAlias = Mapping[str, Tensor]
Rate: TypeAlias = "float | Tensor | Mapping[str, Tensor]"


class Optimiser(Protocol):
    """A dataclass with a rate `lr`, so that `dataclasses.replace` can put another in its place."""

    @property
    def lr(self) -> Rate: ...

    def begin(self, params: Params) -> Any:
        """What it remembers before the first step: tensors in dicts and tuples."""
        ...

    def step(self, params: Params, gradients: Params, state: Any) -> tuple[dict[str, Tensor], Any]:
        """One step; none of the arguments is changed."""
        ...


@dataclass(frozen=True)
class SGD:
    """w ← w - lr·m with m ← momentum·m + g, as torch.optim.SGD.

    >>> SGD(0.1).step({"w": torch.ones(2)}, {"w": torch.tensor([1.0, 2.0])}, ())[0]
    {'w': tensor([0.9000, 0.8000])}
    """

    lr: Rate = 0.01
    momentum: float = 0.0

    def __post_init__(self) -> None:
        _check_rate(self.lr)
        _check_share("momentum", self.momentum)

    def begin(self, params: Params) -> Any:
        return _zeros(params) if self.momentum else ()

    def step(self, params: Params, gradients: Params, state: Any) -> tuple[dict[str, Tensor], Any]:
        if self.momentum:
            state = {name: self.momentum * state[name] + g for name, g in gradients.items()}
        moved = state if self.momentum else gradients
        return {name: w - _rate(self.lr, name) * moved[name] for name, w in params.items()}, state


@dataclass(frozen=True)
class Adam:
    """w ← w - lr·m̂ / (√v̂ + eps), as torch.optim.Adam.

    The root has a slope at 0 too, so that a weight whose gradient is 0, such as that of a dead
    unit, does not make second derivatives NaN.
    """

    lr: Rate = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _check_rate(self.lr)
        for beta in self.betas:
            _check_share("betas", beta)

    def begin(self, params: Params) -> Any:
        first = next(iter(params.values()))
        return {"m": _zeros(params), "v": _zeros(params), "t": first.new_zeros(())}

    def step(self, params: Params, gradients: Params, state: Any) -> tuple[dict[str, Tensor], Any]:
        b1, b2 = self.betas
        t = state["t"] + 1
        m = {name: b1 * state["m"][name] + (1 - b1) * g for name, g in gradients.items()}
        v = {name: b2 * state["v"][name] + (1 - b2) * g * g for name, g in gradients.items()}
        c1, c2 = 1 - b1**t, 1 - b2**t
        found = {}
        for name, w in params.items():
            root = (v[name] / c2 + TINY).sqrt()
            found[name] = w - _rate(self.lr, name) * (m[name] / c1) / (root + self.eps)
        return found, {"m": m, "v": v, "t": t}


TINY = 1e-20  # far below eps², and its root is still a number in float32

OPTIMISERS: dict[str, Callable[[Rate], Optimiser]] = {
    "sgd": SGD,
    "momentum": lambda lr: SGD(lr, 0.9),
    "adam": Adam,
}


def optimiser(kind: str, lr: Rate) -> Optimiser:
    """An optimiser by its name: "sgd", "momentum" (0.9) or "adam"."""
    return OPTIMISERS[check.one_of("optimiser", kind, OPTIMISERS)](lr)


def _rate(lr: Rate, name: str) -> float | Tensor:
    return lr[name] if isinstance(lr, Mapping) else lr


def _zeros(params: Params) -> dict[str, Tensor]:
    return {name: torch.zeros_like(w) for name, w in params.items()}


def _check_rate(lr: Rate) -> None:
    if not isinstance(lr, Tensor | Mapping) and check.number("lr", lr) < 0:
        check.refuse("lr", lr, "a number not below 0, a tensor, or tensors by name")


def _check_share(name: str, value: float) -> None:
    if not 0 <= check.number(name, value) < 1:
        check.refuse(name, value, "a number from 0 to below 1")
