"""Whatever a file holds: it is read, or refused by an error of ours, in bounded time and memory."""

import random
import resource
import warnings
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.mutate import mutated
from tests.faults.parsers import OURS, PARSERS

ROOM = 3 << 30  # bytes that reading one small file may take beyond what the process has


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


def fuzz(name: str, cases: int, folder) -> None:
    parser = PARSERS[name]
    valid = parser.valid(folder)
    path = folder / parser.file
    for content in valid:
        path.write_bytes(content)
        parser.read(path)

    @settings(
        max_examples=cases,
        deadline=5000,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    @given(st.integers(0, 2**62))
    def read(seed: int) -> None:
        draw = random.Random(seed)
        path.write_bytes(mutated(draw.choice(valid), draw))
        message = path.name
        try:
            parser.read(path)
        except OURS as error:
            message = str(error)
        assert message
        assert path.name in message or not parser.named

    with little_memory(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that overflow are infinite, and that is all
        read()


@pytest.mark.medium
@pytest.mark.parametrize("name", PARSERS)
def test_a_thousand_files_of_strangers_are_read_or_refused(name, tmp_path):
    fuzz(name, 1000 // len(PARSERS) + 1, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PARSERS)
def test_a_hundred_thousand_files_of_strangers_are_read_or_refused(name, tmp_path):
    fuzz(name, 100_000 // len(PARSERS) + 1, tmp_path)
