"""What training sees does not depend on the contents of held-out examples."""

from dataclasses import asdict, fields, is_dataclass, replace
from itertools import islice

import numpy as np
import pytest
import torch

from metarnn.runs import tasks
from metarnn.tasks.classification.examples import Example, Scheme, division
from metarnn.tasks.forecasting import from_array, make_scheme
from metarnn.tasks.forecasting.future import _reaching
from metarnn.tasks.forecasting.series import held
from metarnn.tasks.forecasting.windows import Windows
from metarnn.tasks.split import Split
from metarnn.tasks.task import Shard
from tests.helpers.sources import SOURCES

LISTS = ("targets", "known", "observed")


def prepared(source, data):
    entry = tasks.find(source.task)
    settings = {k: (v,) if k in LISTS else v for k, v in source.settings.items()}
    return tasks.prepare(entry, entry.kind(data=data, **settings))


def leaves(value):
    """All numbers in batches, as bytes."""
    if isinstance(value, torch.Tensor):
        yield value.numpy().tobytes()
    elif is_dataclass(value):
        for field in fields(value):
            yield from leaves(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each)
    else:
        yield repr(value)


def seen_in_training(job, without=""):
    """The settings that were decided, the model with its first weights, and batches."""
    batches = islice(iter(job.task.batches(Shard())), 40)
    weights = {n: w.numpy().tobytes() for n, w in job.model.state_dict().items() if n != without}
    description = getattr(job.model, "description", None)
    return asdict(job.config), repr(description), weights, [list(leaves(b)) for b in batches]


@pytest.mark.medium
@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("name", SOURCES)
def test_changed_contents_of_held_out_examples_change_nothing_in_training(
    name, split, tmp_path, monkeypatch
):
    source = SOURCES[name]
    data = source.write(tmp_path)
    # By validation the penalty of a forecaster's linear part is chosen.
    without = "linear" if split == "valid" else ""
    before = prepared(source, data)
    source.change(data, split, before.task, monkeypatch)
    after = prepared(source, data)
    parts = [Split.of(job.task).parts for job in (before, after)]
    assert {n for n in parts[0] if parts[0][n] != parts[1][n]} == {split}
    expected, seen = (seen_in_training(job, without) for job in (before, after))
    for one, other in zip(expected, seen, strict=True):
        assert one == other


def test_each_class_stays_in_training_whatever_the_kind_of_labels():
    rare = [(0,), (1,), (0, 1), (2, 2), (0,), (1,), (0,), (1, 3), (0,), (1,)]
    for kind in ("tags", "ctc", "multi", "one"):
        for seed in range(20):
            rest, apart = division(rare, kind, 0.5, seed)
            assert sorted(rest + apart) == [*range(10)]
            assert {c for k in rest for c in rare[k]} == {0, 1, 2, 3}
            assert kind == "one" or len(apart) == 5


def test_missing_numbers_of_held_out_examples_are_the_mean_of_training():
    examples = [Example(np.full((2, 1), v), n) for v, n in ((1.0, "a"), (5.0, "b"))]
    scheme = Scheme.of("one", examples)
    (x,) = scheme.number([Example(np.array([[np.nan], [9.0]]), "a")], fill=True).x
    assert x.tolist() == [[3.0], [9.0]]


def test_a_missing_value_is_filled_from_before_it_alone():
    values = np.array([[np.nan, 1], [2, np.nan], [np.nan, np.nan], [7, 4]])
    assert held(values).tolist() == [[0, 1], [2, 1], [2, 1], [7, 4]]


def test_covariates_of_a_forecast_are_scaled_as_in_training():
    panel = from_array(np.arange(40.0)[:, None] % 5, ["a"])
    known = np.arange(44.0)[:, None]
    panel = replace(panel, series=(replace(panel.series[0], known=known),))
    scheme = make_scheme(panel, 4, 8)
    train = known[:28]
    assert scheme.known_mean == (train.mean(),)
    windows = Windows(_reaching(panel, 4), scheme)
    window = windows.at(np.array([[0, 40]]))
    expected = (known[32:44] - train.mean()) / train.std()
    np.testing.assert_allclose(window.known[:, 0].numpy(), expected, rtol=1e-6)
