"""The encoder–decoder, all of its kinds, beside what they are defined to be."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from metarnn.layers import GRU, LSTM, nested
from metarnn.tasks.language import PAD, Vocabulary, count_parameters
from metarnn.tasks.translation import Attention, EncoderDecoder, ModelOptions, build_model
from metarnn.tasks.translation.bridge import Bridge

WORDS = Vocabulary.build([["abcdefghij"]])
OTHERS = Vocabulary.build([["efghijklmnop"]])
SMALL = ModelOptions(width=12, embedding=6, engine="eager")
KINDS = {
    "dot": {},
    "additive": {"attention": "additive"},
    "multihead": {"attention": "multihead", "heads": 3, "layers": 2},
    "coverage": {"attention": "additive", "coverage": True},
    "many-covered": {"attention": "multihead", "coverage": True},
    "feeding": {"feeding": True, "layers": 2},
    "feeding-tied": {"feeding": True, "tied": True, "cell": "gru"},
    "initial": {"attention": "none"},
    "one-way": {"attention": "none", "bidirectional": False, "layers": 2},
    "summary": {"attention": "none", "initial": False, "summary": True},
    "everything": {"summary": True, "feeding": True, "coverage": True, "copy": True},
    "copy": {"copy": True, "attention": "additive", "tied": True},
    "shared": {"shared": True, "tied": True, "copy": True},
    "compiled": {"engine": "auto", "layers": 2},
    "sru": {"cell": "sru", "decoder_layers": 3},
    "qrnn": {"cell": "qrnn"},
    "two-cells": {"cell": "qrnn", "decoder_cell": "onlstm", "bidirectional": False},
    "jordan": {"decoder_cell": "jordan"},
    "meta": {"decoder_cell": "meta-lstm", "cell": "gru", "layers": 2},
    "meta-fed": {"cell": "meta-gru", "feeding": True},
}

QUICK = ("dot", "coverage", "feeding", "everything", "shared")
EVERY = [k if k in QUICK else pytest.param(k, marks=pytest.mark.medium) for k in KINDS]


def build(kind, dtype=torch.float64, **more) -> Any:
    torch.manual_seed(1)
    options = replace(SMALL, **{**KINDS[kind], **more})
    target = WORDS if options.shared else OTHERS
    model = build_model(WORDS, target, options).to(dtype)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))  # gamma and others begin at 0
    return model.eval()


def example(seed=0, batch=3):
    torch.manual_seed(seed)
    source, inputs = torch.randint(3, 14, (7, batch)), torch.randint(4, 14, (5, batch))
    lengths = torch.tensor([7, 4, 2, 5, 1][:batch])
    for b, n in enumerate(lengths):
        source[n:, b] = PAD
    places = torch.arange(inputs.numel())
    return source, lengths, inputs, torch.randint(4, 14, (inputs.numel(),)), places


@pytest.mark.parametrize("kind", EVERY)
def test_all_steps_at_once_are_one_step_after_the_other(kind):
    model = build(kind)
    source, lengths, inputs, targets, places = example()
    nll, everywhere = model(source, lengths, inputs, targets, places)
    with torch.no_grad():
        state, found = model.encode(source, lengths), []
        for tokens in inputs:
            log_p, state = model.step(tokens, state)
            found.append(log_p)
    log_p = torch.cat(found)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(len(log_p)).double())
    torch.testing.assert_close(-log_p.gather(1, targets.unsqueeze(1)).squeeze(1), nll.detach())
    if model.gate is None:
        torch.testing.assert_close(everywhere.detach(), -log_p.mean(-1))


@pytest.mark.parametrize("kind", EVERY)
def test_padding_and_other_sentences_never_reach_a_sentence(kind):
    model = build(kind)
    source, lengths, inputs, targets, places = example()
    together = model(source, lengths, inputs, targets, places)[0].view_as(inputs)
    for b, n in enumerate(lengths.tolist()):
        alone, _ = model(
            source[:n, b : b + 1],
            lengths[b : b + 1],
            inputs[:, b : b + 1],
            targets.view_as(inputs)[:, b],
            torch.arange(len(inputs)),
        )
        torch.testing.assert_close(together[:, b], alone)


@pytest.mark.parametrize("kind", EVERY)
def test_a_state_is_reordered_as_sentences_are(kind):
    model = build(kind)
    source, lengths, inputs, *_ = example()
    rows = torch.tensor([2, 0, 0])
    with torch.no_grad():
        _, state = model.step(inputs[0], model.encode(source, lengths))
        one, _ = model.step(inputs[1, rows], nested.select(state, rows))
        _, other = model.step(inputs[0, rows], model.encode(source[:, rows], lengths[rows]))
        other, _ = model.step(inputs[1, rows], other)
        # Two hypotheses of each sentence, which trade places.
        twice = torch.tensor([0, 0, 1, 1, 2, 2])
        _, state = model.step(inputs[:2].T.flatten(), nested.select(state, twice))
        swap = torch.tensor([1, 0, 2, 3, 5, 5])
        within = model.step(inputs[3, twice], model.reorder(state, swap))[0]
        anywhere = model.step(inputs[3, twice], nested.select(state, swap))[0]
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(within, anywhere)


@pytest.mark.parametrize("kind", EVERY)
def test_every_weight_learns(kind):
    model = build(kind, torch.float32)
    nll, _ = model(*example())
    nll.sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all()
        assert weight.grad.abs().sum() > 0, name


def test_a_target_that_is_padding_is_no_part_of_the_loss():
    model = build("dot")
    source, lengths, inputs, targets, _ = example()
    real = torch.tensor([0, 1, 2, 4, 6])  # of [T, B]
    some, _ = model(source, lengths, inputs, targets[real], real)
    every, _ = model(source, lengths, inputs, targets, torch.arange(15))
    torch.testing.assert_close(some, every[real])
    changed = inputs.clone()
    changed[3:] = 9  # after the last real place
    torch.testing.assert_close(model(source, lengths, changed, targets[real], real)[0], some)


def test_attention_is_its_formula():
    torch.manual_seed(0)
    query, states = torch.randn(4, 2, 6), torch.randn(5, 2, 8)
    mask = torch.ones(5, 2, dtype=torch.bool)
    mask[3:, 1] = False
    for kind in ("additive", "dot"):
        attention = Attention(6, 8, kind)
        context, a = attention(query, attention.look(states, mask, mask.long()))
        for t in range(4):
            for b, n in enumerate((5, 3)):
                q, keys = attention.query(query[t, b]), attention.key(states[:n, b])
                if attention.score is not None:
                    e = torch.tanh(q + keys) @ attention.score
                else:
                    e = keys @ q / math.sqrt(8)
                torch.testing.assert_close(a[t, b, :n], e.softmax(0))
                assert a[t, b, n:].eq(0).all()
                torch.testing.assert_close(context[t, b], e.softmax(0) @ states[:n, b])


def test_multihead_attention_is_torchs():
    torch.manual_seed(0)
    query, states, mask = torch.randn(4, 2, 8), torch.randn(5, 2, 8), torch.ones(5, 2).bool()
    mask[3:, 1] = False
    ours: Any = Attention(8, 8, "multihead", heads=4)
    theirs = torch.nn.MultiheadAttention(8, 4)
    with torch.no_grad():
        parts = [ours.query.weight, ours.key.weight, ours.value.weight]
        theirs.in_proj_weight.copy_(torch.cat(parts))
        theirs.in_proj_bias.copy_(torch.cat([torch.zeros(16), ours.value.bias]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
    context, a = ours(query, ours.look(states, mask, mask.long()))
    expected, weights = theirs(query, states, states, key_padding_mask=~mask.T)
    torch.testing.assert_close(context, expected)
    torch.testing.assert_close(a.transpose(0, 1), weights)


def test_coverage_turns_attention_away_from_where_it_was():
    model = build("coverage")
    source, lengths, inputs, *_ = example(batch=1)
    with torch.no_grad():
        model.attention.gamma.fill_(-30.0)
        _, a, state = model.decode(inputs, model.encode(source, lengths))
    assert a[1:, 0].argmax(-1).ne(a[:-1, 0].argmax(-1)).all()
    torch.testing.assert_close(state.covered, a.sum(0).T)
    expected = state.covered.clamp(max=1).log().sum(0)
    torch.testing.assert_close(model.coverage(state), expected)


def test_only_what_the_target_knows_is_copied():
    model = build("copy")
    with torch.no_grad():
        model.gate.weight.zero_()
        model.gate.bias.fill_(50.0)
    known, unknown = WORDS.encode("efg"), WORDS.encode("abcd")
    for text, copies in ((known, True), (unknown, False)):
        source = torch.from_numpy(text).unsqueeze(1)
        with torch.no_grad():
            state = model.encode(source, torch.tensor([len(text)]))
            p = model.step(torch.tensor([5]), state)[0].exp()[0]
        of_source = p[torch.from_numpy(OTHERS.encode("efg"))].sum()
        assert (of_source > 0.999) == copies
        assert p.sum() == pytest.approx(1)


def test_states_of_equal_layers_pass_as_they_are_and_others_by_a_bridge():
    encoder = LSTM(4, 8, num_layers=2)
    bridge = Bridge(encoder, [LSTM(4, 8), LSTM(16, 8)])
    _, (h, c) = encoder(torch.randn(3, 2, 4))
    first, second = bridge((h, c))
    assert not list(bridge.parameters())
    torch.testing.assert_close((first[0], second[1]), (h[:1], c[1:]))
    both = LSTM(4, 8, bidirectional=True)
    other = Bridge(both, [GRU(4, 5), LSTM(4, 7)])
    gru, (h, c) = other(both(torch.randn(3, 2, 4))[1])
    assert (gru.shape, h.shape, c.shape) == ((1, 2, 5), (1, 2, 7), (1, 2, 7))


def test_a_rule_decides_for_every_token_what_is_read():
    model = build("dot")
    source, lengths, inputs, targets, places = example()
    truth, _ = model(source, lengths, inputs, targets, places)
    seen = []

    def keep(t, true, log_p):
        seen.append((t, log_p.shape))
        return true

    same, _ = model(source, lengths, inputs, targets, places, keep)
    torch.testing.assert_close(same, truth)
    assert seen == [(t, (3, len(OTHERS))) for t in range(1, 5)]

    own, _ = model(source, lengths, inputs, targets, places, lambda t, true, p: p.argmax(-1))
    with torch.no_grad():
        state, tokens = model.encode(source, lengths), inputs[0]
        for t in range(5):
            log_p, state = model.step(tokens, state)
            wanted = log_p.gather(1, targets.view_as(inputs)[t].unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(-wanted, own.view_as(inputs)[t].detach())
            tokens = log_p.argmax(-1)


def test_params_find_the_width():
    for kind in ("dot", "one-way"):
        model = build(kind, width=64, params="60k")
        count = count_parameters(model.parameters())
        assert 57_000 < count <= 60_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "none", "initial": False}, "some way from the source"),
        ({"attention": "none", "copy": True}, "some attention"),
        ({"attention": "dots"}, "attention='dots'"),
        ({"attention": "multihead", "heads": 5}, "heads=5"),
        ({"shared": True}, "joint"),
        ({"width": 13}, "even"),
        ({"dropout": 1.5}, "dropout"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build_model(WORDS, OTHERS, replace(SMALL, **options))


def test_layers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"layers\[1\].input_size=8: expected 16"):
        EncoderDecoder(9, 9, LSTM(4, 8), [LSTM(4, 8), LSTM(8, 8)], embedding=4)
    with pytest.raises(ValueError, match="one direction"):
        EncoderDecoder(9, 9, LSTM(4, 8), [LSTM(4, 8, bidirectional=True)], embedding=4)
