"""From statements to text: what the printers of all languages have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from metarnn.engines.codegen.statements import (
    Block,
    Code,
    Comment,
    Constant,
    For,
    If,
    Operand,
    Statement,
)

INDENT = "    "


class Printer(ABC):
    """Prints statements line by line, nested blocks indented.

    A language says how it writes comments, constants and blocks, and each statement of its own.
    """

    comment: str  # begins one

    @abstractmethod
    def statement(self, statement: Statement) -> Iterator[str]:
        """The lines of a statement that is none of those of `lines`."""

    @abstractmethod
    def constant(self, value: float) -> str: ...

    @abstractmethod
    def loop(self, loop: For) -> str:
        """The line that begins a loop."""

    @abstractmethod
    def block(self, head: str, body: Block) -> Iterator[str]:
        """A line and the statements that depend on it."""

    @abstractmethod
    def condition(self, text: str, otherwise: bool) -> str:
        """The line that begins the body of an `If`, or what is done `otherwise`."""

    def text(self, statements: Iterable[Statement], depth: int = 0) -> str:
        return "".join(f"{line}\n" for line in self.indented(statements, depth))

    def lines(self, statements: Iterable[Statement]) -> Iterator[str]:
        for statement in statements:
            match statement:
                case Comment(text):
                    yield f"{self.comment} {text}"
                case Code(text):
                    yield text
                case For(body=body):
                    yield from self.block(self.loop(statement), body)
                case If(condition, body, otherwise):
                    yield from self.block(self.condition(condition, otherwise=False), body)
                    if otherwise:
                        yield from self.block(self.condition("", otherwise=True), otherwise)
                case _:
                    yield from self.statement(statement)

    def indented(self, statements: Iterable[Statement], depth: int = 1) -> Iterator[str]:
        for line in self.lines(statements):
            yield f"{INDENT * depth}{line}" if line else line

    def operand(self, operand: Operand) -> str:
        return self.constant(operand.value) if isinstance(operand, Constant) else operand.name
