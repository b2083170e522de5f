"""Runs a recurrence in generated C: what is hoisted in torch, the loop in one call, any gradient."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import Cell, State, Theta
from metarnn.engines.cpu.compile import load
from metarnn.engines.cpu.emit import PRODUCTS, Emitter, Program
from metarnn.engines.recurrence import Recurrence, Zoneout, guarded
from metarnn.graph import Graph, Parts, Reverse, cut, evaluate, linear, reverse, trace

SMALL = 40_000  # multiply-adds a step below which a second thread costs more than it brings


def _typed(source: str, dtype: torch.dtype) -> str:
    double = dtype == torch.float64
    return f"#define REAL {'double' if double else 'float'}\n#define IS_DOUBLE {int(double)}\n" + source


@lru_cache(maxsize=None)
def _products(dtype: torch.dtype) -> tuple[Any, Any]:
    """The matrix products that all programs share: functions by number of vectors, and packing."""
    library = load(_typed(PRODUCTS, dtype))
    addresses = [ctypes.cast(getattr(library, f"multiply{n}"), ctypes.c_void_p) for n in range(1, 5)]
    table = (ctypes.c_void_p * 5)(None, *(a.value for a in addresses))
    return table, ctypes.cast(library.pack, ctypes.c_void_p)


class Kernel:
    """A compiled program for one number type."""

    def __init__(self, program: Program, dtype: torch.dtype) -> None:
        self.program = program
        self.dtype = dtype
        library = load(_typed(program.source, dtype))
        self.call = library.run
        self.call.restype = None
        self.call.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 3
        self.multiply, self.pack = _products(dtype)
        lanes = library.vector_length()
        self.packed = {
            name: -(-width // (lanes * vectors)) * per_tile * lanes
            for name, (width, vectors, per_tile) in program.packed.items()
        }

    def __call__(
        self, arrays: Mapping[tuple[str, str], Tensor], slots: list[int], steps: int, batch: int
    ) -> None:
        """Run over all steps; scratch and packed weights are provided here."""
        program, hold, pointers = self.program, [], []
        for kind, name in program.arrays:
            if kind == "scratch":
                tensor = torch.empty(batch * program.scratch[name], dtype=self.dtype)
                hold.append(tensor)
            elif kind == "packed":
                tensor = torch.empty(self.packed[name] + 16, dtype=self.dtype)
                hold.append(tensor)
            else:
                tensor = arrays[kind, name]
            pointer = tensor.data_ptr()
            # Packed weights are read as whole vectors.
            pointers.append(-(-pointer // 64) * 64 if kind == "packed" else pointer)
        work = program.flops * batch // 2
        threads = 1 if work < SMALL else min(torch.get_num_threads(), max(program.units, 1))
        if not program.flops:
            threads = torch.get_num_threads() if batch * program.units * steps > 1000 else 1
            threads = min(threads, max(program.units, 1))
        self.call(
            (ctypes.c_void_p * len(pointers))(*pointers),
            (ctypes.c_long * len(slots))(*slots),
            self.multiply,
            self.pack,
            steps,
            batch,
            threads,
        )


@dataclass(frozen=True)
class Plan:
    """A recurrence's graph, cut and differentiated, with the kernels made of it."""

    parts: Parts

    @property
    def loop(self) -> Graph:
        return self.parts.loop

    @cached_property
    def products(self) -> list[int]:
        return [k for k, n in enumerate(self.loop.nodes) if n.op == "linear"]

    @cached_property
    def sources(self) -> list[tuple[str, str]]:
        """What the loop reads: (kind, name), the order of the fused function's arguments."""
        loop = self.loop
        named = [(kind, n) for kind in ("input", "context", "vector") for n in loop.named(kind)]
        maps = {loop.nodes[k]["map"]: None for k in self.products}
        biased = {loop.nodes[k]["map"]: None for k in self.products if loop.nodes[k]["bias"]}
        named += [("weight", name) for name in maps] + [("bias", name) for name in biased]
        return named

    @cached_property
    def saving(self) -> Graph:
        """The loop, with the results of its products put out for the backward pass."""
        outputs = {f"product.{i}": k for i, k in enumerate(self.products)}
        return Graph(
            self.loop.nodes, self.loop.next_states, {**self.loop.outputs, **outputs}, self.loop.maps
        )

    @cached_property
    def back(self) -> Reverse:
        free = ("alive", "resets", "zoneout.", "columns.")
        wanted = [n for kind, n in self.sources if kind in ("input", "context")]
        return reverse(self.loop, [n for n in wanted if not n.startswith(free)])

    @lru_cache(maxsize=None)  # noqa: B019  a plan lives as long as the process
    def kernel(self, which: str, dtype: torch.dtype) -> Kernel:
        graph = {"infer": self.loop, "train": self.saving}.get(which)
        if graph is None:
            return Kernel(Emitter(self.back.graph, backward=True).emit(), dtype)
        return Kernel(Emitter(graph, backward=False).emit(), dtype)

    def __hash__(self) -> int:
        return id(self)


@lru_cache(maxsize=256)
def plan(cell: Cell, masks: tuple[str, ...], zoneout: Zoneout, columns: tuple[str, ...]) -> Plan:
    """The plan for a cell with these masks; zoneout holds None, a probability, or True for a mask."""

    def step(weights: Any, inputs: Any, contexts: Any, state: Any) -> Any:
        scales = {name: contexts[f"columns.{name}"] for name in columns}
        theta = Theta(cell, weights, scales)
        drive = cell.drive(theta, inputs["x"])
        new = guarded(cell, theta, drive, inputs, state, zoneout)
        return new, {"y": cell.output(theta, drive, new)}

    widths = {"x": cell.window * cell.input_size}
    for mask in masks:
        widths[mask] = cell.states[int(mask[8:])] if mask.startswith("zoneout.") else 1
    contexts = {f"columns.{name}": cell.maps[name].inputs for name in columns}
    return Plan(cut(trace(step, cell, widths, contexts)))


def plan_for(recurrence: Recurrence) -> Plan:
    zoneout = tuple(True if isinstance(z, Tensor) else z for z in recurrence.zoneout)
    return plan(recurrence.cell, tuple(recurrence.masks), zoneout, tuple(recurrence.columns))


def run(recurrence: Recurrence) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one."""
    made = plan_for(recurrence)
    parts, weights = made.parts, recurrence.weights
    dtype = torch.promote_types(recurrence.state[0].dtype, torch.float32)
    inputs = {"x": recurrence.x, **recurrence.masks}
    contexts = {f"columns.{name}": c for name, c in recurrence.columns.items()}

    known = {}
    for k, node in enumerate(parts.whole.nodes):
        if node.op == "input":
            known[k] = inputs[node["name"]]
        elif node.op == "context":
            known[k] = contexts[node["name"]]
        elif node.op == "vector":
            known[k] = weights[node["name"]]
    hoisted = evaluate(
        parts.whole, known, parts.hoisted.values(), linear(weights), recurrence.x
    )
    inputs |= dict(zip(parts.hoisted, hoisted, strict=True))
    found = {"input": inputs, "context": contexts}
    tensors = []
    for kind, name in made.sources:
        if kind in found:
            tensor = found[kind][name]
        else:
            tensor = weights[name if kind == "vector" else f"{kind}_{name}"]
        tensors.append(tensor.to(dtype).contiguous())
    state = tuple(s.to(dtype).contiguous() for s in recurrence.state)
    steps, batch = recurrence.x.shape[:2]
    results = fused(made, steps, batch, state, tensors)
    kept = dict(zip(parts.kept.values(), results[len(state) :], strict=True))
    output = parts.whole.outputs["y"]
    if output not in kept:
        (kept[output],) = evaluate(
            parts.whole, {**known, **kept}, [output], linear(weights), recurrence.x
        )
    narrow = recurrence.state[0].dtype
    return kept[output].to(narrow), tuple(part.to(narrow) for part in results[: len(state)])


def fused(made: Plan, steps: int, batch: int, state: State, tensors: list[Tensor]) -> tuple[Tensor, ...]:
    """The loop: final states, then kept outputs [T, B, n]."""
    arguments = (*state, *tensors)
    if torch.is_grad_enabled() and any(t.requires_grad for t in arguments):
        return _Fused.apply(made, steps, batch, *arguments)  # type: ignore[return-value]
    return _forward(made, steps, batch, arguments, saving=False)[0]


def _forward(made: Plan, steps: int, batch: int, tensors: tuple[Tensor, ...], saving: bool):
    """(final states and kept outputs, all states [T+1, B, n], results of products)."""
    loop, dtype = made.loop, tensors[0].dtype
    count = len(loop.states)
    kernel = made.kernel("train" if saving else "infer", dtype)
    arrays: dict[tuple[str, str], Tensor] = dict(zip(made.sources, tensors[count:], strict=True))
    # An output that is a state's next value lies in the array of that state.
    shared = {name: loop.next_states.index(k) for name, k in loop.outputs.items() if k in loop.next_states}
    slots, states = [], []
    for k in range(count):
        slots.append(steps + 1 if saving or k in shared.values() else 2)
        array = torch.empty(slots[k], batch, loop.states[k], dtype=dtype)
        array[0] = tensors[k]
        states.append(array)
        arrays["state", str(k)] = array
    outputs = {}
    for kind, name in kernel.program.arrays:
        if kind == "output":
            node = {**loop.outputs, **made.saving.outputs}[name]
            outputs[name] = torch.empty(steps, batch, loop.nodes[node].width, dtype=dtype)
            arrays["output", name] = outputs[name]
    kernel(arrays, slots, steps, batch)
    for alias, name in kernel.program.aliases.items():
        outputs[alias] = outputs[name]
    kept = [states[shared[n]][1:] if n in shared else outputs[n] for n in loop.outputs]
    final = [states[k][steps % slots[k]] for k in range(count)]
    products = [outputs[f"product.{i}"] for i in range(len(made.products))] if saving else []
    return (*final, *kept), states, products


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, made: Plan, steps: int, batch: int, *tensors: Tensor) -> Any:
        results, states, products = _forward(made, steps, batch, tensors, saving=True)
        ctx.save_for_backward(*tensors, *states, *products)
        ctx.made, ctx.steps, ctx.batch = made, steps, batch
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        made, steps, batch = ctx.made, ctx.steps, ctx.batch
        loop, count = made.loop, len(made.loop.states)
        given = count + len(made.sources)
        tensors = ctx.saved_tensors[:given]
        states = ctx.saved_tensors[given : given + count]
        products = ctx.saved_tensors[given + count :]
        if torch.is_grad_enabled():
            outputs, pull, *_ = torch.func.vjp(
                lambda *t: composition(made, steps, batch, t), *tensors
            )
            grads = tuple(
                torch.zeros_like(o) if g is None else g for g, o in zip(grads, outputs, strict=True)
            )
            return None, None, None, *pull(grads)
        return None, None, None, *_backward(made, steps, batch, tensors, states, products, grads, ctx.needs_input_grad[3:])


def _backward(made, steps, batch, tensors, states, products, grads, needed):
    loop, count, dtype = made.loop, len(made.loop.states), tensors[0].dtype
    back = made.back.graph
    kernel = made.kernel("back", dtype)
    sources = dict(zip(made.sources, tensors[count:], strict=True))
    arrays: dict[tuple[str, str], Tensor] = dict(sources)
    for k in range(count):
        arrays["input", f"before.{k}"] = states[k]
        adjoint = torch.zeros(2, batch, loop.states[k], dtype=dtype)
        if grads[k] is not None:
            adjoint[0] = grads[k]
        arrays["state", str(k)] = adjoint
    for i, product in enumerate(products):
        arrays["input", f"product.{i}"] = product
    for name, grad in zip(loop.outputs, grads[count:], strict=True):
        width = loop.nodes[loop.outputs[name]].width
        if grad is None:
            grad = torch.zeros(steps, batch, width, dtype=dtype)
        arrays["input", f"grad.{name}"] = grad.contiguous()
    outputs: dict[str, Tensor] = {}
    for kind, name in kernel.program.arrays:
        if kind == "output":
            outputs[name] = torch.empty(steps, batch, back.nodes[back.outputs[name]].width, dtype=dtype)
            arrays["output", name] = outputs[name]
    kernel(arrays, [2] * count, steps, batch)
    for alias, name in kernel.program.aliases.items():
        outputs[alias] = outputs[name]

    result: list[Tensor | None] = [arrays["state", str(k)][steps % 2] for k in range(count)]
    for (kind, name), tensor, need in zip(made.sources, tensors[count:], needed[count:], strict=True):
        grad = None
        if need and kind in ("weight", "bias"):
            for i, k in enumerate(made.products):
                node = loop.nodes[k]
                if node["map"] != name or f"dproduct.{i}" not in outputs:
                    continue
                flat = outputs[f"dproduct.{i}"].flatten(0, 1)
                if kind == "bias":
                    part = flat.sum(0) if node["bias"] else None
                else:
                    argument = loop.nodes[node.args[0]]
                    rows = states[argument["index"]][:steps] if argument.op == "state" else outputs[f"argument.{i}"]
                    part = flat.T @ rows.flatten(0, 1)
                    if (node["start"], node["stop"]) != (0, tensor.shape[1]):
                        whole = torch.zeros_like(tensor)
                        whole[:, node["start"] : node["stop"]] = part
                        part = whole
                if part is not None:
                    grad = part if grad is None else grad + part
        elif need:
            grad = outputs.get(f"d{kind}.{name}")
            if grad is not None and kind == "vector":
                grad = grad.flatten(0, 1).sum(0)
            elif grad is not None and kind == "context":
                grad = grad.sum(0)
        result.append(grad)
    return result


def composition(made: Plan, steps: int, batch: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """What the fused function computes, in plain torch: its derivatives are autograd's."""
    loop, count = made.loop, len(made.loop.states)
    sources = dict(zip(made.sources, tensors[count:], strict=True))
    weights = {f"{k}_{n}": t for (k, n), t in sources.items() if k in ("weight", "bias")}
    fixed = {
        k: sources[node.op, node["name"]]
        for k, node in enumerate(loop.nodes)
        if node.op in ("context", "vector")
    }
    streams = {
        k: sources["input", node["name"]].unbind(0)
        for k, node in enumerate(loop.nodes)
        if node.op == "input"
    }
    places = {k: node["index"] for k, node in enumerate(loop.nodes) if node.op == "state"}
    state, rows = tensors[:count], []
    for t in range(steps):
        known = {**fixed, **{k: v[t] for k, v in streams.items()}, **{k: state[i] for k, i in places.items()}}
        found = evaluate(loop, known, loop.results, linear(weights), tensors[0])
        found = [f.expand(batch, -1) for f in found]
        state = tuple(found[:count])
        rows.append(found[count:])
    return (*state, *(torch.stack(part) for part in zip(*rows, strict=True)))
