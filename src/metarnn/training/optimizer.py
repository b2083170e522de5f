"""Optimisers, and clipping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from metarnn.training.settings import Settings

MEMORY: dict[type[Optimizer], set[str]] = {
    AdamW: {"step", "exp_avg", "exp_avg_sq"},
    SGD: {"momentum_buffer"},
}


def build(model: nn.Module, settings: Settings) -> Optimizer:
    """The optimiser of these settings; weight decay acts on matrices alone."""
    trained = [w for w in model.parameters() if w.requires_grad]
    decay = [w for w in trained if w.dim() > 1]
    rest = [w for w in trained if w.dim() <= 1]
    groups: list[dict[str, Any]] = [
        {"params": group, "weight_decay": weight_decay}
        for group, weight_decay in ((decay, settings.weight_decay), (rest, 0.0))
        if group
    ]
    if not groups:
        raise ValueError("the model has no parameter to train")
    if settings.optimizer == "sgd":
        return SGD(groups, lr=settings.lr, momentum=settings.momentum, fused=True)
    return AdamW(groups, lr=settings.lr, betas=settings.betas, fused=True)


def set_lr(optimizer: Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


@torch.no_grad()
def clip(
    parameters: Mapping[str, Tensor], most: float, by: str = "norm"
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Shorten the gradients; `most` = 0 leaves them as they are.

        norm      g ← g · min(1, most / ‖g‖), the norm of all of them together
        value     g ← max(-most, min(g, most)), each number by itself
        adaptive  g_i ← g_i · min(1, most · max(‖w_i‖, 10⁻³) / ‖g_i‖), i a unit: a row of a matrix,
                  a number of a vector (Brock et al. 2021)

    Returns:
        the norm before, that of each gradient, and how much was shortened: all of it or nothing,
        or the share of the numbers, or of the units
    """
    named = {name: w.grad for name, w in parameters.items() if w.grad is not None}
    if not named:
        return torch.zeros(()), {}, torch.zeros(())
    norms = {name: torch.linalg.vector_norm(grad) for name, grad in named.items()}
    total = torch.linalg.vector_norm(torch.stack(list(norms.values())))
    if not most:
        return total, norms, torch.zeros_like(total)
    if by == "norm":
        share = (most / (total + 1e-6)).clamp(max=1.0)
        for grad in named.values():
            grad.mul_(share)
        return total, norms, (total > most).to(total.dtype)
    shortened = []
    for name, grad in named.items():
        if by == "value":
            shortened.append((grad.abs() > most).flatten())
            grad.clamp_(-most, most)
        else:
            limit, norm = most * _unit_norm(parameters[name]).clamp(min=1e-3), _unit_norm(grad)
            shortened.append((norm > limit).flatten())
            grad.mul_((limit / (norm + 1e-12)).clamp(max=1.0))
    return total, norms, torch.cat(shortened).to(total.dtype).mean()


def _unit_norm(t: Tensor) -> Tensor:
    """The norm of each unit: of the rows of a matrix, of the numbers of a vector."""
    if t.dim() < 2:
        return t.abs()
    return torch.linalg.vector_norm(t, dim=tuple(range(1, t.dim())), keepdim=True)


def state(optimizer: Optimizer, model: nn.Module) -> dict[str, dict[str, Any]]:
    """The optimiser's memory of each parameter, by the parameter's name."""
    found = {name: optimizer.state.get(w, {}) for name, w in model.named_parameters()}
    plain = {
        name: {key: value for key, value in memory.items() if value is not None}
        for name, memory in found.items()
    }
    return {name: memory for name, memory in plain.items() if memory}


def load_state(optimizer: Optimizer, model: nn.Module, found: Mapping[str, Any]) -> None:
    """Give an optimiser its memory; a ValueError says where it is not that of this model."""
    parameters = dict(model.named_parameters())
    expected = MEMORY[type(optimizer)]
    for name, memory in found.items():
        if name not in parameters:
            raise ValueError(f"the optimiser's memory is of {name!r}, which the model has not")
        if not isinstance(memory, dict) or memory.keys() != expected:
            held = list(memory) if isinstance(memory, dict) else memory
            kind = type(optimizer).__name__
            raise ValueError(f"the memory of {name!r} is {held!r}: {kind} has {sorted(expected)}")
        for key, value in memory.items():
            shape = torch.Size() if key == "step" else parameters[name].shape
            if getattr(value, "shape", None) != shape:
                shown = getattr(value, "shape", value)
                raise ValueError(f"{key} of {name!r} is {shown}: expected the shape {list(shape)}")
    for name, memory in found.items():
        w = parameters[name]
        optimizer.state[w] = {key: value.to(w.device, copy=True) for key, value in memory.items()}
