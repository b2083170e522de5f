"""Settings for few-shot learning, by name."""

from __future__ import annotations

from typing import Any

# Finn et al. 2017, but for the learning rate that falls at the end; they have no schedule.
_SINUSOID: dict[str, Any] = {
    "family": "sinusoid",
    "batch": 25,
    "shots": 10,
    "queries": 10,
    "test_shots": 5,
    "test_steps": (1, 5, 10),
    "width": 40,
    "inner_steps": 1,
    "inner_lr": 0.01,
    "lr": 1e-3,
    "schedule": "cosine",
    "clip": 0.0,
    "validate_every": 2500,
    "log_every": 100,
}

_SEQUENCES: dict[str, Any] = {
    "batch": 16,
    "width": 32,
    "lr": 2e-3,
    "schedule": "cosine",
    "validate_every": 500,
    "inner_steps": 3,
    "inner_lr": 0.05,
    "test_steps": (1, 3),
}

_SYSTEM: dict[str, Any] = {
    **_SEQUENCES,
    "method": "maml",
    "history": 1,
    "inner_lr": 0.5,
    "test_steps": (1, 10, 3),
    "lr": 3e-3,
    "steps": 7000,
}

_CLASSES: dict[str, Any] = {**_SEQUENCES, "shots": 1, "queries": 5, "steps": 1000}

PRESETS: dict[str, dict[str, Any]] = {
    "sinusoid": {**_SINUSOID, "steps": 15_000},
    "sinusoid-published": {**_SINUSOID, "steps": 70_000},
    # Moving towards where single steps lead would teach it no more than the mean of all tasks.
    "sinusoid-reptile": {
        **_SINUSOID,
        "method": "reptile",
        "inner_steps": 4,
        "inner_lr": 0.02,
        "steps": 24_000,
    },
    # A history so short that it does not tell the parameters: that takes examples of the task.
    "vanderpol": {**_SYSTEM, "family": "vanderpol", "fresh": True, "inner_lr": 1.5},
    "lorenz": {**_SYSTEM, "family": "lorenz", "fresh": True},
    "mackeyglass": {**_SYSTEM, "family": "mackeyglass", "history": 4},
    "waves": {**_CLASSES, "family": "waves"},
    "sequences": {**_CLASSES, "family": "sequences"},
    "images": {**_CLASSES, "family": "images"},
    "characters": {
        **_SEQUENCES,
        "family": "characters",
        "data": "stdlib",
        "shots": 4,
        "queries": 4,
        "width": 128,
        "inner_lr": 0.5,
        "steps": 1000,
    },
}
