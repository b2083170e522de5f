"""feedback=True: a cell that reads its own last output, or the true one, beside its input."""

import numpy as np
import pytest
import torch

from metarnn import cells
from tests.helpers import equations
from tests.helpers.cases import make, parts, randn, random_state
from tests.helpers.compare import assert_close, inputs, measure

T, B, I = 6, 3, 3
UNITS = {
    "elman": cells.Elman(I, 4),
    "lstm": cells.LSTM(I, 4),
    "lstm-projection": cells.LSTM(I, 4, proj_size=2),
    "gru": cells.GRU(I, 4),
    "qrnn-2": cells.QRNN(I, 4, window=2),
    "qrnn-3": cells.QRNN(I, 4, window=3, pooling="ifo"),
    "sru": cells.SRU(I, 4),
    "jordan": cells.Jordan(I, 4, 2),
}
RESETS = torch.zeros(T, B, dtype=torch.bool)
RESETS[[0, 3], 1] = True
RESETS[2, 2] = True
CALLS = {
    "plain": {},
    "resets": {"resets": RESETS},
    "lengths": {"lengths": [6, 4, 1]},
    "resets-lengths": {"resets": RESETS, "lengths": [5, 6, 3]},
}


def hand_written(layer, x, state, teacher=None, resets=None, lengths=None):
    """One sequence and one step after the other: the unit reads [x_t; y_{t-1}].

    The state is the unit's own, then y, then the past of [x; y] for a window.
    """
    unit, w = layer.cell.unit, equations.arrays(layer.weights(0))
    own = len(unit.states)
    outputs, finals = np.zeros((T, B, unit.output_size)), []
    for b in range(B):
        now = [part[0, b].numpy() for part in state]
        for t in range(lengths[b] if lengths else T):
            if resets is not None and resets[t, b]:
                now = [part * 0 for part in now]
            inner, y, past = now[:own], now[own], now[own + 1 :]
            seen = np.concatenate([x[t, b].numpy(), y])
            y, new = equations.step(unit, w, seen, [*inner, *past])
            outputs[t, b] = y
            fed = y if teacher is None else teacher[t, b].numpy()
            if teacher is not None and unit.state_is_output:
                new = [fed]
            now = [*new[:own], fed, *new[own:]]
        finals.append(now)
    final = [torch.from_numpy(np.stack(part))[None] for part in zip(*finals, strict=True)]
    return torch.from_numpy(outputs), final


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", UNITS)
def test_free_running_equals_a_loop_that_hands_the_last_output_in(name, call):
    layer = make(UNITS[name], feedback=True)
    x, state = randn(T, B, I), random_state(layer, B)
    assert_close(layer(x, state, **call), hand_written(layer, x, state, **call))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", UNITS)
def test_teacher_forced_equals_a_loop_that_hands_the_true_output_in(name, call):
    layer = make(UNITS[name], feedback=True)
    x, state = randn(T, B, I), random_state(layer, B)
    teacher = randn(T, B, UNITS[name].output_size, seed=4)
    found = layer(x, state, teacher=teacher, **call)
    assert_close(found, hand_written(layer, x, state, teacher=teacher, **call))


@pytest.mark.parametrize("name", UNITS)
def test_taught_first_it_runs_freely_from_there(name):
    layer = make(UNITS[name], feedback=True)
    x, state = randn(T, B, I), random_state(layer, B)
    teacher = randn(2, B, UNITS[name].output_size, seed=4)
    head, between = layer(x[:2], state, teacher=teacher)
    tail, final = layer(x[2:], between)
    free = layer(x[2:3], parts(between))[0]
    assert_close(tail[:1], free)
    # The same by steps: the true output takes the place of the layer's own in the state.
    now, outputs = state, []
    for t in range(T):
        y, now = layer(x[t : t + 1], now)
        if t < 2:
            now = list(now)
            now[len(UNITS[name].states)] = teacher[t : t + 1]
            if UNITS[name].state_is_output:
                now[0] = teacher[t : t + 1]
        outputs.append(y)
    assert_close([torch.cat([head, tail]), final], [torch.cat(outputs), list(now)])


@pytest.mark.parametrize("name", UNITS)
def test_taught_with_its_own_outputs_it_runs_as_it_does_freely(name):
    layer = make(UNITS[name], feedback=True)
    x, *state = inputs(randn(T, B, I), *random_state(layer, B))
    free, _ = layer(x, tuple(state), **CALLS["resets-lengths"])
    taught = layer(x, tuple(state), teacher=free.detach(), **CALLS["resets-lengths"])
    assert_close(taught, layer(x, tuple(state), **CALLS["resets-lengths"]))


@pytest.mark.parametrize("name", ["lstm", "qrnn-2"])
def test_gradients_reach_the_teacher_but_for_its_last_output_only_through_the_state(name):
    layer = make(UNITS[name], feedback=True)
    x, teacher = inputs(randn(T, B, I), randn(T, B, 4, seed=4))
    (_, (by_teacher,)) = measure(lambda: layer(x, teacher=teacher)[0], [teacher])
    assert by_teacher[:-1].abs().amax((1, 2)).min() > 0
    assert not by_teacher[-1].any()


@pytest.mark.parametrize("name", UNITS)
def test_stacks_and_directions_feed_back_each_its_own_output(name):
    layer = make(UNITS[name], 2, bidirectional=True, feedback=True)
    x = randn(T, B, I)
    output, final = layer(x, lengths=[6, 4, 1])
    y = x
    for k in range(2):
        floor = make(UNITS[name].resized(y.shape[-1]), bidirectional=True, feedback=True)
        weights = [layer.weights(k, d) for d in range(2)]
        tails = ("_l0", "_l0_reverse")
        floor.load_state_dict({n + t: w[n] for w, t in zip(weights, tails, strict=True) for n in w})
        y, end = floor(y, lengths=[6, 4, 1])
        for whole, part in zip(final, end, strict=True):
            width = part.shape[-1]  # a wider layer's state is filled up with zeros
            assert_close(whole[2 * k : 2 * k + 2, :, :width], part)
            assert not whole[2 * k : 2 * k + 2, :, width:].any()
    assert_close(output, y)


def test_zoneout_holds_the_units_state_but_never_the_output_fed_back():
    layer = make(UNITS["lstm"], feedback=True, zoneout=1.0)
    x, state = randn(T, B, I), random_state(layer, B)
    _, (h, c, y) = layer(x, state)
    assert_close([h, c], state[:2])
    assert not torch.allclose(y, state[2])
