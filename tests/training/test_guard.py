"""The first number that is none ends a training, and the message says where and what to try."""

from dataclasses import dataclass, replace

import pytest
import torch

from metarnn.training import Folder, NotFinite, checkpoint
from tests.helpers.toy import QUICK, ToyTask, train


@dataclass
class Poisoned(ToyTask):
    """At a step, the gradient of one parameter is not finite."""

    at: int = 12
    name: str = "layer.weight_hh_l0"
    value: float = float("nan")

    def loss(self, model, batch, carried=None):
        loss = super().loss(model, batch, carried)
        if batch[2] == self.at:
            if self.name:
                dict(model.named_parameters())[self.name].register_hook(lambda g: g * self.value)
            else:
                loss.value = loss.value * self.value
        return loss


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_step_and_the_parameter_are_named(tmp_path, value, accumulate):
    settings = replace(QUICK, accumulate=accumulate)
    with pytest.raises(NotFinite) as raised:
        train(tmp_path / "run", settings, task=Poisoned(value=value))
    assert raised.value.step == 13
    assert raised.value.parameter == "layer.weight_hh_l0"
    assert "step 13" in str(raised.value)
    assert "--lr" in str(raised.value)
    saved = checkpoint.load(Folder(tmp_path / "run").last)
    assert saved["position"]["step"] == 10
    assert all(torch.isfinite(w).all() for w in saved["weights"].values())


def test_a_loss_that_is_not_finite_is_told():
    with pytest.raises(NotFinite, match=r"step 13: the loss is nan, and of its gradients that of"):
        train(None, task=Poisoned(name=""))
