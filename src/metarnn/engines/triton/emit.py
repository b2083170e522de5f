"""From a graph to a Triton kernel: one launch runs all time steps.

A step is a sequence of segments. In each, a program first computes what it can while it waits for
others, then what others wait for, then the rest; at the end of a step it prefetches for the next.
"""

from __future__ import annotations

from dataclasses import replace

from metarnn.engines.codegen import statements as s
from metarnn.engines.triton import statements as t
from metarnn.engines.triton.addresses import Elements, Tile
from metarnn.engines.triton.builder import Builder, Place, elements
from metarnn.engines.triton.mailboxes import Mailboxes
from metarnn.engines.triton.module_text import kernel
from metarnn.engines.triton.prefetch import Prefetch
from metarnn.engines.triton.program import Program, StateArray
from metarnn.engines.triton.rows import Rows
from metarnn.engines.triton.units import Units
from metarnn.graph import Graph

# How the work is shared, see `Tiling.constants`, and the dtypes that products are computed in.
CONSTANTS = (
    "PROGRAMS", "BLOCK_B", "SEQUENCES", "DOT_DTYPE", "SPLIT_FP32", "SINGLE", "PUBLISH",
)  # fmt: skip
GROUP_CONSTANTS = "CHUNK", "INNER", "RESIDENT", "PARTS", "PARTIAL", "OFFSET"
UNSPECIALIZED = "steps", "batch", "first"  # values for which Triton compiles no other kernel
SCALARS = (
    "counters_ptr,  # [groups, 32], of the barrier; zero before and after",
    "timeout_flag_ptr,  # [1], set if a program waits in vain",
    "steps,",
    "batch,",
    "first,  # the first sequence of this launch",
)
INDICES = """
pid = tl.program_id(0)
group = pid // PROGRAMS  # of sequences
program = pid % PROGRAMS  # of those that share the units
counter = counters_ptr + group * 32
zero = tl.full((), 0, tl.int64)  # offsets may take more than 32 bits
B = batch + zero
rows = tl.minimum(batch - first - group * SEQUENCES, SEQUENCES)
row = first + group * SEQUENCES + tl.arange(0, BLOCK_B).to(tl.int64)[:, None]
row_mask = tl.arange(0, BLOCK_B)[:, None] < rows
"""
SYNCHRONIZATION = """
arrivals = 0  # at the barrier, of all programs, to wait for next
ok = 1  # cleared when waiting in vain
NO_BARRIER: tl.constexpr = SINGLE or PUBLISH
"""
END = """
barrier_reset(counter, PROGRAMS, SINGLE)
if ok == 0:
    tl.store(timeout_flag_ptr, 1)
"""


def emit(
    graph: Graph, *, name: str = "", backward: bool = False, kept: frozenset[int] = frozenset()
) -> Program:
    """A kernel for a graph's loop, forward or backward in time.

    With a name it calls its arrays and values as the graph does; without, by numbers. The states in
    `kept` are written to arrays of states even if no step reads them there.
    """
    return Emitter(graph, backward, kept, readable=bool(name)).program(name or "recurrence")


class Emitter:
    """Puts together what the segments of a kernel do."""

    def __init__(
        self, graph: Graph, backward: bool, kept: frozenset[int], *, readable: bool
    ) -> None:
        self.graph = graph
        self.kernel = Builder(graph, backward, kept, readable)
        self.layout, self.states = self.kernel.layout, self.kernel.states
        self.mailboxes, self.prefetch = Mailboxes(self.kernel), Prefetch(self.kernel)
        self.segments = [
            Units(self.kernel, self.prefetch, self.mailboxes, i) if segment.width
            else Rows(self.kernel, i)
            for i, segment in enumerate(self.layout.segments)
        ]  # fmt: skip
        self._fuse_products()
        self._scatter_products()
        self._load_initial_states()
        self.phases = [segment.phases() for segment in self.segments]
        self.update = self._update_states()
        self._store_final_states()

    def program(self, name: str) -> Program:
        layout, graph, nodes = self.layout, self.graph, self.graph.nodes
        targets = [key for keys in layout.targets.values() for key in keys]
        widths = {name: nodes[k].width for name, k in graph.outputs.items()}
        rows = any(not segment.width for segment in layout.segments)
        source = self._source(name)
        return Program(
            name=name,
            source=source,
            arrays=self.kernel.arguments.keys,
            widths=tuple(tile.width for tile in self.kernel.tiles if not tile.replicated),
            outputs={name: widths[name] for kind, name in targets if kind == "output"},
            aliases=layout.aliases,
            sums={name: widths[name] for kind, name in targets if kind == "sum"},
            states=tuple(
                StateArray(width, self.kernel.has_array[i], self._exact(i))
                for i, width in enumerate(graph.states)
            ),
            groups=tuple(self.kernel.groups),
            scratch=self.kernel.scratch,
            mailboxes=self.mailboxes.widths,
            exchanges=len(layout.awaited),
            # Programs that only share rows, and never others' results, are one a group.
            synchronizes=bool(layout.awaited) or (bool(self._last_exchange()) and not rows),
            rows=rows,
        )

    def _exact(self, index: int) -> bool:
        """Whether more than products read a state from memory: it must not be rounded there."""
        k = self.layout.state_node.get(index)
        if index in self.layout.carried or k is None:
            return False
        return any(self.graph.nodes[use.user].op != "linear" for use in self.layout.uses(k))

    # How segments depend on one another ---------------------------------------------------

    def _fuse_products(self) -> None:
        """Compute products of replicated segments along with those of the same rows that follow."""
        for number, segment in enumerate(self.segments):
            if not (isinstance(segment, Units) and segment.segment.replicated):
                continue
            for later in range(number + 1, len(self.segments)):
                other = self.segments[later]
                if later in self.layout.awaited:
                    break
                if isinstance(other, Units):
                    segment.products.fuse(other.products)

    def _scatter_products(self) -> None:
        """Let segments know which products of what they compute are partial sums."""
        for segment in self.segments:
            for group, argument in segment.products.groups if isinstance(segment, Units) else ():
                if group.partial_tiles:
                    home = self.segments[self.layout.segment_of[self.layout.slice(argument).root]]
                    assert isinstance(home, Units)
                    home.scattered.append((group, argument))

    # States -------------------------------------------------------------------------------

    def _state(self, index: int) -> s.Value:
        return s.Value(self.states[index])

    def _rows_of_state(self, kind: str, index: int, slot: str = "") -> Elements:
        array, width = self.kernel.pointer(kind, str(index)), self.graph.states[index]
        base = f"{array} + {slot} * B * {width}" if slot else array
        return elements(Place(array, base), width, 0, Tile(width))

    def _load_initial_states(self) -> None:
        for i, width in enumerate(self.graph.states):
            self.kernel.tiles[Tile(width)] = None
            self.kernel.before.append(s.Load(self._state(i), self._rows_of_state("initial", i)))
            if self.kernel.has_array[i]:
                array = self._rows_of_state("state", i)
                self.kernel.before.append(s.Store(array, self._state(i)))
            self.mailboxes.introduce(i, self._state(i))

    def _update_states(self) -> s.Block:
        """The states that are carried in registers are those of the next step."""
        computed: list[s.Statement] = []
        update: list[s.Statement] = []
        for i in sorted(self.layout.carried):
            final = self.graph.next_states[i]
            units = self.segments[self.layout.segment_of[final]]
            assert isinstance(units, Units)
            value = units.value(final)
            computed += units.take()
            if (
                isinstance(value, s.Value)
                and value.axes is s.Axes.TILE
                and value.name not in self.states
            ):
                update.append(s.Let(self.states[i], value.name))
            else:
                new = s.Value(self.kernel.names.unique(f"{self.states[i]}_new"))
                computed.append(t.Broadcast(new, value, units.tile))
                update.append(s.Let(self.states[i], new.name))
        return (*computed, *update)

    def _store_final_states(self) -> None:
        for i in range(len(self.states)):
            if i not in self.layout.carried:  # another program may have computed it
                slot = f"(steps + zero if FULL_HISTORY_{i} else (steps + zero) % 3)"
                last = replace(self._rows_of_state("state", i, slot), bypass_l1=True)
                self.kernel.after.append(t.RawLoad(self._state(i), last, zeroed=False))
            self.kernel.after.append(s.Store(self._rows_of_state("final", i), self._state(i)))

    # The kernel ---------------------------------------------------------------------------

    def _source(self, name: str) -> str:
        groups = [g.constant(role) for g in self.kernel.groups for role in GROUP_CONSTANTS]
        full = [f"FULL_HISTORY_{i}" for i, has in enumerate(self.kernel.has_array) if has]
        tiles = sorted(self.kernel.tiles, key=lambda tile: tile.replicated)
        units = [f"UNITS_{tile.suffix}" for tile in tiles if not tile.replicated]
        statements = [
            s.Comment("The sequences and units of this program."),
            *code(INDICES),
            *(s.Code(line) for tile in tiles for line in tile.definition()),
            s.Comment("Weights, and all else that is the same at all steps."),
            *self.kernel.once,
            s.Comment("Initial states."),
            *self.kernel.before,
            *code(SYNCHRONIZATION),
            *self._first_exchange(),
            *self.prefetch.first(),
            s.Comment("Triton is not to load ahead what the step before has yet to write."),
            t.SequentialFor("s", "0", "steps", self._step()),
            *self._last_exchange(),
            s.Comment("Final states and sums."),
            *self.kernel.after,
            *code(END),
        ]
        parameters = [*self.kernel.arguments.parameters(), *SCALARS]
        constants = [*CONSTANTS, *units, *groups, *full]
        return kernel(name, parameters, constants, statements, UNSPECIALIZED)

    def _first_exchange(self) -> s.Block:
        """All initial states are there before another program reads them."""
        in_memory = map(self.layout.state_in_memory, range(len(self.states)))
        exchange: s.Block = ()
        if self.layout.awaited and any(in_memory):
            exchange = (t.BarrierArrive(),)
            if self.phases[0].ready or 0 not in self.layout.awaited:
                exchange += (t.BarrierWait(),)  # the first segment reads them before a barrier
        elif any(self.kernel.has_array):
            exchange = (s.Barrier(),)
        if not self.mailboxes.setup:
            return exchange
        mailboxes = *self.mailboxes.setup, t.BarrierArrive(), t.BarrierWait()
        return (s.If("PUBLISH", mailboxes, exchange),)

    def _step(self) -> s.Block:
        """The segments of a step, with barriers between them unless values are published."""
        awaited, count = self.layout.awaited, len(self.segments)
        arrivals = {(number - 1) % count for number in awaited}
        last = max(arrivals, default=count - 1)
        time = "steps - 1 - s" if self.kernel.backward else "s"
        step: list[s.Statement] = [s.Let("t", f"{time} + zero"), s.Let("s64", "s + zero")]
        for number, (segment, phases) in enumerate(
            zip(self.layout.segments, self.phases, strict=True)
        ):
            rows = f"tiles of {segment.width} units" if segment.width else "whole rows"
            step += [s.Comment(f"Segment {number + 1} of {count}: {rows}."), *phases.ready]
            if number in awaited:
                step.append(s.Comment("Wait for other programs, unless their values are polled."))
                step.append(t.BarrierWait("NO_BARRIER"))
            step += phases.exchanged
            if number in arrivals:
                step.append(t.BarrierArrive("NO_BARRIER"))
            elif writes(phases.exchanged):
                step.append(s.Barrier())
            if phases.deferred:
                step += [s.Comment("Results that no program waits for."), *phases.deferred]
            if number == last:
                step += self.prefetch.next()
        title = s.Comment("The states before the next step.")
        return (*step, title, *self.update, *self.prefetch.advance())

    def _last_exchange(self) -> s.Block:
        """All have written their last states before anybody reads them."""
        if len(self.layout.carried) == len(self.states):
            return ()
        return (*(() if 0 in self.layout.awaited else (t.BarrierArrive(),)), t.BarrierWait())


def code(lines: str) -> list[s.Statement]:
    return [s.Code(line) for line in lines.strip().split("\n")]


def writes(block: s.Block) -> bool:
    """Whether statements store anything in memory, for this program or another."""
    return any(
        isinstance(each, s.Store)
        or (isinstance(each, s.Accumulate) and isinstance(each.total, s.Address))
        or (isinstance(each, s.For) and writes(each.body))
        or (isinstance(each, s.If) and writes((*each.body, *each.otherwise)))
        for each in block
    )
