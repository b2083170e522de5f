"""Layers by the name of their cell. LSTM, GRU and RNN take the place of torch.nn's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor

from metarnn import cells
from metarnn.cells import Theta, check
from metarnn.layers.dropout import Masks
from metarnn.layers.options import Extras, Options
from metarnn.layers.recurrent import Recurrent
from metarnn.layers.stack import StackLayer, run_layers
from metarnn.layers.unroll import RunOptions, delayed

Pointwise = str | Callable[[Tensor], Tensor]


class _Torch(Recurrent):
    """What torch.nn's recurrent modules have beside the constructor: names of arguments, habits."""

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  torch.nn's names
        self, input: Any = None, hx: Any = None, **arguments: Any
    ) -> tuple[Any, Any]:
        return super().forward(input, hx, **arguments)

    @property
    def all_weights(self) -> list[list[Tensor]]:
        return [list(self.weights(*row).values()) for row in self.rows()]

    def flatten_parameters(self) -> None:
        """Nothing to do: weights stay ordinary parameters."""


class LSTM(_Torch):
    """`torch.nn.LSTM`, with the options of `cells.LSTM` and `Recurrent` beside its own."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        peephole: bool = False,
        coupled: bool = False,
        layer_norm: bool = False,
        forget_bias: float = 1.0,
        **extras: Unpack[Extras],
    ) -> None:
        cell = cells.LSTM(
            input_size, hidden_size, proj_size, bias, peephole, coupled, layer_norm, forget_bias
        )
        super().__init__(
            cell,
            num_layers,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
            **extras,
        )
        self.bias, self.proj_size = bias, proj_size


class GRU(_Torch):
    """`torch.nn.GRU`, with the options of `cells.GRU` and `Recurrent` beside its own."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        reset: str = "after",
        layer_norm: bool = False,
        **extras: Unpack[Extras],
    ) -> None:
        super().__init__(
            cells.GRU(input_size, hidden_size, bias, reset, layer_norm),
            num_layers,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
            **extras,
        )
        self.bias = bias


class RNN(_Torch):
    """`torch.nn.RNN` (the Elman unit), with any nonlinearity and the options of `Recurrent`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: Pointwise = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **extras: Unpack[Extras],
    ) -> None:
        super().__init__(
            cells.Elman(input_size, hidden_size, nonlinearity, bias),
            num_layers,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
            **extras,
        )
        self.bias, self.nonlinearity = bias, nonlinearity


class Jordan(Recurrent):
    """A layer of `cells.Jordan`: recurrence from the output, of width `outputs`, alone."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        outputs: int,
        num_layers: int = 1,
        *,
        nonlinearity: Pointwise = "tanh",
        output_nonlinearity: Pointwise = "identity",
        bias: bool = True,
        **options: Unpack[Options],
    ) -> None:
        cell = cells.Jordan(
            input_size, hidden_size, outputs, nonlinearity, output_nonlinearity, bias
        )
        super().__init__(cell, num_layers, **options)


class QRNN(Recurrent):
    """Layers of `cells.QRNN`. State: c, and with a window the inputs that the next call needs."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        window: int = 2,
        pooling: str = "fo",
        bias: bool = True,
        **options: Unpack[Options],
    ) -> None:
        cell = cells.QRNN(input_size, hidden_size, window, pooling, bias)
        super().__init__(cell, num_layers, **options)


class SRU(Recurrent):
    """Layers of `cells.SRU`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        version: int = 1,
        highway: bool = True,
        activation: str = "identity",
        rescale: bool = True,
        highway_bias: float = 0.0,
        bias: bool = True,
        **options: Unpack[Options],
    ) -> None:
        cell = cells.SRU(
            input_size, hidden_size, version, highway, activation, rescale, highway_bias, bias
        )
        super().__init__(cell, num_layers, **options)


class MinGRU(Recurrent):
    """Layers of `cells.MinGRU`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(cells.MinGRU(input_size, hidden_size, bias), num_layers, **options)


class MinLSTM(Recurrent):
    """Layers of `cells.MinLSTM`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(cells.MinLSTM(input_size, hidden_size, bias), num_layers, **options)


class ONLSTM(Recurrent):
    """Layers of `cells.ONLSTM`; `levels` tells what each step erased and wrote."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        chunk: int = 1,
        bias: bool = True,
        forget_bias: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        cell = cells.ONLSTM(input_size, hidden_size, chunk, bias, forget_bias)
        super().__init__(cell, num_layers, **options)

    def levels(
        self, x: Any, state: Any = None, *, lengths: Any = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The levels (d_f, d_i) of each step, [layers, T, B] each, computed without dropout.

        d_f tells how far up a step erased the history, so a high one marks the beginning of a
        constituent: `report.tree` makes a tree over a sentence of it. See `cells.ONLSTM.levels`.
        """
        if self.bidirectional or self.feedback:
            check.refuse("levels", "of this layer", "one direction and no feedback")
        call, parts = self._enter(x, state, lengths, resets, None, None)
        y, found = call.x, []
        for k, cell in enumerate(self.cells):
            assert isinstance(cell, cells.ONLSTM)
            one = StackLayer(cell, [self.weights(k)], [Masks({}, (), {})])
            rows = tuple(part[k : k + 1] for part in parts)
            h, _ = run_layers([one], call, y, rows, self.merge, RunOptions("eager"))
            before = delayed(h, parts[0][k])
            before = before if call.resets is None else before.masked_fill(call.resets, 0)
            theta = Theta(cell, self.weights(k))
            found.append(cell.levels(theta, cell.drive(theta, y), before))
            y = h + y if self.residual and k else h
        d_f, d_i = (torch.stack(level) for level in zip(*found, strict=True))
        if not call.batched:
            return d_f.squeeze(-1), d_i.squeeze(-1)
        return (d_f.mT, d_i.mT) if call.batch_first else (d_f, d_i)
