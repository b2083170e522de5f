"""The training windows cut in two, or joined with those of the validation time."""

from __future__ import annotations

import copy

from metarnn.cells import check
from metarnn.tasks.forecasting.windows import Windows


def parted(windows: Windows, share: float) -> tuple[Windows, Windows]:
    """Two of one: the first trains on the beginning of the training time and has its end, of this
    share, as `valid`; the second trains on that end and has `valid` as before.

    >>> from metarnn.tasks.forecasting import load
    >>> first, second = parted(load("lorenz", horizon=4), 0.25)
    >>> [len(each.origins("train")) for each in (first, second)]
    [2075, 689]

    What is forecast is never in both; what is seen of a series before may be.
    """
    if not 0 < share < 1:
        check.refuse("share", share, "a number between 0 and 1")
    first, second = copy.copy(windows), copy.copy(windows)
    for each in (first, second):
        each.__dict__.pop("_origins", None)  # what was computed of the whole
    first.parts, second.parts = [], []
    for parts in windows.parts:
        start, end = parts["train"]
        # The first windows need a look-back: the share is one of windows, not of steps.
        least = min(start + windows.scheme.lookback, end)
        cut = least + round((1 - share) * (end - least))
        first.parts.append({"train": (start, cut), "valid": (cut, end), "test": (end, end)})
        second.parts.append({"train": (cut, end), "valid": parts["valid"], "test": (end, end)})
    for each in (first, second):
        for split in ("train", "valid"):
            each.origins(split)  # refused now where there is none
    return first, second


def joined(windows: Windows) -> Windows:
    """The same windows, whose `train` reaches to the end of the validation time.

    >>> from metarnn.tasks.forecasting import load
    >>> windows = load("lorenz", horizon=4)
    >>> [len(each.origins("train")) for each in (windows, joined(windows))]
    [2767, 3167]
    """
    windows.origins("valid")  # refused where there is none
    longer = copy.copy(windows)
    longer.__dict__.pop("_origins", None)
    longer.parts = [
        {**parts, "train": (parts["train"][0], parts["valid"][1])} for parts in windows.parts
    ]
    return longer
