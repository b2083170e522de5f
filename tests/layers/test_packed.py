import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from tests.helpers.cases import EVERY, make, randn, random_state
from tests.helpers.compare import assert_close, inputs, measure
from tests.layers.test_torch import FITTING, KINDS, both, call, initial

LENGTHS = {True: [6, 4, 4, 1], False: [4, 1, 6, 4]}  # by enforce_sorted


@pytest.mark.parametrize("engine", FITTING)
@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_sequence_goes_in_and_comes_out_as_in_torch(kind, enforce_sorted, engine):
    layer, expected = both(kind, engine, num_layers=2, bidirectional=True)
    tensors = inputs(randn(6, 4, 3), *initial(expected, 4))
    results = []
    for module in (layer, expected):
        packed = pack_padded_sequence(
            tensors[0], LENGTHS[enforce_sorted], enforce_sorted=enforce_sorted
        )
        run = call(module, packed, tensors[1:])
        results.append((run()[0], measure(run, [*tensors, *module.parameters()])))
    (packed, found), (packed_by_torch, wanted) = results
    assert isinstance(packed, PackedSequence)
    assert torch.equal(packed.batch_sizes, packed_by_torch.batch_sizes)
    for name in ("sorted_indices", "unsorted_indices"):
        mine, torchs = getattr(packed, name), getattr(packed_by_torch, name)
        assert mine is torchs is None or torch.equal(mine, torchs)
    assert_close(found, wanted)


@pytest.mark.parametrize("name", EVERY)
def test_a_packed_sequence_equals_a_padded_one_with_lengths(name):
    layer = make(EVERY[name], 2, bidirectional=True, batch_first=True)
    x, state = randn(6, 4, 3), random_state(layer, 4)
    packed = pack_padded_sequence(x, LENGTHS[False], enforce_sorted=False)
    output, final = layer(packed, state)
    padded, padded_final = layer(x.transpose(0, 1), state, lengths=LENGTHS[False])
    again = pack_padded_sequence(padded, LENGTHS[False], batch_first=True, enforce_sorted=False)
    assert_close([output, final], [again, padded_final])


def test_sequences_of_one_length_stay_packed():
    layer = make(EVERY["gru"])
    output, _ = layer(pack_padded_sequence(randn(3, 2, 3), [3, 3]))
    assert isinstance(output, PackedSequence)
    assert_close(output, layer(randn(3, 2, 3))[0].flatten(0, 1))


def test_lengths_beside_a_packed_sequence_are_refused():
    with pytest.raises(ValueError, match=r"lengths=\[3, 3\].*PackedSequence"):
        make(EVERY["gru"])(pack_padded_sequence(randn(3, 2, 3), [3, 3]), lengths=[3, 3])
