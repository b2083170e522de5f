import pytest
import torch

from metarnn import Recurrent
from tests.helpers.cases import EVERY, make, parts, randn, random_state
from tests.helpers.compare import assert_close

X, LENGTHS = randn(5, 3, 3), [5, 2, 4]


def floor_of(layer: Recurrent, k: int, direction: int) -> Recurrent:
    """One direction of one layer as a layer of its own."""
    floor = make(layer.cells[k])
    floor.load_state_dict({f"{n}_l0": w for n, w in layer.weights(k, direction).items()})
    return floor


def by_hand(layer: Recurrent, x, state):
    """Layers one after the other, and for the second direction each sequence read backwards."""
    finals, y = [], x
    for k in range(layer.num_layers):
        outputs = []
        for direction in range(layer.directions):
            floor, row = floor_of(layer, k, direction), k * layer.directions + direction
            given = tuple(
                part[row : row + 1, :, :n] for part, n in zip(state, floor.state_sizes, strict=True)
            )
            output, ends = torch.zeros(*y.shape[:2], floor.output_size).double(), []
            for b, n in enumerate(LENGTHS):
                turn = (lambda t: t.flip(0)) if direction else (lambda t: t)
                one = tuple(part[:, b : b + 1] for part in given)
                found, end = floor(turn(y[:n, b : b + 1]), one)
                output[:n, b : b + 1] = turn(found)
                ends.append(parts(end))
            outputs.append(output)
            finals.append([torch.cat(part, 1) for part in zip(*ends, strict=True)])
        new = torch.cat(outputs, -1) if layer.merge == "concat" else torch.stack(outputs).sum(0)
        y = new + y if layer.residual and k else new
    return y, finals


@pytest.mark.medium
@pytest.mark.parametrize("merge", ["concat", "sum"])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("name", EVERY)
def test_a_stack_is_its_layers_and_directions_one_after_the_other(name, residual, merge):
    layer = make(EVERY[name], 3, bidirectional=True, residual=residual, merge=merge)
    state = random_state(layer, 3)
    output, final = layer(X, state, lengths=LENGTHS)
    expected, finals = by_hand(layer, X, state)
    assert_close(output, expected)
    assert layer.output_size == expected.shape[-1]
    for k, part in enumerate(parts(final)):
        for row, wanted in enumerate(finals):
            assert_close(part[row, :, : wanted[k].shape[-1]], wanted[k][0])


@pytest.mark.parametrize("name", EVERY)
def test_one_direction_needs_no_merge(name):
    layer = make(EVERY[name], 2, residual=True)
    state = random_state(layer, 3)
    output, _ = layer(X, state, lengths=LENGTHS)
    assert_close(output, by_hand(layer, X, state)[0])


def test_directions_have_weights_of_their_own():
    layer = make(EVERY["gru"], bidirectional=True)
    names = [name for name, _ in layer.named_parameters()]
    assert len(names) == 8
    assert sum(name.endswith("_reverse") for name in names) == 4


@pytest.mark.parametrize("name", EVERY)
def test_the_batch_first_is_the_time_first_transposed(name):
    output, final = make(EVERY[name], 2, bidirectional=True)(X)
    turned, same = make(EVERY[name], 2, bidirectional=True, batch_first=True)(X.transpose(0, 1))
    assert_close([turned.transpose(0, 1), same], [output, final])


@pytest.mark.parametrize("name", EVERY)
def test_sequences_of_a_batch_do_not_see_one_another(name):
    layer = make(EVERY[name], 2, bidirectional=True)
    x = X.clone()
    expected = layer(x)[0]
    x[:, 1] += 1
    changed = layer(x)[0]
    assert_close(changed[:, [0, 2]], expected[:, [0, 2]])
    assert not torch.allclose(changed[:, 1], expected[:, 1])


@pytest.mark.parametrize("name", EVERY)
def test_one_direction_never_sees_the_future(name):
    layer = make(EVERY[name], 2)
    x = X.clone()
    expected = layer(x)[0]
    x[3:] += 1
    assert_close(layer(x)[0][:3], expected[:3])


def test_a_layer_prints_what_it_is():
    shown = repr(make(EVERY["lstm"], 2, bidirectional=True))
    assert "LSTM(input_size=3, hidden_size=4" in shown
    assert "num_layers=2" in shown
    assert "bidirectional=True" in shown
