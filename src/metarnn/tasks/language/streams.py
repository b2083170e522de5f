"""One long document in many streams side by side, its state carried from each into the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from metarnn.layers.nested import map_tensors, select
from metarnn.tasks import watch
from metarnn.tasks.language.model import restart
from metarnn.tasks.language.tokens import Tokens
from metarnn.tasks.language.vocabulary import BOS, PAD

LONG = 16384  # tokens of a document that is worth it
SHORTEST = 4096  # tokens of a stream
BURN_IN = 512  # tokens read before a stream, for a first guess of its state
SEGMENT = 256  # tokens of a call
TOLERANCE = 1e-5  # of a state, relative to 1 and to the largest of its values


def stream_losses(
    model: nn.Module, tokens: Tokens, start: int, length: int, streams: int
) -> np.ndarray | None:
    """The loss of every token of a long document, [length]; None for a model without a state.

    Each stream starts from the state that its model has after the `BURN_IN` tokens before it. Where
    that is not the state in which the stream before ended, it is read again from there, until all
    of them fit: a recurrent network forgets, so once is the rule. The loss is that of reading the
    document from beginning to end, to rounding.
    """
    count = max(min(streams, length // SHORTEST), 1)
    each = -(-length // count)
    places = np.minimum(np.arange(count) * each, length)
    losses = np.zeros((count, each))

    def read(columns: np.ndarray, state: Any) -> Any:
        """Read these streams from their states; the states they end in."""
        for begin in range(0, each, SEGMENT):
            steps = min(SEGMENT, each - begin)
            output = model(*_batch(tokens, start, length, places[columns] + begin, steps, device),
                           state)  # fmt: skip
            losses[columns, begin : begin + steps] = output.nll.double().cpu().numpy().T
            state = output.state
        return state

    device = next(model.parameters()).device
    state = _guessed(model, tokens, start, length, places, device)
    if state is None:
        return None
    todo = np.arange(count)
    ends = read(todo, state)
    watch.report(length, length)
    while True:
        # Where each stream has to start is where the one before has ended.
        shifted = restart(_shift(ends), torch.tensor([True] + [False] * (count - 1), device=device))
        wrong = _differing(shifted, state)
        todo = np.flatnonzero(wrong.cpu().numpy())
        if not len(todo):
            break
        columns = torch.from_numpy(todo).to(device)
        ends = _put(ends, columns, read(todo, select(shifted, columns)))
        state = shifted
    flat = losses.reshape(-1)
    return flat[:length]


def _guessed(
    model: nn.Module,
    tokens: Tokens,
    start: int,
    length: int,
    places: np.ndarray,
    device: torch.device,
) -> Any:
    """The states after reading the tokens before each place, from nothing."""
    state = None
    for begin in range(-BURN_IN, 0, SEGMENT):
        inputs, targets = _batch(tokens, start, length, places + begin, SEGMENT, device)
        state = model(inputs, targets, state).state
    if state is None:
        return None
    return restart(state, torch.from_numpy(places == 0).to(device))


def _batch(
    tokens: Tokens, start: int, length: int, places: np.ndarray, steps: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Inputs and targets [steps, streams] from each place of a document on, padded at its ends."""
    rows = [_stretch(tokens, start, length, int(place), steps) for place in places]
    both = torch.from_numpy(np.stack(rows, 1)).to(device)
    return both[:-1], both[1:]


def _stretch(tokens: Tokens, start: int, length: int, place: int, steps: int) -> np.ndarray:
    """The tokens from before `place` to `steps` after it."""
    first, last = max(place - 1, 0), min(place + steps, length)
    row = np.full(steps + 1, PAD, np.int64)
    if last > first:
        offset = first - (place - 1)
        row[offset : offset + last - first] = tokens.read(start + first, last - first)
    if place <= 0:
        row[: 1 - place] = BOS
    return row


def _shift(state: Any) -> Any:
    """Each stream's state at the place of the next one."""
    return map_tensors(lambda tensor: tensor.roll(1, dims=1), state)


def _put(state: Any, columns: Tensor, new: Any) -> Any:
    return map_tensors(lambda old, part: old.index_copy(1, columns, part), state, new)


def _differing(one: Any, other: Any) -> Tensor:
    """Which streams have other states in these two, [streams]."""
    wrong: list[Tensor] = []

    def compare(a: Tensor, b: Tensor) -> Tensor:
        rows_a, rows_b = (t.movedim(1, 0).flatten(1).double() for t in (a, b))
        limit = TOLERANCE * (1 + rows_a.abs().amax(1))
        wrong.append(~((rows_a - rows_b).abs().amax(1) <= limit))
        return a

    map_tensors(compare, one, other)
    return torch.stack(wrong).any(0)


def long_documents(bounds: np.ndarray, streams: int) -> Iterator[int]:
    """The documents that are read as streams: long ones that lanes of documents would wait for."""
    sizes = np.diff(bounds)
    share = sizes.sum() / max(streams, 1)
    yield from (int(k) for k in np.flatnonzero((sizes >= LONG) & (sizes > 2 * share)))
