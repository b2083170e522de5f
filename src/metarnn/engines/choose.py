"""Which engine runs a call, and why: the fastest that fits, never in silence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from metarnn.cells import Cell, check
from metarnn.engines import native

ENGINES = ("native", "scan", "eager")  # fastest first


@dataclass(frozen=True)
class Choice:
    """The engine that runs a call, the reason, and why each faster one was passed over."""

    engine: str
    reason: str
    ruled_out: dict[str, str]

    def __str__(self) -> str:
        lines = [f"engine: {self.engine}, {self.reason}"]
        lines += [f"  not {name}: {why}" for name, why in self.ruled_out.items()]
        return "\n".join(lines)


REASONS = {
    "native": "torch's own fused kernels (cuDNN, oneDNN) compute this cell",
    "scan": "the cell is linear in its state, so a parallel scan runs all steps",
    "eager": "a loop over time in plain torch runs any cell",
}


def choose(asked: str, cell: Cell, needs: tuple[str, ...] = ()) -> Choice:
    """The engine for a cell; `needs` names what a call asks for beyond a plain loop over time."""
    if "teacher" in needs and cell.state_is_output:
        return Choice("eager", "the true outputs are given, so all steps run at once", {})
    why_not = {
        "native": _native_cannot(cell, needs),
        "scan": _scan_cannot(cell, needs),
        "eager": _eager_cannot(needs),
    }
    if asked != "auto":
        if why_not[asked]:
            raise ValueError(f"engine={asked!r} cannot run this: {why_not[asked]}. Use 'auto'.")
        return Choice(asked, "as asked", {})
    engine = next((name for name in ENGINES if not why_not[name]), None)
    if engine is None:
        raise ValueError(f"no engine can run this: {why_not}")
    faster = ENGINES[: ENGINES.index(engine)]
    return Choice(engine, REASONS[engine], {name: why_not[name] for name in faster})


def explain(layer: Any, *args: Any, **kwargs: Any) -> Choice:
    """Which engine a call `layer(*args, **kwargs)` would use, why, and what was ruled out.

    >>> print(explain(metarnn.GRU(8, 16, reset="before"), torch.zeros(5, 2, 8)))
    engine: eager, a loop over time in plain torch runs any cell
      not native: torch has no kernel for this GRU
      not scan: GRU is not linear in its state
    """
    if not hasattr(layer, "choose"):
        check.refuse("layer", type(layer).__name__, "a metarnn layer")
    return layer.choose(*args, **kwargs)


def transformed() -> bool:
    """Whether torch.func or forward-mode derivatives are at work: they see into no kernel."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _native_cannot(cell: Cell, needs: tuple[str, ...]) -> str:
    if not native.op(cell):
        return f"torch has no kernel for this {type(cell).__name__}"
    foreign = [need for need in needs if need not in ("lengths", "weight_drop")]
    if foreign:
        return f"torch's kernel knows no {foreign[0]}"
    if transformed():
        return "torch.func and forward-mode derivatives do not see through torch's kernels"
    return ""


def _scan_cannot(cell: Cell, needs: tuple[str, ...]) -> str:
    if not cell.linear:
        return f"{type(cell).__name__} is not linear in its state"
    return "checkpoint_every belongs to the loop" if "checkpoint_every" in needs else ""


def _eager_cannot(needs: tuple[str, ...]) -> str:
    if "checkpoint_every" in needs and transformed():
        return "checkpoint_every works with plain autograd only, not under torch.func"
    return ""
