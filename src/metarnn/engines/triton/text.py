"""Pieces of Triton's language as text."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

from metarnn.engines.triton.program import power
from metarnn.graph import Node
from metarnn.graph.ops import OPS

FLOAT = ".to(tl.float32)"
CALL = re.compile(r"(?<![\w.])(?!float\b)([a-z]\w*)\(")  # a function that is not Triton's own


def number(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    return repr(float(value))


def expression(node: Node, args: list[str], nodes: tuple[Node, ...]) -> str:
    """An elementwise operation in Triton."""
    op = OPS[node.op]
    if all(nodes[a].op == "number" for a in node.args):
        values = [torch.tensor(nodes[a]["value"], dtype=torch.float64) for a in node.args]
        value = op.compute(*values, **node.attributes)
        return f"tl.full((), {number(float(value))}, tl.float32)"
    attributes = {name: number(value) for name, value in node.attributes.items()}
    return op.triton.format(*args, **attributes)


def functions(nodes: Iterable[Node]) -> str:
    """The functions that operations call: those of `functions.py`, and their own source."""
    used = {node.op for node in nodes if node.op in OPS}
    called = {name for op in used for name in CALL.findall(OPS[op].triton)}
    sources: list[str] = []
    for op in reversed(OPS.values()):  # a function comes after those that it calls
        own = set(re.findall(r"def (\w+)", op.triton_source))
        if called & own:
            called = (called | set(CALL.findall(op.triton_source))) - own
            sources.insert(0, op.triton_source)
    names = "".join(f"    {name},\n" for name in sorted(called))
    head = f"from metarnn.engines.triton.functions import (\n{names})\n" if called else ""
    return "\n".join([head, *sources])


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
