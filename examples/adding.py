"""Eleven recurrent cells race on the adding problem, where memory is everything.

Each step of a sequence shows a number and a mark. Two steps are marked, and after the last step
the network answers with the sum of their numbers. Always answering 1 costs 1/6; to do better, a
cell must carry both numbers to the end, past dozens that do not matter.

Every cell gets the same batches, the same number of training steps and as nearly as possible the
same number of parameters: its hidden size is solved for. The cells take turns of a few steps, so
that you can watch. What the table at the end says is what happened on your machine.

    python examples/adding.py --seconds 30 --length 60
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median

import torch
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import metarnn
from metarnn import Cell, cells
from metarnn.tasks.synthetic import adding

BASELINE = 1 / 6  # the mean squared error of always answering 1
SOLVED = 0.01
TURN = 10  # steps that a cell trains before the next one has its turn
# Measured over 700 steps: at 0.003 the LSTM has not begun to learn. Elman and Jordan learn nothing
# at 0.001, 0.003 and 0.01 either.
LEARNING_RATE = 0.02

CELLS: dict[str, Callable[[int], Cell]] = {
    "Elman": lambda h: cells.Elman(2, h),
    # All it remembers is its output, so that is as wide here as the hidden layer.
    "Jordan": lambda h: cells.Jordan(2, h, outputs=h),
    "LSTM": lambda h: cells.LSTM(2, h),
    "LSTM, peepholes": lambda h: cells.LSTM(2, h, peephole=True),
    "GRU": lambda h: cells.GRU(2, h),
    "GRU, reset before": lambda h: cells.GRU(2, h, reset="before"),
    "QRNN": lambda h: cells.QRNN(2, h),
    "SRU": lambda h: cells.SRU(2, h),
    "MinGRU": lambda h: cells.MinGRU(2, h),
    "MinLSTM": lambda h: cells.MinLSTM(2, h),
    "ON-LSTM": lambda h: cells.ONLSTM(2, h),
}


@dataclass
class Settings:
    """Eleven recurrent cells race on the adding problem."""

    seconds: float = 75.0  # how long to train, all cells together
    length: int = 40  # steps in a sequence
    seed: int = 0  # of the starting weights and the data
    batch: int = 32  # sequences in a training step
    params: int = 3000  # parameters of each network, at most


class Network(nn.Module):
    """One layer of a cell and a linear read-out of its last output."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.layer = metarnn.Recurrent(cell)
        self.readout = nn.Linear(cell.output_size, 1)
        self.size = sum(weight.numel() for weight in self.parameters())

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.layer(x)
        return self.readout(output[-1])


class Racer:
    """A network in training and what it has achieved so far."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        hidden = hidden_size(CELLS[name], settings.params)
        torch.manual_seed(settings.seed)
        self.network = Network(CELLS[name](hidden))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE)
        x = torch.zeros(settings.length, settings.batch, 2)
        self.engine = metarnn.explain(self.network.layer, x).engine
        self.curve: list[float] = []  # the mean loss of each turn
        self.seconds: list[float] = []  # the time of each step
        self.solved_at = math.inf  # the step after the first turn with a loss below SOLVED

    @property
    def steps(self) -> int:
        return len(self.seconds)

    def train(self, batches: Sequence[tuple[Tensor, Tensor]]) -> None:
        losses = []
        for x, y in batches:
            start = time.perf_counter()
            loss = mse_loss(self.network(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimizer.step()
            losses.append(loss.item())
            self.seconds.append(time.perf_counter() - start)
        self.curve.append(mean(losses))
        if self.curve[-1] < SOLVED:
            self.solved_at = min(self.solved_at, self.steps)


def hidden_size(unit: Callable[[int], Cell], params: int) -> int:
    """The largest hidden size with which a network has no more than `params` parameters."""
    with torch.device("meta"):  # shapes alone, without memory
        return bisect_right(range(1, params), params, key=lambda h: Network(unit(h)).size)


def race(racers: Sequence[Racer], settings: Settings) -> Iterator[float]:
    """Train in turns until the time is up; after each turn, yield the share of it now spent."""
    data = torch.Generator().manual_seed(settings.seed)
    start, spent = time.perf_counter(), 0.0
    while spent < 1:
        batches = [adding(settings.length, settings.batch, generator=data) for _ in range(TURN)]
        for racer in racers:
            racer.train(batches)
            spent = (time.perf_counter() - start) / settings.seconds
            yield spent


def watch(turns: Iterator[float], racers: Sequence[Racer], console: Console) -> None:
    """Follow a race: live in a terminal, elsewhere with a line for each tenth of the time."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            for spent in turns:
                live.update(scoreboard(racers, spent), refresh=True)
        return
    printed = 0.0
    for spent in turns:
        if spent > printed + 0.1 and racers[0].steps == racers[-1].steps:
            printed = spent
            solved = sum(racer.solved_at < math.inf for racer in racers)
            best = min(racers, key=lambda racer: racer.curve[-1])
            lowest = f"the lowest at {best.curve[-1]:.4f} ({best.name})"
            console.print(f"step {best.steps:4}: {solved:2} losses below {SOLVED}, {lowest}")


def table(*columns: str) -> Table:
    return Table(*columns, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)


def scoreboard(racers: Sequence[Racer], spent: float) -> Table:
    board = table("cell", "params", "engine", "", "steps", "loss", "loss so far")
    expected = racers[0].steps / min(spent, 1)
    for racer in racers:
        color = "green" if racer.solved_at < math.inf else "cyan"
        board.add_row(
            racer.name,
            f"{racer.network.size:6}",
            racer.engine,
            ProgressBar(expected, racer.steps, 12, complete_style=color, finished_style=color),
            f"{racer.steps:5}",
            f"[{color}]{racer.curve[-1]:.4f}" if racer.curve else "",
            sparkline(racer.curve),
        )
    return board


def sparkline(losses: Sequence[float], width: int = 16) -> str:
    """A curve in block characters, logarithmic, from SOLVED / 10 up to BASELINE."""
    shown = losses[:: math.ceil(len(losses) / width) or 1]
    heights = (1 - math.log(BASELINE / loss) / math.log(10 * BASELINE / SOLVED) for loss in shown)
    return "".join("▁▂▃▄▅▆▇█"[round(7 * min(max(height, 0), 1))] for height in heights)


def results(ranked: Sequence[Racer], errors: dict[str, float]) -> Table:
    final = table("cell", "hidden", "params", "engine", "ms/step", "test MSE", "of 1/6", "solved")
    for racer in ranked:
        error = errors[racer.name]
        final.add_row(
            racer.name,
            f"{racer.network.layer.hidden_size:6}",
            f"{racer.network.size:6}",
            racer.engine,
            f"{1000 * median(racer.seconds):7.1f}",
            f"[{'green' if error < SOLVED else 'red'}]{error:8.4f}",
            f"{error / BASELINE:6.0%}",
            f"step {min(racer.solved_at, racer.steps)}" if error < SOLVED else "no",
        )
    return final


def in_words(ranked: Sequence[Racer], errors: dict[str, float]) -> str:
    """What the results say, in a few sentences."""
    steps = ranked[0].steps
    solved = [racer for racer in ranked if errors[racer.name] < SOLVED]
    failed = [racer for racer in ranked if racer not in solved]
    words = f"{len(solved)} of {len(ranked)} cells solved the task within {steps} steps."
    if solved:
        needed = {r.name: min(r.solved_at, steps) for r in solved}
        compute = {r.name: median(r.seconds) * needed[r.name] for r in solved}
        fewest, quickest = min(needed.values()), min(compute, key=compute.__getitem__)
        first = " and ".join(name for name in needed if needed[name] == fewest)
        words += f" Fewest steps: {fewest} ({first});"
        words += f" least computing time: {compute[quickest]:.1f} s ({quickest})."
    if failed:
        best = failed[0].name
        words += f" Not solved by {', '.join(r.name for r in failed)}: at best"
        words += f" an error of {errors[best]:.3f} ({best}), where always answering 1 costs 0.167."
    return words


def main(settings: Settings) -> None:
    # Measured on two cores shared with other programs: steps in 12 seconds were 160 and 140 with
    # one thread, 150 and 10 with two.
    torch.set_num_threads(1)
    console = Console(highlight=False)
    console.print(
        f"The adding problem over {settings.length} steps: {len(CELLS)} cells learn it, "
        f"in {settings.seconds:g} seconds.\n"
    )
    racers = [Racer(name, settings) for name in CELLS]
    watch(race(racers, settings), racers, console)

    held_out = torch.Generator().manual_seed(settings.seed + 1)
    x, y = adding(settings.length, 1000, generator=held_out)
    with torch.no_grad():
        errors = {racer.name: mse_loss(racer.network(x), y).item() for racer in racers}
    ranked = sorted(racers, key=lambda racer: errors[racer.name])
    console.print("", results(ranked, errors), "", in_words(ranked, errors), sep="\n")


if __name__ == "__main__":
    main(tyro.cli(Settings))
