import math

import pytest
import torch
from torch import nn

from metarnn import GRU, Jordan
from metarnn.gradients.forcing import Professor, Schedule, mix, scheduled
from tests.helpers.cases import randn, randomize


@pytest.mark.parametrize("kind", ["linear", "exponential", "inverse-sigmoid"])
def test_a_schedule_falls_from_the_truth_to_its_least(kind):
    schedule = Schedule(kind, 100, least=0.1)
    values = [schedule(i) for i in range(0, 2000, 10)]
    assert values[0] == pytest.approx(1, abs=0.05)
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(0.1)


def test_schedules_have_their_formulas():
    assert Schedule("linear", 100)(25) == 0.75
    assert Schedule("exponential", 100)(50) == pytest.approx(math.exp(-0.5))
    schedule = Schedule("inverse-sigmoid", 5000)
    assert schedule(5000) == pytest.approx(0.5)
    assert schedule(2500) + schedule(7500) == pytest.approx(1, abs=0.05)  # steep on both sides


def test_each_token_of_each_sequence_is_chosen_by_itself():
    torch.manual_seed(0)
    tokens = mix(torch.ones(200, 50).long(), torch.zeros(200, 50).long(), 0.3)
    assert tokens.double().mean() == pytest.approx(0.3, abs=0.02)
    assert tokens.double().mean(0).std() > 0  # no sequence is chosen as a whole
    vectors = mix(torch.ones(200, 50, 3), torch.zeros(200, 50, 3), 0.3)
    assert torch.equal(vectors[..., 0], vectors[..., 2])


def jordan():
    layer = Jordan(3, 5, outputs=2, dtype=torch.float64)
    randomize(layer)
    return layer


def test_an_output_recurrent_network_runs_in_parallel_what_teacher_forcing_runs_in_turn():
    layer, x, y = jordan(), randn(9, 4, 3), randn(9, 4, 2, seed=3)
    at_once, _ = layer(x, teacher=y)
    state, outputs = None, []
    for t in range(9):
        output, _ = layer(x[t : t + 1], state)
        outputs.append(output)
        state = y[t : t + 1]  # the state of a Jordan network is its last output
    torch.testing.assert_close(at_once, torch.cat(outputs))


def test_the_ends_of_scheduled_sampling_are_teacher_forcing_and_free_running():
    cell, readout = GRU(2, 6, dtype=torch.float64), nn.Linear(6, 2, dtype=torch.float64)

    def step(x, state):
        h, state = cell(x.unsqueeze(0), state)
        return readout(h[0]), state

    truth = randn(7, 3, 2)
    taught, state = scheduled(step, truth, p=1.0)
    whole, final = cell(truth)
    torch.testing.assert_close(taught, readout(whole))
    torch.testing.assert_close(state, final)
    free, _ = scheduled(step, truth, p=0.0)
    again, state = step(truth[0], None)
    for t in range(7):
        torch.testing.assert_close(free[t], again)
        again, state = step(again, state)


def test_no_gradient_passes_through_an_input_that_the_network_chose():
    w = torch.tensor(2.0, requires_grad=True)
    outputs, _ = scheduled(lambda x, s: (w * x, s), torch.ones(3, 1), p=0.0)
    outputs[-1].sum().backward()
    assert w.grad == 4.0  # the last input alone: not 3 · 2²


def test_a_discriminator_learns_to_tell_and_the_network_to_persuade():
    torch.manual_seed(0)
    professor, shift = Professor(4, 8), torch.zeros(4, requires_grad=True)
    theirs, loss = torch.optim.Adam(professor.parameters(), 0.02), torch.zeros(())
    for _ in range(40):
        loss = professor.judge(torch.randn(6, 16, 4) + 1, torch.randn(6, 16, 4))
        theirs.zero_grad()
        loss.backward()
        theirs.step()
    assert loss < 0.5  # 2 ln 2 = 1.39 by guessing
    before = [w.clone() for w in professor.parameters()]
    theirs.zero_grad()
    professor.persuade(torch.randn(6, 16, 4) + shift).backward()
    assert all(w.grad is None for w in professor.parameters())
    assert shift.grad is not None
    assert shift.grad.sum() < 0  # towards what was taught
    assert all(map(torch.equal, before, professor.parameters()))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Schedule("cosine"), "kind='cosine'"),  # type: ignore[arg-type]
        (lambda: Schedule(length=0), "above 0"),
        (lambda: mix(torch.ones(2), torch.ones(3), 0.5), "the shape of the truth"),
        (lambda: mix(torch.ones(2), torch.ones(2), 1.5), "probability"),
    ],
)
def test_what_makes_no_sense_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
