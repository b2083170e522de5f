"""A step that is linear in its state: nobody waits for another, and time may be split as well.

s_t = a_t s_{t-1} + b_t. A program goes through time with some units of one sequence. Where
sequences and units are too few to keep a GPU busy, time is cut into segments. A program then reads
all of its segment at once, works out a and b, publishes what they do to a state, and when those
before it have published theirs, goes through its segment from the state where that begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metarnn.engines.plan import Key
from metarnn.engines.triton.engine import interpreted
from metarnn.engines.triton.program import Program, StateArray, next_power_of_2
from metarnn.engines.triton.runtime import (
    current,
    first_launch,
    function,
    sm_count,
    warn_if_long,
)
from metarnn.engines.triton.scan_source import ScanSource
from metarnn.graph import Graph, Node, NotAffine, affine

if TYPE_CHECKING:
    from metarnn.engines.triton.loops import CallShape

UNITS = 128  # of a program that goes through all of time, with two warps
SEGMENT_UNITS = 64  # of one that has a segment, with a warp for each of its rows
ROWS = 4  # parts of a segment
REGISTERS = 128  # of a thread of it, so that four programs fit on an SM
BUSY = 1024  # threads that keep an SM's memory busy


def lookback(segments: int) -> int:
    """How many summaries each row of a segment reads. Few are less to read; of many, fewer states
    follow one another."""
    return 2 if segments <= 64 else 4


def scannable(graph: Graph) -> bool:
    """Whether a graph's loop is linear in its state and elementwise, all rows of one width."""
    nodes, widths = graph.nodes, set(graph.states)
    for node in nodes:
        if not (node.elementwise or node.source or node.op in ("slice", "join")):
            return False
        widths |= {node.width} if node.elementwise else set()
    if any(nodes[a].op == "join" for node in nodes for a in node.args):
        return False
    if any(node.op == "slice" and not _in_memory(nodes, node.args[0]) for node in nodes):
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


def _in_memory(nodes: tuple[Node, ...], k: int) -> bool:
    """Whether a row, or the one that it is a part of, is read from memory."""
    while nodes[k].op == "slice":
        k = nodes[k].args[0]
    return nodes[k].source and nodes[k].op != "state"


class Scan:
    """The kernel of a graph's loop; called like a `Kernel`."""

    def __init__(
        self,
        graph: Graph,
        *,
        name: str = "",
        backward: bool = False,
        kept: frozenset[int] = frozenset(),
    ) -> None:
        source = ScanSource(graph, name=name, backward=backward, kept=kept)
        self.width, self.steps, self.span = source.width, source.steps, source.span
        self.graph = graph
        self._launched = False
        widths = {name: graph.nodes[k].width for name, k in graph.outputs.items()}
        self.program = Program(
            name=name or "scan",
            source=source.text,
            arrays=source.arguments.keys,
            widths=(source.width,),
            outputs={name: widths[name] for name in source.outputs},
            aliases=source.aliases,
            sums={name: widths[name] for name in source.sums},
            states=tuple(StateArray(n, i in kept, False) for i, n in enumerate(graph.states)),
        )

    @cached_property
    def sources(self) -> dict[Key, int]:
        """The widths of the arrays that are read."""
        return {
            (kind, name): self.graph.nodes[self.graph.named(kind)[name]].width
            for kind, name in self.program.arrays
            if kind in ("input", "context", "vector")
        }

    @cached_property
    def function(self) -> Any:
        """The kernel function, made of its source when it is first needed."""
        return function(self.program.name, self.program.source)

    def __call__(self, arrays: Mapping[Key, Tensor], size: CallShape, full: frozenset[int]) -> None:
        """Run all steps."""
        steps, batch, device = size.steps, size.batch, size.device
        if not batch:
            return
        in_segments = steps > self.span and self._idle(batch, sm_count(device))
        span, constants, options = self.launch_options(steps, in_segments=in_segments)
        segments = -(-steps // span)
        sums = {
            name: torch.empty(segments, batch, width, dtype=torch.float32, device=device)
            for name, width in self.program.sums.items()
        }
        arrays_and_sums = {**arrays, **{("sum", name): each for name, each in sums.items()}}
        pointers = [arrays_and_sums[key] for key in self.program.arrays]
        summaries = self._summaries(segments, batch, device) if in_segments else pointers[0]
        programs = segments * batch * -(-self.width // constants["UNITS"])
        if not self._launched:
            warn_if_long(self.program.source)
        with first_launch(self._launched), current(device):
            self.function[programs,](
                *pointers, summaries, steps, batch, span, **constants, **options
            )
        self._launched = True
        for name, each in sums.items():
            torch.sum(each, 0, out=arrays["sum", name])

    def launch_options(
        self, steps: int, *, in_segments: bool
    ) -> tuple[int, dict[str, int], dict[str, int]]:
        """The steps of a segment, the kernel's constants, and options of the compiler."""
        units = next_power_of_2(self.width)
        if in_segments:
            span, rows = ROWS * self.span, ROWS
            # No two threads have the same units: one might see a summary later than the other.
            units = min(max(units, 32), SEGMENT_UNITS)
            constants = {"UNITS": units, "LOOKBACK": lookback(-(-steps // span))}
            options = {"num_warps": rows, "maxnreg": REGISTERS}
        else:
            span, rows = steps, 1
            constants = {"UNITS": min(units, UNITS), "LOOKBACK": 0}
            options = {"num_warps": 2}
        at_once = span if in_segments else self.steps
        constants |= {"ROWS": rows, "EVEN": steps % at_once == 0}
        return span, constants, {} if interpreted() else options

    def _summaries(self, segments: int, batch: int, device: torch.device) -> Tensor:
        """Summaries of all segments and groups of them, none published yet."""
        groups = -(-segments // (ROWS * lookback(segments)))
        count = len(self.program.states) * (segments + groups) * batch * self.width
        return torch.full((count,), -1, dtype=torch.int64, device=device)

    def _idle(self, batch: int, sms: int) -> bool:
        """Whether programs that go through all of time, two units a thread, leave SMs idle."""
        return interpreted() or BUSY * sms > 3 * batch * self.width // 2
