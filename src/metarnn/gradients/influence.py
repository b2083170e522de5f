"""How parameters have influenced a state, J = ds/dθ, carried forward in time.

    J ← D J + ∂⁺s/∂θ

Only the entries that can be other than zero are kept, or those that a rule chooses to keep.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.gradients.linearize import Linearization
from metarnn.gradients.rule import LossFunction
from metarnn.gradients.structure import Structure, colors

LIMIT = 16 << 30  # bytes


class Influence:
    """How to keep and advance the influence of a model's parameters on its state.

    A parameter that reaches few of the S numbers of a state (of an elementwise cell: those of its
    own unit) has for each row z of it a list of R places: J is [B, n, z, R], so that factors of
    units run along memory. Others have all S: [B, S, z, n]. The derivatives of a stretch come from
    as few backward passes as their structure allows: one for an elementwise cell of any width, S in
    general.

    Args:
        loss, model, example, lin: a step, and what a stretch is to first order
        steps: keep what is reached within so many steps (SnAp-n); None keeps all: exact
        longest: how many steps it may be advanced by at once
        cut: whether the maps of recurrent layers see constants
    """

    def __init__(
        self,
        loss: LossFunction,
        model: nn.Module,
        example: Any,
        lin: Linearization,
        steps: int | None,
        *,
        longest: int = 1,
        cut: bool = False,
    ) -> None:
        structure = Structure(loss, model, example, lin, cut=cut, forever=steps is None)
        size, device = lin.size, lin.s.device
        reach = structure.reach(steps)
        self.size = size
        self.sources = {s.names[0]: replace(s, uses=[]) for s in lin.sources}
        self.places: dict[str, Tensor] = {}  # [z, R], S where there are fewer than R
        self.masks: dict[str, Tensor | None] = {}  # [S, z] of those that have all S
        for source in lin.sources:
            name = source.names[0]
            if source.uses and (most := int(reach[name].sum(0).max())) <= size // 4 + 1:
                self.places[name] = _places(reach[name], max(most, 1))
            else:
                mask = reach.get(name)
                self.masks[name] = None if mask is None or bool(mask.all()) else mask
        if self.masks:
            self.color = torch.arange(size, device=device)
        else:
            needed = torch.zeros(size, size, device=device)
            for name in self.places:
                needed += reach[name].float() @ reach[name].float().T
            D, M = (structure.D, structure.M) if longest == 1 else structure.closed()
            columns = [reach[name] & M[name] for name in self.places]
            self.color = colors(
                torch.cat([needed > 0, *columns], 1),
                torch.cat([D, *(M[name] for name in self.places)], 1),
            )
        self.seeds = torch.zeros(int(self.color.max()) + 1, size, device=device)
        self.seeds[self.color, torch.arange(size, device=device)] = 1
        self._guard(lin)

    def _guard(self, lin: Linearization) -> None:
        wanted = 0
        widths = sum(source.uses[0].ε.shape[-1] for source in lin.sources if source.uses)
        rows = lin.batch * (lin.size + widths) * lin.s.element_size()
        self.bytes_a_step = max(len(self.seeds) * rows, 1)
        for source in lin.sources:
            columns = source.inputs.shape[-1] if source.uses else 1
            height = source.uses[0].ε.shape[-1] if source.uses else source.shape.numel()
            kept = self.places[n].shape[1] if (n := source.names[0]) in self.places else self.size
            wanted += lin.batch * height * kept * columns * lin.s.element_size()
        if wanted > LIMIT:
            check.refuse(
                "model",
                f"with an influence of {wanted / 2**30:.0f} GiB",
                f"at most {LIMIT >> 30} GiB",
                "Use a smaller model or batch, one-hot inputs in the place of an embedding, a cell "
                "of one layer with elementwise recurrence, or a cheaper rule: rflo, uoro, kf-rtrl.",
            )

    @property
    def elementwise(self) -> bool:
        """Whether one backward pass finds everything."""
        return not self.masks and len(self.seeds) == 1

    def push(self, lin: Linearization, J: dict[str, Tensor]) -> dict[str, Tensor]:
        """The influence after a stretch, from that before it."""
        seeds = self.seeds.to(lin.s.dtype).unsqueeze(1).expand(-1, lin.batch, -1)
        D, parts = lin.pull(seeds)
        for source in lin.sources:  # one that the first stretch did not have
            if source.names[0] not in self.sources:
                self.sources[source.names[0]] = replace(source, uses=[])
                self.masks[source.names[0]] = None
        after: dict[str, Tensor] = {}
        given = {s.names[0]: (s, part) for s, part in zip(lin.sources, parts, strict=True)}
        for name in {**J, **given}:
            source, part = given.get(name, (None, None))
            if name in self.places:
                after[name] = self._few(name, J.get(name), D, source, part)
            else:
                after[name] = self._all(name, J.get(name), D, source, part)
        return after

    def pull(self, δ: Tensor, J: dict[str, Tensor]) -> dict[str, Tensor]:
        """δ · J, the gradient of each parameter; δ [B, S]."""
        found: dict[str, Tensor] = {}
        for name, own in J.items():
            if name in self.places:
                grad = _contract(_padded(δ)[:, self.places[name]], own)
            else:
                grad = torch.einsum("bs,bszn->zn", δ, own)
            found |= self.sources[name].named(grad)
        return found

    def _few(self, name: str, J: Tensor | None, D: Tensor | None, source: Any, part: Any) -> Tensor:
        places = self.places[name]  # [z, R]
        alone = places.shape[1] == 1
        kept = None
        color = torch.cat([self.color, self.color.new_zeros(1)])[places]  # [z, R]
        if J is not None and D is not None:
            if alone and len(D) == 1:
                own = _padded(D[0])[:, places.flatten()].unsqueeze(1)
                kept = (J.flatten(2) * own).view_as(J)
            else:
                batch = torch.arange(D.shape[1], device=D.device).view(-1, 1, 1, 1)
                local = _padded(D)[color[:, :, None], batch, places[:, None, :]]  # [B, z, R, R]
                kept = torch.einsum("bzrq,bnzq->bnzr", local, J)
        if source is None:
            assert J is not None
            return torch.zeros_like(J) if kept is None else kept
        if alone and len(part) == 1:
            M = part[0].transpose(0, 1)  # [B, K, z]
        else:
            height = torch.arange(len(places), device=places.device).unsqueeze(1)
            M = part[color, :, :, height]  # [z, R, K, B]
            M = M.permute(3, 2, 0, 1).flatten(2)  # [B, K, z R]
        if not alone:
            M = M * (places < self.size).flatten().to(M.dtype)
        a = source.inputs.permute(1, 2, 0)  # [B, n, K]
        shape = (*a.shape[:2], *places.shape)
        if kept is None:
            return torch.bmm(a, M).view(shape)
        flat = kept.flatten(2)
        if a.shape[-1] == 1:
            return flat.addcmul_(a, M).view(shape)
        return torch.baddbmm(flat, a, M, out=flat).view(shape)

    def _all(self, name: str, J: Tensor | None, D: Tensor | None, source: Any, part: Any) -> Tensor:
        kept = None
        if J is not None and D is not None:
            local = D[self.color].transpose(0, 1)  # [B, S, S]
            kept = torch.bmm(local, J.flatten(2)).view(J.shape)
        if source is None:
            assert J is not None
            return torch.zeros_like(J) if kept is None else kept
        if source.uses:
            a = source.inputs
            M = part[self.color].permute(2, 0, 3, 1).flatten(1, 2)  # [B, S z, K]
            new = torch.bmm(M, a.transpose(0, 1))
            new = new.view(len(a[0]), self.size, -1, a.shape[-1])
        else:
            new = part[self.color].transpose(0, 1).unsqueeze(-1)  # [B, S, numel, 1]
        mask = self.masks.get(name)
        new = new if kept is None else kept.add_(new)
        return new if mask is None else new * mask.to(new.dtype).unsqueeze(-1)


def _places(reach: Tensor, most: int) -> Tensor:
    """The places [z, R] that each column of reach [S, z] has; S where it has fewer than R."""
    size = len(reach)
    number = torch.arange(size, device=reach.device).unsqueeze(1)
    return torch.where(reach, number, size).sort(0).values[:most].T.contiguous()


def _contract(δ: Tensor, J: Tensor) -> Tensor:
    """Σ_b Σ_r δ[b, z, r] J[b, n, z, r], [z, n]."""
    if δ.shape[-1] > 1:
        return torch.einsum("bzr,bnzr->zn", δ, J)
    # A product for each z is what einsum makes of this: 9 ms at B = 8, z = 2000, n = 65.
    total = torch.zeros_like(J[0].squeeze(-1))
    for one, own in zip(δ, J, strict=True):
        total.addcmul_(one.T, own.squeeze(-1))
    return total.T


def _padded(rows: Tensor) -> Tensor:
    """[..., S] with a zero after the last, for places that are none."""
    return torch.cat([rows, rows.new_zeros(*rows.shape[:-1], 1)], -1)
