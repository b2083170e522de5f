"""What a search is about: data in disjoint parts, and a model around any unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.cells import Cell
from metarnn.tasks.task import Loss, Shard, Task
from metarnn.training.parts import Parts
from metarnn.training.world import World

Unit = Callable[[int, int], Cell]  # (input_size, hidden_size) -> a cell


@dataclass(frozen=True)
class Problem:
    """Three tasks whose data follow one another, and the model that a unit is tried in.

    weights    trains on the first part of the training data; its split `valid` is the second
    structure  trains on the second part; its split `valid` is the third, which chooses the winner
    whole      trains on all training data, for the verdict; scored on the split `held_out`
    model      model(unit, width): a model with this unit in all its recurrent layers
    final      the same for the verdict, where models also know something of all training data
    decided    settings that the data decided, where a configuration leaves them open

    The parts share nothing: weights are learned from the first, the structure from the second, and
    among what was found the third decides.
    """

    weights: Task
    structure: Task
    whole: Task
    model: Callable[[Unit, int], nn.Module]
    held_out: str = "test"
    final: Callable[[Unit, int], nn.Module] | None = None
    decided: Mapping[str, Any] = field(default_factory=dict)

    def judged(self, unit: Unit, width: int) -> nn.Module:
        """A model as the verdict trains it."""
        return (self.final or self.model)(unit, width)


class Reader:
    """Losses of a task, batch after batch."""

    def __init__(self, task: Task, shards: Sequence[Shard], precision: str = "float32") -> None:
        self.task, self.precision = task, precision
        self.parts = Parts(task, shards)

    def read(self, model: nn.Module) -> Objective:
        """The loss of the next batch, as something that can be computed again."""
        return Objective(self, model, list(self.parts))


class Objective:
    """The mean loss of one batch over all its parts, and its gradients over all processes."""

    def __init__(self, reader: Reader, model: nn.Module, held: list[tuple[Any, Any]]) -> None:
        self.reader, self.model, self.held = reader, model, held

    def losses(self) -> list[Loss]:
        device = next(self.model.parameters()).device.type
        with torch.autocast(device, torch.bfloat16, self.reader.precision == "bfloat16"):
            found = [self.reader.task.loss(self.model, *each) for each in self.held]
        self.reader.parts.carried = [loss.carried for loss in found]
        return found

    def value(self, world: World) -> float:
        """The loss itself, without gradients."""
        with torch.no_grad():
            found = self.losses()
        total, count = world.sum(
            [sum(float(each.value) * each.count for each in found), sum(l.count for l in found)]
        )
        return total / count

    def gradients(
        self,
        wrt: Sequence[Tensor],
        world: World,
        along: Sequence[Tensor] | None = None,
        weights: Sequence[Tensor] = (),
    ) -> list[Tensor]:
        """∇ of the mean loss with respect to `wrt`; of ∇_weights · along, if that is given."""
        sums = [torch.zeros_like(each) for each in wrt]
        count = 0
        for loss in self.losses():
            value = loss.value * loss.count
            if along is not None:
                inner = torch.autograd.grad(value, weights, create_graph=True, allow_unused=True)
                value = sum(
                    (g * v).sum() for g, v in zip(inner, along, strict=True) if g is not None
                )
                assert isinstance(value, Tensor)
            found = torch.autograd.grad(value, wrt, allow_unused=True)
            sums = [s if g is None else s + g for s, g in zip(sums, found, strict=True)]
            count += loss.count
        holders = [torch.zeros_like(each) for each in wrt]
        for holder, total in zip(holders, sums, strict=True):
            holder.grad = total
        world.sum_gradients(holders)
        (everyones,) = world.sum([count])
        return [holder.grad / everyones for holder in holders if holder.grad is not None]
