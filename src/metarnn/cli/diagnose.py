"""`metarnn diagnose`: how far back gradients get, in a trained model or in a cell at its start."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.cli.cell import find_cell
from metarnn.cli.table import print_table, say
from metarnn.cli.tasks import Job, Run, open_run
from metarnn.gradients.reach import Reach, reach
from metarnn.graph.files import write
from metarnn.layers import Recurrent
from metarnn.report.reach import svg, table, words
from metarnn.report.reading import Reading, reading
from metarnn.tasks.task import Shard
from metarnn.training.progress import Progress, progress


def diagnose(
    run: Annotated[Path | None, tyro.conf.Positional] = None,
    /,
    cell: tuple[str, ...] = (),
    width: int = 64,
    inputs: int = 32,
    length: int = 128,
    batch: int = 8,
    seed: int = 0,
    out: Path | None = None,
    data: Path | None = None,
) -> None:
    """Show how far back gradients get, what stands in their way, and what to change.

    metarnn diagnose runs/lm

    metarnn diagnose --cell elman lstm gru --out reach.svg

    Args:
        run: a run folder, diagnosed on its own training data: the loss of a language model, of
            others what the lowest recurrent layer puts out, read forwards
        cell: in the place of a run, cells at their start, on random inputs: elman lstm, ...
        width: units of such a cell
        inputs: how many inputs it has
        length: steps of the sequences; gradients are followed over half of that
        batch: how many sequences
        seed: of starting weights and random inputs
        out: draw the curves into this SVG file; in a run folder, diagnosis.svg by default
        data: write all figures into this JSON file; in a run folder, diagnosis.json by default
    """
    _diagnose(run, cell, width, inputs, length, batch, seed, out, data)


def _diagnose(
    run: Path | None,
    cells: tuple[str, ...],
    width: int,
    inputs: int,
    length: int,
    batch: int,
    seed: int,
    out: Path | None,
    data: Path | None,
) -> None:
    check.size("length", length, least=4)
    check.size("batch", batch)
    check.size("inputs", inputs)
    if (run is None) == (not cells):
        check.refuse("run", None if run is None else str(run), "a run folder, or --cell NAME")
    for path in (out, data):
        if path is not None and not path.absolute().parent.is_dir():
            raise ValueError(f"{str(path)!r}: expected a file in a folder that exists")
    if run is not None:
        found = {run.name: of_run(run, length, batch)}
        out, data = out or run / "diagnosis.svg", data or run / "diagnosis.json"
    else:
        found = {name: at_start(name, inputs, width, length, batch, seed) for name in cells}
    head, *rows = table(found)
    print_table(head, rows)
    for name, each in found.items():
        say()
        for line in words(each):
            say(f"{name}: {line}")
    if out is not None:
        write(out, svg(found))
        say(f"\ndrawn to {out}")
    if data is not None:
        figures = {name: _figures(each) for name, each in found.items()}
        write(data, json.dumps(figures, indent=1, allow_nan=False))


def _figures(found: Reach) -> Any:
    """All that was found, null where it is no finite number, which JSON does not have."""
    figures = {**asdict(found), "gamma": found.gamma, "horizon": found.horizon}
    return json.loads(json.dumps(figures), parse_constant=lambda _: None)


class Probe(nn.Module):
    """A layer whose loss at each step is a random direction of its output."""

    def __init__(self, layer: Recurrent, seed: int = 0) -> None:
        super().__init__()
        self.layer = layer
        source = torch.Generator().manual_seed(seed)
        direction = torch.randn(layer.output_size, generator=source)
        self.register_buffer("direction", direction / direction.norm())

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.layer(x, state)
        return (y @ self.direction).sum(), state


def at_start(name: str, inputs: int, width: int, length: int, batch: int, seed: int) -> Reach:
    """The reach of a cell at its start, on normal inputs."""
    torch.manual_seed(seed)
    unit = find_cell(name, inputs, width if not name.endswith(".json") else None)
    layer = Recurrent(unit)
    x = torch.randn(length, batch, unit.input_size)
    return reach(Probe(layer, seed), x, lags=length // 2)


def of_run(run: Path, length: int, batch: int) -> Reach:
    """The reach of a trained model on its training data."""
    found, job = opened(run, length, batch, progress())
    model = found.weights(job.model)
    if hasattr(job.task, "split"):
        return of_model(job, model, length)
    examples = next(iter(job.task.batches(Shard())))
    call = reading(model, lambda: job.task.loss(model, examples))
    if call is None:
        check.refuse("run", str(run), "one with a recurrent layer: there is no state to follow")
    return of_layer(call, length)


def opened(run: Path, length: int, batch: int, show: Progress) -> tuple[Run[Any], Job[Any]]:
    """A run whose batches have this size, on the CPU."""
    own = open_run(run)
    keys = own.config
    changes: dict[str, Any] = {"batch": batch, "accumulate": 1, "device": "cpu"}
    if own.entry.name == "lm":  # elsewhere a length is one of the data
        changes["length"] = length
    if getattr(keys, "online", False):
        changes["online"] = False
    found = open_run(run, **changes)
    return found, found.prepare(show)


def of_model(job: Job[Any], model: nn.Module, length: int) -> Reach:
    """The reach of a model on the first batch of a task whose loss is a sum over time."""

    def loss(model: nn.Module, batch: Any, state: Any) -> tuple[Tensor, Any]:
        cost = job.task.loss(model, batch, state)
        return cost.value * cost.count, cost.state

    chunk = next(iter(job.task.batches(Shard())))
    return reach(model, chunk, lags=length // 2, loss=loss, split=job.task.split)


def of_layer(call: Reading, length: int) -> Reach:
    """The reach of a layer on what it read, where the loss is no sum over time: that of a random
    direction of its output at each step."""
    x = call.x[:length]
    return reach(Probe(forwards(call.layer)), x, lags=min(length, len(x)) // 2)


def forwards(layer: Recurrent) -> Recurrent:
    """A layer that reads [T, B, I] forwards; of one in two directions the lowest."""
    return layer.forwards() if layer.bidirectional or layer.batch_first else layer
