"""The cells that claims are tested on: `EVERY` kind of them, and all `OPTIONS` of each."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
import torch

from metarnn import Cell, Recurrent, cells, explain
from metarnn.engines import ENGINES
from tests.helpers.own import Average, Leaky

I, H = 3, 4

EVERY: dict[str, Cell] = {
    "elman": cells.Elman(I, H),
    "jordan": cells.Jordan(I, H, 2),
    "lstm": cells.LSTM(I, H),
    "lstm-all": cells.LSTM(I, H, proj_size=2, peephole=True, coupled=True, layer_norm=True),
    "gru": cells.GRU(I, H),
    "gru-before": cells.GRU(I, H, reset="before", layer_norm=True),
    "qrnn-1": cells.QRNN(I, H, window=1, pooling="f"),
    "qrnn-2": cells.QRNN(I, H, window=2, pooling="fo"),
    "qrnn-3": cells.QRNN(I, H, window=3, pooling="ifo"),
    "sru-1": cells.SRU(I, H, activation="tanh"),
    "sru-2": cells.SRU(I, H, version=2),
    "mingru": cells.MinGRU(I, H),
    "minlstm": cells.MinLSTM(I, H),
    "onlstm": cells.ONLSTM(I, H, chunk=2),
    "mixed": cells.Mixed(I, H),
    "own": Leaky(I, H),
    "own-linear": Average(I, H),
}
LINEAR = {name: cell for name, cell in EVERY.items() if cell.linear}


def _options() -> dict[str, Cell]:
    found: dict[str, Cell] = {}

    def add(cell: Cell) -> None:
        options = vars(cell) | {"input_size": "", "hidden_size": ""}
        shown = [f"{k}={getattr(v, '__name__', v)}" for k, v in options.items() if v != ""]
        found["-".join([type(cell).__name__, f"{cell.input_size}x{cell.hidden_size}", *shown])] = (
            cell
        )

    for φ in ("tanh", "relu", "sigmoid", "identity", "softplus", "gelu", "silu", "elu"):
        add(cells.Elman(I, H, φ))
    for φ in (torch.sin, torch.atan):
        add(cells.Elman(I, H, φ))
    add(cells.Elman(I, H, bias=False))
    add(cells.Jordan(I, H, 2))
    add(cells.Jordan(I, H, 2, torch.sin, "sigmoid"))
    add(cells.Jordan(I, H, 2, bias=False))
    for proj, *rest in product((0, 2), (True, False), *[(False, True)] * 3):
        add(cells.LSTM(I, H, proj, *map(bool, rest)))
    for options in product((True, False), ("after", "before"), (False, True)):
        add(cells.GRU(I, H, *options))
    for options in product((1, 2, 3), ("f", "fo", "ifo"), (True, False)):
        add(cells.QRNN(I, H, *options))
    for size, v, highway, g in product((I, H), (1, 2), (True, False), ("identity", "tanh")):
        add(cells.SRU(size, H, v, highway, g, highway_bias=-0.5))
    add(cells.SRU(I, H, rescale=False, highway_bias=-0.5))
    add(cells.SRU(H, H, version=2, rescale=False, bias=False))
    for bias in (True, False):
        add(cells.MinGRU(I, H, bias))
        add(cells.MinLSTM(I, H, bias))
        for chunk in (1, 2, 4):
            add(cells.ONLSTM(I, H, chunk, bias))
    add(cells.Mixed(I, H))
    add(cells.Mixed(I, H, ("relu", "tanh"), ("replace", "gate")))
    add(Leaky(I, H))
    add(Average(I, H))
    return found


OPTIONS = _options()


def _covering() -> list[str]:
    seen: set[tuple[str, str, str]] = set()
    found = []
    for name, cell in OPTIONS.items():
        chosen = {(type(cell).__name__, option, str(value)) for option, value in vars(cell).items()}
        if not chosen <= seen:
            found.append(name)
        seen |= chosen
    return found


# The options of which one has a value that it has not in earlier ones; the rest combines them.
COVERING = _covering()
COMBINED = [n if n in COVERING else pytest.param(n, marks=pytest.mark.slow) for n in OPTIONS]
# Those a graph can hold: it has no arc tangent.
TRACEABLE = {name: cell for name, cell in OPTIONS.items() if "=atan-" not in name}


def engines(cell: Cell) -> list[str]:
    """The engines that can run a cell in a plain call."""

    def runs(engine: str) -> bool:
        try:
            layer = Recurrent(cell, engine=engine, dtype=torch.float64)
            return explain(layer, randn(2, 2, cell.input_size)).engine == engine
        except ValueError:
            return False

    return [engine for engine in ENGINES if runs(engine)]


def make(cell: Cell, num_layers: int = 1, **options) -> Any:
    """A `Recurrent` in float64 all of whose weights, peepholes and gains included, matter."""
    layer = Recurrent(cell, num_layers, **{"dtype": torch.float64, **options})
    randomize(layer)
    return layer


def randomize(module: torch.nn.Module, seed: int = 0) -> None:
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            values = torch.randn(parameter.shape, generator=source, dtype=torch.float64)
            parameter.copy_(0.5 * values)


def randn(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=source, dtype=torch.float64).to(dtype)


def random_state(layer: Recurrent, batch: int, seed: int = 2) -> tuple[torch.Tensor, ...]:
    rows = layer.num_layers * layer.directions
    dtype = next(layer.parameters()).dtype
    return tuple(
        randn(rows, batch, n, seed=seed + k, dtype=dtype) for k, n in enumerate(layer.state_sizes)
    )


def parts(state: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """A final state as the tuple of its parts: a layer hands a single one out bare."""
    return (state,) if isinstance(state, torch.Tensor) else state


# Each cell with each of its engines, for pytest.mark.parametrize(("name", "engine"), RUNNABLE).
RUNNABLE = [(name, engine) for name, cell in EVERY.items() for engine in engines(cell)]


def compiled_is_medium(pairs: Iterable[tuple[str, ...]]) -> list[Any]:
    """Cases (name, engine, ...) of tests that take no time but for compiling C."""
    return [
        pytest.param(*case, marks=pytest.mark.medium) if case[1] == "cpu" else case
        for case in pairs
    ]


QUICK = compiled_is_medium(RUNNABLE)
