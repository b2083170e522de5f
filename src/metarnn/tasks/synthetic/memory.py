"""Problems of memory: what to keep, what to ignore, when to begin anew."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

SYMBOLS = 8
NOTHING = -1  # where no answer is asked for

Drawn = tuple[Tensor, Tensor]


def recall(length: int, batch: int, generator: torch.Generator) -> Drawn:
    """Delayed recall: one of 8 symbols at the first step, then blanks; at the end, which was it?"""
    symbol = torch.randint(SYMBOLS, (batch,), generator=generator)
    x = torch.zeros(length, batch, SYMBOLS)
    x[0] = one_hot(symbol, SYMBOLS).float()
    return x, _at_end(length, symbol)


def early(length: int, batch: int, generator: torch.Generator) -> Drawn:
    """An early token that decides: the first of many that look alike is the answer at the end."""
    tokens = torch.randint(SYMBOLS, (length, batch), generator=generator)
    x = torch.cat([one_hot(tokens, SYMBOLS).float(), torch.zeros(length, batch, 1)], -1)
    x[0, :, -1] = 1
    return x, _at_end(length, tokens[0])


def noise(length: int, batch: int, generator: torch.Generator) -> Drawn:
    """Long stretches of noise to ignore: numbers at every step, of which a mark says that three
    are bits; the answer at the end is those three, as a number from 0 to 7."""
    x = torch.randn(length, batch, 2, generator=generator)
    x[..., 1] = 0
    places = torch.rand(length, batch, generator=generator).argsort(0)[:3].sort(0).values
    bits = torch.randint(2, (3, batch), generator=generator)
    x[..., 0].scatter_(0, places, 2.0 * bits - 1)
    x[..., 1].scatter_(0, places, 1.0)
    return x, _at_end(length, bits[0] + 2 * bits[1] + 4 * bits[2])


def breaks(length: int, batch: int, generator: torch.Generator) -> Drawn:
    """A sequence that breaks off and starts anew: at every step, how many ones since the last
    break, modulo 4?"""
    ones = torch.randint(2, (length, batch), generator=generator)
    broken = torch.rand(length, batch, generator=generator) < 0.05
    total = (ones * ~broken).cumsum(0)
    before = torch.where(broken, total, 0).cummax(0).values  # ones up to the last break
    x = torch.stack([ones * ~broken, broken], -1).float()
    return x, (total - before) % 4


def parity(length: int, batch: int, generator: torch.Generator) -> Drawn:
    """At every step, is the number of ones so far odd?"""
    bits = torch.randint(2, (length, batch), generator=generator)
    return bits.unsqueeze(-1).float(), bits.cumsum(0) % 2


def _at_end(length: int, answer: Tensor) -> Tensor:
    y = torch.full((length, len(answer)), NOTHING)
    y[-1] = answer
    return y
