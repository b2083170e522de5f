"""Whether a model stays sane on input that is much longer than what it was trained on."""

from __future__ import annotations

from typing import Any

import numpy as np

from metarnn.tasks.language import LanguageTask
from metarnn.tasks.language.corpus import Split
from metarnn.tasks.language.evaluation import score
from metarnn.tasks.language.part import stretch
from metarnn.tasks.language.tokens import Tokens

TIMES = 10  # a training document
MOST = 20_000  # tokens


def diverges(job: Any) -> bool:
    """Whether a language model's loss runs away on a text ten times as long as a training document.

    Other tasks read sequences that end, and start from a fresh state each time.
    """
    task = job.task
    if not isinstance(task, LanguageTask):
        return False
    train = task.corpus["train"]
    document = int(np.median(np.diff(train.tokens.bounds)))
    text = stretch(train, 0, min(TIMES * max(document, task.length), MOST, len(train.tokens)))
    bounds = np.array([0, len(text.tokens)])
    joined = Split(Tokens(text.tokens.values, bounds), ("training text",), text.unknown)
    return bool(score(job.model, joined, 1).ran_off(len(task.corpus.vocabulary)))
