"""What a person sees while a model trains: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

QUIET_SECONDS = 10.0  # between two plain lines, of those that no validation asks for


@dataclass(frozen=True)
class Report:
    """How a training stands."""

    step: int
    done: float  # share of the training, 0 … 1
    elapsed: float  # seconds of training, those before a resume included
    speed: float  # tokens (or what the task counts) a second
    numbers: Mapping[str, float] = field(default_factory=dict)  # loss, perplexity, …
    name: str = ""  # of what trains, where that is one of several

    @property
    def left(self) -> float:
        """Seconds that the training will still take, if it goes on like this."""
        return self.elapsed * (1 - self.done) / self.done if self.done > 0 else math.inf

    def __str__(self) -> str:
        loss = self.numbers.get("loss")
        shown = "  ".join(
            f"{name} {value:.4g}"
            for name, value in self.numbers.items()
            if name == "loss" or value != loss  # without a penalty the loss is the nll
        )
        begin = f"{self.name} " if self.name else ""
        return f"{begin}step {self.step:>6}  {shown}  {rate(self.speed)}  {clock(self.left)} left"


class Progress(Protocol):
    """Somewhere to show how a training stands."""

    def __enter__(self) -> Progress: ...

    def __exit__(self, *error: object) -> None: ...

    def show(self, report: Report) -> None: ...

    def say(self, text: str) -> None: ...


def printable(text: str) -> str:
    r"""A text without orders for the terminal: what comes from a file may hold some.

    >>> printable("a \x1b[31mred\x1b[0m label")
    'a \\x1b[31mred\\x1b[0m label'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def for_output(text: str) -> str:
    """Escape a text for standard output if that is a terminal; a pipe or file gets it as it is."""
    return printable(text) if sys.stdout.isatty() else text


class Silent:
    """Shows nothing: for processes other than the first, and for libraries."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, report: Report) -> None:
        pass

    def say(self, text: str) -> None:
        pass


SILENT = Silent()


class Named(Silent):
    """One of many trainings: shows it under a name, and says nothing."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress, self.name = progress, name

    def __enter__(self) -> Progress:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.__exit__(*error)

    def show(self, report: Report) -> None:
        first = dict(list(report.numbers.items())[:1])  # a line has room for no more
        self.progress.show(replace(report, numbers=first, name=self.name))


class Lines(Silent):
    """Plain lines, for a file or a pipe."""

    def __init__(self) -> None:
        self._last = -math.inf

    def show(self, report: Report) -> None:
        now = time.monotonic()
        # What has a name ends with a line of whoever named it.
        ends = report.done >= 1 and not report.name
        if now - self._last >= QUIET_SECONDS or ends:
            self._last = now
            self.say(str(report))

    def say(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)


class Live(Silent):
    """A bar that moves, in a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = ("{task.description}", BarColumn(20), TaskProgressColumn())
        self._bar: Any = Bar(
            *columns,
            TextColumn("{task.fields[text]}", markup=False),
            console=Console(stderr=True, markup=False, highlight=False),
            transient=True,
        )

    def __enter__(self) -> Progress:
        self._bar.start()
        self._task = self._bar.add_task("", total=1.0, text="")
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
        self._bar.remove_task(self._task)  # the next training has a bar of its own

    def show(self, report: Report) -> None:
        self._bar.update(self._task, completed=report.done, text=str(report))

    def say(self, text: str) -> None:
        self._bar.console.print(printable(text))


class Reading:
    """Says how far the reading of a large text is, every few seconds."""

    def __init__(self, show: Progress) -> None:
        self.show, self._last = show, time.monotonic()

    def __call__(self, what: str, done: int, whole: int) -> None:
        now = time.monotonic()
        if now - self._last >= QUIET_SECONDS:
            self._last = now
            self.show.say(f"{what}: {done / max(whole, 1):.0%} of {whole / 1e6:,.0f} MB")


def progress() -> Progress:
    """What suits where standard error goes to."""
    if sys.stderr.isatty():
        try:
            return Live()
        except ModuleNotFoundError:  # rich comes with the command line only
            pass
    return Lines()


def scores_in_words(scores: Mapping[str, float]) -> str:
    """Scores in a line; counts that are zero say nothing.

    >>> scores_in_words({"nll": 1.0, "perplexity": 2.71828, "tokens": 1000.0, "unknown": 0.0})
    'nll 1.0000  perplexity 2.7183  tokens 1,000'
    """
    counts = ("tokens", "unknown", "ran_off", "beam", "sentences", "tasks", "transductive")
    counts += ("examples", "windows")
    shown = {
        name: f"{value:,.0f}" if name in counts else f"{value:.4f}"
        for name, value in scores.items()
        if value or name not in counts
    }
    return "  ".join(f"{name} {value}" for name, value in shown.items())


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(3700), clock(float("inf"))
    ('1:15', '1:01:40', '?')
    """
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rate(speed: float) -> str:
    """
    >>> rate(950.0), rate(12300.0), rate(2.5e6)
    ('950 tokens/s', '12.3k tokens/s', '2.5M tokens/s')
    """
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if speed >= limit:
            return f"{speed / limit:.3g}{unit} tokens/s"
    return f"{speed:.3g} tokens/s"
