"""What a contender will have reached by the end of its training, judged by recorded trainings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np

RECORDED = Path(__file__).with_name("recorded.json")
LEAST_SPREAD = 0.01  # of the logarithm of a score, where few trainings are recorded


@dataclass(frozen=True)
class Forecast:
    """The score that is predicted for the end of a training, with an interval."""

    score: float
    low: float
    high: float


@dataclass(frozen=True)
class Training:
    """A recorded training, to its end.

    Attributes:
        data: what it was of
        contender: its name in the portfolio
        times: of its validations, in updates of the portfolio's first contender
        logs: the logarithm of the score of each, the last of the best weights
    """

    data: str
    contender: str
    times: tuple[float, ...]
    logs: tuple[float, ...]

    @property
    def final(self) -> float:
        return self.logs[-1]

    def at(self, time: float) -> float:
        """The logarithm of the score after so much time, between validations on a line over the
        logarithm of time."""
        return float(np.interp(math.log(time), np.log(self.times), self.logs))


class Records:
    """Recorded trainings of the contenders of a task on several data sets.

    With s_c(t) the score of contender c after time t, and means taken over data sets:

        log final = log s_c(t) + g(t / T) + a_c - b_c(t)

    g is what contenders gain from a share of their training to its end; a_c and b_c(t) tell how far
    c is behind the mean of all contenders of the same data at the end, and after t. So a unit that
    is known to learn slowly at first is not dropped for that.

    Args:
        trainings: of which every data set has one of every contender
    """

    def __init__(self, trainings: Sequence[Training]) -> None:
        self.by_data: dict[str, list[Training]] = {}
        for training in trainings:
            self.by_data.setdefault(training.data, []).append(training)

    def forecast(self, contender: str, score: float, time: float, end: float) -> Forecast:
        """Predict the score at `end` of a contender that has this one at `time`, both counted in
        updates of the portfolio's first contender."""
        if not math.isfinite(score) or score <= 0 or not self.by_data:
            return Forecast(score, 0.9 * score, 1.1 * score)
        gains = [
            training.final - training.at(time / end * training.times[-1])
            for trainings in self.by_data.values()
            for training in trainings
        ]
        behind = [
            self._behind(trainings, contender, time)
            for trainings in self.by_data.values()
            if any(training.contender == contender for training in trainings)
        ]
        log = math.log(score) + fmean(gains) + (fmean(behind) if behind else 0.0)
        spread = 2 * max(pstdev(gains), LEAST_SPREAD)
        return Forecast(math.exp(log), math.exp(log - spread), math.exp(log + spread))

    @staticmethod
    def _behind(trainings: Sequence[Training], contender: str, time: float) -> float:
        """a_c - b_c(t) on one data set."""
        own = next(training for training in trainings if training.contender == contender)
        now = own.at(time) - fmean(training.at(time) for training in trainings)
        return own.final - fmean(training.final for training in trainings) - now


@cache
def records(task: str) -> Records:
    """The trainings that are recorded for a task; `metarnn bench contenders` makes them."""
    document = json.loads(RECORDED.read_text(encoding="utf-8"))
    return Records([training(row) for row in document["trainings"] if row["task"] == task])


def training(row: Mapping[str, object]) -> Training:
    """A row of the file: its curve has [updates of the first contender, score] of validations."""
    times, scores = zip(*row["curve"], strict=True)  # pyright: ignore
    return Training(str(row["data"]), str(row["contender"]), times, tuple(map(math.log, scores)))
