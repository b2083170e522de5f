"""Byte-pair encoding, by the package `tokenizers`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from metarnn.tasks.language.vocabulary import SPECIAL, Text, Vocabulary, as_text


class BPE(Vocabulary):
    """A vocabulary of pieces of words: pairs that are frequent are merged, over and over.

    It works on bytes, so that no text has anything unknown in it, and decodes exactly.

    tokenizer  the JSON text that `tokenizers` reads and writes
    """

    def __init__(self, tokenizer: Any) -> None:
        try:
            self._tokenizer = _package().Tokenizer.from_str(_plain(tokenizer))
        except (ModuleNotFoundError, ValueError):
            raise
        except Exception as error:  # the package raises plain Exception
            raise ValueError(f"tokenizer: {error}") from None
        self.json = tokenizer
        numbers = self._tokenizer.get_vocab()
        if sorted(numbers.values()) != list(range(len(numbers))):
            raise ValueError("tokenizer: expected tokens numbered 0, 1, 2, …")
        super().__init__("bpe", sorted(numbers, key=numbers.__getitem__))

    @classmethod
    def train(cls, documents: Iterable[Iterable[Text]], size: int, min_frequency: int = 1) -> BPE:
        t = _package()
        tokenizer = t.Tokenizer(t.models.BPE())
        tokenizer.pre_tokenizer = t.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = t.decoders.ByteLevel()
        trainer = t.trainers.BpeTrainer(
            vocab_size=max(size, len(SPECIAL) + 256),
            min_frequency=min_frequency,
            special_tokens=list(SPECIAL),
            initial_alphabet=t.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        pieces = (piece for document in documents for piece in _lines(document))
        tokenizer.train_from_iterator(pieces, trainer)
        return cls(tokenizer.to_str())

    def stream(self, pieces: Iterable[Text]) -> Iterator[np.ndarray]:
        for piece in _lines(pieces):
            yield np.array(self._tokenizer.encode(piece).ids, np.uint32)

    def pieces(self, numbers: Iterable[int]) -> Iterator[str]:
        """Text as its tokens arrive; a character whose bytes are not all there yet waits."""
        waiting: list[int] = []
        for number in numbers:
            waiting.append(self._known(number))
            text = self._tokenizer.decode(waiting, skip_special_tokens=False)
            if not text.endswith("\N{REPLACEMENT CHARACTER}") or len(waiting) > 4:
                waiting.clear()
                yield text
        if waiting:
            yield self._tokenizer.decode(waiting, skip_special_tokens=False)

    def document(self) -> dict[str, Any]:
        return {"format": "metarnn vocabulary", "level": "bpe", "tokenizer": self.json}


def _plain(tokenizer: Any) -> str:
    """The same with tokens and merges alone: all else of a tokenizer is as `train` makes it.

    What a stranger may put there beside them, such as regular expressions, can run for ever.
    """
    if not isinstance(tokenizer, str):
        raise ValueError("tokenizer: expected the JSON text that `tokenizers` writes")
    try:
        model = json.loads(tokenizer)["model"]
        tokens, merges = model["vocab"], model["merges"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("tokenizer: expected a model with `vocab` and `merges`") from None
    if not isinstance(tokens, dict) or not all(type(n) is int for n in tokens.values()):
        raise ValueError("tokenizer: expected a vocab of numbered tokens")
    if not isinstance(merges, list) or not all(map(_is_pair, merges)):
        raise ValueError("tokenizer: expected merges of two tokens each")
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": k, "content": name, "special": True, **special} for k, name in enumerate(SPECIAL)
    ]
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": added,
            "pre_tokenizer": level,
            "decoder": level,
            "model": {"type": "BPE", "vocab": tokens, "merges": merges},
        }
    )


def _is_pair(merge: Any) -> bool:
    parts = merge.split(" ") if isinstance(merge, str) else merge
    return isinstance(parts, list) and len(parts) == 2 and all(isinstance(p, str) for p in parts)


def _lines(pieces: Iterable[Text]) -> Iterator[str]:
    """Pieces that end where a line does (or a word, in a line without end): no merge spans two."""
    rest = ""
    for piece in pieces:
        text = rest + as_text(piece)
        cut = text.rfind("\n") + 1 or text.rfind(" ")
        cut = cut if cut > 0 else 0
        text, rest = text[:cut], text[cut:]
        if text:
            yield text
    if rest:
        yield rest


def _package() -> Any:
    try:
        for part in ("decoders", "models", "pre_tokenizers", "trainers"):
            importlib.import_module(f"tokenizers.{part}")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "byte-pair encoding needs the package tokenizers: pip install 'metarnn[bpe]'"
        ) from None
    return importlib.import_module("tokenizers")
