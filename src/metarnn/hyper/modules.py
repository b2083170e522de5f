"""Modules of torch, and of users, as encoders and as hypernetworks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from metarnn.cells import State, check
from metarnn.hyper.encoder import Encoder
from metarnn.hyper.forms import Number
from metarnn.layers.nested import map_tensors

TRANSFORMERS = (nn.TransformerEncoder, nn.TransformerEncoderLayer)
# What takes an input of two dimensions for one sequence, [T, C], not for a batch.
SEQUENTIAL = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer)
PROBE = (6, 2)  # steps and sequences of the input that a module is tried with


class TorchRecurrent(Encoder):
    """`nn.RNN`, `nn.LSTM` or `nn.GRU`. In two directions it is not causal, and carries no state."""

    def __init__(self, module: nn.RNNBase) -> None:
        directions = 2 if module.bidirectional else 1
        output = module.proj_size or module.hidden_size
        widths = (output, module.hidden_size) if isinstance(module, nn.LSTM) else (output,)
        self.rows, causal = module.num_layers * directions, not module.bidirectional
        sizes = tuple(self.rows * n for n in widths) if causal else ()
        super().__init__(module.input_size, directions * output, sizes, causal)
        self.module, self.streams = module, causal

    def forward(
        self, x: Tensor, state: State, lengths: Tensor | None, resets: Tensor | None
    ) -> tuple[Tensor, State]:
        if resets is None:
            return self._run(x, state, lengths)
        if not self.causal:
            check.refuse("resets", "given", "none where the encoder reads in two directions")
        # A sequence may begin anew at each of these steps: the module runs from one to the next.
        starts = resets.flatten(1).any(1).nonzero().flatten().tolist()
        bounds = sorted({0, len(x), *starts})
        outputs = []
        for first, last in pairwise(bounds):
            anew, left = resets[first], None
            if lengths is not None:
                left = (lengths - first).clamp(0, last - first)
                anew = anew & (left > 0).unsqueeze(-1)
            state = tuple(s.masked_fill(anew, 0) for s in state)
            c, state = self._run(x[first:last], state, left)
            outputs.append(c)
        return torch.cat(outputs), state

    def _run(self, x: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """The module on x [T, B, I], its state [B, rows · n] and what that is at each end."""
        module: Any = self.module
        start: Any = tuple(s.unflatten(-1, (self.rows, -1)).transpose(0, 1) for s in state)
        start = tuple(s.contiguous() for s in start)
        start = None if not start else start if isinstance(module, nn.LSTM) else start[0]
        if lengths is None:
            c, end = module(x.transpose(0, 1) if module.batch_first else x, start)
            c = c.transpose(0, 1) if module.batch_first else c
        else:
            at_least_one = lengths.clamp(min=1).cpu()
            packed = pack_padded_sequence(x, at_least_one, enforce_sorted=False)
            c, end = module(packed, start)
            c, _ = pad_packed_sequence(c, total_length=len(x))
        if not state:
            return c, ()
        parts = end if isinstance(end, tuple) else (end,)
        ends = tuple(part.transpose(0, 1).flatten(1) for part in parts)
        if lengths is None:
            return c, ends
        alive = (lengths > 0).unsqueeze(-1)
        return c, tuple(torch.where(alive, e, s) for e, s in zip(ends, state, strict=True))


class ModuleEncoder(Encoder):
    """Any module from x [T, B, I] to c [T, B, C], or [B, T, …] if it is batch_first.

    Of a tuple the first part counts. Its width, and whether it is causal, are measured where they
    are not given: an output that changes with a later input is not. It begins anew at every call,
    so a sequence cannot come in pieces. To carry a state, write an `Encoder`.

    >>> ModuleEncoder(nn.Linear(3, 5), 3).causal
    True
    >>> layer = nn.TransformerEncoderLayer(8, 2)
    >>> ModuleEncoder(layer, 8).causal
    False
    """

    streams = False

    def __init__(
        self,
        module: nn.Module,
        input_size: int,
        output_size: int | None = None,
        causal: bool | None = None,
    ) -> None:
        super().__init__(input_size, 1, (), False)
        self.module = module
        self.batch_first = any(getattr(part, "batch_first", False) for part in module.modules())
        width, measured = self._measured()
        self.output_size = width if output_size is None else output_size
        self.causal = measured if causal is None else causal

    def forward(
        self, x: Tensor, state: State, lengths: Tensor | None, resets: Tensor | None
    ) -> tuple[Tensor, State]:
        if resets is not None:
            advice = "Write a metarnn.hyper.Encoder, which is told about them."
            check.refuse("resets", "given", "none where the encoder is a plain module", advice)
        padding = None
        if lengths is not None and not self.causal:
            if not isinstance(self.module, TRANSFORMERS):
                expected = "none where the encoder is a plain module that is not causal"
                advice = "It would read padding. Write a metarnn.hyper.Encoder."
                check.refuse("lengths", "given", expected, advice)
            padding = torch.arange(len(x), device=x.device) >= lengths.to(x.device).unsqueeze(1)
        c = self._call(x, padding)
        if c.shape != (*x.shape[:2], self.output_size):
            expected = f"[T, B, {self.output_size}], {(*x.shape[:2], self.output_size)} here"
            check.refuse("encoder(x).shape", tuple(c.shape), expected)
        return c, ()

    def _call(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        module: Any = self.module
        x = x.transpose(0, 1) if self.batch_first else x
        if padding is None:
            c = module(x)
        else:
            # The fast path would leave out the steps after the longest sequence.
            fast = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
            try:
                c = module(x, src_key_padding_mask=padding)
            finally:
                torch.backends.mha.set_fastpath_enabled(fast)
        c = c[0] if isinstance(c, tuple) else c
        if not isinstance(c, Tensor) or c.dim() != 3:
            given = tuple(c.shape) if isinstance(c, Tensor) else type(c).__name__
            check.refuse("encoder(x)", given, "a tensor [T, B, C], or a tuple that begins with one")
        return c.transpose(0, 1) if self.batch_first else c

    def _measured(self) -> tuple[int, bool]:
        """The width of what the module returns, and whether later inputs leave it as it is."""
        module, (steps, batch) = self.module, PROBE
        like = next((w for w in module.parameters() if w.is_floating_point()), torch.empty(0))
        source = torch.Generator().manual_seed(0)
        x = torch.randn(steps, batch, self.input_size, generator=source).to(like)
        later, other = x.clone(), x.clone()
        later[steps // 2 :] += 1
        other[:, 1] += 1
        modes = [(part, part.training) for part in module.modules()]
        module.eval()
        try:
            with torch.no_grad():
                c, after, beside = (self._call(each) for each in (x, later, other))
        except RuntimeError as error:
            expected = f"a module that reads [T, B, {self.input_size}]"
            check.refuse("encoder", f"{type(module).__name__}: {error}", expected)
        finally:
            for part, training in modes:
                part.training = training
        if not _same(c[:, 0], beside[:, 0]):
            expected = "one that reads each sequence of a batch by itself"
            check.refuse("encoder", type(module).__name__, expected, "Is it batch_first?")
        return c.shape[-1], _same(c[: steps // 2], after[: steps // 2])


def _same(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first, second, rtol=1e-4, atol=1e-5, equal_nan=True)


class ModuleGenerator(nn.Module):
    """Any module as a hypernetwork: from contexts [N, C] to rows by name, or to one flat vector.

    A flat vector has all rows one after the other, in the order of `numbers`. Of a tuple the first
    part counts. A module that would read a batch as time is given a sequence of one step.
    """

    def __init__(self, module: nn.Module, context: int, numbers: Mapping[str, Number]) -> None:
        super().__init__()
        self.module, self.context, self.numbers = module, context, dict(numbers)
        parts = list(module.modules())
        self.sequential = any(isinstance(part, SEQUENTIAL) for part in parts)
        self.batch_first = any(getattr(part, "batch_first", False) for part in parts)

    def forward(self, context: Tensor) -> dict[str, Tensor]:
        lead = context.shape[:-1]
        rows = context.reshape(-1, context.shape[-1])
        if self.sequential:
            time = 1 if self.batch_first else 0
            values = _first(self.module(rows.unsqueeze(time)))
            values = map_tensors(lambda value: value.squeeze(time), values)
        else:
            values = _first(self.module(rows))
        if isinstance(values, Tensor):
            widths = [number.width for number in self.numbers.values()]
            if values.shape != (len(rows), sum(widths)):
                expected = f"[N, {sum(widths)}], all that is generated for each of N contexts"
                check.refuse("generator(context).shape", tuple(values.shape), expected)
            values = dict(zip(self.numbers, values.split(widths, -1), strict=True))
        elif not isinstance(values, Mapping) or values.keys() != self.numbers.keys():
            given = sorted(values) if isinstance(values, Mapping) else type(values).__name__
            expected = f"a tensor, or rows by the names {list(self.numbers)}"
            check.refuse("generator(context)", given, expected)
        return {name: row.reshape(*lead, row.shape[-1]) for name, row in values.items()}


def _first(values: Any) -> Any:
    return values[0] if isinstance(values, tuple) else values
