"""Every cell against torch.nn.LSTM of the same size, and against our loop in plain torch."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.bench.timing import captured, interleaved
from metarnn.cells import (
    GRU,
    LSTM,
    ONLSTM,
    QRNN,
    SRU,
    Cell,
    Drive,
    Elman,
    Map,
    MinGRU,
    MinLSTM,
    State,
    Theta,
    check,
)
from metarnn.graph import Builder, GraphCell
from metarnn.layers import Recurrent
from metarnn.search.known import darts

Shape = tuple[int, int, int]  # T, B, H; the input is as wide as the state

SHAPES: tuple[Shape, ...] = (
    (128, 1, 64),
    (128, 1, 256),
    (128, 8, 128),
    (128, 32, 256),
    (64, 20, 640),
)
LONG: Shape = (512, 32, 256)  # where a state that enters linearly pays
GPU_SHAPES: tuple[Shape, ...] = (
    (256, 1, 256),
    (256, 16, 256),
    (256, 64, 256),
    (256, 64, 512),
    (1024, 16, 768),
    (256, 64, 1024),
    (128, 256, 1024),
)
GPU_LONG: tuple[Shape, ...] = (
    (1024, 32, 1024),
    (4096, 8, 1024),
    (512, 128, 2048),
    (65536, 1, 1024),
)
LONGEST = 1024  # steps of a loop in plain torch that is captured as a CUDA graph
STEP: Shape = (1, 1, 256)
QUICK: tuple[Shape, ...] = ((4, 1, 8), (3, 2, 8))
QUICK_STEP: Shape = (1, 1, 8)
STEPS_A_CALL = 50  # one step is over before a clock can tell


class MGU(Cell):
    """The minimal gated unit (Zhou et al. 2016), as the README has a user write it."""

    @property
    def maps(self) -> dict[str, Map]:
        I, H = self.input_size, self.hidden_size
        recurrent = Map(H, H, recurrent=True)
        return {"ih": Map(I, (H, H)), "fh": recurrent, "nh": recurrent}

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        (h,) = state
        xf, xn = theta.ih(drive).chunk(2, -1)
        f = torch.sigmoid(xf + theta.fh(h))
        n = torch.tanh(xn + theta.nh(f * h))
        return ((1 - f) * h + f * n,)


class UGRNN(Cell):
    """The update gate network (Collins et al. 2017), as a user may write it: one product a step."""

    @property
    def maps(self) -> dict[str, Map]:
        I, H = self.input_size, self.hidden_size
        return {"ih": Map(I, (H, H)), "hh": Map(H, (H, H), recurrent=True)}

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        (h,) = state
        g, n = (theta.ih(drive) + theta.hh(h)).chunk(2, -1)
        g = torch.sigmoid(g)
        return (g * h + (1 - g) * torch.tanh(n),)


def random_graph(input_size: int, hidden_size: int, seed: int = 8) -> GraphCell:
    """A cell of 8 random nodes beside its sources: 3 linear maps, 5 elementwise operations."""
    source = random.Random(seed)
    recurrent = Map(hidden_size, hidden_size, recurrent=True)
    maps = {"ih": Map(input_size, hidden_size), "a": recurrent, "b": recurrent}
    builder = Builder(maps)
    x = builder.add("input", width=input_size, name="x")
    h = builder.add("state", width=hidden_size, index=0)
    loose = [
        builder.add("linear", row, map=name, start=0, stop=m.inputs, bias=m.bias)
        for row, (name, m) in zip((x, h, h), maps.items(), strict=True)
    ]
    # Two of two arguments bind the three products; the last tanh keeps the state bounded.
    kinds = [2, 2, 1, 1]
    source.shuffle(kinds)
    for arity in kinds:
        chosen = source.sample(loose, min(arity, len(loose)))
        ops = ("sigmoid", "tanh", "relu") if arity == 1 else ("add", "mul", "sub", "max")
        loose = [k for k in loose if k not in chosen]
        loose.append(builder.add(source.choice(ops), *chosen))
    (last,) = loose
    new = builder.add("tanh", last)
    return GraphCell(builder.graph([new], {"y": new}))


def darts_chain(input_size: int, hidden_size: int) -> Cell:
    """Eight nodes as in DARTS-RNN (Liu et al. 2019), each fed by the last: nine products a step."""
    acts = ("tanh", "relu", "sigmoid", "identity") * 2
    return darts([(act, before) for before, act in enumerate(acts)]).cell(input_size, hidden_size)


CELLS: dict[str, Callable[[int, int], Cell]] = {
    "elman": Elman,
    "lstm": LSTM,
    "lstm-peephole": lambda I, H: LSTM(I, H, peephole=True),
    "lstm-coupled": lambda I, H: LSTM(I, H, coupled=True),
    "lstm-layernorm": lambda I, H: LSTM(I, H, layer_norm=True),
    "gru": GRU,
    "gru-before": lambda I, H: GRU(I, H, reset="before"),
    "user": MGU,
    "user-ugrnn": UGRNN,
    "graph8": random_graph,
    "onlstm": ONLSTM,
    "darts": darts_chain,
    "qrnn": QRNN,
    "sru": SRU,
    "mingru": MinGRU,
    "minlstm": MinLSTM,
}
MODES = ("inference", "training", "step")


@dataclass(frozen=True)
class Case:
    """What is measured: a cell in one mode, at one shape, under an engine."""

    cell: str
    mode: str
    T: int
    B: int
    H: int
    engine: str = "auto"

    def __str__(self) -> str:
        return f"{self.cell} {self.mode} {self.T}×{self.B}×{self.H}"


@dataclass(frozen=True)
class Row:
    """What was measured. A ratio is theirs / ours: above 1 we are faster."""

    cell: str
    mode: str
    T: int
    B: int
    I: int
    H: int
    dtype: str
    engine: str
    ours_ms: float
    torch_ms: float
    eager_ms: float | None  # on a GPU as a CUDA graph, and not of very long sequences
    ratio_torch: float
    ratio_eager: float | None
    gflops: float
    torch_gflops: float
    copy_share: float | None = None  # of a scan on a GPU: its bandwidth / that of a copy

    @property
    def ratio_gflops(self) -> float:
        return self.gflops / self.torch_gflops

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def cases(
    names: Sequence[str] = (),
    quick: bool = False,
    device: str = "cpu",
    modes: Sequence[str] = (),
) -> list[Case]:
    """All that there is to measure of these cells in these modes, by default of and in every one.

    Of `lstm` also the cpu engine: `measure` leaves it out where that is what "auto" takes.
    """
    for name in names:
        check.one_of("cells", name, CELLS)
    gpu, found = device == "cuda", []
    known = MODES[:2] if gpu else MODES
    for mode in modes:
        check.one_of("modes", mode, known)
    for name in names or CELLS:
        linear = CELLS[name](8, 8).linear
        shapes = GPU_SHAPES if gpu else SHAPES
        if linear:
            shapes += GPU_LONG if gpu else (LONG,)
        shapes = QUICK if quick else shapes
        for mode in modes or known:
            for shape in ((QUICK_STEP if quick else STEP),) if mode == "step" else shapes:
                found.append(Case(name, mode, *shape))
                if name == "lstm" and mode != "step" and not gpu:
                    found.append(Case(name, mode, *shape, engine="cpu"))
    return found


def measure(
    case: Case,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seconds: float = 1.0,
    rounds: int = 5,
    loop: bool = True,
) -> Row | None:
    """The row of a case; None for one that "auto" measures already.

    `loop`: whether the loop in plain torch is measured, too.
    """
    cell = CELLS[case.cell](case.H, case.H)
    where: dict[str, Any] = {"device": device, "dtype": dtype}
    torch.manual_seed(0)
    ours = Recurrent(cell, engine=case.engine, **where)
    eager = Recurrent(cell, engine="eager", **where)
    eager.load_state_dict(ours.state_dict())
    x = torch.randn(case.T, case.B, case.H, **where)
    with torch.set_grad_enabled(case.mode == "training"):
        if case.engine != "auto":
            automatic = Recurrent(cell, **where)
            if device != case.engine or automatic.choose(x).engine == case.engine:
                return None
        engine = ours.choose(x).engine
        if case.mode == "step":
            times = _steps(ours, eager, x, seconds, rounds)
        else:
            theirs = nn.LSTM(case.H, case.H, **where)
            once = _trained if case.mode == "training" else _applied
            calls = {"ours": once(ours, x), "torch": once(theirs, x)}
            if device != "cuda" and loop:
                calls["eager"] = once(eager, x)
            elif case.T <= LONGEST and loop:
                calls["eager"] = captured(once(eager, x))
            with warnings.catch_warnings():
                # In bfloat16 torch does not lay cuDNN's weights together, and says so.
                warnings.filterwarnings("ignore", "RNN module weights are not part")
                times = interleaved(calls, seconds=seconds, rounds=rounds, slow=["eager"])
    work = case.T * case.B * (3 if case.mode == "training" else 1)
    mine, reference = flops(cell) * work, flops(LSTM(case.H, case.H)) * work
    looped = times.get("eager")
    share = None
    if device == "cuda" and engine == "triton" and cell.linear:
        from metarnn.bench.scans import copy_share  # Triton need not be there otherwise

        share = copy_share(cell, case.T, case.B, dtype, device, train=case.mode == "training")
    return Row(
        case.cell,
        case.mode,
        case.T,
        case.B,
        case.H,
        case.H,
        str(dtype).removeprefix("torch."),
        engine,
        times["ours"],
        times["torch"],
        looped,
        times["torch"] / times["ours"],
        None if looped is None else looped / times["ours"],
        mine / times["ours"] / 1e6,
        reference / times["torch"] / 1e6,
        share,
    )


def flops(cell: Cell) -> int:
    """Of one step and sequence, matrix products alone: those of a backward pass are twice that."""
    return sum(2 * m.inputs * m.outputs for m in cell.maps.values())


def _applied(layer: nn.Module, x: Tensor) -> Callable[[], Any]:
    layer.eval()
    return lambda: layer(x)


def _trained(layer: nn.Module, x: Tensor) -> Callable[[], Any]:
    layer.train()
    # By x too, as in any layer but the lowest.
    wrt = [x.detach().requires_grad_(), *layer.parameters()]
    return lambda: torch.autograd.grad(layer(wrt[0])[0].sum(), wrt)


def _steps(
    ours: Recurrent, eager: Recurrent, x: Tensor, seconds: float, rounds: int
) -> dict[str, float]:
    """One time step, each fed the state of the last."""
    ours.eval()
    eager.eval()
    reference = nn.LSTMCell(x.shape[-1], x.shape[-1], device=x.device, dtype=x.dtype)
    first = ours(x)[1]
    zeros = torch.zeros_like(x[0])

    def chained(once: Callable[[Any], Any], state: Any) -> Callable[[], None]:
        def run() -> None:
            carried = state
            for _ in range(STEPS_A_CALL):
                carried = once(carried)

        return run

    calls = {
        "ours": chained(lambda state: ours.step(x[0], state)[1], first),
        "torch": chained(lambda state: reference(x[0], state), (zeros, zeros)),
        "eager": chained(lambda state: eager(x, state)[1], first),
    }
    times = interleaved(calls, seconds=seconds, rounds=rounds, slow=["eager"])
    return {name: value / STEPS_A_CALL for name, value in times.items()}
