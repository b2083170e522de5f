"""A step that is linear in its state: nobody waits for another, and time may be split as well.

s_t = a_t s_{t-1} + b_t. A program walks through time with some units of one sequence. Where
sequences and units are too few to keep a GPU busy, time is cut into segments. A program then walks
through its segment twice: first to tell those after it what the segment does to a state, then, when
those before it have told theirs, from the state where it begins. By then its inputs are in a cache,
so that memory is read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.triton import chain, interpreted
from metarnn.engines.triton.kernel import current, first_launch, function, processors
from metarnn.engines.triton.passes import Size
from metarnn.engines.triton.program import Key, Program, power
from metarnn.engines.triton.walk import Walk
from metarnn.graph import Graph, NotAffine, affine

UNITS = 128  # of a program that goes through all of time, with two warps
CHAINED_UNITS = 64  # of one that has a segment, with one
BUSY = 1024  # threads that keep a processor's memory busy
SPAN = 32  # steps of a segment: what is in work at once stays in the caches


def scannable(graph: Graph) -> bool:
    """Whether a graph's loop is linear in its state and elementwise, all rows of one width."""
    nodes, widths = graph.nodes, set(graph.states)
    for node in nodes:
        if not (node.elementwise or node.source or node.op in ("slice", "join")):
            return False
        widths |= {node.width} if node.elementwise else set()
    joined = {a for node in nodes if node.op == "join" for a in node.args}
    if any(nodes[a].op == "join" for node in nodes for a in node.args):
        return False
    widths = {*widths, *(nodes[a].width for a in joined)} - {1}
    results = {k for k in graph.results if nodes[k].op != "join"}
    if len(widths) != 1 or any({nodes[k].width} != widths for k in results):
        return False
    try:
        affine(graph)
    except NotAffine:
        return False
    return True


class Scan:
    """The kernel of a graph's loop; called like a `Kernel`."""

    def __init__(self, graph: Graph, *, backward: bool, kept: frozenset[int]) -> None:
        walk = Walk(graph, backward=backward, kept=kept)
        self.width, self.steps, self.sources = walk.width, walk.steps, walk.sources
        self._states = len(graph.states)
        self._launched = False
        self.program = Program(
            source=walk.source,
            arrays=tuple(walk.arrays),
            widths=(walk.width,),
            outputs={n: graph.nodes[k].width for n, k in walk.outputs.items()},
            aliases=walk.aliases,
            sums={n: graph.nodes[k].width for n, k in walk.sums.items()},
            states=tuple((n, i in kept, False) for i, n in enumerate(graph.states)),
        )

    def __call__(
        self,
        arrays: Mapping[Key, Tensor],
        weights: Mapping[str, Tensor],
        size: Size,
        full: frozenset[int],
    ) -> None:
        """Run all steps."""
        steps, batch, device = size.steps, size.batch, size.device
        if not batch:
            return
        chained = steps > SPAN and self._too_few(batch, processors(device))
        most, span = (CHAINED_UNITS, SPAN) if chained else (UNITS, steps)
        units = min(power(self.width), most)
        rows = batch * -(-self.width // units)
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
        options = {} if interpreted() else {"num_warps": most // 64}
        with first_launch(self._launched), current(device):
            self.loop[rows * segments,](
                *pointers, told, steps, batch, span, UNITS=units, CHAINED=chained, **options
            )
        self._launched = True
        for name, total in sums.items():
            torch.sum(total, 0, out=arrays["sum", name])

    @cached_property
    def loop(self) -> Any:
        return function(self.program.source)

    def _too_few(self, batch: int, available: int) -> bool:
        """Whether programs that go through all of time, two units a thread, leave a GPU idle."""
        return interpreted() or BUSY * available > 3 * batch * self.width // 2
