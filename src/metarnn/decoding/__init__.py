"""Sequences from any model that scores one token at a time: greedy, beam search, sampling."""

from metarnn.decoding.sampling import Sampler, stream
from metarnn.decoding.scorer import Scorer
from metarnn.decoding.search import Hypothesis, Search

__all__ = ["Hypothesis", "Sampler", "Scorer", "Search", "stream"]
