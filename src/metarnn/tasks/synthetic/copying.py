"""The copy problem: repeat, after a delay, the symbols shown at the start."""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor

from metarnn.cells.check import size


def copying(
    delay: int,
    batch: int,
    *,
    symbols: int = 8,
    items: int = 10,
    generator: torch.Generator | None = None,
) -> tuple[Int64[Tensor, "T B"], Int64[Tensor, "T B"]]:
    """Draw a batch of the copy problem (Hochreiter & Schmidhuber 1997; Arjovsky et al. 2016).

    Class 0 is blank, classes 1 … symbols carry the message, class symbols + 1 says "recall". With
    two items (a, b), a delay of 4 and T = delay + 2·items steps:

        x:  a b · · · R · ·
        y:  · · · · · · a b

    A model that remembers nothing does best by answering blank until the recall, which costs
    nothing, and then every symbol with probability 1/symbols. Its cross-entropy, the mean over all
    T steps, is

        items · ln(symbols) / T

    Args:
        delay: steps from the last item shown to the first one asked for; the last of them shows
            the recall mark, hence at least 1.
        batch: number of sequences B.
        symbols: size of the message's alphabet, at least 2.
        items: length of the message.
        generator: source of randomness; the tensors are made on its device.

    Returns:
        x and y of shape [T, B]. x has symbols + 2 classes; y uses the first symbols + 1 of them.

    Example:
        >>> x, y = copying(50, 32)
        >>> x.shape, y.shape, int(x.max())
        (torch.Size([70, 32]), torch.Size([70, 32]), 9)
    """
    size("delay", delay)
    size("batch", batch)
    size("symbols", symbols, least=2)
    size("items", items)
    device = generator.device if generator is not None else None

    message = torch.randint(1, symbols + 1, (items, batch), generator=generator, device=device)
    x = torch.zeros(delay + 2 * items, batch, dtype=torch.int64, device=device)
    y = torch.zeros_like(x)
    x[:items] = message
    x[-items - 1] = symbols + 1
    y[-items:] = message
    return x, y
