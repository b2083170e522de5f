"""A classifier of sequences: recurrent layers, a pool over time, a softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metarnn.cells import check
from metarnn.layers.dropout import keep
from metarnn.tasks.classification.examples import Scheme
from metarnn.tasks.classification.pooling import Pool
from metarnn.tasks.stack import StackOptions, build_stack, maker, solved
from metarnn.tasks.typed import typed
from metarnn.tasks.unit import Make

STEPS = 160  # auto: the fewest steps to a row with which the longest sequence has at most so many
MOST_MEMBERS = 100


@dataclass(frozen=True)
class ClassifierOptions(StackOptions):
    """The model's part of a configuration.

    Args:
        pool: what is read off a sequence: last, mean, max or attention
        bidirectional: read from both ends; off for a model that is fed step by step
        patch: so many steps are read at once, where there is one label for all; 0 chooses by length
        embedding: width of characters' embeddings, for texts
        members: how many classifiers to train side by side, from different starts; the mean of
            their probabilities is the answer
    """

    pool: Literal["last", "mean", "max", "attention"] = "attention"
    bidirectional: bool = True
    patch: int = 0
    embedding: int = 32
    members: int = 1


class Classifier(nn.Module):
    """p(class | x) = softmax(W pool(y) + b), y of recurrent layers that read x.

    >>> scheme = Scheme("one", ("a", "b", "c"), channels=2, mean=(0, 0), std=(1, 1))
    >>> model = Classifier(scheme, ClassifierOptions(width=8))
    >>> model(torch.randn(20, 4, 2), torch.tensor([20, 3, 5, 7])).shape
    torch.Size([4, 3])

    For tags and CTC there is no pool, and an answer a step: [T, B, K], with CTC's blank last.
    Numbers are standardised. Where some are missing (NaN), the layers read 0 in their place, and
    beside each channel whether it is there and the logarithm of how long it was not; where steps
    have times, also that of the time since the last step.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, scheme: Scheme, options: ClassifierOptions, unit: Make | None = None
    ) -> None:
        super().__init__()
        self.scheme = scheme
        check.size("patch", options.patch, least=0)
        whole = scheme.kind in ("one", "multi")
        if options.patch > 1 and not whole:
            check.refuse("patch", options.patch, "1: each step has a label of its own")
        patch = options.patch or (-(-scheme.length // STEPS) if whole else 1)
        self.options = options = replace(options, patch=1 if scheme.alphabet else patch)
        self.embedding = None
        if scheme.alphabet:
            self.embedding = nn.Embedding(len(scheme.alphabet) + 1, options.embedding)
        self.register_buffer("mean", torch.tensor(scheme.mean), persistent=False)
        self.register_buffer("std", torch.tensor(scheme.std), persistent=False)
        inputs = self.features_size * self.options.patch
        self.layers = build_stack(inputs, options, bidirectional=options.bidirectional, unit=unit)
        width = self.layers.output_size
        self.pool = (
            Pool(options.pool, width, bidirectional=options.bidirectional) if whole else None
        )
        self.head = nn.Linear(width, len(scheme.classes) + (scheme.kind == "ctc"))
        others = check.size("members", options.members, most=MOST_MEMBERS) - 1
        if others and scheme.kind == "ctc":
            why = "each member places the labels of a sequence at steps of its own"
            check.refuse("members", options.members, f"1: {why}")
        alone = replace(options, members=1)
        self.others = nn.ModuleList(Classifier(scheme, alone, unit) for _ in range(others))

    @property
    def members(self) -> list[Classifier]:
        return [self, *(cast(Classifier, other) for other in self.others)]

    @property
    def features_size(self) -> int:
        """How many numbers of a step the layers read."""
        if self.embedding is not None:
            return self.embedding.embedding_dim
        return self.scheme.channels * (3 if self.scheme.missing else 1) + self.scheme.timed

    @property
    def description(self) -> dict[str, Any]:
        """What `restore` needs, as plain data."""
        options = asdict(replace(self.options, params=""))
        return {"kind": "classification", "scheme": asdict(self.scheme), "options": options}

    def features(self, x: Tensor, times: Tensor | None = None) -> Tensor:
        """What the layers read of x, [T, B, C], or of characters [T, B]."""
        if self.embedding is not None:
            return self.embedding(x)
        there = x.isfinite()
        found = [((x - self.mean) / self.std).masked_fill(~there, 0)]
        if times is None:
            t = torch.arange(len(x), device=x.device, dtype=x.dtype).view(-1, 1).expand(x.shape[:2])
        else:
            t = times / self.scheme.gap
        if self.scheme.missing:
            found += [there.to(x.dtype), _since(there, t)]
        if self.scheme.timed:
            step = torch.cat([torch.zeros_like(t[:1]), t[1:] - t[:-1]])
            found.append(step.clamp(min=0).log1p().unsqueeze(-1))
        return torch.cat(found, -1).to(x.dtype)

    def forward(self, x: Tensor, lengths: Tensor, times: Tensor | None = None) -> Tensor:
        """Logits [B, K], or [T, B, K] for an answer a step."""
        return self._mean(self.each(x, lengths, times))

    def each(self, x: Tensor, lengths: Tensor, times: Tensor | None = None) -> Tensor:
        """The logits of each member, [M, B, K] or [M, T, B, K]."""
        return torch.stack([member._logits(x, lengths, times) for member in self.members])

    def _mean(self, logits: Tensor) -> Tensor:
        """The logits of the mean probabilities of the members, [M, …] -> […]."""
        if len(logits) == 1:
            return logits[0]
        if self.scheme.kind == "multi":
            holds, fails = (F.logsigmoid(by * logits).logsumexp(0) for by in (1, -1))
            return holds - fails  # log p̄ - log(1 - p̄)
        return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))

    def _logits(self, x: Tensor, lengths: Tensor, times: Tensor | None) -> Tensor:
        """The logits of this member alone."""
        lengths = lengths.to(x.device)
        alive = torch.arange(len(x), device=x.device).unsqueeze(1) < lengths
        f = self.features(x, times).masked_fill(~alive.unsqueeze(-1), 0)
        if (p := self.options.patch) > 1:
            f = nn.functional.pad(f, (0, 0, 0, 0, 0, -len(f) % p))
            f = f.unflatten(0, (-1, p)).transpose(1, 2).flatten(2)
            lengths = (lengths + p - 1) // p
        f = self._drop(f) if self.embedding is not None else f
        y, _ = self.layers(f, lengths=lengths)
        y = self._drop(y)
        return self.head(y if self.pool is None else self.pool(y, lengths))

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One more step of each sequence, x [B, C] or characters [B]: logits [B, K] so far."""
        if self.others:
            states = (None,) * len(self.members) if state is None else state
            pairs = [member._step(x, s) for member, s in zip(self.members, states, strict=True)]
            logits, after = zip(*pairs, strict=True)
            return self._mean(torch.stack(logits)), after
        return self._step(x, state)

    def _step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        if self.scheme.missing or self.scheme.timed or self.options.patch > 1:
            why = "of a model with patch=1, and without missing values and times"
            check.refuse("step", f"patch={self.options.patch}", why)
        f = self.features(x.unsqueeze(0)).squeeze(0)
        inner, carried = (None, None) if state is None else state  # sequences along dimension 1
        y, inner = self.layers.step(f, inner)
        if self.pool is None:
            return self.head(y), (inner, ())
        before = self.pool.begin(y) if carried is None else tuple(c.squeeze(0) for c in carried)
        pooled, after = self.pool.step(y, before)
        return self.head(pooled), (inner, tuple(c.unsqueeze(0) for c in after))

    def _drop(self, y: Tensor) -> Tensor:
        p = self.options.dropout
        return y * keep(p, 1, *y.shape[1:], like=y) if self.training and p else y


def build_model(scheme: Scheme, options: ClassifierOptions, unit: Make | None = None) -> Classifier:
    """The model that the options describe, with the width that `params` asks for; around `unit`,
    where one is given."""
    unit = maker(options) if unit is None else unit
    found = solved(options, lambda chosen: Classifier(scheme, chosen, unit))
    return Classifier(scheme, found, unit)


def restore(description: Mapping[str, Any]) -> Classifier:
    """The model, without its weights, that has this description."""
    scheme = typed(Scheme, description["scheme"])
    scheme.validate()
    return Classifier(scheme, typed(ClassifierOptions, description["options"]))


def _since(there: Tensor, t: Tensor) -> Tensor:
    """log(1 + time since each channel was there before this step), [T, B, C]; from the start on."""
    t = t.unsqueeze(-1).expand(there.shape)
    seen = torch.where(there, t, t[:1]).cummax(0).values
    before = torch.cat([t[:1], seen[:-1]])
    return (t - before).clamp(min=0).log1p()
