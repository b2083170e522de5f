"""What follows from a cell alone, for every device: its step as a graph, cut in three.

`before` needs no state and is computed for all steps at once, `loop` must wait for the step before,
`after` is needed by no state. The plan says what each part reads and how results are put together.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

from torch import Tensor

from metarnn.cells import Cell, Theta, check, shapes
from metarnn.engines.recurrence import Recurrence, Zoneout, guarded
from metarnn.graph import (
    Graph,
    Linear,
    Node,
    Parts,
    Reverse,
    Saved,
    Schedule,
    Untraceable,
    cut,
    reverse,
    trace,
    trace_cell,
)

Key = tuple[str, str]  # the kind of a source, and its name
X: Key = ("input", "x")
COUNTABLE = 2**57  # elements of a row for each step and sequence: eight gates of eight bytes
MOST_PLANS = 512  # that a process keeps

# Inputs that are masks: no gradient is asked for.
MASKS = ("alive", "resets", "zoneout.", "columns.")


@dataclass(frozen=True)
class LoopProduct:
    """A matrix product in the loop, and the tensors that its weight's gradient is computed from."""

    map: str
    start: int
    stop: int
    bias: bool
    state: int | None  # the state it multiplies, if it is one
    adjoint: str  # the backward loop's output that holds the adjoint of the product
    argument: str  # and the one that holds its argument, unless that is a state

    @property
    def columns(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class LoopGraphs:
    """The loop without gradients, with them, and its backward pass.

    `train` also outputs `product.k`, the saved row k, which `backward` reads.
    """

    infer: Graph
    train: Graph
    backward: Reverse


class LoopPlan:
    """A cell's step, with masks, cut in three.

    Attributes:
        name: The cell and its size, for names in generated kernels: see `cell_name`.
        parts: The graph as a whole, its loop, and what passes between the parts.
        loop: The graph of what must wait for the state.
        loop_arguments: What the loop reads, in the order of its tensors after the states.
        projections: The inputs of the loop that are products of x, each with its node; empty where
            something else comes before the loop.
        projection_arguments: What the loop and its projections read together, x first.
        products: The matrix products in the loop.
        uses: The products that each weight and bias takes part in.
        results: The outputs of the loop, each with the state whose history holds it, if one does.
        weights: (key, name, shape) of each weight that is read.
        output: Which of the results the layer's output is, if it is one.
    """

    def __init__(self, name: str, parts: Parts, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.name, self.parts, self.loop = name, parts, parts.loop
        self._read_products()
        loop, products = self.loop, self.products
        self.loop_arguments: list[Key] = [
            (kind, name) for kind in ("input", "context", "vector") for name in loop.named(kind)
        ]
        self.loop_arguments += [("weight", name) for name in dict.fromkeys(p.map for p in products)]
        self.loop_arguments += [
            ("bias", name) for name in dict.fromkeys(p.map for p in products if p.bias)
        ]
        # A kept output that is the next value of a state lies in the array of that state.
        self.shared = {
            name: loop.next_states.index(k)
            for name, k in loop.outputs.items()
            if k in loop.next_states
        }
        self.results = [(name, self.shared.get(name)) for name in loop.outputs]
        # For each state its width, and whether an output lies in its array.
        self.states = [
            (width, k in self.shared.values()) for k, width in enumerate(self.loop.states)
        ]
        self._read_parts(shapes)

    def _read_products(self) -> None:
        nodes = self.loop.nodes
        linear = [node for node in nodes if node.op == "linear"]
        self.products = [
            LoopProduct(
                node["map"],
                node["start"],
                node["stop"],
                node["bias"],
                nodes[node.args[0]].attributes.get("index"),
                f"dproduct.{i}",
                f"argument.{i}",
            )
            for i, node in enumerate(linear)
        ]
        self.uses: dict[Key, list[LoopProduct]] = {}
        for product in self.products:
            for kind in ("weight", "bias") if product.bias else ("weight",):
                self.uses.setdefault((kind, product.map), []).append(product)

    def _read_parts(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """How to get from the sources to the loop's inputs, and from its results to the output."""
        full, kept = self.parts.full, list(self.parts.kept.values())
        y = full.outputs["y"]
        self.before = Schedule(full, self.parts.hoisted.values())
        self.after = Schedule(full, [y], kept)
        self.output = kept.index(y) if y in kept else None
        self.before_sources = [(k, _key(full, k)) for k in self.before.sources]
        self.after_sources = [(k, _key(full, k)) for k in self.after.sources]
        # Products of x, if nothing else is hoisted: the usual case needs no schedule.
        hoisted = [(name, full.nodes[k]) for name, k in self.parts.hoisted.items()]
        x = full.named("input").get("x")
        only_products = all(node.op == "linear" and node.args == (x,) for _, node in hoisted)
        self.projections: list[tuple[Key, Node]] = (
            [(("input", name), node) for name, node in hoisted] if only_products else []
        )
        projected = {key for key, _ in self.projections}
        nodes = [node for _, node in self.projections]
        self.projection_arguments = list(
            dict.fromkeys(
                [
                    X,
                    *(key for key in self.loop_arguments if key not in projected),
                    *(("weight", node["map"]) for node in nodes),
                    *(("bias", node["map"]) for node in nodes if node["bias"]),
                ]
            )
        )
        keys: list[tuple[Key, str]] = [(("vector", name), name) for name in full.named("vector")]
        keys += [
            ((kind, name), f"{kind}_{name}")
            for kind, name in self.projection_arguments
            if kind in ("weight", "bias")
        ]
        self.weights = [(key, name, shapes[name]) for key, name in keys]

    def graphs(self, saved: Saved | None = None) -> LoopGraphs:
        """The loop's graphs if these rows are saved; by default the result of each product."""
        loop, nodes = self.loop, list(self.loop.nodes)
        if saved is None:
            saved = tuple((k,) for k, node in enumerate(nodes) if node.op == "linear")
        own = {name: k for name, k in loop.outputs.items() if name not in self.shared}
        rows = {}
        for i, row in enumerate(saved):
            rows[f"product.{i}"] = row[0] if len(row) == 1 else len(nodes)
            if len(row) > 1:
                nodes.append(Node("join", row, sum(nodes[k].width for k in row)))
        inputs = [name for kind, name in self.loop_arguments if kind in ("input", "context")]
        differentiable = [name for name in inputs if not name.startswith(MASKS)]
        return LoopGraphs(
            Graph(loop.nodes, loop.next_states, own, loop.maps),
            Graph(tuple(nodes), loop.next_states, {**own, **rows}, loop.maps),
            reverse(loop, differentiable, saved),
        )

    def sources(self, recurrence: Recurrence) -> dict[Key, Tensor]:
        """The tensors of a recurrence by kind and name: x, extra inputs, masks, weights."""
        tensors: dict[Key, Tensor] = {X: recurrence.x}
        for name, mask in recurrence.masks.items():
            tensors["input", name] = mask
        for name, value in recurrence.extra_inputs.items():
            tensors["input" if value.dim() == 3 else "context", name] = value
        for name, columns in recurrence.columns.items():
            tensors["context", f"columns.{name}"] = columns
        for key, name, shape in self.weights:
            weight = tensors[key] = recurrence.weights[name]
            if weight.shape != shape:  # generated code would read past the end
                check.refuse(f"{name}.shape", tuple(weight.shape), f"{list(shape)}")
        return tensors

    def hoisted(self, sources: Mapping[Key, Tensor], apply: Linear, x: Tensor) -> dict[Key, Tensor]:
        """What is computed before the loop, in plain torch, [T, B, n] each."""
        if self.projections:
            return {key: apply(node, x) for key, node in self.projections}
        known = {k: sources[key] for k, key in self.before_sources}
        values = self.before(known, apply, x)
        # What depends on no input is the same at all steps.
        return {
            ("input", name): value if value.dim() == 3 else value.expand(*x.shape[:2], -1)
            for name, value in zip(self.parts.hoisted, values, strict=True)
        }

    def finish(
        self, sources: Mapping[Key, Tensor], results: Sequence[Tensor], apply: Linear, x: Tensor
    ) -> Tensor:
        """The output of all steps, from the results of the loop."""
        if self.output is not None:
            return results[self.output]
        known = {k: sources[key] for k, key in self.after_sources}
        known |= zip(self.parts.kept.values(), results, strict=True)
        (output,) = self.after(known, apply, x)
        return output


def _key(graph: Graph, k: int) -> Key:
    return graph.nodes[k].op, graph.nodes[k]["name"]


@lru_cache(maxsize=MOST_PLANS)
def plan_loop(
    cell: Cell,
    masks: tuple[str, ...] = (),
    zoneout: Zoneout = (),
    columns: tuple[str, ...] = (),
    constant: tuple[str, ...] = (),
    products_only: bool = False,
) -> LoopPlan:
    """The plan of a cell.

    Args:
        cell: What computes one step.
        masks: The names of masks that join the step, such as "alive" and "resets".
        zoneout: For each state a probability, True for a mask, or None.
        columns: The maps whose inputs have factors.
        constant: The extra inputs that are the same at all steps, [B, n].
        products_only: Hoist products alone; see `graph.cut`.
    """

    def step(weights: Any, inputs: Any, contexts: Any, state: Any) -> Any:
        scales = {name: contexts[f"columns.{name}"] for name in columns}
        theta = Theta(cell, weights, scales)
        extra = {
            name: (contexts if name in constant else inputs)[name] for name in cell.extra_inputs
        }
        drive = cell.drive(theta, {"x": inputs["x"], **extra} if extra else inputs["x"])
        new = guarded(cell, theta, drive, inputs, state, zoneout)
        return new, {"y": cell.output(theta, drive, new)}

    widths = {"x": cell.window * cell.input_size}
    for mask in masks:
        kind, _, index = mask.partition(".")
        widths[mask] = cell.states[int(index)] if kind == "zoneout" else 1
    widths |= {name: width for name, width in cell.extra_inputs.items() if name not in constant}
    contexts = {f"columns.{name}": cell.maps[name].inputs for name in columns}
    contexts |= {name: cell.extra_inputs[name] for name in constant}
    parts = cut(trace(step, cell, widths, contexts), products_only)
    return LoopPlan(cell_name(cell), parts, shapes(cell))


def cell_name(cell: Cell) -> str:
    """A cell's name and size, as part of an identifier: lstm_h64.

    Empty for a cell that holds a graph: that may come from a stranger's file, whose names are to
    get into no code.
    """
    if _holds_graph(cell):
        return ""
    kind = re.sub(r"\W", "", type(cell).__name__, flags=re.ASCII).lower()
    return f"{kind or 'cell'}_h{cell.hidden_size}"


def _holds_graph(part: Any) -> bool:
    if isinstance(part, Graph):
        return True
    if isinstance(part, tuple | list | dict):
        return any(map(_holds_graph, part.values() if isinstance(part, dict) else part))
    known = is_dataclass(part) and not isinstance(part, type)
    return known and any(_holds_graph(getattr(part, field.name)) for field in fields(part))


def plan_recurrence(recurrence: Recurrence, products_only: bool = False) -> LoopPlan:
    """The plan for a recurrence; those of one cell with the same kinds of masks share it."""
    r = recurrence
    if not (r.masks or r.columns or r.zoneout or r.extra_inputs):
        return plan_loop(r.cell, products_only=products_only)
    zoneout = tuple(True if isinstance(z, Tensor) else z for z in r.zoneout)
    constant = tuple(name for name, value in r.extra_inputs.items() if value.dim() == 2)
    return plan_loop(r.cell, tuple(r.masks), zoneout, tuple(r.columns), constant, products_only)


def untraceable(cell: Cell) -> str:
    """Why a cell has no graph; empty if it has one. The first time, this is a warning."""
    try:
        return _untraceable(cell)
    except TypeError:  # an option that has no hash
        return f"{type(cell).__name__} has options that cannot be compared"


@lru_cache(maxsize=1024)
def _untraceable(cell: Cell) -> str:
    try:
        trace_cell(cell)
    except Untraceable as error:
        message = f"metarnn runs {type(cell).__name__} in plain torch, slower: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return str(error)
    return ""


def check_sizes(x: Tensor, width: int) -> None:
    """Refuse what 64 bits cannot count: the bytes of T · B rows, each of eight times the width.

    An expanded x takes no memory itself, so it may be of any size.
    """
    steps, batch, inputs = x.shape
    if steps * batch * max(inputs, width) >= COUNTABLE:
        why = f"T · B · n below 2⁵⁷, where n is {max(inputs, width):,} here"
        check.refuse("x.shape", tuple(x.shape), why, "Split the sequences or the batch.")
