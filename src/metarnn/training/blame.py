"""Where a number that is none came from: the first layer that makes one out of good numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


def first_broken(model: nn.Module, run: Callable[[], Any]) -> str:
    """The name of the first layer whose output is not finite though its input is; "" for none.

    A parameter that is not finite is named before any layer; "input" is that of the model, "before"
    a layer is what is computed between two.
    """
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            return name
    found: list[str] = []
    seen: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def look(module: nn.Module, given: Any, output: Any) -> None:
            if not found and not _finite(output):
                between = f"before {name}" if seen else "input"
                found.append(name if _finite(given) else between)
            seen.append(name)

        return look

    hooks = [m.register_forward_hook(watch(name or "the model")) for name, m in _inner(model)]
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else ""


def _inner(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """All modules, inner ones first, so that the narrowest name is found."""
    return reversed(list(model.named_modules()))


def _finite(values: Any) -> bool:
    if isinstance(values, Tensor):
        return not values.is_floating_point() or bool(values.isfinite().all())
    if isinstance(values, dict):
        return all(map(_finite, values.values()))
    return all(map(_finite, values)) if isinstance(values, tuple | list) else True
