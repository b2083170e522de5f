"""A parallel scan in plain torch for cells that are linear in their state."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import State
from metarnn.engines.eager import checkpoint_obstacle
from metarnn.engines.engine import Engine, Request
from metarnn.engines.recurrence import Recurrence


class ScanEngine(Engine):
    name = "scan"
    reason = "the cell is linear in its state, so a parallel scan runs all steps"
    kernels = "the scan"

    def obstacle(self, request: Request) -> str:
        if not request.cell.linear:
            return f"{type(request.cell).__name__} is not linear in its state"
        return checkpoint_obstacle(request)

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        pairs = zip(recurrence.affine(), recurrence.state, strict=True)
        states = tuple(scan(a, b, start) for (a, b), start in pairs)
        output = recurrence.cell.output(recurrence.theta, recurrence.drive, states)
        # Copies: whoever zeroes a state that was returned must not zero an output with it.
        return output, tuple(part[-1].clone() for part in states)


def scan(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """s_t = a_t ⊙ s_{t-1} + b_t for t = 0..T-1 with s_{-1} = start; a, b: [T, ...], start: [...].

    Only products and sums of the a are formed, no logarithms and no quotients, so gates at exactly
    0 and 1 are as good as any. Narrow floats are accumulated in float32.

    >>> scan(torch.full((3, 1), 0.5), torch.ones(3, 1), torch.zeros(1)).flatten()
    tensor([1.0000, 1.5000, 1.7500])
    """
    wide = torch.promote_types(start.dtype, torch.float32)
    return _Scan.apply(a.to(wide), b.to(wide), start.to(wide)).to(start.dtype)  # type: ignore[union-attr]


def _forward(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """√T chunks of √T steps: all chunks side by side from zero, then the carry between them.

    About 2√T sequential operations instead of T, and three times the arithmetic, where a scan by
    doubling would do log T times as much.
    """
    steps = a.shape[0]
    length = math.isqrt(steps - 1) + 1
    chunks = -(-steps // length)
    padding = chunks * length - steps
    if padding:
        a = torch.cat([a, a.new_ones(1).expand(padding, *a.shape[1:])])
        b = torch.cat([b, b.new_zeros(1).expand(padding, *b.shape[1:])])
    shape = a.shape[1:]
    a, b = a.reshape(chunks, length, *shape), b.reshape(chunks, length, *shape)

    product, local = a[:, 0], b[:, 0]
    products, locals_ = [product], [local]
    for j in range(1, length):
        product = a[:, j] * product
        local = torch.addcmul(b[:, j], a[:, j], local)
        products.append(product)
        locals_.append(local)

    carry, carries = start, [start]
    for k in range(chunks - 1):
        carry = torch.addcmul(local[k], product[k], carry)
        carries.append(carry)
    states = torch.addcmul(
        torch.stack(locals_, 1), torch.stack(products, 1), torch.stack(carries).unsqueeze(1)
    )
    return states.reshape(chunks * length, *states.shape[2:])[:steps]


class _Scan(torch.autograd.Function):
    """The gradient of a scan is a scan in the other direction, so any order of it is right.

    d_t = ∂L/∂b_t = g_t + a_{t+1} ⊙ d_{t+1},  ∂L/∂a_t = d_t ⊙ s_{t-1},  ∂L/∂start = a_0 ⊙ d_0
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor, start: Tensor) -> Tensor:  # type: ignore[override]
        return _forward(a, b, start)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a, _, start = inputs
        ctx.save_for_backward(a, start, output)
        ctx.save_for_forward(a, start, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        a, start, states = ctx.saved_tensors
        later = torch.cat([a[1:], torch.zeros_like(a[:1])])
        d = scan(later.flip(0), grad.flip(0), torch.zeros_like(start)).flip(0)
        return d * _before(states, start), d, a[0] * d[0]

    @staticmethod
    def jvp(ctx: Any, da: Tensor, db: Tensor, dstart: Tensor) -> Tensor:  # type: ignore[override]
        a, start, states = ctx.saved_tensors
        tangent = torch.zeros_like(states) if db is None else db
        if da is not None:
            tangent = tangent + da * _before(states, start)
        return scan(a, tangent, torch.zeros_like(start) if dstart is None else dstart)


def _before(states: Tensor, start: Tensor) -> Tensor:
    return torch.cat([start.unsqueeze(0), states[:-1]])
