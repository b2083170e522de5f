"""`metarnn bench cells`: how fast every cell is here, against torch's LSTM and a plain loop."""

from __future__ import annotations

import json as files
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from metarnn import __version__
from metarnn.bench import Row, measure
from metarnn.bench import cases as all_cases
from metarnn.bench import generated as costs
from metarnn.bench import learn as regrets
from metarnn.bench.ahead import compiled_ahead
from metarnn.bench.timing import multiplying
from metarnn.cells import check
from metarnn.cli.table import print_table, say
from metarnn.graph.files import write
from metarnn.training import progress as shows


def cells(
    device: Literal["cpu", "cuda"] = "cpu",
    json: Path | None = None,
    cells: tuple[str, ...] = (),
    modes: tuple[str, ...] = (),
    quick: bool = False,
    dtype: Literal["float32", "bfloat16"] = "float32",
    tf32: bool = True,
    minutes: float = 6.0,
) -> None:
    """Time every cell beside torch.nn.LSTM of the same size and beside a loop in plain torch.

    metarnn bench cells --cells lstm gru --minutes 1

    metarnn bench cells --device cuda --dtype bfloat16 --json cells.json

    Args:
        device: where to run
        json: also write what was measured into this file
        cells: only these cells (lstm, gru, user, ...)
        modes: only these of inference, training and step (one time step, on a CPU)
        quick: tiny shapes and two rounds, to see that everything runs
        dtype: the number type
        tf32: on a GPU, whether float32 is multiplied with 11 significant bits: by cuDNN, by torch's
            products and by ours alike
        minutes: how long to measure, apart from compiling and from what is slow
    """
    with multiplying(tf32):
        _cells(device, json, cells, modes, quick, getattr(torch, dtype), tf32, minutes)


def _cells(
    device: str,
    path: Path | None,
    names: Sequence[str],
    modes: Sequence[str],
    quick: bool,
    dtype: torch.dtype,
    tf32: bool,
    minutes: float,
) -> None:
    _check(device, path)
    if not minutes > 0:
        check.refuse("minutes", minutes, "a number above 0")
    cases = all_cases(names, quick, device, modes)
    effort = (0.0, 2) if quick else (60 * minutes / len(cases), 5)
    rows: list[Row] = []
    columns = (TextColumn("{task.description}"), BarColumn(10), MofNCompleteColumn())
    quiet = Console(stderr=True, markup=False, highlight=False)
    try:
        with Progress(*columns, TimeRemainingColumn(), console=quiet, transient=True) as progress:
            if device == "cuda":  # a kernel takes some 10 s to compile, there are hundreds
                task = progress.add_task("compiling", total=len(cases))
                for _ in compiled_ahead(cases, device, dtype, tf32):
                    progress.advance(task)
                progress.remove_task(task)
            task = progress.add_task("", total=len(cases))
            for case in cases:
                progress.update(task, description=str(case))
                row = measure(case, device, dtype, *effort)
                if row is not None:
                    rows.append(row)
                progress.advance(task)
    except KeyboardInterrupt:  # what was measured so far is worth showing
        quiet.print(f"stopped after {len(rows)} rows")
    if rows:
        _print(rows)
    if path is not None:
        write(path, files.dumps(_report(rows, device), indent=1) + "\n")


def _check(device: str, path: Path | None) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        check.refuse("device", device, "'cpu': this machine has no CUDA device")
    if path is not None and not path.absolute().parent.is_dir():
        check.refuse("json", str(path), "a file in a folder that exists")


def _print(rows: Sequence[Row]) -> None:
    scans = any(row.copy_share is not None for row in rows)
    head = ["cell", "mode", "T", "B", "H", "engine"]
    head += ["ours ms", "torch ms", "eager ms", "× torch", "× eager", "GFLOP/s", "× torch's"]
    lines: list[list[str]] = []
    for row in rows:
        times = (_number(ms, ".3g") for ms in (row.ours_ms, row.torch_ms, row.eager_ms))
        ratios = (_number(ratio, ".2f") for ratio in (row.ratio_torch, row.ratio_eager))
        lines.append([
            *map(str, (row.cell, row.mode, row.T, row.B, row.H, row.engine)),
            *times,
            *ratios,
            f"{row.gflops:.1f}",
            f"{row.ratio_gflops:.2f}",
            *([_number(row.copy_share, ".0%")] if scans else []),
        ])  # fmt: skip
    print_table([*head, *(["of a copy"] if scans else [])], lines, left=("mode", "engine"))


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _report(rows: Sequence[Row | costs.Cost | regrets.Regret], device: str) -> list[dict[str, Any]]:
    """The rows, each with the circumstances it was measured in."""
    circumstances = {
        "machine": _machine(device),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "tf32": torch.backends.cudnn.allow_tf32,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "metarnn": __version__,
        "commit": _commit(),
    }
    return [row.as_dict() | circumstances for row in rows]


def _commit() -> str:
    """The last commit of this package in its checkout, "" where it is installed from elsewhere."""
    folder = str(Path(__file__).parents[1])

    def git(*arguments: str) -> str:
        command = ["git", "-C", folder, *arguments, "--", folder]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    try:
        commit = git("log", "-1", "--format=%h")
        return f"{commit}-dirty" if commit and git("status", "--porcelain") else commit
    except OSError:
        return ""  # no git


def _machine(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name(0)
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(
            (line.partition(":")[2].strip() for line in lines if line[:10] == "model name"), model
        )
    except OSError:
        pass
    return f"{model}, {os.cpu_count()} cores"


def generated(
    device: Literal["cpu", "cuda"] = "cpu",
    json: Path | None = None,
    layers: tuple[str, ...] = (),
    dtype: Literal["float32", "bfloat16"] = "float32",
    quick: bool = False,
) -> None:
    """Time training steps of an LSTM whose weights are generated, beside those of a plain one.

    metarnn bench generated

    metarnn bench generated --device cuda --dtype bfloat16 --layers scale lowrank --json costs.json

    Args:
        device: where to run
        json: also write what was measured into this file
        layers: only these (scale, lowrank, rows, coupled, mogrifier, hyperlstm), beside a plain
            LSTM and an eager HyperLSTM
        dtype: the number type; bfloat16 is autocast
        quick: one tiny shape, to see that everything runs
    """
    _check(device, json)
    shapes = costs.GPU_SHAPES if device == "cuda" else costs.SHAPES
    rows: list[costs.Cost] = []
    for shape in [costs.QUICK] if quick else shapes:
        T, B, H = shape
        title = f"training step, {T} steps × {B} sequences, {H} units, {dtype}, {device}"
        ratios = ("times the LSTM", "times faster than eager HyperLSTM")
        lines: list[list[str]] = []
        seconds = 0.1 if quick else 5.0
        found = costs.measure_generated(shape, device, getattr(torch, dtype), seconds, layers)
        for row in found:
            cost, gain = f"{row.times_lstm:.2f}", f"{row.faster_than_eager:.2f}"
            lines.append([row.layer, row.engine, f"{row.ms:.1f}", cost, gain])
        say(title)
        print_table(["layer", "engine", "ms", *ratios], lines, left=("engine",))
        rows += found
    if json is not None:
        write(json, files.dumps(_report(rows, device), indent=1) + "\n")


def learn(
    data: tuple[str, ...] = (),
    minutes: float = 4.0,
    seeds: int = 3,
    out: Path = Path("runs/regret"),
    json: Path | None = None,
) -> None:
    """Compare `metarnn learn` with GRU and LSTM trained for as long, on several data sets.

    metarnn bench learn --data pydoc sunspots --minutes 1 --seeds 1

    metarnn bench learn --json results/learn.json

    Args:
        data: data sets, as for `metarnn learn`; by default the embedded ones of every task
        minutes: of each study, and of each training beside it
        seeds: how often each is done
        out: where the studies and trainings are kept; what is there is not run again
        json: add what was measured to this file; what is in it is not measured again
    """
    check.size("seeds", seeds)
    _check("cpu", json)
    stored = files.loads(json.read_text("utf-8")) if json is not None and json.exists() else []
    rows = [regrets.Regret.from_dict(row) for row in stored]
    measured = {(row.data, row.seed, row.minutes) for row in rows}
    show = shows.progress()
    for seed in range(seeds):
        for each in data or regrets.EMBEDDED:
            if (Path(each).name, seed, minutes) in measured:
                continue
            row = regrets.measure(each, seed, minutes, out, show)
            rows.append(row)
            stored += _report([row], "cpu")
            show.say(f"{each}, seed {seed}: {row.winner}, regret {row.regret:.3f}")
            if json is not None:
                write(json, files.dumps(stored, indent=1) + "\n")
    say("loss on held-out data after as many minutes each; regret: learn / the better unit")
    head, *lines = regrets.table(rows)
    print_table(head, lines, left=("loss", "winners"))
