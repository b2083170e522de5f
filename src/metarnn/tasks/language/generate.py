"""Text from a model, token by token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.decoding import Sampler, Search, stream
from metarnn.tasks.language.model import LanguageModel
from metarnn.tasks.language.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

CHUNK = 512


def generate(
    model: LanguageModel,
    vocabulary: Vocabulary,
    prompt: str = "",
    length: int | None = 500,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | None = None,
    generator: torch.Generator | None = None,
) -> Iterator[str]:
    """The pieces of a text that goes on after the prompt, as they are drawn.

    length       how many tokens; None for no end
    temperature  log-probabilities are divided by it; 0 takes the most probable token (greedy)
    top_k        draw from the k most probable tokens alone; 0 for all
    top_p        draw from the fewest tokens that have this much probability together
    """
    if generator is None:
        generator = torch.Generator()
        if seed is not None:
            generator.manual_seed(seed)
        else:
            generator.seed()
    sampler = Sampler(temperature, top_k, top_p)
    if length is not None:
        check.size("length", length, least=0)
    numbers = vocabulary.encode(prompt)
    tokens = [BOS, *numbers.tolist()]
    never = _never(vocabulary)
    return vocabulary.pieces(_drawn(model, tokens, length, sampler, generator, never))


def _drawn(
    model: LanguageModel,
    prompt: list[int],
    length: int | None,
    sampler: Sampler,
    generator: torch.Generator,
    never: list[int],
) -> Iterator[int]:
    was = model.training
    model.eval()
    try:
        token, state = _read(model, prompt)
        yield from stream(model, token, state, sampler, generator, length, never)
    finally:
        model.train(was)


def continuations(
    model: LanguageModel, vocabulary: Vocabulary, prompt: str, length: int, search: Search
) -> list[tuple[str, float]]:
    """Texts of `length` tokens that a search finds after the prompt, with log p, the best first."""
    search = replace(search, max_length=check.size("length", length))
    was = model.training
    model.eval()
    try:
        token, state = _read(model, [BOS, *vocabulary.encode(prompt).tolist()])
        (found,) = search(model, state, token, eos=None, never=_never(vocabulary))
    finally:
        model.train(was)
    return [(vocabulary.decode(each.tokens), each.log_p) for each in found]


def _never(vocabulary: Vocabulary) -> list[int]:
    """Only in a vocabulary of words does <eos> stand for text, the end of a line."""
    return [UNK, PAD, BOS] if vocabulary.level == "word" else [UNK, PAD, BOS, EOS]


def _read(model: LanguageModel, prompt: list[int]) -> tuple[Tensor, Any]:
    """The last token of a prompt, [1], and the state before it."""
    device = next(model.parameters()).device
    tokens = torch.tensor(prompt, device=device).unsqueeze(1)
    state = None
    with torch.no_grad():
        for chunk in tokens[:-1].split(CHUNK) if len(tokens) > 1 else ():
            state = model(chunk, chunk, state).state
    return tokens[-1], state
