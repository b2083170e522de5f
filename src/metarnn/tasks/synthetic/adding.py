"""The adding problem: remember two marked numbers and answer with their sum."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from metarnn.cells.check import size


def adding(
    length: int, batch: int, *, generator: torch.Generator | None = None
) -> tuple[Float[Tensor, "T B 2"], Float[Tensor, "B 1"]]:
    """Draw a batch of the adding problem (Hochreiter & Schmidhuber 1997; Le et al. 2015).

    Each step shows a number u_t ~ U[0, 1] and a mark m_t ∈ {0, 1}. Exactly two steps a < b are
    marked, one in each half of the sequence, and the answer is y = u_a + u_b.

    A model that remembers nothing does best by always answering E[y] = 1/2 + 1/2 = 1. Its mean
    squared error is then the variance of y, where u_a and u_b are independent:

        MSE = Var(u_a) + Var(u_b) = 1/12 + 1/12 = 1/6 ≈ 0.1667

    A mean squared error well below 1/6 therefore shows that something was remembered.

    Args:
        length: number of steps T, at least 2.
        batch: number of sequences B.
        generator: source of randomness; the tensors are made on its device.

    Returns:
        x of shape [T, B, 2], numbers in `x[..., 0]` and marks in `x[..., 1]`; y of shape [B, 1].

    Example:
        >>> x, y = adding(100, 32)
        >>> x.shape, y.shape
        (torch.Size([100, 32, 2]), torch.Size([32, 1]))
    """
    size("length", length, least=2)
    size("batch", batch)
    device = generator.device if generator is not None else None
    half = length // 2

    numbers = torch.rand(length, batch, generator=generator, device=device)
    first = torch.randint(half, (1, batch), generator=generator, device=device)
    second = torch.randint(half, length, (1, batch), generator=generator, device=device)
    marked = torch.cat([first, second])

    marks = torch.zeros_like(numbers).scatter_(0, marked, 1.0)
    y = numbers.gather(0, marked).sum(0).unsqueeze(-1)
    return torch.stack([numbers, marks], dim=-1), y
