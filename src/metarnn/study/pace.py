"""How fast a model trains here."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import fmean

from torch import nn

from metarnn.tasks.task import Task
from metarnn.training import Settings, Trainer

LEAST, MOST, SECONDS = 5, 40, 0.7  # updates that are timed, and for how long


def seconds_per_update(task: Task, model: nn.Module, settings: Settings) -> float:
    """Time a few updates, which change the model; the first, which compiles, does not count."""
    trainer = Trainer(task, model, replace(settings, steps=MOST))
    trainer.update()
    times: list[float] = []
    while len(times) < LEAST or (sum(times) < SECONDS and len(times) < MOST):
        began = time.monotonic()
        trainer.update()
        times.append(time.monotonic() - began)
    return fmean(sorted(times)[:-1])  # the slowest had something come in between
