"""Which examples a run trains on and which it is scored on, as a file in its folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metarnn.cells import check
from metarnn.graph.files import document, write_document

FILE = "split.json"
Piece = bytes | memoryview


@dataclass(frozen=True)
class Split:
    """The examples of each part of the data, by a hash of their contents.

    The hash covers every example in its order, so that equal splits hold equal examples. How data
    are divided depends on the data and on the setting `split` alone, never on the seed of a run.
    """

    parts: Mapping[str, str]

    @classmethod
    def of(cls, task: Any) -> Split:
        """The split of a task that has `contents`; of one whose data are generated, no parts."""
        contents: Mapping[str, Iterable[Piece]] = getattr(task, "contents", dict)()
        return cls({name: _hash(pieces) for name, pieces in contents.items()})

    @classmethod
    def read(cls, folder: Path) -> Split | None:
        """The split that is stored in a folder; None where there is none."""
        path = folder / FILE
        if not path.exists():
            return None
        try:
            parts = {str(name): _checked(digest) for name, digest in document(path).items()}
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{path} is no split of a run: {error}") from None
        return cls(parts)

    def keep(self, folder: Path, data: str, *, begun: bool) -> None:
        """Store the split, or refuse one that differs from the one a run has begun with."""
        if begun or (folder / FILE).exists():
            self.verify(folder, data)
        write_document(folder / FILE, self.parts)

    def verify(self, folder: Path, data: str) -> None:
        """Refuse to go on with other examples than the run in this folder was trained on."""
        stored = Split.read(folder)
        if stored is None and self.parts:
            raise ValueError(
                f"{folder} has no {FILE}: an earlier version made it, which did not store which "
                "examples are held out. Train again, or name other data with --data"
            )
        if stored is None or stored == self:
            return
        names = {*stored.parts, *self.parts}
        changed = sorted(n for n in names if stored.parts.get(n) != self.parts.get(n))
        raise ValueError(
            f"{data} has changed since the run in {folder} began: other examples in "
            f"{', '.join(changed)}. A score would be of other examples, some of them perhaps "
            "trained on. Restore the data, or train anew"
        )


def spread(count: int, most: int) -> list[int]:
    """Choose at most `most` of so many examples, evenly spread and the same each time.

    >>> spread(10, 4), spread(3, 4)
    ([0, 2, 5, 7], [0, 1, 2])
    """
    return [k * count // most for k in range(most)] if count > most else list(range(count))


def _checked(digest: Any) -> str:
    if not isinstance(digest, str):
        check.refuse("hash", digest, "a text")
    return digest


def _hash(pieces: Iterable[Piece]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(memoryview(piece).nbytes.to_bytes(8, "big"))
        digest.update(piece)
    return digest.hexdigest()
