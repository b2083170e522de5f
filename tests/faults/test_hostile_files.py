"""Whatever a file holds: it is read, or refused by an error of ours, in bounded time and memory."""

import random
import resource
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.mutate import mutated
from tests.faults.parsers import OURS, PARSERS, Parser

ROOM = 3 << 30  # bytes that reading one small file may take beyond what the process has
LONG = 5  # seconds for it


@contextmanager
def little_memory():
    """Whoever asks for much more memory than the process has gets none."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def fuzz(name: str, cases: int, folder: Path) -> None:
    parser = PARSERS[name]
    valid = parser.valid(folder)
    path = folder / parser.file
    for content in valid:
        path.write_bytes(content)
        parser.read(path)
    first = random.SystemRandom().getrandbits(60)
    with little_memory(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that overflow are infinite, and that is all
        for seed in range(first, first + cases):
            draw = random.Random(seed)
            path.write_bytes(mutated(draw.choice(valid), draw))
            attempt(parser, path, f"{name}, seed {seed}")


def attempt(parser: Parser, path: Path, case: str) -> None:
    message, began = path.name, time.process_time()
    try:
        parser.read(path)
    except OURS as error:
        message = str(error)
    except BaseException as error:
        raise AssertionError(f"{case}: this is no error of ours: {error!r}") from error
    assert time.process_time() - began < LONG, f"{case} takes long"
    assert message, f"{case}: it is refused without a word"
    assert path.name in message or not parser.named, f"{case}: no file is named in {message}"


@pytest.mark.medium
@pytest.mark.parametrize("name", PARSERS)
def test_a_thousand_files_of_strangers_are_read_or_refused(name, tmp_path):
    fuzz(name, 1000 // len(PARSERS) + 1, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PARSERS)
def test_a_hundred_thousand_files_of_strangers_are_read_or_refused(name, tmp_path):
    fuzz(name, 100_000 // len(PARSERS) + 1, tmp_path)
