"""What commands show fits terminals of 60, 80 and 120 columns, and cuts nothing."""

import io
import re
import time

import pytest
from rich.console import Console

from metarnn.cli import doctor as doctors
from metarnn.cli import table
from metarnn.cli.doctor import doctor
from metarnn.cli.search import print_verdict
from metarnn.search.verdict import Row, Verdict
from metarnn.tasks.task import Measure
from metarnn.tasks.watch import counted
from metarnn.training.progress import Live, Race, Report, clock, evaluating, line

WIDTHS = (60, 80, 120)
SCORES = {"nll": 0.98451, "perplexity": 2.67652, "bpc": 1.42034, "accuracy": 0.71123}
REPORT = Report(
    4_200, 0.42, 61.0, 12_345.0,
    {"loss": 1.2345, "nll": 1.2301, "perplexity": 3.4216, "gradient_norm": 0.5123},
)  # fmt: skip


def terminal(width: int) -> Console:
    return Console(
        file=io.StringIO(), width=width, force_terminal=True, color_system=None,
        markup=False, highlight=False,
    )  # fmt: skip


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def verdict() -> Verdict:
    names = ("found", "lstm", "gru", "best of random", "generated gru")
    rows = tuple(
        Row(name, 128, 200_123 + k, tuple({n: v + k + s / 100 for n, v in SCORES.items()}
                                          for s in range(3)))
        for k, name in enumerate(names)
    )  # fmt: skip
    return Verdict(rows, "test", 12_345, Measure("nll"))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_verdict_has_every_figure_in_full_at_any_width(width, monkeypatch):
    console = terminal(width)
    monkeypatch.setattr(table, "console", lambda: console)
    print_verdict(verdict())
    lines = shown(console).splitlines()
    assert max(map(len, lines)) <= width
    for cell in {cell for row in verdict().table() for cell in row}:
        assert any(re.search(rf"(^|  ){re.escape(cell)}(  |$)", each.strip()) for each in lines)


def test_a_verdict_that_is_piped_is_one_table(capsys):
    print_verdict(verdict())
    head, *rows = capsys.readouterr().out.splitlines()[1:]
    assert head.split() == ["unit", "width", "parameters", *SCORES]
    assert [row.count("±") for row in rows] == [len(SCORES)] * 5


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["", "generated best of random, seed 3:"])
def test_progress_is_one_line_with_a_score_and_the_time_left(width, name):
    text = line(Report(**{**vars(REPORT), "name": name}), 3_725.0, width)
    assert len(text) <= width
    assert text.startswith(name)
    assert "loss 1.234" in text
    assert text.endswith("1:02:05 left")
    if width >= 80:
        assert "━" * 3 in text
        assert "42%" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_the_time_left_is_that_of_the_job(width):
    live = Live(terminal(width))
    live.job(lambda report: 600.0)
    live.show(REPORT)
    assert str(live._line()).endswith("10:00 left")
    live.job(lambda report: -5.0)  # a job that takes longer than it was planned to
    assert str(live._line()).endswith(f"{clock(REPORT.left)} left")
    live.job(None)
    assert str(live._line()).endswith(f"{clock(REPORT.left)} left")


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_said_wraps_between_words(width):
    text = "One seed tells only what is far apart: a win is a difference beyond it"
    words = 4 * text.split()
    live = Live(terminal(width))
    live.say(" ".join(words))
    table.say(" ".join(words), live.console)
    assert max(map(len, shown(live.console).splitlines())) <= width
    assert shown(live.console).split() == words * 2


def test_what_is_said_is_not_wrapped_where_it_is_piped(capsys):
    table.say("word " * 60)
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_doctor_breaks_no_word(width, monkeypatch):
    console = terminal(width)
    monkeypatch.setattr(doctors, "console", lambda: console)
    monkeypatch.setattr(doctors, "cache_folder", lambda: None)
    monkeypatch.setattr(doctors, "_broken", lambda command: "")
    doctor()
    text = " ".join(shown(console).split())
    for extra in doctors.EXTRAS.values():
        assert all(word in text for word in extra.use.split())


class Reports(Live):
    def __init__(self) -> None:
        super().__init__(terminal(80))
        self.reports: list[Report] = []

    def show(self, report: Report) -> None:
        self.reports.append(report)


def test_an_evaluation_shows_how_far_it_is():
    progress = Reports()
    with evaluating(progress, "evaluating test"):
        assert list(counted("abcd")) == list("abcd")
    assert list(counted("ef")) == list("ef")  # after it nobody watches
    assert [report.done for report in progress.reports] == [0.25, 0.5, 0.75, 1.0]
    assert {report.name for report in progress.reports} == {"evaluating test"}


def test_trainings_of_a_race_show_the_time_left_of_all(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    progress = Reports()
    race = Race(progress, 4)
    race.next("known")  # done in an earlier call: it shows nothing
    for name in ("lstm", "gru", "found"):
        training = race.next(name)
        now += 10.0
        training.show(Report(100, 1.0, 10.0, 5.0, {"loss": 1.0}))
    assert [round(report.left, 6) for report in progress.reports] == [20.0, 10.0, 0.0]
