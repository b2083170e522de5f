"""What it costs to generate weights: training steps beside those of the plain LSTM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from metarnn.bench.timing import interleaved
from metarnn.cells import LSTM, check
from metarnn.hyper import HyperLSTM, MetaRecurrent, Mogrifier
from metarnn.layers import Recurrent

Shape = tuple[int, int, int]  # T, B, H; the input is as wide as the state

SHAPES: tuple[Shape, ...] = ((64, 16, 256), (100, 32, 256), (64, 32, 512))
GPU_SHAPES: tuple[Shape, ...] = ((100, 128, 512), (100, 128, 1024))
QUICK: Shape = (4, 2, 16)
PLAIN, EAGER = "lstm", "hyperlstm, eager"

# The encoder, a GRU where it is not part of the step, is a quarter as wide as the unit.
LAYERS: dict[str, Callable[[int], Recurrent]] = {
    PLAIN: lambda H: Recurrent(LSTM(H, H)),
    "scale": lambda H: MetaRecurrent(LSTM(H, H), form="scale", encoder="gru"),
    "lowrank": lambda H: MetaRecurrent(LSTM(H, H), form="lowrank", encoder="gru"),
    "rows": lambda H: MetaRecurrent(LSTM(H, H), form="rows", encoder="gru"),
    "coupled": lambda H: MetaRecurrent(LSTM(H, H), form="scale", context="state"),
    "mogrifier": lambda H: Recurrent(Mogrifier(LSTM(H, H), rounds=5, rank=32)),
    "hyperlstm": lambda H: Recurrent(HyperLSTM(H, H, H // 4)),
    EAGER: lambda H: Recurrent(HyperLSTM(H, H, H // 4), engine="eager"),
}


@dataclass(frozen=True)
class Cost:
    """What a training step of a layer costs: in milliseconds, as a multiple of the plain LSTM's,
    and how often it fits into one of a HyperLSTM that is run eagerly."""

    layer: str
    T: int
    B: int
    H: int
    device: str
    dtype: str
    engine: str
    ms: float
    times_lstm: float
    faster_than_eager: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_generated(
    shape: Shape,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seconds: float = 5.0,
    names: Sequence[str] = (),
) -> list[Cost]:
    """What a training step (forward, and backward to weights and inputs) of `LAYERS` costs, or of
    those named and the two that they are compared with."""
    for name in names:
        check.one_of("layers", name, LAYERS)
    T, B, H = shape
    # By x too, as in any layer but the lowest.
    x = torch.randn(T, B, H, device=device, requires_grad=True)
    chosen = {PLAIN, *names, EAGER} if names else set(LAYERS)
    layers = {name: make(H).to(device) for name, make in LAYERS.items() if name in chosen}

    def step(layer: Recurrent) -> Callable[[], Any]:
        wrt = [x, *layer.parameters()]

        def run() -> None:
            with torch.autocast(device, torch.bfloat16, enabled=dtype == torch.bfloat16):
                output, _ = layer(x)
            torch.autograd.grad(output.float().sum(), wrt)

        return run

    calls = {name: step(layer) for name, layer in layers.items()}
    times = interleaved(calls, seconds=seconds, slow=(EAGER,), warmup=2)
    about = (*shape, device, str(dtype).removeprefix("torch."))
    return [
        Cost(name, *about, layers[name].choose(x).engine, ms, ms / times[PLAIN], times[EAGER] / ms)
        for name, ms in times.items()
    ]
