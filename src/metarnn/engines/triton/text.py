"""Pieces of Triton's language as text."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from metarnn.engines.triton.program import power
from metarnn.graph import Node
from metarnn.graph.ops import OPS

FLOAT = ".to(tl.float32)"
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
CALLS = {
    "max": "maximum", "min": "minimum", "greater": "greater", "sigmoid": "sigmoid",
    "tanh": "tanh", "exp": "exp", "softplus": "softplus",
}  # fmt: skip


def number(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    return repr(float(value))


def expression(node: Node, args: list[str], nodes: tuple[Node, ...]) -> str:
    """An elementwise operation in Triton."""
    if all(nodes[a].op == "number" for a in node.args):
        values = [torch.tensor(nodes[a]["value"], dtype=torch.float64) for a in node.args]
        return f"tl.full((), {number(float(OPS[node.op].compute(*values)))}, tl.float32)"
    if node.op in INFIX:
        return f"{args[0]} {INFIX[node.op]} {args[1]}"
    if node.op == "where":
        return f"tl.where({args[0]} != 0, {args[1]}, {args[2]})"
    if node.op == "relu":
        return f"maximum({args[0]}, 0.0)"
    if node.op == "identity":
        return args[0]
    return f"{CALLS[node.op]}({', '.join(args)})"


def spread(value: str, width: int | str) -> str:
    """A value as a full tile; `width` 0 means one number a sequence."""
    shape = f"(BB, U{width})" if width else "(BB, 1)"
    if value[0] in "efdnsvyzt" and not value.startswith("float"):
        return f"tl.broadcast_to({value}, {shape})"
    return f"tl.full({shape}, {value}, tl.float32)"


def store(address: str, value: str, width: int | str, cache: str = "", mask: str = "") -> str:
    mask = mask or (f"m{width}" if width else "mb")
    cached = f', cache_modifier="{cache}"' if cache else ""
    full = f"{spread(value, width)}.to({element(address)})"
    return f"tl.store({address}, {full}, mask={mask}{cached})"


def element(address: str) -> str:
    """The type of the numbers at an address, which begins with the name of its array."""
    return f"{address.split()[0]}.dtype.element_ty"


def lanes(width: int) -> tuple[str, str]:
    """The index into a row of that width, and the mask that goes with it."""
    if width == 1:
        return "", ""
    lanes = f"tl.arange(0, {power(width)})"
    return f" + {lanes}", "" if power(width) == width else f", mask={lanes} < {width}"


def prefixed(lines: Iterable[str], prefix: str) -> list[str]:
    return [line.replace("@", prefix) for line in lines]


def indented(lines: list[str], depth: int = 1) -> list[str]:
    return [f"{'    ' * depth}{part}" for line in lines for part in line.split("\n")]
