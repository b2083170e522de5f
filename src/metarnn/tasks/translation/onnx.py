"""Translators as ONNX: one file reads a source sentence, the other writes a token of the target."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from metarnn.hyper.onnx import GIVEN
from metarnn.layers.onnx import Builder, Loop, write_alive, write_end, write_states, write_step
from metarnn.tasks.translation.attention import Attention
from metarnn.tasks.translation.bridge import Bridge
from metarnn.tasks.translation.model import TINY, EncoderDecoder, State

Shape = tuple[int | str, ...]
FIXED = ("keys", "values", "mask", "tokens", "summary")  # the same at all steps of the decoder


def tensors(model: EncoderDecoder, state: State) -> dict[str, Tensor]:
    """What a step goes on from, by the names that the files have for it."""
    found: dict[str, Tensor | None] = {}
    if state.memory is not None:
        found |= state.memory._asdict()
    found["summary"] = state.summary
    parts = [part for layer in state.layers for part in _parts(layer)]
    found |= {f"state_{k}": part for k, part in enumerate(parts)}
    found |= {"covered": state.covered, "fed": state.fed}
    names = _carried(model).keys()
    return {n: value for n, value in found.items() if value is not None and n in names}


def _parts(layer: Any) -> tuple[Tensor, ...]:
    if layer is None:  # begins with zeros
        return ()
    return layer if isinstance(layer, tuple) else (layer,)


def _carried(model: EncoderDecoder) -> dict[str, Shape]:
    """The shapes of what `tensors` names, in that order."""
    found: dict[str, Shape] = {}
    if model.attention is not None:
        width = model.attention.key.out_features
        found |= {"keys": ("S", "B", width), "values": ("S", "B", width), "mask": ("S", "B")}
        if model.copies is not None:
            found["tokens"] = ("S", "B")
    if model.reads_summary:
        found["summary"] = (1, "B", model.encoder.output_size)
    sizes = [n for layer in model.layers for n in _sizes(layer)]
    found |= {f"state_{k}": (1, "B", n) for k, n in enumerate(sizes)}
    if model.attention is not None:
        found["covered"] = ("S", "B")
    if model.feeding:
        found["fed"] = (1, "B", model.readout_size)
    return found


def _sizes(layer: Any) -> tuple[int, ...]:
    return tuple(layer.state_sizes)


KINDS = {"mask": "bool", "tokens": "int64"}


def write_encoder(b: Builder, model: EncoderDecoder, int8: bool = False) -> list[str]:
    """Add x [S, B] and lengths [B] to a graph, and what decoding begins with as its outputs."""
    x, lengths = b.input("x", ("S", "B"), "int64"), b.input("lengths", ("B",), "int64")
    alive = write_alive(b, x, lengths)
    table = model.embedding if model.source_embedding is None else model.source_embedding
    embedded = b.add("Gather", b.const(table.weight.float(), "embedding"), x, axis=0)
    embedded = b.add("Where", alive, embedded, b.const(torch.zeros(1)))
    states, final = write_states(b, model.encoder, embedded, Loop(alive, int8, GIVEN))
    batch, carried = b.batch(x, 1), _carried(model)
    made: dict[str, str] = {}
    if model.attention is not None:
        made["keys"] = _linear(b, model.attention.key, states)
        made["values"] = _linear(b, model.attention.value, states)
        made["mask"] = b.add("Squeeze", alive, b.ints(2))
        if model.copies is not None:
            made["tokens"] = b.add("Gather", b.const(model.copies), x, axis=0)
        made["covered"] = b.filled(b.batch(x, 0), batch)
    if model.reads_summary:
        made["summary"] = b.add("Unsqueeze", _summary(b, model, states, alive), b.ints(0))
    if model.feeding:
        made["fed"] = b.filled(b.ints(1), batch, b.ints(model.readout_size))
    if model.bridge is None:
        sizes = [n for layer in model.layers for n in _sizes(layer)]
        begin = [b.filled(b.ints(1), batch, b.ints(n)) for n in sizes]
    else:
        begin = _bridged(b, model.bridge, final)
    made |= {f"state_{k}": value for k, value in enumerate(begin)}
    for name, shape in carried.items():
        b.output(made[name], name, shape, KINDS.get(name, "float32"))
    return list(carried)


def _linear(b: Builder, map: nn.Module, x: str) -> str:
    return b.linear(x, map.weight, map.bias) if isinstance(map, nn.Linear) else x


def _summary(b: Builder, model: EncoderDecoder, states: str, alive: str) -> str:
    """As `EncoderDecoder._summary`, [B, n]."""
    last = write_end(b, states, alive, False)
    if not model.encoder.bidirectional or model.encoder.merge == "sum":
        return last
    width = model.encoder.output_size
    first = write_end(b, states, alive, True)
    ends = b.slice(last, 0, width // 2, -1), b.slice(first, width // 2, width, -1)
    return b.add("Concat", *ends, axis=-1)


def _bridged(b: Builder, bridge: Bridge, parts: list[str]) -> list[str]:
    """As `Bridge.forward`: the parts of all layers, [1, B, n]."""
    found: list[str] = []
    for k, sizes in enumerate(bridge.sizes):
        first = min(k, bridge.depth - 1) * bridge.directions
        rows = range(first, first + bridge.directions)
        if bridge.direct:
            found += [b.slice(part, first, first + 1, 0) for part in parts]
            continue
        flat = b.add(
            "Concat", *(b.slice(p, row, row + 1, 0) for p in parts for row in rows), axis=-1
        )
        begun, start = b.add("Tanh", _linear(b, bridge.maps[k], flat)), 0
        for size in sizes:
            found.append(b.slice(begun, start, start + size, -1))
            start += size
    return found


def write_decoder(b: Builder, model: EncoderDecoder, int8: bool = False) -> list[str]:
    """Add a step of the decoder to a graph: from tokens x [B] and the state to the
    log-probabilities y [B, V] of what follows, and what of the state changes."""
    x, carried = b.input("x", ("B",), "int64"), _carried(model)
    state = {name: b.input(name, s, KINDS.get(name, "float32")) for name, s in carried.items()}
    after: dict[str, str] = {}
    read = [b.add("Gather", b.const(model.embedding.weight.float(), "embedding"), x, axis=0)]
    read += [b.add("Squeeze", state[n], b.ints(0)) for n in ("summary", "fed") if n in state]
    h = b.add("Concat", *read, axis=-1) if len(read) > 1 else read[0]
    context, weights, count = "", "", 0
    for k, layer in enumerate(model.layers):
        if k == 1 and context:
            h = b.add("Concat", h, context, axis=-1)
        names = [f"state_{count + i}" for i in range(len(_sizes(layer)))]
        count += len(names)
        recurrent: Any = layer
        h, new = write_step(b, recurrent, h, [state[name] for name in names], int8, GIVEN)
        after |= dict(zip(names, new, strict=True))
        if k == 0 and model.attention is not None:
            context, weights = _attended(b, model.attention, h, state)
            seen = b.add("Transpose", weights, perm=[1, 0])
            after["covered"] = b.add("Add", state["covered"], seen)
    h = b.add("Concat", h, context, axis=-1) if context else h
    o = b.add("Tanh", _linear(b, model.readout, h))
    if "fed" in state:
        after["fed"] = b.add("Unsqueeze", o, b.ints(0))
    b.output(_log_p(b, model, o, weights, state), "y", ("B", model.bias.shape[0]))
    changed = [name for name in carried if name not in FIXED]
    for name in changed:
        b.output(after[name], f"{name}_next", carried[name])
    return changed


def _attended(b: Builder, attention: Attention, h: str, state: dict[str, str]) -> tuple[str, str]:
    """As `Attention.forward` for one query a sentence: the context [B, m] and weights [B, S]."""
    heads, width = attention.heads, attention.key.out_features
    query = _linear(b, attention.query, h)
    apart = b.ints(0, 0, heads, -1)
    if attention.score is not None:
        keys = b.add("Transpose", state["keys"], perm=[1, 0, 2])
        together = b.add("Tanh", b.add("Add", b.add("Unsqueeze", query, b.ints(1)), keys))
        e = b.linear(together, attention.score.unsqueeze(0), None)  # [B, S, 1]
        e = b.add("Transpose", e, perm=[0, 2, 1])
    else:
        query = b.add("Reshape", query, b.ints(0, heads, -1))
        keys = b.add("Reshape", state["keys"], apart)
        e = b.add("Einsum", query, keys, equation="bhk,sbhk->bhs")
        e = b.add("Div", e, b.const(torch.tensor([(width // heads) ** 0.5])))
    if attention.gamma is not None:
        covered = b.add("Unsqueeze", b.add("Transpose", state["covered"], perm=[1, 0]), b.ints(1))
        e = b.add("Add", e, b.add("Mul", b.const(attention.gamma.float().unsqueeze(-1)), covered))
    there = b.add("Unsqueeze", b.add("Transpose", state["mask"], perm=[1, 0]), b.ints(1))
    a = b.add("Softmax", b.add("Where", there, e, b.const(torch.full((1,), -torch.inf))), axis=-1)
    values = b.add("Reshape", state["values"], apart)
    context = b.add("Einsum", a, values, equation="bhs,sbhv->bhv")
    context = _linear(b, attention.output, b.add("Reshape", context, b.ints(0, -1)))
    return context, b.add("ReduceMean", a, b.ints(1), keepdims=0)


def _log_p(b: Builder, model: EncoderDecoder, o: str, weights: str, state: dict[str, str]) -> str:
    """As `EncoderDecoder.log_p`, [B, V]."""
    weight = model.embedding.weight if model.weight is None else model.weight
    logits = b.linear(o, weight, model.bias)
    if model.gate is None:
        return b.add("LogSoftmax", logits, axis=-1)
    zero = b.const(torch.tensor(0))
    tokens = b.add("Transpose", state["tokens"], perm=[1, 0])  # [B, S]
    copied = b.add("Mul", b.add("Sigmoid", _linear(b, model.gate, o)), weights)
    copied = b.add("Where", b.add("Less", tokens, zero), b.const(torch.zeros(1)), copied)
    g = b.add("ReduceSum", copied, b.ints(-1), keepdims=1)
    p = b.add("Mul", b.add("Sub", b.const(torch.ones(1)), g), b.add("Softmax", logits, axis=-1))
    places = b.add("Max", tokens, zero)
    p = b.add("ScatterElements", p, places, copied, axis=1, reduction="add")
    return b.add("Log", b.add("Max", p, b.const(torch.tensor([TINY]))))
