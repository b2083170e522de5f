"""The layer: a cell made into an nn.Module with stacks, directions, dropout and lengths."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo  # pyright: ignore[reportPrivateUsage]
from torch.nn.utils.rnn import PackedSequence

from metarnn.cells import Cell, Feedback, State, check, shapes
from metarnn.cells.tryout import try_out
from metarnn.engines import (
    ENGINES,
    Choice,
    FusedEngine,
    Request,
    choose,
    circumstances,
    operator,
)
from metarnn.engines.autograd import CallCache, call_key
from metarnn.engines.cpu import Step
from metarnn.engines.modes import autocast_dtype, watched
from metarnn.engines.plan import check_sizes
from metarnn.layers import edges, stack, streaming
from metarnn.layers.dropout import NOTHING, Dropout, between, keep, sample
from metarnn.layers.edges import Inputs
from metarnn.layers.initialize import SCHEMES, initialize
from metarnn.layers.planned import NotPlannable, PlannedCall
from metarnn.layers.stack import StackLayer
from metarnn.layers.unroll import Generator, RunOptions, state_sizes


class Recurrent(nn.Module):
    """A stack of recurrent layers made of any cell.

    >>> layer = Recurrent(cells.LSTM(8, 16, peephole=True), num_layers=2, zoneout=0.1)
    >>> output, (h, c) = layer(torch.randn(20, 4, 8))
    >>> output.shape, h.shape
    (torch.Size([20, 4, 16]), torch.Size([2, 4, 16]))

    cell                 the unit of the first layer; the layers above have it for wider inputs
    num_layers           how many layers, each reading the outputs of the one below
    bidirectional        a second set of weights reads each sequence from its end
    merge                how two directions become one output: "concat" or "sum"
    residual             add each layer's input to its output, from the second layer on
    batch_first          x and output are [B, T, ...] instead of [T, B, ...]; states never are
    feedback             each cell also reads its own last output (or the true one, `teacher`)
    dropout              between layers, anew at each step, as in torch.nn
    variational_dropout  between layers, one mask for all steps
    input_dropout        on x, one mask for all steps
    recurrent_dropout    on the state that enters the recurrent maps, one mask for all steps
    zoneout              units that keep their old value for a step; one number, or one a state part
    weight_drop          on whole weights; one number for all recurrent maps, or {map: number}
    init                 "orthogonal", "small" or "torch", see `layers.initialize`
    engine               "auto", "cpu", "native", "scan" or "eager"; `metarnn.explain` tells why
    checkpoint_every     with k > 0 the backward pass recomputes stretches of k steps: memory for
                         T/k + k steps instead of T, at the price of one more forward pass
    """

    ARGUMENTS: ClassVar = ("lengths", "resets", "steps", "teacher")  # of a call, beside x and state

    def __init__(
        self,
        cell: Cell,
        num_layers: int = 1,
        *,
        bidirectional: bool = False,
        merge: str = "concat",
        residual: bool = False,
        batch_first: bool = False,
        feedback: bool = False,
        dropout: float = 0.0,
        variational_dropout: float = 0.0,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        zoneout: float | tuple[float, ...] = 0.0,
        weight_drop: float | Mapping[str, float] = 0.0,
        init: str = "orthogonal",
        engine: str = "auto",
        checkpoint_every: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(cell, Cell):
            advice = "By name: metarnn.cell('lstm', input_size, hidden_size)."
            check.refuse("cell", cell, "a Cell, such as metarnn.cells.LSTM(8, 16)", advice)
        if cell.extra_inputs and type(self).generator is Recurrent.generator:
            advice = "hyper.MetaRecurrent generates such inputs: give it the plain unit."
            names = ", ".join(cell.extra_inputs)
            check.refuse(
                "cell", f"{cell}, which also reads {names}", "one that reads x alone", advice
            )
        self.num_layers = check.size("num_layers", num_layers)
        self.merge = check.one_of("merge", merge, ["concat", "sum"])
        self.init = check.one_of("init", init, SCHEMES)
        self.engine = check.one_of("engine", engine, ["auto", *ENGINES])
        self.checkpoint_every = check.size("checkpoint_every", checkpoint_every, least=0)
        self.dropouts = Dropout.of(
            cell,
            dropout,
            variational_dropout,
            input_dropout,
            recurrent_dropout,
            zoneout,
            weight_drop,
        )
        if num_layers == 1 and (dropout or variational_dropout):
            warnings.warn("dropout between layers has no effect with num_layers=1", stacklevel=2)
        self.bidirectional, self.residual = bidirectional, residual
        self.batch_first, self.feedback = batch_first, feedback
        unit = Feedback.around(cell) if feedback else cell
        self.output_size = cell.output_size * (2 if bidirectional and merge == "concat" else 1)
        # One cell a layer: the same unit for inputs of another width.
        upper = [unit.resized(self.output_size)] if num_layers > 1 else []
        self.cells = (unit, *upper * (num_layers - 1))
        try_out(self.cell)
        # The cells' names as operators, under which torch.compile knows their loops.
        self._operators = tuple(operator.register(cell) for cell in self.cells)
        self._choices: dict[Any, Choice] = {}
        self._calls = CallCache()
        self._steps: dict[torch.dtype, list[Step] | None] = {}
        self._names: dict[tuple[int, int], dict[str, str]] = {}
        for k, direction in self.rows():
            suffix = f"_l{k}" + ("_reverse" if direction else "")
            self._names[k, direction] = {name: name + suffix for name in shapes(self.cells[k])}
            for name, shape in shapes(self.cells[k]).items():
                weight = torch.empty(shape, device=device, dtype=dtype)
                self.register_parameter(name + suffix, nn.Parameter(weight))
        self._set_state_sizes()
        self.reset_parameters()
        if engine in ("native", "scan"):
            choose(engine, Request(self.cell))  # one that can never run this cell is refused now

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("_calls", CallCache())  # earlier versions kept none
        for cell in self.cells:  # another process does not know their names
            operator.register(cell)

    def _set_state_sizes(self) -> None:
        # The width of each part of the state of a call. Layers may need different ones (past
        # inputs, for a cell with a window): the widest counts.
        sizes = [state_sizes(self.cells[k], self.generator(k, d)) for k, d in self.rows()]
        self.state_sizes = tuple(max(widths) for widths in zip(*sizes, strict=True))
        self._uniform = len(set(sizes)) == 1

    def generator(self, layer: int, direction: int) -> Generator | None:
        """What computes the extra inputs of a cell; only generated cells have any."""
        return None

    def reset_parameters(self) -> None:
        for k, direction in self.rows():
            # Of a subclass that computes weights, too, the parameters are these.
            initialize(self.cells[k], Recurrent.weights(self, k, direction), self.init)

    @property
    def cell(self) -> Cell:
        """The cell of the first layer."""
        return self.cells[0]

    @property
    def input_size(self) -> int:
        return self.cell.input_size

    @property
    def hidden_size(self) -> int:
        return self.cell.hidden_size

    @property
    def dropout(self) -> float:
        return self.dropouts.between

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def weights(self, layer: int, direction: int = 0) -> dict[str, Tensor]:
        """The weights of one direction of one layer, under the names its cell has for them."""
        own: dict[str, Any] = self._parameters  # getattr finds parametrised ones too, but is slow
        return {
            name: own[full] if full in own else getattr(self, full)
            for name, full in self._names[layer, direction].items()
        }

    def extra_repr(self) -> str:
        shown = ("num_layers", "bidirectional", "merge", "residual", "batch_first", "engine")
        return ", ".join([str(self.cell), *(f"{name}={getattr(self, name)!r}" for name in shown)])

    def forward(
        self,
        x: Tensor | PackedSequence | None = None,
        state: Any = None,
        *,
        lengths: Any = None,
        resets: Tensor | None = None,
        steps: int | None = None,
        teacher: Tensor | None = None,
    ) -> tuple[Any, Any]:
        """Outputs of all steps of the top layer, and each layer's state at its sequence's end.

        x        [T, B, I] (or [B, T, I]), [T, I] for one sequence, a PackedSequence; None for
                 dynamics without input, s_t = f(s_{t-1}), over `steps` steps
        state    one tensor or a tuple as returned; a state of one layer is used for all
        lengths  the length of each sequence; what follows is not looked at, outputs there are 0
        resets   [T, B], true where a state starts anew from 0: as if the sequence were split
        teacher  [T, B, O], the true outputs, which take the place of the layer's own where it
                 feeds them back: step t sees teacher[t-1]
        """
        return self._call(x, state, lengths, resets, steps, teacher)

    def _call(self, x: Any, *arguments: Any) -> tuple[Any, Any]:
        if not torch.compiler.is_compiling():
            results = self._call_planned(x, *arguments)
            return self._forward("", x, *arguments) if results is None else results
        teacher = dict(zip(self.ARGUMENTS, arguments[1:], strict=True))["teacher"]
        engine = "" if teacher is not None else self._compilable(x)
        if not engine:
            return self._uncompiled("", x, *arguments)
        return self._forward(engine, x, *arguments)

    def _call_planned(self, x: Any, state: Any, *others: Any) -> tuple[Any, Any] | None:
        """What a planned call computes; None where there is no plan, or it does not fit."""
        for argument in others:
            if argument is not None:
                return None
        planned = self.planned(x)
        return None if planned is None else planned(self, x, state)

    def planned(self, x: Any) -> PlannedCall | None:
        """The plan of a call over x without lengths or the like; None where there is none."""
        key = call_key(x)
        if key is None or "weights" in self.__dict__ or self.dropouts.any(self.training):
            return None
        key = key, self.training, self.engine, self.checkpoint_every, self.batch_first
        calls = self._calls
        return calls[key] if key in calls else calls.keep(key, self._plan(x))

    def _plan(self, x: Tensor) -> PlannedCall | None:
        """One recurrence and nothing else: no stack, window or checkpoints around it."""
        alone = self.num_layers == 1 and not self.bidirectional and self.cell.window == 1
        if not alone or self.checkpoint_every or type(self).weights is not Recurrent.weights:
            return None
        first = next(iter(self._names[0, 0].values()), None)
        like = x if first is None else getattr(self, first)
        fits = x.shape[-1] == self.input_size and x.numel() > 0 and x.device == like.device
        if not fits or x.dtype != like.dtype:
            return None
        check_sizes(x, self.output_size)
        engine = ENGINES[self._choose_for(x, x.shape[0 if self.batch_first else 1]).engine]
        if not isinstance(engine, FusedEngine):
            return None
        try:
            return PlannedCall(engine, self, x)
        except NotPlannable:
            return None

    def _compilable(self, x: Any) -> str:
        """The engine whose loop can be part of what torch.compile makes; empty if none can."""
        if not isinstance(x, Tensor) or self.checkpoint_every or "" in self._operators:
            return ""
        cell, like = self._operators[0], next(iter(self.parameters()), x)
        return operator.engine_for(self.engine, cell, x.device.type, like.dtype)

    def _forward(self, loop: str, x: Any, state: Any, *arguments: Any) -> tuple[Any, Any]:
        """A call in general. With `loop`, that engine's loop appears as an operator."""
        call, parts = self._enter(x, state, *arguments)
        if not loop:
            check_sizes(call.x, self.output_size)
        engine = loop or self._choose(call).engine
        layers = self._layers(call, self._operators if loop else [""] * self.num_layers)
        y = call.x
        if self.training and self.dropouts.input:
            y = y * keep(self.dropouts.input, 1, *y.shape[1:], like=y)
        above = self.num_layers - 1
        masks = [between(self.dropouts, y, self.output_size, self.training) for _ in range(above)]

        finals: list[State] = []
        at_once = engine == "native" and not any(m is not None for m in masks)
        at_once = at_once and not self.residual and self.merge == "concat"
        run = stack.run_native if engine == "native" else stack.run_layers
        options = RunOptions(engine, self.checkpoint_every)
        for k in range(1 if at_once else self.num_layers):
            span = layers if at_once else layers[k : k + 1]
            mask = masks[k - 1] if k else None
            y = y if mask is None else y * mask
            rows = slice(k * self.directions, (k + len(span)) * self.directions)
            below = tuple(part[rows] for part in parts)
            out, final = run(span, call, y, below, self.merge, options)
            y = out + y if self.residual and k else out
            finals.append(final)
        final = finals[0]
        if len(finals) > 1:
            final = tuple(torch.cat(part) for part in zip(*finals, strict=True))
        if not call.batched:
            final = tuple(part.squeeze(1) for part in final)
        return call.leave(y), final[0] if len(final) == 1 else final

    # Where the loop is no operator torch.compile would unroll it, for minutes; so it leaves the
    # layer as it is, and compiles the model around it. `torch.compiler.disable` would import the
    # compiler at once, and double the time of `import metarnn`.
    _uncompiled: Any = _disable_dynamo(_forward)

    def step(self, x: Tensor, state: Any = None, **arguments: Any) -> tuple[Tensor, Any]:
        """One time step, for inputs that arrive one by one: x [B, I] or [I] -> output, state.

        Without gradients, on a CPU, it is one call of generated C a layer.
        """
        if self.bidirectional:
            why = "one direction: the other begins at the end"
            check.refuse("step", "of a bidirectional layer", why)
        size, dims = self.cell.input_size, x.dim()
        if dims not in (1, 2) or x.shape[-1] != size:
            shape = f"[batch, {size}], or [{size}] for one sequence (input_size={size})"
            check.refuse("x.shape", tuple(x.shape), shape)
        compiled = None if arguments else self._compiled_steps(x)
        if compiled is not None:
            return streaming.step(compiled, self, x, state)
        time = 1 if self.batch_first and dims == 2 else 0
        y, state = self(x.unsqueeze(time), state, **arguments)
        return y.squeeze(time), state

    def _compiled_steps(self, x: Tensor) -> list[Step] | None:
        """A step of each layer in generated C, where there is nothing to differentiate or drop."""
        if torch.is_grad_enabled() or self.dropouts.any(self.training) or any(circumstances()):
            return None
        if self.engine not in ("auto", "cpu") or not (self._uniform and x.is_cpu):
            return None
        if watched("cpu"):  # by autocast x and the weights may be of different types
            return None
        dtype = x.dtype
        if dtype not in self._steps:
            self._steps[dtype] = streaming.compile_steps(self.cells, dtype)
        return self._steps[dtype]

    def forwards(self) -> Recurrent:
        """A copy that reads [T, B, I] in one direction: of two directions the lowest layer alone,
        since those above it read both."""
        one = copy.deepcopy(self)
        one.batch_first, one.engine = False, "eager"
        if self.bidirectional:
            one.bidirectional, one.num_layers, one.cells = False, 1, self.cells[:1]
            one.output_size = self.cell.output_size
            one._set_state_sizes()
        return one

    def choose(
        self, x: Any = None, state: Any = None, *, source: bool = False, **arguments: Any
    ) -> Choice:
        """The engine that `forward` would take for these arguments, and why; see `explain`."""
        for name in arguments:
            check.one_of("argument", name, self.ARGUMENTS)
        call, _ = self._enter(x, state, *(arguments.get(name) for name in self.ARGUMENTS))
        choice = self._choose(call)
        engine, request = ENGINES[choice.engine], self._request(call.x, call.x.shape[1])
        if isinstance(engine, FusedEngine):
            request = replace(request, dtype=autocast_dtype(call.x) or request.dtype)
        return replace(
            choice,
            details=engine.describe(request),
            sources=engine.sources(request) if source else {},
        )

    def _enter(
        self,
        x: Any,
        state: Any,
        lengths: Any = None,
        resets: Any = None,
        steps: Any = None,
        teacher: Any = None,
    ) -> tuple[Inputs, State]:
        """The call and the initial state, checked, time first."""
        if teacher is not None:
            if not (self.feedback or self.cell.state_is_output):
                advice = "Use feedback=True, or a Jordan cell."
                check.refuse("teacher", "given", "None: this layer feeds no output back", advice)
            if self.num_layers > 1 or self.bidirectional:
                why = "None: only for one layer in one direction are the true outputs known"
                check.refuse("teacher", "given", why)
        first = next(iter(self._names[0, 0].values()), None)
        like = torch.zeros(0) if first is None else getattr(self, first)
        batch = 1
        if x is None and state is not None:  # there the state alone tells the batch size
            parts = state if isinstance(state, tuple | list) else (state,)
            sized = next((s for s in parts if isinstance(s, Tensor) and s.dim() > 1), None)
            batch = 1 if sized is None else sized.shape[-2]
        call = edges.enter(
            like,
            self.cell.input_size,
            self.cell.output_size,
            self.batch_first,
            x,
            batch,
            lengths,
            resets,
            steps,
            teacher,
        )
        rows = self.num_layers * self.directions
        batch = call.x.shape[1]
        sizes = self.state_sizes
        parts = edges.enter_state(state, sizes, rows, self.directions, batch, call.batched, like)
        return call, parts

    def _choose(self, call: Inputs) -> Choice:
        masks = {"lengths": call.lengths, "resets": call.resets, "teacher": call.teacher}
        given = tuple(name for name, mask in masks.items() if mask is not None)
        return self._choose_for(call.x, call.x.shape[1], given)

    def _choose_for(self, x: Tensor, batch: int, given: tuple[str, ...] = ()) -> Choice:
        """The engine of a call over x with these masks."""
        key = (given, self.training, x.device, x.dtype, batch, torch.is_grad_enabled())
        key += (self.engine, self.checkpoint_every, circumstances())
        if key in self._choices:
            return self._choices[key]
        choice = choose(self.engine, self._request(x, batch, given))
        if len(self._choices) < 1000:
            self._choices[key] = choice
        return choice

    def _request(self, x: Tensor, batch: int, given: tuple[str, ...] = ()) -> Request:
        options = {
            "feedback": self.feedback,
            "zoneout": bool(self.dropouts.zoneout),
            "recurrent_dropout": self.training and self.dropouts.recurrent > 0,
            "checkpoint_every": self.checkpoint_every > 0,
        }
        needs = (*given, *(need for need, is_so in options.items() if is_so))
        gradient = torch.is_grad_enabled()
        return Request(self.cell, needs, str(x.device), x.dtype, batch, gradient)

    def _layers(self, call: Inputs, operators: Sequence[str]) -> list[StackLayer]:
        """Each layer's weights and masks for one call, all sampled before any engine runs."""
        (steps, batch, _), acts = call.x.shape, self.dropouts.acts(self.training)
        layers = []
        for k, cell in enumerate(self.cells):
            generators = [self.generator(k, way) for way in range(self.directions)]
            weights = [self.weights(k, way) for way in range(self.directions)]
            masks = [NOTHING] * self.directions
            if acts:
                likes = [next(iter(named.values()), call.x) for named in weights]
                masks = [
                    sample(self.dropouts, cell, steps, batch, like, self.training) for like in likes
                ]
                weights = [
                    {n: w * mask.weights[n] if n in mask.weights else w for n, w in named.items()}
                    for named, mask in zip(weights, masks, strict=True)
                ]
            layers.append(StackLayer(cell, weights, masks, generators, operators[k]))
        return layers

    def rows(self) -> Iterator[tuple[int, int]]:
        """(layer, direction), in the order of parameters and states."""
        return ((k, d) for k in range(self.num_layers) for d in range(self.directions))
