"""`metarnn train translation`: from one sequence to another."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from metarnn.cells import check
from metarnn.decoding import Search
from metarnn.runs.tasks import Common, Job, chosen, fitting
from metarnn.search.problem import Problem, Unit
from metarnn.tasks.language import Vocabulary
from metarnn.tasks.pretrained import describe
from metarnn.tasks.translation import (
    EncoderDecoder,
    ModelOptions,
    ParallelCorpus,
    TranslationTask,
    build_model,
    load,
    metrics,
    solved,
)
from metarnn.tasks.translation.part import parted
from metarnn.tasks.translation.presets import PRESETS
from metarnn.tasks.unit import CELL_FILES, moved, name_of
from metarnn.training import Folder, generators
from metarnn.training.progress import SILENT, Progress, one_line

SOURCE, TARGET = "source.json", "target.json"
SHOWN = 3


@dataclass(frozen=True)
class Pairs:
    """What to read, and how."""

    data: str = "dates"
    """A folder with train, valid and test in the names of its files, a file .tsv or .jsonl, the
    beginning of the names of two aligned files, or what is generated: dates (in many notations, to
    ISO) or numbers (in words, to digits)."""
    source: str = ""
    """What names of files of the source end with, as de for train.de; or its key in JSON lines."""
    target: str = ""
    """The same for the target."""
    level: Literal["character", "byte", "word", "bpe"] = "character"
    """What a token is."""
    joint: bool = False
    """One vocabulary for source and target."""
    lowercase: bool = False
    """All text, and scores, in lower case."""
    split: str = "auto"
    """Shares of train, valid and test, where names of files do not tell, as in 90/5/5."""
    min_frequency: int = 1
    """Tokens seen less often than this in training are unknown."""
    max_size: int = 0
    """Most tokens in a vocabulary; 0 for no limit."""
    longest: int = 0
    """Pairs with more tokens on a side are left out of training; 0 for no limit."""
    smoothing: float = 0.0
    """Label smoothing."""
    sampling: float = 0.0
    """Scheduled sampling: at the end, the share of tokens that the decoder reads from its own
    output instead of the true one. Steps then run one by one."""
    sampling_steps: int = 10_000
    """The scale of the curve by which scheduled sampling rises from 0, in updates."""
    sampling_curve: Literal["linear", "exponential", "inverse-sigmoid"] = "linear"
    """How it rises."""
    select: Literal["nll", "bleu", "exact"] = "nll"
    """What makes one model better than another in validation."""
    beam: int = 1
    """Width of the search in tests; in validation it is 1."""
    length_penalty: float = 0.0
    """Hypotheses are ranked by log p / length^this: 0 favours the short."""
    max_length: int = 0
    """Most tokens of a translation; 0 for half more than the longest in training."""
    evaluation_batch: int = 64
    """Sentences translated side by side in an evaluation: its speed, not its result."""
    refit: bool = False
    """Train on the validation data as well, to the end: for the last training, once all settings
    are chosen. The last weights are kept."""


@dataclass(frozen=True)
class Config(Common, ModelOptions, Pairs):
    """Train a model that translates: sentences, dates, anything that comes in pairs.

    metarnn train translation

    metarnn train translation --data folder --source de --target en --level bpe
    """


class TranslationEntry:
    name = "translation"
    about = "from one sequence to another: encoder, decoder, attention"
    kind = Config
    presets: Mapping[str, Mapping[str, Any]] = PRESETS

    def load(
        self, config: Config, folder: Folder | None = None, show: Progress = SILENT
    ) -> ParallelCorpus:
        return _corpus(config, folder, show)

    def job(
        self, config: Config, data: ParallelCorpus, folder: Folder | None = None
    ) -> Job[Config]:
        corpus = data
        given = _options(config, folder)
        options = solved(corpus.source, corpus.target, given)
        config = replace(
            config,
            width=options.width,
            params="",
            max_length=config.max_length or _longest(corpus),
        )
        task = _task(corpus, config)
        with generators.seeded(config.seed):
            model = fitting(lambda: build_model(corpus.source, corpus.target, given), folder)
        return Job(config, task, model)

    def problem(self, config: Config, share: float, show: Progress = SILENT) -> Problem:
        corpus = _corpus(config, None, show)
        if "test" not in corpus.splits:
            why = "The winner is chosen by valid: a score on that would be no verdict."
            check.refuse("data", config.data, "pairs with a test, or a split as in 90/5/5", why)
        options = _options(config, None)
        config = replace(config, max_length=config.max_length or _longest(corpus))

        def model(unit: Unit, width: int) -> EncoderDecoder:
            cell = name_of(unit)
            width += width % 2 if options.bidirectional else 0
            sized = replace(options, cell=cell, decoder_cell="", width=width, params="")
            return build_model(corpus.source, corpus.target, sized, unit)

        weights, structure, whole = (
            _task(part, config, quick=True) for part in (*parted(corpus, share), corpus)
        )
        decided = {"max_length": config.max_length, "decoder_cell": ""}
        return Problem(weights, structure, whole, model, decided=decided)

    def model(self, config: Config, folder: Folder) -> EncoderDecoder:
        sides, options = vocabularies(folder), _options(config, folder)
        return fitting(lambda: build_model(*sides, options), folder)

    def save(self, job: Job[Config], folder: Folder) -> None:
        job.task.corpus.source.save(folder.path / SOURCE)
        job.task.corpus.target.save(folder.path / TARGET)
        describe(job.model, folder.path)

    def held_out(self, job: Job[Config]) -> str:
        return "test" if "test" in job.task.corpus.splits else "valid"

    def details(self, job: Job[Config], scores: Mapping[str, float]) -> Iterable[str]:
        """How the score is to be cited, and a few translations."""
        yield from self.footnotes(job)
        pairs = job.task.corpus[self.held_out(job)].pairs
        found = job.task.translations(job.model, pairs.source[:SHOWN], job.task.search)
        for text, label, (best, *_) in zip(pairs.source, pairs.target, found, strict=False):
            line = f"  {text}  →  {best.text}" + ("" if best.text == label else f"   ({label})")
            yield one_line(line)

    def footnotes(self, job: Job[Config]) -> Iterable[str]:
        """sacrebleu's signature: under what settings its score is this one."""
        if importlib.util.find_spec("sacrebleu") is not None:
            _, signature = metrics.sacrebleu(["a"], ["a"], job.task.corpus.lowercase)
            yield f"BLEU: {signature}"


def search(config: Config) -> Search:
    """The search that a configuration asks for."""
    return Search(
        width=config.beam, length_penalty=config.length_penalty, max_length=config.max_length
    )


def vocabularies(folder: Folder) -> tuple[Vocabulary, Vocabulary]:
    """The vocabularies of a run; a joint one twice."""
    source, target = (Vocabulary.load(folder.path / name) for name in (SOURCE, TARGET))
    return source, source if source == target else target


def _longest(corpus: ParallelCorpus) -> int:
    return 10 + 3 * max(map(len, corpus["train"].target)) // 2


def _corpus(config: Config, folder: Folder | None, show: Progress) -> ParallelCorpus:
    known = None
    if folder is not None and (folder.path / TARGET).exists():
        known = vocabularies(folder)
    corpus = load(
        config.data,
        config.level,
        source=config.source,
        target=config.target,
        split=config.split,
        joint=config.joint,
        lowercase=config.lowercase,
        min_frequency=config.min_frequency,
        max_size=config.max_size or None,
        longest=config.longest,
        vocabularies=known,
    )
    for name, split in corpus.splits.items():
        show.say(split.describe(name))
    return corpus


def _task(corpus: ParallelCorpus, config: Config, quick: bool = False) -> TranslationTask:
    named = chosen(TranslationTask, config, "search", "corpus", "quick")
    return TranslationTask(corpus, search=search(config), quick=quick, **named)


def _options(config: Config, folder: Folder | None) -> ModelOptions:
    options = ModelOptions(**chosen(ModelOptions, config))
    if folder is None:
        return options
    # A run has its own copies of cells that came from files, unless it was killed before.
    names = {"cell": options.cell, "decoder_cell": options.decoder_cell or options.cell}
    copies = {option: folder.path / file for option, file in CELL_FILES.items()}
    cells = {
        option: moved(name, str(copies[option])) if copies[option].exists() else name
        for option, name in names.items()
    }
    return replace(options, **cells)


ENTRY = TranslationEntry()
