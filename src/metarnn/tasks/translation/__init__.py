"""Sequence to sequence: pairs of sentences, the encoder–decoder, translations and their scores."""

from metarnn.tasks.translation.attention import Attention
from metarnn.tasks.translation.batches import Batch, BucketedBatches, make_batch
from metarnn.tasks.translation.build import ModelOptions, build_model, solved
from metarnn.tasks.translation.corpus import ParallelCorpus, Split, load
from metarnn.tasks.translation.metrics import (
    bleu,
    chrf,
    edit_distance,
    error_rate,
    exact_match,
    sacrebleu,
    text_bleu,
)
from metarnn.tasks.translation.model import EncoderDecoder
from metarnn.tasks.translation.pairs import Pairs
from metarnn.tasks.translation.task import TranslationTask, scheduled
from metarnn.tasks.translation.translate import Translation, align, translate

__all__ = [
    "Attention",
    "Batch",
    "BucketedBatches",
    "EncoderDecoder",
    "ModelOptions",
    "Pairs",
    "ParallelCorpus",
    "Split",
    "Translation",
    "TranslationTask",
    "align",
    "bleu",
    "build_model",
    "chrf",
    "edit_distance",
    "error_rate",
    "exact_match",
    "load",
    "make_batch",
    "sacrebleu",
    "scheduled",
    "solved",
    "text_bleu",
    "translate",
]
