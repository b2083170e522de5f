"""aⁿbⁿ: count the a's to know when the b's end."""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor

from metarnn.cells.check import size


def counting(
    length: int,
    batch: int,
    *,
    most: int = 10,
    generator: torch.Generator | None = None,
) -> tuple[Int64[Tensor, "T B"], Int64[Tensor, "T B"]]:
    """Draw streams of words aⁿbⁿ, to be predicted symbol by symbol (Gers & Schmidhuber 2001).

    Class 0 is a, 1 is b, 2 ends a word; each n is drawn uniformly from 1 … most. With n = 2, 1:

        x:  $ a a b b $ a b
        y:  a a b b $ a b $

    Whoever counts is sure of every symbol after the first b of a word; before it, nobody can be.

    Args:
        length: number of steps T.
        batch: number of sequences B.
        most: the largest n.
        generator: source of randomness; the tensors are made on its device.

    Returns:
        x and y of shape [T, B].

    Example:
        >>> x, y = counting(8, 1, generator=torch.Generator().manual_seed(0))
        >>> "".join("ab$"[k] for k in y.flatten())
        'aaaaabbb'
    """
    size("length", length)
    size("batch", batch)
    size("most", most)
    device = generator.device if generator is not None else None
    # Words have at least three symbols, so this many always fill a stream.
    words = -(-length // 3)
    n = torch.randint(1, most + 1, (words, batch), generator=generator, device=device)
    ends = (2 * n + 1).cumsum(0)
    step = torch.arange(length, device=device).unsqueeze(1).expand(-1, batch).contiguous()
    word = torch.searchsorted(ends.T.contiguous(), step.T.contiguous(), right=True).T
    own = n.gather(0, word)
    within = step - (ends.gather(0, word) - 2 * own - 1)
    y = (within >= own).long() + (within == 2 * own).long()
    first = torch.full_like(y[:1], 2)
    return torch.cat([first, y[:-1]]), y
