"""From sentences to their translations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.decoding import Search
from metarnn.tasks.language.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from metarnn.tasks.translation.batches import make_batch
from metarnn.tasks.translation.model import EncoderDecoder
from metarnn.tasks.watch import counted

NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Translation:
    """A translation that was found: its text and tokens, log p(tokens), and its score."""

    text: str
    tokens: list[int]
    log_p: float
    score: float


def translate(
    model: EncoderDecoder,
    source: Vocabulary,
    target: Vocabulary,
    sentences: Sequence[str],
    search: Search,
    *,
    batch: int = 64,
    prefixes: Sequence[str] | None = None,
    copy_unknown: bool = False,
    first: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[list[Translation]]:
    """The best translations of each sentence, as a search finds them, the best first.

    A sentence without any token has one translation, the empty text.

    Args:
        model: with vocabularies `source` and `target`
        sentences: texts
        search: how
        batch: sentences side by side: its speed, and but for rounding nothing else
        prefixes: what each translation is to begin with
        copy_unknown: where the model writes `<unk>`, put the word of the source it attends to most
        first: the number of the first sentence, where they are a part of more (see `Search`)
        progress: told how many sentences are done
    """
    check.size("batch", batch)
    if copy_unknown and (target.level != "word" or model.attention is None):
        check.refuse("copy_unknown", True, "False but for words, and with attention")
    numbers = [source.encode(sentence) for sentence in sentences]
    begins = [[] if prefixes is None else target.encode(p).tolist() for p in prefixes or sentences]
    found: list[list[Translation]] = [[Translation("", [], 0.0, 0.0)] for _ in sentences]
    # Sentences of one length together; the longest first, so that memory runs out soon or never.
    order = sorted((k for k, x in enumerate(numbers) if len(x)), key=lambda k: -len(numbers[k]))
    never = [PAD, BOS] if copy_unknown else [PAD, BOS, UNK]
    device = next(model.parameters()).device
    was = model.training
    model.eval()

    def text(tokens: list[int], k: int) -> str:
        if UNK not in tokens:
            return target.decode(tokens)
        a = align(model, numbers[k], tokens)[:-1, :-1]
        of_source = sentences[k].split()
        said = [
            of_source[int(row.argmax())] if token == UNK else target.tokens[token]
            for token, row in zip(tokens, a, strict=True)
        ]
        return " ".join(said)

    try:
        for at in counted(range(0, len(order), batch)):
            mine = order[at : at + batch]
            inputs = make_batch([numbers[k] for k in mine], [NOTHING] * len(mine))
            with torch.no_grad():
                state = model.encode(inputs.source.to(device), inputs.lengths)
            hypotheses = search(
                model,
                state,
                torch.full((len(mine),), BOS, device=device),
                eos=EOS,
                never=never,
                prefixes=[begins[k] for k in mine],
                numbers=[first + k for k in mine],
            )
            for k, best in zip(mine, hypotheses, strict=True):
                found[k] = [
                    Translation(text(h.tokens, k), h.tokens, h.log_p, h.score) for h in best
                ]
            if progress is not None:
                progress(len(mine))
    finally:
        model.train(was)
    return found


def align(
    model: EncoderDecoder, source: Sequence[int] | np.ndarray, target: Sequence[int] | np.ndarray
) -> Tensor:
    """What the model attends to where it writes each token of a target, [T, S].

    Both ends count: the last row is for `<eos>`, the last column that of the source.
    """
    batch = make_batch([np.asarray(source)], [np.asarray(target)]).to(
        next(model.parameters()).device
    )
    was = model.training
    model.eval()
    try:
        with torch.no_grad():
            state = model.encode(batch.source, batch.lengths)
            _, weights, _ = model.decode(batch.inputs, state)
    finally:
        model.train(was)
    if weights is None:
        check.refuse("attention", "none", "a model that attends")
    return weights[:, 0].cpu()
