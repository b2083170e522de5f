"""The source of a scan: a step that is linear in its state, many steps at once.

Inputs of many steps are loaded together, since it is memory that takes time; then each step is
computed whole, what it puts out is stored, and nothing in between is.
"""

from __future__ import annotations

from metarnn.engines.codegen import statements as s
from metarnn.engines.codegen.dataflow import SUMMED, aliases
from metarnn.engines.triton import statements as t
from metarnn.engines.triton.addresses import Elements, StepUnits
from metarnn.engines.triton.module_text import kernel
from metarnn.engines.triton.scan_steps import ScanGraph, Step, Window
from metarnn.graph import Graph

# LOOKBACK is 0 where a program goes through all of time; EVEN if no step is left over.
CONSTANTS = "ROWS", "UNITS", "LOOKBACK", "EVEN"
UNSPECIALIZED = "steps", "batch", "span"
SCALARS = (
    "summaries_ptr,  # of segments and of groups, as int64: see lookback.py",
    "steps,",
    "batch,",
    "span,  # steps of a segment",
)
# Steps whose inputs are loaded at once, with at most two inputs (minGRU, forward) and with more: as
# many as fit into registers.
STEPS = 8, 4
# Steps of a row of a segment, all in work at once: with at most four inputs, and with more or in a
# backward pass, which has as many results.
SPANS = 16, 8


class ScanSource:
    """A graph's loop as the source of a kernel, and the arrays that it takes.

    Attributes:
        steps: That a program loads at once if it goes through all of time.
        span: Steps of a row of a segment of time, else.
        forgets: Whether a step may forget its state (at a reset): 0 · NaN would remember it.
    """

    def __init__(self, graph: Graph, *, name: str, backward: bool, kept: frozenset[int]) -> None:
        self.scan = ScanGraph(graph, backward, readable=bool(name))
        self.graph, self.width, self.states = self.scan.graph, self.scan.width, self.scan.states
        self.arguments, self.backward, self.kept = self.scan.arguments, backward, kept
        self.forgets = any(node.op == "where" for node in graph.nodes)
        inputs = _inputs(graph)
        self.steps, self.span = STEPS[inputs > 2], SPANS[backward or inputs > 4]
        # Each sum has an array; of outputs at every step the same one is stored once.
        self.aliases = aliases(graph, lambda name: name if name.startswith(SUMMED) else "")
        own = {n: self.graph.outputs[n] for n in graph.outputs if n not in self.aliases}
        self.outputs = {n: k for n, k in own.items() if not n.startswith(SUMMED)}
        self.sums = {n: k for n, k in own.items() if n.startswith(SUMMED)}
        statements = self._kernel()  # which asks for all arrays
        parameters = [*self.arguments.parameters(), *SCALARS]
        self.text = kernel(name or "scan", parameters, CONSTANTS, statements, UNSPECIALIZED)

    def _kernel(self) -> list[s.Statement]:
        """The work of a program: some units of a sequence in one segment of time."""
        n = self.width
        lines = [
            "pid = tl.program_id(0)",
            "B = batch + tl.full((), 0, tl.int64)",
            f"blocks = ({n} + UNITS - 1) // UNITS",
            "segment = pid // (batch * blocks)",
            "sequence = pid % (batch * blocks) // blocks + tl.full((), 0, tl.int64)",
            "row = tl.arange(0, ROWS)[:, None]",
            "units = pid % blocks * UNITS + tl.arange(0, UNITS)[None, :] + 0 * row",
            f"mask = (units < {n}) | ({n} % UNITS == 0)",
            "begin = segment * span",
            "stop = tl.minimum(begin + span, steps)",
        ]
        title = s.Comment("The sequence, the units and the segment of time of this program.")
        statements: list[s.Statement] = [title, *map(s.Code, lines)]
        statements.append(s.Comment("Initial states and sums."))
        for i, state in enumerate(self.states):
            statements.append(s.Load(s.Value(state), self._row("initial", i, "mask")))
            if i in self.kept:
                first = self._row("state", i, "mask & (row == 0)")
                statements.append(s.If("segment == 0", (s.Store(first, s.Value(state)),)))
        totals = [_zeros(total) for total, _ in self._totals()]
        through = s.For("base", "begin", "stop", self._through_time(), f"{self.steps}")
        both = s.If("LOOKBACK", self._with_look_back(), (through,))
        return [*statements, *totals, both, s.Comment("Final states and sums."), *self._end()]

    # A program that goes through all of time, and one that has a segment --------------------

    def _through_time(self) -> s.Block:
        window = Window(self.scan)
        steps = [Step(window, j) for j in range(self.steps)]
        computed = self._compute(window, steps)
        return (*self._positions("base", window, self.steps), *window.loads, *computed)

    def _with_look_back(self) -> s.Block:
        """All steps of a segment: what they do to a state, which is published, and then what it is.

        What both need is computed once, and is held in registers meanwhile. All that is loaded is
        on its way before the program waits.
        """
        window = Window(self.scan)
        steps = [Step(window, j) for j in range(self.span)]
        summary: list[s.Statement] = []
        for step in steps:
            for i, state in enumerate(self.states):
                a, d = (step.value(self.graph.outputs[f"{part}.{i}"]) for part in "ab")
                for part, offset in ("D", d), ("A", s.Constant(0.0)):
                    old = f"{part}_{state}"
                    new = f"affine_apply({{0}}, {old}, {{1}}, {self.forgets})"
                    text = f"tl.where({step.valid}, {new}, {old})"
                    summary.append(s.Let(old, text, (a, offset)))
                if not self.forgets:
                    step.apply(i, a, d)
        summary = [*window.loads, *window.independent, *summary]
        window.loads = []
        computed: list[s.Statement] = []
        for first in range(0, self.span, self.steps):
            computed += self._compute(window, steps[first : first + self.steps])
        identity: list[s.Statement] = []
        for state in self.states:
            identity.append(s.Let(f"A_{state}", "tl.full((ROWS, UNITS), 1.0, tl.float32)"))
            identity.append(_zeros(f"D_{state}"))
        return (
            *self._load_summaries(),
            *self._positions("begin", window, self.span, apart=self.span),
            s.Comment("What this segment does to a state, s -> A s + D."),
            *identity,
            *summary,
            *window.loads,
            *self._look_back(),
            *computed,
        )

    def _load_summaries(self) -> s.Block:
        """Begin to load the summaries of earlier segments."""
        n, groups = self.width, "(segments + ROWS * LOOKBACK - 1) // (ROWS * LOOKBACK)"
        lines = [
            "segments = (steps + span - 1) // span",
            "group = segment // (ROWS * LOOKBACK)",
            f"stride = B * {n}",
            "indices, masks = predecessors(segment, group, segments, row, mask, ROWS, LOOKBACK)",
        ]
        for i, state in enumerate(self.states):
            first = f"summaries_ptr + {i} * (segments + {groups}) * stride"
            load = f"load_summaries(summaries_{state}, indices, masks, stride, LOOKBACK)"
            lines.append(f"summaries_{state} = {first} + sequence * {n} + units")
            lines.append(f"pairs_{state} = {load}")
        title = s.Comment("What earlier segments do, as far as it is published.")
        return (title, *map(s.Code, lines))

    def _look_back(self) -> s.Block:
        """Publish the summary of this segment, and find the states that its rows begin with."""
        lines: list[str] = []
        for state in self.states:
            A, D, P, E = (f"{part}_{state}" for part in "ADPE")
            where = f"summaries_{state}, segment, stride, row, mask, ROWS, UNITS, {self.forgets}"
            lines.append(f"{A}, {D}, {P}, {E} = publish_summary({A}, {D}, {where})")
        for state in self.states:
            summary = ", ".join(f"{part}_{state}" for part in ("pairs", *"ADPE", "summaries"))
            where = "indices, masks, segment, group, segments, stride, row, mask"
            constants = f"ROWS, UNITS, LOOKBACK, {self.forgets}"
            lines.append(f"{state} = look_back({state}, {summary}, {where}, {constants})")
        return (s.Comment("The state that each row begins with."), *map(s.Code, lines))

    # Steps --------------------------------------------------------------------------------

    def _compute(self, window: Window, steps: list[Step]) -> list[s.Statement]:
        """Some steps: what needs no state, then one after the other, then what is stored.

        The order matters: a load after a store waits for it, since both might be of one place.
        """
        window.independent = []
        computed: list[s.Statement] = []
        stores: list[s.Statement] = []
        for step in steps:
            stores += self._one(step)
            computed += step.statements
        return [*window.independent, *computed, *stores]

    def _positions(self, base: str, window: Window, count: int, apart: int = 0) -> s.Block:
        """The first of the steps, where its rows are in all arrays, which steps there are.

        The rows of a program are so many steps `apart`.
        """
        time = f"steps - 1 - {base}" if self.backward else base
        step = -apart if self.backward else apart
        lines = [f"t = {time} + tl.full((), 0, tl.int64)"]
        for name, width in window.widths.items():
            # Few sequences, if time is cut: then offsets of 32 bits do.
            lines.append(f"stride_{name} = {'batch' if apart else 'B'} * {width}")
            lines.append(f"rows_{name} = {name}_ptr + (t * B + sequence) * {width}")
            lines.append(f"offset_{name} = row * ({step} * stride_{name})")
        for j in range(count):
            lines.append(f"valid_{j} = ({base} + {apart} * row + {j} < stop) | EVEN")
        return tuple(map(s.Code, lines))

    def _one(self, step: Step) -> list[s.Statement]:
        """The statements that store what a step puts out, once it is computed."""
        n, stores, masked = self.width, list[s.Statement](), f"mask & {step.valid}"
        outputs = [(name, step.parts(k)) for name, k in self.outputs.items()]
        sums = [(name, step.parts(k)) for name, k in self.sums.items()]
        values = [step.value(k) for k in self.graph.next_states]
        new = [s.Value(f"{state}_new_{step.j}") for state in self.states]
        for i, (target, value) in enumerate(zip(new, values, strict=True)):
            step.statements.append(t.Broadcast(target, value, StepUnits()))
            if i in self.kept:
                array = self.arguments.pointer("state", str(i))
                stores.append(s.Store(step.elements(array, n, 0, masked, after=1), target))
        for name, parts in sums:
            for start, value in parts:
                total = self._total(name, start)
                text = f"{total} + tl.where({step.valid}, {{0}}, 0.0)"
                step.statements.append(s.Let(total, text, (value,)))
        for state, target in zip(self.states, new, strict=True):
            text = f"tl.where({step.valid}, {target.name}, {state})"
            step.statements.append(s.Let(state, text))
        for name, parts in outputs:
            array, width = self.arguments.pointer("output", name), self._output_width(name)
            for start, value in parts:
                stores.append(s.Store(step.elements(array, width, start, masked), value))
        return stores

    # Arrays -------------------------------------------------------------------------------

    def _output_width(self, name: str) -> int:
        return self.graph.nodes[self.graph.outputs[name]].width

    def _row(self, kind: str, index: int, mask: str) -> Elements:
        """The row of this sequence in an array of a state."""
        array, n = self.arguments.pointer(kind, str(index)), self.width
        return Elements(f"{array} + sequence * {n}", n, 0, True, array, StepUnits(mask))

    def _total(self, name: str, start: int) -> str:
        return f"sum_{start}_{self.arguments.pointer('sum', name).removesuffix('_ptr')}"

    def _totals(self) -> list[tuple[str, Elements]]:
        """Sums over time: their names, and where this segment's go."""
        totals: list[tuple[str, Elements]] = []
        for name in self.sums:
            array, width = self.arguments.pointer("sum", name), self._output_width(name)
            base = f"{array} + segment * B * {width} + sequence * {width}"
            for start in range(0, width, self.width):
                place = Elements(base, width, start, True, array, StepUnits("last"))
                totals.append((self._total(name, start), place))
        return totals

    def _end(self) -> list[s.Statement]:
        finals = tuple(
            s.Store(self._row("final", i, "last"), s.Value(state))
            for i, state in enumerate(self.states)
        )
        last = s.Let("last", "mask & (row == ROWS - 1)")
        statements: list[s.Statement] = [last, s.If("stop == steps", finals)]
        for total, place in self._totals():
            summed = f"tl.broadcast_to(tl.sum({total}, 0)[None, :], (ROWS, UNITS))"
            statements += [s.Let(total, summed), s.Store(place, s.Value(total))]
        return statements


def _inputs(graph: Graph) -> int:
    """How many rows of the hidden width a step reads."""
    nodes, count = graph.nodes, 0
    for k, node in enumerate(nodes):
        if node.op == "input" and node.width > 1:
            slices = [user.op == "slice" for user in nodes if k in user.args]
            count += sum(slices) + (not all(slices))
    return count


def _zeros(name: str) -> s.Statement:
    return t.Broadcast(s.Value(name), s.Constant(0.0), StepUnits())
