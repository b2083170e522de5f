"""Few-shot learning: families of tasks, learners by name, meta-training and meta-testing."""

from metarnn.tasks.fewshot.characters import Characters, characters
from metarnn.tasks.fewshot.classes import Classes, from_folder, waves
from metarnn.tasks.fewshot.dynamics import Dynamics
from metarnn.tasks.fewshot.family import Family, Perceptron, SequenceNet
from metarnn.tasks.fewshot.methods import LearnerOptions, build_learner
from metarnn.tasks.fewshot.sinusoid import Sinusoids
from metarnn.tasks.fewshot.task import FewShotTask

__all__ = [
    "Characters",
    "Classes",
    "Dynamics",
    "Family",
    "FewShotTask",
    "LearnerOptions",
    "Perceptron",
    "SequenceNet",
    "Sinusoids",
    "build_learner",
    "characters",
    "from_folder",
    "waves",
]
