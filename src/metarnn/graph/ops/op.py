"""The record of an operation: all that tracing, derivatives, engines, files and pictures need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

Rule = Callable[..., Any]
Rules = Mapping[tuple[Any, ...], Rule]


class Untraceable(TypeError):
    """A step uses something that a graph cannot hold."""


@dataclass(frozen=True, eq=False)
class Op:
    """An operation on rows of values, [..., width].

    >>> exp = Op("exp", torch.exp, (torch.exp, torch.Tensor.exp), vjp=lambda g, y: g * y,
    ...          c="v_exp({0})", triton="exp({0})", onnx="Exp")
    >>> exp.c.format("x")
    'v_exp(x)'

    Texts are templates: {0}, {1}, … are the arguments, an attribute stands under its name.

    Args:
        name: in graphs and their files.
        compute: what it means: compute(*rows, **attributes) in torch.
        functions: functions of torch that are this operation, called with the same arguments.
        vjp: the adjoint of the argument, or a function for each of several. Its parameters say
            what it reads, in this order: g is the adjoint of the result, y the result, x (or a, b
            and c) the arguments, n the width of the first one; attributes have their names. It is
            written in torch and traced. An adjoint is as wide as the result: what was repeated is
            summed later.
        c: C on vectors; of a whole row a statement on the rows `to` and `x` of n values.
        triton: Triton on tiles; of a whole row see `engines/triton/printer.py`.
        onnx: the name of ONNX's operation, or a function of its builder and the arguments.
        arity: the number of arguments; -1 for any.
        attributes: their names.
        elementwise: whether each value of the result depends on one value of each argument.
            Arguments of width 1 are repeated.
        width: the width of the result, from the widths of the arguments and the attributes.
        positive: whether it is for arguments above 0 only.
        formula: as text; `latex` only where it does not follow from that.
        label: in a drawing, where it is not what is called in the formula.
        infix: whether the label stands between a value and a number.
        ulp: the largest error of the C code, in units in the last place.
        c_source: functions in C that `c` calls, beyond those of `engines/cpu/runtime/simd.c`.
        triton_source: functions in Triton, beyond those of `engines/triton/functions.py`.
    """

    name: str
    compute: Callable[..., Tensor]
    functions: tuple[Any, ...] = ()
    vjp: Rule | tuple[Rule, ...] | None = None
    c: str = ""
    triton: str = ""
    onnx: str | Callable[..., str] = ""
    arity: int = 1
    attributes: tuple[str, ...] = ()
    elementwise: bool = True
    width: Callable[..., int] | None = None
    positive: bool = False
    formula: str = ""
    latex: str = ""
    label: str = ""
    infix: bool = False
    ulp: float = 0.0
    c_source: str = ""
    triton_source: str = ""

    def __post_init__(self) -> None:
        if not self.formula:
            operands = ", ".join(f"{{{k}}}" for k in range(self.arity))
            object.__setattr__(self, "formula", f"{self.name}({operands})")
        if not self.label:
            object.__setattr__(self, "label", self.formula.partition("(")[0])

    def __call__(self, *rows: Any, **attributes: Any) -> Any:
        """Compute it, or during a trace note it down."""
        if has_torch_function(rows):
            return handle_torch_function(self, rows, *rows, **attributes)
        return self.compute(*rows, **attributes)

    def result_width(self, widths: list[int], attributes: Mapping[str, Any]) -> int:
        """The width of the result; a ValueError says why there is none."""
        if self.width is not None:
            return self.width(*widths, **attributes)
        broad = {w for w in widths if w != 1} or {1}
        if len(broad) > 1:
            raise ValueError(f"{self.name} of rows of different widths {widths}")
        return broad.pop()
