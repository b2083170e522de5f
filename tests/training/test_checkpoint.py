"""Checkpoints give back what was saved; what is damaged or not ours is refused with a reason."""

import json
import random
import struct

import pytest
import torch
from torch import nn

from metarnn.training import checkpoint
from metarnn.training.checkpoint import CheckpointError
from tests.helpers.toy import ToyModel, equal, train

STATE = {
    "step": 3,
    "big": 2**100,
    "nothing": None,
    "nested": ({"a": [torch.arange(3), (1, "two")]}, torch.tensor(2.5)),
    "strange": torch.randn(4, 6)[:, ::2].T,
    "half": torch.randn(3).bfloat16(),
    "none": torch.zeros(0, 3),
}


def test_what_is_saved_comes_back(tmp_path):
    checkpoint.save(tmp_path / "c", STATE)
    assert equal(checkpoint.load(tmp_path / "c"), STATE)


def test_tensors_that_share_memory_can_be_saved(tmp_path):
    weight = torch.randn(4)
    checkpoint.save(tmp_path / "c", {"a": weight, "b": weight, "c": weight[1:]})
    found = checkpoint.load(tmp_path / "c")
    assert found["b"].equal(weight)
    assert found["c"].equal(weight[1:])


def test_what_json_cannot_hold_is_refused_before_anything_is_written(tmp_path):
    for wrong in ({"a": object()}, {1: 2}, {"$tensor": "x"}):
        with pytest.raises(TypeError, match="cannot be saved"):
            checkpoint.save(tmp_path / "c", {"state": wrong})
    assert list(tmp_path.iterdir()) == []


def header(metadata):
    data = json.dumps({"__metadata__": metadata}).encode()
    return struct.pack("<Q", len(data)) + data


HOSTILE = {
    "empty": b"",
    "text": b"hello, this is no checkpoint at all",
    "pickle": b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00cos\nsystem\n",
    "long header": struct.pack("<Q", 2**62) + b"{}",
    "only tensors": header({}),
    "no json": header({"metarnn": "{"}),
    "deep json": header({"metarnn": "[" * 100_000}),
    "list": header({"metarnn": "[]"}),
    "old": header({"metarnn": '{"format": "metarnn-checkpoint", "version": 0, "state": {}}'}),
    "no state": header({"metarnn": '{"format": "metarnn-checkpoint", "version": 1}'}),
    "dangling": header(
        {"metarnn": '{"format": "metarnn-checkpoint", "version": 1, "state": {"$tensor": "x"}}'}
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_by_name(tmp_path, name):
    (tmp_path / "c").write_bytes(HOSTILE[name])
    with pytest.raises(CheckpointError, match=str(tmp_path / "c")):
        checkpoint.load(tmp_path / "c")


def test_a_file_cut_off_anywhere_is_refused(tmp_path):
    checkpoint.save(tmp_path / "c", STATE)
    whole = (tmp_path / "c").read_bytes()
    for _ in range(30):
        (tmp_path / "c").write_bytes(whole[: random.randrange(len(whole))])
        with pytest.raises(CheckpointError):
            checkpoint.load(tmp_path / "c")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s["weights"].pop("layer.bias_ih_l0"), "no weight 'layer.bias_ih_l0'"),
        (lambda s: s["weights"].update(x=torch.zeros(1)), "a weight 'x', which the model has not"),
        (
            lambda s: s["weights"].update({"readout.bias": torch.zeros(99)}),
            r"'readout.bias' is \[99\]",
        ),
        (lambda s: s["weights"].update({"readout.bias": 7}), "no weight 'readout.bias'"),
        (lambda s: s["optimizer"]["readout.bias"].pop("exp_avg"), "AdamW has"),
        (lambda s: s["optimizer"]["readout.bias"].update(step=torch.zeros(2)), "step of"),
        (lambda s: s["optimizer"].update(y={}), "'y', which the model has not"),
        (lambda s: s.pop("position"), "it has no 'position'"),
        (lambda s: s["position"].update(extra=1), "extra"),
        (lambda s: s["random"][0].update(torch=torch.zeros(3)), "random generators"),
        (lambda s: s["random"][0].pop("python"), "random generators"),
        (lambda s: s.update(carried=(torch.zeros(3),)), "cannot be shared"),
        (lambda s: s["average"].update(count="x"), "count"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(tmp_path, change, message):
    trainer, _ = train(tmp_path / "run")
    state = checkpoint.load(tmp_path / "run" / "checkpoints" / "last.safetensors")
    change(state)
    with pytest.raises(CheckpointError, match=message):
        trainer.load_state_dict(state)


def test_weights_are_all_checked_before_any_is_changed():
    model = ToyModel()
    before = {name: w.clone() for name, w in checkpoint.weights(model).items()}
    wrong = {name: torch.ones_like(w) for name, w in before.items()}
    wrong["readout.bias"] = torch.ones(1)
    with pytest.raises(CheckpointError):
        checkpoint.load_weights(model, wrong)
    assert all(w.equal(before[name]) for name, w in checkpoint.weights(model).items())


def test_tied_weights_are_saved_once_and_stay_tied(tmp_path):
    model = ToyModel()
    assert "readout.weight" not in checkpoint.weights(model)
    checkpoint.save_weights(tmp_path / "w", checkpoint.weights(model))
    other = ToyModel()
    checkpoint.load_weights(other, checkpoint.read_weights(tmp_path / "w"))
    assert other.readout.weight is other.embedding.weight
    assert other.readout.weight.equal(model.readout.weight)


def test_buffers_are_part_of_what_was_learned(tmp_path):
    model = nn.BatchNorm1d(3)
    model(torch.randn(5, 3))
    checkpoint.save_weights(tmp_path / "w", checkpoint.weights(model))
    other = nn.BatchNorm1d(3)
    checkpoint.load_weights(other, checkpoint.read_weights(tmp_path / "w"))
    assert equal(other.running_mean, model.running_mean)
