"""An unbiased approximation of RTRL of rank one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from metarnn.gradients.linearize import Linearization
from metarnn.gradients.rtrl import Forward

TINY = 1e-12  # keeps quotients of norms finite where nothing has happened yet


class UORO(Forward):
    """Unbiased online recurrent optimisation (Tallec & Ollivier 2018).

    For each sequence J ≈ s̃ ⊗ θ̃, with signs ν drawn anew at each step:

        s̃ ← ρ₀ D s̃ + ρ₁ ν,   θ̃ ← θ̃/ρ₀ + ν ∂⁺s/∂θ / ρ₁
        ρ₀ = √(‖θ̃‖ / ‖D s̃‖),   ρ₁ = √(‖ν ∂⁺s/∂θ‖ / ‖ν‖)

    so that E[s̃ ⊗ θ̃] = J. Bias: none. Variance: large, growing with S. Time and memory: O(P).
    """

    def reached(
        self, model: nn.Module, stretch: Any, lin: Linearization, δ: Tensor, J: Any
    ) -> dict[str, Tensor]:
        share = (δ * J["s"]).sum(1)  # [B]
        return {n: torch.tensordot(share, θ, 1) for n, θ in J.items() if n != "s"}

    def advance(
        self, model: nn.Module, stretch: Any, state: Any, lin: Linearization, J: Any
    ) -> Any:
        ν = torch.randint(0, 2, lin.s.shape, device=lin.s.device).to(lin.s.dtype) * 2 - 1
        new = _by_sequence(lin, ν)
        ρ1 = ((_norm(new) + TINY) / ν.norm(dim=1)).sqrt()  # [B]
        if J is None:
            return {"s": _times(ρ1, ν), **{n: _times(1 / ρ1, g) for n, g in new.items()}}
        old = {name: θ for name, θ in J.items() if name != "s"}
        tangent = lin.push(J["s"])
        ρ0 = ((_norm(old) + TINY) / (tangent.norm(dim=1) + TINY)).sqrt()
        after = {"s": _times(ρ0, tangent) + _times(ρ1, ν)}
        for name in {**old, **new}:
            parts = [_times(1 / ρ0, old[name])] if name in old else []
            parts += [_times(1 / ρ1, new[name])] if name in new else []
            after[name] = torch.stack(parts).sum(0)
        return after


def _by_sequence(lin: Linearization, seed: Tensor) -> dict[str, Tensor]:
    """seed · ∂⁺s/∂θ of each sequence, [B, ...], by the parameter's name."""
    _, parts = lin.pull(seed.unsqueeze(0))
    found: dict[str, Tensor] = {}
    for source, part in zip(lin.sources, parts, strict=True):
        if source.uses:
            each = torch.einsum("kbz,kbn->bzn", part[0], source.inputs)
        else:
            each = part[0].unsqueeze(-1)
        rows = [source.named(one) for one in each]
        found |= {name: torch.stack([row[name] for row in rows]) for name in source.names}
    return found


def _norm(named: dict[str, Tensor]) -> Tensor:
    """The norm over all parameters, of each sequence."""
    return torch.stack([g.flatten(1).norm(dim=1) for g in named.values()]).norm(dim=0)


def _times(factors: Tensor, t: Tensor) -> Tensor:
    return factors.view(-1, *[1] * (t.dim() - 1)) * t
