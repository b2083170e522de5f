"""Where a layer's generated numbers come from: encoder, pooling, time, generator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import _has_any_global_hook  # pyright: ignore[reportPrivateUsage]

from metarnn.cells import State, check
from metarnn.hyper.encoders import Encoder, RecurrentEncoder
from metarnn.hyper.generators import Dense, fourier
from metarnn.hyper.watch import Record, note, watched
from metarnn.layers import Recurrent
from metarnn.layers.edges import Inputs, at_end
from metarnn.layers.unroll import Heads, delayed

POOLS = ("last", "mean", "attention")


class Source(nn.Module):
    """d_t = generator([c_t; fourier(t)]).

    What an encoder puts out is brought to mean 0 and variance 1, unless it is a single number; a
    context that is given is read as it is.

    encoder    None where the context is given
    pool       "" for a context a step; "last", "mean" or "attention" for one a sequence
    delay      c_t is made of the inputs up to t - 1, not t
    times      periods of sines of t to read beside c_t, the longest `period` steps long
    """

    def __init__(
        self,
        encoder: Encoder | None,
        generator: nn.Module,
        width: int,
        *,
        pool: str = "",
        delay: bool = False,
        times: int = 0,
        period: float = 1000.0,
        reconstruct: bool = False,
    ) -> None:
        super().__init__()
        self.encoder, self.generator, self.width = encoder, generator, width
        self.pool, self.delay, self.times, self.period = pool, delay, times, period
        self.query = nn.Parameter(torch.zeros(width)) if pool == "attention" else None
        self.decoder = None
        if reconstruct:
            assert encoder is not None
            self.decoder = nn.Linear(width, encoder.input_size)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The widths of what it carries: the encoder's state, its last output, the time."""
        if self.encoder is None or self.pool:
            encoder = ()
        else:
            encoder = (*self.encoder.state_sizes, *((self.width,) if self.delay else ()))
        return (*encoder, *((1,) if self.times else ()))

    @property
    def constant(self) -> bool:
        return bool(self.pool) and not self.times

    def forward(
        self, x: Tensor, state: State, call: Inputs, resets: Tensor | None
    ) -> tuple[Mapping[str, Tensor], State]:
        context = call.context
        begun = state[-1] if self.times else None
        state = state[:-1] if self.times else state
        encoding: Tensor | None = None
        kept: State = ()
        if context is None:
            encoding, context, kept = self._read(x, state, call, resets)
            if self.width > 1:
                context = F.layer_norm(context, context.shape[-1:])
        if begun is not None:
            t, now = _time(begun, len(x), call, resets)
            kept = (*kept, now)
            features = fourier(t, self.times, self.period).to(x.dtype)
            context = context if context.dim() == 3 else context.expand(len(x), *context.shape)
            context = torch.cat([context, features], -1)
        numbers = self.generator(context)
        note(Record(self, x, encoding, numbers, call.alive))
        return numbers, kept

    def heads(self) -> Heads | None:
        """See `layers.unroll.Source`; None where somebody looks at what is computed on the way."""
        encoder, generator = self.encoder, self.generator
        if self.pool or self.delay or self.times or watched() or _has_any_global_hook():
            return None
        if not isinstance(encoder, RecurrentEncoder) or not isinstance(generator, Dense):
            return None
        called = (self, encoder, encoder.layer, generator)
        if generator.hidden is not None or not all(map(_as_made, called)):
            return None
        return Heads(encoder.layer, generator.heads, self.width, self.width > 1)

    def _read(
        self, x: Tensor, state: State, call: Inputs, resets: Tensor | None
    ) -> tuple[Tensor, Tensor, State]:
        """What the encoder makes of x, the context that follows from it, the state."""
        encoder = self.encoder
        assert encoder is not None
        if self.pool:
            if resets is not None:
                check.refuse("resets", "given", "none with one context for a whole sequence")
            zero = tuple(x.new_zeros(x.shape[1], n) for n in encoder.state_sizes)
            encoding, _ = encoder(x, zero, call.lengths, None)
            return encoding, self._pooled(encoding, call), ()
        before = state[-1] if self.delay else None
        state = state[:-1] if self.delay else state
        encoding, kept = encoder(x, state, call.lengths, resets)
        if before is None:
            return encoding, encoding, kept
        context = delayed(encoding, before)
        context = context if resets is None else context.masked_fill(resets, 0)
        return encoding, context, (*kept, at_end(encoding, call.lengths))

    def _pooled(self, encoding: Tensor, call: Inputs) -> Tensor:
        if self.pool == "last":
            return at_end(encoding, call.lengths)
        weight = encoding.new_zeros(*encoding.shape[:2], 1)
        if self.query is not None:
            weight = (encoding @ self.query).unsqueeze(-1) / self.width**0.5
        if call.alive is not None:
            weight = weight.masked_fill(~call.alive, -torch.inf)
        return (weight.softmax(0) * encoding).sum(0)

    def reconstruction(self, record: Record) -> Tensor:
        """How far what the decoder makes of the encoding is from what was encoded."""
        decoder: Any = self.decoder
        error = (decoder(record.encoding) - record.x).square()
        if record.alive is None:
            return error.mean()
        return (error * record.alive).sum() / (record.alive.sum() * error.shape[-1])


# What these compute, unless somebody has put something in its place.
FORWARD: dict[type[nn.Module], Any] = {
    kind: kind.forward for kind in (Source, RecurrentEncoder, Recurrent, Dense)
}


def _as_made(module: nn.Module) -> bool:
    """Whether to call a module is to call its forward, as it is here, and nothing else."""
    kind, own = type(module), module.__dict__
    placed = "forward" in own or own.get("_compiled_call_impl") is not None
    if placed or FORWARD.get(kind) is not kind.forward:
        return False
    before, after = own["_forward_pre_hooks"], own["_forward_hooks"]
    return not (before or after or own["_backward_pre_hooks"] or own["_backward_hooks"])


def _time(start: Tensor, steps: int, call: Inputs, resets: Tensor | None) -> tuple[Tensor, Tensor]:
    """Steps since the beginning or the last reset, [T, B], and at the end; `start` is [B, 1]."""
    t = torch.arange(steps, device=start.device).unsqueeze(1).expand(-1, len(start))
    time = t + start.squeeze(-1)
    if resets is not None:
        last = torch.where(resets.squeeze(-1), t, -1).cummax(0).values
        time = torch.where(last < 0, time, (t - last).to(time.dtype))
    return time, at_end(time.unsqueeze(-1), call.lengths) + 1
