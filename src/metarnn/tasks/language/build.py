"""A language model from a few settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from metarnn.cells import Cell, check
from metarnn.hyper import HyperLSTM, MetaRecurrent, Mogrifier
from metarnn.layers import Recurrent
from metarnn.tasks import unit as units
from metarnn.tasks.language.model import (
    MOST_LAYERS,
    LanguageModel,
    parse_count,
    solve_width,
)
from metarnn.tasks.typed import checked, typed
from metarnn.tasks.unit import META, Make


@dataclass(frozen=True)
class ModelOptions:
    """The model's part of a configuration.

    Args:
        cell: the recurrent unit: lstm, gru, mingru, ..., a file with a cell's graph (.json), or on
            the command line one that was found for another text (found/NAME); meta-gru is gru
            with --model meta
        model: what becomes of the unit: plain, meta (its weights are generated), mogrifier (the
            input and the state scale each other before it), hyperlstm (in its place)
        rounds: rounds of the mogrifier
        rank: rank of the mogrifier's matrices; 0 for whole ones
        hyper: width of the network that writes weights; 0 for a quarter of the unit's, and at most
            16 where it reads the present input alone
        form: what meta writes: scale (columns of recurrent maps), rows, columns (of all maps),
            both, bounded, lowrank, mixture, full, structure; several chain
        context: what meta writes it from: step (inputs up to now), state (also the last state)
        encoder: what reads that: input (the present one alone), a cell's name, conv, transformer;
            auto is input, or gru with --context state
        reconstruct: what it says of an input also has to tell that input, for `Omega`
        width: hidden units of a layer; a cell of a file has its own, unless params asks for another
        layers: how many layers
        embedding: width of the embedding; 0 for one-hot vectors
        tied: the softmax uses the embedding's weights; the last layer is then as wide as that
        params: find the width that gives this many parameters, as in 5M
        embedding_dropout: drop whole tokens from a batch
        input_dropout: drop embeddings, one mask for all steps
        hidden_dropout: the same between layers
        output_dropout: the same before the softmax
        weight_drop: drop recurrent weights
        zoneout: units that keep their old value for a step
        layer_norm: normalise inside the unit, where it can
        init: starting weights: orthogonal, small (half as large recurrent ones) or torch
        cutoffs: an adaptive softmax: the ranks at which tokens become cheap, as in 2000 10000
        engine: how the steps are run: auto, cpu, native, scan or eager
    """

    cell: str = "lstm"
    model: Literal["plain", "meta", "mogrifier", "hyperlstm"] = "plain"
    rounds: int = 5
    rank: int = 0
    hyper: int = 0
    form: tuple[str, ...] = ("scale",)
    context: Literal["step", "state"] = "step"
    encoder: str = "auto"
    reconstruct: bool = False
    width: int = 512
    layers: int = 1
    embedding: int = 128
    tied: bool = False
    params: str = ""
    embedding_dropout: float = 0.0
    input_dropout: float = 0.0
    hidden_dropout: float = 0.0
    output_dropout: float = 0.0
    weight_drop: float = 0.0
    zoneout: float = 0.0
    layer_norm: bool = False
    init: Literal["orthogonal", "small", "torch"] = "orthogonal"
    cutoffs: tuple[int, ...] = ()
    engine: str = "auto"


def build_model(
    vocabulary_size: int, options: ModelOptions, unit: Make | None = None
) -> LanguageModel:
    """The model that the options describe, for a vocabulary of this size.

    >>> build_model(100, ModelOptions(width=32, layers=2, embedding=16, tied=True)).layers[1]
    Recurrent(LSTM(input_size=32, hidden_size=16, ...

    With `unit`, a function of the widths of input and state, that is the recurrent unit.
    """
    options = spelled(options)
    if unit is None:
        unit = partial(_unit, options)
        options = solved(vocabulary_size, options)
    check.size("width", options.width)
    layers: list[Recurrent] = []
    inputs = check.size("embedding", options.embedding, least=0) or vocabulary_size
    check.size("vocabulary_size", vocabulary_size)
    for k in range(check.size("layers", options.layers, most=MOST_LAYERS)):
        last = options.tied and k == options.layers - 1
        layer = _layer(options, unit, inputs, options.embedding if last else options.width)
        if k == 0 and not options.embedding:
            _spread(layer)
        layers.append(layer)
        inputs = layer.output_size
    cutoffs = tuple(cutoff for cutoff in options.cutoffs if cutoff < vocabulary_size)
    model = LanguageModel(
        vocabulary_size,
        layers,
        embedding=options.embedding,
        tied=options.tied,
        embedding_dropout=options.embedding_dropout,
        input_dropout=options.input_dropout,
        hidden_dropout=options.hidden_dropout,
        output_dropout=options.output_dropout,
        cutoffs=cutoffs,
    )
    model.description = {
        "kind": "language",
        "vocabulary_size": vocabulary_size,
        "options": asdict(replace(options, params="")),
    }
    return model


def restore(description: Mapping[str, Any]) -> LanguageModel:
    """The model, without its weights, that has this description."""
    size = checked("vocabulary_size", description["vocabulary_size"], int)
    return build_model(size, typed(ModelOptions, description["options"]))


def _spread(layer: Recurrent) -> None:
    """Starting weights for one-hot vectors, each of which reaches a gate through one weight.

    What suits many inputs of variance 1 would hardly move a gate (0.04 for a vocabulary of 50 and
    1000 units). 0.3 is what embeddings of the usual start give.
    """
    unit = getattr(layer.cell, "unit", layer.cell)
    with torch.no_grad():
        for name, m in unit.maps.items():
            if not m.recurrent and m.inputs == unit.window * unit.input_size:
                nn.init.normal_(layer.weights(0)[f"weight_{name}"], std=0.3)


def _layer(options: ModelOptions, make: Make, inputs: int, outputs: int) -> Recurrent:
    check.one_of("model", options.model, ["plain", "meta", "mogrifier", "hyperlstm"])
    names = ("weight_drop", "zoneout", "init", "engine")
    more: Any = {name: getattr(options, name) for name in names}
    width = check.size("hyper", options.hyper, least=0)
    if options.model == "hyperlstm":
        unit = HyperLSTM(
            inputs, outputs, width or max(outputs // 4, 4), layer_norm=options.layer_norm
        )
        return Recurrent(unit, **more)
    unit = make(inputs, outputs)
    if options.model == "meta":
        made = {
            name: getattr(options, name) for name in ("form", "context", "encoder", "reconstruct")
        }
        return MetaRecurrent(unit, width=width or None, **made, **more)
    if options.model == "mogrifier":
        check.size("rounds", options.rounds, least=0, most=MOST_LAYERS)
        unit = Mogrifier(unit, options.rounds, options.rank)
    return Recurrent(unit, **more)


def _unit(options: ModelOptions, inputs: int, outputs: int) -> Cell:
    rescale = bool(options.params)
    return units.unit(options.cell, inputs, outputs, rescale=rescale, layer_norm=options.layer_norm)


def spelled(options: ModelOptions) -> ModelOptions:
    """The same, with a cell meta-NAME as NAME and model="meta"."""
    if not options.cell.startswith(META):
        return options
    return replace(options, cell=options.cell.removeprefix(META), model="meta")


def solved(vocabulary_size: int, options: ModelOptions) -> ModelOptions:
    """The same with the width that `params` asks for."""
    options = spelled(options)
    if not options.params:
        return options
    plain, unit = replace(options, params=""), partial(_unit, options)
    width = solve_width(
        parse_count(options.params),
        lambda width: build_model(vocabulary_size, replace(plain, width=width), unit),
    )
    return replace(plain, width=width)
