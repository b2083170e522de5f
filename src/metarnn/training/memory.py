"""Too little memory: found out by trying what would fit."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch

# What torch says where the memory of the CPU is at its end: that is a plain RuntimeError there.
SIGNS = ("can't allocate memory", "not enough memory", "out of memory", "Cannot allocate memory")


class OutOfMemory(MemoryError):
    """A training does not fit; the message says what would."""


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


@contextmanager
def answered(step: int, batch: int, parts: int, attempt: Callable[[int], None]) -> Generator[None]:
    """Turn out of memory into an error that says in how many parts a batch would fit.

    Args:
        step: the update concerned, counted from 1
        batch: sequences in an update
        parts: in how many it is computed now
        attempt: takes the memory of an update in so many parts
    """
    try:
        yield
        return
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error) or isinstance(error, OutOfMemory):
            raise
        why = str(error).partition(" GPU ")[0].partition("\n")[0] or type(error).__name__
        # Whoever handles the error holds its frames, and these what filled the memory.
        traceback.clear_frames(error.__traceback__)
    fits = _fitting(batch, parts, attempt)
    told = (
        f"It fits in {fits} parts: --accumulate {fits} gives the same result in more time."
        if fits
        else "Not even one sequence at a time fits: take a smaller --width, shorter sequences, or "
        "--checkpoint-every -1, which keeps fewer steps."
    )
    raise OutOfMemory(
        f"step {step}: out of memory with {batch} sequences in {parts} part(s) ({why}). {told}"
    )


def _fitting(batch: int, parts: int, attempt: Callable[[int], None]) -> int:
    """The fewest parts, by doubling, in which an update can be computed; 0 for none."""
    more = 2 * parts
    while more <= batch:
        if batch % more == 0:
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            try:
                attempt(more)
                return more
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
        more *= 2
    return 0
