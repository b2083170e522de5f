"""A forecaster: recurrent layers read a window in segments, and tell the segments that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.hyper import MetaRecurrent
from metarnn.layers import Recurrent
from metarnn.tasks.forecasting.likelihoods import LEVELS, LIKELIHOODS, likelihood
from metarnn.tasks.forecasting.linear import apply, fit, shape
from metarnn.tasks.forecasting.windows import Scheme, Window, Windows
from metarnn.tasks.stack import StackOptions, build_stack, build_unit, maker, solved
from metarnn.tasks.typed import typed
from metarnn.tasks.unit import Make

PATHS = 100  # futures drawn of each window, where a distribution is fed back
SEGMENTS = 15  # auto: the look-back is read in about so many (SegRNN has 720 / 48)
EMBEDDING = 16
MOST_STEPS = 1_000_000  # seen or forecast
MOST_MEMBERS = 100


@dataclass(frozen=True)
class ForecasterOptions(StackOptions):
    """The model's part of a configuration.

    Args:
        strategy: direct tells all of the horizon at once; recursive is fed what it has told
        likelihood: what is told: a number (by the squared or absolute error), quantiles, gaussian
            or student (Student's t)
        patch: steps of a segment; 0 chooses by the horizon and the look-back
        context: how a model of many series tells them apart: not, by an embedding, or by weights
            that a hypernetwork writes for each (from its embedding and what is said of it)
        linear: direct forecasts are what a linear map of the window tells, solved beforehand, and
            what the recurrent layers add to that
        anchor: what the layers read a window relative to: its last value, its mean (scale: also in
            units of its standard deviation), or nothing
        bidirectional: read the window from both ends; direct forecasts only
        members: how many forecasters to train side by side, from different starts; the mean of what
            they tell is the forecast
    """

    strategy: Literal["direct", "recursive"] = "direct"
    likelihood: Literal["mse", "mae", "quantiles", "gaussian", "student"] = "quantiles"
    patch: int = 0
    context: Literal["none", "embedding", "hyper"] = "embedding"
    linear: bool = True
    anchor: Literal["last", "mean", "scale", "none"] = "last"
    bidirectional: bool = False
    members: int = 1


class Forecast(NamedTuple):
    """Forecasts in scaled numbers: mean [H, B, C]; quantiles [Q, H, B, C] at LEVELS, None of a
    point; parameters [H, B, C, S] of the likelihood, None where futures were drawn."""

    mean: Tensor
    quantiles: Tensor | None
    parameters: Tensor | None


class Forecaster(nn.Module):
    """y_{t+1 … t+H} of x_{t-L+1 … t}, for every series with the same weights.

    The window, less its anchor, is cut into segments of `patch` steps; each is one step of the
    recurrent layers. direct: the last state makes one more step for each segment to come, told
    apart by what is known of it (its place, the series, covariates known ahead), all at once, as
    in SegRNN (Lin et al. 2023), on top of a linear map of the window, as in LSTNet (Lai et al.
    2018); that is solved beforehand (`start`) and stays as it is. recursive: each output tells the
    next segment as a difference to the last value, and is fed back.
    """

    positions: nn.Parameter | None
    static: Tensor
    linear: Tensor | None

    def __init__(
        self, scheme: Scheme, options: ForecasterOptions, unit: Make | None = None
    ) -> None:
        super().__init__()
        check.one_of("strategy", options.strategy, ["direct", "recursive"])
        check.one_of("likelihood", options.likelihood, LIKELIHOODS)
        check.one_of("anchor", options.anchor, ["last", "mean", "scale", "none"])
        check.one_of("context", options.context, ["none", "embedding", "hyper"])
        for name in ("lookback", "horizon"):
            check.size(name, getattr(scheme, name), most=MOST_STEPS)
        self.scheme, self.recursive = scheme, options.strategy == "recursive"
        if self.recursive:
            _check_recursive(scheme, options)
        if len(scheme.names) == 1 and not scheme.static:
            options = replace(options, context="none")  # there is nothing to tell apart
        patch = options.patch or (1 if self.recursive else _patch(scheme))
        patch = min(check.size("patch", patch), scheme.lookback)
        self.options = options = replace(options, patch=patch)
        self.likelihood = likelihood(options.likelihood)
        self.segments = -(-scheme.horizon // patch)
        channels, width = len(scheme.channels), options.width
        covariates = scheme.known + scheme.observed
        self.enter = nn.Linear(patch * (channels + covariates), width)
        self.static_size = len(scheme.static[0]) if scheme.static else 0
        context = 0 if options.context == "none" else EMBEDDING + self.static_size
        self.embedding = nn.Embedding(len(scheme.names), EMBEDDING) if context else None
        static = scheme.static or ((),) * len(scheme.names)
        self.register_buffer("static", torch.tensor(static, dtype=torch.float32), persistent=False)
        self.layers = self._layers(width, context, unit)
        self.positions = self.ahead = self.tell = None
        if not self.recursive:
            self.positions = nn.Parameter(torch.randn(self.segments, width) * 0.5)
            if scheme.known:
                self.ahead = nn.Linear(patch * scheme.known, width, bias=False)
        if options.context == "embedding":
            self.tell = nn.Linear(context, width, bias=False)
        self.head = nn.Linear(self.layers.output_size, patch * channels * self.likelihood.size)
        skip = options.linear and not self.recursive
        self.register_buffer("linear", torch.zeros(shape(scheme)) if skip else None)
        if skip:
            nn.init.zeros_(self.head.weight)  # at first nothing is added
        alone = replace(options, members=1)
        others = check.size("members", options.members, most=MOST_MEMBERS) - 1
        self.others = nn.ModuleList(Forecaster(scheme, alone, unit) for _ in range(others))

    def start(self, windows: Windows, training: Windows | None = None) -> None:
        """Solve the linear part before training, as `linear.fit` does."""
        if self.linear is not None:
            self.linear.copy_(fit(windows, training))
            for other in self.members[1:]:
                assert other.linear is not None
                other.linear.copy_(self.linear)

    @property
    def members(self) -> list[Forecaster]:
        return [self, *(cast(Forecaster, other) for other in self.others)]

    def _layers(self, width: int, context: int, unit: Make | None) -> Recurrent:
        options = self.options
        if options.context != "hyper":
            return build_stack(width, options, bidirectional=options.bidirectional, unit=unit)
        return MetaRecurrent(
            build_unit(options, width) if unit is None else unit(width, width),
            options.layers,
            encoder=None,
            form="rows",  # and biases, by which a context is felt from the first step on
            context_size=context,
            bidirectional=options.bidirectional,
            zoneout=options.zoneout,
            engine=options.engine,
        )

    @property
    def description(self) -> dict[str, Any]:
        """What `restore` needs, as plain data."""
        options = asdict(replace(self.options, params=""))
        return {"kind": "forecasting", "scheme": asdict(self.scheme), "options": options}

    def forward(self, window: Window) -> Tensor:
        """Parameters of the likelihood [K, H, B, C, S] of each member, in scaled numbers; of a
        recursive model those of every step after the first segment, [K, L + H - p, B, C, S], with
        the truth fed back."""
        return torch.stack([member._trained(window) for member in self.members])

    def _trained(self, window: Window) -> Tensor:
        return self._recursive(window) if self.recursive else self._direct(window)

    def targets(self, window: Window) -> Tensor:
        """What `forward` is to tell, as long as that is."""
        if not self.recursive:
            return window.y
        return torch.cat([self._whole(window.x)[self.options.patch :], window.y])

    def forecast(self, window: Window, paths: int = PATHS) -> Forecast:
        """The forecast of windows whose future is not looked at."""
        told = [member._forecast(window, paths) for member in self.members]
        if len(told) == 1:
            return told[0]
        return Forecast(*(_mean(parts) for parts in zip(*told, strict=True)))

    def _forecast(self, window: Window, paths: int) -> Forecast:
        if not self.recursive:
            p = self._direct(window)
        elif self.options.likelihood in ("gaussian", "student"):
            return self._drawn(window, paths)
        else:
            p = self._free(window)
        if self.likelihood.size == 1:
            return Forecast(self.likelihood.mean(p), None, p)
        levels = torch.stack([self.likelihood.quantile(p, q) for q in LEVELS])
        return Forecast(self.likelihood.mean(p), levels, p)

    # Direct.

    def _direct(self, window: Window) -> Tensor:
        batch, count = window.x.shape[1], self.segments
        anchor, scale = self._anchor(window.x)
        by = anchor if self.linear is None else apply(self.linear, window)
        _, state = self._run(self._read(window, (window.x - anchor) / scale), None, window.series)
        assert self.positions is not None
        asked = self.positions.unsqueeze(1).expand(-1, batch, -1)
        if self.tell is not None:
            asked = asked + self.tell(self._context(window.series))
        if self.ahead is not None:
            asked = asked + self.ahead(self._cut(window.known[self.scheme.lookback :]))
        state = _tiled(state, count)
        one = asked.reshape(1, count * batch, -1)
        y, _ = self._run(one, state, window.series.repeat(count))
        return self.likelihood.moved(self._told(y.view(count, batch, -1)), by, scale)

    def _anchor(self, x: Tensor) -> tuple[Tensor, Tensor]:
        one = torch.ones_like(x[0])
        if self.options.anchor == "last":
            return x[-1], one
        if self.options.anchor == "none":
            return torch.zeros_like(one), one
        scale = x.std(0, correction=0) + 1e-3 if self.options.anchor == "scale" else one
        return x.mean(0), scale

    # Recursive.

    def _recursive(self, window: Window) -> Tensor:
        """With the truth fed back: what each segment tells of the next."""
        p = self.options.patch
        x = self._whole(window.x)
        whole = torch.cat([x, window.y.nan_to_num(0.0)])
        if (extra := -len(whole) % p) > 0:
            whole = torch.cat([whole, whole[-1:].expand(extra, -1, -1)])
        known = window.known[self.scheme.lookback - len(x) :]
        start = whole[:p].mean(0)
        entered = self._entered(whole[:-p] - start, known, window.series)
        y, _ = self._run(entered, None, window.series)
        last = whole[p - 1 : -p : p].repeat_interleave(p, 0)  # the last value before each segment
        told = self._told(y, keep=len(last))
        return self.likelihood.moved(told, last)[: len(x) + self.scheme.horizon - p]

    def _free(self, window: Window, draw: bool = False) -> Tensor:
        """Feeding back what it told: the mean, or numbers drawn."""
        p, size = self.options.patch, self.likelihood.size
        x = self._whole(window.x)
        known = window.known[self.scheme.lookback - len(x) :]
        start, last = x[:p].mean(0), x[-1]
        y, state = self._run(self._entered(x - start, known, window.series), None, window.series)
        y, found = y[-1:], []
        for k in range(self.segments):
            told = self.likelihood.moved(self._told(y, keep=p), last)
            value = self.likelihood.sample(told) if draw else self.likelihood.mean(told)
            found.append(value.unsqueeze(-1) if draw else told)
            last = value[-1]
            if k + 1 < self.segments:
                ahead = known[len(x) + k * p :]
                entered = self._entered(value - start, ahead, window.series)
                y, state = self._run(entered, state, window.series)
        return torch.cat(found)[: self.scheme.horizon].view(-1, *last.shape, 1 if draw else size)

    def _drawn(self, window: Window, paths: int) -> Forecast:
        x, y, known, observed = (
            part.repeat(1, paths, 1) for part in (window.x, window.y, window.known, window.observed)
        )
        many = Window(x, y, known, observed, window.series.repeat(paths))
        drawn = self._free(many, draw=True).squeeze(-1)
        drawn = drawn.unflatten(1, (paths, -1))
        levels = drawn.quantile(drawn.new_tensor(LEVELS), 1)
        return Forecast(drawn.mean(1), levels, None)

    def _entered(self, x: Tensor, known: Tensor, series: Tensor) -> Tensor:
        if self.scheme.known:
            x = torch.cat([x, known[: len(x)]], -1)
        entered = torch.relu(self.enter(self._cut(x)))
        return entered if self.tell is None else entered + self.tell(self._context(series))

    # What both share.

    def _read(self, window: Window, x: Tensor) -> Tensor:
        """The segments of a window as the layers read them, [n, B, width]."""
        past = window.known[: self.scheme.lookback]
        rows = self._whole(torch.cat([x, past, window.observed], -1))
        return torch.relu(self.enter(self._cut(rows)))

    def _whole(self, x: Tensor) -> Tensor:
        """Without the first steps that are no whole segment."""
        return x[len(x) % self.options.patch :]

    def _cut(self, x: Tensor) -> Tensor:
        """[T, B, C] -> [n, B, p·C], the last segment filled up with its last step."""
        p = self.options.patch
        if (extra := -len(x) % p) > 0:
            x = torch.cat([x, x[-1:].expand(extra, -1, -1)])
        return x.unflatten(0, (-1, p)).transpose(1, 2).flatten(2)

    def _told(self, y: Tensor, keep: int | None = None) -> Tensor:
        """[n, B, width] -> parameters [T, B, C, S] of the first `keep` steps."""
        y = nn.functional.dropout(y, self.options.dropout, self.training)
        shape = (self.options.patch, len(self.scheme.channels), self.likelihood.size)
        raw = self.head(y).unflatten(-1, shape).transpose(1, 2).flatten(0, 1)
        told = self.likelihood.parameters(raw)
        return told[: self.scheme.horizon if keep is None else keep]

    def _context(self, series: Tensor) -> Tensor:
        assert self.embedding is not None
        return torch.cat([self.embedding(series), self.static[series]], -1)

    def _run(self, x: Tensor, state: Any, series: Tensor) -> tuple[Tensor, Any]:
        if self.options.context == "hyper":
            return self.layers(x, state, context=self._context(series))
        return self.layers(x, state)


def build_model(scheme: Scheme, options: ForecasterOptions, unit: Make | None = None) -> Forecaster:
    """The model that the options describe, with the width that `params` asks for; around `unit`,
    where one is given."""
    unit = maker(options) if unit is None else unit
    found = solved(options, lambda chosen: Forecaster(scheme, chosen, unit))
    return Forecaster(scheme, found, unit)


def restore(description: Mapping[str, Any]) -> Forecaster:
    """The model, without its weights, that has this description."""
    scheme = typed(Scheme, description["scheme"])
    scheme.validate()
    return Forecaster(scheme, typed(ForecasterOptions, description["options"]))


def _mean(parts: Sequence[Any]) -> Any:
    return None if parts[0] is None else torch.stack(list(parts)).mean(0)


def _tiled(state: Any, count: int) -> Any:
    """The state of each sequence `count` times, one copy of the batch after the other."""
    if isinstance(state, Tensor):
        return state.repeat(1, count, *[1] * (state.dim() - 2))
    return tuple(_tiled(part, count) for part in state)


def _patch(scheme: Scheme) -> int:
    """The largest part of the horizon with which the look-back has enough segments."""
    most = max(scheme.lookback // SEGMENTS, 1)
    return max(p for p in range(1, scheme.horizon + 1) if scheme.horizon % p == 0 and p <= most)


def _check_recursive(scheme: Scheme, options: ForecasterOptions) -> None:
    advice = "Use strategy='direct'."
    if options.bidirectional:
        why = (
            "one direction in recursive forecasting: the other begins at the end of the series, "
            "in a future that is still to be told"
        )
        check.refuse("bidirectional", True, why, advice)
    if scheme.observed:
        why = "0 with strategy='recursive': what is fed back lacks their future values"
        check.refuse("observed", scheme.observed, why, advice)
    if options.likelihood == "quantiles":
        why = "mse, mae, gaussian or student: quantiles of one step do not give those of the next"
        check.refuse("likelihood", "quantiles", why, advice)
