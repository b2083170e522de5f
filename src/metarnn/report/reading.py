"""What the recurrent layers of a model read while it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.hyper import MetaRecurrent, watch
from metarnn.hyper.around import Around
from metarnn.layers import Recurrent


@dataclass(frozen=True)
class Reading:
    """One call of a layer.

    x          [T, B, I]
    arguments  what it was given beside x and a state: lengths, context, …
    numbers    what the weights of its lowest layer were generated from, [T, B, n] or [B, n]
    """

    layer: Recurrent
    x: Tensor
    arguments: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def generates(self) -> bool:
        """Whether weights are generated, before the loop over time or inside it."""
        outside = isinstance(self.layer, MetaRecurrent) and len(self.layer.sources) > 0
        return outside or isinstance(self.layer.cell, Around)


@torch.no_grad()
def reading(model: nn.Module, call: Callable[[], Any]) -> Reading | None:
    """What the first recurrent layer of the model read during a call; None where none was run.

    >>> model = torch.nn.ModuleDict({"layer": metarnn.GRU(3, 4)})
    >>> found = reading(model, lambda: model["layer"](torch.randn(5, 2, 3)))
    >>> tuple(found.x.shape)
    (5, 2, 3)

    Of layers that generate weights, the one that does comes before all others.
    """
    layers = [m for m in model.modules() if isinstance(m, Recurrent)]
    within = {id(part) for layer in layers for part in layer.modules() if part is not layer}
    calls: list[Reading] = []

    def note(layer: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        assert isinstance(layer, Recurrent)
        x = arguments[0] if arguments else named.get("x")
        if isinstance(x, Tensor) and x.dim() == 3:
            x = x.transpose(0, 1) if layer.batch_first else x
            more = {k: v for k, v in named.items() if v is not None and k not in ("x", "state")}
            calls.append(Reading(layer, x.detach(), more))

    outer = [layer for layer in layers if id(layer) not in within]
    hooks = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in outer]
    was = model.training
    model.eval()
    try:
        call()
        for hook in hooks:
            hook.remove()
        if not calls:
            return None
        best = next((each for each in calls if each.generates), calls[0])
        if not best.generates:
            return best
        with watch() as records:  # again: a task may have watched the first time
            x = best.x.transpose(0, 1) if best.layer.batch_first else best.x
            best.layer(x, **best.arguments)
        return replace(best, numbers=dict(records[0].numbers) if records else {})
    finally:
        model.train(was)
        for hook in hooks:
            hook.remove()
