"""Trainings that go on in a larger model."""

import pytest
import torch

from metarnn.tasks.language import LanguageTask, ModelOptions, build_model, load
from metarnn.tasks.task import Shard
from metarnn.training import Settings, Trainer
from metarnn.training.checkpoint import CheckpointError
from metarnn.training.growth import grown

CORPUS = load("pydoc")
TASK = LanguageTask(CORPUS, batch=4, length=16)
SETTINGS = Settings(steps=8, batch=4, ema=0.9, lr=1e-2)


def trainer(cell, width=12):
    options = ModelOptions(cell=cell, width=width, embedding=8)
    return Trainer(TASK, build_model(len(CORPUS.vocabulary), options), SETTINGS)


@pytest.fixture(scope="module")
def gru():
    small = trainer("gru")
    for _ in range(3):
        small.update()
    return small


def test_a_gru_that_becomes_a_mogrifier_computes_what_it_did(gru):
    large = trainer("mogrifier-gru")
    large.load_state_dict(grown(gru.state_dict(), large.model))
    batch = next(TASK.batches(Shard()))
    before, after = (
        each.model.eval()(batch.inputs, batch.targets).nll for each in (gru, large)
    )  # fmt: skip
    torch.testing.assert_close(after, before, atol=1e-6, rtol=0)
    with gru.average.applied(), large.average.applied():
        before, after = (each.model(batch.inputs, batch.targets).nll for each in (gru, large))
    torch.testing.assert_close(after, before, atol=1e-6, rtol=0)


def test_it_goes_on_with_position_memory_and_data(gru):
    large = trainer("mogrifier-gru")
    large.load_state_dict(grown(gru.state_dict(), large.model))
    assert (large.at.step, large.at.tokens) == (gru.at.step, gru.at.tokens)
    state, parent = large.state_dict(), gru.state_dict()
    assert state["optimizer"].keys() == parent["optimizer"].keys()
    assert state["batches"] == parent["batches"]
    new = large.parameters.keys() - gru.parameters.keys()
    before = {name: large.parameters[name].detach().clone() for name in new}
    for _ in range(2):  # a zero factor lets its partner learn one update later
        large.update()
    assert new
    assert all(not torch.equal(before[name], large.parameters[name]) for name in new)


def test_only_a_model_with_the_same_parameters_grows(gru):
    for cell, width in (("lstm", 12), ("mogrifier-gru", 13)):
        with pytest.raises(CheckpointError, match=r"expected .* as before"):
            grown(gru.state_dict(), trainer(cell, width).model)
