"""From a graph to C: a loop over time whose body does the stages of one step.

Threads either split the sequences, and then never meet, or (`crew`) the work of each step: in an
aligned stage the units, and they meet once, at its end; in any other one (layer norm, softmax, rows
of several widths) first the columns of the products, they meet, then the sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from metarnn.engines.cpu.aligned import aligned, common_width
from metarnn.engines.cpu.layout import Layout
from metarnn.engines.cpu.outside import SIZES, Matrices, nothing
from metarnn.engines.cpu.products import VECTORS, Products, each_tile
from metarnn.engines.cpu.rows import Rows, fill
from metarnn.graph import Graph, stages
from metarnn.graph.ops import OPS

HERE = Path(__file__).parent
PRELUDE = "\n".join(
    [(HERE / "prelude.c").read_text(encoding="utf-8"), *(op.c_source for op in OPS.values())]
)
PRODUCTS = (
    PRELUDE
    + SIZES
    + "".join((HERE / f"{n}.c").read_text(encoding="utf-8") for n in ("products", "dense"))
)
EPILOGUE = (HERE / "epilogue.c").read_text(encoding="utf-8")
MEET = "if (!J->apart) meet(J, me, &round);"
BY_SEQUENCE = "for (long b = from; b < to; b++) {"


@dataclass(frozen=True)
class Program:
    """C source and the order of the pointers it takes.

    `arrays` lists them as (kind, name): inputs and outputs [T, B, n], contexts [B, n], vectors
    [n], states [slots, B, n] (the state before step s is in slot s % slots; of a single step the
    state after it, [B, n]), their initial and (but for a single step) final values [B, n], weights
    and biases of maps, scratch of `scratch[name]` numbers a sequence, packed weights.
    """

    source: str
    arrays: tuple[tuple[str, str], ...]
    scratch: dict[str, int]
    packed: dict[str, tuple[int, int, int]]  # width, vectors a tile, numbers a lane and tile
    outputs: dict[str, int]  # the width of each output that has an array ([B, n] if SUMMED)
    aliases: dict[str, str]  # an output that is the same node as another one
    states: int
    tiles: int  # how many threads find work in one sequence
    aligned: bool
    products: int  # multiply-adds a step and sequence
    width: int  # of the widest row
    outside: Matrices


def emit(
    graph: Graph,
    *,
    backward: bool = False,
    single: bool = False,
    outside: Callable[[Layout], Matrices] = nothing,
) -> Program:
    """A program for a graph's loop, forward or backward in time, or for a single step.

    For a single step weights are read as they lie: packing pays when they are used at many.
    Products `outside` the loop come before one that goes forward, and after one that goes backward.
    """
    found = stages(graph)
    layout = Layout(graph, found, single)
    products = Products(layout, packed=not single)
    widths = [common_width(layout, stage) for stage in found]
    body, tiles = [], 1
    for number, (stage, n) in enumerate(zip(found, widths, strict=True)):
        groups = products.groups(number, stage.products, n)
        widest = max([n, *(group.width for group in groups)])
        tiles = max(tiles, -(-widest // (16 * (groups[0].vectors if groups else VECTORS))))
        if n:
            body += aligned(layout, products, groups, stage, n)
        else:
            for group in groups:
                body += each_tile(group.tile, group.width, products.tile(group))
            body += [MEET] if groups else []
            body += [BY_SEQUENCE, *Rows(layout, stage).lines, "}"]
        if number + 1 < len(found):
            body.append(MEET)
    copies = [fill(layout, k, target) for k in layout.loose for target in layout.stores[k]]
    body += [BY_SEQUENCE, *copies, "}"] if copies else []
    # A single aligned stage without products touches only its own units: nobody waits.
    alone = len(found) == 1 and widths[0] and not found[0].products and not copies
    body += [] if alone or single else [MEET]
    linear = [node for node in layout.nodes if node.op == "linear"]
    matrices = outside(layout)
    (layout.last if backward else layout.once).extend(matrices.lines)
    return Program(
        "\n".join([PRELUDE, *_work(layout, body, backward, single), EPILOGUE]),
        tuple(layout.arrays),
        layout.scratch,
        products.packed,
        {n: graph.nodes[k].width for n, k in graph.outputs.items() if n not in layout.aliases},
        layout.aliases,
        len(graph.next_states),
        tiles,
        all(widths),
        sum(node.width * layout.nodes[node.args[0]].width for node in linear),
        max((node.width for node in layout.nodes), default=1),
        matrices,
    )


def _work(layout: Layout, body: list[str], backward: bool, single: bool) -> list[str]:
    return [
        "static void work(job *J, long me) {",
        "const long T = J->T, B = J->B, threads = J->threads;",
        "long round = 0;",
        *layout.once,
        *([] if single else ["meet(J, me, &round);"]),
        # This thread's sequences where all their units are its own, and its place among those who
        # share the units of [low, high).
        "const long loopers = J->loopers < threads ? J->loopers : threads;",
        "const long from = B * me / loopers, to = B * (me + 1) / loopers;",
        "const long low = J->apart ? from : 0, high = J->apart ? to : B;",
        "const long seat = J->apart ? 0 : me, crew = J->apart ? 1 : loopers;",
        "for (long s = 0; s < (me < loopers ? T : 0); s++) {",
        f"const long t = {'T - 1 - s' if backward else 's'};",
        *layout.each,
        *body,
        "}",
        *([] if single else ["meet(J, me, &round);", *layout.last]),
        "}",
    ]
