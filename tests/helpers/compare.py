"""Results and gradients, gathered and compared relative to their scale."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def leaves(tree: Any) -> list[Tensor]:
    """The tensors in nested tuples and lists, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, PackedSequence):
        return [tree.data]
    return [leaf for part in tree for leaf in leaves(part)]


def error(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value expected if that is above 1."""
    if not expected.numel():
        return 0.0
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1))


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    found, wanted = leaves(actual), leaves(expected)
    assert [tuple(t.shape) for t in found] == [tuple(t.shape) for t in wanted]
    errors = [error(a, b) for a, b in zip(found, wanted, strict=True)]
    assert all(e <= tolerance for e in errors), errors  # false for NaN too


def assert_same(actual: Any, expected: Any) -> None:
    """Bit for bit."""
    found, wanted = leaves(actual), leaves(expected)
    assert len(found) == len(wanted)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def measure(function: Callable[[], Any], wrt: Iterable[Tensor]) -> tuple[list[Tensor], ...]:
    """What a function returns, and the gradients of a random linear form of it."""
    wrt = list(wrt)
    values = leaves(function())
    gradients = torch.autograd.grad(
        values, wrt, cotangents(values), allow_unused=True, materialize_grads=True
    )
    return [v.detach() for v in values], list(gradients)


def cotangents(values: Sequence[Tensor], seed: int = 9) -> list[Tensor]:
    source = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(v.shape, generator=source, dtype=torch.float64) for v in values]
    return [d.to(v) for d, v in zip(drawn, values, strict=True)]


def inputs(*tensors: Tensor) -> list[Tensor]:
    """Copies to take gradients by."""
    return [t.detach().clone().requires_grad_() for t in tensors]
