"""Settings by name: what to translate, which model, how to train it."""

from __future__ import annotations

from typing import Any

_SMALL: dict[str, Any] = {
    "level": "character",
    "cell": "gru",
    "width": 128,
    "embedding": 32,
    "attention": "dot",
    "batch": 64,
    "optimizer": "adamw",
    "lr": 3e-3,
    "betas": (0.9, 0.99),
    "schedule": "cosine",
    "warmup": 50,
    "floor": 0.02,
    "clip": 1.0,
    "validate_every": 250,
}

# Keys are those of a run's configuration: of `corpus.load`, `TranslationTask`, `ModelOptions`, and
# of the training's settings.
PRESETS: dict[str, dict[str, Any]] = {
    # On two cores within three minutes: what `metarnn train translation` does when nothing is said.
    "dates": {**_SMALL, "data": "dates", "steps": 800},
    # Numbers in words are up to a hundred characters.
    "numbers": {**_SMALL, "data": "numbers", "width": 192, "steps": 2500},
    # Captions, 29,000 pairs of train.de and train.en beside val and test2016.
    "multi30k": {
        "data": "multi30k",
        "source": "de",
        "target": "en",
        "level": "bpe",
        "joint": True,
        "lowercase": True,
        "max_size": 8000,
        "longest": 80,
        "cell": "lstm",
        "width": 512,
        "layers": 2,
        "embedding": 512,
        "attention": "multihead",
        "heads": 4,
        "tied": True,
        "shared": True,
        "dropout": 0.4,
        "smoothing": 0.1,
        "batch": 128,
        "optimizer": "adamw",
        "lr": 1e-3,
        "betas": (0.9, 0.98),
        "weight_decay": 0.01,
        "schedule": "cosine",
        "warmup": 400,
        "floor": 0.02,
        "clip": 1.0,
        "epochs": 25.0,
        "ema": 0.998,
        "validate_every": 452,
        "select": "bleu",
        "beam": 5,
        "length_penalty": 1.0,
    },
}
