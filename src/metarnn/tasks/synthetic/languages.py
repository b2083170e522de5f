"""Formal languages: is a string one of them? And binary addition."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from metarnn.cells.check import size
from metarnn.tasks.synthetic.memory import NOTHING, Drawn

PAIRS = 2


def counted(letters: int, length: int, batch: int, generator: torch.Generator) -> Drawn:
    """aⁿbⁿ, aⁿbⁿcⁿ, …: blocks of letters, of equal length in half of the strings; whether they are
    is asked at the end mark."""
    size("length", length, least=letters + 2)
    most = max((length - 1) // letters - 1, 1)
    n = torch.randint(1, most + 1, (1, batch), generator=generator).expand(letters, batch).clone()
    wrong = torch.rand(batch, generator=generator) < 0.5
    which = torch.randint(letters, (batch,), generator=generator)
    by = torch.where(torch.rand(batch, generator=generator) < 0.5, -1, 1)
    columns = torch.arange(batch)
    by = torch.where(n[which, columns] + by < 1, 1, by)
    n[which, columns] += torch.where(wrong, by, 0)
    ends = n.cumsum(0)
    t = torch.arange(length).unsqueeze(1)
    letter = (t.unsqueeze(0) >= ends.unsqueeze(1)).sum(0)  # `letters` from the end on: the mark
    x = one_hot(letter, letters + 1).float()
    after = t > ends[-1]
    y = torch.where(t == ends[-1], (~wrong).long(), NOTHING)
    return x.masked_fill(after.unsqueeze(-1), 0), y


def anbn(length: int, batch: int, generator: torch.Generator) -> Drawn:
    return counted(2, length, batch, generator)


def anbncn(length: int, batch: int, generator: torch.Generator) -> Drawn:
    return counted(3, length, batch, generator)


def dyck(length: int, batch: int, generator: torch.Generator) -> Drawn:
    """Dyck-2: well-nested brackets of two kinds; at every step, which bracket would close the
    innermost that is open, or none?"""
    opens = torch.rand(length, batch, generator=generator)
    kinds = torch.randint(PAIRS, (length, batch), generator=generator)
    tokens, answers = torch.empty(length, batch).long(), torch.empty(length, batch).long()
    for b in range(batch):
        stack: list[int] = []
        for t in range(length):
            if not stack or (opens[t, b] < 0.5 and len(stack) < 8):
                stack.append(int(kinds[t, b]))
                tokens[t, b] = stack[-1]
            else:
                tokens[t, b] = PAIRS + stack.pop()
            answers[t, b] = stack[-1] if stack else PAIRS
    return one_hot(tokens, 2 * PAIRS).float(), answers


def addition(length: int, batch: int, generator: torch.Generator) -> Drawn:
    """Two binary numbers, the lowest bits first; at every step, the bit of their sum."""
    a, b = torch.randint(2, (2, length, batch), generator=generator)
    total, carry = torch.empty_like(a), torch.zeros(batch, dtype=torch.long)
    for t in range(length):
        whole = a[t] + b[t] + carry
        total[t], carry = whole % 2, whole // 2
    return torch.stack([a, b], -1).float(), total


def is_nested(tokens: Tensor) -> bool:
    """Whether brackets [T] close in the order in which they must, some perhaps still open."""
    stack: list[int] = []
    for token in tokens.tolist():
        if token < PAIRS:
            stack.append(token)
        elif not stack or stack.pop() != token - PAIRS:
            return False
    return True
