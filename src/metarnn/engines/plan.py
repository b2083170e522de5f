"""What is worked out once for a cell, for every device: its graph with masks, cut in three."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch import Tensor

from metarnn.cells import Cell, Theta, check, shapes
from metarnn.engines.recurrence import Recurrence, Zoneout, guarded
from metarnn.graph import Graph, Linear, Node, Parts, Reverse, Saved, Schedule, cut, reverse, trace

Key = tuple[str, str]  # the kind of a source, and its name
X: Key = ("input", "x")

# Inputs that are 0/1 masks: no gradient is asked for.
MASKS = ("alive", "resets", "zoneout.", "columns.")


@dataclass(frozen=True)
class Product:
    """A matrix product in the loop, and what its weight's gradient is made of."""

    map: str
    start: int
    stop: int
    bias: bool
    state: int | None  # the state it multiplies, if it is one
    adjoint: str  # how the reverse loop calls what its gradients are made of
    argument: str

    @property
    def columns(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class Graphs:
    """What the loop computes without gradients, what with them, and its backward pass.

    "train" also puts out `product.k`, the saved row k, which "back" reads.
    """

    infer: Graph
    train: Graph
    back: Reverse


class Plan:
    """A recurrence's graph cut in three."""

    def __init__(self, parts: Parts, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.parts, self.loop = parts, parts.loop
        nodes = self.loop.nodes
        linear = [k for k, n in enumerate(nodes) if n.op == "linear"]
        self.products = [
            Product(
                nodes[k]["map"],
                nodes[k]["start"],
                nodes[k]["stop"],
                nodes[k]["bias"],
                nodes[nodes[k].args[0]].attributes.get("index"),
                f"dproduct.{i}",
                f"argument.{i}",
            )
            for i, k in enumerate(linear)
        ]
        # The products that each weight and bias has a part in.
        self.uses: dict[Key, list[Product]] = {}
        for product in self.products:
            for kind in ("weight", "bias") if product.bias else ("weight",):
                self.uses.setdefault((kind, product.map), []).append(product)
        # What the loop reads, in the order of the fused function's arguments after the states.
        self.sources = [
            (kind, name)
            for kind in ("input", "context", "vector")
            for name in self.loop.named(kind)
        ]
        self.sources += [("weight", name) for name in dict.fromkeys(p.map for p in self.products)]
        self.sources += [
            ("bias", name) for name in dict.fromkeys(p.map for p in self.products if p.bias)
        ]
        # A kept output that is the next value of a state lies in the array of that state.
        following = self.loop.next_states
        self.shared = {
            name: following.index(k) for name, k in self.loop.outputs.items() if k in following
        }
        # For each state its width, and whether an output lies in its array.
        self.states = [
            (width, k in self.shared.values()) for k, width in enumerate(self.loop.states)
        ]
        self.results = [(name, self.shared.get(name)) for name in self.loop.outputs]
        self._prepare(shapes)

    def graphs(self, saved: Saved | None = None) -> Graphs:
        """The loop's graphs if these rows are saved; by default the result of each product."""
        loop, nodes = self.loop, list(self.loop.nodes)
        if saved is None:
            saved = tuple((k,) for k, node in enumerate(nodes) if node.op == "linear")
        own = {name: k for name, k in loop.outputs.items() if name not in self.shared}
        kept = {}
        for i, row in enumerate(saved):
            kept[f"product.{i}"] = row[0] if len(row) == 1 else len(nodes)
            if len(row) > 1:
                nodes.append(Node("join", row, sum(nodes[k].width for k in row)))
        wanted = [name for kind, name in self.sources if kind in ("input", "context")]
        return Graphs(
            Graph(loop.nodes, loop.next_states, own, loop.maps),
            Graph(tuple(nodes), loop.next_states, {**own, **kept}, loop.maps),
            reverse(loop, [name for name in wanted if not name.startswith(MASKS)], saved),
        )

    def given(self, recurrence: Recurrence) -> dict[Key, Tensor]:
        """What a recurrence brings along, by kind and name: input, masks, weights."""
        found: dict[Key, Tensor] = {("input", "x"): recurrence.x}
        for name, mask in recurrence.masks.items():
            found["input", name] = mask
        for name, value in recurrence.given.items():
            found["input" if value.dim() == 3 else "context", name] = value
        for name, columns in recurrence.columns.items():
            found["context", f"columns.{name}"] = columns
        for key, name, shape in self.named_weights:
            weight = found[key] = recurrence.weights[name]
            if weight.shape != shape:  # generated code would read past the end
                check.refuse(f"{name}.shape", tuple(weight.shape), f"{list(shape)}")
        return found

    def finished(
        self, found: Mapping[Key, Tensor], kept: Sequence[Tensor], apply: Linear, x: Tensor
    ) -> Tensor:
        """The output of all steps, from what the loop kept."""
        if self.output is not None:
            return kept[self.output]
        known = {k: found[key] for k, key in self.after_sources}
        known |= zip(self.parts.kept.values(), kept, strict=True)
        (output,) = self.after(known, apply, x)
        return output

    def _prepare(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """How to get from the sources to what is hoisted, and from what is kept to the output."""
        whole, kept = self.parts.whole, list(self.parts.kept.values())
        y = whole.outputs["y"]
        self.before = Schedule(whole, self.parts.hoisted.values())
        self.after = Schedule(whole, [y], kept)
        self.output = kept.index(y) if y in kept else None  # which kept value it is, if it is one
        # Products of x, if that is all there is to hoist: the usual case needs no schedule.
        hoisted = [(name, whole.nodes[k]) for name, k in self.parts.hoisted.items()]
        x = whole.named("input").get("x")
        plain = all(node.op == "linear" and node.args == (x,) for _, node in hoisted)
        self.drives = [(("input", name), node) for name, node in hoisted] if plain else []
        self.before_sources = [(k, _key(whole, k)) for k in self.before.sources]
        self.after_sources = [(k, _key(whole, k)) for k in self.after.sources]
        # What the loop and its drives read together, x first.
        drives = {key for key, _ in self.drives}
        nodes = [node for _, node in self.drives]
        outside: list[Key] = [("weight", node["map"]) for node in nodes]
        outside += [("bias", node["map"]) for node in nodes if node["bias"]]
        rest = [key for key in self.sources if key not in drives]
        self.driven = list(dict.fromkeys([("input", "x"), *rest, *outside]))
        vectors = [("vector", name) for name in whole.named("vector")]
        # The key of each weight that is read, its name and its shape.
        maps = [(kind, name) for kind, name in self.driven if kind in ("weight", "bias")]
        names = [(key, key[1]) for key in vectors]
        names += [((kind, name), f"{kind}_{name}") for kind, name in maps]
        self.named_weights = [(key, name, shapes[name]) for key, name in names]


def _key(graph: Graph, k: int) -> tuple[str, str]:
    return graph.nodes[k].op, graph.nodes[k]["name"]


@lru_cache(maxsize=512)
def plan_cell(
    cell: Cell,
    masks: tuple[str, ...],
    zoneout: Zoneout,
    columns: tuple[str, ...],
    fixed: tuple[str, ...] = (),  # what is given and the same at all steps
    products_only: bool = False,
) -> Plan:
    def step(weights: Any, inputs: Any, contexts: Any, state: Any) -> Any:
        scales = {name: contexts[f"columns.{name}"] for name in columns}
        theta = Theta(cell, weights, scales)
        seen = {name: (contexts if name in fixed else inputs)[name] for name in cell.given}
        drive = cell.drive(theta, {"x": inputs["x"], **seen} if seen else inputs["x"])
        new = guarded(cell, theta, drive, inputs, state, zoneout)
        return new, {"y": cell.output(theta, drive, new)}

    widths = {"x": cell.window * cell.input_size}
    for mask in masks:
        widths[mask] = cell.states[int(mask[8:])] if mask.startswith("zoneout.") else 1
    widths |= {name: width for name, width in cell.given.items() if name not in fixed}
    contexts = {f"columns.{name}": cell.maps[name].inputs for name in columns}
    contexts |= {name: cell.given[name] for name in fixed}
    return Plan(cut(trace(step, cell, widths, contexts), products_only), shapes(cell))


def plan(recurrence: Recurrence, products_only: bool = False) -> Plan:
    """The plan for a recurrence; those of the same cell with the same kinds of masks share one.

    With `products_only` nothing else is computed before the loop; see `cut`.
    """
    if not (recurrence.masks or recurrence.columns or recurrence.zoneout or recurrence.given):
        return plan_cell(recurrence.cell, (), (), (), (), products_only)
    zoneout = tuple(True if isinstance(z, Tensor) else z for z in recurrence.zoneout)
    masks, columns = tuple(recurrence.masks), tuple(recurrence.columns)
    fixed = tuple(name for name, value in recurrence.given.items() if value.dim() == 2)
    return plan_cell(recurrence.cell, masks, zoneout, columns, fixed, products_only)
