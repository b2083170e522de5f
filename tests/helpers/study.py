"""The folder of a study, as `metarnn learn` leaves one, with made-up scores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from metarnn import cells, graph

UNITS = ("lstm", "gru", "best of random", "found", "meta gru")
SEEDS = 2
HOSTILE = "<script>alert('x')</script>"


def make_study(folder: Path, run: Path | None = None) -> Path:
    """Write a study; with `run`, the folder of a training, that is its best model."""
    folder.mkdir(parents=True, exist_ok=True)
    if run is not None:
        shutil.copytree(run, folder, dirs_exist_ok=True)
    dump(folder / "learn.json", learn())
    place = folder / "search"
    place.mkdir()
    (place / "config.toml").write_text('task = "search-lm"\n')
    lines = [
        {"step": s, "structure_loss": 4 - s / 50, "gap": 0.1, "entropy": 1 - s / 100,
         "mass_tanh": 0.5 + s / 200, "mass_sigmoid": 0.5 - s / 200}
        for s in range(10, 60, 10)
    ]  # fmt: skip
    dump_lines(place / "metrics.jsonl", lines)
    about = {"strategy": "darts", "steps": 50, "seconds": 3.5, "finalists": [3.1, 3.2]}
    dump(place / "search.json", about)
    graph.save(graph.trace_cell(cells.MinGRU(4, 4)), place / "cell.json")
    dump(folder / "verdict.json", verdict())
    for unit in UNITS:
        for seed in range(SEEDS):
            each = folder / "verdict" / f"{unit.replace(' ', '-')}-{seed}"
            each.mkdir(parents=True)
            lines = [
                {"step": s, "valid_nll": 3 - s / 100 + seed / 10, "valid_tokens": 100}
                for s in (10, 20, 30)
            ]
            lines += [{"step": 30, "loss": 2.5, "tokens_per_second": 1e4, "seconds": 3.0}]
            dump_lines(each / "metrics.jsonl", lines)
    return folder


def learn() -> dict:
    return {
        "version": 1,
        "task": "lm",
        "command": f"metarnn learn '{HOSTILE}.txt' --minutes 1",
        "data": {"path": f"{HOSTILE}.txt", "sha256": "ab" * 32, "about": [f"{HOSTILE} text"]},
        "versions": {"metarnn": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
        "machine": "2 cores",
        "budget": {"minutes": 1.0},
        "parameters": 12000,
        "steps": 30,
        "seeds": [0, 1],
        "best": "gru",
        "best_run": "verdict/gru-0",
        "verdict": "GRU wins, but not by much.",
        "stages": [{"name": "search", "seconds": 61.2}],
    }


def verdict() -> dict:
    rows = [
        {"name": unit, "width": 10 + k, "parameters": 11900 + k,
         "scores": [{"nll": 3 + k / 10 + s / 100, "tokens": 100.0} for s in range(SEEDS)]}
        for k, unit in enumerate(UNITS)
    ]  # fmt: skip
    return {"split": "test", "steps": 30, "rows": rows, "words": [f"lstm is best {HOSTILE}"]}


def dump(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def dump_lines(path: Path, lines: list[dict]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
