from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Unpack

from torch import Tensor, nn

from metarnn.cells import CELLS, Cell, cell, check
from metarnn.engines.cpu import Step
from metarnn.hyper.coupled import Coupled
from metarnn.hyper.encoders import Make
from metarnn.hyper.encoders import encoder as make_encoder
from metarnn.hyper.forms import Form, forms, numbers
from metarnn.hyper.generated import Generated
from metarnn.hyper.generators import generator as make_generator
from metarnn.hyper.source import POOLS, Source
from metarnn.layers import Recurrent, edges
from metarnn.layers.edges import Inputs
from metarnn.layers.options import Options
from metarnn.layers.planned import PlannedCall
from metarnn.layers.unroll import Generator


class MetaRecurrent(Recurrent):
    """Recurrent layers whose unit's weights a hypernetwork writes.

    c = encoder(x),  θ_t = g_φ(c, t),  h_t = f_θt(x_t, h_{t-1})

    >>> layer = MetaRecurrent(cells.LSTM(8, 16), form=("scale", "lowrank"), encoder="gru")
    >>> output, state = layer(torch.randn(20, 4, 8))
    >>> output.shape, [part.shape[-1] for part in state]
    (torch.Size([20, 4, 16]), [16, 16, 4])

    unit          any cell
    encoder       what reads the sequence: "input" (x_t alone), a cell's name ("gru", "lstm", …),
                  "conv", "transformer", a recurrent layer, a `hyper.Encoder`, any module of torch
                  or your own (nn.LSTM, nn.TransformerEncoder, …; one that reads ahead needs
                  context="sequence"), a function from an input width to one of these (which
                  stacks and two directions need); "auto" is "input" with context="step", else
                  "gru"; None where forward is handed a `context` of `context_size` numbers,
                  [B, C] or [T, B, C]
    width         of the encoder; by default a quarter of the hidden size, at least 4, and at most
                  16 where it reads x_t alone
    generator     the hypernetwork: "dense", "conv", "attention", "recurrent", or a function
                  (context width, numbers) -> module, which returns rows by name or one flat vector
    form          what is written: "scale" (columns of recurrent maps by 2σ; also "rows", "columns"
                  of all maps, "both", and "bounded", both by 2σ), "lowrank", "mixture", "full",
                  "structure", `hyper`'s forms with their options, or several that chain
    on            which weights, for forms given by name; see `hyper.Form`
    context       "step": c_t from the inputs up to t, with `delay` up to t - 1; "sequence": one c,
                  by the `pool` "last", "mean" or "attention"; "state": c_t is the state of a
                  smaller unit that reads [x_t; h_{t-1}], inside the step (`embedding` numbers
                  lie between it and each gate's, as in HyperLSTM, where that is not 0)
    times         so many periods of sines of t are read beside c; the longest lasts `period` steps
    reconstruct   an encoder's output also has to tell its input: a term for `hyper.Omega`
    options       those of `Recurrent`

    The layer starts as its plain unit: the last head of the generator starts at 0. Its state is
    the unit's, then the encoder's.
    """

    ARGUMENTS: ClassVar = (*Recurrent.ARGUMENTS, "context")

    def __init__(
        self,
        unit: Cell,
        num_layers: int = 1,
        *,
        encoder: str | nn.Module | Make | None = "auto",
        width: int | None = None,
        generator: str | Callable[..., nn.Module] = "dense",
        form: str | Form | Sequence[str | Form] = "scale",
        on: Sequence[str] = (),
        context: str = "step",
        delay: bool = False,
        pool: str = "last",
        embedding: int = 0,
        times: int = 0,
        period: float = 1000.0,
        context_size: int = 0,
        reconstruct: bool = False,
        **options: Unpack[Options],
    ) -> None:
        if not isinstance(unit, Cell):
            check.refuse("unit", unit, "a Cell, such as metarnn.cells.LSTM(8, 16)")
        check.one_of("context", context, ["step", "sequence", "state"])
        check.one_of("pool", pool, POOLS)
        if options.get("feedback"):
            check.refuse("feedback", True, "False where weights are generated")
        made = forms(form, on)
        if isinstance(encoder, str) and encoder == "auto":
            encoder = "input" if context == "step" else "gru"
        width = _width(unit, encoder) if width is None else check.size("width", width)
        _check(context, encoder, generator, context_size, delay, embedding, times, reconstruct)
        if context == "state":
            super().__init__(_coupled(unit, made, encoder, width, embedding), num_layers, **options)
        else:
            super().__init__(Generated(unit, made), num_layers, **options)
        self.context, self.context_size = context, context_size
        self.sources = nn.ModuleList()
        shared = isinstance(encoder, nn.Module)
        if shared and self.num_layers * self.directions > 1:
            why = "a function from an input width to an encoder: each layer and direction has one"
            check.refuse("encoder", type(encoder).__name__, why)
        for k, _ in self.rows() if context != "state" else ():
            floor = self.cells[k]
            assert isinstance(floor, Generated)
            reads = None if encoder is None else make_encoder(encoder, floor.input_size, width)
            size = context_size if reads is None else reads.output_size
            source = Source(
                reads,
                make_generator(generator, size + 2 * times, numbers(floor.unit, made)),
                size,
                pool=pool if context == "sequence" and encoder is not None else "",
                delay=delay,
                times=check.size("times", times, least=0),
                period=period,
                reconstruct=reconstruct,
            )
            self._check_causal(source)
            self.sources.append(source)
        first = next(self.parameters(), None)
        if first is not None:
            self.sources.to(first.device, first.dtype)
        self._set_state_sizes()

    def _check_causal(self, source: Source) -> None:
        if self.context == "step" and source.encoder is not None and not source.encoder.causal:
            advice = "Use context='sequence', or tell that a module is causal."
            check.refuse("encoder", "not causal", "a causal one with context='step'", advice)

    @property
    def causal(self) -> bool:
        """Whether no output depends on inputs that come later."""
        return not self.bidirectional and not any(s.pool for s in self._made)

    @property
    def streams(self) -> bool:
        """Whether a sequence may come in pieces, each going on from the state after the last."""
        return not any(s.pool or (s.encoder and not s.encoder.streams) for s in self._made)

    @property
    def _made(self) -> list[Source]:
        return [source for source in self.sources if isinstance(source, Source)]

    def generator(self, layer: int, direction: int) -> Generator | None:
        made = getattr(self, "sources", ())  # not there yet while the layer is being built
        if not made:
            return None
        return made[layer * self.directions + direction]

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  one argument more
        self,
        x: Any = None,
        state: Any = None,
        *,
        lengths: Any = None,
        resets: Tensor | None = None,
        steps: int | None = None,
        teacher: Tensor | None = None,
        context: Tensor | None = None,
    ) -> tuple[Any, Any]:
        """As `Recurrent.forward`; `context` [B, C] or [T, B, C] ([B, T, C]) takes the encoder's
        place where the layer has none."""
        return self._call(x, state, lengths, resets, steps, teacher, context)

    def _enter(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Any, state: Any, *arguments: Any
    ) -> tuple[Inputs, Any]:
        *usual, context = arguments
        call, parts = super()._enter(x, state, *usual)
        if context is None and not self.context_size:
            return call, parts
        if context is None or not self.context_size:
            found = "None" if context is None else "given"
            expected = (
                f"{self.context_size} numbers a sequence, [B, C], or a step"
                if self.context_size
                else "None: the encoder makes it. Without one, say context_size=…"
            )
            check.refuse("context", found, expected)
        edges.matches("context", context, call.x)
        steps, batch, _ = call.x.shape
        if not call.batched:
            context = context.unsqueeze(-2)
        elif call.batch_first and context.dim() == 3:
            context = context.transpose(0, 1)
        shapes = [(batch, self.context_size), (steps, batch, self.context_size)]
        if tuple(context.shape) not in shapes:
            check.refuse("context.shape", tuple(context.shape), f"{shapes[0]} or {shapes[1]}")
        return replace(call, context=context), parts

    def _plan(self, x: Tensor) -> PlannedCall | None:
        return None if self.context_size else super()._plan(x)  # without a context: refused

    def _compiled_steps(self, x: Tensor) -> list[Step] | None:
        return None if len(self.sources) else super()._compiled_steps(x)

    def step(self, x: Tensor, state: Any = None, **arguments: Any) -> tuple[Tensor, Any]:
        """As `Recurrent.step`; a layer without an encoder takes a `context` here too."""
        if not self.streams:
            why = "a causal encoder that carries a state: this one reads whole sequences"
            check.refuse("step", "of this layer", why)
        return super().step(x, state, **arguments)


def _check(
    context: str,
    encoder: Any,
    generator: Any,
    context_size: int,
    delay: bool,
    embedding: int,
    times: int,
    reconstruct: bool,
) -> None:
    """Refuse arguments that have no meaning together."""
    if check.size("context_size", context_size, least=0) and encoder is not None:
        check.refuse("context_size", context_size, "0 with an encoder", "Say encoder=None.")
    if encoder is None and not context_size:
        check.refuse("encoder", None, "one, or the context_size of a context that is given")
    if context == "state":
        named = isinstance(encoder, str) and encoder in CELLS
        if not named and not isinstance(encoder, Cell):
            why = "a cell or its name with context='state': it runs inside the step"
            check.refuse("encoder", encoder, why)
        for name, value, expected in (
            ("generator", generator, "dense"),
            ("times", times, 0),
            ("reconstruct", reconstruct, False),
        ):
            if value != expected:
                check.refuse(name, value, f"{expected!r} with context='state'")
    elif embedding:
        check.refuse("embedding", embedding, "0, but with context='state'")
    if delay and (context != "step" or encoder is None):
        check.refuse("delay", delay, "False, but with context='step' and an encoder")
    if reconstruct and encoder is None:
        check.refuse("reconstruct", reconstruct, "False without an encoder")


# Of an encoder that reads x_t alone. Around a GRU of about 206 units on a small text, 8, 16 and 32
# led to 1.841, 1.823 and 1.835 bits, single trainings (docs/results.md).
NARROW = 16


def _width(unit: Cell, encoder: Any) -> int:
    quarter = max(unit.hidden_size // 4, 4)
    return min(quarter, NARROW) if isinstance(encoder, str) and encoder == "input" else quarter


def _coupled(
    unit: Cell, made: tuple[Form, ...], encoder: Any, width: int, embedding: int
) -> Coupled:
    reads = unit.window * unit.input_size + unit.states[0]
    if isinstance(encoder, str):
        encoder = cell(encoder, reads, width)
    return Coupled(unit, made, encoder, embedding)
