"""Searches over a small random language model, beside brute force."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from metarnn.decoding import Sampler, Search
from metarnn.tasks.language import ModelOptions, build_model

V, BOS, EOS = 6, 0, 1
WORDS = [2, 3, 4, 5]
START = torch.full((3,), BOS)


class Model:
    """A recurrent model whose sentences begin from states of their own."""

    def __init__(self, cell="gru", seed=0):
        torch.manual_seed(seed)
        self.model = build_model(V, ModelOptions(cell=cell, width=8, embedding=4)).double().eval()
        with torch.no_grad():
            for p in self.model.parameters():
                p.mul_(4)
        _, state = self.model.step(START, None)
        self.state = state
        for part in state[0] if isinstance(state[0], tuple) else [state[0]]:
            part.normal_()
        self.batches = []

    def step(self, tokens, state):
        self.batches.append(len(tokens))
        return self.model.step(tokens, state)

    def log_p(self, sentence, tokens, ends=True):
        """Of a whole sequence, one token after the other."""
        state = pick(self.state, [sentence])
        total, last = 0.0, BOS
        for token in [*tokens, EOS] if ends else tokens:
            log_p, state = self.model.step(torch.tensor([last]), state)
            total, last = total + float(log_p[0, token].detach()), token
        return total


def pick(state, columns):
    if isinstance(state, tuple):
        return tuple(pick(part, columns) for part in state)
    return state[:, columns].clone()


@pytest.fixture(params=["gru", pytest.param("lstm", marks=pytest.mark.medium)])
def model(request):
    return Model(request.param)


def search(model, columns=(0, 1, 2), eos: int | None = EOS, never=(BOS,), **options: Any):
    names = options.keys() & {"prefixes", "limits", "numbers"}
    call = {name: options.pop(name) for name in names}
    columns = list(columns)
    state, start = pick(model.state, columns), START[: len(columns)]
    return Search(**options)(model, state, start, eos=eos, never=never, **call)


def test_width_one_is_greedy(model):
    for penalty in (0.0, 1.0):
        found = search(model, max_length=8, length_penalty=penalty)
        for b, (best,) in enumerate(found):
            state, last, tokens = pick(model.state, [b]), BOS, []
            while last != EOS and len(tokens) < 9:
                log_p, state = model.model.step(torch.tensor([last]), state)
                log_p[0, BOS] = -torch.inf
                last = int(log_p.argmax()) if len(tokens) < 8 else EOS
                tokens.append(last)
            assert [*best.tokens, EOS] == tokens


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
def test_a_beam_as_wide_as_there_are_sequences_is_an_exhaustive_search(model, penalty):
    longest = 3
    width = len(WORDS) ** longest
    found = search(model, width=width, nbest=5, max_length=longest, length_penalty=penalty)
    for b, hypotheses in enumerate(found):
        scores = {
            tokens: model.log_p(b, tokens) / (n + 1) ** penalty
            for n in range(longest + 1)
            for tokens in product(WORDS, repeat=n)
        }
        best = sorted(scores, key=lambda tokens: -scores[tokens])[:5]
        assert [tuple(h.tokens) for h in hypotheses] == best
        assert [h.score for h in hypotheses] == pytest.approx([scores[y] for y in best])


@pytest.mark.parametrize(
    "options",
    [
        {"width": 4, "nbest": 4},
        {"width": 4, "length_penalty": 1.0, "no_repeat": 2, "min_length": 2},
        {"width": 6, "nbest": 6, "groups": 3, "diversity": 0.5},
        {"width": 3, "nbest": 3, "sampler": Sampler(0.8), "seed": 5},
        {"width": 2, "prefixes": [[2, 3, 2, 2, 2], [], [4]], "limits": [9, 2, 3]},
    ],
    ids=lambda options: "-".join(options),
)
def test_what_is_found_depends_on_no_other_sentence(model, options):
    together = search(model, **options)
    for b in range(3):
        alone: dict[str, Any] = dict(options, numbers=[b])
        for name in ("prefixes", "limits"):
            if name in options:
                alone[name] = [options[name][b]]
        (found,) = search(model, [b], **alone)
        assert [h.tokens for h in found] == [h.tokens for h in together[b]]
        assert [h.score for h in found] == pytest.approx([h.score for h in together[b]])


def test_scores_are_those_of_the_model_and_the_best_comes_first(model):
    cases = [{}, {"length_penalty": 1.0}, {"groups": 2, "diversity": 1.0}, {"sampler": Sampler()}]
    for options in cases:
        for b, found in enumerate(search(model, width=4, nbest=4, max_length=7, **options)):
            assert len(found) == 4
            assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
            for h in found:
                assert h.log_p == pytest.approx(model.log_p(b, h.tokens))
                length = (len(h.tokens) + 1) ** options.get("length_penalty", 0.0)
                assert h.score == pytest.approx(h.log_p / length)


def test_lengths_are_kept(model):
    found = search(model, width=3, nbest=3, min_length=4, max_length=6, limits=[6, 5, 1])
    for longest, hypotheses in zip((6, 5, 4), found, strict=True):
        assert all(4 <= len(h.tokens) <= longest for h in hypotheses)


def test_without_an_end_all_have_the_same_length(model):
    for b, found in enumerate(search(model, eos=None, never=(), width=3, nbest=3, max_length=5)):
        assert [len(h.tokens) for h in found] == [5, 5, 5]
        assert found[0].log_p == pytest.approx(model.log_p(b, found[0].tokens, ends=False))


def test_no_n_tokens_come_twice(model):
    plain = search(model, width=2, nbest=2, min_length=12, max_length=12)
    assert any(repeated(h.tokens, 3) for found in plain for h in found)
    found = search(model, width=2, nbest=2, min_length=12, max_length=12, no_repeat=3)
    assert not any(repeated(h.tokens, 3) for found in found for h in found)


def repeated(tokens, n):
    grams = list(zip(*(tokens[k:] for k in range(n)), strict=False))
    return len(set(grams)) < len(grams)


def test_where_rules_leave_nothing_they_give_way(model):
    # Each word once is five tokens at most; eos must not come before the eighth.
    (found, *_) = search(model, no_repeat=1, min_length=8, max_length=9)
    assert len(found[0].tokens) >= 4


def test_a_prefix_is_forced_and_its_probability_counted(model):
    prefixes = [[2, 2, 5], [], [3]]
    found = search(model, width=3, nbest=3, max_length=6, prefixes=prefixes)
    for b, hypotheses in enumerate(found):
        for h in hypotheses:
            assert h.tokens[: len(prefixes[b])] == prefixes[b]
            assert h.log_p == pytest.approx(model.log_p(b, h.tokens))
    # One that is longer than any length is kept whole.
    found = search(model, max_length=2, prefixes=prefixes)
    assert found[0][0].tokens == prefixes[0]
    assert max(len(h.tokens) for (h,) in found[1:]) <= 2
    (free, *_) = search(model, width=3, nbest=3, max_length=6)
    assert all(h.tokens[:3] != [2, 2, 5] for h in free)


def test_diverse_beams_differ_where_plain_ones_agree(model):
    def firsts(**options):
        found = search(model, width=4, nbest=4, min_length=3, max_length=8, **options)
        return [len({h.tokens[0] for h in hypotheses}) for hypotheses in found]

    assert firsts(groups=4, diversity=100.0) == [4, 4, 4]
    assert sum(firsts()) < 12
    # Groups that pay nothing all find the same.
    alike = search(model, width=4, nbest=4, groups=4)
    assert all(len({tuple(h.tokens) for h in hypotheses}) == 1 for hypotheses in alike)


def test_drawn_sequences_come_as_often_as_they_are_probable(model):
    width = 2000
    (found,) = search(model, [1], width=width, nbest=width, sampler=Sampler(), max_length=3)
    tokens = [tuple(h.tokens) for h in found]
    for best in search(model, [1], width=4, nbest=4, max_length=3)[0][:2]:
        # Without <bos>, which is never drawn: compared with one another.
        share = tokens.count(tuple(best.tokens)) / width
        assert share >= 0.9 * torch.tensor(best.log_p).exp() - 0.03


def test_coverage_decides_between_what_is_equally_probable():
    class Attentive:
        def step(self, tokens, state):
            log_p = torch.full((len(tokens), V), -torch.inf)
            log_p[:, [2, 3]] = torch.tensor([0.55, 0.45]).log()
            log_p[tokens != BOS] = torch.where(torch.arange(V) == EOS, 0.0, -torch.inf)
            return log_p, state + (tokens == 3)

        def coverage(self, state):
            return state[0] - 1.0

    model, state = Attentive(), torch.zeros(1, 1)
    best = {
        penalty: Search(width=2, coverage_penalty=penalty)(
            model, state, START[:1], eos=EOS, never=[BOS]
        )[0][0]
        for penalty in (0.0, 1.0)
    }
    assert best[0.0].tokens == [2]
    assert best[1.0].tokens == [3]
    with pytest.raises(ValueError, match="coverage_penalty"):
        search(Model(), coverage_penalty=1.0)


def test_sentences_that_have_ended_leave_the_batch(model):
    search(model, eos=None, limits=[1, 1, 20], max_length=20, width=2)
    assert model.batches == [6] + [2] * 19


def test_a_model_that_is_broken_is_told_from_one_that_finds_nothing():
    class Broken:
        def step(self, tokens, state):
            return torch.full((len(tokens), V), torch.nan), state

    with pytest.raises(ValueError, match="not numbers"):
        Search(width=2)(Broken(), None, START, eos=EOS)


@pytest.mark.parametrize(
    "options",
    [
        {"width": 0},
        {"nbest": 2},
        {"min_length": 5, "max_length": 4},
        {"width": 4, "groups": 3},
        {"length_penalty": -1.0},
        {"width": 2, "groups": 2, "sampler": Sampler()},
    ],
)
def test_settings_that_cannot_be_are_refused(options):
    with pytest.raises(ValueError, match=list(options)[-1 if "sampler" not in options else 1]):
        replace(Search(), **options)
