import pytest
import torch

from metarnn import cells
from tests.helpers.cases import EVERY, RUNNABLE, make, parts, randn, random_state
from tests.helpers.compare import assert_close, assert_same, inputs, measure

PLAIN = [(*case, False) for case in RUNNABLE]
FED_BACK = [(name, "eager", True) for name in EVERY]


@pytest.mark.parametrize("cut", [1, 2, 4])
@pytest.mark.parametrize(("name", "engine", "feedback"), [*PLAIN, *FED_BACK])
def test_two_halves_with_the_state_handed_on_equal_one_run(name, engine, feedback, cut):
    layer = make(EVERY[name], 2, engine=engine, feedback=feedback)
    x, *state = inputs(randn(5, 2, 3), *random_state(layer, 2))
    wrt = [x, *state, *layer.parameters()]

    def halves():
        first, between = layer(x[:cut], tuple(state))
        second, final = layer(x[cut:], between)
        return torch.cat([first, second]), final

    assert_close(measure(halves, wrt), measure(lambda: layer(x, tuple(state)), wrt))


@pytest.mark.parametrize("name", EVERY)
def test_states_carried_one_step_at_a_time_with_lengths(name):
    layer = make(EVERY[name], 2)
    x, lengths = randn(5, 3, 3), torch.tensor([2, 5, 4])
    _, whole = layer(x, lengths=lengths)
    _, first = layer(x[:2])  # the first one ends here
    _, rest = layer(x[2:, 1:], tuple(p[:, 1:] for p in parts(first)), lengths=lengths[1:] - 2)
    for part, early, late in zip(parts(whole), parts(first), parts(rest), strict=True):
        assert_close(part, torch.cat([early[:, :1], late], 1))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", EVERY)
def test_a_state_for_one_layer_is_used_for_all(name, bidirectional):
    layer = make(EVERY[name], 3, bidirectional=bidirectional)
    x, state = randn(4, 2, 3), random_state(layer, 2)
    rows = layer.directions
    full = tuple(part[:rows].repeat(3, 1, 1) for part in state)
    assert_same(layer(x, tuple(part[:rows] for part in state)), layer(x, full))
    same = tuple(part[:1].repeat(3 * rows, 1, 1) for part in state)
    assert_same(layer(x, tuple(part[:1] for part in state)), layer(x, same))
    assert_same(layer(x, tuple(part[0] for part in state)), layer(x, same))


def test_a_window_wider_in_upper_layers_is_carried_whole():
    layer = make(cells.QRNN(2, 5, window=3), 2)
    assert layer.state_sizes == (5, 2 * 5)
    layer = make(cells.QRNN(7, 5, window=3), 2)
    assert layer.state_sizes == (5, 2 * 7)


@pytest.mark.parametrize("name", EVERY)
def test_no_state_is_a_state_of_zeros(name):
    layer = make(EVERY[name], 2, bidirectional=True)
    x = randn(4, 2, 3)
    zeros = tuple(torch.zeros_like(part) for part in random_state(layer, 2))
    assert_same(layer(x), layer(x, zeros))


@pytest.mark.parametrize("name", EVERY)
def test_a_final_state_is_bare_where_it_has_one_part_and_without_batch_where_x_is(name):
    layer = make(EVERY[name])
    _, final = layer(randn(4, 2, 3))
    assert isinstance(final, torch.Tensor) == (len(layer.state_sizes) == 1)
    output, one = layer(randn(4, 2, 3)[:, 1])
    assert output.dim() == 2
    assert_close(one, [part[:, 1] for part in parts(final)])
