import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metarnn.tasks.language import BOS, RandomBatches, SequentialBatches, Tokens
from metarnn.tasks.language.batches import shuffled
from metarnn.tasks.task import Shard


def numbered(*lengths):
    """Documents of these lengths; each token tells its place."""
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens(np.arange(1000, 1000 + bounds[-1]), bounds)


KINDS = {
    "sequential": lambda tokens, **o: SequentialBatches(tokens, 6, 7, reset=0.3, **o),
    "random lengths": lambda tokens, **o: SequentialBatches(tokens, 6, 7, random_lengths=True, **o),
    "random": lambda tokens, **o: RandomBatches(tokens, 6, 7, **o),
}


def equal(a, b):
    same = [torch.equal(getattr(a, n), getattr(b, n)) for n in ("inputs", "targets", "fresh")]
    if (a.resets is None) != (b.resets is None):
        return False
    return all(same) and (a.resets is None or torch.equal(a.resets, b.resets))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=9), st.integers(1, 6), st.integers(1, 9))
def test_readers_walk_through_all_of_the_text_without_a_gap(lengths, batch, length):
    tokens = numbered(*lengths)
    total = len(tokens)
    batch = min(batch, total)
    batches = SequentialBatches(tokens, batch, length, reset=0)
    starts = set(tokens.bounds[:-1].tolist())
    rows = [[] for _ in range(batch)]
    for _ in range(-(-total // length)):
        found = next(batches)
        for b in range(batch):
            targets = (found.targets[:, b] - 1000).tolist()
            for t, place in enumerate(targets):
                begins = place in starts
                before = BOS if begins else 1000 + place - 1
                assert found.inputs[t, b] == before
                if t:
                    assert (found.resets is not None and bool(found.resets[t, b])) == begins
                elif rows[b]:
                    assert bool(found.fresh[b]) == begins
            rows[b] += targets
    for b, row in enumerate(rows):
        first = b * total // batch
        assert row == [(first + k) % total for k in range(len(row))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, 3])
def test_shards_together_are_the_one_global_batch(kind, count):
    tokens = numbered(30, 41, 50)
    whole = KINDS[kind](tokens, seed=3)
    parts = [KINDS[kind](tokens, seed=3, shard=Shard(k, count)) for k in range(count)]
    for _ in range(40):
        expected, found = next(whole), [next(part) for part in parts]
        for name in ("inputs", "targets"):
            joined = torch.cat([getattr(batch, name) for batch in found], 1)
            assert torch.equal(joined, getattr(expected, name))
        assert torch.equal(torch.cat([batch.fresh for batch in found]), expected.fresh)
        assert {batch.scale for batch in found} == {expected.scale}
    assert [part.state_dict() for part in parts] == [whole.state_dict()] * count


@pytest.mark.parametrize("kind", KINDS)
def test_a_position_saved_as_json_goes_on_where_it_was(kind):
    tokens = numbered(30, 41, 50)
    batches = KINDS[kind](tokens, seed=1)
    for _ in range(23):
        next(batches)
    state = json.loads(json.dumps(batches.state_dict()))
    again = KINDS[kind](tokens, seed=1)
    again.load_state_dict(state)
    assert all(equal(next(batches), next(again)) for _ in range(30))


def test_a_position_in_another_text_is_refused():
    state = SequentialBatches(numbered(50), 2, 5).state_dict()
    for other in (SequentialBatches(numbered(51), 2, 5), SequentialBatches(numbered(50), 5, 5)):
        with pytest.raises(ValueError, match="as when it was saved"):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match="kind='random'"):
        RandomBatches(numbered(50), 2, 5).load_state_dict(state)


def test_random_sampling_shows_every_segment_of_an_epoch_once_and_reorders_them():
    tokens = numbered(1000)
    batches = RandomBatches(tokens, 3, 10)
    orders = []
    for _ in range(2):
        seen = [next(batches).targets[0] for _ in range(batches.segments // 3)]
        places = (torch.cat(seen) - 1000).tolist()
        assert len({place // 10 for place in places}) == len(places) == 99
        assert len({place % 10 for place in places}) == 1  # all cut at one offset
        orders.append([place // 10 for place in places])
    assert orders[0] != orders[1]
    assert orders[0] != sorted(orders[0])


@given(st.integers(1, 300), st.integers(0, 2**32))
def test_a_shuffle_without_a_table_is_a_permutation(count, seed):
    found = shuffled(np.arange(count), count, np.random.default_rng(seed))
    assert sorted(found) == list(range(count))


def test_states_begin_anew_as_often_as_asked():
    batches = SequentialBatches(numbered(10**6), 50, 2, reset=0.1)
    next(batches)
    fresh = torch.stack([next(batches).fresh for _ in range(400)]).float()
    assert fresh.mean().item() == pytest.approx(0.1, abs=0.01)
    assert fresh.mean(0).min() > 0.03


def test_random_lengths_scale_the_learning_rate_with_them():
    batches = SequentialBatches(numbered(10**5), 4, 70, random_lengths=True)
    lengths = []
    for _ in range(500):
        batch = next(batches)
        lengths.append(len(batch.targets))
        assert batch.scale == len(batch.targets) / 70
    assert min(lengths) < 45 < 60 < np.mean(lengths) < 72
    assert batches.offset == sum(lengths)


def test_batches_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="at most the 5 tokens"):
        SequentialBatches(numbered(5), 6, 7)
    with pytest.raises(ValueError, match="a multiple of the 4 processes"):
        RandomBatches(numbered(50), 6, 7, shard=Shard(0, 4))
