"""From statements to C."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from metarnn.engines.codegen import statements as common
from metarnn.engines.codegen.printer import INDENT, Printer
from metarnn.engines.codegen.statements import Address, Axes, Block, Statement
from metarnn.engines.cpu import statements as c
from metarnn.graph import Node
from metarnn.graph.ops import OPS

WIDTH = 80  # of a line, without its indentation


def function(name: str, arrays: Iterable[tuple[str, str]], body: Sequence[Statement]) -> str:
    """The source of a program's loop.

    Args:
        arrays: Of each array the constant that is its place, and its shape.
    """
    arrays = list(arrays)
    column = max(len(constant) for constant, _ in arrays) + 2
    places = "".join(
        f"{INDENT}{f'{constant},':{column}}/* {shape} */\n" for constant, shape in arrays
    )
    return (
        f"/* Places in job->arrays. */\nenum {{\n{places}}};\n\n"
        f"static void {name}(job *job, long thread) {{\n{CPrinter().text(body, 1)}}}\n"
    )


class CPrinter(Printer):
    """Prints statements as C; see runtime/ for the functions that it calls."""

    comment = "//"

    def lines(self, statements: Iterable[Statement]) -> Iterator[str]:
        for statement in statements:
            match statement:
                case common.Comment(text):
                    yield from ["", *textwrap.wrap(f"/* {text} */", 96, subsequent_indent="   ")]
                case common.If(condition, body, otherwise) if otherwise:
                    yield f"if ({condition}) {{"
                    yield from self.indented(body)
                    yield "} else {"
                    yield from self.indented(otherwise)
                    yield "}"
                case _:
                    yield from super().lines([statement])

    def statement(self, statement: Statement) -> Iterator[str]:
        match statement:
            case common.Let(name, value):
                yield f"const long {name} = {value};"
            case common.Elementwise(target, node, args):
                value = expression(node, [self.operand(a) for a in args])
                yield f"const v {target.name} = {value};"
            case common.Load(target, address) if Axes.UNITS in target.axes:
                yield f"const v {target.name} = load({row(address)} + u, lanes);"
            case common.Load(target, address):
                yield f"const v {target.name} = V({elements(address)}[0]);"
            case common.Store(address, value):
                yield f"store({row(address)} + u, {self.operand(value)}, lanes);"
            case common.Accumulate(Address() as address, value):
                to = f"{row(address)} + u"
                yield f"store({to}, load({to}, lanes) + {self.operand(value)}, lanes);"
            case common.Barrier():
                yield "if (!job->by_sequence) barrier_wait(job, thread, &phase);"
            case c.BarrierOfAll():
                yield "barrier_wait(job, thread, &phase);"
            case c.Scope(body):
                yield from self.block("", body)
            case c.Pointer(name, array, offset):
                yield f"real *{name} = {array}{f' + {offset}' if offset else ''};"
            case c.Array(declaration, values):
                yield from _wrapped(f"{declaration} = {{", values, "};")
            case c.Call(name, arguments):
                yield from _wrapped(f"{name}(", arguments, ");")
            case c.CopyRow(to, Address() as source, width, False):
                yield f"memcpy({row(to)}, {row(source)}, {width} * sizeof(real));"
            case c.CopyRow(to, source, width, add):
                value = f"{elements(source)}[i]" if isinstance(source, Address) else number(source)
                assign = f"{elements(to)}[i] {'+' * add}= {value}"
                yield f"for (long i = 0; i < {width}; i++) {assign};"
            case c.RowOperation():
                yield from row_operation(statement)
            case _:
                raise NotImplementedError(type(statement).__name__)

    def constant(self, value: float) -> str:
        return f"V({number(value)})"

    def loop(self, loop: common.For) -> str:
        step = "++" if loop.step == "1" else f" += {loop.step}"
        name = loop.variable
        return f"for (long {name} = {loop.start}; {name} < {loop.stop}; {name}{step})"

    def block(self, head: str, body: Block) -> Iterator[str]:
        yield f"{head} {{".lstrip()
        yield from self.indented(body)
        yield "}"

    def condition(self, text: str, otherwise: bool) -> str:
        return "else" if otherwise else f"if ({text})"


def expression(node: Node, args: list[str]) -> str:
    """An elementwise operation on vectors."""
    return OPS[node.op].c.format(*args, **_attributes(node))


def row_operation(operation: c.RowOperation) -> list[str]:
    node, n = operation.node, operation.width
    x, to = elements(operation.source), elements(operation.to)
    text = OPS[node.op].c.format(to=to, x=x, n=n, width=node.width, **_attributes(node))
    rstd = "" if operation.rstd is None else f"{elements(operation.rstd)}[0] = "
    return f"{rstd}{text}".split("\n")


def _attributes(node: Node) -> dict[str, object]:
    values = node.attributes.items()
    return {name: number(v) if isinstance(v, float) else v for name, v in values}


def row(address: Address) -> str:
    """A pointer to the elements at an address, for sequence b."""
    sequence = "" if address.shared else f" + b * {address.width}"
    start = f" + {address.start}" if address.start else ""
    return f"{address.base}{sequence}{start}"


def elements(address: Address) -> str:
    """The same, to be followed by an index."""
    text = row(address)
    return f"({text})" if " " in text else text


def number(value: float) -> str:
    """A constant."""
    if value != value:
        return '__builtin_nan("")'
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}__builtin_inf()"
    return repr(float(value))


def _wrapped(line: str, words: Sequence[object], end: str) -> Iterator[str]:
    """A list of words, on several lines if it is long."""
    for k, word in enumerate(words):
        text = f"{word}{end if k == len(words) - 1 else ','}"
        if len(line) + len(text) > WIDTH:
            yield line.rstrip()
            line = INDENT
        line += f"{text} "
    yield line.rstrip()
