"""A unit's name means the same in the models of every task."""

from functools import cache

import pytest
import torch

from metarnn.cells import GRU
from metarnn.graph import save, trace_cell
from metarnn.hyper import MetaRecurrent
from metarnn.layers import Recurrent
from metarnn.tasks import classification, forecasting, language, translation
from metarnn.tasks.language import Vocabulary
from metarnn.tasks.pretrained import from_pretrained, save_pretrained

WORDS = Vocabulary.build([["a b c"]], "word")


@cache
def classes():
    return classification.load("digits").scheme


@cache
def windows():
    return forecasting.load("sunspots", horizon=4).scheme


def built(task, **options):
    if task == "language":
        return language.build_model(9, language.ModelOptions(embedding=4, **options))
    if task == "translation":
        options = translation.ModelOptions(embedding=4, **options)
        return translation.build_model(WORDS, WORDS, options)
    if task == "classification":
        return classification.build_model(classes(), classification.ClassifierOptions(**options))
    return forecasting.build_model(windows(), forecasting.ForecasterOptions(**options))


def recurrent(model):
    return next(layer for layer in model.modules() if isinstance(layer, Recurrent))


TASKS = ["language", "translation", "classification", "forecasting"]


@pytest.fixture
def file(tmp_path):
    save(trace_cell(GRU(3, 6)), tmp_path / "unit.json")
    return str(tmp_path / "unit.json")


@pytest.mark.parametrize("task", TASKS)
def test_meta_before_a_name_or_a_file_writes_its_weights(task, file):
    for cell in ("meta-gru", f"meta-{file}"):
        layer = recurrent(built(task, cell=cell, width=8))
        assert isinstance(layer, MetaRecurrent)
    assert not isinstance(recurrent(built(task, cell="gru", width=8)), MetaRecurrent)


@pytest.mark.parametrize("task", TASKS)
def test_a_unit_of_a_file_has_its_own_width_or_that_of_the_parameters(task, file):
    assert recurrent(built(task, cell=file, width=8)).cell.hidden_size == 6
    sizes = [sum(w.numel() for w in built(task, cell=file, params=p).parameters())
             for p in ("6k", "12k")]  # fmt: skip
    assert 4000 < sizes[0] <= 6000 < sizes[1] <= 12000


@pytest.mark.parametrize("task", ["language", "classification", "forecasting"])
@pytest.mark.parametrize("meta", ["", "meta-"])
def test_a_saved_model_around_a_file_is_the_same_model_again(task, meta, file, tmp_path):
    torch.manual_seed(0)
    model = built(task, cell=f"{meta}{file}", width=8).eval()
    save_pretrained(model, tmp_path / "saved")
    again = from_pretrained(tmp_path / "saved")
    ours, theirs = model.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)
    assert type(recurrent(again)) is type(recurrent(model))
