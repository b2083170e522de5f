"""Answers of classifiers without training: nearest neighbours, and random features with ridge."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import torch
from torch.nn import functional as F

from metarnn.tasks.classification.examples import Part

Distance = Callable[[Part, Part], np.ndarray]  # (rows, columns) -> [rows, columns]
BAND = 0.1  # of the length: how far DTW may shift a step (Sakoe and Chiba 1978)
PAIRS = 4096  # of DTW side by side
FEATURES = 10_000
TAPS = 9  # of MiniRocket's kernels
PENALTIES = torch.logspace(-3, 5, 9, dtype=torch.float64)


def nearest(train: Part, test: Part, distance: Distance) -> np.ndarray:
    """The label of the nearest training sequence, of each test sequence."""
    labels, block = np.array(train.y), max(2_000_000 // len(train), 1)
    blocks = (
        test.take(np.arange(k, min(k + block, len(test)))) for k in range(0, len(test), block)
    )
    return np.concatenate([labels[distance(rows, train).argmin(1)] for rows in blocks])


def distances(rows: Part, columns: Part) -> np.ndarray:
    """Squared Euclidean distances of sequences of one length."""
    a, b = (np.stack([x.ravel() for x in part.x]).astype(np.float64) for part in (rows, columns))
    return (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T


def dtw(rows: Part, columns: Part) -> np.ndarray:
    """Distances by dynamic time warping: D_ij = |a_i - b_j|² + min(D_{i-1,j}, D_{i,j-1},
    D_{i-1,j-1}) with |i - j| at most the band.

    The cells of an anti-diagonal i + j = d depend on the two before, and are computed together.
    """
    block = max(PAIRS // len(columns), 1)
    parts = [rows.x[k : k + block] for k in range(0, len(rows), block)]
    return np.concatenate([_dtw(part, columns.x) for part in parts])


def band(lengths: np.ndarray) -> int:
    return max(int(np.ceil(BAND * lengths.max())), int(np.ptp(lengths)), 1)


def _dtw(rows: tuple[np.ndarray, ...], columns: tuple[np.ndarray, ...]) -> np.ndarray:
    n, m = (np.array([len(x) for x in each]) for each in (rows, columns))
    width, length = band(np.concatenate([n, m])), max(n.max(), m.max())
    a, b = _stacked(rows, length)[:, :, None], _stacked(columns, length)[:, None]
    ends = n[:, None] + m[None] - 2
    last = np.full((length, len(rows), len(columns)), np.inf, np.float32)
    before, result = last.copy(), np.full(ends.shape, np.inf)
    for d in range(2 * length - 1):
        low = max(0, d - length + 1, (d - width + 1) // 2)
        high = min(d, length - 1, (d + width) // 2)
        current = np.full_like(last, np.inf)
        i = slice(low, high + 1)
        j = np.arange(d - low, d - high - 1, -1)
        cost = np.square(a[i] - b[j]).sum(-1)
        if d:
            best = last[i].copy()  # from (i, j - 1)
            shifted = slice(max(low, 1), high + 1)
            above = slice(shifted.start - 1, high)
            at = slice(shifted.start - low, None)
            best[at] = np.minimum(best[at], np.minimum(last[above], before[above]))
            cost = cost + best
        current[i] = cost
        if (done := ends == d).any():
            r, c = np.nonzero(done)
            result[r, c] = current[n[r] - 1, r, c]
        before, last = last, current
    return result


def _stacked(rows: tuple[np.ndarray, ...], length: int) -> np.ndarray:
    """[T, N, C], padded at the end."""
    stacked = np.zeros((length, len(rows), rows[0].shape[-1]), np.float32)
    for k, row in enumerate(rows):
        stacked[: len(row), k] = row
    return stacked


def dtw_seconds(train: Part, test: Part) -> float:
    """An estimate of the time that `dtw` takes."""
    lengths = np.array([len(x) for part in (train, test) for x in part.x])
    longest, channels = int(lengths.max()), train.x[0].shape[-1]
    blocks = -(-len(test) // max(PAIRS // len(train), 1))
    cell = 2 * band(lengths) * (4e-9 * channels + 2e-9) + 2e-10 * longest
    return len(train) * len(test) * longest * cell + 1e-4 * longest * blocks


def minirocket(train: Part, test: Part, classes: int) -> np.ndarray:
    """Answers of a ridge regression on MiniRocket's features (Dempster et al. 2021).

    A feature is the share of steps at which a convolution is above a bias. Kernels have nine taps,
    three of them 2 and the others -1; biases are quantiles of the training convolutions.
    """
    x, y = (torch.from_numpy(np.stack([*part.x])).permute(0, 2, 1) for part in (train, test))
    mean, std = x.mean((0, 2), keepdim=True), x.std((0, 2), keepdim=True).clamp(min=1e-8)
    known, asked = _features((x - mean) / std, (y - mean) / std)
    return _ridge(known, asked, np.array(train.y), classes)


def rocket_plan(length: int) -> tuple[list[int], int]:
    """Dilations, and features of each kernel: no more than there are steps."""
    most = max((length - 1) // (TAPS - 1), 1)
    dilations = sorted({round(most ** (k / 31)) for k in range(32)})
    return dilations, min(max(FEATURES // (84 * len(dilations)), 1), length)


def _features(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of training and of test sequences [N, C, T]."""
    draw = torch.Generator().manual_seed(0)
    taps = -torch.ones(84, 1, TAPS)
    for k, places in enumerate(combinations(range(TAPS), 3)):
        taps[k, 0, list(places)] = 2.0
    dilations, count = rocket_plan(x.shape[-1])
    levels = (torch.arange(1, count + 1) * 0.6180339887) % 1
    found: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for dilation in dilations:
        # Each kernel sees channels of its own, as many as another draw says.
        scores = torch.rand(84, x.shape[1], generator=draw)
        chosen = scores <= scores.quantile(torch.rand(1, generator=draw), 1, keepdim=True)[0]
        weight = taps * chosen.unsqueeze(-1)
        sample = x[torch.randint(len(x), (64,), generator=draw)]
        biases = _convolved(sample, weight, dilation).transpose(0, 1).flatten(1)
        biases = biases.quantile(levels, 1)  # [features of a kernel, 84]
        for part, rows in zip((x, y), found, strict=True):
            blocks = [_convolved(block, weight, dilation) for block in part.split(256)]
            ppv = [
                torch.stack([(b > bias.unsqueeze(-1)).float().mean(-1) for bias in biases], 1)
                for b in blocks
            ]
            rows.append(torch.cat(ppv).flatten(1))
    return torch.cat(found[0], 1).double(), torch.cat(found[1], 1).double()


def _convolved(x: torch.Tensor, weight: torch.Tensor, dilation: int) -> torch.Tensor:
    return F.conv1d(x, weight, padding=dilation * (TAPS - 1) // 2, dilation=dilation)


def _ridge(
    known: torch.Tensor, asked: torch.Tensor, labels: np.ndarray, classes: int
) -> np.ndarray:
    """One against all, with the penalty of least leave-one-out error, in the dual."""
    mean, std = known.mean(0), known.std(0) + 1e-8
    known, asked = (known - mean) / std, (asked - mean) / std
    targets = 2 * F.one_hot(torch.from_numpy(labels), classes).double() - 1
    center = targets.mean(0)
    values, vectors = torch.linalg.eigh(known @ known.T)
    rotated = vectors.T @ (targets - center)
    best, lowest = rotated, torch.inf
    for penalty in PENALTIES:
        inverse = 1 / (values.clamp(min=0) + penalty)
        alpha = vectors @ (inverse.unsqueeze(1) * rotated)
        own = (vectors.square() * inverse).sum(1, keepdim=True)
        error = float((alpha / own).square().mean())
        if error < lowest:
            best, lowest = alpha, error
    return (asked @ (known.T @ best) + center).argmax(1).numpy()
