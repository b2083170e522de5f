"""Programs that each have a segment of time, and tell those after them what it does to a state.

A program has ROWS parts of its segment beside each other, one for each of its warps. A part turns a
state s into A s + D; what all parts up to each of them do, a scan over the rows tells. Programs of
segments one after the other are groups of ROWS · LOOKS. A program tells what its segment does; the
last one of a group tells the state after it. To know the state that its segment begins with, a
program reads the state after the group before its own and what the segments between do, LOOKS of
them in each row, and scans these. Who reads what is fixed, and so are all bits of the result.

A and D are one number of 64 bits, which is its own signal: -1 is a pair of NaNs that no computation
has as its result. A program waits only for programs of lower numbers, which a GPU starts first:
they need not all run at the same time. One that waits in vain (for 20 s) goes on with NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metarnn.engines.triton.text import indented

ROWS = 4
MOST_LOOKS = 4
NOTHING = 0x3F800000 << 32  # what does nothing to a state: A = 1, D = 0


def looks(segments: int) -> int:
    """LOOKS for so many segments: few are less to read; many are fewer states, one by one."""
    return 2 if segments <= 64 else MOST_LOOKS


def untold(states: int, width: int, segments: int, batch: int, device: torch.device) -> Tensor:
    """Room for all that is told."""
    rows = states * batch * (segments + -(-segments // (ROWS * looks(segments))))
    return torch.full((rows * width,), -1, dtype=torch.int64, device=device)


def look(states: int, width: int) -> list[str]:
    """Lines that read what was told so far: early, since it takes a while."""
    lines = [
        "segments = (steps + span - 1) // span",
        "SIZE: tl.constexpr = ROWS * LOOKS",
        "group = segment // SIZE",
        f"row = B * {width}",
        "before = group * SIZE + q * LOOKS - 1",
        "from0 = tl.where(q == 0, segments + group - 1, before)",
        "there0 = mu & tl.where(q == 0, group > 0, before < segment)",
    ]
    for k in range(1, MOST_LOOKS):
        there = f"there{k} = mu & (from{k} < segment)"
        lines += _if_looked(k, [f"from{k} = before + {k}", there])
    for i in range(states):
        first = f"{i} * (segments + (segments + SIZE - 1) // SIZE) * row"
        lines += [f"told{i} = told + {first} + b * {width} + u", *_look(i)]
    return lines


def tell(states: int, forgets: bool) -> list[str]:
    """Lines that tell A{i} and D{i} of all rows and make s{i} the state that each begins with.

    A state that a step `forgets` may be NaN, and is gone then: see `prelude.onward`.
    """
    then = "then_forgetting" if forgets else "then"
    and_before = "and_before_forgetting" if forgets else "and_before"
    lines = [
        "last = mu & (q == ROWS - 1)",
        "one = tl.full((ROWS, UNITS), 1.0, tl.float32)",
        "none = tl.zeros((ROWS, UNITS), tl.float32)",
    ]
    for i in range(states):
        found = f"(A{i}, D{i}, one, none), 0, {and_before}"
        lines += [
            f"A{i}, D{i}, P{i}, E{i} = tl.associative_scan({found})",
            f"tl.store(told{i} + segment * row, {_pair(f'A{i}', f'D{i}')}, mask=last)",
        ]
    for i in range(states):
        lines += [*_wait(i), *_begin(i, then, forgets)]
    return lines


def _look(i: int) -> list[str]:
    lines: list[str] = []
    for k in range(MOST_LOOKS):
        place = f"told{i} + from{k} * row, mask=there{k}, other={NOTHING}, volatile=True"
        lines += _if_looked(k, [f"v{i}_{k} = tl.load({place})"])
    return lines


def _wait(i: int) -> list[str]:
    """Look again until all is told."""
    check = [f"untold = v{i}_0 == -1"]
    for k in range(1, MOST_LOOKS):
        check += _if_looked(k, [f"untold = untold | (v{i}_{k} == -1)"])
    check.append("absent = tl.max(tl.max(untold.to(tl.int32), 1), 0)")
    again = indented([*_look(i), *check, "looks += 1"])
    return [*check, "looks = 0", "while (absent > 0) & (looks < PATIENCE):", *again]


def _begin(i: int, then: str, forgets: bool) -> list[str]:
    """The state that a segment begins with, and what the last of a group tells."""
    lines = [
        f"a = tl.where((q == 0) & (group == 0), 0.0, {_float(f'v{i}_0 >> 32')})",
        f"d = tl.where((q == 0) & (group == 0), s{i}, {_float(f'v{i}_0')})",
    ]
    for k in range(1, MOST_LOOKS):
        more = f"a, d = {then}(a, d, {_float(f'v{i}_{k} >> 32')}, {_float(f'v{i}_{k}')})"
        lines += _if_looked(k, [more])
    end = _pair("none", f"onward(A{i}, s{i}, D{i}, {forgets})")
    return [
        *lines,
        f"a, d = tl.associative_scan((a, d), 0, {then})",
        f"s{i} = tl.sum(tl.where(q == ROWS - 1, d, 0.0), 0)[None, :]",
        "if segment == (group + 1) * SIZE - 1:",
        f"    tl.store(told{i} + (segments + group) * row, {end}, mask=last)",
        f"s{i} = onward(P{i}, s{i}, E{i}, {forgets})",
    ]


def _if_looked(k: int, lines: list[str]) -> list[str]:
    return [f"if LOOKS > {k}:", *indented(lines)] if k else lines


def _pair(a: str, d: str) -> str:
    high = f"({a}).to(tl.int32, bitcast=True).to(tl.int64) << 32"
    return f"({high}) | ({d}).to(tl.uint32, bitcast=True).to(tl.int64)"


def _float(pair: str) -> str:
    return f"({pair}).to(tl.int32).to(tl.float32, bitcast=True)"
