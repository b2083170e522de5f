"""What `metarnn learn` sets for each task, before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from metarnn.study.contenders import DROPOUTS
from metarnn.study.judgement import LEAST, Judgement, Refit
from metarnn.tasks.classification.load import load
from metarnn.tasks.forecasting import load_panel, training_season
from metarnn.tasks.forecasting.lookback import choose_lookback
from metarnn.tasks.look import Finding

# Passes over the training data after which a training gains nothing, and the updates that it has
# at least.
EPOCHS = {"lm": 150.0, "translation": 400.0, "classification": 100.0, "forecasting": 400.0}
UPDATES = {"lm": 4000, "translation": 4000, "classification": 4000, "forecasting": 2000}
# Validation data, with fewer of which small differences tell nothing, and what then does.
TELLING = {"lm": 5000, "translation": 200, "classification": 200, "forecasting": 200}
FEW = 0.05
AS_GOOD = 0.01  # above the lowest score of one training, with so few, is a later one
# Nats that a single wrong example may well cost (a wrong pair: for each of its tokens).
SINGLE = {"lm": 2.0, "translation": 2.0, "classification": 2.0, "forecasting": 0.0}
COUNTED = {
    "lm": "tokens", "translation": "pairs", "classification": "examples", "forecasting": "windows",
}  # fmt: skip
# Of the settings that follow from the data, why they differ from those of `metarnn train`.
REASONS = {
    "split": "so that few examples leave enough for validation",
    "horizon": "a season, as far as the validation data have room for it",
    "lookback": "a linear regression forecasts later training data best with it",
    "length": "what a short text has room for",
    "batch": "what few data have room for",
    "cutoffs": "with a large vocabulary an adaptive softmax is faster",
    **dict.fromkeys(("weight_decay", *DROPOUTS), "by how often the training data will be read"),
}
SCHEDULE = {
    "schedule": "trapezoid",
    "floor": 0.0,
    "ema": 0.995,
    "steps": 0,
    "epochs": 0.0,
    "minutes": 0.0,
    "patience": 0,
    "nonmono": 0,
    "validate_every": 0,
    "save_every": 0,
    "log_every": 25,
}


# Weight decay by the passes over the training text: (from so many on, decay). Measured on pydoc
# with a mogrified GRU at a rate of 6e-3, one seed, test bits: after 9 passes 1.672 with 0.01 and
# 1.621 with 0.1; after 27 passes 1.578 with 0.1, 1.570 with 0.3, 1.695 with 1.0. On characters of
# the Penn Treebank with a GRU, after 0.8 passes 1.589 with 0.01 and 1.600 with 0.1.
DECAY = ((0.0, 0.01), (4.0, 0.1), (15.0, 0.3))
# Passes over the training data up to which there is no dropout, and from which it is that of the
# preset; between them it grows in proportion. Measured with a GRU, one seed, test nats: characters
# of the Penn Treebank, 0.8 passes, 1.104 without dropout and 1.159 with it; Tiny Shakespeare,
# 6 passes, 1.532 with a third of it and 1.527 with all.
NO_DROPOUT, FULL_DROPOUT = 2.0, 10.0
REPEATED = ("lm", "classification")  # tasks whose passes read each value once
# The vocabulary from which a text model on a CPU has an adaptive softmax (Grave et al. 2017), and
# where its frequent tokens end, as shares. With 10,000 tokens a GRU reads 5 times as many in the
# same time: the words of the Penn Treebank, 3 minutes, one seed, test nats 4.84 against 5.47.
LARGE = 2000
FREQUENT = (0.1, 0.4)


def resolution(name: str, task: Any) -> float:
    """Return by how much a single example may change the mean validation loss."""
    return SINGLE[name] / max(min(task.amount("valid"), task.enough), 1)


def judgement(name: str, task: Any) -> Judgement:
    """Return what the validation losses of a task can tell."""
    on = f"{min(task.amount('valid'), task.enough):,} validation {COUNTED[name]}"
    return Judgement(FEW if few(name, task) else LEAST, resolution(name, task), on)


def few(name: str, task: Any) -> bool:
    """Whether the validation data are too few to tell small differences."""
    return task.amount("valid") < TELLING[name]


# Classifiers in the model that is trained on all data, at most, and those for which a race of small
# data leaves time. Mean test nll of a GRU after 1,500 updates: digits, one 0.023, six 0.014, six
# refitted 0.013; visits, one 0.046, three 0.019, three refitted 0.020.
MEMBERS, FEW_MEMBERS = 8, 4


def refit(name: str, task: Any, held_out: str) -> Refit:
    """How the winner is trained on training and validation data, where those are not held out."""
    if not task.batches_per_epoch or held_out == "valid":
        return Refit()
    ratio = replace(task, refit=True).batches_per_epoch / task.batches_per_epoch
    if ratio == 1:  # there is no validation part
        return Refit()
    if name == "classification" and task.data.scheme.kind != "ctc":
        return Refit(ratio, MEMBERS, FEW_MEMBERS)
    return Refit(ratio)


def for_vocabulary(base: Any, size: int, device: str) -> Any:
    """The settings of a text model for a vocabulary of this size."""
    if size < LARGE or device != "cpu":
        return base
    return replace(base, cutoffs=tuple(round(share * size) for share in FREQUENT))


def regularised(task: str, base: Any, epochs: float) -> Any:
    """The settings for a training of so many passes over the training data.

    Weight decay and dropout keep a model from learning by heart what it reads again and again.
    """
    if task not in REPEATED:
        return base
    share = min(max((epochs - NO_DROPOUT) / (FULL_DROPOUT - NO_DROPOUT), 0.0), 1.0)
    own = [name for name in DROPOUTS if hasattr(base, name)]
    changes = {name: round(share * getattr(base, name), 2) for name in own}
    if task == "lm":
        changes["weight_decay"] = max(decay for least, decay in DECAY if epochs >= least)
    return replace(base, **changes)


def settings(found: Finding) -> dict[str, Any]:
    """The task's settings that follow from its data.

    How data are divided is left as `metarnn train` has it where that gives enough for validation,
    so that scores of both are of the same examples.
    """
    by_task: Mapping[str, Any] = {
        "lm": _language,
        "translation": _translation,
        "classification": _classification,
        "forecasting": _forecasting,
    }
    return {"data": found.data, **found.settings, **by_task[found.task](found)}


def _language(found: Finding) -> dict[str, Any]:
    """Batches that a short text has room for."""
    size = _bytes(Path(found.data))
    stable = {"spike": 3.0}  # a loss that jumps goes back, with half the learning rate
    if not size:
        return stable
    length, batch = 64, 16
    while length > 8 and 0.9 * size < 2 * batch * length:
        length //= 2
    return stable | {"length": length, "batch": max(min(batch, int(0.9 * size / (2 * length))), 1)}


def _translation(found: Finding) -> dict[str, Any]:
    """Batches that few pairs have room for, and enough of those for validation."""
    path = Path(found.data)
    sides = [path, *path.parent.glob(f"{path.name}.{found.settings.get('source', '')}*")]
    file = next((p for p in sides if p.is_file()), None)
    if file is None:
        return {}
    with file.open("rb") as opened:
        lines = sum(1 for _ in opened)
    few = {"split": "70/15/15"} if lines < 400 else {}
    return {"batch": max(min(64, int(0.15 * lines)), 1), **few}


def _classification(found: Finding) -> dict[str, Any]:
    """Some examples for validation even of few: by what a model was trained on the one that
    learned most of it by heart would be kept."""
    reading = {
        name: found.settings[name] for name in ("labels", "pixels") if name in found.settings
    }
    parts = load(found.data, **reading).parts
    return {} if "valid" in parts else {"split": "64/16/20"}


def _forecasting(found: Finding) -> dict[str, Any]:
    """A season ahead, where there is one; never more than the validation has room for. And the
    look-back that suits the training data."""
    names = ("targets", "static", "series")
    panel = load_panel(found.data, **{n: found.settings[n] for n in names if n in found.settings})
    room = max(min(len(series) for series in panel.series) // 15, 1)
    season = training_season(panel)
    horizon = min(season if season > 1 else 12, room)
    return {"horizon": horizon, "lookback": choose_lookback(panel, horizon)}


def _bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else 0
