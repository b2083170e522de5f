"""Operations on whole rows: parts, joins, sums, softmax, norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor as T
from torch.nn import functional as F

from metarnn.cells.base import fold as fold_rows
from metarnn.graph.ops.op import Op, Rule, Rules, Untraceable


def _join(*rows: T) -> T:
    leading = torch.broadcast_shapes(*(row.shape[:-1] for row in rows))
    return torch.cat([row.expand(*leading, row.shape[-1]) for row in rows], -1)


def _slice_width(n: int, start: int, stop: int) -> int:
    if not 0 <= start < stop <= n:
        raise ValueError(f"slice [{start}, {stop}) of a row of {n}")
    return stop - start


def _fold_width(n: int, times: int) -> int:
    if n % times:
        raise ValueError(f"fold of {n} numbers by {times}")
    return n // times


def _mean(x: Any) -> Any:
    return x.mean(-1, keepdim=True)


def _rstd_vjp(g: Any, n: int, y: Any, x: Any) -> Any:
    cube, centred = y * (y * y), x - _mean(x)
    return g * cube * (-1 / n) * centred


def _widened(g: Any, n: int) -> Any:
    return g * g.constant(1, n) if n > 1 else g


# Slices and joins only say where values lie: `reverse` and the engines follow them by name.
slice_ = Op(
    "slice", lambda x, start, stop: x[..., start:stop], elementwise=False,
    attributes=("start", "stop"), width=_slice_width,
    onnx=lambda o, x, start, stop: o.slice(x, start, stop, -1),
)  # fmt: skip
join = Op(
    "join", _join, arity=-1, elementwise=False, width=lambda *widths: sum(widths),
    onnx=lambda o, *rows: o.add("Concat", *rows, axis=-1),
)  # fmt: skip
repeat = Op(
    "repeat", lambda x, times: x.repeat_interleave(times, -1), elementwise=False,
    attributes=("times",), width=lambda n, times: n * times,
    vjp=lambda g, times: fold(g, times=times),
    c="""for (long i = 0; i < {n}; i++)
for (long j = 0; j < {times}; j++) {to}[i * {times} + j] = {x}[i];""",
    onnx=lambda o, x, times: o.add(
        "Reshape",
        o.add("Tile", o.add("Unsqueeze", x, o.ints(-1)), o.ints(1, 1, times)),
        o.ints(0, -1),
    ),
    formula="repeat({0}, {times})", label="repeat {times}",
)  # fmt: skip
fold = Op(  # sums of `times` neighbours
    "fold", fold_rows, elementwise=False, attributes=("times",), width=_fold_width,
    vjp=lambda g, times: repeat(g, times=times),
    c="""for (long i = 0; i < {width}; i++) {{ real s = 0;
for (long j = 0; j < {times}; j++) s += {x}[i * {times} + j];
{to}[i] = s; }}""",
    onnx=lambda o, x, times: o.add(
        "ReduceSum", o.add("Reshape", x, o.ints(0, -1, times)), o.ints(-1), keepdims=0
    ),
    formula="fold({0}, {times})", label="fold {times}",
)  # fmt: skip
total = Op(
    "sum", lambda x: x.sum(-1, keepdim=True), elementwise=False, width=lambda n: 1,
    vjp=_widened,
    c="{to}[0] = row_sum({x}, {n});", triton="tl.sum({zeroed}, 0)",
    onnx=lambda o, x: o.add("ReduceSum", x, o.ints(-1), keepdims=1),
)  # fmt: skip
mean = Op(
    "mean", _mean, elementwise=False, width=lambda n: 1,
    vjp=lambda g, n: _widened(g * (1 / n), n),
    c="{to}[0] = row_sum({x}, {n}) / {n};", triton="tl.sum({zeroed}, 0) / {n}",
    onnx=lambda o, x: o.add("ReduceMean", x, o.ints(-1), keepdims=1),
)  # fmt: skip
softmax = Op(
    "softmax", lambda x: torch.softmax(x, -1), elementwise=False,
    vjp=lambda g, y: y * (g - (g * y).sum(-1, keepdim=True)),
    c="row_softmax({to}, {x}, {n});",
    triton="{h} = exp({lowest} - tl.max({lowest}, 0))\n{h} / tl.sum({h}, 0)",
    onnx=lambda o, x: o.add("Softmax", x, axis=-1),
)  # fmt: skip
cumsum = Op(
    "cumsum", lambda x: x.cumsum(-1), elementwise=False,
    vjp=lambda g: cumsum_back(g),
    c="row_cumsum({to}, {x}, {n}, 0);", triton="tl.cumsum({zeroed}, 0, reverse=False)",
    onnx=lambda o, x: o.add("CumSum", x, o.const(np.array(1, np.int64))),
)  # fmt: skip
cumsum_back = Op(
    "cumsum_back", lambda x: x.flip(-1).cumsum(-1).flip(-1), elementwise=False,
    vjp=lambda g: cumsum(g),
    c="row_cumsum({to}, {x}, {n}, 1);", triton="tl.cumsum({zeroed}, 0, reverse=True)",
    onnx=lambda o, x: o.add("CumSum", x, o.const(np.array(1, np.int64)), reverse=1),
    label="cumsum ←",
)  # fmt: skip
CENTRED = "{h} = {centred}\n{v} = tl.rsqrt(tl.sum({h} * {h}, 0) / {n} + {eps})\n"
norm = Op(  # (x - mean) / standard deviation
    "norm", lambda x, eps: F.layer_norm(x, x.shape[-1:], eps=eps), elementwise=False,
    attributes=("eps",),
    vjp=lambda g, x, y, eps: rstd(x, eps=eps) * ((g - _mean(g)) - y * _mean(g * y)),
    c="row_norm({to}, {x}, {n}, {eps});", triton=CENTRED + "{h} * {v}",
    onnx=lambda o, x, eps: o.add("Mul", _onnx_centred(o, x), _onnx_rstd(o, x, eps)),
    formula="LN({0})",
)  # fmt: skip
rstd = Op(  # 1 / standard deviation: y = ((x - mean)² / n + eps)^(-1/2)
    "rstd", lambda x, eps: (x.var(-1, correction=0, keepdim=True) + eps).rsqrt(),
    elementwise=False, attributes=("eps",), width=lambda n, eps: 1,
    vjp=_rstd_vjp,
    c="{{ real mean; {to}[0] = row_rstd({x}, {n}, {eps}, &mean); }}",
    triton=CENTRED + "{v} + 0",
    onnx=lambda o, x, eps: _onnx_rstd(o, x, eps),
)  # fmt: skip


def _onnx_centred(o: Any, x: str) -> str:
    return o.add("Sub", x, o.add("ReduceMean", x, o.ints(-1), keepdims=1))


def _onnx_rstd(o: Any, x: str, eps: float) -> str:
    gap = _onnx_centred(o, x)
    variance = o.add("ReduceMean", o.add("Mul", gap, gap), o.ints(-1), keepdims=1)
    return o.add("Reciprocal", o.add("Sqrt", o.add("Add", variance, o.number(eps))))


# What of torch is traced to them.


def _last(dim: int) -> None:
    if dim not in (-1, 1):
        raise Untraceable(f"an operation along dimension {dim}: only the last one is a row's")


def _given(name: str, dim: int | None, more: str = "") -> int:
    if dim is None:
        why = f"of all sequences at once: write x.{name}(-1{more}), which is that of each row"
        raise Untraceable(f"{name} without a dimension is {why}")
    return dim


def _along(op: Op) -> Rule:
    def rule(x: Any, dim: int | None = None, dtype: Any = None) -> Any:
        _last(_given(op.name, dim))
        return op(x)

    return rule


def _reduce(op: Op) -> Rule:
    def rule(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        _last(_given(op.name, dim, ", keepdim=True"))
        if not keepdim:
            raise Untraceable(f"{op.name} without keepdim=True: a value is a row of numbers")
        return op(x)

    return rule


def _part(x: Any, start: int, stop: int) -> Any:
    return x if (start, stop) == (0, x.width) else slice_(x, start=start, stop=stop)


def _split(x: Any, size: int | list[int] | tuple[int, ...], dim: int = 0) -> tuple[Any, ...]:
    _last(dim)
    if isinstance(size, int):
        size = [min(size, x.width - k) for k in range(0, x.width, size)]
    ends = [sum(size[: k + 1]) for k in range(len(size))]
    if ends[-1] != x.width:
        raise Untraceable(f"split of {x.width} numbers into {list(size)}")
    return tuple(_part(x, end - n, end) for n, end in zip(size, ends, strict=True))


def _chunk(x: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    return _split(x, -(-x.width // chunks), dim)


def _getitem(x: Any, item: Any) -> Any:
    if isinstance(item, tuple) and len(item) == 2 and item[0] is Ellipsis:
        item = item[1]
        if isinstance(item, slice) and item.step in (None, 1):
            start, stop, _ = item.indices(x.width)
            return _part(x, start, stop)
    raise Untraceable(f"indexing by {item!r}: write x[..., start:stop]")


def _cat(rows: Any, dim: int = 0) -> Any:
    _last(dim)
    rows = [row for row in rows if row.width]
    return rows[0] if len(rows) == 1 else join(*rows)


def _repeat(x: Any, repeats: int, dim: int | None = None) -> Any:
    _last(-1 if dim is None else dim)
    return x if repeats == 1 else repeat(x, times=repeats)


def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    if tuple(shape) != (x.width,):
        raise Untraceable(f"layer norm over {tuple(shape)} of a row of {x.width}")
    y = norm(x, eps=float(eps))
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


RULES: Rules = {
    (torch.split, T.split): _split,
    (torch.chunk, T.chunk): _chunk,
    (T.__getitem__,): _getitem,
    (torch.cat, torch.concat): _cat,
    (torch.softmax, T.softmax, F.softmax): _along(softmax),
    (torch.cumsum, T.cumsum): _along(cumsum),
    (torch.sum, T.sum): _reduce(total),
    (torch.mean, T.mean): _reduce(mean),
    (torch.repeat_interleave, T.repeat_interleave): _repeat,
    (fold_rows,): lambda x, times: x if times == 1 else fold(x, times=times),
    (F.layer_norm, torch.layer_norm): _layer_norm,
}
