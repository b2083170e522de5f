"""An encoder–decoder from a few settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.tasks import unit as units
from metarnn.tasks.language.model import parse_count, solve_width
from metarnn.tasks.language.vocabulary import SPECIAL, Vocabulary
from metarnn.tasks.translation.model import EncoderDecoder
from metarnn.tasks.typed import checked, typed
from metarnn.tasks.unit import Make


@dataclass(frozen=True)
class ModelOptions:
    """The model's part of a configuration.

    Args:
        cell: the recurrent unit: lstm, gru, sru, ..., or a file with a cell's graph (.json); one
            whose weights are generated is meta-lstm, meta-gru, ...
        decoder_cell: the decoder's, where it is another one
        width: hidden units of a layer; an encoder of two directions has half of them in each, and
            a cell of a file its own, unless params asks for another
        layers: how many layers the encoder has
        decoder_layers: how many the decoder has; 0 for as many
        embedding: width of the embeddings
        bidirectional: the encoder reads from both ends
        attention: how the decoder looks at the source: additive, dot, multihead or none
        heads: of multihead attention
        coverage: what was attended to counts in attention
        initial: the encoder's last state is the decoder's first
        summary: the encoder's last output is an input of every step of the decoder
        feeding: what a step put out is an input of the next; steps then run one by one
        copy: tokens may be copied from the source
        tied: the softmax uses the target embedding's weights
        shared: source and target have one embedding; needs a joint vocabulary
        params: find the width that gives this many parameters, as in 5M
        dropout: on embeddings, between layers and before the softmax
        weight_drop: drop recurrent weights
        engine: how the steps are run: auto, cpu, triton, native, scan or eager
    """

    cell: str = "lstm"
    decoder_cell: str = ""
    width: int = 256
    layers: int = 1
    decoder_layers: int = 0
    embedding: int = 128
    bidirectional: bool = True
    attention: Literal["none", "additive", "dot", "multihead"] = "dot"
    heads: int = 4
    coverage: bool = False
    initial: bool = True
    summary: bool = False
    feeding: bool = False
    copy: bool = False
    tied: bool = False
    shared: bool = False
    params: str = ""
    dropout: float = 0.0
    weight_drop: float = 0.0
    engine: str = "auto"


def build_model(
    source: Vocabulary, target: Vocabulary, options: ModelOptions, unit: Make | None = None
) -> EncoderDecoder:
    """The model that the options describe, between these vocabularies.

    >>> words = Vocabulary.build([["a b c"]], "word")
    >>> model = build_model(words, words, ModelOptions(width=32, layers=2, embedding=16))
    >>> [layer.input_size for layer in model.layers]
    [16, 64]

    With `unit`, a function of the widths of input and state, that is the recurrent unit.
    """
    made = _units(options) if unit is None else (unit, unit)
    return _build(source, target, solved(source, target, options), *made)


def _build(
    source: Vocabulary, target: Vocabulary, o: ModelOptions, first: Make, second: Make
) -> EncoderDecoder:
    """A model with the first unit in its encoder and the second in its decoder."""
    if o.shared and source != target:
        check.refuse("shared", True, "False without a joint vocabulary", "Use --joint.")
    numbers = copies(source, target) if o.copy else None
    return _assemble(len(source), len(target), numbers, o, first, second)


def restore(description: Mapping[str, Any]) -> EncoderDecoder:
    """The model, without its weights, that has this description."""
    options = typed(ModelOptions, description["options"])
    source_size, target_size = (
        check.size(name, checked(name, description[name], int))
        for name in ("source_size", "target_size")
    )
    numbers = None
    if options.copy:
        listed = checked("copies", description["copies"], tuple[int, ...])
        if len(listed) != source_size or not all(-1 <= n < target_size for n in listed):
            expected = f"{source_size} numbers from -1 to {target_size - 1}"
            check.refuse("copies", f"{len(listed)} numbers", expected)
        numbers = torch.tensor(listed)
    return _assemble(source_size, target_size, numbers, options, *_units(options))


def _assemble(
    source_size: int,
    target_size: int,
    numbers: Tensor | None,
    o: ModelOptions,
    first: Make,
    second: Make,
) -> EncoderDecoder:
    check.size("width", o.width)
    check.size("embedding", o.embedding)
    if o.bidirectional and o.width % 2:
        check.refuse("width", o.width, "an even number, half of it for each direction")
    depth = check.size("decoder_layers", o.decoder_layers, least=0) or o.layers
    each = o.width // 2 if o.bidirectional else o.width
    more: dict[str, Any] = {"weight_drop": o.weight_drop, "engine": o.engine}
    encoder = units.layers(
        o.cell,
        first(o.embedding, each),
        num_layers=check.size("layers", o.layers),
        bidirectional=o.bidirectional,
        dropout=o.dropout if o.layers > 1 else 0.0,
        **more,
    )
    name = o.decoder_cell or o.cell
    context = 0 if o.attention == "none" else encoder.output_size
    last = second(o.embedding, o.width).output_size
    inputs = o.embedding + encoder.output_size * o.summary
    inputs += (o.embedding if o.tied else last) * o.feeding
    layers = []
    for k in range(depth):
        layers.append(units.layers(name, second(inputs, o.width), **more))
        inputs = layers[-1].output_size + (0 if k else context)
    model = EncoderDecoder(
        source_size,
        target_size,
        encoder,
        layers,
        embedding=o.embedding,
        attention=o.attention,
        heads=o.heads,
        coverage=o.coverage,
        initial=o.initial,
        summary=o.summary,
        feeding=o.feeding,
        tied=o.tied,
        shared=o.shared,
        copies=numbers,
        dropout=o.dropout,
    )
    model.description = {
        "kind": "translation",
        "source_size": source_size,
        "target_size": target_size,
        "copies": None if numbers is None else numbers.tolist(),
        "options": asdict(replace(o, params="", decoder_cell=name)),
    }
    return model


def solved(source: Vocabulary, target: Vocabulary, options: ModelOptions) -> ModelOptions:
    """The same with the width that `params` asks for."""
    if not options.params:
        return options
    plain = replace(options, params="")
    factor = 2 if options.bidirectional else 1
    budget = parse_count(options.params)
    made = _units(options)
    half = solve_width(
        budget, lambda w: _build(source, target, replace(plain, width=factor * w), *made)
    )
    return replace(plain, width=factor * half)


def copies(source: Vocabulary, target: Vocabulary) -> Tensor:
    """For each source token its number in the target's vocabulary; -1 for none.

    >>> source, target = (Vocabulary.build([[text]]) for text in ("ab", "bc"))
    >>> copies(source, target).tolist()
    [-1, -1, -1, -1, -1, 4]
    """
    numbers = [target.numbers.get(token, -1) for token in source.tokens]
    return torch.tensor([-1] * len(SPECIAL) + numbers[len(SPECIAL) :])


def _units(options: ModelOptions) -> tuple[Make, Make]:
    """The units of encoder and decoder that the options name."""
    rescale = bool(options.params)

    def named(name: str) -> Make:
        return lambda inputs, width: units.unit(name, inputs, width, rescale=rescale)

    return named(options.cell), named(options.decoder_cell or options.cell)
