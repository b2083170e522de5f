"""Programs that each have a segment of time, and tell those after them what it does to a state.

A segment turns a state s into A s + D. Segments come in groups of TOGETHER. A program reads the
state after the group before its own, which the last program of that group tells, and A and D of the
segments between. Who reads what is fixed, and so are all bits of the result.

A number that is told is its own signal: -1, as an integer, is a NaN that no computation has as its
result. A program waits only for programs of lower numbers, which a GPU starts first: they need not
all run at the same time. One that waits in vain (for 20 s) goes on with that NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metarnn.engines.triton.text import indented

TOGETHER = 16
AT_ONCE = 4  # segments of which a program reads at once


def untold(states: int, width: int, segments: int, batch: int, device: torch.device) -> Tensor:
    """Room for all that is told."""
    rows = states * (2 * segments + -(-segments // TOGETHER)) * batch
    return torch.full((rows * width,), -1, dtype=torch.int32, device=device)


def tell(states: int, width: int) -> list[str]:
    """Lines that tell A{i} and D{i} of a segment and make s{i} the state that it begins with."""
    lines = [
        "segments = (steps + span - 1) // span",
        f"groups = (segments + {TOGETHER - 1}) // {TOGETHER}",
        f"row = B * {width}",
        f"does = told + b * {width} + u",
        f"after = does + {2 * states} * segments * row",
        f"group = segment // {TOGETHER}",
        f"first = group * {TOGETHER}",
    ]
    for i in range(states):
        for j, name in enumerate("AD"):
            lines.append(_store(f"does + ({2 * i + j} * segments + segment) * row", f"{name}{i}"))
    return [*lines, *_between(states), *_begin(states)]


def _between(states: int) -> list[str]:
    """What the segments of a group do that come before this one, P{i} s + E{i}: AT_ONCE a look."""
    lines = [f"P{i} = tl.full((UNITS,), 1.0, tl.float32)" for i in range(states)]
    lines += [f"E{i} = tl.zeros((UNITS,), tl.float32)" for i in range(states)]
    places: dict[str, tuple[str, str]] = {}
    combine: list[str] = []
    for j in range(AT_ONCE):
        there = f"k + {j} < segment"
        for i in range(states):
            A, D = f"A{i}_{j}", f"D{i}_{j}"
            for part, name in ((2 * i, A), (2 * i + 1, D)):
                places[name] = f"does + ({part} * segments + k + {j}) * row", there
            after = f"{_float(A)} * E{i} + {_float(D)}"
            combine += [
                f"E{i} = tl.where({there}, {after}, E{i})",
                f"P{i} = tl.where({there}, {_float(A)} * P{i}, P{i})",
            ]
    loop = indented([*_await(places), *combine])
    return [*lines, f"for k in range(first, segment, {AT_ONCE}):", *loop]


def _begin(states: int) -> list[str]:
    """The state that a segment begins with; the last of a group tells what comes after it."""
    lines = _await(
        {f"G{i}": (f"after + ({i} * groups + group - 1) * row", "group > 0") for i in range(states)}
    )
    for i in range(states):
        lines.append(f"s{i} = P{i} * tl.where(group > 0, {_float(f'G{i}')}, s{i}) + E{i}")
    lines.append(f"if segment == first + {TOGETHER - 1}:")
    for i in range(states):
        lines.append(
            f"    {_store(f'after + ({i} * groups + group) * row', f'A{i} * s{i} + D{i}')}"
        )
    return lines


def _await(places: dict[str, tuple[str, str]]) -> list[str]:
    """Read rows, by name: where they are and on what condition; again until all are told."""
    look = [
        f"{name} = tl.load({place}, mask=mu & ({there}), other=0, volatile=True)"
        for name, (place, there) in places.items()
    ]
    untold = " | ".join(f"({name} == -1)" for name in places)
    look.append(f"absent = tl.max(({untold}).to(tl.int32), 0)")
    again = ["while (absent > 0) & (looks < PATIENCE):", *indented([*look, "looks += 1"])]
    return [*look, "looks = 0", *again]


def _store(place: str, value: str) -> str:
    return f"tl.store({place}, ({value}).to(tl.int32, bitcast=True), mask=mu)"


def _float(name: str) -> str:
    return f"{name}.to(tl.float32, bitcast=True)"
