"""`metarnn compare`: recurrent units side by side on a generated problem, at equal parameters."""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from metarnn.cells import CELLS, check
from metarnn.cli.table import print_table, say
from metarnn.graph.files import write
from metarnn.layers.chrono import chrono as remember
from metarnn.report.curves import curves
from metarnn.tasks.pretrained import unit_of
from metarnn.tasks.stack import StackOptions, maker, solved
from metarnn.tasks.synthetic.problems import PROBLEMS, SyntheticTask, build_model
from metarnn.tasks.unit import META, MOGRIFIER
from metarnn.training import NotFinite, Settings, Trainer
from metarnn.training.progress import Race, clock, progress


def compare(
    task: str = "adding",
    cells: str = "lstm,gru,sru,elman",
    length: Annotated[int, arg(aliases=["--delay"])] = 0,
    params: str = "20k",
    layers: int = 1,
    steps: int = 0,
    batch: int = 32,
    lr: float = 1e-2,
    seeds: int = 1,
    chrono: bool = True,
    out: Path = Path("compare.svg"),
) -> None:
    """Train each unit on a generated problem and show how they learn, at equal parameters.

    metarnn compare --task copy --length 100 --cells lstm,gru,elman

    metarnn compare --task adding --seeds 3 --params 5k --out adding.svg

    Args:
        task: adding, copy, recall, early, noise, breaks, parity, anbn, anbncn, dyck, addition,
            lorenz, mackey-glass or van-der-pol
        cells: names of units, with commas between, files with a cell's graph, or run folders,
            whose units are then trained anew
        length: steps of a sequence, for copy the delay; 0 for the problem's own
        params: parameters of each model; the width follows
        layers: how many layers
        steps: updates of the weights; 0 for the problem's own
        batch: sequences in an update
        lr: learning rate, at its highest
        seeds: train each so often, from different starts; the median is shown
        chrono: the gates of LSTM and GRU start such that they remember as long as sequences are
        out: the picture to draw
    """
    names = cells.split(",")
    _compare(task, names, length, params, layers, steps, batch, lr, seeds, chrono, out)


def _compare(
    task: str,
    cells: list[str],
    length: int,
    params: str,
    layers: int,
    steps: int,
    batch: int,
    lr: float,
    seeds: int,
    long: bool,
    out: Path,
) -> None:
    check.one_of("task", task, PROBLEMS)
    check.size("seeds", seeds)
    if not out.absolute().parent.is_dir():
        check.refuse("out", str(out), "a file in a folder that exists")
    units = {name: unit_of(Path(name)) if os.path.isdir(name) else name for name in cells}
    for chosen in units.values():
        if not chosen.endswith(".json"):
            check.one_of("cells", chosen.removeprefix(META).removeprefix(MOGRIFIER), CELLS)
    steps = check.size("steps", steps, least=0) or PROBLEMS[task].updates
    every = max(steps // 40, 1)
    shown: dict[str, list[tuple[float, float]]] = {}
    rows: list[tuple[str, ...]] = []
    head = ("cell", "width", "parameters", "loss", "lowest … highest", "accuracy", "time")
    race = Race(progress(), len(cells) * seeds)
    for name in cells:
        wanted = StackOptions(cell=units[name], layers=layers, params=params)
        unit = maker(wanted)
        options = solved(wanted, partial(build_model, task, unit=unit))
        ends, histories, accuracies, took = [], [], [], 0.0
        size = 0
        for seed in range(seeds):
            problem = SyntheticTask(task, length, batch, seed)
            settings = Settings(
                steps=steps, batch=batch, lr=lr, schedule="cosine", floor=0.02,
                warmup=min(100, steps // 10), validate_every=every, seed=seed,
            )  # fmt: skip
            model = build_model(task, options, unit)
            if long:
                remember(model.layers, length or PROBLEMS[task].length)
            size = sum(weight.numel() for weight in model.parameters())
            title = f"{name}:" if seeds == 1 else f"{name}, seed {seed}:"
            trainer = Trainer(problem, model, settings, progress=race.next(title))
            try:
                took += trainer.fit().elapsed
                scores = problem.evaluate(model.eval(), "test")
            except NotFinite:
                scores = {"loss": math.inf, "accuracy": 0.0}
            ends.append(scores["loss"])
            accuracies.append(scores.get("accuracy", math.nan))
            histories.append(list(trainer.at.scores))
        middle = sorted(range(seeds), key=lambda k: ends[k])[(seeds - 1) // 2]
        shown[name] = [(every * (k + 1), v) for k, v in enumerate(histories[middle])]
        spread = f"{min(ends):.4g} … {max(ends):.4g}" if seeds > 1 else ""
        right = accuracies[middle]
        rows.append((
            name, f"{options.width}", f"{size:,}", f"{ends[middle]:.4g}", spread,
            "" if math.isnan(right) else f"{right:.1%}", clock(took),
        ))  # fmt: skip
        race.progress.say(f"{name}: loss {ends[middle]:.4g} after {steps:,} updates")
    blind = PROBLEMS[task].blind
    steps_of = length or PROBLEMS[task].length
    print_table(head, rows)
    if not math.isnan(blind):
        say(f"the best answer without memory: loss {blind:.4g}")
    level = None if math.isnan(blind) else ("no memory", blind)
    write(out, curves(shown, f"{task}, {steps_of} steps, {params} parameters", level))
    say(f"learning curves drawn to {out}")
