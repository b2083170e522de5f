"""A training that goes on in a larger model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from metarnn.training import checkpoint
from metarnn.training.checkpoint import CheckpointError


def grown(state: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """The state of a training, for a model with more parameters than the one it was of.

    Weights, their averages and the optimizer's memory are taken over by name. New parameters keep
    the values that the model has, have no memory, and best scores count from here.

    Args:
        state: of a trainer, as `Trainer.state_dict` returns it
        model: has every parameter of the other model, of the same shape
    """
    own, known = checkpoint.weights(model), state["weights"]
    for name, weight in known.items():
        if name not in own or own[name].shape != weight.shape:
            there = list(own[name].shape) if name in own else "missing"
            raise CheckpointError(f"{name!r} is {there}: expected {list(weight.shape)} as before")
    average = dict(state["average"])
    if average["count"]:
        parameters = {name: w.detach() for name, w in model.named_parameters()}
        average["values"] = {**parameters, **average["values"]}
    position = {**state["position"], "best": math.inf, "best_step": 0}
    return {**state, "weights": {**own, **known}, "average": average, "position": position}
