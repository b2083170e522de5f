"""From a cell written in torch to a graph: the step is run once on values that note what they do.

A `Value` stands for a row of numbers. It is no tensor, but torch's functions hand themselves to it
(`__torch_function__`), so any step in plain torch can be traced: nothing is computed, no batch
size gets in, and an operation that graphs do not have is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from metarnn.cells import Cell, Theta, shapes
from metarnn.cells.base import fold
from metarnn.graph.graph import Builder, Graph


class Untraceable(TypeError):
    """A step uses something that a graph cannot hold."""


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
    return _node(value.builder, "mul", value, Value(value.builder, value.builder.number(1, width)))


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
    rule = RULES.get(function)
    name = getattr(function, "__name__", str(function))
    if rule is None:
        raise Untraceable(f"graphs have no operation for {name}")
    try:
        return rule(*args, **kwargs)
    except Untraceable:
        raise
    except (TypeError, KeyError, AttributeError) as error:
        raise Untraceable(f"{name} with these arguments: {error}") from error


def _builder(*args: Any) -> Builder:
    return next(a.builder for a in args if isinstance(a, Value | Weight))


def _plain(op: str) -> Callable[..., Value]:
    def rule(*args: Any) -> Value:
        return _node(_builder(*args), op, *args)

    return rule


def _last(dim: int) -> None:
    if dim not in (-1, 1):
        raise Untraceable(f"an operation along dimension {dim}: only the last one is a row's")


def _add(a: Any, b: Any, *, alpha: float = 1) -> Value:
    builder = _builder(a, b)
    return _node(builder, "add", a, b if alpha == 1 else _node(builder, "mul", b, alpha))


def _linear(input: Value, weight: Weight, bias: Weight | None = None) -> Value:
    builder, name = input.builder, weight.name.removeprefix("weight_")
    inputs = builder.maps[name].inputs
    if input.width != inputs:
        raise Untraceable(f"the map {name} takes {inputs} numbers and is given {input.width}")
    return _node(builder, "linear", input, map=name, start=0, stop=inputs, bias=bias is not None)


def _slice(x: Value, start: int, stop: int) -> Value:
    if (start, stop) == (0, x.width):
        return x
    return _node(x.builder, "slice", x, start=start, stop=stop)


def _split(x: Value, size: int | list[int] | tuple[int, ...], dim: int = 0) -> tuple[Value, ...]:
    _last(dim)
    if isinstance(size, int):
        size = [min(size, x.width - k) for k in range(0, x.width, size)]
    ends = [sum(size[: k + 1]) for k in range(len(size))]
    if ends[-1] != x.width:
        raise Untraceable(f"split of {x.width} numbers into {list(size)}")
    return tuple(_slice(x, end - n, end) for n, end in zip(size, ends, strict=True))


def _chunk(x: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    return _split(x, -(-x.width // chunks), dim)


def _getitem(x: Value, item: Any) -> Value:
    if isinstance(item, tuple) and len(item) == 2 and item[0] is Ellipsis:
        item = item[1]
        if isinstance(item, slice) and item.step in (None, 1):
            start, stop, _ = item.indices(x.width)
            return _slice(x, start, stop)
    raise Untraceable(f"indexing by {item!r}: write x[..., start:stop]")


def _cat(rows: Any, dim: int = 0) -> Value:
    _last(dim)
    rows = [row for row in rows if row.width]
    return rows[0] if len(rows) == 1 else _node(_builder(*rows), "join", *rows)


def _given(op: str, dim: int | None, more: str = "") -> int:
    if dim is None:
        why = f"of all sequences at once: write x.{op}(-1{more}), which is that of each row"
        raise Untraceable(f"{op} without a dimension is {why}")
    return dim


def _along(op: str) -> Callable[..., Value]:
    def rule(x: Value, dim: int | None = None, dtype: Any = None) -> Value:
        _last(_given(op, dim))
        return _node(x.builder, op, x)

    return rule


def _reduce(op: str) -> Callable[..., Value]:
    def rule(x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        _last(_given(op, dim, ", keepdim=True"))
        if not keepdim:
            raise Untraceable(f"{op} without keepdim=True: a value is a row of numbers")
        return _node(x.builder, op, x)

    return rule


def _repeat(x: Value, repeats: int, dim: int | None = None) -> Value:
    _last(-1 if dim is None else dim)
    return x if repeats == 1 else _node(x.builder, "repeat", x, times=repeats)


def _fold(x: Value, times: int) -> Value:
    return x if times == 1 else _node(x.builder, "fold", x, times=times)


def _layer_norm(
    x: Value, shape: Any, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5
) -> Value:
    if tuple(shape) != (x.width,):
        raise Untraceable(f"layer norm over {tuple(shape)} of a row of {x.width}")
    y = _node(x.builder, "norm", x, eps=float(eps))
    y = y if weight is None else _node(x.builder, "mul", y, weight)
    return y if bias is None else _node(x.builder, "add", y, bias)


def _masked_fill(x: Value, mask: Value, value: float) -> Value:
    return _node(x.builder, "where", mask, value, x)


def _silu(x: Value, inplace: bool = False) -> Value:
    return _node(x.builder, "mul", x, _node(x.builder, "sigmoid", x))


def _pow(x: Value, exponent: Any) -> Value:
    if exponent != 2:
        raise Untraceable(f"the power {exponent!r} of a value: only squares are known")
    return _node(x.builder, "mul", x, x)


def _clamp(x: Value, min: Any = None, max: Any = None) -> Value:
    x = x if min is None else _node(x.builder, "max", x, min)
    return x if max is None else _node(x.builder, "min", x, max)


T = torch.Tensor
RULES: dict[Any, Callable[..., Any]] = {}
for _functions, _rule in [
    ((torch.add, T.add, T.__add__, T.__radd__), _add),
    ((torch.sub, T.sub, T.__sub__), _plain("sub")),
    ((T.__rsub__, torch.rsub), lambda a, b: _node(_builder(a, b), "sub", b, a)),
    ((torch.mul, T.mul, T.__mul__, T.__rmul__), _plain("mul")),
    ((torch.div, T.div, T.__truediv__), _plain("div")),
    ((torch.neg, T.neg), lambda x: _node(x.builder, "sub", 0.0, x)),
    ((torch.square, T.square), lambda x: _node(x.builder, "mul", x, x)),
    ((torch.maximum, T.maximum), _plain("max")),
    ((torch.minimum, T.minimum), _plain("min")),
    ((torch.where,), _plain("where")),
    ((torch.gt, T.gt, T.__gt__), _plain("greater")),
    ((torch.lt, T.lt, T.__lt__), lambda a, b: _node(_builder(a, b), "greater", b, a)),
    ((torch.pow, T.pow, T.__pow__), _pow),
    ((torch.sigmoid, T.sigmoid, F.sigmoid), _plain("sigmoid")),
    ((torch.tanh, T.tanh, F.tanh), _plain("tanh")),
    ((torch.relu, T.relu, F.relu), lambda x, inplace=False: _node(x.builder, "relu", x)),
    ((torch.exp, T.exp), _plain("exp")),
    ((F.silu,), _silu),
    ((F.softplus,), _plain("softplus")),
    ((torch.clamp, T.clamp), _clamp),
    ((F.linear,), _linear),
    ((torch.split, T.split), _split),
    ((torch.chunk, T.chunk), _chunk),
    ((T.__getitem__,), _getitem),
    ((torch.cat, torch.concat), _cat),
    ((torch.softmax, T.softmax, F.softmax), _along("softmax")),
    ((torch.cumsum, T.cumsum), _along("cumsum")),
    ((torch.sum, T.sum), _reduce("sum")),
    ((torch.mean, T.mean), _reduce("mean")),
    ((torch.repeat_interleave, T.repeat_interleave), _repeat),
    ((fold,), _fold),
    ((F.layer_norm, torch.layer_norm), _layer_norm),
    ((torch.masked_fill, T.masked_fill), _masked_fill),
    ((T.to, T.contiguous, T.clone, T.float, torch.clone), lambda x, *_, **__: x),
]:
    RULES |= dict.fromkeys(_functions, _rule)
