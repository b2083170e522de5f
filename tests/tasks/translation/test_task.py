import math
from typing import Any

import numpy as np
import pytest
import torch

from metarnn.decoding import Search
from metarnn.tasks.language import BOS, EOS, PAD, UNK, Vocabulary
from metarnn.tasks.task import Shard
from metarnn.tasks.translation import (
    BucketedBatches,
    ModelOptions,
    Pairs,
    ParallelCorpus,
    TranslationTask,
    align,
    build_model,
    load,
    make_batch,
    translate,
)
from metarnn.tasks.translation.corpus import Split
from metarnn.tasks.translation.task import scheduled
from metarnn.training import Settings, Trainer

OPTIONS = ModelOptions(cell="gru", width=16, embedding=8, engine="eager")


def reversal(count=400, seed=0, level="character"):
    """Words turned round: pairs of many lengths."""
    draw = np.random.default_rng(seed)
    space = " " if level == "word" else ""
    words = [list(draw.choice(list("abcde"), n)) for n in draw.integers(1, 9, count)]
    source = [space.join(word) for word in words]
    target = [space.join(word[::-1]) for word in words]
    vocabulary = Vocabulary.build(([line] for line in source), level)
    split = Split(
        Pairs(source, target),
        [vocabulary.encode(line) for line in source],
        [vocabulary.encode(line) for line in target],
    )
    return ParallelCorpus(
        "reversal", vocabulary, vocabulary, dict.fromkeys(("train", "valid"), split)
    )


@pytest.fixture(scope="module")
def corpus():
    return reversal()


@pytest.fixture(scope="module")
def model(corpus):
    torch.manual_seed(0)
    return build_model(corpus.source, corpus.target, OPTIONS)


def test_a_batch_is_what_its_pairs_are():
    batch = make_batch([np.array([7, 8]), np.array([9])], [np.array([5]), np.array([6, 4])])
    assert batch.source.T.tolist() == [[7, 8, EOS], [9, EOS, PAD]]
    assert batch.lengths.tolist() == [3, 2]
    assert batch.inputs.T.tolist() == [[BOS, 5, PAD], [BOS, 6, 4]]
    # Read row by row: both at t = 0 and 1, the second alone at t = 2.
    assert batch.targets.tolist() == [5, 6, EOS, 4, EOS]
    assert batch.places.tolist() == [0, 1, 2, 3, 5]


def test_every_pair_comes_once_an_epoch_among_others_of_its_length(corpus):
    batches = BucketedBatches(corpus["train"], 32, seed=1)
    epochs = [[next(batches) for _ in range(400 // 32)] for _ in range(2)]
    for epoch in epochs:
        seen = sorted(tuple(column) for batch in epoch for column in sentences(batch))
        every = sorted(tuple(x.tolist()) for x in corpus["train"].source)
        assert len(seen) == 384
        assert not set(seen) - set(every)
        padding = sum((batch.source == PAD).sum().item() for batch in epoch)
        assert padding < 0.1 * sum(batch.source.numel() for batch in epoch)
    assert [b.source.shape for b in epochs[0]] != [b.source.shape for b in epochs[1]]


def sentences(batch):
    return [
        column[: n - 1].tolist()
        for column, n in zip(batch.source.T, batch.lengths.tolist(), strict=True)
    ]


def test_shards_together_are_the_batch_and_positions_are_plain(corpus):
    whole = BucketedBatches(corpus["train"], 8, seed=2)
    parts = [BucketedBatches(corpus["train"], 8, seed=2, shard=Shard(k, 2)) for k in range(2)]
    for _ in range(60):  # into the second epoch
        both = [sentences(next(part)) for part in parts]
        assert sorted(both[0] + both[1]) == sorted(sentences(next(whole)))
    again = BucketedBatches(corpus["train"], 8, seed=2)
    again.load_state_dict(whole.state_dict())
    assert torch.equal(next(again).source, next(whole).source)
    with pytest.raises(ValueError, match="as when it was saved"):
        BucketedBatches(corpus["train"], 4, seed=2).load_state_dict(whole.state_dict())
    with pytest.raises(ValueError, match="400 pairs"):
        BucketedBatches(corpus["train"], 401)


def test_the_loss_is_the_mean_over_tokens_with_smoothing_beside_it(corpus, model):
    task = TranslationTask(corpus, batch=8, smoothing=0.2)
    batch = next(task.batches(Shard()))
    loss = task.loss(model.eval(), batch)
    state = model.encode(batch.source, batch.lengths)
    o, weights, state = model.decode(batch.inputs, state)
    log_p = model.log_p(o, weights, state).flatten(0, 1)[batch.places]
    nll = -log_p.gather(1, batch.targets.unsqueeze(1)).mean()
    torch.testing.assert_close(loss.metrics["nll"], nll.detach())
    torch.testing.assert_close(loss.value, 0.8 * nll - 0.2 * log_p.mean())
    assert loss.count == len(batch.targets)


@pytest.mark.medium
def test_scores_do_not_depend_on_how_many_sentences_are_side_by_side(model):
    corpus = reversal(40)
    search = Search(max_length=10)
    tasks = [TranslationTask(corpus, 8, search=search, evaluation_batch=n) for n in (1, 7, 64)]
    scores = [task.evaluate(model, "train") for task in tasks]
    for other in scores[1:]:
        assert other == pytest.approx(scores[0], rel=1e-5)
    assert scores[0]["tokens"] == sum(len(y) + 1 for y in corpus["train"].target)
    assert scores[0]["perplexity"] == pytest.approx(math.exp(scores[0]["nll"]))


@pytest.mark.medium
def test_what_is_selected_by_comes_first(corpus, model):
    choices: Any = (("exact", 1), ("bleu", 100))
    for select, factor in choices:
        task = TranslationTask(corpus, select=select, search=Search(max_length=10))
        scores = task.evaluate(model)
        assert next(iter(scores)) == "error"
        assert scores["error"] == pytest.approx(1 - scores[select] / factor)
    assert (
        next(iter(TranslationTask(corpus, search=Search(max_length=10)).evaluate(model))) == "nll"
    )


def test_translations_are_in_the_order_of_sentences_and_empty_ones_stay(corpus, model):
    vocabulary, search = corpus.source, Search(width=3, nbest=2, max_length=10)
    texts = ["abc", "", "edcbabc", "a", "zz"]
    found = translate(model, vocabulary, vocabulary, texts, search, batch=2)
    for text, best in zip(texts, found, strict=True):
        (alone,) = translate(model, vocabulary, vocabulary, [text], search)
        assert [t.text for t in best] == [t.text for t in alone]
        assert [t.score for t in best] == pytest.approx([t.score for t in alone], rel=1e-4)
        for one in best:
            assert not {UNK, PAD, BOS} & set(one.tokens)
    assert [t.text for t in found[1]] == [""]
    (begun,) = translate(model, vocabulary, vocabulary, ["abc"], search, prefixes=["ee"])
    assert all(t.text.startswith("ee") for t in begun)


def test_an_unknown_word_is_copied_from_where_it_was_attended_to():
    corpus = reversal(level="word")
    vocabulary = corpus.source
    torch.manual_seed(0)
    model = build_model(vocabulary, vocabulary, OPTIONS)
    with torch.no_grad():
        model.bias[UNK] = 50.0  # it writes nothing else
    search, text = Search(max_length=3, min_length=3), "a Zauberwort b"
    (best,) = translate(model, vocabulary, vocabulary, [text], search, copy_unknown=True)[0]
    assert best.tokens == [UNK] * 3
    a = align(model, vocabulary.encode(text), best.tokens)
    torch.testing.assert_close(a.sum(-1), torch.ones(4))
    assert best.text.split() == [text.split()[int(row[:-1].argmax())] for row in a[:-1]]
    (plain,) = translate(model, vocabulary, vocabulary, [text], search)[0]
    assert UNK not in plain.tokens


def test_scheduled_sampling_rises_with_the_batches(corpus, model):
    truth, log_p = torch.zeros(10_000, dtype=torch.long), torch.zeros(10_000, 3)
    log_p[:, 2] = 1.0
    torch.manual_seed(0)
    assert scheduled(0.7)(1, truth, log_p).eq(2).float().mean() == pytest.approx(0.3, abs=0.02)
    task = TranslationTask(corpus, batch=8, sampling=1.0, sampling_steps=10)
    batches = task.batches(Shard())
    model.eval()
    first = next(batches)
    plain = TranslationTask(corpus, batch=8).loss(model, first).value
    torch.testing.assert_close(task.loss(model, first).value, plain)
    for _ in range(9):
        next(batches)
    last = next(batches)
    own = model(*fields(last), lambda t, true, p: p.argmax(-1))[0].mean()
    torch.testing.assert_close(task.loss(model, last).value, own)


def fields(batch):
    return batch.source, batch.lengths, batch.inputs, batch.targets, batch.places


@pytest.mark.medium
@pytest.mark.parametrize("options", [{}, {"attention": "additive", "feeding": True, "copy": True}])
def test_words_are_turned_round_after_a_little_training(corpus, options):
    torch.manual_seed(0)
    values = {"cell": "gru", "width": 48, "embedding": 16, **options}
    model = build_model(corpus.source, corpus.target, ModelOptions(**values))
    task = TranslationTask(corpus, batch=32, search=Search(width=4, max_length=12))
    settings = Settings(batch=32, steps=250, lr=0.01, schedule="cosine", validate_every=0)
    Trainer(task, model, settings).fit()
    scores = task.evaluate(model, "train")
    assert scores["exact"] > 0.95
    assert scores["edits"] < 0.02


@pytest.mark.medium
def test_the_generated_corpus_knows_all_its_tokens():
    corpus = load("dates")
    assert {name: len(split) for name, split in corpus.splits.items()} == {
        "train": 20_000,
        "valid": 500,
        "test": 2_000,
    }
    assert corpus["test"].unknown == (0, 0)
