"""What classifiers read and pool, as ONNX."""

from __future__ import annotations

import torch
from torch import nn

from metarnn.layers.onnx import Builder, write_end
from metarnn.tasks.classification.examples import Scheme
from metarnn.tasks.classification.model import Classifier
from metarnn.tasks.classification.pooling import Pool


def write_features(b: Builder, x: str, model: Classifier) -> str:
    """What the layers read of numbers [T, B, C], as `Classifier.features`; with an input `times`
    [T, B] where steps have times."""
    scheme = model.scheme
    y = b.add("Div", b.add("Sub", x, b.const(model.mean.float())), b.const(model.std.float()))
    if not (scheme.missing or scheme.timed):
        return y
    # NaN and ±∞ are not below ∞.
    there = b.add("Less", b.add("Abs", x), b.const(torch.full((1,), torch.inf)))
    found = [b.add("Where", there, y, b.const(torch.zeros(1)))]
    t = _clock(b, x, scheme)
    if scheme.missing:
        found += [b.add("Cast", there, to=1), _since(b, there, t, scheme.channels)]
    if scheme.timed:
        before = b.add("Concat", b.slice(t, 0, 1, 0), b.slice(t, 0, -1, 0), axis=0)
        found.append(_log(b, b.add("Sub", t, before)))
    return b.add("Concat", *found, axis=-1)


def _clock(b: Builder, x: str, scheme: Scheme) -> str:
    """The time of each step, [T, B, 1]; its number where none is told."""
    if scheme.timed:
        times = b.add("Div", b.input("times", ("T", "B")), b.const(torch.full((1,), scheme.gap)))
        return b.add("Unsqueeze", times, b.ints(2))
    steps = b.add("Squeeze", b.batch(x, 0), b.ints(0))
    t = b.add("Range", b.const(torch.tensor(0)), steps, b.const(torch.tensor(1)))
    t = b.add("Reshape", b.add("Cast", t, to=1), b.ints(-1, 1, 1))
    shape = b.add("Concat", b.slice(b.add("Shape", x), 0, 2, 0), b.ints(1), axis=0)
    return b.add("Expand", t, shape)


def _since(b: Builder, there: str, t: str, channels: int) -> str:
    """log(1 + time since each channel was there before this step), [T, B, C]."""
    inner = Builder(b.constants, prefix=f"{b.name()}_")
    batch = inner.own_batch
    seen = inner.input(f"{inner.prefix}seen", (batch, channels))
    now = inner.input(f"{inner.prefix}there", (batch, channels), "bool")
    time = inner.input(f"{inner.prefix}t", (batch, 1))
    later = inner.add("Max", seen, inner.add("Where", now, time, seen))
    inner.output(later, f"{inner.prefix}later", (batch, channels))
    inner.output(inner.add("Sub", time, seen), f"{inner.prefix}gap", (batch, channels))
    first = b.add("Squeeze", b.slice(t, 0, 1, 0), b.ints(0))
    first = b.add("Expand", first, b.slice(b.add("Shape", there), 1, 3, 0))
    body = inner.graph("since")
    _, gap = b.several("Scan", [first, there, t], 2, body=body, num_scan_inputs=2)
    return _log(b, gap)


def _log(b: Builder, gap: str) -> str:
    """log(1 + gap), of a gap not below 0."""
    return b.add("Log", b.add("Add", b.add("Relu", gap), b.const(torch.ones(1))))


def write_score(b: Builder, pool: Pool, y: str) -> str:
    """How much each step counts in an attention pool, before the softmax."""
    assert pool.score is not None
    first, _, second = pool.score
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    return b.linear(
        b.add("Tanh", b.linear(y, first.weight, first.bias)), second.weight, second.bias
    )


def write_pool(b: Builder, pool: Pool, y: str, lengths: str, alive: str) -> str:
    """One row of each sequence, [B, n]."""
    if pool.kind == "max":
        low = b.const(torch.full((1,), -torch.inf))
        return b.add("ReduceMax", b.add("Where", alive, y, low), b.ints(0), keepdims=0)
    if pool.kind == "attention":
        low = b.const(torch.full((1,), -torch.inf))
        weight = b.add("Softmax", b.add("Where", alive, write_score(b, pool, y), low), axis=0)
        return b.add("ReduceSum", b.add("Mul", weight, y), b.ints(0), keepdims=0)
    if pool.kind == "mean":
        count = b.add("Unsqueeze", b.add("Cast", lengths, to=1), b.ints(1))
        return b.add("Div", b.add("ReduceSum", y, b.ints(0), keepdims=0), count)
    last = write_end(b, y, alive, False)
    if not pool.bidirectional:
        return last
    start = b.add("Gather", y, b.const(torch.tensor(0)), axis=0)
    width = pool.width // 2
    ends = b.slice(last, 0, width, -1), b.slice(start, width, 2 * width, -1)
    return b.add("Concat", *ends, axis=-1)
