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
from metarnn.tasks.language import LanguageModel

FORMS = ("step", "sequence")


@dataclass(frozen=True)
class Exported:
    """An ONNX file, what to try it with, and what the model answers to that."""

    content: bytes
    inputs: dict[str, np.ndarray]
    outputs: list[np.ndarray]


def export(model: nn.Module, form: str, *, int8: bool = False) -> Exported:
    """A model as ONNX, with batch and length of any size.

    Args:
        model: a recurrent layer, a classifier or a language model
        form: "sequence": x [T, B, …] and lengths [B]; "step": one step, with its state going in and
            coming out
        int8: round matrix products of the recurrent layers to a byte
    """
    check.one_of("form", form, FORMS)
    if isinstance(model, Recurrent):
        writer: _Writer = _Writer(model)
    elif isinstance(model, Classifier):
        writer = _Classifier(model)
    elif isinstance(model, LanguageModel):
        writer = _Language(model)
    else:
        kinds = "a recurrent layer, a classifier or a language model"
        check.refuse("model", type(model).__name__, kinds)
    writer.int8 = int8
    return writer.sequence() if form == "sequence" else writer.step()


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
        y = b.add("Where", alive, self.enter(b, x), b.const(torch.zeros(1)))
        y, alive, lengths = self.patched(b, y, alive, lengths)
        for layer in self.layers:
            y = write_layer(b, layer, y, Loop(alive, self.int8, GIVEN))
        y = self.leave(b, y, lengths, alive)
        tried = self.example(11, 3), torch.tensor([11, 4, 7])
        told = self.answer(*tried)
        b.output(y, "y", ("T", "B", told.shape[-1])[3 - told.dim() :])
        inputs = {"x": tried[0].numpy(), "lengths": tried[1].numpy()}
        return Exported(b.model("sequence"), inputs, [told.numpy()])

    def patched(self, b: Builder, y: str, alive: str, lengths: str) -> tuple[str, str, str]:
        return y, alive, lengths

    @torch.no_grad()
    def step(self) -> Exported:
        b = Builder()
        x = self.input(b, "B")
        y, count = self.enter(b, x), 0
        names: list[str] = []
        after: list[tuple[str, tuple[int | str, ...]]] = []
        for layer in self.layers:
            shapes = [(layer.num_layers, "B", n) for n in layer.state_sizes]
            state = [b.input(f"state_{count + k}", shape) for k, shape in enumerate(shapes)]
            y, new = write_step(b, layer, y, state, self.int8, GIVEN)
            after += list(zip(new, shapes, strict=True))
            names, count = names + state, count + len(state)
        pools = [b.input(f"state_{count + k}", (1, "B", n)) for k, n in enumerate(self.carried)]
        rows = [b.add("Squeeze", p, b.ints(0)) for p in pools]
        y, new = self.pooled(b, y, rows)
        after += [
            (b.add("Unsqueeze", value, b.ints(0)), (1, "B", n))
            for value, n in zip(new, self.carried, strict=True)
        ]
        y = self.leave(b, y, "", "")
        first, second = self.example(3), self.example(3)
        _, state = self.answer_step(first, None)
        told, last = self.answer_step(second, state)
        b.output(y, "y", ("B", told.shape[-1]))
        for k, (value, shape) in enumerate(after):
            b.output(value, f"state_{k}_next", shape)
        inputs = dict(zip([*names, *pools], (s.numpy() for s in self.flat(state)), strict=True))
        answers = [told.numpy(), *(s.numpy() for s in self.flat(last))]
        return Exported(b.model("step"), {"x": second.numpy(), **inputs}, answers)


class _Language(_Writer):
    """Tokens -> log-probabilities of what follows."""

    @property
    def width(self) -> int | None:
        return None

    @property
    def layers(self) -> Sequence[Recurrent]:
        if self.model.embedding is None or self.model.adaptive is not None:
            why = "a language model with an embedding and a plain softmax"
            check.refuse("model", "one-hot inputs or an adaptive softmax", why)
        return list(self.model.layers)

    def enter(self, b: Builder, x: str) -> str:
        return b.add("Gather", b.const(self.model.embedding.weight.float(), "embedding"), x, axis=0)

    def leave(self, b: Builder, y: str, lengths: str, alive: str) -> str:
        m = self.model
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
    def layers(self) -> Sequence[Recurrent]:
        if self.model.scheme.missing or self.model.scheme.timed:
            check.refuse("model", "missing values or times", "a model without them, for ONNX")
        return [self.model.layers]

    @property
    def width(self) -> int | None:
        return None if self.model.embedding is not None else self.model.scheme.channels

    def enter(self, b: Builder, x: str) -> str:
        m = self.model
        if m.embedding is not None:
            return b.add("Gather", b.const(m.embedding.weight.float(), "embedding"), x, axis=0)
        return b.add("Div", b.add("Sub", x, b.const(m.mean.float())), b.const(m.std.float()))

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
            y = _pool(b, self.model.pool, y, lengths, alive)
        return b.linear(y, self.model.head.weight, self.model.head.bias)

    def answer(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.model(x, lengths)

    def flat(self, state: Any) -> list[Tensor]:
        return [*super().flat(state[0]), *state[1]]

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
        score = _score(b, pool, y)
        higher = b.add("Max", top, score)
        old, new = (b.add("Exp", b.add("Sub", s, higher)) for s in (top, score))
        total = b.add("Add", b.add("Mul", total, old), b.add("Mul", y, new))
        weight = b.add("Add", b.add("Mul", weight, old), new)
        return b.add("Div", total, weight), [total, weight, higher]


def _score(b: Builder, pool: Pool, y: str) -> str:
    assert pool.score is not None
    first, _, second = pool.score
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    return b.linear(
        b.add("Tanh", b.linear(y, first.weight, first.bias)), second.weight, second.bias
    )


def _pool(b: Builder, pool: Pool, y: str, lengths: str, alive: str) -> str:
    if pool.kind == "max":
        low = b.const(torch.full((1,), -torch.inf))
        return b.add("ReduceMax", b.add("Where", alive, y, low), b.ints(0), keepdims=0)
    if pool.kind == "attention":
        low = b.const(torch.full((1,), -torch.inf))
        weight = b.add("Softmax", b.add("Where", alive, _score(b, pool, y), low), axis=0)
        return b.add("ReduceSum", b.add("Mul", weight, y), b.ints(0), keepdims=0)
    if pool.kind == "mean":
        count = b.add("Unsqueeze", b.add("Cast", lengths, to=1), b.ints(1))
        return b.add("Div", b.add("ReduceSum", y, b.ints(0), keepdims=0), count)
    place = b.add("Unsqueeze", b.add("Sub", lengths, b.ints(1)), b.ints(1))
    last = b.add("GatherND", b.add("Transpose", y, perm=[1, 0, 2]), place, batch_dims=1)
    if not pool.bidirectional:
        return last
    start = b.add("Gather", y, b.const(torch.tensor(0)), axis=0)
    width = pool.width // 2
    ends = b.slice(last, 0, width, -1), b.slice(start, width, 2 * width, -1)
    return b.add("Concat", *ends, axis=-1)
