"""Simple rules beside the score of a run: in the terminal, in its metrics, on its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metarnn.tasks.rules import SECONDS, RuleScores, simple_rules
from metarnn.training import Folder
from metarnn.training.metrics import Metrics


def recorded_rules(
    task: Any,
    split: str,
    folder: Folder,
    step: int,
    scores: Mapping[str, float],
    seconds: float = SECONDS,
    *,
    sampled: bool = False,
) -> RuleScores | None:
    """The simple rules of a run's task; adds them and the run's own scores to its metrics."""
    rules = simple_rules(task, split, folder.path, seconds, sampled=sampled)
    if rules is not None:
        size = folder.metrics.stat().st_size if folder.metrics.exists() else 0
        Metrics(folder.metrics, size).add(step, rules.record(scores))
    return rules
