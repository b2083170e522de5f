"""`metarnn cell show`: a cell as formulas and as a picture, and how it would run here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from metarnn.cells import CELLS, Cell, cell, check, shapes
from metarnn.cli.table import say
from metarnn.engines import Request, choose
from metarnn.graph import GraphCell, Node, cut, latex, read, rescaled, stages, svg, text, trace_cell
from metarnn.graph.files import write
from metarnn.graph.formula import state_names
from metarnn.search import library
from metarnn.tasks.unit import CELL_FILES
from metarnn.training.progress import one_line

INPUT_SIZE, HIDDEN_SIZE = 3, 4


def show(
    name: str,
    /,
    input_size: int | None = None,
    hidden_size: int | None = None,
    svg: Path | None = None,
    latex: bool = False,
    unfold: int | None = None,
) -> None:
    """Show what a cell computes, its weights and states, and how this machine would run it.

    metarnn cell show gru --svg gru.svg

    metarnn cell show runs/search-lm/cell.json --latex

    Args:
        name: a built-in cell (lstm, gru, ...), a run folder, a file with a cell's graph (.json), or
            one that we found (found/NAME)
        input_size: width of the input; 3, or as in the file
        hidden_size: width of the hidden state; 4, or as in the file
        svg: also draw it into this file
        latex: print the formulas as LaTeX
        unfold: draw that many time steps instead of one
    """
    if not os.path.isdir(name):
        _show(find_cell(name, input_size, hidden_size), name, svg, latex, unfold)
        return
    files = [Path(name, file) for file in CELL_FILES.values() if Path(name, file).exists()]
    if not files:
        expected = "a run folder with the cell of its model, cell.json"
        check.refuse("name", name, expected, "A run has it from the start of its training on.")
    for number, file in enumerate(files):
        # Further units, such as that of a decoder, are drawn beside the first.
        picture = svg.with_stem(f"{svg.stem}-{file.stem}") if svg and number else svg
        _show(find_cell(str(file), input_size, hidden_size), str(file), picture, latex, unfold)


def find_cell(name: str, input_size: int | None, hidden_size: int | None) -> Cell:
    name = str(library.path(name)) if name.startswith(library.PREFIX) else name
    if name in CELLS or not (name.endswith(".json") or os.path.exists(name)):
        width = HIDDEN_SIZE if hidden_size is None else hidden_size
        options = {"outputs": width} if name == "jordan" else {}
        return cell(name, INPUT_SIZE if input_size is None else input_size, width, **options)
    graph = read(name)
    found = GraphCell(graph if hidden_size is None else rescaled(graph, hidden_size))
    return found if input_size is None else found.resized(input_size)


def _show(found: Cell, name: str, picture: Path | None, as_latex: bool, unfold: int | None) -> None:
    if unfold is not None and picture is None:
        check.refuse("unfold", unfold, "also --svg FILE, where to draw that")
    graph = found.graph if isinstance(found, GraphCell) else trace_cell(found)
    drawn = "" if picture is None else svg(graph, unfold)
    say(f"{one_line(name)}: input size {found.input_size}, {len(graph.nodes)} nodes\n")
    print(latex(graph) if as_latex else text(graph), end="\n\n")

    weights = shapes(found)
    total = sum(_count(shape) for shape in weights.values())
    print(f"parameters  {total:,}")
    for weight, shape in weights.items():
        print(f"  {weight:<14} {' × '.join(map(str, shape))}")
    named = zip(state_names(graph), graph.states, strict=True)
    print("states      " + ", ".join(f"{state} {width}" for state, width in named))
    if found.extra_inputs:
        given = ", ".join(f"{each} {width}" for each, width in found.extra_inputs.items())
        print(f"generated   {given}, by a network whose own weights are not counted here")

    parts = cut(graph)
    before = [parts.full.nodes[k] for k in parts.hoisted.values()]
    print(f"before the loop over time  {_work(before)}")
    for number, stage in enumerate(stages(parts.loop), 1):
        nodes = [parts.loop.nodes[k] for k in (*stage.products, *stage.rest)]
        print(f"stage {number} of each step       {_work(nodes)}")
    print(choose("auto", Request(found)))
    if picture is not None:
        write(picture, drawn)
        say(f"drawn to {picture}")


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for width in shape:
        total *= width
    return total


def _work(nodes: Sequence[Node]) -> str:
    products = [f"W_{node['map']}" for node in nodes if node.op == "linear"]
    rest = sum(node.op not in ("linear", "slice") for node in nodes)
    said = [f"products with {', '.join(products)}"] if products else []
    said += [f"{rest} other operations"] if rest else []
    return "; ".join(said) or "nothing"
