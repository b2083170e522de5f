import dataclasses
import logging
import math

import pytest
import torch

from metarnn.tasks.language import (
    BOS,
    LanguageTask,
    ModelOptions,
    build_model,
    dynamic_score,
    load,
    score,
)
from metarnn.tasks.task import Shard


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Documents of very different lengths."""
    folder = tmp_path_factory.mktemp("texts")
    for k in range(60):
        (folder / f"{k:02}.txt").write_text("abcdefgh ijk.\n"[k % 5 :] * (1 + k * k // 60))
    return load(str(folder), split="50/30/20")


@pytest.fixture(scope="module")
def task(corpus):
    return LanguageTask(corpus, batch=4, length=16)


@pytest.fixture(scope="module")
def model(corpus):
    torch.manual_seed(0)
    return build_model(len(corpus.vocabulary), ModelOptions(cell="lstm", width=16, embedding=8))


def one_at_a_time(model, split):
    """The loss by its definition: each document from <bos>, token after token."""
    nats = 0.0
    tokens, bounds = split.tokens, split.tokens.bounds
    for k in range(tokens.documents):
        state, token = None, BOS
        for target in tokens.read(int(bounds[k]), int(bounds[k + 1] - bounds[k])).tolist():
            log_p, state = model.step(torch.tensor([token]), state)
            nats -= log_p[0, target].item()
            token = target
    return nats / len(tokens)


@pytest.mark.parametrize("cell", ["lstm", "gru", "qrnn"])
def test_the_score_is_that_of_one_token_at_a_time_whatever_the_batch(corpus, cell):
    options = ModelOptions(cell=cell, width=16, layers=2, embedding=8, output_dropout=0.5)
    model = build_model(len(corpus.vocabulary), options)
    model.eval()
    with torch.no_grad():
        expected = one_at_a_time(model, corpus["valid"])
    model.train()
    for batch in (1, 7, 64):
        found = score(model, corpus["valid"], batch)
        assert found.nll == pytest.approx(expected, rel=1e-6)
        assert found.tokens.sum() == len(corpus["valid"].tokens)
    assert model.training


def test_figures_follow_from_the_loss(task, model):
    figures = task.evaluate(model)
    assert next(iter(figures)) == "nll"
    assert figures["perplexity"] == pytest.approx(math.exp(figures["nll"]))
    assert figures["bpc"] == pytest.approx(figures["nll"] / math.log(2))
    assert figures["tokens"] == len(task.corpus["valid"].tokens)


def test_unknown_characters_are_counted_and_predicted_as_such(tmp_path, model, corpus):
    (tmp_path / "x.train.txt").write_text("abc" * 50)
    (tmp_path / "x.valid.txt").write_text("ab§§c")
    strange = load(str(tmp_path / "x.train.txt"), vocabulary=corpus.vocabulary)
    figures = LanguageTask(strange, batch=2).evaluate(model)
    assert figures["unknown"] == 2
    assert figures["tokens"] == 5
    assert math.isfinite(figures["nll"])


def test_a_stream_that_ran_off_is_named(task, model, caplog):
    corpus = task.corpus

    class Running(torch.nn.Module):
        """Goes on well for the first 512 tokens of a document."""

        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, inputs, targets, state=None, resets=None):
            read = torch.zeros(1, inputs.shape[1], 1) if state is None else state[0]
            output = self.inner(inputs, targets, None if state is None else state[1], resets)
            far = 50.0 * (read[0, :, 0] >= 512)
            state = (read + len(inputs), output.state)
            return output._replace(nll=output.nll + far, state=state)

    with caplog.at_level(logging.WARNING):
        figures = task.evaluate(Running())
    long = [
        name
        for name, n in zip(corpus["valid"].names, score(model, corpus["valid"]).tokens, strict=True)
        if n > 512
    ]
    assert figures["ran_off"] == len(long) > 0
    assert long[0] in caplog.text
    assert "diverged on long input" in caplog.text
    assert task.evaluate(model)["ran_off"] == 0


def test_a_loss_that_is_no_number_counts_as_run_off(task, corpus):
    model = build_model(len(corpus.vocabulary), ModelOptions(width=8, embedding=4))
    with torch.no_grad():
        model.get_parameter("bias").fill_(math.nan)
    figures = task.evaluate(model)
    assert math.isnan(figures["nll"])
    assert math.isnan(figures["perplexity"])
    assert figures["ran_off"] == corpus["valid"].tokens.documents


def test_training_carries_states_and_begins_anew_where_told(task, model):
    batches = task.batches(Shard())
    first, second = next(batches), next(batches)
    second.fresh[:] = torch.tensor([False, True, False, True])
    second.resets = None
    carried = task.loss(model, first).carried
    loss = task.loss(model, second, carried)
    state = model(first.inputs, first.targets, None, first.resets).state
    with_state = model(second.inputs, second.targets, state).nll
    without = model(second.inputs, second.targets).nll
    expected = torch.where(second.fresh, without, with_state).mean()
    torch.testing.assert_close(loss.value, expected)
    assert loss.count == second.targets.numel()
    assert not any(part.requires_grad for layer in loss.carried for part in layer)


def test_a_document_that_begins_within_a_batch_begins_from_nothing(task, model):
    batch = next(b for b in task.batches(Shard()) if b.resets is not None)
    t, b = batch.resets.nonzero()[0].tolist()
    nll = model(batch.inputs, batch.targets, None, batch.resets).nll[t:, b]
    alone = model(batch.inputs[t:, b : b + 1], batch.targets[t:, b : b + 1]).nll[:, 0]
    later = batch.resets[t + 1 :, b].nonzero()
    end = int(later[0]) + 1 if len(later) else len(alone)
    torch.testing.assert_close(nll[:end], alone[:end])
    assert batch.inputs[t, b] == BOS


def test_activations_are_regularised_as_in_awd_lstm(task, corpus):
    options = ModelOptions(width=16, embedding=8)
    model = build_model(len(corpus.vocabulary), options)
    batch = next(task.batches(Shard()))
    plain = task.loss(model, batch)
    both = dataclasses.replace(task, ar=2.0, tar=1.0).loss(model, batch)
    h = model(batch.inputs, batch.targets, None, batch.resets).hidden
    extra = 2 * h.square().mean() + (h[1:] - h[:-1]).square().mean()
    torch.testing.assert_close(both.value, plain.value + extra)
    torch.testing.assert_close(both.metrics["nll"], plain.metrics["nll"])


def test_shards_mean_the_global_loss(task, model):
    whole = task.loss(model, next(task.batches(Shard()))).value
    parts = [task.loss(model, next(task.batches(Shard(k, 2)))).value for k in range(2)]
    torch.testing.assert_close(sum(parts) / 2, whole)


def test_dynamic_evaluation_learns_from_a_text_that_repeats_itself_and_says_so(task, corpus):
    torch.manual_seed(0)
    model = build_model(len(corpus.vocabulary), ModelOptions(width=32, embedding=8))
    before = [p.detach().clone() for p in model.parameters()]
    static = task.evaluate(model, "test")
    found = task.evaluate(model, "test", dynamic=True)
    assert "nll" not in found
    assert found["dynamic_nll"] < static["nll"] - 0.05
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    still = dynamic_score(model, corpus["test"], rate=0.0)
    assert still.nll == pytest.approx(static["nll"], rel=1e-5)


@pytest.mark.medium
def test_a_small_model_learns_the_embedded_text():
    torch.manual_seed(0)
    corpus = load("pydoc")
    task = LanguageTask(corpus, batch=16, length=64)
    model = build_model(len(corpus.vocabulary), ModelOptions(cell="gru", width=64, embedding=32))
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    batches, carried = task.batches(Shard()), None
    for _ in range(200):
        loss = task.loss(model, next(batches), carried)
        carried = loss.carried
        optimizer.zero_grad()
        loss.value.backward()
        optimizer.step()
    assert task.evaluate(model)["bpc"] < 3.3  # 4.8 for frequencies alone
