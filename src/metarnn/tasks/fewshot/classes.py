"""Few-shot classification of sequences: N-way episodes from a bank of labelled sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from metarnn.cells import check
from metarnn.hyper import Metadata
from metarnn.meta import Episode
from metarnn.tasks.fewshot.family import SPLITS, Reader, SequenceNet, table
from metarnn.tasks.fewshot.images import IMAGES, rows, strokes
from metarnn.tasks.rows import csv_line

MOST = 1_000_000  # steps of a sequence, and numbers of a step
HELD = 0.2  # the share of classes that is for valid, and for test


@dataclass(frozen=True)
class Classes:
    """Classes that were never seen in training, each known from `shots` examples.

    bank    {split: {class: sequences [n, T, inputs]}}; no class is in two splits
    ways    classes of an episode; shots and queries are counted for each of them
    form    how files become sequences, see `from_folder`
    """

    bank: Mapping[str, Mapping[str, Tensor]]
    ways: int = 5
    form: Mapping[str, Any] | None = None
    criterion = "cross_entropy"

    def __post_init__(self) -> None:
        check.size("ways", self.ways, least=2)
        for split, classes in self.bank.items():
            if len(classes) < self.ways:
                found = f"{len(classes)} classes of the {split} split"
                check.refuse("ways", self.ways, f"at most the {found}", "Add classes.")

    @property
    def inputs(self) -> int:
        return next(iter(self.bank["train"].values())).shape[-1]

    @property
    def outputs(self) -> int:
        return self.ways

    def draw(self, split: str, tasks: int, shots: int, queries: int, random: Generator) -> Episode:
        classes = list(self.bank[check.one_of("split", split, self.bank)].items())
        support, query = [], []
        for _ in range(tasks):
            for k in torch.randperm(len(classes), generator=random)[: self.ways].tolist():
                name, found = classes[k]
                if len(found) < shots + queries:
                    have = f"at most {len(found)}, the examples of {name!r}"
                    check.refuse("shots + queries", shots + queries, have)
                chosen = torch.randperm(len(found), generator=random)[: shots + queries]
                support.append(found[chosen[:shots]])
                query.append(found[chosen[shots:]])
        parts = []
        for examples, size in ((support, shots), (query, queries)):
            x = torch.stack(examples).unflatten(0, (tasks, self.ways)).flatten(1, 2)
            y = torch.arange(self.ways).repeat_interleave(size).expand(tasks, -1)
            parts += [x, y]
        return Episode(*parts)

    def network(self, hidden: int, kind: str) -> nn.Module:
        return SequenceNet(self.inputs, hidden, (self.ways,), kind)

    def reads(self, hidden: int, kind: str) -> tuple[nn.Module, int]:
        return Reader(self.inputs, hidden, kind), hidden

    def metadata(self) -> Metadata | None:
        return None

    def known(self, path: Path) -> tuple[Tensor, Tensor]:
        """A folder with a folder for each class."""
        folders = _folders(path)
        if len(folders) != self.ways:
            raise ValueError(f"{path} has {len(folders)} classes: expected {self.ways} folders")
        found = [_read(files, dict(self.form or {})) for files in folders.values()]
        y = torch.arange(self.ways).repeat_interleave(torch.tensor([len(x) for x in found]))
        return torch.cat(found), y

    def asked(self, path: Path) -> tuple[Tensor, Tensor | None]:
        """A file, or a folder of files."""
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        return _read(files, dict(self.form or {})), None

    def shown(self, prediction: Tensor, support: Path) -> list[str]:
        names = list(_folders(support))
        chances = prediction.softmax(-1).max(-1)
        pairs = zip(chances.indices.tolist(), chances.values.tolist(), strict=True)
        return [csv_line([names[k], f"{chance:.4f}"]) for k, chance in pairs]

    def state(self) -> dict[str, Any]:
        return {"form": dict(self.form or {}), "inputs": self.inputs}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], ways: int) -> Classes:
        """For `known` and `asked` alone: without the data."""
        empty = torch.zeros(0, 1, check.size("inputs", state["inputs"], most=MOST))
        form = _checked(state["form"])
        return cls({"train": {str(k): empty for k in range(ways)}}, ways, form)


def deal(names: Sequence[str], seed: int) -> dict[str, list[str]]:
    """Names shared out among the splits, 60/20/20."""
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed)).tolist()
    held = max(round(HELD * len(names)), 1)
    ends = {"train": len(names) - 2 * held, "valid": len(names) - held, "test": len(names)}
    found, at = {}, 0
    for split, end in ends.items():
        found[split] = [names[k] for k in order[at : max(end, at)]]
        at = max(end, at)
    return found


def waves(
    ways: int = 5, classes: int = 100, examples: int = 40, length: int = 32, seed: int = 0
) -> Classes:
    """Classes made up: a random mixture of four harmonics each, shifted in time and noisy."""
    random = torch.Generator().manual_seed(seed)
    mixture = torch.randn(classes, 1, 4, 2, generator=random)
    shift = 0.15 * torch.rand(classes, examples, 1, 1, generator=random)
    t = torch.linspace(0, 1, length).view(-1, 1)
    angle = 2 * math.pi * (t + shift) * torch.arange(1, 5)  # [classes, examples, T, 4]
    parts = mixture[..., 0].unsqueeze(2) * angle.sin() + mixture[..., 1].unsqueeze(2) * angle.cos()
    noise = 0.3 * torch.randn(classes, examples, length, generator=random)
    x = (parts.sum(-1) / 2 + noise).unsqueeze(-1)
    dealt = deal([f"{k}" for k in range(classes)], seed)
    bank = {s: {name: x[int(name)] for name in names} for s, names in dealt.items()}
    return Classes(bank, ways)


def from_folder(
    path: str | Path,
    ways: int = 5,
    *,
    length: int = 0,
    image: str = "rows",
    size: int = 28,
    seed: int = 0,
) -> Classes:
    """A folder with a folder for each class: CSV files, a row a step, or images.

    With folders called train, valid and test on top, these are the splits; else classes are dealt.

    length  steps of a sequence: longer ones are cut, shorter ones begin with zeros, which a last
            column tells from what is real; by default as many as the longest one has
    image   "rows": an image of size × size is a sequence of its rows; "strokes": a path of
            `length` points over its ink
    """
    path = Path(path)
    tops = {p.name for p in path.iterdir() if p.is_dir()} if path.is_dir() else set()
    if set(SPLITS) <= tops:
        found = {split: _folders(path / split) for split in SPLITS}
    else:
        folders = _folders(path)
        dealt = deal(list(folders), seed)
        found = {s: {n: folders[n] for n in names} for s, names in dealt.items()}
    files = [file for classes in found["train"].values() for file in classes]
    form: dict[str, Any] = {"image": "", "size": size, "length": length}
    if files[0].suffix.lower() in IMAGES:
        form["image"] = check.one_of("image", image, ["rows", "strokes"])
        form["length"] = length or 32
    else:
        every = [table(file) for file in files]
        joined = torch.cat(every)
        form["length"] = length or max(len(x) for x in every)
        form["mean"] = joined.mean(0).tolist()
        form["spread"] = joined.std(0).clamp(min=1e-6).tolist()
    bank = {
        split: {name: _read(files, form) for name, files in classes.items()}
        for split, classes in found.items()
    }
    return Classes(bank, ways, form)


def _checked(form: Any) -> dict[str, Any]:
    """How files become sequences, as a file of a run says it."""
    check.one_of("image", form["image"], ["", "rows", "strokes"])
    check.size("size", form["size"], most=MOST)
    check.size("length", form["length"], most=MOST)
    if not form["image"]:
        mean, spread = ([check.number(k, n) for n in form[k]] for k in ("mean", "spread"))
        if not mean or len(mean) != len(spread) or min(spread) <= 0:
            check.refuse("spread", spread[:5], f"{len(mean)} numbers above 0, as many as means")
        form = {**form, "mean": mean, "spread": spread}
    return form


def _folders(path: Path) -> dict[str, list[Path]]:
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is no folder: expected one with a folder for each class")
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    found = {
        p.name: sorted(f for f in p.iterdir() if f.is_file() and not f.name.startswith("."))
        for p in folders
    }
    found = {name: files for name, files in found.items() if files}
    if not found:
        raise ValueError(f"{path} has no classes: expected a folder with files for each class")
    return found


def _read(files: Sequence[Path], form: Mapping[str, Any]) -> Tensor:
    """The sequences of files, [n, T, inputs]."""
    if form["image"]:
        read = rows if form["image"] == "rows" else strokes
        return torch.stack([read(file, form["size"], form["length"]) for file in files])
    mean, spread = torch.tensor(form["mean"]), torch.tensor(form["spread"])
    length = int(form["length"])
    found = torch.zeros(len(files), length, len(mean) + 1)
    for k, file in enumerate(files):
        x = ((table(file, len(mean)) - mean) / spread)[:length]
        found[k, length - len(x) :, :-1] = x
        found[k, length - len(x) :, -1] = 1
    return found
