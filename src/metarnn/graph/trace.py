"""From a cell written in torch to a graph: the step is run once on values that note what they do.

A `Value` stands for a row of numbers. It is no tensor, but torch's functions hand themselves to it
(`__torch_function__`), so any step in plain torch can be traced: nothing is computed, no batch
size gets in, and an operation that graphs do not have is refused by name. `ops.RULES` says what
stands for a function of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from metarnn.cells import Cell, Theta, shapes
from metarnn.graph import ops
from metarnn.graph.graph import Builder, Graph
from metarnn.graph.ops import Op, Rule, Untraceable


class Weight:
    """The weight or bias of a map, as torch's functions meet it during a trace."""

    def __init__(self, builder: Builder, name: str) -> None:
        self.builder, self.name = builder, name

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _dispatch(function, args, kwargs or {})


class Value:
    """A row of numbers during a trace: a node of the graph under construction."""

    # So that numpy-like reflected operators reach this class and not the other operand's.
    __array_priority__ = 1000

    def __init__(self, builder: Builder, node: int) -> None:
        self.builder, self.node = builder, node

    @property
    def width(self) -> int:
        return self.builder.nodes[self.node].width

    @property
    def shape(self) -> torch.Size:
        return torch.Size((1, self.width))

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def constant(self, value: float, width: int = 1) -> Value:
        """A number, `width` times, in the same graph."""
        return Value(self.builder, self.builder.number(value, width))

    def dim(self) -> int:
        return 2

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _dispatch(function, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        method = getattr(torch.Tensor, name, None)
        if name.startswith("__") or method is None:
            raise AttributeError(name)
        return lambda *args, **kwargs: _dispatch(method, (self, *args), kwargs)

    def __getitem__(self, item: Any) -> Value:
        return _dispatch(torch.Tensor.__getitem__, (self, item), {})

    def __add__(self, other: Any) -> Value:
        return _dispatch(torch.add, (self, other), {})

    def __sub__(self, other: Any) -> Value:
        return _dispatch(torch.sub, (self, other), {})

    def __rsub__(self, other: Any) -> Value:
        return _dispatch(torch.sub, (other, self), {})

    def __mul__(self, other: Any) -> Value:
        return _dispatch(torch.mul, (self, other), {})

    def __truediv__(self, other: Any) -> Value:
        return _dispatch(torch.div, (self, other), {})

    def __rtruediv__(self, other: Any) -> Value:
        return _dispatch(torch.div, (other, self), {})

    def __neg__(self) -> Value:
        return _dispatch(torch.sub, (0.0, self), {})

    __radd__, __rmul__ = __add__, __mul__

    def __gt__(self, other: Any) -> Value:
        return _dispatch(torch.gt, (self, other), {})

    def __lt__(self, other: Any) -> Value:
        return _dispatch(torch.lt, (self, other), {})

    def __pow__(self, exponent: Any) -> Value:
        return _dispatch(torch.pow, (self, exponent), {})

    def __rpow__(self, base: Any) -> Value:
        return _dispatch(torch.pow, (base, self), {})

    def __abs__(self) -> Value:
        return _dispatch(torch.abs, (self,), {})

    def __bool__(self) -> bool:
        raise Untraceable("a step that branches on its values: use torch.where")

    # Python's own meaning of == would be taken for an answer.
    def __eq__(self, other: object) -> Any:
        return _dispatch(torch.eq, (self, other), {})

    __hash__ = object.__hash__


def trace(
    function: Callable[..., tuple[tuple[Any, ...], Mapping[str, Any]]],
    cell: Cell,
    inputs: Mapping[str, int],
    contexts: Mapping[str, int] | None = None,
) -> Graph:
    """The graph of function(weights, inputs, contexts, state) -> (state, outputs), a cell's step.

    Inputs and contexts are given by name and width; their traced values come in dicts.
    """
    builder = Builder(cell.maps)
    sources = {
        kind: {n: Value(builder, builder.add(kind, width=w, name=n)) for n, w in widths.items()}
        for kind, widths in (("input", inputs), ("context", contexts or {}))
    }
    state = tuple(
        Value(builder, builder.add("state", width=n, index=k)) for k, n in enumerate(cell.states)
    )
    weights: dict[str, Any] = {}
    for name, shape in shapes(cell).items():
        if name in cell.vectors:
            weights[name] = Value(builder, builder.add("vector", width=shape[0], name=name))
        else:
            weights[name] = Weight(builder, name)
    try:
        new, outputs = function(weights, sources["input"], sources["context"], state)
    except Untraceable:
        raise
    except Exception as error:  # a value is no tensor: whatever a step wants of one may be missing
        raise Untraceable(f"{type(cell).__name__} cannot be traced: {error}") from error
    results = [*new, *outputs.values()]
    for value in results:
        if not isinstance(value, Value):
            raise Untraceable(f"{type(cell).__name__} returns a {type(value).__name__}, no value")
    # A state that depends on no row (a constant) is still as wide as declared.
    nodes = [_widened(value, n).node for value, n in zip(new, cell.states, strict=True)]
    return builder.graph(nodes, {name: v.node for name, v in outputs.items()}, cell.window)


def trace_cell(cell: Cell) -> Graph:
    """The graph of a whole cell, from x and the state to the next state and the output `y`."""

    def step(weights: Any, inputs: Any, contexts: Any, state: Any) -> Any:
        theta = Theta(cell, weights)
        drive = cell.drive(theta, inputs if cell.extra_inputs else inputs["x"])
        new = cell.step(theta, drive, state)
        return new, {"y": cell.output(theta, drive, new)}

    return trace(step, cell, {"x": cell.window * cell.input_size, **cell.extra_inputs})


def replay(
    graph: Graph, order: Iterable[int], values: dict[int, Value], apply: Any, builder: Builder
) -> None:
    """Add nodes of a graph to a trace, in that order; `values` holds the others and gets these."""
    for k in order:
        node = graph.nodes[k]
        if node.op == "linear":
            values[k] = apply(node, values[node.args[0]])
        else:
            args = tuple(values[a].node for a in node.args)
            values[k] = Value(builder, builder.copy(node, args))


def _widened(value: Value, width: int) -> Value:
    if value.width == width:
        return value
    return value * value.constant(1, width)


def _node(builder: Builder, op: str, *args: Any, **attributes: Any) -> Value:
    nodes = []
    for arg in args:
        if isinstance(arg, bool | int | float):
            nodes.append(builder.number(arg))
        elif isinstance(arg, Value):
            nodes.append(arg.node)
        elif isinstance(arg, torch.Tensor):
            raise Untraceable(
                "a step may use no tensors but those it is given: declare a weight instead"
            )
        else:
            raise Untraceable(f"{op} of a {type(arg).__name__}")
    try:
        return Value(builder, builder.add(op, *nodes, **attributes))
    except ValueError as error:
        raise Untraceable(str(error)) from None


def _dispatch(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Note down a call of an operation, or of a function of torch by its rule."""
    rule = function if isinstance(function, Op) else RULES.get(function)
    name = getattr(function, "__name__", str(function))
    if rule is None:
        raise Untraceable(f"graphs have no operation for {name}")
    kwargs = dict(kwargs)
    inplace = kwargs.pop("inplace", False)
    try:
        result = _apply(rule, args, kwargs) if isinstance(rule, Op) else rule(*args, **kwargs)
    except Untraceable:
        raise
    except (TypeError, KeyError, AttributeError) as error:
        raise Untraceable(f"{name} with these arguments: {error}") from error
    if inplace:
        args[0].node = result.node
    return result


def _apply(op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Value:
    if attributes.keys() != set(op.attributes):
        raise TypeError(f"{op.name} takes {op.attributes or 'no attributes'}, not {attributes}")
    builder = next(a.builder for a in args if isinstance(a, Value | Weight))
    return _node(builder, op.name, *args, **attributes)


def _linear(input: Value, weight: Weight, bias: Weight | None = None) -> Value:
    builder, name = input.builder, weight.name.removeprefix("weight_")
    inputs = builder.maps[name].inputs
    if input.width != inputs:
        raise Untraceable(f"the map {name} takes {inputs} numbers and is given {input.width}")
    return _node(builder, "linear", input, map=name, start=0, stop=inputs, bias=bias is not None)


RULES: dict[Any, Rule] = {**ops.RULES, F.linear: _linear}
