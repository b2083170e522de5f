"""What `metarnn learn` sets for each task, before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metarnn.tasks.classification.load import ENOUGH, find
from metarnn.tasks.forecasting import load_panel, training_season
from metarnn.tasks.look import Finding

STRUCTURE = 0.25  # of the training data, as a search takes for the structure
TESTED = 200_000  # bytes of a text at most that are read for a score: in seconds on two cores
PAIRS = 1000  # and pairs


@dataclass(frozen=True)
class Sizes:
    """Of a task's models: the width to begin with and the widest, the updates of a training that
    are enough to tell units apart, and the most that are of use."""

    width: int
    widest: int
    enough: int
    most: int


SIZES = {
    "lm": Sizes(96, 512, 200, 4000),
    "translation": Sizes(64, 384, 200, 4000),
    "classification": Sizes(32, 128, 150, 1500),
    "forecasting": Sizes(32, 96, 100, 600),
}


def settings(found: Finding) -> dict[str, Any]:
    """The task's settings that follow from its data."""
    made: Mapping[str, Any] = {
        "lm": _language,
        "translation": _translation,
        "classification": _classification,
        "forecasting": _forecasting,
    }
    return {"data": found.data, **found.settings, **made[found.task](found)}


def _language(found: Finding) -> dict[str, Any]:
    size = _bytes(Path(found.data))
    # Short trainings: what keeps long ones from overfitting is in their way.
    made: dict[str, Any] = {"embedding": 64, "input_dropout": 0.0, "output_dropout": 0.1}
    if not size:
        return made
    if 0.05 * size > TESTED:
        share = 100 * TESTED / size
        made["split"] = f"{100 - 2 * share:.4f}/{share:.4f}/{share:.4f}"
    length = 64
    while length > 8 and 0.9 * STRUCTURE * size < 16 * length:
        length //= 2
    readers = int(0.9 * STRUCTURE * size / (2 * length))
    return made | {"length": length, "batch": max(min(16, readers), 1)}


def _translation(found: Finding) -> dict[str, Any]:
    path = Path(found.data)
    sides = [path, *path.parent.glob(f"{path.name}.{found.settings.get('source', '')}*")]
    file = next((p for p in sides if p.is_file()), None)
    if file is None:
        return {}
    with file.open("rb") as opened:
        lines = sum(1 for _ in opened)
    made: dict[str, Any] = {"batch": max(min(64, int(0.6 * STRUCTURE * lines)), 1)}
    if 0.05 * lines > PAIRS:
        share = 100 * PAIRS / lines
        made["split"] = f"{100 - 2 * share:.4f}/{share:.4f}/{share:.4f}"
    elif lines < 400:
        made["split"] = "70/15/15"
    return made


def _classification(found: Finding) -> dict[str, Any]:
    """Some examples for validation even of few: by what a model was trained on the one that
    learned most of it by heart would be kept."""
    train = find(found.data)
    _, examples = train.get("train") or train["all"]
    return {"split": "64/16/20"} if len(examples) < ENOUGH else {}


def _forecasting(found: Finding) -> dict[str, Any]:
    """A season ahead, where there is one; never more than the validation has room for."""
    names = ("targets", "static", "series")
    panel = load_panel(found.data, **{n: found.settings[n] for n in names if n in found.settings})
    room = max(min(len(series) for series in panel.series) // 15, 1)
    season = training_season(panel)
    return {"horizon": min(season if season > 1 else 12, room)}


def _bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else 0
