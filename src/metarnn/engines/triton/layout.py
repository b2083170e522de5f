"""Where the values of a step are kept, and which programs have to wait for which.

The programs of a group share some sequences. What another program (or a segment with another way
of sharing) reads goes through memory, with a barrier before the segment that reads it; all else
stays in registers. Where only products read what goes through memory, values are published one by
one in mailboxes, in place of barriers.
"""

from __future__ import annotations

from metarnn.engines.codegen.dataflow import SUMMED, Dataflow, Use
from metarnn.engines.plan import Key
from metarnn.engines.triton.segments import Segment, segments
from metarnn.graph import Graph


class Layout(Dataflow):
    """The segments of a graph's loop, and for each value whether it is in registers or memory.

    Attributes:
        targets: For each result of the step the arrays it is written to, as ("state", index),
            ("output", name) or, if it is summed over time, ("sum", name).
        aliases: Outputs that are the same as another one.
        segment_of: The segment that computes a node.
        carried: States that go from step to step in registers.
        in_memory: Nodes that are read from memory within their step.
        awaited: The segments that begin with a barrier, and the nodes that it makes visible.
        published: Nodes that programs exchange through mailboxes in place of barriers; empty if
            not all can be.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.targets, self.aliases = _targets(graph)
        self.segments = segments(self, self.targets)
        self.segment_of = {k: i for i, segment in enumerate(self.segments) for k in segment.nodes}
        self.state_node = {node["index"]: k for k, node in enumerate(self.nodes)
                           if node.op == "state"}  # fmt: skip
        self.carried = {i for i in range(len(graph.states)) if self._carried(i)}
        self.in_memory = {
            k for k, node in enumerate(self.nodes)
            if not node.source and node.op != "slice" and self.needs_memory(k, self.in_registers)
        }  # fmt: skip
        self.awaited = self._awaited()
        self.published = self._published()

    def in_registers(self, k: int, use: Use) -> bool:
        """Whether a user finds a node's elements in its own registers."""
        node, user = self.nodes[k], self.nodes[use.user]
        producer, consumer = self.segment(k), self.segment(use.user)
        if producer.replicated and user.op == "linear":
            return True
        if user.op == "linear" or node.op == "join" or producer.tile != consumer.tile:
            return False
        if not producer.width:  # rows: nothing in registers outlives the segment, or is cut
            uncut = use.start == 0 and use.width == node.width
            return producer is consumer and uncut and user.op not in ("repeat", "fold")
        if node.op == "linear":
            return use.width == producer.width and use.start % producer.width == 0
        return use.start == 0 and use.width == node.width

    def segment(self, k: int) -> Segment:
        """The segment that computes a node; of a state, the one that computed it last step."""
        node = self.nodes[k]
        k = self.graph.next_states[node["index"]] if node.op == "state" else k
        return self.segments[self.segment_of[k]]

    def state_in_memory(self, index: int) -> bool:
        """Whether somebody reads a state from memory."""
        k = self.state_node.get(index)
        products = k is not None and any(self._is_product(use) for use in self.uses(k))
        return index not in self.carried or products

    def only_products_read(self, k: int) -> bool:
        """Whether nothing but products reads a node from memory."""
        return all(self._is_product(use) or self.in_registers(k, use) for use in self.uses(k))

    def published_width(self, k: int) -> int:
        """The width of the rows of units in which a node is computed, if it is published; or 0."""
        return self.segment(k).width if k in self.published else 0

    def _is_product(self, use: Use) -> bool:
        return self.nodes[use.user].op == "linear"

    def _carried(self, index: int) -> bool:
        k = self.state_node.get(index)
        if self.segment(self.graph.next_states[index]).width != self.graph.states[index]:
            return False
        return k is None or self.only_products_read(k)

    def _awaited(self) -> dict[int, set[int]]:
        written: list[set[int]] = [set() for _ in self.segments]
        read: list[set[int]] = [set() for _ in self.segments]
        for k, node in enumerate(self.nodes):
            state = node.op == "state"
            if not (self.state_in_memory(node["index"]) if state else k in self.in_memory):
                continue
            result = self.graph.next_states[node["index"]] if state else k
            written[self.segment_of[result]].add(k)
            for use in self.uses(k):
                if self._crosses_programs(k, use):
                    read[self.segment_of[use.user]].add(k)
        awaited: dict[int, set[int]] = {}
        pending: set[int] = set()
        for _ in range(2):  # twice: what a step leaves behind is read by the next one
            for i in range(len(self.segments)):
                if pending & read[i]:
                    awaited.setdefault(i, set()).update(pending)
                    pending = set()
                pending |= written[i]
        return awaited

    def _published(self) -> set[int]:
        """All that a program reads of others, if only products read it."""
        if len(self.carried) < len(self.graph.states) or any(not s.width for s in self.segments):
            return set()
        states = {k for i, k in self.state_node.items() if self.state_in_memory(i)}
        if any(not self.only_products_read(k) or self._per_sequence(k) for k in self.in_memory):
            return set()
        return states | self.in_memory

    def _per_sequence(self, k: int) -> bool:
        """Whether a node is one element per sequence, which several programs write."""
        return self.nodes[k].width == 1 != self.segment(k).width

    def _crosses_programs(self, k: int, use: Use) -> bool:
        """Whether a user may read from memory what another program has written there."""
        producer, consumer = self.segment(k), self.segment(use.user)
        if self._is_product(use) or producer.width != consumer.width:
            return True
        return bool(producer.width) and not (use.start == 0 and use.width == self.nodes[k].width)


def _targets(graph: Graph) -> tuple[dict[int, list[Key]], dict[str, str]]:
    targets: dict[int, list[Key]] = {}
    for index, k in enumerate(graph.next_states):
        targets.setdefault(k, []).append(("state", str(index)))
    aliases: dict[str, str] = {}
    first: dict[tuple[int, str], str] = {}
    # What is an output at every step need not be summed in the loop as well. Of what is summed, an
    # adjoint of a vector (summed over sequences too, later) is not one of a context.
    for name in sorted(graph.outputs, key=lambda name: name.startswith(SUMMED)):
        k = graph.outputs[name]
        kind = name.partition(".")[0] if name.startswith(SUMMED) else ""
        same = first.get((k, "")) or first.setdefault((k, kind), name)
        if same != name:
            aliases[name] = same
        else:
            targets.setdefault(k, []).append(("sum" if kind else "output", name))
    return targets, aliases
