"""Generated weights as ONNX: the encoder's steps and the generator, inside the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from metarnn.cells import check
from metarnn.hyper.encoders import Convolution, RecurrentEncoder
from metarnn.hyper.generators import Dense
from metarnn.hyper.source import Source
from metarnn.layers.onnx import Builder, Loop, write_states, write_step


class Given:
    """For an encoder of the present input, or a recurrent one that is read at every step, and a
    dense generator."""

    def whole(
        self, b: Builder, source: Any, x: str, loop: Loop
    ) -> tuple[dict[str, str], list[str]]:
        encoder, generator = _parts(source)
        if isinstance(encoder, Convolution):
            c, final = _pointwise(b, encoder, x, loop.int8), []
        else:
            c, final = write_states(b, encoder.layer, x, loop)
        return _numbers(b, generator, c, loop.int8), _together(b, final)

    def step(
        self, b: Builder, source: Any, x: str, state: list[str], int8: bool
    ) -> tuple[dict[str, str], list[str]]:
        encoder, generator = _parts(source)
        if isinstance(encoder, Convolution):
            return _numbers(b, generator, _pointwise(b, encoder, x, int8), int8), []
        apart = b.ints(0, encoder.rows, -1)
        rows = [b.add("Transpose", b.add("Reshape", s, apart), perm=[1, 0, 2]) for s in state]
        c, rows = write_step(b, encoder.layer, x, rows, int8)
        return _numbers(b, generator, c, int8), _together(b, rows)


GIVEN = Given()


def _together(b: Builder, state: list[str]) -> list[str]:
    """The parts of an encoder's state, [rows, B, n] -> [B, rows · n]."""
    flat = b.ints(0, -1)
    return [b.add("Reshape", b.add("Transpose", part, perm=[1, 0, 2]), flat) for part in state]


def _parts(source: Source) -> tuple[Convolution | RecurrentEncoder, Dense]:
    encoder, generator = source.encoder, source.generator
    known = isinstance(encoder, RecurrentEncoder) or (
        isinstance(encoder, Convolution) and encoder.kernel == 1
    )
    if not known or source.pool or source.delay or source.times:
        why = "'input' or a recurrent one, read at every step, for ONNX"
        check.refuse("encoder", type(encoder).__name__, why)
    if not isinstance(generator, Dense):
        check.refuse("generator", type(generator).__name__, "a dense one, for ONNX")
    return encoder, generator  # pyright: ignore[reportReturnType]  known


def _pointwise(b: Builder, encoder: Convolution, x: str, int8: bool) -> str:
    for floor in encoder.floors:
        assert isinstance(floor, nn.Linear)
        x = b.add("Tanh", b.linear(x, floor.weight, floor.bias, int8))
    return x


def _numbers(b: Builder, generator: Dense, context: str, int8: bool) -> dict[str, str]:
    ones = b.const(np.ones(generator.context, np.float32))
    features = b.add("LayerNormalization", context, ones, axis=-1, epsilon=1e-5)
    if generator.hidden is not None:
        hidden = generator.hidden
        features = b.add("Relu", b.linear(features, hidden.weight, hidden.bias, int8))
    return {n: b.linear(features, generator.heads[n], None, int8) for n in generator.numbers}
