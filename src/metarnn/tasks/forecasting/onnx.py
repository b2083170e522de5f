"""Forecasters as ONNX: from a window, in the units of its series, to what follows."""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.hyper.onnx import GIVEN
from metarnn.layers.onnx import Builder, Loop, write_states, write_step
from metarnn.tasks.forecasting.likelihoods import LEVELS
from metarnn.tasks.forecasting.model import Forecaster


def write_forecaster(b: Builder, model: Forecaster, int8: bool = False) -> list[str]:
    """Add a forecaster to a graph: the mean [H, B, C], and where it tells any, quantiles
    [Q, H, B, C].

    Inputs: x [L, B, C]; where there are several series, which ones, [B]; known [L + H, B, K] and
    observed [L, B, P] scaled as in training, where there are such columns.
    """
    _check(model)
    scheme, likelihood = model.scheme, model.options.likelihood
    x = b.input("x", (scheme.lookback, "B", len(scheme.channels)))
    series = b.input("series", ("B",), "int64") if len(scheme.names) > 1 else ""
    rows = {}
    for name, steps, count in (
        ("known", scheme.lookback + scheme.horizon, scheme.known),
        ("observed", scheme.lookback, scheme.observed),
    ):
        if count:
            rows[name] = b.input(name, (steps, "B", count))
    mean, std = (_of(b, torch.tensor(part), series) for part in (scheme.mean, scheme.std))
    scaled = b.add("Div", b.add("Sub", x, mean), std)
    members = [_Member(b, one, int8)(scaled, series, rows) for one in model.members]
    told = members[0]
    if len(members) > 1:
        told = [b.add("Mean", *part) for part in zip(*members, strict=True)]
    if likelihood == "student":
        told = told[:1]  # its quantiles have no closed form
    return [b.add("Add", b.add("Mul", part, std), mean) for part in told]


def _check(model: Forecaster) -> None:
    options, advice = model.options, "`metarnn forecast` has them all."
    if model.recursive:
        check.refuse("strategy", "recursive", "direct, for ONNX", advice)
    if options.context == "hyper":
        check.refuse("context", "hyper", "none or embedding, for ONNX", advice)


def _of(b: Builder, table: Tensor, series: str) -> str:
    """What a table says of each series of the batch, [B, n]."""
    values = b.const(table.float())
    return b.add("Gather", values, series, axis=0) if series else values


class _Member:
    """One forecaster; the names are those of `Forecaster`."""

    def __init__(self, b: Builder, model: Forecaster, int8: bool) -> None:
        self.b, self.model, self.int8 = b, model, int8

    def __call__(self, x: str, series: str, rows: dict[str, str]) -> list[str]:
        b, m, scheme = self.b, self.model, self.model.scheme
        anchor, scale = self._anchor(x)
        by = anchor if m.linear is None else self._linear(m.linear, x)
        read = [b.add("Div", b.add("Sub", x, anchor), scale)]
        if "known" in rows:
            read.append(b.slice(rows["known"], 0, scheme.lookback, 0))
        read += [rows[name] for name in ("observed",) if name in rows]
        whole = b.add("Concat", *read, axis=-1)
        whole = b.slice(whole, scheme.lookback % m.options.patch, scheme.lookback, 0)
        entered = b.add("Relu", b.linear(self._cut(whole), m.enter.weight, m.enter.bias))
        # Each segment to come is one more step after the same window.
        asked = self._asked(b.batch(x, 1), series, rows)
        one = b.add("Reshape", asked, b.ints(-1, m.options.width))
        _, state = write_states(b, m.layers, entered, Loop(int8=self.int8, given=GIVEN))
        state = [b.add("Tile", part, b.ints(1, m.segments, 1)) for part in state]
        y, _ = write_step(b, m.layers, one, state, self.int8, GIVEN)
        return self._told(y, by, scale)

    def _anchor(self, x: str) -> tuple[str, str]:
        b, kind = self.b, self.model.options.anchor
        one = b.const(torch.ones(1))
        if kind == "last":
            return b.add("Gather", x, b.const(torch.tensor(-1)), axis=0), one
        if kind == "none":
            return b.const(torch.zeros(1)), one
        mean = b.add("ReduceMean", x, b.ints(0), keepdims=0)
        if kind == "mean":
            return mean, one
        gap = b.add("Sub", x, mean)
        square = b.add("ReduceMean", b.add("Mul", gap, gap), b.ints(0), keepdims=0)
        return mean, b.add("Add", b.add("Sqrt", square), b.const(torch.full((1,), 1e-3)))

    def _linear(self, weight: Tensor, x: str) -> str:
        b, channels = self.b, len(self.model.scheme.channels)
        last = b.add("Gather", x, b.const(torch.tensor(-1)), axis=0)
        rows = b.add("Transpose", b.add("Sub", x, last), perm=[1, 2, 0])
        joint = len(weight) > self.model.scheme.lookback + 1
        rows = b.add("Reshape", rows, b.ints(0, -1)) if joint else rows
        y = b.linear(rows, weight[:-1].T, weight[-1])
        y = b.add("Reshape", y, b.ints(0, channels, self.model.scheme.horizon))
        return b.add("Add", b.add("Transpose", y, perm=[2, 0, 1]), last)

    def _cut(self, x: str) -> str:
        """[n p, B, C] -> [n, B, p C]."""
        b, p = self.b, self.model.options.patch
        shape = b.add("Shape", x)
        size = b.add("Concat", b.ints(-1, p), b.slice(shape, 1, 3, 0), axis=0)
        parts = b.add("Transpose", b.add("Reshape", x, size), perm=[0, 2, 1, 3])
        ends = b.slice(b.add("Shape", parts), 0, 2, 0)
        return b.add("Reshape", parts, b.add("Concat", ends, b.ints(-1), axis=0))

    def _asked(self, batch: str, series: str, rows: dict[str, str]) -> str:
        """What each segment to come is asked by, [n, B, width]."""
        b, m, scheme = self.b, self.model, self.model.scheme
        assert m.positions is not None
        asked = b.const(m.positions.unsqueeze(1))
        if m.tell is not None:
            assert m.embedding is not None
            context = torch.cat([m.embedding.weight, m.static], -1) @ m.tell.weight.T
            asked = b.add("Add", asked, _of(b, context, series))
        if m.ahead is not None:
            future = b.slice(rows["known"], scheme.lookback, scheme.lookback + scheme.horizon, 0)
            if more := -scheme.horizon % m.options.patch:
                last = b.slice(future, scheme.horizon - 1, scheme.horizon, 0)
                future = b.add("Concat", future, *[last] * more, axis=0)
            asked = b.add("Add", asked, b.linear(self._cut(future), m.ahead.weight, None))
        size = b.add("Concat", b.ints(m.segments), batch, b.ints(m.options.width), axis=0)
        return b.add("Expand", asked, size)

    def _told(self, y: str, by: str, scale: str) -> list[str]:
        """[n B, width] -> the mean [H, B, C], and quantiles [Q, H, B, C]."""
        b, m, size = self.b, self.model, self.model.likelihood.size
        p, channels, horizon = m.options.patch, len(m.scheme.channels), m.scheme.horizon
        raw = b.linear(y, m.head.weight, m.head.bias)
        raw = b.add("Reshape", raw, b.ints(m.segments, -1, p, channels * size))
        raw = b.add("Transpose", raw, perm=[0, 2, 1, 3])
        raw = b.add("Reshape", raw, b.ints(m.segments * p, -1, channels, size))
        raw = b.slice(raw, 0, horizon, 0)
        return [
            b.add("Add", b.add("Mul", b.add("Squeeze", part, b.ints(-1)), scale), by)
            if k == 0
            else b.add("Add", b.add("Mul", b.add("Transpose", part, perm=[3, 0, 1, 2]), scale), by)
            for k, part in enumerate(self._parameters(raw))
        ]

    def _parameters(self, raw: str) -> list[str]:
        """The mean [..., 1], and quantiles [..., Q]."""
        b, kind, middle = self.b, self.model.options.likelihood, len(LEVELS) // 2
        if kind in ("mse", "mae", "student"):
            return [b.slice(raw, 0, 1, -1)]
        if kind == "gaussian":
            mu, sigma = b.slice(raw, 0, 1, -1), b.add("Softplus", b.slice(raw, 1, 2, -1))
            sigma = b.add("Add", sigma, b.const(torch.full((1,), 1e-4)))
            z = b.const(torch.tensor([NormalDist().inv_cdf(level) for level in LEVELS]))
            return [mu, b.add("Add", mu, b.add("Mul", sigma, z))]
        last, step = b.const(torch.tensor(-1)), b.const(torch.full((1,), 0.4))
        sides = []
        for start, reverse in ((0, 1), (middle + 1, 0)):
            wide = b.add("Softplus", b.slice(raw, start, start + middle, -1))
            sides.append(b.add("Mul", b.add("CumSum", wide, last, reverse=reverse), step))
        centre = b.slice(raw, middle, middle + 1, -1)
        low, high = b.add("Sub", centre, sides[0]), b.add("Add", centre, sides[1])
        mean = b.slice(raw, len(LEVELS), len(LEVELS) + 1, -1)
        return [mean, b.add("Concat", low, centre, high, axis=-1)]
