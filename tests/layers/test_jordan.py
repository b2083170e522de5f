import numpy as np
import pytest
import torch

from metarnn import Theta, cells
from tests.helpers import equations
from tests.helpers.cases import make, randn, random_state
from tests.helpers.compare import assert_close, inputs, measure

T, B, O = 6, 3, 2
CELL = cells.Jordan(3, 4, O, output_nonlinearity="sigmoid")
RESETS = torch.zeros(T, B, dtype=torch.bool)
RESETS[[0, 3], 1] = True
LENGTHS = [6, 4, 1]


def taught_loop(layer, x, start, teacher, resets=None, lengths=None):
    """Step t on the true output of step t - 1, one sequence after the other."""
    w = equations.arrays(layer.weights(0))
    outputs, finals = np.zeros((T, B, O)), []
    for b in range(B):
        n = lengths[b] if lengths else T
        for t in range(n):
            y = start[0, b] if t == 0 else teacher[t - 1, b]
            y = y * 0 if resets is not None and resets[t, b] else y
            outputs[t, b], _ = equations.step(CELL, w, x[t, b].numpy(), [y.numpy()])
        finals.append(teacher[n - 1, b])
    return torch.from_numpy(outputs), torch.stack(finals).unsqueeze(0)


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
@pytest.mark.parametrize("resets", [None, RESETS], ids=["unbroken", "resets"])
def test_teacher_forced_it_is_the_loop_over_the_true_outputs(resets, lengths):
    layer = make(CELL)
    x, teacher, (start,) = randn(T, B, 3), randn(T, B, O, seed=4), random_state(layer, B)
    found = layer(x, start, teacher=teacher, resets=resets, lengths=lengths)
    assert_close(found, taught_loop(layer, x, start, teacher, resets, lengths))


def test_teacher_forced_it_takes_one_step_for_all():
    calls = []

    class Counted(cells.Jordan):
        def step(self, theta: Theta, drive, state):
            calls.append(drive.shape)
            return super().step(theta, drive, state)

    layer = make(Counted(3, 4, O), engine="eager")
    calls.clear()  # building the layer tries the cell out
    layer(randn(T, B, 3), teacher=randn(T, B, O))
    assert calls == [(T, B, 4)]
    calls.clear()
    layer(randn(T, B, 3))
    assert calls == [(B, 4)] * T


def test_gradients_of_the_parallel_form_are_those_of_steps_one_at_a_time():
    layer = make(CELL)
    x, teacher, start = inputs(randn(T, B, 3), randn(T, B, O, seed=4), random_state(layer, B)[0])
    wrt = [x, teacher, start, *layer.parameters()]

    def by_steps():
        before = [start, *teacher[:-1].unsqueeze(1)]
        outputs = [layer(x[t : t + 1], before[t])[0] for t in range(T)]
        return torch.cat(outputs), teacher[-1:]

    taught = measure(lambda: layer(x, start, teacher=teacher), wrt)
    assert_close(taught, measure(by_steps, wrt))


def test_free_running_goes_on_from_the_last_true_output():
    layer = make(CELL)
    x, teacher = randn(T, B, 3), randn(T, B, O, seed=4)
    _, state = layer(x, teacher=teacher, lengths=LENGTHS)
    output, _ = layer(x[:1], state)
    for b, n in enumerate(LENGTHS):
        w = equations.arrays(layer.weights(0))
        y, _ = equations.step(CELL, w, x[0, b].numpy(), [teacher[n - 1, b].numpy()])
        assert_close(output[0, b], torch.from_numpy(y))


def test_taught_with_its_own_outputs_it_runs_as_it_does_freely():
    layer, x = make(CELL), randn(T, B, 3)
    free, final = layer(x, lengths=LENGTHS, resets=RESETS)
    assert_close(layer(x, teacher=free, lengths=LENGTHS, resets=RESETS), (free, final))


def test_what_a_teacher_says_past_the_end_is_not_heard():
    layer, x, teacher = make(CELL), randn(T, B, 3), randn(T, B, O)
    expected = layer(x, teacher=teacher, lengths=LENGTHS)
    for b, n in enumerate(LENGTHS):
        teacher[n:, b] = float("nan")
    assert_close(layer(x, teacher=teacher, lengths=LENGTHS), expected)
