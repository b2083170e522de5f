"""Models of tasks as ONNX: from what they read to what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.hyper.onnx import GIVEN
from metarnn.layers import Recurrent
from metarnn.layers.onnx import Builder, Loop, write_alive, write_layer, write_step
from metarnn.tasks.classification import Classifier, Pool
from metarnn.tasks.classification.onnx import write_features, write_pool, write_score
from metarnn.tasks.forecasting import Forecaster
from metarnn.tasks.forecasting.likelihoods import LEVELS
from metarnn.tasks.forecasting.onnx import write_forecaster
from metarnn.tasks.forecasting.windows import Window
from metarnn.tasks.language import LanguageModel
from metarnn.tasks.language.onnx import write_adaptive_softmax
from metarnn.tasks.translation import EncoderDecoder
from metarnn.tasks.translation.onnx import tensors, write_decoder, write_encoder

FORMS = ("step", "sequence")


@dataclass(frozen=True)
class Exported:
    """An ONNX file, what to try it with, what the model answers to that, and the unit of that."""

    content: bytes
    inputs: dict[str, np.ndarray]
    outputs: list[np.ndarray]
    unit: float = 1.0


def export(model: nn.Module, form: str, *, int8: bool = False) -> Exported:
    """A model as ONNX, with batch and length of any size.

    Args:
        model: a recurrent layer, a classifier, a language model, a forecaster or a translator
        form: "sequence": x [T, B, …] and lengths [B]; "step": one step, with its state going in and
            coming out. Of a translator the first reads a sentence and puts out the state from which
            the second writes a translation
        int8: round matrix products of the recurrent layers to a byte
    """
    check.one_of("form", form, FORMS)
    if form == "step" and (reason := without_step(model)):
        check.refuse("form", "step", "sequence", reason)
    if isinstance(model, Forecaster):
        return _forecaster(model.eval(), int8)
    if isinstance(model, EncoderDecoder):
        return (_encoder if form == "sequence" else _decoder)(model.eval(), int8)
    if isinstance(model, Recurrent):
        writer: _Writer = _Writer(model)
    elif isinstance(model, Classifier):
        writer = _Classifier(model)
    elif isinstance(model, LanguageModel):
        writer = _Language(model)
    else:
        kinds = "a recurrent layer, a classifier, a language model, a forecaster or a translator"
        check.refuse("model", type(model).__name__, kinds)
    writer.int8 = int8
    return writer.sequence() if form == "sequence" else writer.step()


def without_step(model: nn.Module) -> str:
    """Why a model cannot be fed step by step, "" where it can."""
    if isinstance(model, EncoderDecoder):
        return ""
    if any(layer.bidirectional for layer in model.modules() if isinstance(layer, Recurrent)):
        return "A layer that reads from both ends needs whole sequences."
    if isinstance(model, Forecaster):
        return "A forecaster reads whole windows."
    if isinstance(model, Classifier):
        if model.scheme.missing or model.scheme.timed:
            return "Missing values and times are read from whole sequences."
        if model.options.patch > 1:
            return "Several steps are read at once, by patch."
    return ""


After = tuple[str, tuple[int | str, ...]]  # the name and the shape of a state after a step


class _Writer:
    """A recurrent layer alone; subclasses say what is before and after it."""

    int8 = False

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model.eval()

    @property
    def layers(self) -> Sequence[Recurrent]:
        return [self.model]

    @property
    def width(self) -> int | None:
        """Numbers of a step; None where it is one token."""
        return self.model.input_size

    def enter(self, b: Builder, x: str) -> str:
        return x

    def leave(self, b: Builder, y: str, lengths: str, alive: str) -> str:
        return y

    def answer(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.model(x, lengths=lengths)[0]

    def times(self, steps: int, batch: int) -> Tensor | None:
        """Times to try a model with that reads them."""
        return None

    def answer_step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.model.step(x, state)

    # Pools carry numbers of their own from step to step; others do not.

    def pooled(self, b: Builder, y: str, carried: list[str]) -> tuple[str, list[str]]:
        return y, []

    @property
    def carried(self) -> list[int]:
        return []

    def flat(self, state: Any) -> list[Tensor]:
        """The parts of a state, in the order in which they go in."""
        return list(state) if isinstance(state, tuple) else [state]

    def input(self, b: Builder, *batch: str) -> str:
        if self.width is None:
            return b.input("x", batch, "int64")
        return b.input("x", (*batch, self.width))

    def example(self, *batch: int) -> Tensor:
        if self.width is None:
            return torch.randint(self.model.embedding.num_embeddings, batch)
        return torch.randn(*batch, self.width)

    @torch.no_grad()
    def sequence(self) -> Exported:
        b = Builder()
        x = self.input(b, "T", "B")
        lengths = b.input("lengths", ("B",), "int64")
        alive = write_alive(b, x, lengths)
        y = self.read(b, x, lengths, alive)
        tried = {"x": self.example(11, 3), "lengths": torch.tensor([11, 4, 7])}
        if (times := self.times(11, 3)) is not None:
            tried["times"] = times
        told = self.answer(**tried)
        b.output(y, "y", ("T", "B", told.shape[-1])[3 - told.dim() :])
        inputs = {name: value.numpy() for name, value in tried.items()}
        return Exported(b.model("sequence"), inputs, [told.numpy()])

    def read(self, b: Builder, x: str, lengths: str, alive: str) -> str:
        """The answer for whole sequences."""
        y = b.add("Where", alive, self.enter(b, x), b.const(torch.zeros(1)))
        y, alive, lengths = self.patched(b, y, alive, lengths)
        for layer in self.layers:
            y = write_layer(b, layer, y, Loop(alive, self.int8, GIVEN))
        return self.leave(b, y, lengths, alive)

    def patched(self, b: Builder, y: str, alive: str, lengths: str) -> tuple[str, str, str]:
        return y, alive, lengths

    def read_step(self, b: Builder, x: str, names: list[str], after: list[After]) -> str:
        """The answer for one step; the names of states before and after it are added to lists."""
        y = self.enter(b, x)
        for layer in self.layers:
            shapes = [(layer.num_layers, "B", n) for n in layer.state_sizes]
            state = [b.input(f"state_{len(names) + k}", shape) for k, shape in enumerate(shapes)]
            y, new = write_step(b, layer, y, state, self.int8, GIVEN)
            after += list(zip(new, shapes, strict=True))
            names += state
        sizes = list(enumerate(self.carried, len(names)))
        pools = [b.input(f"state_{k}", (1, "B", n)) for k, n in sizes]
        names += pools
        y, new = self.pooled(b, y, [b.add("Squeeze", p, b.ints(0)) for p in pools])
        after += [
            (b.add("Unsqueeze", value, b.ints(0)), (1, "B", n))
            for value, n in zip(new, self.carried, strict=True)
        ]
        return self.leave(b, y, "", "")

    @torch.no_grad()
    def step(self) -> Exported:
        b = Builder()
        names: list[str] = []
        after: list[After] = []
        y = self.read_step(b, self.input(b, "B"), names, after)
        first, second = self.example(3), self.example(3)
        _, state = self.answer_step(first, None)
        told, last = self.answer_step(second, state)
        b.output(y, "y", ("B", told.shape[-1]))
        for k, (value, shape) in enumerate(after):
            b.output(value, f"state_{k}_next", shape)
        inputs = dict(zip(names, (s.numpy() for s in self.flat(state)), strict=True))
        answers = [told.numpy(), *(s.numpy() for s in self.flat(last))]
        return Exported(b.model("step"), {"x": second.numpy(), **inputs}, answers)


class _Language(_Writer):
    """Tokens -> log-probabilities of what follows."""

    @property
    def width(self) -> int | None:
        return None

    @property
    def layers(self) -> Sequence[Recurrent]:
        if self.model.embedding is None:
            check.refuse("model", "one-hot inputs", "a language model with an embedding")
        return list(self.model.layers)

    def enter(self, b: Builder, x: str) -> str:
        return b.add("Gather", b.const(self.model.embedding.weight.float(), "embedding"), x, axis=0)

    def leave(self, b: Builder, y: str, lengths: str, alive: str) -> str:
        m = self.model
        if m.adaptive is not None:
            return write_adaptive_softmax(b, y, m.adaptive)
        weight = m.embedding.weight if m.tied else m.weight
        return b.add("LogSoftmax", b.linear(y, weight, m.bias), axis=-1)

    def answer(self, x: Tensor, lengths: Tensor) -> Tensor:
        y = self.model.embed(x)
        for layer in self.layers:
            y, _ = layer(y, lengths=lengths)
        return -self.model.nll(y, None)

    def flat(self, state: Any) -> list[Tensor]:
        return [part for layer in state for part in super(_Language, self).flat(layer)]


class _Classifier(_Writer):
    """Numbers or characters -> logits."""

    @property
    def others(self) -> list[_Classifier]:
        """Writers of the other members."""
        writers = [_Classifier(other) for other in self.model.others]
        for writer in writers:
            writer.int8 = self.int8
        return writers

    def read(self, b: Builder, x: str, lengths: str, alive: str) -> str:
        first = super().read(b, x, lengths, alive)
        return self.mean(b, [first, *(o.read(b, x, lengths, alive) for o in self.others)])

    def read_step(self, b: Builder, x: str, names: list[str], after: list[After]) -> str:
        first = super().read_step(b, x, names, after)
        return self.mean(b, [first, *(o.read_step(b, x, names, after) for o in self.others)])

    def mean(self, b: Builder, logits: list[str]) -> str:
        """The logits of the mean probabilities of all members."""
        if len(logits) == 1:
            return logits[0]
        if self.model.scheme.kind == "multi":
            p = b.add("Mean", *(b.add("Sigmoid", each) for each in logits))
            q = b.add("Mean", *(b.add("Sigmoid", b.add("Neg", each)) for each in logits))
            return b.add("Sub", b.add("Log", p), b.add("Log", q))
        return b.add("Log", b.add("Mean", *(b.add("Softmax", each, axis=-1) for each in logits)))

    @property
    def layers(self) -> Sequence[Recurrent]:
        return [self.model.layers]

    @property
    def width(self) -> int | None:
        return None if self.model.embedding is not None else self.model.scheme.channels

    def times(self, steps: int, batch: int) -> Tensor | None:
        return torch.rand(steps, batch).cumsum(0) if self.model.scheme.timed else None

    def example(self, *batch: int) -> Tensor:
        x = super().example(*batch)
        return x.where(torch.rand_like(x) > 0.3, torch.nan) if self.model.scheme.missing else x

    def enter(self, b: Builder, x: str) -> str:
        m = self.model
        if m.embedding is not None:
            return b.add("Gather", b.const(m.embedding.weight.float(), "embedding"), x, axis=0)
        return write_features(b, x, m)

    def patched(self, b: Builder, y: str, alive: str, lengths: str) -> tuple[str, str, str]:
        p = self.model.options.patch
        if p == 1:
            return y, alive, lengths
        size, many = self.model.features_size, b.ints(p)
        short = b.add("Mod", b.add("Neg", b.batch(y, 0)), many)
        more = b.filled(short, b.batch(y, 1), b.ints(size))
        y = b.add("Concat", y, more, axis=0)
        head = b.add("Div", b.batch(y, 0), many)
        shape = b.add("Concat", head, many, b.batch(y, 1), b.ints(size), axis=0)
        y = b.add("Transpose", b.add("Reshape", y, shape), perm=[0, 2, 1, 3])
        y = b.add("Reshape", y, b.ints(0, 0, p * size))
        lengths = b.add("Div", b.add("Add", lengths, b.ints(p - 1)), many)
        return y, write_alive(b, y, lengths), lengths

    def leave(self, b: Builder, y: str, lengths: str, alive: str) -> str:
        if alive and self.model.pool is not None:
            y = write_pool(b, self.model.pool, y, lengths, alive)
        return b.linear(y, self.model.head.weight, self.model.head.bias)

    def answer(self, x: Tensor, lengths: Tensor, times: Tensor | None = None) -> Tensor:
        return self.model(x, lengths, times)

    def flat(self, state: Any) -> list[Tensor]:
        states = state if self.others else (state,)
        flat = super().flat
        return [part for layers, pool in states for part in (*flat(layers), *pool)]

    @property
    def carried(self) -> list[int]:
        width = self.model.layers.output_size
        kind = "last" if self.model.pool is None else self.model.pool.kind
        sizes = {"last": [], "max": [width], "mean": [width, 1], "attention": [width, 1, 1]}
        return sizes[kind]

    def pooled(self, b: Builder, y: str, carried: list[str]) -> tuple[str, list[str]]:
        pool: Pool | None = self.model.pool
        if pool is None or pool.kind == "last":
            return y, []
        if pool.kind == "max":
            largest = b.add("Max", carried[0], y)
            return largest, [largest]
        if pool.kind == "mean":
            total = b.add("Add", carried[0], y)
            count = b.add("Add", carried[1], b.const(torch.ones(1)))
            return b.add("Div", total, count), [total, count]
        total, weight, top = carried
        score = write_score(b, pool, y)
        higher = b.add("Max", top, score)
        old, new = (b.add("Exp", b.add("Sub", s, higher)) for s in (top, score))
        total = b.add("Add", b.add("Mul", total, old), b.add("Mul", y, new))
        weight = b.add("Add", b.add("Mul", weight, old), new)
        return b.add("Div", total, weight), [total, weight, higher]


def _sentences(model: EncoderDecoder) -> tuple[Tensor, Tensor]:
    """Sources to try a translator with, and their lengths."""
    table = model.embedding if model.source_embedding is None else model.source_embedding
    return torch.randint(table.num_embeddings, (11, 3)), torch.tensor([11, 4, 7])


@torch.no_grad()
def _encoder(model: EncoderDecoder, int8: bool) -> Exported:
    b = Builder()
    names = write_encoder(b, model, int8)
    x, lengths = _sentences(model)
    told = tensors(model, model.encode(x, lengths))
    zero = torch.zeros(1, x.shape[1], 1)  # where the decoder begins without a state
    answers = [told.get(name, zero).numpy() for name in names]
    return Exported(b.model("encoder"), {"x": x.numpy(), "lengths": lengths.numpy()}, answers)


@torch.no_grad()
def _decoder(model: EncoderDecoder, int8: bool) -> Exported:
    b = Builder()
    changed = write_decoder(b, model, int8)
    first, second = torch.randint(model.embedding.num_embeddings, (2, 3))
    _, state = model.step(first, model.encode(*_sentences(model)))
    told, last = model.step(second, state)
    inputs = {"x": second, **tensors(model, state)}
    after = tensors(model, last)
    answers = [told.numpy(), *(after[name].numpy() for name in changed)]
    return Exported(b.model("decoder"), {n: v.numpy() for n, v in inputs.items()}, answers)


@torch.no_grad()
def _forecaster(model: Forecaster, int8: bool) -> Exported:
    b, scheme, batch = Builder(), model.scheme, 3
    told = write_forecaster(b, model, int8)
    channels = len(scheme.channels)
    shape = (scheme.horizon, "B", channels)
    b.output(told[0], "y", shape)
    for value in told[1:]:
        b.output(value, "quantiles", (len(LEVELS), *shape))
    series = torch.arange(batch) % len(scheme.names)
    mean, std = (torch.tensor(part)[series] for part in (scheme.mean, scheme.std))
    x = torch.randn(scheme.lookback, batch, channels)
    known = torch.randn(scheme.lookback + scheme.horizon, batch, scheme.known)
    observed = torch.randn(scheme.lookback, batch, scheme.observed)
    future = torch.zeros(scheme.horizon, batch, channels)
    found = model.forecast(Window(x, future, known, observed, series))
    inputs = {"x": x * std + mean}
    inputs |= {"series": series} if len(scheme.names) > 1 else {}
    inputs |= {"known": known} if scheme.known else {}
    inputs |= {"observed": observed} if scheme.observed else {}
    answers = [part * std + mean for part in found[: len(told)] if part is not None]
    tried = {name: value.numpy() for name, value in inputs.items()}
    return Exported(b.model("forecast"), tried, [a.numpy() for a in answers], float(std.max()))
