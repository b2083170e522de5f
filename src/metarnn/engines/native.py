"""torch's own LSTM, GRU and Elman (cuDNN, oneDNN), with gradients of any order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from metarnn.cells import GRU, LSTM, Cell, Elman, State
from metarnn.engines.autograd import pull_back
from metarnn.engines.engine import Engine, Request
from metarnn.engines.modes import transformed
from metarnn.engines.recurrence import Recurrence

Stack = Callable[..., tuple[Tensor, ...]]  # (x, *state, *weights) -> (output, *state)


def op(cell: Cell) -> str:
    """The torch function that computes a cell over time; empty when there is none."""
    if type(cell) is LSTM and not (cell.peephole or cell.coupled or cell.layer_norm):
        return "lstm"
    if type(cell) is GRU and cell.reset == "after" and not cell.layer_norm:
        return "gru"
    if type(cell) is Elman and cell.nonlinearity in ("tanh", "relu"):
        return f"rnn_{cell.nonlinearity}"
    return ""


class NativeEngine(Engine):
    """Runs whole stacks, see `run_stack`."""

    name = "native"
    reason = "torch's own fused kernels (cuDNN, oneDNN) compute this cell"
    kernels = "torch's own kernels"

    def obstacle(self, request: Request) -> str:
        if not op(request.cell):
            return f"torch has no kernel for this {type(request.cell).__name__}"
        foreign = [need for need in request.needs if need != "lengths"]
        if foreign:
            return f"torch's kernel knows no {foreign[0]}"
        if transformed():
            return "torch.func and forward-mode derivatives do not see through torch's kernels"
        return ""

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        raise NotImplementedError("torch's kernels run stacks of layers: `run_stack`")


def run_stack(
    cell: Cell,
    x: Tensor,
    state: State,
    weights: Sequence[Tensor],
    *,
    layers: int,
    bidirectional: bool,
    lengths: Tensor | None,
    composition: Stack,
) -> tuple[Tensor, State]:
    """A stack of plain layers over x [T, B, I]: the output and the final state.

    Weights are flat, in the order of torch.nn. `composition` computes the same in plain torch:
    cuDNN and oneDNN cannot differentiate their own backward pass, so that one is differentiated.
    """
    parts = len(state)
    kernel, bias = getattr(torch, op(cell)), cell.maps["ih"].bias

    def stack(x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        hx, flat = tensors[:parts], list(tensors[parts:])
        # cuDNN gives no gradient of a call in evaluation mode; the flag means dropout, here none.
        options = (bias, layers, 0.0, torch.is_grad_enabled(), bidirectional)
        if lengths is None:
            return kernel(x, _hidden(hx), flat, *options, False)
        packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
        order, back = cast(Tensor, packed.sorted_indices), cast(Tensor, packed.unsorted_indices)
        hx = tuple(h.index_select(1, order) for h in hx)
        data, *final = kernel(packed.data, packed.batch_sizes, _hidden(hx), flat, *options)
        output, _ = pad_packed_sequence(
            PackedSequence(data, packed.batch_sizes, order, back), total_length=x.shape[0]
        )
        return output, *(h.index_select(1, back) for h in final)

    tensors = (x, *state, *weights)
    with warnings.catch_warnings():
        # Weights are ordinary parameters here, so cuDNN copies them into one chunk a call.
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single")
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            output, *final = cast(tuple[Tensor, ...], _AnyOrder.apply(stack, composition, *tensors))
        else:
            output, *final = stack(*tensors)
    return output, tuple(final)


def _hidden(hx: Sequence[Tensor]) -> Any:
    return list(hx) if len(hx) > 1 else hx[0]


class _AnyOrder(torch.autograd.Function):
    """A fused function for the first derivative, its composition in plain torch for the others."""

    @staticmethod
    def forward(ctx: Any, fused: Stack, composition: Stack, *tensors: Tensor) -> Any:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
            outputs = fused(*leaves)
        ctx.save_for_backward(*tensors)
        ctx.composition, ctx.leaves, ctx.outputs = composition, leaves, outputs
        ctx.set_materialize_grads(False)
        return tuple(o.detach() for o in outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        if torch.is_grad_enabled():
            return None, None, *pull_back(ctx.composition, ctx.saved_tensors, grads)
        used = [(o, g) for o, g in zip(ctx.outputs, grads, strict=True) if g is not None]
        wanted = [leaf for leaf in ctx.leaves if leaf.requires_grad]
        outputs, cotangents = [o for o, _ in used], [g for _, g in used]
        gradients = iter(
            torch.autograd.grad(outputs, wanted, cotangents, retain_graph=True, allow_unused=True)
        )
        return None, None, *(next(gradients) if leaf.requires_grad else None for leaf in ctx.leaves)
