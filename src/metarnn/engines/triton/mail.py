"""What programs tell one another in place of meeting, as text: see `exchange.tell`.

Each number that another program multiplies is told in an array of its own, apart from where a state
or an output is kept. An array has SLOTS, which are used in turn.
"""

from __future__ import annotations

from collections.abc import Callable

from metarnn.engines.triton.layout import Layout
from metarnn.engines.triton.program import SLOTS
from metarnn.engines.triton.text import indented

MEETING = ["arrive(counter, ALONE)", "tick += P", "fine = wait(counter, tick, fine, ALONE)"]


class Mail:
    """The arrays of a kernel, and the lines before its first step."""

    def __init__(self, layout: Layout, array: Callable[[str, str], str]) -> None:
        self.layout, self._array = layout, array
        self.widths: dict[str, int] = {}
        self._unsaid: dict[str, None] = {}

    def read(self, k: int) -> tuple[str, str]:
        """Where a node that is told begins at this step, and the turn that it is told at."""
        node = self.layout.nodes[k]
        name = f"state.{node['index']}" if node.op == "state" else f"node.{k}"
        return self._place(name, node.width, "s64"), f"turn(s, {SLOTS})"

    def told(self, k: int) -> list[tuple[str, str]]:
        """All places where a node is told at this step, with turns: a state is the next step's."""
        layout, width = self.layout, self.layout.nodes[k].width
        found = [
            (self._place(f"state.{name}", width, "(s64 + 1)"), f"turn(s + 1, {SLOTS})")
            for kind, name in layout.stores.get(k, ())
            if kind == "state" and layout.state_node(int(name)) in layout.mail
        ]
        return [*found, self.read(k)] if self.has(k) else found

    def has(self, k: int) -> bool:
        """Whether a node is told at its own step. A state is told by the step before."""
        return k in self.layout.mail and self.layout.nodes[k].op != "state"

    def introduce(self, index: int, row: str) -> None:
        """Tell the first of a state; no later one is there yet."""
        if self.layout.state_node(index) not in self.layout.mail:
            return
        width = self.layout.graph.states[index]
        mail = self._named(f"state.{index}", width)
        self._unsaid[f"tell({mail} + {row}, s{index}, m{width}, turn(0, {SLOTS}))"] = None
        self._unsay(mail, width, row, f"m{width}", str(width), range(1, SLOTS))

    def begin(self, k: int, row: str, mask: str, tag: str) -> None:
        """Of a node's tile nothing is told yet."""
        width = self.layout.nodes[k].width
        self._unsay(self._named(f"node.{k}", width), width, row, mask, tag, range(SLOTS))

    def before(self, line: str) -> None:
        """A line that makes ready what programs hand out."""
        self._unsaid[line] = None

    def first_words(self, meeting: list[str]) -> list[str]:
        """What comes before the first step; without mail, the meeting that there would be."""
        if not self._unsaid:
            return meeting
        told = indented([*self._unsaid, *MEETING])
        return ["if TOLD:", *told, "else:", *indented(meeting or ["pass"])]

    def _named(self, name: str, width: int) -> str:
        self.widths[name] = width
        return self._array("mail", name)

    def _place(self, name: str, width: int, step: str) -> str:
        return f"{self._named(name, width)} + {step} % {SLOTS} * B * {width}"

    def _unsay(self, mail: str, width: int, row: str, mask: str, tag: str, slots: range) -> None:
        for slot in slots:
            place = f"{mail} + {slot} * B * {width} + {row}"
            nothing = f"tl.zeros((BB, U{tag}), tl.float32)"
            self._unsaid[f"tl.store({place}, {nothing}, mask={mask})"] = None
