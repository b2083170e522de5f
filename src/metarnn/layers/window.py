"""A cell that sees past inputs (QRNN) has them stacked for it, and carried between calls."""

from __future__ import annotations

import torch
from torch import Tensor


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
        # split, not slices: its gradient is one concatenation.
        late = [torch.cat([earlier[-k:], x.split([steps - k, k])[0]]) for k in range(before, 0, -1)]
        return torch.cat([*late, x], -1), x[-before:].transpose(0, 1).reshape(batch, before * width)
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
