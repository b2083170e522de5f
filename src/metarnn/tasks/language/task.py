"""Language modelling as a task: batches, loss and score of a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from metarnn.cells import check
from metarnn.hyper import Omega, watch
from metarnn.tasks.language.batches import Batch, RandomBatches, SequentialBatches
from metarnn.tasks.language.corpus import Corpus
from metarnn.tasks.language.evaluation import dynamic_score, score, summary
from metarnn.tasks.language.model import detached, restart
from metarnn.tasks.language.part import joined, pieces
from metarnn.tasks.language.rules import rule_set
from metarnn.tasks.language.tokens import Tokens
from metarnn.tasks.rules import RuleSet
from metarnn.tasks.split import Piece
from metarnn.tasks.task import Loss, Shard, trained_alike


@dataclass(frozen=True)
class LanguageTask:
    """Predict the next token.

    >>> from metarnn.tasks.language import ModelOptions, build_model, load
    >>> task = LanguageTask(load("pydoc"), batch=4, length=16)
    >>> model = build_model(len(task.corpus.vocabulary), ModelOptions(width=8, embedding=4))
    >>> batches = task.batches(Shard())
    >>> first = task.loss(model, next(batches))
    >>> second = task.loss(model, next(batches), first.carried)
    >>> second.count, sorted(task.evaluate(model, "test"))
    (64, ['bpc', 'nll', 'perplexity', 'ran_off', 'tokens', 'unknown'])

    corpus          what to learn from, see `corpus.load`
    batch           sequences of a batch, over all processes
    length          tokens of each, how far back gradients go
    sampling        "sequential", where each goes on where the last ended with its state carried
                    over, or "random"
    random_lengths  see `SequentialBatches`, as for `reset`
    omega           what is asked of weights that are generated, see `hyper.Omega`
    ar, tar         activation regularisation ar·mean(h²), temporal tar·mean((h_t - h_{t-1})²)
    seed            of everything that is drawn
    warn            log the documents on which a model diverged; not of a sample, whose pieces are
                    too short to tell
    refit           train on the validation text as well
    """

    corpus: Corpus
    batch: int = 32
    length: int = 128
    sampling: Literal["sequential", "random"] = "sequential"
    random_lengths: bool = False
    reset: float = 0.01
    ar: float = 0.0
    tar: float = 0.0
    omega: Omega = Omega()  # noqa: RUF009  frozen
    seed: int = 0
    evaluation_batch: int = 64
    warn: bool = True
    refit: bool = False
    enough: ClassVar[int] = 40_000

    def __post_init__(self) -> None:
        check.one_of("sampling", self.sampling, ["sequential", "random"])
        if "train" in self.corpus.splits:
            self.batches(Shard())  # sizes that do not fit are refused now

    @property
    def tokens_per_batch(self) -> int:
        return self.batch * self.length

    @cached_property
    def training(self) -> Tokens:
        """The text to train on."""
        train = self.corpus["train"].tokens
        return joined(train, self.corpus["valid"].tokens) if self.refit else train

    @property
    def batches_per_epoch(self) -> float:
        return len(self.training) / self.tokens_per_batch

    def contents(self) -> dict[str, Iterator[Piece]]:
        """The tokens of each split, for `Split.of`."""
        return {
            name: iter([split.tokens.bounds.tobytes(), split.tokens.values.data])
            for name, split in self.corpus.splits.items()
        }

    def amount(self, split: str) -> int:
        """Tokens of a split."""
        return len(self.corpus[split].tokens)

    def sampled(self, split: str, most: int) -> LanguageTask:
        """The same task with a sample of at most so many tokens in a split: pieces from all over
        it, read side by side, each as a document of its own."""
        corpus = self.corpus
        splits = corpus.splits | {split: pieces(corpus[split], most, self.evaluation_batch)}
        small = replace(self, corpus=replace(corpus, splits=splits), warn=False)
        return trained_alike(small, self)

    def batches(self, shard: Shard) -> SequentialBatches | RandomBatches:
        tokens = self.training
        if self.sampling == "random":
            return RandomBatches(tokens, self.batch, self.length, seed=self.seed, shard=shard)
        return SequentialBatches(
            tokens,
            self.batch,
            self.length,
            reset=self.reset,
            random_lengths=self.random_lengths,
            seed=self.seed,
            shard=shard,
        )

    def loss(self, model: nn.Module, batch: Batch, carried: Any = None) -> Loss:
        fresh = batch.fresh  # looked at where it was made: a device would have to be waited for
        batch = batch.to(next(model.parameters()).device)
        state = None if fresh.all() else carried
        if fresh.any():
            state = restart(state, batch.fresh)
        with watch() as records:
            output = model(batch.inputs, batch.targets, state, batch.resets)
        nll = output.nll.mean()
        value = nll
        terms = self.omega(model, records) if self.omega else {}
        for term in terms.values():
            value = value + term
        if self.ar:
            value = value + self.ar * output.dropped.square().mean()
        if self.tar and len(batch.inputs) > 1:
            value = value + self.tar * (output.hidden[1:] - output.hidden[:-1]).square().mean()
        count = batch.targets.numel()
        metrics: dict[str, float | Tensor] = {"nll": nll.detach()}
        metrics |= {name: term.detach() for name, term in terms.items()}
        carried = detached(output.state)
        return Loss(value, count, metrics, carried, batch.scale, output.state)

    def split(self, batch: Batch, steps: int) -> list[Batch]:
        """The batch in stretches of so many steps."""
        if self.tar:
            check.refuse("tar", self.tar, "0 where gradients go by stretches: it joins two steps")
        return batch.split(steps)

    def evaluate(
        self, model: nn.Module, split: str = "valid", *, dynamic: bool = False
    ) -> dict[str, float]:
        """nll (nats a token), perplexity, and bits per character or byte, over every token.

        With `dynamic` the weights adapt to what was read, and the names say so.
        """
        part, vocabulary = self.corpus[split], self.corpus.vocabulary
        if dynamic:
            return summary(dynamic_score(model, part), part, vocabulary, "dynamic_")
        scored = score(model, part, self.evaluation_batch)
        return summary(scored, part, vocabulary, warn=self.warn)

    def simple_rules(self, split: str, seconds: float) -> RuleSet:
        """n-grams of the same tokens."""
        return rule_set(self.corpus, split, seconds)
