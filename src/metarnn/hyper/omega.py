"""Ω(φ): what may be asked of a hypernetwork beside the task, each term with a weight of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from metarnn.cells import check, shapes
from metarnn.hyper.around import Around
from metarnn.hyper.meta import MetaRecurrent
from metarnn.hyper.watch import Record
from metarnn.layers import Recurrent


@dataclass(frozen=True)
class Omega:
    """J = L + Σ_k λ_k Ω_k; every field is the weight λ_k of a term.

    phi             mean square of the parameters φ of encoders and generators
    deviation       mean square of what is generated: how far θ_t is from the plain unit
    smooth          mean (d_t - d_{t-1})²: how fast it moves
    spectral        mean over φ's matrices of their largest singular value, squared
    reconstruction  mean (D c_t - x_t)²: what an encoder says of x lets x be told; for layers with
                    `reconstruct=True`

    >>> layer = metarnn.MetaRecurrent(cells.GRU(3, 4))
    >>> with metarnn.hyper.watch() as records:
    ...     output, _ = layer(torch.randn(5, 2, 3))
    >>> terms = Omega(deviation=0.1, smooth=1.0)(layer, records)
    >>> loss = output.square().mean() + sum(terms.values())
    >>> sorted(terms)
    ['omega_deviation', 'omega_smooth']

    Deviations and smoothness are those of numbers generated outside the loop. What is generated
    inside it (context="state", HyperLSTM, Mogrifier) has phi and spectral terms only.
    """

    phi: float = 0.0
    deviation: float = 0.0
    smooth: float = 0.0
    spectral: float = 0.0
    reconstruction: float = 0.0

    def __post_init__(self) -> None:
        for name, weight in vars(self).items():
            if check.number(name, weight) < 0:
                check.refuse(name, weight, "0 or more")

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __call__(self, model: nn.Module, records: Sequence[Record]) -> dict[str, Tensor]:
        """The weighted terms, by name; only those whose weight is not 0."""
        terms = {
            "phi": lambda: _mean([p.square().mean() for p in phi(model)]),
            "deviation": lambda: _mean([_average(r, d.square()) for r, d in _numbers(records)]),
            "smooth": lambda: _mean([_change(r, d) for r, d in _numbers(records)]),
            "spectral": lambda: _mean([_largest(p) for p in phi(model) if p.dim() == 2]),
            "reconstruction": lambda: _mean(
                [r.source.reconstruction(r) for r in records if r.source.decoder is not None]
            ),
        }
        found = {}
        for name, weight in vars(self).items():
            value = terms[name]() if weight else None
            if weight and value is None:
                why = "0: nothing in this model that the term is about"
                check.refuse(f"omega {name}", weight, why, "See metarnn.hyper.Omega.")
            if value is not None:
                found[f"omega_{name}"] = weight * value
        return found


def phi(model: nn.Module) -> Iterator[Tensor]:
    """The parameters that write weights: of encoders, generators, coupled hypernetworks."""
    for layer in model.modules():
        if isinstance(layer, MetaRecurrent):
            yield from layer.sources.parameters()
        if isinstance(layer, Recurrent) and isinstance(layer.cell, Around):
            for k, direction in layer.rows():
                own = shapes(layer.cells[k].unit)  # type: ignore[attr-defined]
                for name, weight in layer.weights(k, direction).items():
                    if name not in own:
                        yield weight


def _numbers(records: Sequence[Record]) -> Iterator[tuple[Record, Tensor]]:
    return ((record, d) for record in records for d in record.numbers.values())


def _mean(values: list[Tensor]) -> Tensor | None:
    return torch.stack(values).mean() if values else None


def _average(record: Record, values: Tensor) -> Tensor:
    """The mean over what is no padding."""
    if record.alive is None or values.dim() == 2:
        return values.mean()
    alive = record.alive[-len(values) :]
    return (values * alive).sum() / (alive.sum() * values.shape[-1]).clamp(min=1)


def _change(record: Record, d: Tensor) -> Tensor:
    if d.dim() == 2 or len(d) == 1:  # the same at all steps
        return d.new_zeros(())
    return _average(record, (d[1:] - d[:-1]).square())


def _largest(matrix: Tensor, rounds: int = 3) -> Tensor:
    """The square of the largest singular value, by power iteration from the largest row on."""
    with torch.no_grad():
        v = matrix[matrix.norm(dim=1).argmax()]
        for _ in range(rounds):
            v = nn.functional.normalize(matrix.T @ (matrix @ v), dim=0)
    return (matrix @ v).square().sum()
