"""A cell that sees past inputs (QRNN) has them stacked for it, and carried between calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from metarnn.engines.autograd import higher_order
from metarnn.engines.cpu.memory import allocate
from metarnn.engines.modes import transformed, watched


def stack(
    x: Tensor, past: Tensor, window: int, lengths: Tensor | None, resets: Tensor | None
) -> tuple[Tensor, Tensor]:
    """[x_{t-w+1}; …; x_t] for each t, and the w - 1 inputs that the next call needs.

    x: [T, B, I], past: [B, (w-1) I] -> [T, B, w I], [B, (w-1) I]. Inputs from before a reset
    [T, B, 1] read as zero.
    """
    steps, batch, width = x.shape
    before = window - 1
    earlier = past.reshape(batch, before, width).transpose(0, 1)
    if resets is None and lengths is None and steps > before:  # without looking up rows one by one
        # A copy, not a part of x: who writes to a state that was returned means the state alone.
        kept = torch.cat([*x[-before:]], -1)
        if not torch.compiler.is_compiling() and _plain(x):
            return _Stacked.apply(x, earlier), kept  # type: ignore[return-value]
        late = [torch.cat([earlier[-k:], x[: steps - k]]) for k in range(before, 0, -1)]
        return torch.cat([*late, x], -1), kept
    x = torch.cat([earlier, x])  # [w-1+T, B, I]
    if resets is None:
        segment = None
    else:
        segment = torch.cat([resets.new_zeros(before, batch, 1), resets]).cumsum(0)

    def at(rows: Tensor, now: Tensor) -> Tensor:
        """Rows [n, B] of x, zero where a reset lies between them and `now` [n, B]."""
        found = x.gather(0, rows.unsqueeze(-1).expand(-1, -1, width))
        if segment is None:
            return found
        same = segment.gather(0, rows.unsqueeze(-1)) == segment.gather(0, now.unsqueeze(-1))
        return found.masked_fill(~same, 0)

    now = torch.arange(before, before + steps, device=x.device).unsqueeze(1).expand(-1, batch)
    stacked = torch.cat([at(now - k, now) for k in range(before, -1, -1)], -1)
    end = now[-1] if lengths is None else lengths + before - 1  # [B], the last input of each
    end = end.unsqueeze(0)
    kept = torch.cat([at(end - k, end) for k in range(before - 1, -1, -1)], -1)
    return stacked, kept.squeeze(0)


class _Stacked(torch.autograd.Function):
    """What is stacked of x [T, B, I] and the w - 1 inputs before it, each number written once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, earlier: Tensor) -> Tensor:
        steps, batch, width = x.shape
        ctx.before = before = len(earlier)
        made = allocate((steps, batch, (before + 1) * width), x.dtype, x.device)
        for late, part in zip(range(before, 0, -1), made.split(width, -1), strict=False):
            part[late:] = x[: steps - late]
            part[:late] = earlier[before - late :]
        made[..., before * width :] = x
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,), before, steps = grads, ctx.before, len(grads[0])
        *late, dx = grad.split(grad.shape[-1] // (before + 1), -1)
        delays = range(before, 0, -1)
        firsts = [part[:k] for k, part in zip(delays, late, strict=True)]
        earlier = sum(pad(first, (0, 0, 0, 0, before - len(first), 0)) for first in firsts)
        if higher_order(grads):
            for k, part in zip(delays, late, strict=True):
                dx = dx + pad(part[k:], (0, 0, 0, 0, 0, k))
            return dx, earlier
        dx = allocate(dx.shape, dx.dtype, dx.device).copy_(dx)
        for k, part in zip(delays, late, strict=True):
            dx[: steps - k] += part[k:]
        return dx, earlier


def _plain(x: Tensor) -> bool:
    """Whether nobody looks at how x is stacked, only at what comes out."""
    there = type(x) is Tensor and (x.is_cpu or x.is_cuda)
    return there and not transformed() and not watched(x.device.type)
