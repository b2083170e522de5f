"""What a person sees while a model trains: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from metarnn.tasks.watch import watched

BAR = (8, 20)  # columns of a bar, at least and at most
GAP = 2  # columns between two columns of a table
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

    def scores(self) -> list[str]:
        """Each score with its name; without a penalty the loss is the nll, and said once."""
        loss = self.numbers.get("loss")
        shown = {k: v for k, v in self.numbers.items() if k == "loss" or v != loss}
        return [f"{name} {value:.4g}" for name, value in shown.items()]


Left = Callable[[Report], float]  # seconds left of a job, of whose parts one stands as reported


def line(report: Report, left: float, width: int | None = None) -> str:
    """Describe a report in one line of at most `width` columns; None for all of it, without a bar.

    Nothing is cut: what matters less is left out where there is no room for it.

    >>> report = Report(50, 0.5, 10.0, 950.0, {"loss": 1.25, "perplexity": 3.5}, "lstm:")
    >>> line(report, 75.0, 60)
    'lstm:  step 50  ━━━━━━━━─────────  50%  loss 1.25  1:15 left'
    >>> line(report, 75.0)
    'lstm:  step 50  loss 1.25  perplexity 3.5  950 tokens/s  1:15 left'
    """
    first, *more = report.scores() or [""]
    parts = {
        "name": one_line(report.name),
        "step": f"step {report.step}" if report.step else "",
        "bar": "" if width is None else "━" * BAR[0],
        "share": f"{report.done:.0%}" if width is not None or not report.step else "",
        "score": first,
        "scores": "  ".join(more),
        "speed": rate(report.speed) if report.speed else "",
        "left": f"{clock(max(left, 0.0))} left",
    }
    for dispensable in ("scores", "speed", "step", "bar", "share", "score", "name"):
        length = len("  ".join(filter(None, parts.values())))
        if width is None or length <= width:
            break
        parts[dispensable] = ""
    if parts["bar"] and width is not None:
        length = len("  ".join(filter(None, parts.values())))
        columns = min(BAR[1], BAR[0] + width - length)
        full = min(int(columns * report.done), columns)
        parts["bar"] = "━" * full + "─" * (columns - full)
    return "  ".join(filter(None, parts.values()))


class Progress(Protocol):
    """Somewhere to show how a training stands."""

    def __enter__(self) -> Progress: ...

    def __exit__(self, *error: object) -> None: ...

    def show(self, report: Report) -> None: ...

    def say(self, text: str) -> None: ...

    def job(self, left: Left | None) -> None:
        """Show the time left of a job, of which what is shown is a part; None for the part's."""
        ...


def printable(text: str) -> str:
    r"""A text without orders for the terminal: what comes from a file may hold some.

    >>> printable("a \x1b[31mred\x1b[0m label")
    'a \\x1b[31mred\\x1b[0m label'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def one_line(text: str) -> str:
    r"""A name from a file, for a line or a cell of a table: it cannot begin another line, either.

    >>> one_line("cat\nsaved in /tmp")
    'cat\\nsaved in /tmp'
    """
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def for_output(text: str) -> str:
    """Escape a text for standard output if that is a terminal; a pipe or file gets it as it is."""
    return printable(text) if sys.stdout.isatty() else text


def line_for_output(text: str) -> str:
    """The same of what is to stay one line."""
    return one_line(text) if sys.stdout.isatty() else text


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

    def job(self, left: Left | None) -> None:
        pass


SILENT = Silent()


class Race:
    """Trainings one after the other, shown as one: their share and their time are of all of them.

    Those that were done before the first one shown do not count.
    """

    def __init__(self, progress: Progress, count: int) -> None:
        self.progress, self.count = progress, count
        self._begun = 0  # trainings, this one included
        self._first = 0  # the first that took time
        self._began = 0.0

    def next(self, name: str) -> Progress:
        """Where the next training is shown, under a name."""
        self._begun += 1
        return Named(self, name)

    def show(self, report: Report) -> None:
        now = time.monotonic()
        if not self._first:
            self._first, self._began = self._begun, now - report.elapsed
        share = self._begun - self._first + report.done
        done = share / (self.count - self._first + 1)
        self.progress.show(replace(report, done=done, elapsed=now - self._began))


class Contestant(Silent):
    """One of several trainings that go on by turns: shows it under a name, and says nothing."""

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


class Named(Contestant):
    """One of several trainings that are shown as one."""

    def __init__(self, race: Race, name: str) -> None:
        super().__init__(race.progress, name)
        self.race = race

    def show(self, report: Report) -> None:
        first = dict(list(report.numbers.items())[:1])
        self.race.show(replace(report, numbers=first, name=self.name))


class Clocked(Silent):
    """Knows the time left of the job, where one was set."""

    _job: Left | None = None

    def job(self, left: Left | None) -> None:
        self._job = left

    def left(self, report: Report) -> float:
        """Seconds left of the job, which are never fewer than those of the part it is at."""
        part = report.left
        if self._job is None:
            return part
        return max(self._job(report), part if math.isfinite(part) else 0.0)


class Lines(Clocked):
    """Plain lines, for a file or a pipe."""

    def __init__(self) -> None:
        self._last = -math.inf

    def show(self, report: Report) -> None:
        now = time.monotonic()
        # What has a name ends with a line of whoever named it.
        ends = report.done >= 1 and not report.name
        if now - self._last >= QUIET_SECONDS or ends:
            self._last = now
            self.say(line(report, self.left(report)))

    def say(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)


class Live(Clocked):
    """A line with a bar that moves, in a terminal."""

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console
        from rich.live import Live as Display

        self.console = console or Console(stderr=True, markup=False, highlight=False)
        self._new: Callable[[], Any] = lambda: Display(
            console=self.console, get_renderable=self._line, transient=True
        )
        self._display: Any = None
        self._entered = 0  # an evaluation may be shown within a training
        self._report: Report | None = None

    def _line(self) -> Any:
        from rich.text import Text

        report = self._report
        width = self.console.width - 1  # in the last column some terminals wrap
        return Text("" if report is None else line(report, self.left(report), width))

    def __enter__(self) -> Progress:
        self._entered += 1
        if self._entered == 1:
            self._report, self._display = None, self._new()
            self._display.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._entered -= 1
        if not self._entered:
            self._display.stop()

    def show(self, report: Report) -> None:
        self._report = report

    def say(self, text: str) -> None:
        self.console.print(printable(text))


@contextmanager
def evaluating(progress: Progress, title: str) -> Generator[None]:
    """Show how far the evaluation within is."""
    began = time.monotonic()

    def show(done: int, total: int) -> None:
        progress.show(Report(0, done / total, time.monotonic() - began, 0.0, name=title))

    with progress, watched(show):
        yield


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


def column_groups(widths: Sequence[int], width: int) -> list[list[int]]:
    """Group columns into tables of at most `width`, the first column in each.

    >>> column_groups([5, 10, 10, 10], 30)
    [[0, 1, 2], [0, 3]]
    """
    groups = [[0]]
    for k in range(1, len(widths)):
        used = sum(widths[j] + GAP for j in groups[-1])
        if used + widths[k] > width and len(groups[-1]) > 1:
            groups.append([0])
        groups[-1].append(k)
    return groups
