"""Numbers that go wrong: told with step, layer and cause; gone back from; refused beforehand."""

import weakref
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import metarnn
from metarnn.training import Folder, NotFinite, checkpoint
from metarnn.training.blame import first_broken
from metarnn.training.guard import Guard
from metarnn.training.memory import OutOfMemory
from tests.helpers.toy import QUICK, ToyTask, same, train

pytestmark = pytest.mark.medium


@dataclass
class Changed(ToyTask):
    """From a step on, the loss is another one, until it was asked for so often."""

    at: int = 25
    factor: float = 100.0
    left: int = 1

    def loss(self, model, batch, carried=None):
        loss = super().loss(model, batch, carried)
        if batch[2] == self.at and self.left:
            self.left -= 1
            loss.value = loss.value * self.factor
        return loss


class Broken(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return x * self.value


def test_the_first_layer_that_breaks_is_named():
    model = nn.Sequential(nn.Linear(2, 2), Broken(float("inf")), nn.Linear(2, 2))
    assert first_broken(model, lambda: model(torch.ones(1, 2))) == "1"
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert first_broken(model, lambda: model(torch.tensor([[1.0, torch.nan]]))) == "input"
    assert first_broken(model, lambda: model(torch.ones(1, 2))) == ""
    with torch.no_grad():
        list(model.parameters())[2].fill_(torch.nan)
    assert first_broken(model, lambda: None) == "1.weight"


def test_a_training_tells_step_layer_and_cause():
    class Poisoned(ToyTask):
        def loss(self, model, batch, carried=None):
            if batch[2] == 12 and not isinstance(model.dropout, Broken):
                model.dropout = Broken(float("nan"))
            return super().loss(model, batch, carried)

    with pytest.raises(NotFinite, match=r"step 13.*Likely cause.*'dropout'.*--lr") as raised:
        train(None, task=Poisoned())
    assert raised.value.layer == "dropout"


def test_gradients_that_grew_before_are_told_as_an_explosion():
    guard = Guard()
    for step in range(10):
        guard.look(step, torch.tensor(1.0), {"w": torch.tensor(0.5)})
    guard.look(10, torch.tensor(1.0), {"w": torch.tensor(1e9)})
    with pytest.raises(NotFinite, match="exploded"):
        guard.look(11, torch.tensor(torch.inf), {"w": torch.tensor(torch.nan)})


@pytest.mark.parametrize("factor", [100.0, float("nan")])
def test_a_spike_goes_back_to_the_last_checkpoint_with_a_lower_rate(tmp_path, factor):
    settings = replace(QUICK, spike=3.0)
    trainer, result = train(tmp_path / "run", settings, task=Changed(factor=factor))
    assert result.reason == "steps"
    assert result.step == QUICK.steps
    assert trainer.at.slowed == 0.5
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(QUICK.lr / 2)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert '"back_to": 25' in lines
    weights = checkpoint.load(Folder(tmp_path / "run").last)["weights"].values()
    assert all(w.isfinite().all() for w in weights)


def test_a_loss_that_spikes_for_ever_ends_the_training():
    with pytest.raises(ArithmeticError, match="spiked 10 times"):
        train(None, replace(QUICK, spike=3.0), task=Changed(left=10**6))


def test_without_spikes_the_option_changes_nothing(tmp_path):
    train(tmp_path / "without")
    train(tmp_path / "with", replace(QUICK, spike=10.0))
    ours, theirs = (checkpoint.load(Folder(tmp_path / n).last) for n in ("with", "without"))
    assert all(ours["weights"][name].equal(w) for name, w in theirs["weights"].items())


def test_out_of_memory_is_answered_with_what_fits():
    class Large(ToyTask):
        """More than two sequences at a time do not fit."""

        def loss(self, model, batch, carried=None):
            if batch[0].shape[1] > 2:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")
            return super().loss(model, batch, carried)

    with pytest.raises(OutOfMemory, match=r"step 1: out of memory with 8 .*--accumulate 4 "):
        train(None, task=Large())
    train(None, replace(QUICK, accumulate=4, steps=2), task=Large())


def test_what_filled_the_memory_is_gone_while_it_is_tried_what_fits():
    class Holding(ToyTask):
        """Fits twice in the same update, but not where an earlier attempt is still held."""

        held: weakref.ref | None = None

        def loss(self, model, batch, carried=None):
            large = torch.zeros(4)
            if batch[0].shape[1] > 4:
                self.held = weakref.ref(large)
                raise torch.OutOfMemoryError("CUDA out of memory.")
            if self.held is not None and self.held() is not None:
                raise torch.OutOfMemoryError("the first attempt still takes all of it")
            return super().loss(model, batch, carried)

    with pytest.raises(OutOfMemory, match="--accumulate 2 "):
        train(None, task=Holding())


@pytest.mark.parametrize("limit", [4, 2])
def test_what_fits_has_room_for_the_gradients_of_an_earlier_part(limit):
    class Second(ToyTask):
        """Where gradients are there already, fewer sequences fit."""

        def loss(self, model, batch, carried=None):
            if batch[0].shape[1] > (limit if next(model.parameters()).grad is None else limit // 2):
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return super().loss(model, batch, carried)

    with pytest.raises(OutOfMemory, match=f"--accumulate {16 // limit} "):
        train(None, task=Second())
    train(None, replace(QUICK, accumulate=16 // limit, steps=2), task=Second())


def test_out_of_memory_of_an_optimiser_is_answered_too(monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch.optim.AdamW, "step", full)
    with pytest.raises(OutOfMemory, match="step 1: out of memory"):
        train(None)


def test_out_of_memory_of_the_cpu_is_known_and_may_have_no_answer():
    class Endless(ToyTask):
        def loss(self, model, batch, carried=None):
            torch.empty(2**45)  # 140 TB
            return super().loss(model, batch, carried)

    with pytest.raises(OutOfMemory, match="Not even one sequence at a time fits"):
        train(None, task=Endless())


@pytest.mark.parametrize("engine", ["auto", "eager"])
def test_more_steps_than_64_bits_can_count_are_refused(engine):
    layer = metarnn.LSTM(1, 64, engine=engine)
    x = torch.zeros(1, 1, 1).expand(2**52, 1, 1)
    with pytest.raises(ValueError, match="Split the sequences"), torch.no_grad():
        layer(x)


def test_a_deterministic_training_gives_the_same_bits_and_leaves_torch_as_it_was(tmp_path):
    for name in ("one", "two"):
        train(tmp_path / name, replace(QUICK, deterministic=True))
    assert same(tmp_path / "one", tmp_path / "two")
    assert not torch.are_deterministic_algorithms_enabled()
