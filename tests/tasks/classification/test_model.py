"""The classifier: what it reads, what it pools, what it answers step by step."""

# pyright: reportOptionalMemberAccess=false

import numpy as np
import pytest
import torch

from metarnn.tasks.classification import (
    ClassificationTask,
    Classifier,
    ClassifierOptions,
    Dataset,
    Example,
    Pool,
    Scheme,
    build_model,
    generate,
    load,
    predict,
)
from metarnn.tasks.classification.examples import divided
from metarnn.tasks.classification.task import collate, decode_ctc
from metarnn.tasks.pretrained import from_pretrained, save_pretrained
from metarnn.tasks.session import Session
from metarnn.tasks.task import Shard

pytestmark = pytest.mark.medium

POOLS = ["last", "mean", "max", "attention"]


def small(name, count=24, **options):
    kind, examples = generate(name)
    scheme = Scheme.of(kind, examples[:count])
    data = Dataset(scheme, {"train": scheme.number(examples[:count])})
    return data, build_model(scheme, ClassifierOptions(width=6, **options)).eval()


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_never_reaches_the_pool(kind, bidirectional):
    pool = Pool(kind, 4, bidirectional=bidirectional)
    y, lengths = torch.randn(7, 3, 4), torch.tensor([7, 2, 4])
    together = pool(y, lengths)
    for k, n in enumerate(lengths.tolist()):
        alone = pool(y[:n, k : k + 1], torch.tensor([n]))
        torch.testing.assert_close(together[k : k + 1], alone)


def test_pools_are_what_they_are_called():
    y, lengths = torch.randn(5, 2, 4), torch.tensor([5, 5])
    torch.testing.assert_close(Pool("mean", 4)(y, lengths), y.mean(0))
    torch.testing.assert_close(Pool("max", 4)(y, lengths), y.amax(0))
    torch.testing.assert_close(Pool("last", 4)(y, lengths), y[-1])
    ends = torch.cat([y[-1, :, :2], y[0, :, 2:]], -1)
    torch.testing.assert_close(Pool("last", 4, bidirectional=True)(y, lengths), ends)


@pytest.mark.parametrize("kind", POOLS)
def test_fed_step_by_step_it_answers_as_for_what_it_has_seen(kind):
    data, model = small("digits", pool=kind, bidirectional=False)
    batch = collate(data["train"], np.arange(5))
    state = None
    for t in range(8):
        answer, state = model.step(batch.x[t], state)
        torch.testing.assert_close(answer, model(batch.x[: t + 1], torch.full((5,), t + 1)))


@pytest.mark.parametrize("name", ["digits", "shapes", "morse", "tones", "visits"])
def test_the_answer_for_a_sequence_depends_on_no_other(name):
    data, model = small(name)
    part = data["train"]
    together, alone = predict(model, part, 24), predict(model, part, 1)
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_missing_values_are_told_by_masks_and_by_how_long_they_are_missing():
    scheme = Scheme("one", ("a", "b"), 1, missing=True, timed=True, mean=(1,), std=(2,), gap=0.5)
    model = Classifier(scheme, ClassifierOptions(width=4))
    x = torch.tensor([3.0, torch.nan, torch.nan, 5.0]).view(4, 1, 1)
    times = torch.tensor([0.0, 1.0, 3.0, 3.5]).view(4, 1)
    value, there, since, step = model.features(x, times).view(4, 4).T
    assert value.tolist() == [1, 0, 0, 2]
    assert there.tolist() == [1, 0, 0, 1]
    torch.testing.assert_close(since, torch.tensor([0.0, 2.0, 6.0, 7.0]).log1p())
    torch.testing.assert_close(step, torch.tensor([0.0, 2.0, 4.0, 1.0]).log1p())


def test_steps_are_read_in_patches_where_sequences_are_long():
    examples = [Example(np.ones((500, 2)) * ord(name), name) for name in "ab"]
    scheme = Scheme.of("one", examples)
    model = build_model(scheme, ClassifierOptions(width=4))
    assert model.options.patch == 4
    x = torch.rand(10, 1, 2)
    longer = torch.cat([x, torch.rand(3, 1, 2)])
    short = torch.tensor([10])
    torch.testing.assert_close(model(x, short), model(longer, short))


def test_ctc_answers_with_repeats_and_blanks_taken_out():
    path = torch.tensor([[0, 0, 2, 0, 1, 1, 2], [2, 2, 2, 1, 0, 0, 0]]).T
    logits = torch.nn.functional.one_hot(path, 3).float()
    assert decode_ctc(logits, torch.tensor([7, 4])) == [[0, 0, 1], [1]]


def test_balanced_weights_make_classes_count_alike():
    examples = [Example(np.zeros((2, 1)) + k, "rare" if k == 0 else "often") for k in range(10)]
    scheme = Scheme.of("one", examples)
    data = Dataset(scheme, {"train": scheme.number(examples)})
    weights = ClassificationTask(data, class_weights="balanced").weights
    assert weights is not None
    counts = torch.tensor([9.0, 1.0])  # often, rare
    assert (weights * counts).tolist() == pytest.approx([5, 5])


def test_each_class_gives_its_share_to_validation():
    data, _ = small("digits", count=100)
    rest, apart = divided(data["train"], "one", 0.2, seed=0)
    assert np.bincount(apart.y).tolist() == [2] * 10
    assert np.bincount(rest.y).tolist() == [8] * 10


def test_an_epoch_has_each_example_once_and_shards_make_one_batch():
    data, _ = small("digits")
    task = ClassificationTask(data, batch=8)
    whole = [b.y.tolist() for b, _ in zip(task.batches(Shard()), range(3), strict=False)]
    assert sorted(np.concatenate(whole)) == sorted(data["train"].y)
    parts = [task.batches(Shard(k, 2)) for k in range(2)]
    assert whole[0] == next(parts[0]).y.tolist() + next(parts[1]).y.tolist()
    again = task.batches(Shard())
    again.load_state_dict({**again.state_dict(), "step": 2})
    assert next(again).y.tolist() == whole[2]


def test_a_folder_gives_the_same_model_back(tmp_path):
    data, model = small("visits", cell="lstm", pool="attention")
    save_pretrained(model, tmp_path)
    again = from_pretrained(tmp_path)
    for a, b in zip(predict(model, data["train"]), predict(again, data["train"]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_cannot_be_is_refused():
    data, model = small("digits", bidirectional=True)
    with pytest.raises(ValueError, match="bidirectional"):
        model.step(torch.zeros(1, 8))
    with pytest.raises(ValueError, match="steps, 8"):
        data.scheme.number([Example(np.zeros((3, 2)))])
    with pytest.raises(ValueError, match="missing"):
        data.scheme.number([Example(np.full((3, 8), np.nan))])
    with pytest.raises(ValueError, match="training labels"):
        data.scheme.number([Example(np.zeros((3, 8)), "eleven")])
    with pytest.raises(ValueError, match="label of its own"):
        small("shapes", patch=2)


@pytest.mark.medium
def test_digits_are_learned_in_seconds():
    from metarnn.training import Settings, Trainer

    data = load("digits")
    task = ClassificationTask(data, batch=32)
    model = build_model(data.scheme, ClassifierOptions(width=48, dropout=0.1))
    Trainer(task, model, Settings(batch=32, steps=400, lr=3e-3, schedule="cosine")).fit()
    assert task.evaluate(model.eval(), "test")["accuracy"] > 0.97


@pytest.mark.parametrize("name", ["digits", "shapes", "tones"])
def test_members_answer_with_the_mean_of_their_probabilities(name):
    data, model = small(name, members=3)
    part = data["train"]
    together = predict(model, part)
    alone = []
    for member in model.members:
        one = build_model(data.scheme, ClassifierOptions(width=6)).eval()
        own = {k: v for k, v in member.state_dict().items() if not k.startswith("others.")}
        one.load_state_dict(own)
        alone.append(predict(one, part))
    for k, answer in enumerate(together):
        np.testing.assert_allclose(answer, np.mean([each[k] for each in alone], 0), atol=1e-6)


@pytest.mark.parametrize("name", ["digits", "shapes", "tones"])
def test_each_member_learns_by_itself(name):
    """The gradient of each is a third of the one it has alone."""
    data, model = small(name, members=3)
    task = ClassificationTask(data, batch=8)
    batch = next(task.batches(Shard()))
    one, last = build_model(data.scheme, ClassifierOptions(width=6)).eval(), model.members[2]
    one.load_state_dict(last.state_dict())
    (together,) = torch.autograd.grad(task.loss(model, batch).value, [last.head.weight])
    (alone,) = torch.autograd.grad(task.loss(one, batch).value, [one.head.weight])
    torch.testing.assert_close(3 * together, alone)


def test_members_that_are_fed_step_by_step_each_carry_their_state():
    data, model = small("digits", members=3, bidirectional=False)
    batch = collate(data["train"], np.arange(5))
    session, whole = Session(model), torch.full((5,), 8)
    *_, answer = (session.feed(x) for x in batch.x[:8])
    torch.testing.assert_close(answer, model(batch.x[:8], whole))


def test_members_are_refused_where_labels_have_no_places():
    with pytest.raises(ValueError, match="members"):
        small("morse", members=2)
