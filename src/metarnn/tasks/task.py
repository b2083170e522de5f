"""What a task tells whoever trains on it: its batches, its loss, its score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn


@dataclass(frozen=True)
class Shard:
    """The part of every batch that is ours: part `index` of `count` equal ones."""

    index: int = 0
    count: int = 1


class Batches(Protocol):
    """Batches without end. The position is plain data, the same on every shard."""

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass
class Loss:
    """What a batch costs.

    Args:
        value: what is differentiated, the mean over the batch with what regularises it
        count: how many things it is a mean over (tokens, sequences, steps)
        metrics: means over the batch to show beside it, `{"nll": 1.2}`
        carried: what the next batch starts from, detached; in every tensor of it the
            sequences stand along dimension 1, as in the states of `torch.nn`
        scale: what to multiply the learning rate with, the same on every shard; with stretches
            of text whose length varies, a short one must not count as much as a long one
        state: `carried` before it was detached: what gradient rules follow from one stretch of time
            into the one before; only with a task that has `split`
    """

    value: Tensor
    count: int
    metrics: dict[str, float | Tensor] = field(default_factory=dict)
    carried: Any = None
    scale: float = 1.0
    state: Any = None


# Of what tasks call scores, those that only count something.
COUNTS = ("tokens", "unknown", "ran_off", "beam", "sentences", "examples", "windows", "tasks",
          "transductive")  # fmt: skip


@dataclass(frozen=True)
class Measure:
    """The score by which models of a task are compared, once they are trained.

    name   which of its scores
    large  whether large is good
    plain  a difference that one training of each model is enough to tell, far beyond what another
           seed would change: a share of the score where small is good, points where large is
           (docs/learn.md says where it comes from)
    """

    name: str
    large: bool = False
    plain: float = 0.1


def measure_of(task: Task, scores: Mapping[str, float]) -> Measure:
    """The task's `measure`; of one that has none the first of its scores, the one to make small."""
    return getattr(task, "measure", None) or Measure(next(iter(scores)))


class Task(Protocol):
    """Something to learn. It holds its data; it never holds the model.

    Where the data have an end, `batches_per_epoch` tells how many batches that is. One whose loss
    is a sum over time may also have `split(batch, steps)`, the same batch in stretches of so many
    steps: then any gradient rule can train it. `measure` tells what its models are compared by,
    where that is not the first of its scores. `simple_rules(split, seconds)` gives the rules that
    a model must beat, see `tasks.rules`. `amount(split)` counts what a split is scored on (tokens,
    pairs, examples, windows), of which `enough` rank two models; `sampled(split, most)` is the same
    task with a fixed sample of at most so many in that split. One that has `refit` trains on the
    validation data as well: its last weights are kept, whatever their validation score.
    """

    def batches(self, shard: Shard) -> Batches:
        """This shard's part of every training batch, from the beginning."""
        ...

    def loss(self, model: nn.Module, batch: Any, carried: Any = None) -> Loss:
        """The loss of the model on a batch, after what an earlier one carried over.

        The batch comes as `batches` gave it: the task moves it to where the model is.
        """
        ...

    def evaluate(self, model: nn.Module, split: str = "valid") -> dict[str, float]:
        """Exact scores on a split. The first is the one to make small."""
        ...


T = TypeVar("T")


def trained_alike(small: T, task: T) -> T:
    """The task of a sample, which trains on what the task of all trains on.

    Both are tasks with `refit`, whose training data, where that is set, have the validation data
    in them: all of those, not the sample.
    """
    if task.refit:  # type: ignore[attr-defined]
        small.__dict__["training"] = task.training  # type: ignore[attr-defined]
    return small
