"""Each problem asks what it says, and its answers are right."""

import itertools

import numpy as np
import pytest
import torch

from metarnn.tasks.stack import StackOptions
from metarnn.tasks.synthetic import PROBLEMS, SyntheticTask, build_model, dynamics
from metarnn.tasks.synthetic.languages import PAIRS, is_nested
from metarnn.tasks.synthetic.memory import NOTHING
from metarnn.tasks.task import Shard


def drawn(name, length, batch=64):
    return SyntheticTask(name, length).draw(batch, 0)


def test_parity_and_breaks_count_ones():
    x, y = drawn("parity", 20)
    torch.testing.assert_close(y, x[..., 0].long().cumsum(0) % 2)
    x, y = drawn("breaks", 60)
    for b in range(8):
        count = 0
        for t in range(60):
            one, broken = x[t, b].tolist()
            count = 0 if broken else count + int(one)
            assert y[t, b] == count % 4


@pytest.mark.parametrize("name", ["recall", "early"])
def test_the_first_token_is_the_answer(name):
    x, y = drawn(name, 15)
    assert (x[0, :, :8].argmax(-1) == y[-1]).all()
    assert (y[:-1] == NOTHING).all()


def test_marked_bits_are_the_answer_and_noise_is_not():
    x, y = drawn("noise", 30)
    for b in range(8):
        bits = x[:, b, 0][x[:, b, 1] == 1]
        assert len(bits) == 3
        assert y[-1, b] == sum(2**k for k, bit in enumerate(bits) if bit > 0)


@pytest.mark.parametrize(("name", "letters"), [("anbn", 2), ("anbncn", 3)])
def test_strings_of_counted_letters(name, letters):
    x, y = drawn(name, 30, 200)
    answers = []
    for b in range(200):
        asked = int((y[:, b] != NOTHING).nonzero())
        string = x[:asked, b].argmax(-1).tolist()
        groups = [(letter, len(list(run))) for letter, run in itertools.groupby(string)]
        belongs = [letter for letter, _ in groups] == list(range(letters))
        belongs = belongs and len({n for _, n in groups}) == 1
        answers.append(belongs)
        assert y[asked, b] == int(belongs)
        assert x[asked, b].argmax() == letters
    assert 0.35 < np.mean(answers) < 0.65


def test_brackets_are_nested_and_the_answer_would_close_the_innermost():
    x, y = drawn("dyck", 30, 16)
    tokens = x.argmax(-1)
    for b in range(16):
        assert is_nested(tokens[:, b])
        for t in range(30):
            closing = tokens[: t + 1, b].tolist()
            fits = [k for k in range(PAIRS) if is_nested(torch.tensor([*closing, PAIRS + k]))]
            assert fits == ([] if y[t, b] == PAIRS else [y[t, b]])


def test_binary_addition_is_that_of_numbers():
    x, y = drawn("addition", 12)
    powers = 2 ** torch.arange(12).unsqueeze(1)
    a, b = (x[..., k].long() * powers for k in range(2))
    assert ((a.sum(0) + b.sum(0)) % 2**12 == (y * powers).sum(0)).all()


def test_trajectories_follow_their_equations():
    x = dynamics.lorenz(400, dt=0.001)
    slope = (x[2:] - x[:-2]) / 0.002
    a, b, c = x[1:-1].T
    expected = np.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c], 1)
    np.testing.assert_allclose(slope, expected, atol=0.05, rtol=1e-3)
    x = dynamics.van_der_pol(400, dt=0.001)
    slope = (x[2:] - x[:-2]) / 0.002
    u, v = x[1:-1].T
    np.testing.assert_allclose(slope[:, 1], 2 * (1 - u**2) * v - u, atol=1e-3)
    x = dynamics.mackey_glass(400, dt=0.1)[:, 0]
    delayed, now = x[: -170 - 1], x[170:-1]
    slope = (x[171:] - x[170:-1]) / 0.1
    np.testing.assert_allclose(slope, 0.2 * delayed / (1 + delayed**10) - 0.1 * now, atol=5e-3)
    assert 0.2 < x.min() < x.max() < 1.5


@pytest.mark.medium
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_every_problem_has_a_loss_and_batches_that_shards_share(name):
    task = SyntheticTask(name, 12, batch=4)
    model = build_model(name, StackOptions(width=4))
    whole = next(task.batches(Shard()))
    assert torch.isfinite(task.loss(model, whole).value)
    parts = [next(task.batches(Shard(k, 2)))[0] for k in range(2)]
    torch.testing.assert_close(torch.cat(parts, 1), whole[0])
    assert torch.isfinite(torch.tensor(list(task.evaluate(model).values()))).all()
