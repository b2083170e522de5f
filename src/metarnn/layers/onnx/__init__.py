"""Recurrent layers as ONNX files."""

from metarnn.layers.onnx.builder import Builder
from metarnn.layers.onnx.layer import (
    Loop,
    sequence_model,
    step_model,
    write_alive,
    write_end,
    write_layer,
    write_states,
    write_step,
)

__all__ = [
    "Builder",
    "Loop",
    "sequence_model",
    "step_model",
    "write_alive",
    "write_end",
    "write_layer",
    "write_states",
    "write_step",
]
