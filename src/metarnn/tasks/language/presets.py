"""Settings by name: what to read, which model, how to train it."""

from __future__ import annotations

from typing import Any

# Keys are those of a run's configuration: of `corpus.load`, `LanguageTask`, `ModelOptions`, and of
# the training's settings. Data that has to be fetched is named as its files are usually called.
PRESETS: dict[str, dict[str, Any]] = {
    # On two cores within five minutes: what `metarnn train lm` does when nothing is said.
    "char-small": {
        "data": "pydoc",
        "level": "character",
        "cell": "gru",
        "width": 384,
        "embedding": 128,
        "input_dropout": 0.1,
        "output_dropout": 0.3,
        "batch": 16,
        "length": 64,
        "optimizer": "adamw",
        "lr": 3e-3,
        "betas": (0.9, 0.99),
        "weight_decay": 0.01,
        "schedule": "cosine",
        "warmup": 50,
        "floor": 0.02,
        "clip": 1.0,
        "minutes": 4.0,
        "validate_every": 500,
    },
    # The LSTM-1000 of Ha, Dai, Le 2016 (4.25M parameters, one-hot inputs, batch 128, BPTT 100,
    # Adam 1e-3, clip 1.0, 1.312 bits), with weight-drop and a learning rate that suits it: 1.267
    # bits (docs/results.md). In these files characters are parted by spaces.
    "char-ptb": {
        "data": "ptb.char.train.txt",
        "level": "word",
        "cell": "lstm",
        "width": 1000,
        "embedding": 0,
        "output_dropout": 0.2,
        "weight_drop": 0.3,
        "init": "torch",
        "batch": 128,
        "length": 100,
        "optimizer": "adamw",
        "lr": 2.7e-3,
        "betas": (0.9, 0.999),
        "schedule": "cosine",
        "warmup": 100,
        "floor": 0.02,
        "clip": 1.0,
        "epochs": 100.0,
        "validate_every": 5000,
    },
    # AWD-LSTM (Merity, Keskar, Socher 2018): 24M parameters, test perplexity 57.3 after the whole
    # schedule of 500 epochs.
    "word-ptb": {
        "data": "ptb.train.txt",
        "level": "word",
        "cell": "lstm",
        "width": 1150,
        "layers": 3,
        "embedding": 400,
        "tied": True,
        "embedding_dropout": 0.1,
        "input_dropout": 0.4,
        "hidden_dropout": 0.25,
        "output_dropout": 0.4,
        "weight_drop": 0.5,
        "init": "torch",
        "ar": 2.0,
        "tar": 1.0,
        "random_lengths": True,
        "batch": 20,
        "length": 70,
        "optimizer": "sgd",
        "lr": 30.0,
        "weight_decay": 1.2e-6,
        "schedule": "constant",
        "clip": 0.25,
        "nonmono": 5,
        "epochs": 500.0,
        "validate_every": 664,
    },
    # One document, 90/10 as everybody cuts it; at most 10.7M parameters.
    "tinyshakespeare": {
        "data": "tinyshakespeare.txt",
        "level": "character",
        "split": "90/10",
        "cell": "lstm",
        "width": 704,
        "layers": 3,
        "embedding": 128,
        "input_dropout": 0.1,
        "hidden_dropout": 0.4,
        "output_dropout": 0.4,
        "weight_drop": 0.4,
        "batch": 64,
        "length": 128,
        "optimizer": "adamw",
        "lr": 2e-3,
        "betas": (0.9, 0.99),
        "weight_decay": 0.01,
        "schedule": "cosine",
        "warmup": 100,
        "floor": 0.02,
        "clip": 1.0,
        "minutes": 4.5,
        "validate_every": 250,
        "patience": 8,
    },
}

# The same with weights that are generated, at the same number of parameters or fewer.
PRESETS["char-small-meta"] = PRESETS["char-small"] | {"model": "meta", "params": "647k"}
# With "torch" what writes weights would not start at 0.
_PTB = PRESETS["char-ptb"] | {"init": "small"}
# Ha, Dai, Le 2016: 4.91M parameters, 1.265 bits; here 1.270 after 35,800 updates.
PRESETS["char-ptb-hyperlstm"] = _PTB | {
    "model": "hyperlstm",
    "hyper": 128,
    "output_dropout": 0.3,
    "weight_drop": 0.35,
    "ema": 0.999,
}
# With the LSTM's dropout both of these would learn the training text by heart; with half as much
# again as this they learn too little of it (docs/results.md).
_DROPPED = _PTB | {
    "embedding": 128,
    "input_dropout": 0.05,
    "output_dropout": 0.3,
    "weight_drop": 0.4,
    "ema": 0.999,
    "validate_every": 20000,
}
# Two layers of 4.86M parameters together, 1.233 bits; one of 960 units and five rounds 1.254.
PRESETS["char-ptb-mogrifier"] = _DROPPED | {
    "model": "mogrifier",
    "width": 560,
    "layers": 2,
    "rounds": 2,
    "hidden_dropout": 0.2,
    "weight_drop": 0.3,
    "lr": 3.3e-3,
}
PRESETS["char-ptb-meta"] = _DROPPED | {
    "model": "meta",
    "form": ("bounded",),
    "context": "state",
    "encoder": "lstm",
    "hyper": 128,
    "width": 800,
}
