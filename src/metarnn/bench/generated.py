"""What it costs to generate weights: training steps beside those of the plain LSTM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from metarnn.bench.timing import interleaved
from metarnn.cells import LSTM
from metarnn.hyper import HyperLSTM, MetaRecurrent, Mogrifier
from metarnn.layers import Recurrent

SHAPES = ((64, 16, 256), (100, 32, 256), (64, 32, 512))  # T, B, H = I
GPU_SHAPES = ((100, 128, 512), (100, 128, 1024))
EAGER = "hyperlstm, eager"

# The encoder is a quarter as wide as the unit.
LAYERS: dict[str, Callable[[int], Recurrent]] = {
    "lstm": lambda H: Recurrent(LSTM(H, H)),
    "scale": lambda H: MetaRecurrent(LSTM(H, H), form="scale"),
    "lowrank": lambda H: MetaRecurrent(LSTM(H, H), form="lowrank"),
    "scale, coupled": lambda H: MetaRecurrent(LSTM(H, H), form="scale", context="state"),
    "mogrifier": lambda H: Recurrent(Mogrifier(LSTM(H, H), rounds=5, rank=32)),
    "hyperlstm": lambda H: Recurrent(HyperLSTM(H, H, H // 4)),
    EAGER: lambda H: Recurrent(HyperLSTM(H, H, H // 4), engine="eager"),
}


def measure_generated(
    shape: tuple[int, int, int],
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seconds: float = 5.0,
) -> dict[str, float]:
    """Milliseconds of a training step (forward and backward) of each of `LAYERS`."""
    T, B, H = shape
    x = torch.randn(T, B, H, device=device)

    def step(layer: Recurrent) -> Callable[[], Any]:
        def run() -> None:
            layer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=dtype == torch.bfloat16):
                output, _ = layer(x)
            output.float().sum().backward()

        return run

    calls = {name: step(make(H).to(device)) for name, make in LAYERS.items()}
    return interleaved(calls, seconds=seconds, slow=(EAGER,), warmup=2)
