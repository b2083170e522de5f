"""A layer on the triton engine beside the oracle: the eager one, in float64."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metarnn import Cell, Recurrent
from tests.helpers.cases import make, randn, random_state
from tests.helpers.compare import assert_close, inputs, leaves, measure

TYPES = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def pair(cell: Cell, device: str, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """A layer on this engine, and the oracle: eager, in float64, with the weights as rounded."""
    ours = make(cell, engine="triton", dtype=dtype, device=device, **options)
    oracle = make(cell, engine="eager", device=device, **options)
    oracle.load_state_dict(ours.state_dict())
    return ours, oracle


def given(layer: Recurrent, batch: int, steps: int) -> list[Tensor]:
    """An input and an initial state."""
    dtype = next(layer.parameters()).dtype
    return [randn(steps, batch, layer.input_size, dtype=dtype), *random_state(layer, batch)]


def everything(layer: Recurrent, tensors: Sequence[Tensor], **call: Any) -> Any:
    """Values, all gradients, and the values where none are asked for: another kernel."""
    weight = next(layer.parameters())
    x, *state = inputs(*(t.to(weight) for t in tensors))
    wrt = [x, *state, *layer.parameters()]
    found = measure(lambda: layer(x, tuple(state), **call), wrt)
    with torch.no_grad():
        return found, leaves(layer(x, tuple(state), **call))


def from_a_random_state(layer: Recurrent, batch: int, steps: int) -> Any:
    """Values and all gradients."""
    dtype = next(layer.parameters()).dtype
    given = [randn(steps, batch, layer.input_size), *random_state(layer, batch)]
    x, *state = inputs(*(t.float().to(dtype) for t in given))
    return measure(lambda: layer(x, tuple(state)), [x, *state, *layer.parameters()])


def agree_from_a_random_state(cell: Cell, batch: int, steps: int) -> None:
    ours = make(cell, engine="triton", dtype=torch.float32)
    found, right = (
        from_a_random_state(layer, batch, steps) for layer in (ours, make(cell, engine="eager"))
    )
    assert_close(found, right, 1e-5)


def agree(cell: Cell, device: str, batch: int = 3, steps: int = 3, call: Any = None, **options):
    ours, oracle = pair(cell, device, **options)
    tensors = given(ours, batch, steps)
    found, expected = (everything(layer, tensors, **call or {}) for layer in (ours, oracle))
    assert_close(found, expected, TYPES[tensors[0].dtype])
