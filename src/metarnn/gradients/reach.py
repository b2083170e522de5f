"""How far back a gradient gets: measured, lag by lag, and the dynamics that decide it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from metarnn.cells import check
from metarnn.gradients.linearize import Linearization
from metarnn.gradients.nested import detached, rows, split_time
from metarnn.gradients.rule import LossFunction, Split, ask_model, comes_in_pieces, trained
from metarnn.gradients.segment import Adjoint, Segment, live, segment
from metarnn.gradients.taps import in_plain_torch

NEAR = 0.05  # of its limits, where a gate counts as saturated
WHOLE, FEW = 256, 8  # up to so many numbers of state all exponents are found; else so many


@dataclass
class Reach:
    """What was measured.

    norms       ‖∂L_t/∂s_k‖, its mean over t and sequences, by the lag t - k = 1, 2, …: the first is
                that of the state which step t read
    shares      the part of ∂L/∂θ that comes from step t - lag, by the lag 0, 1, …: its norm over
                the sum of all
    exponents   Lyapunov exponents of the state along the data, the largest first, per step
    radius      the spectral radius of ∂s_t/∂s_{t-1}, its mean along the data; of more than 256
                numbers of state an estimate
    saturated   by the function (sigmoid, tanh), how often it is within 5 % of its limits
    dead        how many units never changed, as a share
    """

    norms: list[float]
    shares: list[float]
    exponents: list[float]
    radius: float
    saturated: dict[str, float] = field(default_factory=dict)
    dead: float = 0.0

    @property
    def gamma(self) -> float:
        """γ of the curve γ^(t-k): how much of a gradient is left after one more step back.

        The slope of log ‖∂L_t/∂s_k‖ by least squares, over lags at which there is anything."""
        return _decay(self.norms)

    @property
    def horizon(self) -> float:
        """The lag within which 95 % of ∂L/∂θ arises: how far back the weights can learn from.

        Infinite where the curve does not fall: then what was measured is not all."""
        if self.gamma >= 1:
            return float("inf")
        total, target = 0.0, 0.95 * sum(self.shares)
        for lag, share in enumerate(self.shares):
            total += share
            if total >= target:
                return float(lag)
        return float(len(self.shares))


@torch.enable_grad()
def reach(
    model: nn.Module,
    chunk: Any,
    state: Any = None,
    *,
    lags: int = 64,
    ends: int = 8,
    loss: LossFunction = ask_model,
    split: Split = split_time,
) -> Reach:
    """Measure how far back gradients get in a model on some data.

    Args:
        model, chunk, state, loss, split: as gradient rules have them (`gradients.Rule`)
        lags: how many steps to follow a loss back, at most
        ends: for how many losses, evenly spaced, the last one included

    >>> from metarnn.layers import RNN
    >>> class Model(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = RNN(3, 8, init="torch")
    ...     def forward(self, x, state):
    ...         y, state = self.layer(x, state)
    ...         return y.square().sum(), state
    >>> found = reach(Model(), torch.randn(50, 4, 3))
    >>> found.gamma < 1, found.exponents[0] < 0
    (True, True)
    """
    comes_in_pieces(model, split, "a diagnosis")
    check.size("lags", lags)
    check.size("ends", ends)
    stretches = split(chunk, 1)
    if len(stretches) < 2:
        check.refuse("chunk", f"of {len(stretches)} steps", "at least 2")
    links: list[Segment] = []
    watch = _Watch()
    with in_plain_torch(model), watch:
        for stretch in stretches:
            links.append(segment(loss, model, stretch, state, []))
            state = links[-1].state
    norms, shares = _back(links, trained(model), min(lags, len(links) - 1), ends)
    exponents, radius = _dynamics(model, stretches, loss)
    states = torch.stack([rows(detached(link.state)) for link in links])
    dead = (states == states[:1]).all(0).all(0).double().mean().item()
    return Reach(norms, shares, exponents, radius, watch.shares(), dead)


def _back(
    links: list[Segment], parameters: dict[str, Tensor], lags: int, ends: int
) -> tuple[list[float], list[float]]:
    """Follow single losses back: mean norms by the lag, and the share of ∂L/∂θ that each gives."""
    last = len(links) - 1
    first = min(lags, last)
    count = min(ends, last - first + 1)
    even = {round(last - k * (last - first) / max(count - 1, 1)) for k in range(count)}
    # Where a loss is given only at some steps, such as the last, it is followed from those.
    chosen = [t for t in sorted(even) if _matters(links[t])]
    chosen = chosen or [t for t in range(last, 0, -1) if _matters(links[t])][:1]
    if not chosen:
        check.refuse("loss", "the same whatever the state", "one that depends on the state")
    norms: list[list[float]] = [[] for _ in range(lags)]
    sizes: list[list[float]] = [[] for _ in range(lags + 1)]
    for t in chosen:
        adjoint: Adjoint = []
        for lag in range(min(lags, t) + 1):
            grads, adjoint = links[t - lag].pull(parameters, adjoint, value=lag == 0, keep=True)
            sizes[lag].append(_length(list(grads.values())))
            if not live(adjoint):
                break
            if lag < lags:
                norms[lag].append(_length_by_sequence(adjoint))
    means = [sum(n) / len(n) for n in norms if n]
    parts = [sum(n) / len(n) if n else 0.0 for n in sizes]
    whole = sum(parts) or 1.0
    return means, [part / whole for part in parts]


def _matters(link: Segment) -> bool:
    """Whether a loss depends on the state before it."""
    if not link.value.requires_grad or not link.before:
        return False
    _, adjoint = link.pull({}, [], keep=True)
    return any(each is not None and bool(each.any()) for each in adjoint)


def _dynamics(
    model: nn.Module, stretches: Any, loss: LossFunction, steps: int = 64
) -> tuple[list[float], float]:
    """Lyapunov exponents (Benettin et al. 1980), and the mean spectral radius of a step."""
    state, Q, logs, radii = None, None, [], []
    for stretch in stretches[: steps + 1]:
        lin = Linearization(loss, model, stretch, state)
        state = detached(lin.after)
        if not lin.before:
            continue
        if Q is None:
            Q = _start(lin)
        if lin.size <= WHOLE:
            eye = torch.eye(lin.size, dtype=lin.s.dtype, device=lin.s.device)
            D, _ = lin.pull(eye.unsqueeze(1).expand(-1, lin.batch, -1))
            assert D is not None
            D = D.transpose(0, 1).double()  # [B, S, S]
            if len(logs) % 8 == 0:  # eigenvalues cost more than all of the rest
                radii.append(torch.linalg.eigvals(D).abs().amax(-1).mean().item())
            moved = D @ Q
        else:
            if len(logs) % 32 == 0:
                radii.append(_radius(lin))
            moved = _moved(lin, Q)
        Q, R = torch.linalg.qr(moved)
        logs.append(R.diagonal(dim1=-2, dim2=-1).abs().clamp(min=1e-300).log().mean(0))
    if not logs:
        return [], float("nan")
    exponents = torch.stack(logs).mean(0).sort(descending=True).values.tolist()
    return exponents, sum(radii) / len(radii) if radii else float("nan")


def _start(lin: Linearization) -> Tensor:
    """Directions to follow: of a large state only a few."""
    count = lin.size if lin.size <= WHOLE else FEW
    source = torch.Generator().manual_seed(0)
    random = torch.randn(lin.batch, lin.size, count, generator=source, dtype=torch.float64)
    return torch.linalg.qr(random.to(lin.s.device))[0]


def _moved(lin: Linearization, Q: Tensor) -> Tensor:
    """D Q for directions [B, S, n]."""
    return lin.push(Q.to(lin.s.dtype).movedim(-1, 0)).double().movedim(0, -1)


def _radius(lin: Linearization, rounds: int = 20) -> float:
    """The spectral radius of a large D, by subspace iteration: it bears complex pairs."""
    Q = _start(lin)
    for _ in range(rounds):
        Q, _ = torch.linalg.qr(_moved(lin, Q))
    return torch.linalg.eigvals(Q.mT @ _moved(lin, Q)).abs().amax(-1).mean().item()


class _Watch(TorchFunctionMode):
    """Counts how often gates are near their limits."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, list[Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (torch.sigmoid, torch.Tensor.sigmoid):
            near = (result < NEAR) | (result > 1 - NEAR)
            self.counts.setdefault("sigmoid", []).append(near.detach().double().mean())
        elif func in (torch.tanh, torch.Tensor.tanh):
            near = result.abs() > 1 - NEAR
            self.counts.setdefault("tanh", []).append(near.detach().double().mean())
        return result

    def shares(self) -> dict[str, float]:
        return {name: torch.stack(each).mean().item() for name, each in self.counts.items()}


def _length(parts: list[Tensor]) -> float:
    return torch.stack([p.double().norm() for p in parts]).norm().item() if parts else 0.0


def _length_by_sequence(adjoint: Adjoint) -> float:
    """The norm of ∂L/∂s of each sequence, and of those the mean."""
    return rows([a for a in adjoint if a is not None]).double().norm(dim=1).mean().item()


def _decay(norms: list[float]) -> float:
    """exp of the slope of log norms over lags, by least squares."""
    finite = [n for n in norms if math.isfinite(n)]  # what explodes leaves the range of numbers
    least = 1e-30 * max(finite, default=0.0)
    points = [(k, math.log(n)) for k, n in enumerate(norms) if least < n < math.inf]
    if len(points) < 2:
        return 0.0
    lags, logs = torch.tensor(points, dtype=torch.float64).T
    lags = lags - lags.mean()
    return math.exp(float((lags * logs).sum() / lags.square().sum()))
