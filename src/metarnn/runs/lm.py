"""`metarnn train lm`: language models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from metarnn.cells import CELLS, cell, check
from metarnn.gradients import FORWARD
from metarnn.hyper import Omega
from metarnn.runs.tasks import Common, Job, chosen, fitting
from metarnn.search import library
from metarnn.search.problem import Problem, Unit
from metarnn.tasks.language import (
    Corpus,
    LanguageModel,
    LanguageTask,
    ModelOptions,
    Vocabulary,
    build_model,
    load,
    solved,
)
from metarnn.tasks.language.build import spelled
from metarnn.tasks.language.part import parted
from metarnn.tasks.language.presets import PRESETS
from metarnn.tasks.pretrained import describe
from metarnn.tasks.unit import name_of
from metarnn.training import Folder, generators
from metarnn.training.progress import SILENT, Progress, Reading

VOCABULARY, CELL = "vocabulary.json", "cell.json"


@dataclass(frozen=True)
class Text:
    """What to read, and how."""

    data: str = "pydoc"
    """A file, a folder, a pattern, - for standard input, hf:NAME, or what every Python carries:
    pydoc (its manual's topics) or stdlib (its library's source)."""
    level: Literal["character", "byte", "word", "bpe"] = "character"
    """What a token is."""
    split: str = "auto"
    """Shares of train, valid and test, where names of files do not tell, as in 90/5/5 or 90/10;
    auto is 90/5/5 with at most 1 MiB for valid and for test."""
    lines: int = 0
    """So many lines make a document, where states begin anew; 0: a file is one. An evaluation
    reads documents side by side: one long text is read slowly."""
    min_frequency: int = 1
    """Tokens seen less often than this in the training text are unknown."""
    max_size: int = 0
    """Most tokens in the vocabulary; 0 for no limit."""
    length: int = 128
    """Tokens in a sequence of a batch: how far back gradients reach."""
    sampling: Literal["sequential", "random"] = "sequential"
    """Whether a sequence goes on from where the last ended, with its state, or begins anywhere."""
    random_lengths: bool = False
    """Vary the length, as AWD-LSTM does."""
    reset: float = 0.01
    """How probable it is, at each batch, that a sequence's state begins anew."""
    ar: float = 0.0
    """Activation regularisation, α·mean(h²)."""
    tar: float = 0.0
    """Temporal activation regularisation, β·mean((h_t - h_{t-1})²)."""
    omega_phi: float = 0.0
    """Weight of mean(φ²), φ the parameters that generate weights."""
    omega_deviation: float = 0.0
    """Weight of mean(d²), d how far generated weights are from plain ones; as the next with
    --model meta --context step."""
    omega_smooth: float = 0.0
    """Weight of mean((d_t - d_{t-1})²)."""
    omega_spectral: float = 0.0
    """Weight of the squared largest singular values of φ's matrices."""
    omega_reconstruction: float = 0.0
    """Weight of how badly the input can be told from what the encoder says of it; with
    --model meta --context step."""
    evaluation_batch: int = 64
    """Documents read side by side in an evaluation: its speed, never its result."""
    refit: bool = False
    """Train on the validation data as well, to the end: for the last training, once all settings
    are chosen. The last weights are kept."""


@dataclass(frozen=True)
class Config(Common, ModelOptions, Text):
    """Train a language model.

    metarnn train lm --data book.txt --minutes 5

    metarnn train lm --data texts/ --cell gru --params 5M --out runs/texts

    metarnn train lm --resume --out runs/texts
    """

    online: bool = False
    """Update the weights at every token of an endless stream, in constant memory, by a rule that
    carries gradients forward in time: --gradient, by default rtrl where that is cheap, else rflo.
    It costs memory for each sequence: take a small --batch."""


class LanguageEntry:
    name = "lm"
    about = "a language model: characters, bytes, words or BPE"
    kind = Config
    presets: Mapping[str, Mapping[str, Any]] = PRESETS

    def load(self, config: Config, folder: Folder | None = None, show: Progress = SILENT) -> Corpus:
        return _corpus(config, folder, show)

    def job(self, config: Config, data: Corpus, folder: Folder | None = None) -> Job[Config]:
        config = online(config) if config.online else config
        task = _task(data, config)
        options, size = _options(config, folder), len(data.vocabulary)
        config = replace(config, width=solved(size, options).width, params="")
        with generators.seeded(config.seed):
            model = fitting(lambda: build_model(size, options), folder)
        return Job(config, task, model)

    def problem(self, config: Config, share: float, show: Progress = SILENT) -> Problem:
        corpus = _corpus(config, None, show)
        if "test" not in corpus.splits:
            why = "The winner is chosen by valid: a score on that would be no verdict."
            check.refuse("split", config.split, "one with a test, as in 90/5/5", why)
        options, size = _options(config, None), len(corpus.vocabulary)

        def model(unit: Unit, width: int) -> LanguageModel:
            sized = replace(options, cell=name_of(unit), width=width, params="")
            return build_model(size, sized, unit)

        weights, structure = (_task(part, config) for part in parted(corpus, share))
        return Problem(weights, structure, _task(corpus, config), model)

    def model(self, config: Config, folder: Folder) -> LanguageModel:
        size, options = len(vocabulary(folder)), _options(config, folder)
        return fitting(lambda: build_model(size, options), folder)

    def save(self, job: Job[Config], folder: Folder) -> None:
        job.task.corpus.vocabulary.save(folder.path / VOCABULARY)
        describe(job.model, folder.path)

    def held_out(self, job: Job[Config]) -> str:
        return "test" if "test" in job.task.corpus.splits else "valid"

    def details(self, job: Job[Config], scores: Mapping[str, float]) -> Iterable[str]:
        return ()


def _corpus(config: Config, folder: Folder | None, show: Progress) -> Corpus:
    known = None
    if folder is not None and (folder.path / VOCABULARY).exists():
        known = vocabulary(folder)
    return load(
        config.data,
        config.level,
        split=config.split,
        lines=config.lines,
        min_frequency=config.min_frequency,
        max_size=config.max_size or None,
        vocabulary=known,
        progress=Reading(show),
    )


def online(config: Config) -> Config:
    """The configuration of a stream: batches of one token, and a rule that reaches past them."""
    gradient = config.gradient
    if gradient == "bptt":  # nobody asked for it: it would see one token
        unit = config.cell if config.cell in CELLS else "lstm"
        cheap = unit not in ("jordan",) and cell(unit, 1, 1).linear
        gradient = "rtrl" if cheap and config.layers == 1 and not config.embedding else "rflo"
    if gradient not in FORWARD:
        why = f"one of {', '.join(FORWARD)} with --online: others would see a single token"
        check.refuse("gradient", gradient, why)
    if config.sampling != "sequential":
        check.refuse("sampling", config.sampling, "sequential with --online")
    return replace(
        config,
        gradient=gradient,
        length=1,
        random_lengths=False,
        reset=config.reset / config.length,  # as often as before, in tokens
    )


def vocabulary(folder: Folder) -> Vocabulary:
    """The vocabulary of a run."""
    return Vocabulary.load(folder.path / VOCABULARY)


def _task(corpus: Corpus, config: Config) -> LanguageTask:
    omega = Omega(**{name: getattr(config, f"omega_{name}") for name in vars(Omega())})
    return LanguageTask(corpus, omega=omega, **chosen(LanguageTask, config))


def _options(config: Config, folder: Folder | None) -> ModelOptions:
    options = spelled(ModelOptions(**chosen(ModelOptions, config)))
    if config.omega_reconstruction:
        options = replace(options, reconstruct=True)
    if options.cell.startswith(library.PREFIX):
        options = replace(options, cell=str(library.path(options.cell)))
    if folder is not None and options.cell.endswith(".json") and (folder.path / CELL).exists():
        # A run has its own copy of a cell that came from a file.
        return replace(options, cell=str(folder.path / CELL))
    return options


ENTRY = LanguageEntry()
