"""From a graph to C: a loop over time whose body does the stages of one step.

Threads share the work of a call in one of two ways. Each may have sequences of its own, and then
never waits for another one. Or they share each step: in a stage of units (`unit_stage`) the units,
with a barrier at its end; in any other one (`row_stage`: layer norm, softmax, rows of several
widths) first the columns of the products, then, after a barrier, the sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from metarnn.engines.codegen.dataflow import Dataflow
from metarnn.engines.codegen.names import Names
from metarnn.engines.codegen.statements import (
    Barrier,
    Code,
    Comment,
    For,
    Let,
    Statement,
)
from metarnn.engines.cpu.arrays import Arrays, Key
from metarnn.engines.cpu.print_c import function as print_function
from metarnn.engines.cpu.products import PackedSize, Products, most_tiles
from metarnn.engines.cpu.projections import SIZES, DenseProducts, no_projections
from metarnn.engines.cpu.row_stage import row_stage
from metarnn.engines.cpu.statements import BarrierOfAll, for_own_sequences
from metarnn.engines.cpu.unit_stage import common_width, unit_stage
from metarnn.engines.cpu.workspace import ArraySize
from metarnn.graph import Graph, Stage, stages
from metarnn.graph.ops import OPS

RUNTIME = {
    path.stem: path.read_text(encoding="utf-8")
    for path in (Path(__file__).parent / "runtime").glob("*.c")
}
SIMD = "\n".join([RUNTIME["simd"], *(op.c_source for op in OPS.values())])
LINALG = "".join([RUNTIME["simd"], RUNTIME["job"], SIZES, RUNTIME["microkernel"], RUNTIME["gemm"]])
# Constants and variables of every program.
RESERVED = ("B", "T", "V", "VL", "b", "b_begin", "b_end", "first", "job", "lanes", "n", "own_begin",
            "own_end", "packed", "phase", "place", "s", "stride", "t", "thread", "threads", "tile",
            "tile_end", "tiles", "u", "v", "worker", "workers")  # fmt: skip


@dataclass(frozen=True)
class Program:
    """C source and the arrays that it takes.

    `arrays` lists them as (kind, name), in the order of their pointers: inputs and outputs
    [T, B, n], contexts [B, n], vectors [n], states [slots, B, n] (the state before step s is in
    slot s % slots; of a single step the state after it, [B, n]), their initial and (but for a
    single step) final values [B, n], weights and biases of maps and their gradients, workspace.
    """

    name: str
    source: str
    arrays: tuple[Key, ...]
    workspace: dict[Key, ArraySize]
    packed: dict[Key, PackedSize]  # arrays of the workspace whose size depends on the vectors'
    outputs: dict[str, int]  # the width of each output that has an array ([B, n] if SUMMED)
    aliases: dict[str, str]  # an output that is the same node as another one
    states: int
    tiles: int  # how many threads find work in one sequence
    tiled: bool  # threads can share the units in all stages
    multiply_adds: int  # a step and sequence
    widest: int  # row
    projections: DenseProducts


def emit(
    graph: Graph,
    *,
    name: str = "",
    backward: bool = False,
    single: bool = False,
    projections: Callable[[Arrays], DenseProducts] = no_projections,
) -> Program:
    """A program for a graph's loop, forward or backward in time, or for a single step.

    For a single step weights are read where they are: packing pays when they are used at many.
    Projections come before a loop that goes forward, and after one that goes backward. With a
    `name` (see `plan.cell_name`) the source has names of the graph in it, too.
    """
    flow = Dataflow(graph)
    names = Names(flow, readable=bool(name), backward=backward, reserved=RESERVED)
    stage_list = stages(graph)
    arrays = Arrays(graph, stage_list, names, single=single)
    products = Products(arrays, packed=not single)
    widths = [common_width(arrays, stage) for stage in stage_list]
    body: list[Statement] = []
    tiles = 1
    for number, (stage, n) in enumerate(zip(stage_list, widths, strict=True)):
        groups = products.groups(number, stage.products, n)
        tiles = max(tiles, most_tiles(groups, n))
        body += [Barrier()] if number else []
        body.append(Comment(_summary(arrays, number, stage)))
        if n:
            body.append(unit_stage(arrays, products, groups, stage, n))
        else:
            body += row_stage(arrays, products, groups, stage)
    copies = [arrays.fill(k, target) for k, target in arrays.uncomputed]
    if copies:
        body += [Comment("Results that no stage computes."), for_own_sequences(tuple(copies))]
    # A single stage of units without products touches only its own units: nobody waits.
    alone = len(stage_list) == 1 and widths[0] and not stage_list[0].products and not copies
    body += [] if alone or single else [Barrier()]
    dense = projections(arrays)
    (arrays.after if backward else arrays.before).extend(dense.statements)
    kind = "step" if single else "backward" if backward else "forward"
    function = f"{name}_{kind}" if name else kind
    loop = _loop(arrays, body, backward=backward, single=single)
    source = [
        SIMD,
        RUNTIME["job"],
        print_function(function, [(c, arrays.shapes[k]) for k, c in arrays.titles.items()], loop),
        f"#define LOOP {function}\n",
        RUNTIME["launch"],
    ]
    linear = [node for node in graph.nodes if node.op == "linear"]
    return Program(
        name=function,
        source="\n".join(source),
        arrays=tuple(arrays.titles),
        workspace=arrays.workspace,
        packed=products.packed,
        outputs={
            n: graph.nodes[k].width for n, k in graph.outputs.items() if n not in arrays.aliases
        },
        aliases=arrays.aliases,
        states=len(graph.next_states),
        tiles=tiles,
        tiled=all(widths),
        multiply_adds=sum(node.width * graph.nodes[node.args[0]].width for node in linear),
        widest=max((node.width for node in graph.nodes), default=1),
        projections=dense,
    )


def _loop(
    arrays: Arrays, body: list[Statement], *, backward: bool, single: bool
) -> list[Statement]:
    """What each thread does in a call."""
    step = (Let("t", "T - 1 - s" if backward else "s"), *arrays.each, *body)
    everyone: list[Statement] = [] if single else [BarrierOfAll()]
    return [
        Let("T", "job->T"),
        Let("B", "job->B"),
        Let("threads", "job->threads"),
        Code("long phase = 0; /* of the barrier */"),
        *arrays.before,
        *everyone,
        Comment("Sequences whose units are all this thread's, and those whose units it shares."),
        Let("loop_threads", "job->loop_threads < threads ? job->loop_threads : threads"),
        Let("own_begin", "B * thread / loop_threads"),
        Let("own_end", "B * (thread + 1) / loop_threads"),
        Let("b_begin", "job->by_sequence ? own_begin : 0"),
        Let("b_end", "job->by_sequence ? own_end : B"),
        Let("worker", "job->by_sequence ? 0 : thread"),
        Let("workers", "job->by_sequence ? 1 : loop_threads"),
        For("s", "0", "(thread < loop_threads ? T : 0)", step),
        *everyone,
        *arrays.after,
    ]


def _summary(arrays: Arrays, number: int, stage: Stage) -> str:
    nodes = arrays.nodes
    products: list[str] = []
    for k in stage.products:
        transposed = "^T" if nodes[k].attributes.get("transposed") else ""
        weight = f"W_{arrays.names.map(nodes[k]['map'])}{transposed}"
        products.append(f"{arrays.pointer[k]} = {weight} {arrays.loaded(nodes[k].args[0])}")
    results = [target.pointer for k in stage.rest for target in arrays.targets.get(k, ())]
    then = f"then {', '.join(results)}" if products else ", ".join(results)
    return f"Stage {number + 1}: {'; '.join([*products, then] if results else products)}."
