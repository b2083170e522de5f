"""Few-shot learning as a task: meta-training on episodes, meta-testing on tasks never seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Generator, Tensor

from metarnn.cells import check
from metarnn.meta import Episode, Joint, Learner, accuracy, fine_tuning, score
from metarnn.meta.learners import Adapting
from metarnn.tasks.fewshot.family import SPLITS, Family
from metarnn.tasks.split import Piece
from metarnn.tasks.task import Loss, Shard
from metarnn.tasks.watch import counted

TOGETHER = 100  # tasks of an evaluation that are computed at once
TUNING = 200  # tasks that a rate of fine-tuning is chosen on


class EpisodeBatches:
    """Episodes without end; each is drawn from its number alone."""

    def __init__(self, task: FewShotTask, shard: Shard) -> None:
        if task.batch % shard.count:
            check.refuse("batch", task.batch, f"a multiple of the {shard.count} processes")
        self.task, self.shard, self.step = task, shard, 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Episode:
        t = self.task
        random = Generator().manual_seed((t.seed + 1) * 1_000_003 + self.step)
        self.step += 1
        found = t.family.draw("train", t.batch, t.shots, t.queries, random)
        return found if self.shard.count == 1 else part(found, self.shard)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "seed": self.task.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["seed"] != self.task.seed:
            check.refuse("seed", self.task.seed, f"{state['seed']}, as when it was saved")
        self.step = check.size("step", state["step"], least=0)


def part(episode: Episode, shard: Shard) -> Episode:
    """The tasks that are a shard's."""
    size = episode.tasks // shard.count
    mine = slice(shard.index * size, (shard.index + 1) * size)
    return episode.part(mine)


@dataclass(frozen=True)
class FewShotTask:
    """Episodes of a family, for a `Learner`.

    >>> from metarnn.tasks.fewshot import LearnerOptions, Sinusoids, build_learner
    >>> task = FewShotTask(Sinusoids(), batch=4, tasks=20)
    >>> learner = build_learner(task.family, LearnerOptions("maml"))
    >>> task.loss(learner, next(task.batches(Shard()))).count
    4
    >>> list(task.evaluate(learner))[:2]
    ['mse', 'mse_interval']

    batch       tasks of an update
    shots       examples of each to learn from; of each class, where there are classes
    queries     examples to be judged by
    test_shots  examples to learn from in an evaluation; 0 for as many
    test_steps  numbers of updates to score adaptation after; the last of them is what counts
    tasks       how many are scored
    """

    family: Family
    batch: int = 25
    shots: int = 10
    queries: int = 10
    test_shots: int = 0
    test_steps: tuple[int, ...] = ()
    tasks: int = 600
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch", "shots", "queries", "tasks"):
            check.size(name, getattr(self, name))
        check.size("test_shots", self.test_shots, least=0)
        for steps in self.test_steps:
            check.size("test_steps", steps, least=0)

    def batches(self, shard: Shard) -> EpisodeBatches:
        return EpisodeBatches(self, shard)

    def loss(self, model: Any, batch: Episode, carried: Any = None) -> Loss:
        costs = model(batch.to(next(model.parameters()).device))
        return Loss(costs.mean(), len(costs))

    def contents(self) -> dict[str, Iterator[Piece]]:
        """The examples of each split, for `Split.of`; none of a family that is generated."""
        named = getattr(self.family, "bank", None) or getattr(self.family, "texts", {})
        return {split: _contents(examples) for split, examples in named.items()}

    def episodes(self, split: str = "test") -> Iterator[Episode]:
        """Those that are scored, the same each time."""
        check.one_of("split", split, SPLITS)
        random = Generator().manual_seed(17 + SPLITS.index(split))
        shots, queries = self.test_shots or self.shots, self.queries
        left = self.tasks
        # All are drawn together, so that a family of few tasks can give each of them once.
        every = self.family.draw(split, left, shots, queries, random)
        for at in range(0, left, TOGETHER):
            yield every.part(slice(at, at + TOGETHER))

    def evaluate(self, model: Any, split: str = "valid") -> dict[str, float]:
        """Means over tasks, each with half the width of its 95% interval.

        One network for all tasks is fine-tuned for the test split only, with what is best on the
        valid tasks.
        """
        if isinstance(model, Joint):
            return self._evaluate_joint(model, split)
        return self._evaluate(model, split, list(self.test_steps) if _steps(model) else [])

    def _evaluate_joint(self, model: Joint, split: str) -> dict[str, float]:
        if split != "test":
            return self._evaluate(model, split, [0])
        usual, few = model.lr, replace(self, tasks=min(self.tasks, TUNING))
        model.lr, steps = fine_tuning(model, list(few.episodes("valid")))
        try:
            found = self._evaluate(model, split, [0, steps])
        finally:
            tuned, model.lr = model.lr, usual
        return {**found, "fine_tuning_rate": tuned, "fine_tuning_steps": steps}

    def _evaluate(self, model: Any, split: str, steps: list[int]) -> dict[str, float]:
        found: dict[str, float] = {}
        every = list(self.episodes(split))
        classes = self.family.criterion == "cross_entropy"
        name = "nll" if classes else "mse"
        last = score(model, counted(every), steps[-1] if steps else None)
        found |= {name: last.mean, f"{name}_interval": last.interval}
        if classes:
            right = score(model, counted(every), steps[-1] if steps else None, accuracy)
            found |= {"accuracy": right.mean, "accuracy_interval": right.interval}
        for count in steps[:-1]:
            each = score(model, counted(every), count)
            found[f"{name}_after_{count}"] = each.mean
            found[f"{name}_after_{count}_interval"] = each.interval
        found |= {"tasks": last.tasks, "transductive": float(last.transductive)}
        return {key: math.inf if math.isnan(value) else value for key, value in found.items()}


def _steps(model: Learner) -> bool:
    """Whether it adapts by steps."""
    return isinstance(model, Adapting) or bool(getattr(model, "steps", 0))


def _contents(examples: Mapping[str, Tensor]) -> Iterator[Piece]:
    for name, values in examples.items():
        yield name.encode(errors="surrogatepass")
        yield values.numpy().tobytes()
