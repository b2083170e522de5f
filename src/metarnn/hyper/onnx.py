"""Generated weights as ONNX: the encoder's steps and the generator, inside the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from metarnn.cells import check
from metarnn.hyper.encoders import RecurrentEncoder
from metarnn.hyper.generators import Dense
from metarnn.hyper.source import Source
from metarnn.layers.onnx import Builder, Loop, write_layer, write_step


class Given:
    """For a recurrent encoder that is read at every step, and a dense generator."""

    def whole(self, b: Builder, source: Any, x: str, loop: Loop) -> dict[str, str]:
        encoder, generator = _parts(source)
        return _numbers(b, generator, write_layer(b, encoder.layer, x, loop), loop.int8)

    def step(
        self, b: Builder, source: Any, x: str, state: list[str], int8: bool
    ) -> tuple[dict[str, str], list[str]]:
        encoder, generator = _parts(source)
        apart = b.ints(0, encoder.rows, -1)
        rows = [b.add("Transpose", b.add("Reshape", s, apart), perm=[1, 0, 2]) for s in state]
        c, rows = write_step(b, encoder.layer, x, rows, int8)
        together = b.ints(0, -1)
        after = [b.add("Reshape", b.add("Transpose", r, perm=[1, 0, 2]), together) for r in rows]
        return _numbers(b, generator, c, int8), after


GIVEN = Given()


def _parts(source: Source) -> tuple[RecurrentEncoder, Dense]:
    plain = not (source.pool or source.delay or source.times)
    if not (isinstance(source.encoder, RecurrentEncoder) and plain):
        check.refuse(
            "encoder", type(source.encoder).__name__, "a recurrent one, read at every step"
        )
    if not isinstance(source.generator, Dense):
        check.refuse("generator", type(source.generator).__name__, "a dense one, for ONNX")
    return source.encoder, source.generator


def _numbers(b: Builder, generator: Dense, context: str, int8: bool) -> dict[str, str]:
    ones = b.const(np.ones(generator.context, np.float32))
    features = b.add("LayerNormalization", context, ones, axis=-1, epsilon=1e-5)
    if generator.hidden is not None:
        hidden = generator.hidden
        features = b.add("Relu", b.linear(features, hidden.weight, hidden.bias, int8))
    return {n: b.linear(features, generator.heads[n], None, int8) for n in generator.numbers}
