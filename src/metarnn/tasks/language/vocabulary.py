"""Which tokens a text is made of, and their numbers."""

from __future__ import annotations

import codecs
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from metarnn.cells import check
from metarnn.graph.files import document, write_document

SPECIAL = ("<unk>", "<pad>", "<bos>", "<eos>")
UNK, PAD, BOS, EOS = range(4)
LEVELS = ("character", "byte", "word", "bpe")

# Words are counted in a table of at most this many; beyond it the rarest are forgotten (lossy
# counting), so that memory does not grow with the text.
COUNTED = 1 << 20

Text = str | bytes
Ids = np.ndarray


class Vocabulary:
    """Tokens and their numbers: `<unk> <pad> <bos> <eos>`, then the others by their frequency.

    >>> vocabulary = Vocabulary.build([["abracadabra"]], "character")
    >>> vocabulary.tokens
    ('<unk>', '<pad>', '<bos>', '<eos>', 'a', 'b', 'r', 'c', 'd')
    >>> vocabulary.encode("bad!")
    array([5, 4, 8, 0])
    >>> vocabulary.decode([5, 4, 8])
    'bad'

    level  "character"; "byte", where all 256 are known; "word", what stands between spaces, and
           `<eos>` for the end of a line; "bpe" (see `BPE`)
    """

    def __init__(self, level: str, tokens: Sequence[str]) -> None:
        self.level = check.one_of("level", level, LEVELS)
        self.tokens = tuple(tokens)
        _check_tokens(level, self.tokens)
        self.numbers = {token: number for number, token in enumerate(self.tokens)}
        self._table: Ids | None = None

    @classmethod
    def build(
        cls,
        documents: Iterable[Iterable[Text]],
        level: str = "character",
        min_frequency: int = 1,
        max_size: int | None = None,
    ) -> Vocabulary:
        """Count what documents hold, each given as pieces of text (bytes for level "byte").

        min_frequency  tokens that are rarer become `<unk>`
        max_size       how many tokens at most, the four special ones among them
        """
        check.one_of("level", level, LEVELS)
        check.size("min_frequency", min_frequency)
        if max_size is not None:
            check.size("max_size", max_size, least=len(SPECIAL) + 1)
        if level == "bpe":
            from metarnn.tasks.language.bpe import BPE

            return BPE.train(documents, max_size or 8192, min_frequency)
        counts = _COUNTS[level](documents)
        if level == "byte":
            counts = {chr(byte): counts.get(chr(byte), 0) for byte in range(256)}
            min_frequency, max_size = 0, None
        ranked = sorted(
            (token for token, n in counts.items() if n >= min_frequency and token not in SPECIAL),
            key=lambda token: (-counts[token], token),
        )
        room = None if max_size is None else max_size - len(SPECIAL)
        return cls(level, (*SPECIAL, *ranked[:room]))

    def __len__(self) -> int:
        return len(self.tokens)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.document() == other.document()

    def __hash__(self) -> int:
        return hash((self.level, self.tokens))

    def __repr__(self) -> str:
        return f"Vocabulary({self.level!r}, {len(self)} tokens)"

    @property
    def dtype(self) -> np.dtype:
        """The smallest type that holds every number."""
        return np.min_scalar_type(max(len(self) - 1, 0))

    @property
    def unit(self) -> str:
        """What a token is: as the level says, but words of one character are characters."""
        single = self.level == "word" and all(len(token) == 1 for token in self.tokens[4:])
        return "character" if single else self.level

    def encode(self, text: Text) -> Ids:
        """The numbers of a text's tokens; what is unknown becomes `<unk>`."""
        return self._joined([text])

    def _joined(self, pieces: Iterable[Text]) -> Ids:
        found = list(self.stream(pieces))
        return np.concatenate(found).astype(np.int64) if found else np.zeros(0, np.int64)

    def stream(self, pieces: Iterable[Text]) -> Iterator[Ids]:
        """The numbers of one document that comes in pieces, in memory for a piece."""
        if self.level == "word":
            get = self.numbers.get
            for words in split_words(pieces):
                yield np.fromiter((get(word, UNK) for word in words), np.uint32, len(words))
            return
        table = self._lookup()
        for piece in pieces:
            codes = (
                np.frombuffer(_as_bytes(piece), np.uint8)
                if self.level == "byte"
                else (code_points(piece))
            )
            yield table[codes]

    def _lookup(self) -> Ids:
        """From code points (or bytes) to numbers."""
        if self._table is None:
            ordinary = self.tokens[len(SPECIAL) :]
            codes = np.array([ord(token) for token in ordinary], np.int64)
            table = np.full(256 if self.level == "byte" else 0x110000, UNK, np.uint32)
            table[codes] = np.arange(len(SPECIAL), len(self))
            self._table = table
        return self._table

    def decode(self, numbers: Iterable[int]) -> str:
        return "".join(self.pieces(numbers))

    def pieces(self, numbers: Iterable[int]) -> Iterator[str]:
        """Text as its tokens arrive, one piece a token (bytes of one character come together)."""
        numbers = (self._known(number) for number in numbers)
        if self.level == "byte":
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            for number in numbers:
                token = self.tokens[number]
                yield token if number < len(SPECIAL) else decoder.decode(token.encode("latin-1"))
            yield decoder.decode(b"", final=True)
        elif self.level == "word":
            between = ""
            for number in numbers:
                if number == EOS:
                    yield "\n"
                    between = ""
                else:
                    yield between + self.tokens[number]
                    between = " "
        else:
            yield from (self.tokens[number] for number in numbers)

    def _known(self, number: int) -> int:
        if not 0 <= number < len(self):
            check.refuse("token", number, f"a number from 0 to {len(self) - 1}")
        return int(number)

    def document(self) -> dict[str, Any]:
        """What a file of it holds."""
        return {"format": "metarnn vocabulary", "level": self.level, "tokens": list(self.tokens)}

    def save(self, path: str | os.PathLike[str]) -> None:
        write_document(path, self.document(), indent=None)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Vocabulary:
        try:
            return Vocabulary.from_document(document(path))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is no vocabulary: {error}") from None

    @staticmethod
    def from_document(document: Any) -> Vocabulary:
        if not isinstance(document, dict) or document.get("format") != "metarnn vocabulary":
            raise ValueError('expected a JSON object with "format": "metarnn vocabulary"')
        level = check.one_of("level", document.get("level"), LEVELS)
        if level == "bpe":
            from metarnn.tasks.language.bpe import BPE

            return BPE(document.get("tokenizer"))
        tokens = document.get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise ValueError("tokens: expected a list of strings")
        return Vocabulary(level, tokens)


def _check_tokens(level: str, tokens: tuple[str, ...]) -> None:
    if tokens[: len(SPECIAL)] != SPECIAL:
        check.refuse("tokens", tokens[: len(SPECIAL)], f"to begin with {' '.join(SPECIAL)}")
    if len(set(tokens)) != len(tokens):
        twice = next(token for token, n in Counter(tokens).items() if n > 1)
        check.refuse("tokens", twice, "each of them once")
    ordinary = tokens[len(SPECIAL) :]
    if level == "character" and (long := [t for t in ordinary if len(t) != 1]):
        check.refuse("tokens", long[0], "single characters")
    if level == "byte" and sorted(ordinary) != [chr(byte) for byte in range(256)]:
        check.refuse("tokens", f"{len(ordinary)} tokens", "all 256 bytes, as chr(0) … chr(255)")
    if level == "word" and (odd := [t for t in ordinary if t.split() != [t]]):
        check.refuse("tokens", odd[0], "words without spaces in them")


def code_points(text: Text) -> Ids:
    return np.frombuffer(as_text(text).encode("utf-32-le", "surrogatepass"), np.uint32)


def split_words(pieces: Iterable[Text]) -> Iterator[list[str]]:
    """The words of a document in pieces; one that spans two pieces stays whole."""
    rest = ""
    for piece in pieces:
        text = rest + as_text(piece)
        cut = max(text.rfind(" "), text.rfind("\n")) + 1
        text, rest = text[:cut], text[cut:]
        yield text.replace("\n", " <eos> ").split()
    if words := rest.split():
        yield words


def as_text(text: Text) -> str:
    return text if isinstance(text, str) else text.decode()


def _as_bytes(text: Text) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _count_characters(documents: Iterable[Iterable[Text]]) -> dict[str, int]:
    total = np.zeros(0x110000, np.int64)
    for pieces in documents:
        for piece in pieces:
            found = np.bincount(code_points(piece))
            total[: len(found)] += found
    return {chr(code): int(total[code]) for code in np.flatnonzero(total)}


def _count_bytes(documents: Iterable[Iterable[Text]]) -> dict[str, int]:
    total = np.zeros(256, np.int64)
    for pieces in documents:
        for piece in pieces:
            total += np.bincount(np.frombuffer(_as_bytes(piece), np.uint8), minlength=256)
    return {chr(byte): int(n) for byte, n in enumerate(total)}


def _count_words(documents: Iterable[Iterable[Text]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    least = 1
    for pieces in documents:
        for words in split_words(pieces):
            counts.update(words)
            while len(counts) > COUNTED:
                counts = Counter({word: n for word, n in counts.items() if n > least})
                least = least if len(counts) < COUNTED // 2 else 2 * least
    return counts


_COUNTS = {"character": _count_characters, "byte": _count_bytes, "word": _count_words}
