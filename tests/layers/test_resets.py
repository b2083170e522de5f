from itertools import pairwise

import pytest
import torch

from tests.helpers.cases import (
    EVERY,
    RUNNABLE,
    compiled_is_medium,
    make,
    parts,
    randn,
    random_state,
)
from tests.helpers.compare import assert_close, inputs, measure

T, B = 6, 4
RESETS = torch.zeros(T, B, dtype=torch.bool)
RESETS[3, 0] = True
RESETS[[1, 2, 5], 1] = True
RESETS[[0, 4], 2] = True  # at the first step as well
LENGTHS = [6, 4, 5, 2]
NO_NATIVE = [(name, engine) for name, engine in RUNNABLE if engine != "native"]


def split(layer, x, state, resets, length):
    """One sequence [T, I] cut where it restarts, each piece run as a sequence of its own.

    A direction carries its given state into the piece it reads first alone, and hands out the
    state it has after the piece it reads last.
    """
    starts = [0, *[t for t in range(1, length) if resets[t]], length]
    outputs, finals = [], []
    for begin, end in pairwise(starts):
        forward = begin == 0 and not resets[0]
        factor = x.new_tensor([float(forward), float(end == length)]).repeat(layer.num_layers)
        factor = factor[: len(state[0])] if layer.bidirectional else factor[::2]
        given = tuple(s * factor.view(-1, 1, 1) for s in state)
        y, final = layer(x[begin:end], given)
        outputs.append(y)
        finals.append(parts(final))
    if not layer.bidirectional:
        return torch.cat(outputs), finals[-1]
    even = torch.arange(len(state[0])).view(-1, 1, 1) % 2 == 0
    ends = zip(finals[-1], finals[0], strict=True)
    return torch.cat(outputs), [torch.where(even, last, first) for last, first in ends]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("lengths", "bidirectional"), [(None, False), (LENGTHS, True)], ids=["full", "lengths-both"]
)
@pytest.mark.parametrize(("name", "engine"), NO_NATIVE)
def test_resets_equal_splitting_the_sequence(name, engine, lengths, bidirectional):
    layer = make(EVERY[name], 2, bidirectional=bidirectional, engine=engine)
    x, *state = inputs(randn(T, B, 3), *random_state(layer, B))
    wrt = [x, *state, *layer.parameters()]

    def pieces():
        outputs, finals = [], []
        for b, n in enumerate(lengths or [T] * B):
            given = tuple(s[:, b : b + 1] for s in state)
            y, final = split(layer, x[:, b : b + 1], given, RESETS[:, b], n)
            outputs.append(torch.cat([y, y.new_zeros(T - n, 1, y.shape[-1])]))
            finals.append(final)
        return torch.cat(outputs, 1), [torch.cat(part, 1) for part in zip(*finals, strict=True)]

    found = measure(lambda: layer(x, tuple(state), resets=RESETS, lengths=lengths), wrt)
    assert_close(found, measure(pieces, wrt))


@pytest.mark.parametrize("name", EVERY)
def test_a_reset_at_the_first_step_ignores_the_given_state(name):
    layer = make(EVERY[name])
    x, state = randn(3, 2, 3), random_state(layer, 2)
    resets = torch.zeros(3, 2, dtype=torch.bool)
    resets[0] = True
    assert_close(layer(x, state, resets=resets), layer(x))
    assert not torch.allclose(layer(x, state)[0], layer(x)[0])


@pytest.mark.parametrize("name", EVERY)
def test_no_reset_is_no_change(name):
    layer = make(EVERY[name], 2, bidirectional=True, engine="auto")
    x, state = randn(4, 2, 3), random_state(layer, 2)
    nothing = torch.zeros(4, 2, dtype=torch.bool)
    assert_close(layer(x, state, resets=nothing), layer(x, state))


def test_resets_follow_the_layout_of_x():
    x = randn(T, B, 3)
    expected, final = make(EVERY["qrnn-2"], bidirectional=True)(x, resets=RESETS)
    layer = make(EVERY["qrnn-2"], bidirectional=True, batch_first=True)
    output, end = layer(x.transpose(0, 1), resets=RESETS.T)
    assert_close([output.transpose(0, 1), end], [expected, final])
    one, end = layer(x[:, 1], resets=RESETS[:, 1])
    assert_close([one, end], [expected[:, 1], [part[:, 1] for part in final]])


@pytest.mark.parametrize(("name", "engine"), compiled_is_medium(NO_NATIVE))
def test_zoneout_never_keeps_what_a_reset_erased(name, engine):
    layer = make(EVERY[name], zoneout=0.5, engine=engine).eval()
    x, state = randn(T, 1, 3), random_state(layer, 1)
    resets = torch.zeros(T, 1, dtype=torch.bool)
    resets[2] = True
    output, final = layer(x, state, resets=resets)
    tail, end = layer(x[2:])
    assert_close([output[2:], final], [tail, end])


@pytest.mark.parametrize("name", EVERY)
def test_resets_past_the_end_of_a_sequence_do_nothing(name):
    layer = make(EVERY[name], bidirectional=True)
    x, state = randn(4, 1, 3), random_state(layer, 1)
    resets = torch.zeros(4, 1, dtype=torch.bool)
    resets[2:] = True
    expected = layer(x, state, lengths=[2])
    assert_close(layer(x, state, lengths=[2], resets=resets), expected)
