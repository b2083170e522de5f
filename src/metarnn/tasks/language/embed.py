"""A language model as an encoder of texts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.tasks.language.model import LanguageModel
from metarnn.tasks.language.vocabulary import EOS, Vocabulary


class TextEmbedding:
    """What a language model has in mind while it reads: the mean of its last layer's outputs.

    >>> from metarnn.tasks.language import ModelOptions, build_model, load
    >>> vocabulary = load("pydoc").vocabulary
    >>> model = build_model(len(vocabulary), ModelOptions(width=8, embedding=4))
    >>> TextEmbedding(model, vocabulary)(["a list", "a tuple of numbers"]).shape
    torch.Size([2, 8])

    It goes where `hyper.Text` wants an encoder.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        if len(vocabulary) != model.vocabulary_size:
            expected = f"{model.vocabulary_size} tokens, those of the model"
            check.refuse("vocabulary", f"{len(vocabulary)} tokens", expected)
        self.model, self.vocabulary = model.eval(), vocabulary
        self.width = int(model.layers[-1].output_size)  # pyright: ignore[reportArgumentType]

    def __call__(self, texts: Sequence[str]) -> Tensor:
        device = next(self.model.parameters()).device
        found = []
        with torch.no_grad():
            for text in texts:  # each alone: what it means does not depend on its company
                tokens = [EOS, *self.vocabulary.encode(text).tolist()]
                column = torch.tensor(tokens, device=device).unsqueeze(1)
                found.append(self.model(column, column).hidden.mean((0, 1)))
        return torch.stack(found)
