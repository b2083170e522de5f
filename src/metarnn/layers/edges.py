"""The edge of a layer: what people pass in, checked and turned into time first, and back again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from metarnn.cells import State, check
from metarnn.engines.zeros import zeros


@dataclass(frozen=True)
class Inputs:
    """One call of a layer, time first; everything is on the layer's device."""

    x: Tensor  # [T, B, I], zero where a sequence has ended
    lengths: Tensor | None  # [B]; None when all sequences are T long
    resets: Tensor | None  # [T, B, 1]
    teacher: Tensor | None  # [T, B, O]
    batched: bool
    batch_first: bool
    packed: PackedSequence | None
    alive: Tensor | None  # [T, B, 1], false from the end of each sequence on
    context: Tensor | None = None  # [T, B, C] or [B, C], what weights are to be generated from

    def leave(self, output: Tensor) -> Tensor | PackedSequence:
        """The output [T, B, O] in the shape of what came in."""
        if self.packed is not None:
            packed, order = self.packed, self.packed.sorted_indices
            if order is not None:
                output = output.index_select(1, order)
            # Row t of a packed batch holds its first batch_sizes[t] sequences.
            rows = torch.arange(output.shape[1]) < packed.batch_sizes.unsqueeze(1)
            return packed._replace(data=output[rows.to(output.device)])
        if not self.batched:
            return output.squeeze(1)
        return output.transpose(0, 1) if self.batch_first else output


def enter(
    like: Tensor,
    input_size: int,
    output_size: int,
    batch_first: bool,
    x: Tensor | PackedSequence | None,
    batch: int,
    lengths: Any,
    resets: Tensor | None,
    steps: int | None,
    teacher: Tensor | None,
) -> Inputs:
    """Check a call's arguments and put time first. `batch` counts only where x is None."""
    packed = x if isinstance(x, PackedSequence) else None
    if packed is not None:
        if lengths is not None:
            check.refuse("lengths", lengths, "None with a PackedSequence, which has its own")
        x, lengths = pad_packed_sequence(packed)
        batch_first = False
    if x is None:
        steps = check.size("steps", steps)
        x = torch.zeros(steps, batch, input_size, dtype=like.dtype, device=like.device)
        batched = True
    else:
        if not isinstance(x, Tensor):
            raise TypeError(f"x is a {type(x).__name__}: expected a tensor or a PackedSequence")
        if steps is not None:
            check.refuse("steps", steps, "None where x is given", "x has its own length.")
        if x.dim() not in (2, 3):
            shape = "[batch, time, input]" if batch_first else "[time, batch, input]"
            check.refuse("x.shape", tuple(x.shape), f"{shape}, or [time, input] for one sequence")
        if x.shape[-1] != input_size:
            check.refuse("x.shape", tuple(x.shape), f"a last dimension of input_size={input_size}")
        matches("x", x, like)
        batched = x.dim() == 3
        x = x.transpose(0, 1) if batched and batch_first else x if batched else x.unsqueeze(1)
    if x.shape[0] == 0:
        check.refuse("x.shape", tuple(x.shape), "at least one time step")

    def time_first(name: str, value: Tensor, *shape: int) -> Tensor:
        """A companion of x, checked against `shape`, which comes without the batch if x does."""
        value = value.transpose(0, 1) if batched and batch_first else value
        value = value if batched else value.unsqueeze(1)
        if value.shape != shape:
            check.refuse(f"{name}.shape", tuple(value.shape), f"{list(shape)}, time first")
        return value

    if resets is not None:
        on_device("resets", resets, like)
        resets = time_first("resets", resets, *x.shape[:2]).bool().unsqueeze(-1)
    if teacher is not None:
        matches("teacher", teacher, like)
        teacher = time_first("teacher", teacher, *x.shape[:2], output_size)
    if lengths is not None:
        if not batched:
            check.refuse("lengths", lengths, "None for one sequence without a batch dimension")
        lengths = _lengths(lengths, *x.shape[:2], device=x.device)
    alive = None
    if lengths is not None:
        alive = (torch.arange(len(x), device=x.device).unsqueeze(1) < lengths).unsqueeze(-1)
        # Zero, not masked later on: a NaN in the padding would reach dW even through a mask.
        ended = ~alive
        x = x.masked_fill(ended, 0)
        teacher = None if teacher is None else teacher.masked_fill(ended, 0)
        resets = None if resets is None else resets & ~ended
    return Inputs(x, lengths, resets, teacher, batched, batch_first, packed, alive)


def _lengths(lengths: Any, steps: int, batch: int, device: torch.device) -> Tensor | None:
    try:
        lengths = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        check.refuse("lengths", lengths, f"{batch} whole numbers, one for each sequence")
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        check.refuse("lengths.dtype", lengths.dtype, "whole numbers")
    if lengths.shape != (batch,):
        check.refuse("lengths.shape", tuple(lengths.shape), f"({batch},), one for each sequence")
    if torch.compiler.is_compiling():  # what depends on values cannot be decided there
        return lengths.to(device=device, dtype=torch.int64)
    if not batch:
        return None
    shortest, longest = torch.stack(lengths.aminmax()).tolist()
    if shortest < 1:
        advice = "Leave empty sequences out of the batch."
        check.refuse("lengths", lengths.tolist(), "at least 1 everywhere", advice)
    if longest > steps:
        check.refuse("lengths", lengths.tolist(), f"at most the {steps} time steps of x")
    if shortest == steps:
        return None
    return lengths.to(device=device, dtype=torch.int64)


def enter_state(
    state: Any,
    sizes: tuple[int, ...],
    rows: int,
    directions: int,
    batch: int,
    batched: bool,
    like: Tensor,
) -> State:
    """The state as a tuple of parts [rows, batch, n], rows = layers × directions.

    A state for one layer ([B, n], [1, B, n], or both directions of it) is used for all.
    """
    if state is None:
        own = torch.compiler.is_compiling()
        return tuple(zeros((rows, batch, n), like.dtype, like.device, own) for n in sizes)
    parts = (state,) if isinstance(state, Tensor) else state
    if batched and type(parts) is tuple and len(parts) == len(sizes):
        # What a layer returned needs no closer look; a stream brings it back at every step.
        for part, n in zip(parts, sizes, strict=True):
            if not isinstance(part, Tensor) or part.shape != (rows, batch, n):
                break
            if part.dtype != like.dtype or part.device != like.device:
                break
        else:
            return parts
    if not isinstance(parts, tuple | list) or not all(isinstance(s, Tensor) for s in parts):
        raise TypeError(f"state is {type(state).__name__}: expected a tensor or a tuple of tensors")
    if len(parts) != len(sizes):
        check.refuse("state", f"{len(parts)} part(s)", f"{len(sizes)}, of widths {sizes}")
    checked = []
    for k, (part, n) in enumerate(zip(parts, sizes, strict=True)):
        name = f"state[{k}]" if len(sizes) > 1 else "state"
        matches(name, part, like)
        full = part if batched else part.unsqueeze(-2)
        full = full if full.dim() == 3 else full.unsqueeze(0)
        if full.shape[1:] != (batch, n) or full.shape[0] not in (1, directions, rows):
            shape = [rows, batch, n] if batched else [rows, n]
            check.refuse(f"{name}.shape", tuple(part.shape), f"{shape}, or that of one layer")
        times = rows // full.shape[0]
        checked.append(full if times == 1 else full.repeat(times, 1, 1))
    return tuple(checked)


def single(part: Tensor) -> Tensor:
    """The state of a single layer, [1, B, n]; no view in training: it may be detached in place."""
    return torch.stack([part]) if torch.is_grad_enabled() else part.unsqueeze(0)


def on_device(name: str, value: Tensor, like: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}: expected a tensor")
    if value.device != like.device:
        advice = f"Move it with {name}.to({str(like.device)!r}), or the layer with layer.to(…)."
        check.refuse(f"{name}.device", str(value.device), f"the layer's, {like.device}", advice)


def matches(name: str, value: Tensor, like: Tensor) -> None:
    """Refuse a tensor that is not on the layer's device and of its dtype."""
    on_device(name, value, like)
    if value.dtype != like.dtype and not torch.is_autocast_enabled(like.device.type):
        advice = (
            f"Convert it with {name}.to({like.dtype}), or the layer with layer.to({value.dtype})."
        )
        check.refuse(f"{name}.dtype", value.dtype, f"the layer's, {like.dtype}", advice)


def flip(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x [T, B, ...] with each sequence turned round within its own length."""
    if lengths is None:
        return x.flip(0)
    t = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    rows = torch.where(t < lengths, lengths - 1 - t, t)  # [T, B]
    return x.gather(0, rows.view(*rows.shape, *[1] * (x.dim() - 2)).expand_as(x))


def at_end(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x [T, B, n] at the last step of each sequence, [B, n]."""
    if lengths is None:
        return x[-1]
    return x.gather(0, (lengths - 1).view(1, -1, 1).expand(1, *x.shape[1:])).squeeze(0)
