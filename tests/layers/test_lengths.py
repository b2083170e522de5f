import pytest
import torch

from tests.helpers.cases import EVERY, QUICK, make, parts, randn, random_state
from tests.helpers.compare import assert_close, assert_same, inputs, measure

T, LENGTHS = 5, [3, 5, 1]


def alive(batch_lengths=LENGTHS) -> torch.Tensor:
    return torch.arange(T).unsqueeze(1) < torch.tensor(batch_lengths)  # [T, B]


def layer_of(name: str, **options):
    return make(EVERY[name], 2, bidirectional=True, **options)


@pytest.mark.parametrize(("name", "engine"), QUICK)
def test_padding_content_never_reaches_output_state_or_gradient(name, engine):
    layer = layer_of(name, engine=engine)
    clean = randn(T, 3, 3).masked_fill(~alive().unsqueeze(-1), 0)
    state = random_state(layer, 3)

    def results(filler: float):
        x, *start = inputs(clean.masked_fill(~alive().unsqueeze(-1), filler), *state)
        wrt = [x, *start, *layer.parameters()]
        return measure(lambda: layer(x, tuple(start), lengths=LENGTHS), wrt)

    expected = results(0.0)
    assert not expected[1][0][~alive()].any()  # the padding gets no gradient
    for filler in (7.0, float("nan"), float("inf")):
        assert_same(results(filler), expected)


@pytest.mark.parametrize(("name", "engine"), QUICK)
def test_a_padded_batch_equals_its_sequences_run_one_by_one(name, engine):
    layer = layer_of(name, engine=engine)
    x, *state = inputs(randn(T, 3, 3), *random_state(layer, 3))
    wrt = [x, *state, *layer.parameters()]

    def one_by_one():
        outputs, finals = [], []
        for b, n in enumerate(LENGTHS):
            y, final = layer(x[:n, b : b + 1], tuple(s[:, b : b + 1] for s in state))
            outputs.append(torch.cat([y, y.new_zeros(T - n, 1, y.shape[-1])]))
            finals.append(parts(final))
        return torch.cat(outputs, 1), [torch.cat(part, 1) for part in zip(*finals, strict=True)]

    found = measure(lambda: layer(x, tuple(state), lengths=LENGTHS), wrt)
    assert_close(found, measure(one_by_one, wrt))


@pytest.mark.parametrize(("name", "engine"), QUICK)
def test_outputs_past_the_end_are_zero(name, engine):
    output, _ = layer_of(name, engine=engine)(randn(T, 3, 3), lengths=LENGTHS)
    assert not output[~alive()].any()
    assert output[alive()].any(-1).all()


@pytest.mark.parametrize(
    "lengths",
    [
        tuple(LENGTHS),
        torch.tensor(LENGTHS),
        torch.tensor(LENGTHS, dtype=torch.int32),
        torch.tensor(LENGTHS, dtype=torch.uint8),
    ],
    ids=["tuple", "int64", "int32", "uint8"],
)
@pytest.mark.parametrize("name", ["lstm", "qrnn-2", "onlstm"])
def test_lengths_may_be_a_list_or_any_whole_numbers(name, lengths):
    layer, x = layer_of(name), randn(T, 3, 3)
    assert_same(layer(x, lengths=lengths), layer(x, lengths=LENGTHS))


@pytest.mark.parametrize("name", EVERY)
def test_lengths_with_the_batch_first(name):
    x = randn(T, 3, 3)
    output, final = layer_of(name)(x, lengths=LENGTHS)
    turned, same = layer_of(name, batch_first=True)(x.transpose(0, 1), lengths=LENGTHS)
    assert_same([turned.transpose(0, 1), same], [output, final])


@pytest.mark.parametrize(("name", "engine"), QUICK)
def test_full_lengths_and_longer_padding_change_nothing(name, engine):
    layer, x = layer_of(name, engine=engine), randn(T, 3, 3)
    output, final = layer(x)
    assert_close(layer(x, lengths=[T] * 3), (output, final))
    longer = torch.cat([x, randn(4, 3, 3, seed=7)])
    padded, end = layer(longer, lengths=[T] * 3)
    assert_close([padded[:T], end], [output, final])
    assert not padded[T:].any()


@pytest.mark.parametrize("name", EVERY)
def test_zoneout_holds_no_unit_past_the_end_of_its_sequence(name):
    layer = make(EVERY[name], zoneout=0.5).eval()
    x = randn(T, 1, 3)
    _, short = layer(x[:2])
    _, padded = layer(x, lengths=[2])
    assert_close(padded, short)


@pytest.mark.parametrize(("name", "engine"), QUICK)
def test_a_batch_of_no_sequences_comes_out_empty(name, engine):
    layer = layer_of(name, engine=engine)
    for lengths in (None, torch.zeros(0, dtype=torch.int64)):
        output, final = layer(randn(T, 0, 3), lengths=lengths)
        assert output.shape == (T, 0, layer.output_size)
        assert all(part.shape[:2] == (4, 0) for part in parts(final))
