"""Classification as a task: batches, loss and score of labelled sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metarnn.cells import check
from metarnn.tasks.classification import metrics
from metarnn.tasks.classification.examples import Dataset, Part, joined
from metarnn.tasks.classification.model import Classifier
from metarnn.tasks.classification.rules import rule_set
from metarnn.tasks.rules import RuleSet
from metarnn.tasks.shuffle import ShuffledBatches
from metarnn.tasks.split import Piece, spread
from metarnn.tasks.task import Loss, Measure, Shard, trained_alike
from metarnn.tasks.watch import counted


@dataclass
class Batch:
    """Sequences side by side: x [T, B, C] or [T, B], lengths [B], times [T, B]; y as in `Part`,
    padded with -1."""

    x: Tensor
    lengths: Tensor
    times: Tensor | None = None
    y: Tensor | None = None
    y_lengths: Tensor | None = None

    def to(self, device: torch.device | str) -> Batch:
        tensors = (self.x, self.lengths, self.times, self.y, self.y_lengths)
        return Batch(*(None if t is None else t.to(device) for t in tensors))  # type: ignore[arg-type]


def collate(part: Part, numbers: np.ndarray) -> Batch:
    """The examples with these numbers as a batch."""
    chosen = part.take(numbers)
    lengths = torch.tensor([len(x) for x in chosen.x])
    times = None if chosen.times is None else _padded(chosen.times).float()
    if any(y is None for y in chosen.y):
        return Batch(_padded(chosen.x), lengths, times)
    if isinstance(chosen.y[0], int):
        return Batch(_padded(chosen.x), lengths, times, torch.tensor(chosen.y))
    if chosen.y[0].dtype == np.float32:
        return Batch(_padded(chosen.x), lengths, times, torch.from_numpy(np.stack(chosen.y)))
    y_lengths = torch.tensor([len(y) for y in chosen.y])
    return Batch(_padded(chosen.x), lengths, times, _padded(chosen.y, -1), y_lengths)


def _padded(rows: tuple[np.ndarray, ...], value: float = 0) -> Tensor:
    longest = max(map(len, rows))
    found = np.full((longest, len(rows), *rows[0].shape[1:]), value, rows[0].dtype)
    for k, row in enumerate(rows):
        found[: len(row), k] = row
    return torch.from_numpy(found)


@dataclass(frozen=True)
class ClassificationTask:
    """Tell the labels of sequences.

    >>> from metarnn.tasks.classification import ClassifierOptions, build_model, load
    >>> task = ClassificationTask(load("digits"), batch=8)
    >>> model = build_model(task.data.scheme, ClassifierOptions(width=8))
    >>> task.loss(model, next(task.batches(Shard()))).count
    8
    >>> sorted(task.evaluate(model, "test"))
    ['accuracy', 'calibration_error', 'examples', 'macro_f1', 'nll']

    data           see `load`
    batch          sequences of a batch, over all processes
    class_weights  "balanced": a class counts as much as any other, however rare
    seed           of the order of examples
    refit          train on the validation examples as well
    """

    data: Dataset
    batch: int = 32
    class_weights: Literal["none", "balanced"] = "none"
    seed: int = 0
    evaluation_batch: int = 128
    refit: bool = False
    enough: ClassVar[int] = 1000

    def __post_init__(self) -> None:
        check.one_of("class_weights", self.class_weights, ["none", "balanced"])

    @property
    def measure(self) -> Measure:
        """What people ask of a classifier: how often it is right."""
        # On digits another seed changes the accuracy by 3 points (one standard deviation, LSTM,
        # 150 updates), another test set of n examples by up to 0.5 / √n.
        plain = max(0.15, 2 / len(self.data["test"]) ** 0.5) if "test" in self.data.parts else 0.15
        named = {
            "multi": Measure("micro_f1", True, plain),
            "ctc": Measure("label_error_rate", plain=0.3),
        }
        return named.get(self.data.scheme.kind, Measure("accuracy", True, plain))

    def contents(self) -> dict[str, Iterator[Piece]]:
        """The examples of each split, for `Split.of`."""
        return {name: _contents(part) for name, part in self.data.parts.items()}

    def amount(self, split: str) -> int:
        """Examples of a split."""
        return len(self.data[split])

    def sampled(self, split: str, most: int) -> ClassificationTask:
        """The same task with a sample of at most so many examples in a split."""
        chosen = self.data[split].take(spread(len(self.data[split]), most))
        small = replace(self, data=replace(self.data, parts={**self.data.parts, split: chosen}))
        return trained_alike(small, self)

    @cached_property
    def training(self) -> Part:
        """The examples to train on."""
        parts = self.data.parts
        both = self.refit and "valid" in parts
        return joined(parts["train"], parts["valid"]) if both else self.data["train"]

    @property
    def batches_per_epoch(self) -> float:
        return len(self.training) / self.batch

    def batches(self, shard: Shard) -> ShuffledBatches[Batch]:
        part = self.training
        return ShuffledBatches(
            len(part), self.batch, lambda ks: collate(part, ks), seed=self.seed, shard=shard
        )

    @cached_property
    def weights(self) -> Tensor | None:
        """What each class counts: n / (K n_k); for several labels, what a label that holds counts
        beside one that does not: (n - n_k) / n_k."""
        kind, y = self.data.scheme.kind, self.training.y
        if self.class_weights == "none" or kind == "ctc":
            return None
        if kind == "multi":
            held = np.stack(y).sum(0)
            return torch.tensor((len(y) - held) / np.maximum(held, 1), dtype=torch.float32)
        flat = np.array(y) if kind == "one" else np.concatenate(y)
        counts = np.bincount(flat, minlength=len(self.data.scheme.classes))
        return torch.tensor(len(flat) / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)

    def loss(self, model: nn.Module, batch: Batch, carried: Any = None) -> Loss:
        batch = batch.to(next(model.parameters()).device)
        assert batch.y is not None
        assert isinstance(model, Classifier)
        logits = model.each(batch.x, batch.lengths, batch.times).float()
        y = batch.y.expand(len(logits), *batch.y.shape)  # every member learns by itself
        kind = self.data.scheme.kind
        weights = None if self.weights is None else self.weights.to(logits.device)
        if kind == "multi":
            value = F.binary_cross_entropy_with_logits(logits, y, pos_weight=weights)
            return Loss(value, len(batch.lengths))
        if kind == "ctc":
            return Loss(_ctc(logits[0], batch).mean(), len(batch.lengths))
        value = F.cross_entropy(logits.flatten(0, -2), y.flatten(), weights, ignore_index=-1)
        return Loss(value, int((batch.y >= 0).sum()) if kind == "tags" else len(batch.lengths))

    def simple_rules(self, split: str, seconds: float) -> RuleSet:
        """The most frequent answer, nearest neighbours and MiniRocket."""
        return rule_set(self.data, split, seconds)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "valid") -> dict[str, float]:
        """Exact scores of a split; the first is the one to make small."""
        part = self.data[split]
        kind = self.data.scheme.kind
        if kind == "ctc":
            return self._evaluate_ctc(model, part)
        found = predict(model, part, self.evaluation_batch)
        if kind == "multi":
            p, y = np.stack(found), np.stack(part.y)
            chosen = np.clip(np.where(y > 0, p, 1 - p), 1e-30, 1)
            nll = float(-np.log(chosen).mean())
            return {"nll": nll, **metrics.multi_label(y, (p > 0.5) * 1.0), "examples": len(part)}
        if kind == "tags":
            scores = metrics.scores(np.concatenate(found), np.concatenate(part.y))
        else:
            scores = metrics.scores(np.stack(found), np.array(part.y))
        return {**scores, "examples": len(part)}

    def _evaluate_ctc(self, model: nn.Module, part: Part) -> dict[str, float]:
        device, losses, wrong, whole, total = next(model.parameters()).device, 0.0, 0, 0, 0
        for numbers in counted(_chunks(part, self.evaluation_batch)):
            batch = collate(part, numbers).to(device)
            logits = model(batch.x, batch.lengths, batch.times).float()
            losses += float(_ctc(logits, batch).sum())
            for k, guess in enumerate(decode_ctc(logits, batch.lengths)):
                truth = part.y[numbers[k]].tolist()
                distance = metrics.edit_distance(guess, truth)
                wrong, total, whole = wrong + distance, total + len(truth), whole + (distance == 0)
        n = len(part)
        scores = {"nll": losses / n, "label_error_rate": wrong / max(total, 1)}
        return {**scores, "all_right": whole / n, "examples": n}


def _contents(part: Part) -> Iterator[Piece]:
    for x, y in zip(part.x, part.y, strict=True):
        yield x.tobytes()
        yield np.asarray(-1 if y is None else y).tobytes()
    yield from (times.tobytes() for times in part.times or ())


def _ctc(logits: Tensor, batch: Batch) -> Tensor:
    """-log p(labels) of each sequence; 0 where it is too short to hold its labels."""
    assert batch.y is not None
    assert batch.y_lengths is not None
    return F.ctc_loss(
        logits.log_softmax(-1),
        batch.y.T.clamp(min=0),
        batch.lengths,
        batch.y_lengths,
        blank=logits.shape[-1] - 1,
        reduction="none",
        zero_infinity=True,
    )


def decode_ctc(logits: Tensor, lengths: Tensor) -> list[list[int]]:
    """The best path of each sequence [T, B, K + 1]: repeats become one, blanks are left out."""
    blank = logits.shape[-1] - 1
    found = []
    for column, length in zip(logits.argmax(-1).T.tolist(), lengths.tolist(), strict=True):
        path = column[: int(length)]
        first = [c for k, c in enumerate(path) if k == 0 or c != path[k - 1]]
        found.append([c for c in first if c != blank])
    return found


@torch.no_grad()
def predict(model: nn.Module, part: Part, batch: int = 128) -> list[Any]:
    """Of each example: the probabilities of the classes [K], of each step's [T, K] for tags, of
    each label by itself for several; for CTC the labels themselves, [n]."""
    device = next(model.parameters()).device
    assert isinstance(model, Classifier)
    kind, found = model.scheme.kind, {}
    for numbers in counted(_chunks(part, batch)):
        b = collate(part, numbers).to(device)
        logits = model(b.x, b.lengths, b.times).double()
        if kind == "ctc":
            found.update(zip(numbers.tolist(), decode_ctc(logits, b.lengths), strict=True))
            continue
        p = (logits.sigmoid() if kind == "multi" else logits.softmax(-1)).cpu().numpy()
        for k, number in enumerate(numbers.tolist()):
            found[number] = p[: len(part.x[number]), k] if kind == "tags" else p[k]
    return [found[k] for k in range(len(part))]


def _chunks(part: Part, batch: int) -> list[np.ndarray]:
    """Numbers of examples, those of like length together, so that little is padded."""
    order = np.argsort([len(x) for x in part.x], kind="stable")
    return [order[k : k + batch] for k in range(0, len(order), batch)]
