"""Kernels compile for an H200, which need not be there, and fit on it."""

import json

import pytest

from tests.helpers.interpreter import INSTALLED
from tests.helpers.process import succeed

pytestmark = pytest.mark.skipif(not INSTALLED, reason="Triton is not installed")
ON_CHIP = 227 << 10

# In a process of its own, since in this one Triton is an interpreter. It prints, for each kernel,
# the shared memory that one program takes.
COMPILE = """
import json
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from metarnn import cells
from metarnn.engines.plan import plan_loop
from metarnn import hyper
from metarnn.engines.triton.loops import loop_kernels
from metarnn.engines.triton.kernel import launch_constants
from metarnn.engines.triton.scan import Scan
from metarnn.engines.triton.tiling import tile
from metarnn.graph import GraphCell
from tests.helpers.operations import every_operation
from tests.helpers.random_graphs import random_graph

def shared(kernel, batch, dot, split):
    if isinstance(kernel, Scan):
        lengths = (64, 100, 8000)
        every = [kernel.launch_options(n, in_segments=c) for n in lengths for c in (True, False)]
        ways = [(options, constants) for _, constants, options in every]
    else:
        tiling = tile(kernel.program, batch, dot.itemsize * (2 if split else 1), 132)
        full = frozenset(range(len(kernel.program.states)))
        constants = launch_constants(kernel.program, tiling, full, dot, split)
        options = {"num_warps": tiling.warps, "num_stages": tiling.stages}
        ways = [(options, constants)]
    return max(compiled(kernel, dot, constants, options) for options, constants in ways)

def compiled(kernel, dot, constants, options):
    made, signature, given, attributes = kernel.program, {}, {}, {}
    for i, name in enumerate(kernel.function.arg_names):
        if name in constants:
            signature[name], given[i,] = "constexpr", constants[name]
        elif name in ("steps", "batch", "first", "span"):
            signature[name] = "i32"
        elif name in ("counters_ptr", "timeout_flag_ptr"):
            signature[name] = "*i32"
        elif name == "summaries_ptr":
            signature[name] = "*i64"
        else:
            kind = made.arrays[i][0]
            narrow = "*bf16" if dot == torch.bfloat16 else "*fp32"
            # As under autocast.
            wide = "sum", "initial", "final", "partial_sums", "mailbox", "weight"
            signature[name] = "*fp32" if kind in wide else narrow
            attributes[i,] = [["tt.divisibility", 16]]
    source = ASTSource(kernel.function, signature, given, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).metadata.shared

cell, found = eval(CELL), {}
made = loop_kernels(plan_loop(cell, MASKS))
for kind in ("infer", "train", "backward"):
    for dot, split in TYPES:
        bytes = shared(getattr(made, kind), BATCH, getattr(torch, dot), split)
        found[f"{kind} {dot} {split}"] = bytes
print(json.dumps(found))
"""
HALF, SINGLE = [("bfloat16", False)], [("float32", False), ("float32", True)]


def check(cell: str, batch: int, types, masks: tuple[str, ...] = ()) -> None:
    head = f"CELL, BATCH, TYPES, MASKS = {cell!r}, {batch}, {types}, {masks}\n"
    found = json.loads(succeed(head + COMPILE, TRITON_INTERPRET=None, seconds=600))
    assert len(found) == 3 * len(types)
    assert max(found.values()) <= ON_CHIP, found


CELLS = {
    "lstm": "cells.LSTM(256, 256)",
    "lstm-odd": "cells.LSTM(100, 300, proj_size=70, peephole=True)",
    "lstm-norm": "cells.LSTM(256, 256, layer_norm=True)",
    "onlstm": "cells.ONLSTM(96, 96, chunk=8)",
    "gru-before": "cells.GRU(256, 256, reset='before')",
    "mingru": "cells.MinGRU(256, 256)",
    "sru": "cells.SRU(1024, 1024)",
    "hyperlstm": "hyper.HyperLSTM(64, 256, 64)",
    "lowrank": "hyper.Generated(cells.LSTM(256, 256), (hyper.LowRank(),))",
    "mogrifier": "hyper.Mogrifier(cells.LSTM(512, 512), rounds=5, rank=32)",
    "graph": "GraphCell(random_graph(5))",
    "operations": "GraphCell(every_operation(256))",
    "one": "cells.LSTM(1, 1)",
}


@pytest.mark.medium
@pytest.mark.parametrize("name", ["lstm", "graph", "operations"])
def test_kernels_compile_and_fit(name):
    check(CELLS[name], 64, HALF)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CELLS)
def test_kernels_of_many_cells_compile_and_fit(name):
    check(CELLS[name], 64, HALF + SINGLE)
    check(CELLS[name], 5, HALF, masks=("alive", "resets"))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hidden", [512, 1000, 2048])
def test_kernels_of_wide_cells_compile_and_fit(hidden):
    check(f"cells.LSTM({hidden}, {hidden})", 256, HALF + SINGLE)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20))
def test_kernels_of_random_graphs_compile_and_fit(seed):
    check(f"GraphCell(random_graph({seed}))", 64, HALF)
