"""Language models: texts, their vocabularies and statistics, the model, its score, its text."""

from metarnn.tasks.language.batches import Batch, RandomBatches, SequentialBatches
from metarnn.tasks.language.build import ModelOptions, build_model, solved
from metarnn.tasks.language.corpus import Corpus, Split, load
from metarnn.tasks.language.evaluation import Score, dynamic_score, score
from metarnn.tasks.language.generate import continuations, generate
from metarnn.tasks.language.model import LanguageModel, count_parameters, parse_count, solve_width
from metarnn.tasks.language.task import LanguageTask
from metarnn.tasks.language.tokens import Tokens
from metarnn.tasks.language.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "Corpus",
    "LanguageModel",
    "LanguageTask",
    "ModelOptions",
    "RandomBatches",
    "Score",
    "SequentialBatches",
    "Split",
    "Tokens",
    "Vocabulary",
    "build_model",
    "continuations",
    "count_parameters",
    "dynamic_score",
    "generate",
    "load",
    "parse_count",
    "score",
    "solve_width",
    "solved",
]
