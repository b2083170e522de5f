"""Models as folders: model.json tells how to build one, model.safetensors its weights.

A run folder is such a folder too.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from metarnn.cells import check
from metarnn.graph import save as save_graph
from metarnn.graph import trace_cell
from metarnn.graph.files import beside, content, document, write_document
from metarnn.graph.sealed import KEY, ZEROS, DamagedError, seal_tensors, verify_tensors
from metarnn.layers import Recurrent
from metarnn.tasks.affordable import affordable
from metarnn.tasks.unit import CELL_FILES, FILE, META, moved, saved

MODEL, WEIGHTS = "model.json", "model.safetensors"
# The module of each kind of model has `restore(description) -> model`, and its models a
# `description`: plain data, without what stands in cell.json.
KINDS = {
    "language": "metarnn.tasks.language.build",
    "classification": "metarnn.tasks.classification.model",
    "forecasting": "metarnn.tasks.forecasting.model",
    "translation": "metarnn.tasks.translation.build",
}


def describe(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Write all but the weights of a model: model.json, and its units as graphs, in cell.json and
    (of a decoder) decoder.json."""
    description = getattr(model, "description", None)
    if not isinstance(description, dict):
        check.refuse("model", type(model).__name__, "a model of a task, which has a description")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    first = next(layer for layer in model.modules() if isinstance(layer, Recurrent))
    options = dict(description["options"])
    for name, layer in getattr(model, "cells", {"cell": first}).items():
        save_graph(trace_cell(saved(options[name], layer)), folder / CELL_FILES[name])
        options[name] = moved(options[name], CELL_FILES[name])
    write_document(folder / MODEL, {**description, "options": options})


def save_pretrained(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Write a model as a folder, from which `from_pretrained` makes it again.

    >>> from metarnn.tasks.classification import ClassifierOptions, build_model, load
    >>> model = build_model(load("digits").scheme, ClassifierOptions(width=4))
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_pretrained(model, folder)
    ...     again = from_pretrained(folder)
    >>> again.head.weight.equal(model.head.weight)
    True
    """
    describe(model, folder)
    weights = {name: w.detach().cpu().contiguous() for name, w in model.state_dict().items()}
    with beside(Path(folder) / WEIGHTS) as new:
        new.write_bytes(save(weights, {"format": "pt", KEY: ZEROS.decode()}))
        seal_tensors(new)


def from_pretrained(source: str | os.PathLike[str]) -> nn.Module:
    """The model of a folder that `save_pretrained` or `metarnn train` wrote, for use.

    `hf:OWNER/NAME` is fetched from the Hugging Face hub, which needs the package huggingface_hub.
    """
    folder = _fetched(str(source)) if str(source).startswith("hf:") else Path(source)
    model = described(folder)
    if not (folder / WEIGHTS).exists():
        raise FileNotFoundError(
            f"{folder} has no {WEIGHTS} yet: a run has it after its first validation"
        )
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"{folder / WEIGHTS} is no plain file")
    data = content(folder / WEIGHTS)
    try:
        verify_tensors(data)
    except DamagedError as error:
        raise DamagedError(f"{folder / WEIGHTS} is damaged: {error}") from None
    try:
        weights = load(data)
        model.load_state_dict(weights)
    except (RuntimeError, SafetensorError, ValueError, KeyError) as error:
        raise ValueError(f"{folder / WEIGHTS} does not fit {folder / MODEL}: {error}") from None
    for name, weight in weights.items():
        if not weight.isfinite().all():
            why = "has values that are not finite (NaN or infinity). The training diverged"
            raise ValueError(f"{folder / WEIGHTS}: the weight {name!r} {why}")
    return model.eval()


def described(folder: Path) -> nn.Module:
    """The model that a folder describes, with no weights yet."""
    path = folder / MODEL
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no model: there is no {MODEL} in it")
    description = document(path)
    try:
        kind = check.one_of("kind", description["kind"], KINDS)
        options = description["options"]
        # Of a unit from a file nowhere else than here, whatever is written there.
        for name in CELL_FILES.keys() & options.keys():
            options[name] = moved(options[name], str(folder / CELL_FILES[name]))
        restore = importlib.import_module(KINDS[kind]).restore
        return affordable(lambda: restore(description))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"{path} describes no model: {error}") from None


def unit_of(folder: Path) -> str:
    """What a configuration calls the unit of the model in a folder: a name, or its own file."""
    description = document(folder / MODEL)
    try:
        options = description["options"]
        kind = options.get("model", "plain")
        name = moved(options["cell"], str(folder / FILE))
        if kind == "hyperlstm" or (kind, name) == ("mogrifier", "lstm"):
            return kind
        if kind == "mogrifier":
            return str(folder / FILE)
        return f"{META}{name}" if kind == "meta" else name
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / MODEL} describes no model: {error}") from None


def _fetched(source: str) -> Path:
    try:
        from huggingface_hub import snapshot_download  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{source} needs the package huggingface_hub: pip install 'metarnn[hub]'"
        ) from None
    files = [MODEL, WEIGHTS, FILE, "*.json"]
    return Path(snapshot_download(source.removeprefix("hf:"), allow_patterns=files))
