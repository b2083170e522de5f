"""The training examples cut in two, for what must not be learned from the same examples."""

from __future__ import annotations

from metarnn.cells import check
from metarnn.tasks.classification.examples import Dataset, divided


def parted(data: Dataset, share: float, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Two datasets of one: the first trains on some of the training examples and has others, of
    this share, as `valid`; the second trains on those and has `valid` as before.

    >>> from metarnn.tasks.classification import load
    >>> first, second = parted(load("digits"), 0.25)
    >>> len(first["train"]), len(first["valid"]) == len(second["train"])
    (1620, True)

    Where there are too few to have set a `valid` aside, it is as large a share of the training
    examples, which are then in neither of the two other parts.
    """
    if not 0 < share < 1:
        check.refuse("share", share, "a number between 0 and 1")
    kind, train = data.scheme.kind, data["train"]
    valid = data.parts.get("valid")
    if valid is None:
        train, valid = divided(train, kind, share, seed + 2)
    begin, end = divided(train, kind, share, seed + 3)
    for name, part in {"the structure": end, "choosing the winner": valid}.items():
        if not len(part):
            few = f"{len(data['train'])} training examples"
            check.refuse("data", few, f"more: none is left for {name}")
    first = Dataset(data.scheme, {"train": begin, "valid": end})
    return first, Dataset(data.scheme, {"train": end, "valid": valid})
