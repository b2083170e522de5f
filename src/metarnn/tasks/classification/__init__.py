"""Labels of sequences: one, one a step, several, or a sequence of them."""

from metarnn.tasks.classification.embedded import EMBEDDED, generate
from metarnn.tasks.classification.examples import Dataset, Example, Part, Scheme
from metarnn.tasks.classification.load import find, load
from metarnn.tasks.classification.model import Classifier, ClassifierOptions, build_model
from metarnn.tasks.classification.pooling import Pool
from metarnn.tasks.classification.task import ClassificationTask, predict

__all__ = [
    "EMBEDDED",
    "ClassificationTask",
    "Classifier",
    "ClassifierOptions",
    "Dataset",
    "Example",
    "Part",
    "Pool",
    "Scheme",
    "build_model",
    "find",
    "generate",
    "load",
    "predict",
]
