"""What is known of a task, as numbers: the input of a network that writes weights for it.

A descriptor is a module from what is known of N tasks to [N, width]. `fields` says which columns
belong to what, so that it can be told later which of them moves which weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from metarnn.cells import check


class Descriptor(nn.Module):
    """width   how many numbers describe a task
    fields  names of groups of columns, {name: (first, last + 1)}; all together by default
    """

    def __init__(self, width: int, fields: Mapping[str, tuple[int, int]] | None = None) -> None:
        super().__init__()
        self.width = check.size("width", width)
        self.fields = {"all": (0, width)} if fields is None else dict(fields)

    def forward(self, given: Any) -> Tensor:
        """[N, width] from what is known of N tasks."""
        raise NotImplementedError


class Vector(Descriptor):
    """Numbers as they are, [N, width]."""

    def forward(self, given: Any) -> Tensor:
        return checked("descriptor", given, self.width)


class OneHot(Descriptor):
    """Task k of `count` as the k-th unit vector.

    >>> OneHot(3)(torch.tensor([2, 0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """

    def __init__(self, count: int) -> None:
        super().__init__(count, {f"task {k}": (k, k + 1) for k in range(count)})
        self.register_buffer("_rows", torch.eye(count), persistent=False)

    def forward(self, given: Any) -> Tensor:
        rows: Any = self._rows
        return rows[numbered(given, self.width, rows.device)]


class Embedded(Descriptor):
    """A vector of its own for each of `count` tasks, learned."""

    def __init__(self, count: int, width: int = 16) -> None:
        super().__init__(width)
        self.rows = nn.Parameter(torch.randn(count, width))

    def forward(self, given: Any) -> Tensor:
        return self.rows[numbered(given, len(self.rows), self.rows.device)]


class Metadata(Descriptor):
    """Numbers and categories that are known of a task; what is None or not there is missing.

    >>> rows = [{"rate": 1.0, "kind": "a"}, {"rate": 3.0, "kind": "b"}]
    >>> about = Metadata.fit(rows)
    >>> about([{"rate": 3.0, "kind": "a"}, {"kind": "b"}])
    tensor([[1., 1., 1., 0.],
            [0., 0., 0., 1.]])

    Tasks are given as rows, or as columns {name: values}.

    numbers     {name: (mean, standard deviation)}: (value - mean) / std, then 1 if it is known
    categories  {name: possible values}: a unit vector, or zeros
    """

    def __init__(
        self,
        numbers: Mapping[str, tuple[float, float]],
        categories: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self_numbers = {n: (float(m), float(s)) for n, (m, s) in numbers.items()}
        self_categories = {n: tuple(values) for n, values in (categories or {}).items()}
        fields, at = {}, 0
        for name in self_numbers:
            fields[name] = (at, at := at + 2)
        for name, values in self_categories.items():
            fields[name] = (at, at := at + check.size(name, len(values)))
        if both := self_numbers.keys() & self_categories.keys():
            check.refuse("categories", sorted(both), "names that are not among the numbers")
        for name, (mean, std) in self_numbers.items():
            if not (math.isfinite(mean) and math.isfinite(std) and std > 0):
                check.refuse(name, (mean, std), "a mean and a standard deviation above 0")
        super().__init__(at, fields)
        self.numbers, self.categories = self_numbers, self_categories
        self.register_buffer("_like", torch.zeros(()), persistent=False)

    @classmethod
    def fit(cls, rows: Sequence[Mapping[str, Any]]) -> Metadata:
        """What the rows of the training tasks have: texts are categories, the rest numbers."""
        found: dict[str, list[Any]] = {}
        for row in rows:
            for name, value in row.items():
                if value is not None:
                    found.setdefault(name, []).append(value)
        if not found:
            check.refuse("rows", f"{len(rows)} of them", "at least one with something in it")
        categories, numbers = {}, {}
        for name, values in found.items():
            if any(isinstance(value, str) for value in values):
                categories[name] = sorted(set(map(str, values)))
            else:
                column = torch.tensor([_number(name, v) for v in values], dtype=torch.float64)
                std = float(column.std(correction=0))
                numbers[name] = (float(column.mean()), std if std > 0 else 1.0)
        return cls(numbers, categories)

    def forward(self, given: Any) -> Tensor:
        like: Any = self._like
        if isinstance(given, Tensor):
            return checked("descriptor", given, self.width)
        if isinstance(given, Mapping):
            given = _rows(given)
        rows = [self._row(k, row) for k, row in enumerate(listed(given, "rows of metadata"))]
        return torch.tensor(rows, dtype=like.dtype, device=like.device)

    def _row(self, k: int, row: Any) -> list[float]:
        if not isinstance(row, Mapping):
            check.refuse(f"metadata[{k}]", row, "names and values, such as {'rate': 1.0}")
        for name in row:
            if name not in self.fields:
                near = get_close_matches(str(name), self.fields, 1)
                advice = f"Did you mean {near[0]!r}?" if near else ""
                check.refuse(f"metadata[{k}]", name, f"one of {list(self.fields)}", advice)
        found: list[float] = []
        for name, (mean, std) in self.numbers.items():
            value = row.get(name)
            known = value is not None
            found += [(_number(name, value) - mean) / std if known else 0.0, float(known)]
        for name, values in self.categories.items():
            value = row.get(name)
            if value is not None and value not in values:
                advice = "None stands for a value that is missing."
                check.refuse(name, value, f"one of {list(values)}", advice)
            found += [float(value == each) for each in values]
        return found


class TextEncoder(Protocol):
    """Whatever makes vectors of texts: `HashedNgrams`, `MiniLM`, a language model's."""

    @property
    def width(self) -> int: ...

    def __call__(self, texts: Sequence[str]) -> Tensor: ...


class Text(Descriptor):
    """A description in words, through an encoder that is not trained any more.

    Each text is encoded once and kept.
    """

    def __init__(self, encoder: TextEncoder) -> None:
        super().__init__(encoder.width)
        self.encoder = encoder if not isinstance(encoder, nn.Module) else _Hidden(encoder)
        self._known: dict[str, Tensor] = {}
        self.register_buffer("_like", torch.zeros(()), persistent=False)

    def forward(self, given: Any) -> Tensor:
        like: Any = self._like
        if isinstance(given, Tensor):
            return checked("descriptor", given, self.width)
        texts = listed([given] if isinstance(given, str) else given, "texts")
        for k, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip():
                check.refuse(f"texts[{k}]", text, "a text that is not empty")
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if new:
            with torch.no_grad():
                self._known |= zip(new, self.encoder(new).cpu(), strict=True)
        return torch.stack([self._known[text] for text in texts]).to(like)


class _Hidden:
    """A module that is no part of the one that uses it: neither saved with it nor trained."""

    def __init__(self, module: nn.Module) -> None:
        self.call = module.eval()

    def __call__(self, texts: Sequence[str]) -> Tensor:
        return self.call(texts)


class Join(Descriptor):
    """Several descriptors side by side, given by their names.

    >>> both = Join(kind=OneHot(2), size=Vector(3))
    >>> both({"kind": torch.tensor([0, 1]), "size": torch.randn(2, 3)}).shape, both.fields["size"]
    (torch.Size([2, 5]), (2, 5))
    """

    def __init__(self, **parts: Descriptor) -> None:
        fields, at = {}, 0
        for name, part in parts.items():
            for field, (first, last) in part.fields.items():
                fields[name if field == "all" else f"{name}.{field}"] = (at + first, at + last)
            at += part.width
        super().__init__(at, fields)
        self.parts = nn.ModuleDict(parts)

    def forward(self, given: Any) -> Tensor:
        if not isinstance(given, Mapping) or set(given) != set(self.parts):
            found = sorted(given) if isinstance(given, Mapping) else type(given).__name__
            check.refuse("descriptor", found, f"{list(self.parts)}, each with what it describes")
        rows = [part(given[name]) for name, part in self.parts.items()]
        if len({len(row) for row in rows}) > 1:
            sizes = {name: len(row) for name, row in zip(self.parts, rows, strict=True)}
            check.refuse("descriptor", sizes, "as many tasks in each part")
        return torch.cat(rows, -1)


def checked(name: str, given: Any, width: int) -> Tensor:
    """Finite numbers of that width, [N, width]."""
    if not isinstance(given, Tensor) or not given.is_floating_point():
        check.refuse(name, _shown(given), f"a tensor of numbers, [tasks, {width}]")
    if given.dim() != 2 or given.shape[1] != width or not len(given):
        check.refuse(f"{name}.shape", tuple(given.shape), f"[tasks, {width}]")
    finite(name, given)
    return given


def finite(name: str, given: Tensor) -> None:
    if not given.isfinite().all():
        bad = int((~given.isfinite()).sum())
        check.refuse(name, f"{bad} of {given.numel()} numbers NaN or infinite", "finite numbers")


def numbered(given: Any, count: int, device: torch.device) -> Tensor:
    """Numbers of tasks, [N], each below `count`."""
    found = torch.as_tensor(given, device=device)
    if found.dim() != 1 or found.is_floating_point() or not len(found):
        check.refuse("descriptor", _shown(given), "numbers of tasks, [tasks], whole ones")
    if bool(((found < 0) | (found >= count)).any()):
        wrong = next(int(k) for k in found if not 0 <= k < count)
        check.refuse("descriptor", wrong, f"the number of a task, 0 to {count - 1}")
    return found


def listed(given: Any, what: str) -> Sequence[Any]:
    if not isinstance(given, Sequence) or not len(given):
        check.refuse("descriptor", _shown(given), f"a list of {what}, one a task")
    return given


def _rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    lists = {n: v.tolist() if isinstance(v, Tensor) else list(v) for n, v in columns.items()}
    if len({len(values) for values in lists.values()}) != 1:
        sizes = {name: len(values) for name, values in lists.items()}
        check.refuse("metadata", sizes, "columns of one length")
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _number(name: str, value: Any) -> float:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if isinstance(value, str) or not math.isfinite(found):
        check.refuse(name, value, "a finite number", "None stands for a value that is missing.")
    return found


def _shown(given: Any) -> str:
    if isinstance(given, Tensor):
        return f"{str(given.dtype).removeprefix('torch.')} {list(given.shape)}"
    return f"{type(given).__name__} of {len(given)}" if hasattr(given, "__len__") else repr(given)
