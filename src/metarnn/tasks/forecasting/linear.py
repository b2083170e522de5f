"""The linear map of a window: ŷ - x_L = W (x - x_L) + b, for all series the same.

NLinear (Zeng et al. 2023), solved exactly. Series that are forecast together see one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from metarnn.tasks.forecasting.windows import Scheme, Window, Windows

ROWS = 4096
PENALTIES = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
WIDEST = 3000  # numbers of a window; wider ones see their own channel only


def shape(scheme: Scheme) -> tuple[int, int]:
    """Of the weights: inputs and a constant, outputs."""
    channels = len(scheme.channels) if _joint(scheme.lookback, len(scheme.channels)) else 1
    return channels * scheme.lookback + 1, channels * scheme.horizon


def fit(windows: Windows, training: Windows | None = None) -> Tensor:
    """The weights by ridge regression over all training windows, with the penalty (a share of their
    number) that is best on the validation windows.

    Args:
        windows: that the penalty is chosen on
        training: whose training windows the weights are then solved on, where those are others
    """
    solve = _solver(windows)
    stride = max(windows.scheme.horizon // 4, 1)
    held = list(_rows(windows, "valid", stride))
    errors = {
        penalty: sum(float((x @ solve(penalty) - y).square().nansum()) for x, y in held)
        for penalty in PENALTIES
    }
    best = min(errors, key=errors.__getitem__)
    return (solve if training is None else _solver(training))(best)


def squared_errors(known: Windows, ahead: Windows) -> tuple[np.ndarray, int]:
    """The summed squared errors on the training windows of `ahead` with each of the PENALTIES, of
    weights solved on those of `known`, and how many values were forecast."""
    solve = _solver(known)
    weights = [solve(penalty) for penalty in PENALTIES]
    total, count = np.zeros(len(PENALTIES)), 0
    for x, y in _rows(ahead, "train"):
        total += [float((x @ weight - y).square().nansum()) for weight in weights]
        count += int(y.isfinite().sum())
    return total, count


def _solver(windows: Windows) -> Callable[[float], Tensor]:
    """The weights for any penalty, by one decomposition: (XᵀX + penalty·n)⁻¹ XᵀY."""
    gram = cross = None
    count = 0
    for x, y in _rows(windows, "train"):
        there = y.isfinite().all(1)
        x, y = x[there], y[there]
        gram = x.T @ x if gram is None else gram + x.T @ x
        cross = x.T @ y if cross is None else cross + x.T @ y
        count += len(x)
    assert gram is not None
    assert cross is not None
    values, vectors = torch.linalg.eigh(gram)
    rotated = vectors.T @ cross
    return lambda p: vectors @ (rotated / (values.clamp(min=0) + p * count).unsqueeze(1))


def apply(weight: Tensor, window: Window) -> Tensor:
    """The forecast [H, B, C] of the weights that `fit` found."""
    steps, batch, channels = window.y.shape
    x, _ = _pairs(window)
    y = (x @ weight.to(x)).to(window.x.dtype)
    return y.view(batch, channels, steps).permute(2, 0, 1) + window.x[-1]


def _joint(lookback: int, channels: int) -> bool:
    return channels > 1 and channels * lookback <= WIDEST


def _rows(windows: Windows, split: str, stride: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
    origins = windows.origins(split, stride)
    for part in np.array_split(origins, max(len(origins) // ROWS, 1)):
        x, y = _pairs(windows.at(part))
        yield x.double(), y.double()


def _pairs(window: Window) -> tuple[Tensor, Tensor]:
    """Windows as rows, [B·C, L + 1] and [B·C, H], or with all channels in a row."""
    last = window.x[-1]
    x, y = ((part - last).permute(1, 2, 0) for part in (window.x, window.y))
    joint = _joint(len(window.x), x.shape[1])
    x, y = (part.flatten(1) if joint else part.flatten(0, 1) for part in (x, y))
    return torch.cat([x, torch.ones_like(x[:, :1])], 1), y
