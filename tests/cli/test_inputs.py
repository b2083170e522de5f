"""Absurd settings, damaged weights and hostile labels."""

from __future__ import annotations

import csv
import dataclasses
import math
import time
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch
from torch import nn

from metarnn.cli import table
from metarnn.runs import tasks
from metarnn.tasks.affordable import affordable
from metarnn.tasks.classification.load import load
from metarnn.training import checkpoint, config
from metarnn.training.progress import for_output


def _numeric() -> list[tuple[str, str, type]]:
    rows: list[tuple[str, str, type]] = []
    for task in tasks.TASKS:
        kind = tasks.find(task).kind
        hints = get_type_hints(kind)
        rows += [
            (task, f.name, hints[f.name])
            for f in dataclasses.fields(kind)
            if hints[f.name] in (int, float)
        ]
    return rows


@pytest.mark.parametrize(("task", "name", "kind"), _numeric())
def test_an_absurd_number_is_refused_by_name_before_any_work(
    task: str, name: str, kind: type
) -> None:
    absurd: list[Any] = [-(10**12), 2**63, 10**30]
    if kind is float:
        absurd = [math.nan, math.inf, -math.inf, 1e300]
    start = time.monotonic()
    for value in absurd:
        with pytest.raises(ValueError, match=rf"config.toml: {name}="):
            config.from_keys(tasks.find(task).kind, {name: value}, "config.toml")
    assert time.monotonic() - start < 1


@pytest.mark.parametrize("task", tasks.TASKS)
@pytest.mark.parametrize(
    "change", [{"width": 2147483647}, {"patch": 99999999999}, {"layers": 1000},
               {"evaluation_batch": 0}, {"evaluation_batch": -1}],
)  # fmt: skip
def test_sizes_that_once_reached_torch_are_refused(task: str, change: dict[str, int]) -> None:
    kind = tasks.find(task).kind
    if set(change) & {f.name for f in dataclasses.fields(kind)}:
        with pytest.raises(ValueError, match=next(iter(change))):
            config.from_keys(kind, change, "config.toml")


def test_presets_are_within_the_limits() -> None:
    for task in tasks.TASKS:
        entry = tasks.find(task)
        for name, preset in entry.presets.items():
            config.from_keys(entry.kind, preset, name)


def test_shares_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="split='nan/nan/nan'"):
        load("digits", split="nan/nan/nan")


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_an_error(bad: float) -> None:
    model = nn.Linear(2, 2)
    weights = {name: w.clone() for name, w in checkpoint.weights(model).items()}
    weights["weight"][0, 0] = bad
    with pytest.raises(ValueError, match=r"'weight' has values that are not finite"):
        checkpoint.load_weights(model, weights)
    assert torch.isfinite(model.weight).all()


def test_a_label_is_no_formula_in_a_csv_file(tmp_path: Path) -> None:
    out = tmp_path / "labels.csv"
    table.write([["=cmd|' /C calc'!A0", "@x", "-x", "-1.5", "+2", "a"]], out, "1 example")
    with out.open(newline="") as file:
        (row,) = csv.reader(file)
    assert row == ["'=cmd|' /C calc'!A0", "'@x", "'-x", "-1.5", "+2", "a"]


@pytest.mark.parametrize("terminal", [True, False])
def test_control_characters_are_escaped_on_a_terminal_alone(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert for_output("\x1b[31mred") == ("\\x1b[31mred" if terminal else "\x1b[31mred")


def test_shapes_are_compared_with_the_weights_before_a_model_is_built(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    checkpoint.save_weights(path, checkpoint.weights(nn.Linear(2, 2)))
    devices: list[str] = []

    def make() -> nn.Linear:
        devices.append(torch.empty(0).device.type)
        return nn.Linear(50_000, 2)

    with pytest.raises(ValueError, match=r"'weight' is \[2, 2\], and in the model \[2, 50000\]"):
        affordable(make, path)
    assert devices == ["meta"]
