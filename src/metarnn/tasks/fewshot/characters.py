"""Few-shot character modelling: a model of a new author or language from a paragraph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from metarnn.cells import check
from metarnn.graph.files import text
from metarnn.hyper import Metadata
from metarnn.meta import Episode
from metarnn.tasks.fewshot.classes import deal
from metarnn.tasks.fewshot.family import SPLITS, SequenceNet
from metarnn.tasks.language.source import EMBEDDED, PIECE, embedded, find_files, from_file
from metarnn.tasks.language.vocabulary import Vocabulary

MOST = 200_000  # characters that are read of each text
PIECES = -(-4 * MOST // PIECE)  # pieces of it that have as many


@dataclass(frozen=True)
class Characters:
    """A task is a text: predict its next characters, [K, T] each, after K stretches of it.

    texts   {split: {name: tokens}}
    length  characters of a stretch
    """

    texts: Mapping[str, Mapping[str, Tensor]]
    vocabulary: Vocabulary
    length: int = 64
    criterion = "cross_entropy"

    @property
    def inputs(self) -> int:
        return len(self.vocabulary)

    @property
    def outputs(self) -> int:
        return len(self.vocabulary)

    def draw(self, split: str, tasks: int, shots: int, queries: int, random: Generator) -> Episode:
        """The query goes on where the support ends."""
        size = (shots + queries) * self.length + 1
        split = check.one_of("split", split, SPLITS)
        long = [text for text in self.texts[split].values() if len(text) >= size]
        if not long:
            longest = max(map(len, self.texts[split].values()), default=0)
            why = f"a {split} text of as many characters; the longest has {longest:,}"
            check.refuse("shots, queries and length", f"{size:,} characters", why)
        found = []
        for k in torch.randint(len(long), (tasks,), generator=random).tolist():
            at = int(torch.randint(len(long[k]) - size + 1, (1,), generator=random))
            found.append(long[k][at : at + size])
        x, y = _shifted(torch.stack(found), self.length)
        return Episode(x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:])

    def network(self, hidden: int, kind: str) -> nn.Module:
        size = len(self.vocabulary)
        return SequenceNet(size, hidden, (size,), kind, every=True, tokens=True)

    def reads(self, hidden: int, kind: str) -> tuple[None, int]:
        why = "maml, fomaml, anil, metasgd, reptile, imaml or joint for texts"
        check.refuse("method", "one that reads examples as vectors", why)

    def metadata(self) -> Metadata | None:
        return None

    def known(self, path: Path) -> tuple[Tensor, Tensor]:
        return self._stretches(path)

    def asked(self, path: Path) -> tuple[Tensor, Tensor | None]:
        return self._stretches(path)

    def _stretches(self, path: Path) -> tuple[Tensor, Tensor]:
        tokens = torch.from_numpy(self.vocabulary.encode(text(path)))
        count = (len(tokens) - 1) // self.length
        if count < 1:
            least = self.length + 1
            raise ValueError(f"{path} has {len(tokens)} characters: expected at least {least}")
        x, y = _shifted(tokens[: count * self.length + 1].unsqueeze(0), self.length)
        return x[0], y[0]

    def shown(self, prediction: Tensor, support: Path) -> list[str]:
        """The character that is expected most after each one."""
        return ["".join(self.vocabulary.decode(row.argmax(-1).tolist())) for row in prediction]

    def state(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary.document()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], length: int) -> Characters:
        """For `known` and `asked` alone: without the texts."""
        return cls({}, Vocabulary.from_document(state["vocabulary"]), length)


def characters(data: str = "stdlib", length: int = 64, seed: int = 0) -> Characters:
    """Each file of a folder or pattern is a task, or each text of what Python carries.

    With folders called train, valid and test, these are the splits; else texts are dealt.
    """
    check.size("length", length)
    if data in EMBEDDED:
        found = {d.name: "".join(d.text())[:MOST] for d in embedded(data)}
        splits = {s: {n: found[n] for n in names} for s, names in deal(list(found), seed).items()}
    else:
        base, files = find_files(data)
        found = {str(f.relative_to(base)): _beginning(f) for f in files}
        tops = {name: name.replace("\\", "/").split("/")[0] for name in found}
        named = set(SPLITS) <= set(tops.values())
        dealt = deal(list(found), seed)
        splits = {
            s: {n: t for n, t in found.items() if (tops[n] == s if named else n in dealt[s])}
            for s in SPLITS
        }
    for split, texts in splits.items():
        if not texts:
            check.refuse("data", data, f"texts for the {split} split: at least three files")
    vocabulary = Vocabulary.build([[text] for text in splits["train"].values()], min_frequency=5)
    numbered = {
        split: {name: torch.from_numpy(vocabulary.encode(text)) for name, text in texts.items()}
        for split, texts in splits.items()
    }
    return Characters(numbered, vocabulary, length)


def _beginning(path: Path) -> str:
    return "".join(islice(from_file(path).text(), PIECES))[:MOST]


def _shifted(tokens: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Stretches of inputs and what follows each character, [N, K, length]."""
    return (
        tokens[:, :-1].unflatten(1, (-1, length)),
        tokens[:, 1:].unflatten(1, (-1, length)),
    )
