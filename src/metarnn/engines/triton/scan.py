"""A step that is linear in its state: nobody waits for another, and time may be split as well.

s_t = a_t s_{t-1} + b_t. A program walks through time with some units of one sequence. Where
sequences and units are too few to keep a GPU busy, time is cut into segments. A program then reads
all of its segment at once, works out a and b, tells those after it what they do to a state, and
when those before it have told theirs, goes through its segment from the state where that begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metarnn.engines.triton import chain
from metarnn.engines.triton.engine import interpreted
from metarnn.engines.triton.kernel import announce, current, first_launch, function, processors
from metarnn.engines.triton.program import Key, Program, power
from metarnn.engines.triton.walk import Walk
from metarnn.graph import Graph, Node, NotAffine, affine

if TYPE_CHECKING:
    from metarnn.engines.triton.loops import CallShape

UNITS = 128  # of a program that goes through all of time, with two warps
CHAINED_UNITS = 64  # of one that has a segment, with a warp for each of its rows
REGISTERS = 128  # of a thread of it, so that four programs fit on a processor
BUSY = 1024  # threads that keep a processor's memory busy


def scannable(graph: Graph) -> bool:
    """Whether a graph's loop is linear in its state and elementwise, all rows of one width."""
    nodes, widths = graph.nodes, set(graph.states)
    for node in nodes:
        if not (node.elementwise or node.source or node.op in ("slice", "join")):
            return False
        widths |= {node.width} if node.elementwise else set()
    if any(nodes[a].op == "join" for node in nodes for a in node.args):
        return False
    if any(node.op == "slice" and not _read(nodes, node.args[0]) for node in nodes):
        return False
    joined = {a for node in nodes if node.op == "join" for a in node.args}
    results = {k for k in graph.results if nodes[k].op != "join"} | joined
    widths -= {1}
    if len(widths) != 1 or any({nodes[k].width} != widths for k in results):
        return False
    try:
        affine(graph)
    except NotAffine:
        return False
    return True


def _read(nodes: tuple[Node, ...], k: int) -> bool:
    """Whether a row, or the one that it is a part of, is read from memory."""
    while nodes[k].op == "slice":
        k = nodes[k].args[0]
    return nodes[k].source and nodes[k].op != "state"


class Scan:
    """The kernel of a graph's loop; called like a `Kernel`."""

    def __init__(self, graph: Graph, *, backward: bool, kept: frozenset[int]) -> None:
        walk = Walk(graph, backward=backward, kept=kept)
        self.width, self.steps, self.span = walk.width, walk.steps, walk.span
        self.sources = walk.sources
        self._states = len(graph.states)
        self._launched = False
        self.program = Program(
            source=walk.source,
            arrays=tuple(walk.arrays),
            widths=(walk.width,),
            outputs={n: graph.nodes[graph.outputs[n]].width for n in walk.outputs},
            aliases=walk.aliases,
            sums={n: graph.nodes[graph.outputs[n]].width for n in walk.sums},
            states=tuple((n, i in kept, False) for i, n in enumerate(graph.states)),
        )

    def __call__(
        self,
        arrays: Mapping[Key, Tensor],
        size: CallShape,
        full: frozenset[int],
    ) -> None:
        """Run all steps."""
        steps, batch, device = size.steps, size.batch, size.device
        if not batch:
            return
        chained = steps > self.span and self._too_few(batch, processors(device))
        span, fixed, options = self.way(steps, chained=chained)
        segments = -(-steps // span)
        sums = {
            name: torch.empty(segments, batch, width, dtype=torch.float32, device=device)
            for name, width in self.program.sums.items()
        }
        given = {**arrays, **{("sum", name): total for name, total in sums.items()}}
        pointers = [given[key] for key in self.program.arrays]
        told = pointers[0]
        if chained:
            told = chain.untold(self._states, self.width, segments, batch, device)
        programs = segments * batch * -(-self.width // fixed["UNITS"])
        if not self._launched:
            announce(self.program.source)
        with first_launch(self._launched), current(device):
            self.loop[programs,](*pointers, told, steps, batch, span, **fixed, **options)
        self._launched = True
        for name, total in sums.items():
            torch.sum(total, 0, out=arrays["sum", name])

    def way(self, steps: int, *, chained: bool) -> tuple[int, dict[str, int], dict[str, int]]:
        """The steps of a segment, the kernel's constants, and options of the compiler."""
        units = power(self.width)
        if chained:
            span, rows = chain.ROWS * self.span, chain.ROWS
            # No two threads have the same units: one might see what is told later than the other.
            units = min(max(units, 32), CHAINED_UNITS)
            fixed = {"UNITS": units, "LOOKS": chain.looks(-(-steps // span))}
            options = {"num_warps": rows, "maxnreg": REGISTERS}
        else:
            span, rows = steps, 1
            fixed = {"UNITS": min(units, UNITS), "LOOKS": 0}
            options = {"num_warps": 2}
        fixed |= {"ROWS": rows, "EVEN": steps % (span if chained else self.steps) == 0}
        return span, fixed, {} if interpreted() else options

    @cached_property
    def loop(self) -> Any:
        return function(self.program.source)

    def _too_few(self, batch: int, available: int) -> bool:
        """Whether programs that go through all of time, two units a thread, leave a GPU idle."""
        return interpreted() or BUSY * available > 3 * batch * self.width // 2
