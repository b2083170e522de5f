"""Text from a model, token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import check
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
    sampler = Sampler(temperature, top_k, top_p, generator)
    if length is not None:
        check.size("length", length, least=0)
    numbers = vocabulary.encode(prompt)
    # Only in a vocabulary of words does <eos> stand for text, the end of a line.
    never = [UNK, PAD, BOS] if vocabulary.level == "word" else [UNK, PAD, BOS, EOS]
    return vocabulary.pieces(sample(model, [BOS, *numbers.tolist()], length, sampler, never))


class Sampler:
    """Draws a token from log-probabilities [V]; see `generate`."""

    def __init__(
        self, temperature: float, top_k: int, top_p: float, generator: torch.Generator
    ) -> None:
        if check.number("temperature", temperature) < 0:
            check.refuse("temperature", temperature, "at least 0")
        if not check.probability("top_p", top_p):
            check.refuse("top_p", top_p, "above 0")
        self.temperature, self.top_p, self.generator = temperature, top_p, generator
        self.top_k = check.size("top_k", top_k, least=0)

    def __call__(self, log_p: Tensor) -> int:
        log_p = log_p.double().cpu()  # drawn on the CPU, so that a seed means the same everywhere
        if self.temperature == 0:
            return int(log_p.argmax())
        p = (log_p / self.temperature).softmax(-1)
        if self.top_k and self.top_k < len(p):
            p = torch.where(p < p.topk(self.top_k).values[-1], 0.0, p)
        if self.top_p < 1:
            ranked, order = p.sort(descending=True, stable=True)
            ranked = ranked / ranked.sum()
            # A token stays as long as those before it do not have that much already.
            beyond = ranked.cumsum(0) - ranked >= self.top_p
            p[order[beyond]] = 0
        return int(torch.multinomial(p, 1, generator=self.generator))


def sample(
    model: LanguageModel,
    prompt: list[int],
    length: int | None,
    sampler: Sampler,
    never: Sequence[int] = (),
) -> Iterator[int]:
    """Tokens drawn after a prompt of any length, in constant memory; `never` are not drawn."""
    was = model.training
    model.eval()
    try:
        log_p, state = _read(model, prompt)
        drawn = 0
        while length is None or drawn < length:
            log_p[list(never)] = -torch.inf
            token = sampler(log_p)
            yield token
            drawn += 1
            with torch.no_grad():
                inputs = torch.tensor([token], device=log_p.device)
                found, state = model.step(inputs, state)
            log_p = found[0]
    finally:
        model.train(was)


def _read(model: LanguageModel, prompt: list[int]) -> tuple[Tensor, Any]:
    """What follows a prompt, as log-probabilities [V], and the state after it."""
    device, state = next(model.parameters()).device, None
    with torch.no_grad():
        tokens = torch.tensor(prompt, device=device).unsqueeze(1)
        for chunk in tokens[:-1].split(CHUNK) if len(tokens) > 1 else ():
            state = model(chunk, chunk, state).state
        log_p, state = model.step(tokens[-1], state)
    return log_p[0], state
