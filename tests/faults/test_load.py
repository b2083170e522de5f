"""Much of everything: memory, threads and files stay as they were."""

import gc
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import metarnn
from metarnn.tasks.session import Session
from tests.helpers.memory import resident
from tests.helpers.process import succeed
from tests.helpers.toy import QUICK, train

GIGABYTE = 10**9


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.medium
def test_ten_thousand_streams_come_and_go():
    """As whole sequences, whichever of them are fed together."""
    torch.manual_seed(0)
    layer = metarnn.GRU(3, 16).eval()
    session, count = Session(layer), 10_000
    x = torch.randn(5, count, 3)
    order = [torch.randperm(count) for _ in range(5)]
    begin, y = time.monotonic(), x
    for t in range(5):
        y = session.feed(x[t, order[t]], order[t].tolist())
    assert time.monotonic() - begin < 60
    assert len(session.streams) == count
    with torch.no_grad():
        whole, _ = layer(x)
    torch.testing.assert_close(y, whole[-1, order[4]], rtol=1e-4, atol=1e-5)
    session.end(list(range(0, count, 2)))
    assert len(session.streams) == count // 2


@pytest.mark.medium
def test_a_million_steps():
    """Forward in one call; the last state is that of the same steps in two."""
    layer = metarnn.GRU(1, 4).eval()
    x = torch.randn(10**6, 1, 1)
    with torch.no_grad():
        y, last = layer(x)
        _, middle = layer(x[: 10**5])
        _, other = layer(x[10**5 :], middle)
    assert y.shape == (10**6, 1, 4)
    assert y.isfinite().all()
    torch.testing.assert_close(last, other)


def many_runs(count: int, folder: Path) -> None:
    settings = replace(QUICK, steps=2, validate_every=0, save_every=0, log_every=1)
    for _ in range(10):  # what is made once is made
        train(folder / "first", settings)
        shutil.rmtree(folder / "first")
    gc.collect()
    memory, threads, files = resident(), threading.active_count(), open_files()
    for k in range(count):
        train(folder / f"run{k}", settings)
        shutil.rmtree(folder / f"run{k}")
    gc.collect()
    assert threading.active_count() == threads
    assert open_files() <= files
    assert resident() - memory < 20 << 20, "memory grew with the number of runs"


@pytest.mark.medium
def test_twenty_runs_in_one_process_leave_nothing_behind(tmp_path):
    many_runs(20, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_thousand_runs_in_one_process_leave_nothing_behind(tmp_path):
    many_runs(1000, tmp_path)


# A text of so many bytes is written, numbered and read; what comes out is how much memory the
# process had at most beyond what it began with. A number of a character is a byte here.
CORPUS = """
    import os, resource
    from pathlib import Path
    from metarnn.tasks.language import corpus

    folder, size = Path({folder!r}), {size}
    line = "a line of text that comes again and again, with numbers in it: %09d\\n"
    block = "".join(line % k for k in range(10_000)).encode()
    with open(folder / "text.txt", "wb") as file:
        while file.tell() < size:
            file.write(block)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = corpus.load(str(folder / "text.txt"), cache=folder, in_memory=0)
    tokens = found["train"].tokens
    for start in range(0, len(tokens), len(tokens) // 1000):
        tokens.read(start, 1000)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def kilobytes(size: int, folder: Path, seconds: float) -> int:
    """Of memory that numbering a text of so many bytes takes."""
    if shutil.disk_usage(folder).free < 2 * size + 5 * GIGABYTE:
        pytest.skip(f"a text of {size / GIGABYTE:g} GB takes twice as much of the disk")
    code = CORPUS.format(folder=str(folder), size=size)
    return int(succeed(code, seconds=seconds).split()[-1])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_text_of_two_hundred_megabytes_is_numbered_in_little_memory(tmp_path):
    assert kilobytes(GIGABYTE // 5, tmp_path, 250) < 100_000


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("size", [2, 20])
def test_a_text_of_gigabytes_is_numbered_in_the_same_memory(size, tmp_path):
    assert kilobytes(size * GIGABYTE, tmp_path, 5000) < 100_000
