"""The engines, which of them runs a call, and why: the fastest that fits, never in silence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from metarnn.cells import State, check
from metarnn.engines.autograd import EngineFailure
from metarnn.engines.checkpoint import checkpointed
from metarnn.engines.cpu import CpuEngine
from metarnn.engines.eager import EagerEngine
from metarnn.engines.engine import Engine, FusedEngine, Request
from metarnn.engines.modes import transformed
from metarnn.engines.native import NativeEngine
from metarnn.engines.recurrence import Recurrence
from metarnn.engines.scan import ScanEngine
from metarnn.engines.triton import TritonEngine

# Fastest first.
ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (CpuEngine(), TritonEngine(), NativeEngine(), ScanEngine(), EagerEngine())
}


@dataclass(frozen=True)
class Choice:
    """The engine that runs a call, the reason, and why each faster one was passed over.

    `details` says how the engine shares the work, `sources` holds its kernels by pass.
    """

    engine: str
    reason: str
    ruled_out: dict[str, str]
    details: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"engine: {self.engine}, {self.reason}"]
        lines += [f"  {detail}" for detail in self.details]
        lines += [f"  not {name}: {why}" for name, why in self.ruled_out.items()]
        return "\n".join([*lines, *(f"\n{source}" for source in self.sources.values())])


def choose(name: str, request: Request) -> Choice:
    """The engine of that name, or for "auto" the fastest that can run a call."""
    if "teacher" in request.needs and request.cell.state_is_output:
        return Choice("eager", "the true outputs are given, so all steps run at once", {})
    if name != "auto":
        why = ENGINES[name].obstacle(request)
        if why:
            raise ValueError(f"engine={name!r} cannot run this: {why}. Use 'auto'.")
        return Choice(name, "as asked", {})
    ruled_out: dict[str, str] = {}
    for engine in ENGINES.values():
        why = engine.obstacle(request) or engine.slower(request)
        if not why:
            return Choice(engine.name, engine.reason, ruled_out)
        ruled_out[engine.name] = why
    raise ValueError(f"no engine can run this: {ruled_out}")


def explain(layer: Any, *args: Any, source: bool = False, **kwargs: Any) -> Choice:
    """Which engine a call `layer(*args, **kwargs)` would use, why, and what was ruled out.

    With `source`, also the kernels that it would run.

    >>> print(explain(metarnn.GRU(8, 16, reset="before", engine="auto"), torch.zeros(5, 2, 8)))
    engine: cpu, C code generated for this cell runs all steps
    """
    if not hasattr(layer, "choose"):
        check.refuse("layer", type(layer).__name__, "a metarnn layer")
    return layer.choose(*args, source=source, **kwargs)


def run(name: str, recurrence: Recurrence, checkpoint_every: int = 0) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one, [B, n] each.

    Args:
        name: The engine that was chosen. Where it fails, which it says once, another one runs.
        recurrence: The cell, its weights and its inputs.
        checkpoint_every: Keep the state at every k-th step alone for the backward pass.
    """
    if checkpoint_every:
        return checkpointed(lambda piece: run(name, piece), recurrence, checkpoint_every)
    engine = ENGINES[name]
    try:
        return engine.run(recurrence)
    except EngineFailure as error:
        engine.give_up(error)
        return run("scan" if recurrence.cell.linear else "eager", recurrence)


def fused_engine(name: str, request: Request) -> FusedEngine | None:
    """The engine with generated kernels that runs a call where `name` is asked for, if any."""
    fused = (engine for engine in ENGINES.values() if isinstance(engine, FusedEngine))
    fits = (e for e in fused if name in ("auto", e.name) and not e.obstacle(request))
    return next(fits, None)


def circumstances() -> tuple[Any, ...]:
    """What a choice depends on beside the request; it may change from call to call."""
    return transformed(), EngineFailure.engines
