"""`metarnn train fewshot`: learning to learn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from metarnn.cells import check
from metarnn.graph.files import document, write_document
from metarnn.meta import Learner
from metarnn.runs.tasks import Common, Job, chosen, fitting
from metarnn.tasks.fewshot import (
    Characters,
    Classes,
    Dynamics,
    Family,
    FewShotTask,
    LearnerOptions,
    Sinusoids,
    build_learner,
    characters,
    from_folder,
    waves,
)
from metarnn.tasks.fewshot.dynamics import SYSTEMS
from metarnn.tasks.fewshot.presets import PRESETS
from metarnn.training import Folder, generators
from metarnn.training.progress import SILENT, Progress

FAMILY = "family.json"


@dataclass(frozen=True)
class Episodes:
    """What the tasks are, and how much of each is shown."""

    family: Literal[
        "sinusoid", "lorenz", "vanderpol", "mackeyglass", "waves", "sequences", "images",
        "characters",
    ] = "sinusoid"  # fmt: skip
    """sinusoid; lorenz, vanderpol and mackeyglass (forecasts); waves, or sequences and images from
    a folder with a folder for each class (classification); characters (texts, each a task)."""
    data: str = ""
    """For sequences and images a folder, for characters a folder, a pattern, pydoc or stdlib."""
    ways: int = 5
    """Classes of an episode."""
    shots: int = 10
    """Examples of a task, or of each of its classes, to learn from."""
    queries: int = 10
    """Examples to be judged by."""
    test_shots: int = 0
    """Examples to learn from in an evaluation; 0 for as many as in training."""
    test_steps: tuple[int, ...] = ()
    """Numbers of updates after which adaptation is scored; the last of them is what counts."""
    tasks: int = 600
    """How many tasks are scored."""
    history: int = 4
    """Observations that a forecast is made from."""
    horizon: int = 8
    """Observations that are forecast."""
    noise: float = 0.0
    """Standard deviation of noise on the observations that a forecast is made from."""
    fresh: bool = False
    """Every example is a trajectory of its own, from a start drawn at random."""
    length: int = 0
    """Steps of a sequence of classes, characters of a stretch of text; 0 for what suits them."""
    image: Literal["rows", "strokes"] = "rows"
    """What an image is a sequence of."""


@dataclass(frozen=True)
class Config(Common, LearnerOptions, Episodes):
    """Train a learner on many tasks, so that it learns new ones from a few examples.

    metarnn train fewshot --method maml

    metarnn train fewshot --family images --data folder --method prototypical --shots 1
    """

    def __post_init__(self) -> None:
        Common.__post_init__(self)
        LearnerOptions.__post_init__(self)


class FewShotEntry:
    name = "fewshot"
    about = "learning to learn: MAML and its kin, hypernetworks, metrics"
    kind = Config
    presets: Mapping[str, Mapping[str, Any]] = PRESETS

    def load(self, config: Config, folder: Folder | None = None, show: Progress = SILENT) -> Family:
        if config.family in ("sequences", "images") and not config.data:
            check.refuse("data", "", f"a folder with a folder for each class of {config.family}")
        show.say(f"{config.family}: making or reading its tasks")
        return _family(config)

    def job(self, config: Config, data: Family, folder: Folder | None = None) -> Job[Config]:
        task = FewShotTask(data, **chosen(FewShotTask, config, "family"))
        options = _options(config)
        with generators.seeded(config.seed):
            # Classes that were added change the size: that the data changed is said first.
            learner = build_learner(task.family, options)
        return Job(config, task, learner)

    def model(self, config: Config, folder: Folder) -> Learner:
        tasks, options = family(config, folder), _options(config)
        return fitting(lambda: build_learner(tasks, options), folder)

    def save(self, job: Job[Config], folder: Folder) -> None:
        write_document(folder.path / FAMILY, job.task.family.state(), indent=None)

    def held_out(self, job: Job[Config]) -> str:
        return "test"

    def details(self, job: Job[Config], scores: Mapping[str, float]) -> Iterable[str]:
        """Each score with its interval, and what it is of."""
        how = "transductive" if scores["transductive"] else "not transductive"
        shots = job.config.test_shots or job.config.shots
        yield (
            f"{job.config.method}, {shots} shots, {scores['tasks']:,.0f} tasks never seen, {how}, "
            "± 95%:"
        )
        last = job.config.test_steps[-1:] if any("_after_" in name for name in scores) else ()
        if "fine_tuning_steps" in scores:
            last = (round(scores["fine_tuning_steps"]),)
            yield f"  fine-tuned at a rate of {scores['fine_tuning_rate']:g}: best on valid tasks"
        for name, value in scores.items():
            if f"{name}_interval" in scores:
                words = name.replace("_after_", " after ") + (
                    f" after {last[0]}" if last and "_after_" not in name else ""
                )
                yield f"  {words:<16} {value:.4f} ± {scores[f'{name}_interval']:.4f}"


def family(config: Config, folder: Folder) -> Family:
    """The family of a run, without its data."""
    path = folder.path / FAMILY
    state = document(path)
    try:
        if config.family in ("sequences", "images"):
            return Classes.from_state(state, config.ways)
        if config.family == "characters":
            return Characters.from_state(state, config.length or 64)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} tells of no family of tasks: {error}") from None
    return _family(config)


def _family(config: Config) -> Family:
    c = config
    if c.family == "sinusoid":
        return Sinusoids()
    if c.family in SYSTEMS:
        return Dynamics(c.family, c.history, c.horizon, c.noise, c.fresh)
    if c.family == "waves":
        return waves(c.ways, length=c.length or 32)
    if c.family == "characters":
        return characters(c.data or "stdlib", c.length or 64)
    return from_folder(c.data, c.ways, length=c.length, image=c.image)


def _options(config: Config) -> LearnerOptions:
    return LearnerOptions(**chosen(LearnerOptions, config))


ENTRY = FewShotEntry()
