"""`metarnn doctor`: what this machine has, and what that means."""

from __future__ import annotations

import importlib.util
import os
import platform

import torch
from rich.console import Console
from rich.table import Table

from metarnn import __version__
from metarnn.engines.cpu.compile import find_compiler

Finding = tuple[str, str, str]  # what was looked at, what was found, what that means


def doctor() -> None:
    """Say what this machine has to run on, and what that means."""
    findings = [
        ("metarnn", __version__, "this library"),
        ("Python", platform.python_version(), f"{platform.system()} {platform.machine()}"),
        ("torch", torch.__version__, "does the computing"),
        _threads(),
        _compiler(),
        _cuda(),
        _triton(),
    ]
    table = Table(box=None, show_header=False, padding=(0, 3, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(style="cyan", overflow="fold")
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(*finding)
    # Paths and device names are data: nothing in them is markup, nothing wants highlighting.
    Console(markup=False, highlight=False).print(table)


def _threads() -> Finding:
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    if threads < cores:
        meaning = "some cores stay idle; OMP_NUM_THREADS sets the number of threads"
    else:
        meaning = "torch uses every core"
    return "CPU", f"{threads} of {cores} threads", meaning


def _compiler() -> Finding:
    found = find_compiler()
    if found:
        return "C compiler", " ".join(found), "any cell is compiled for this machine"
    return "C compiler", "none", "cells run in plain torch, several times slower"


def _cuda() -> Finding:
    if not torch.cuda.is_available():
        return "CUDA", "none", "everything runs on the CPU"
    more = f" and {count - 1} more" if (count := torch.cuda.device_count()) > 1 else ""
    return "CUDA", torch.cuda.get_device_name(0) + more, "models can be moved there: .to('cuda')"


def _triton() -> Finding:
    if importlib.util.find_spec("triton") is None:
        return "Triton", "none", "nothing is lost; no engine uses it so far"
    return "Triton", "present", "good to have; no engine uses it so far"
