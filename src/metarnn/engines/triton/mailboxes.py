"""Mailboxes: where programs publish values that others multiply, in place of barriers.

A published value is in float32 and has a mailbox of its own, apart from where a state or an output
is kept. A mailbox has MAILBOX_DEPTH slots, which are used in turn: see `synchronization.publish`.
"""

from __future__ import annotations

from metarnn.engines.codegen import statements as s
from metarnn.engines.triton import program
from metarnn.engines.triton import statements as t
from metarnn.engines.triton.addresses import Elements, Tile
from metarnn.engines.triton.builder import Builder, Place, elements


class Mailboxes:
    """The mailboxes of a kernel, and what makes them ready before the first step."""

    def __init__(self, kernel: Builder) -> None:
        self.kernel, self.layout = kernel, kernel.layout
        self.widths: dict[str, int] = {}
        self.setup: dict[s.Statement, None] = {}

    def place(self, k: int, step: str = "s64") -> Place:
        """Where the rows of a node that is published for a step begin."""
        array, slot = self._array(k), f"{step} % {program.MAILBOX_DEPTH}"
        return Place(array, f"{array} + {slot} * B * {self.layout.nodes[k].width}")

    def targets(self, k: int) -> list[tuple[Place, str]]:
        """Where a node is published, and for which step: a state for the next one."""
        targets: list[tuple[Place, str]] = []
        for kind, name in self.layout.targets.get(k, ()):
            state = self.layout.state_node.get(int(name)) if kind == "state" else None
            if state in self.layout.published:
                targets.append((self.place(state, "(s64 + 1)"), "s + 1"))
        return [*targets, (self.place(k), "s")] if self.for_own_step(k) else targets

    def for_own_step(self, k: int) -> bool:
        """Whether a node is published for its own step. A state was, by the step before."""
        return k in self.layout.published and self.layout.nodes[k].op != "state"

    def introduce(self, index: int, state: s.Value) -> None:
        """Publish an initial state; no later one is there yet."""
        k = self.layout.state_node.get(index)
        if k in self.layout.published:
            tile = Tile(self.layout.nodes[k].width)
            address = self._slot(k, 0, tile)
            self.setup[t.Publish(address, state, "0")] = None
            self.setup[t.ClearMailbox(address, tile, 1)] = None

    def clear(self, k: int, start: int, tile: Tile) -> None:
        """Nothing is there yet of a tile of a node."""
        self.setup[t.ClearMailbox(self._slot(k, start, tile), tile, 0)] = None

    def _slot(self, k: int, start: int, tile: Tile) -> Elements:
        array = self._array(k)
        return elements(Place(array, array), self.layout.nodes[k].width, start, tile)

    def _array(self, k: int) -> str:
        self.widths[str(k)] = self.layout.nodes[k].width
        return self.kernel.pointer("mailbox", str(k))
