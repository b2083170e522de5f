"""Translation as a task: batches, loss and score of a parallel corpus."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.decoding import Search
from metarnn.gradients.forcing import Schedule, mix
from metarnn.tasks.rules import RuleSet
from metarnn.tasks.split import Piece, spread
from metarnn.tasks.task import Loss, Measure, Shard, trained_alike
from metarnn.tasks.translation import metrics
from metarnn.tasks.translation.batches import Batch, BucketedBatches, make_batch
from metarnn.tasks.translation.corpus import ParallelCorpus, Split
from metarnn.tasks.translation.model import EncoderDecoder, Feed
from metarnn.tasks.translation.part import joined, some
from metarnn.tasks.translation.rules import rule_set
from metarnn.tasks.translation.translate import Translation, translate
from metarnn.tasks.watch import counted


@dataclass(frozen=True)
class TranslationTask:
    """Write the target after reading the source.

    >>> from metarnn.tasks.translation import ModelOptions, build_model, load
    >>> task = TranslationTask(load("dates"), batch=4)
    >>> options = ModelOptions(width=8, embedding=4)
    >>> model = build_model(task.corpus.source, task.corpus.target, options)
    >>> task.loss(model, next(task.batches(Shard()))).count
    44

    corpus     what to learn from, see `corpus.load`
    batch      pairs of a batch, over all processes
    smoothing  label smoothing ε: (1 - ε)·nll + ε·(the mean of -log p over the vocabulary)
    sampling   scheduled sampling (Bengio et al. 2015): how probable it is at the end that the
               decoder reads what the model would have written instead of the true token, for
               each token by itself; it rises from 0 along `sampling_curve`, whose scale is
               `sampling_steps` batches: see `gradients.forcing.Schedule`
    search     how sentences of a test are translated; those of `valid` always greedily
    select     what makes one model better than another in validation: "nll"; "bleu" or "exact",
               whose `error`, 1 less the score, is then the first figure
    quick      validations tell no more than nll and perplexity, for which nothing is translated;
               with select="nll"
    refit      train on the validation pairs as well
    """

    corpus: ParallelCorpus
    batch: int = 64
    smoothing: float = 0.0
    sampling: float = 0.0
    sampling_steps: int = 10_000
    sampling_curve: Literal["linear", "exponential", "inverse-sigmoid"] = "linear"
    search: Search = field(default_factory=Search)
    select: Literal["nll", "bleu", "exact"] = "nll"
    seed: int = 0
    evaluation_batch: int = 64
    quick: bool = False
    refit: bool = False
    enough: ClassVar[int] = 500

    def __post_init__(self) -> None:
        check.probability("smoothing", self.smoothing)
        check.probability("sampling", self.sampling)
        check.size("sampling_steps", self.sampling_steps)
        check.one_of("select", self.select, ("nll", "bleu", "exact"))
        if "train" in self.corpus.splits:
            self.batches(Shard())  # sizes that do not fit are refused now

    @property
    def measure(self) -> Measure:
        """What `select` names. By default the nll: BLEU is 0 for whatever was trained briefly."""
        if self.select == "nll":
            # On dates, where it falls steeply, another seed changes it by 12 %.
            return Measure("nll", plain=0.75)
        return Measure(self.select, large=True, plain=10.0 if self.select == "bleu" else 0.1)

    @cached_property
    def training(self) -> Split:
        """The pairs to train on."""
        train = self.corpus["train"]
        return joined(train, self.corpus["valid"]) if self.refit else train

    @property
    def batches_per_epoch(self) -> float:
        return len(self.training) // self.batch

    def contents(self) -> dict[str, Iterator[Piece]]:
        """The pairs of each split, for `Split.of`."""
        return {name: _contents(split) for name, split in self.corpus.splits.items()}

    def amount(self, split: str) -> int:
        """Pairs of a split."""
        return len(self.corpus[split])

    def sampled(self, split: str, most: int) -> TranslationTask:
        """The same task with a sample of at most so many pairs in a split."""
        chosen = some(self.corpus[split], spread(len(self.corpus[split]), most))
        splits = self.corpus.splits | {split: chosen}
        return trained_alike(replace(self, corpus=replace(self.corpus, splits=splits)), self)

    def batches(self, shard: Shard) -> BucketedBatches:
        return BucketedBatches(self.training, self.batch, seed=self.seed, shard=shard)

    def loss(self, model: nn.Module, batch: Batch, carried: Any = None) -> Loss:
        truth = 1.0
        if self.sampling:
            truth = Schedule(self.sampling_curve, self.sampling_steps, 1 - self.sampling)(
                batch.step
            )
        nll, everywhere = _call(model, batch, scheduled(truth) if truth < 1 else None)
        mean = nll.mean()
        value = mean
        if self.smoothing:
            value = (1 - self.smoothing) * mean + self.smoothing * everywhere.mean()
        return Loss(value, len(batch.targets), {"nll": mean.detach()})

    def evaluate(
        self, model: nn.Module, split: str = "valid", *, search: Search | None = None
    ) -> dict[str, float]:
        """nll (nats a token) and perplexity over every token, then scores of translations.

        bleu is sacrebleu's, in lower case where the corpus is; exact the share of translations
        that are the true ones; edits the character error rate; chrf needs sacrebleu.
        """
        part, lowercase = self.corpus[split], self.corpus.lowercase
        nll, tokens = self._nll(model, part)
        found = {"nll": nll, "perplexity": math.exp(min(nll, 700.0)) if nll == nll else nll}
        if self.quick and self.select == "nll" and split == "valid":
            return {**found, "tokens": float(tokens)}
        if search is None:
            search = replace(self.search, width=1, nbest=1, groups=1)
            search = search if split == "valid" else self.search
        texts = [best[0].text for best in self.translations(model, part.pairs.source, search)]
        labels = part.pairs.target
        found["bleu"] = metrics.text_bleu(texts, labels, lowercase)
        found["exact"] = metrics.exact_match(texts, labels)
        found["edits"] = metrics.error_rate(texts, labels)
        if split != "valid" and importlib.util.find_spec("sacrebleu") is not None:
            found["chrf"] = metrics.chrf(texts, labels, lowercase)
        if self.select != "nll":
            score = found[self.select] / (100 if self.select == "bleu" else 1)
            found = {"error": 1 - score, **found}
        counts = {"beam": search.width, "sentences": len(part), "tokens": tokens}
        return found | {name: float(value) for name, value in counts.items()}

    def simple_rules(self, split: str, seconds: float) -> RuleSet:
        """Copying the source, and a translation memory."""
        return rule_set(self.corpus, split, self.select)

    def translations(
        self, model: nn.Module, sentences: list[str], search: Search
    ) -> list[list[Translation]]:
        assert isinstance(model, EncoderDecoder)
        vocabularies = (self.corpus.source, self.corpus.target)
        return translate(model, *vocabularies, sentences, search, batch=self.evaluation_batch)

    def _nll(self, model: nn.Module, split: Split) -> tuple[float, int]:
        """The mean over every token of a split, and how many there are."""
        order = sorted(range(len(split)), key=lambda k: len(split.target[k]))
        total, tokens = 0.0, 0
        was = model.training
        model.eval()
        try:
            with torch.no_grad():
                for at in counted(range(0, len(order), self.evaluation_batch)):
                    mine = order[at : at + self.evaluation_batch]
                    source = [split.source[k] for k in mine]
                    nll, _ = _call(model, make_batch(source, [split.target[k] for k in mine]))
                    total += float(nll.double().sum())
                    tokens += len(nll)
        finally:
            model.train(was)
        return total / tokens, tokens


def scheduled(p: float) -> Feed:
    """Each token by itself: the true one with probability p, else the model's most probable."""
    return lambda t, truth, log_p: mix(truth, log_p.argmax(-1), p)


def _call(model: nn.Module, batch: Batch, feed: Feed | None = None) -> tuple[Tensor, Tensor]:
    b = batch.to(next(model.parameters()).device)
    return model(b.source, b.lengths, b.inputs, b.targets, b.places, feed)


def _contents(split: Split) -> Iterator[Piece]:
    for side in (split.pairs.source, split.pairs.target):
        yield from (line.encode(errors="surrogatepass") for line in side)
