"""Where parameters enter a computation: each use gets a perturbation per sequence, ε.

A map y = W a + b of a sequence becomes y = W a + b + ε. Then ∂s/∂W = ∂s/∂ε ⊗ a for each sequence
by itself, though W is shared by all of them, and ∂s/∂ε comes from one backward pass over the batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from metarnn.engines import ENGINES
from metarnn.layers import Recurrent

CHOICES = ("auto", *ENGINES)


@dataclass
class Use:
    """One use of a parameter.

    kind          "map", "table" (an embedding) or "vector"
    weight, bias  their names; bias "" where there is none
    a             what the map was applied to, [K, B, n]; None for a vector, used as it is
    ε             the perturbation of what came out, [K, B, z]
    """

    kind: str
    weight: str
    bias: str
    a: Tensor | None
    ε: Tensor


# Functions that a vector may enter: with one row a sequence they compute the same.
ELEMENTWISE = {
    function
    for name in ("add", "sub", "mul", "div", "__add__", "__sub__", "__mul__", "__truediv__")
    for owner in (torch, torch.Tensor)
    if (function := getattr(owner, name, None)) is not None
} | {torch.Tensor.__radd__, torch.Tensor.__rsub__, torch.Tensor.__rmul__}


class Taps(TorchFunctionMode):
    """While active, notes each use of the parameters of recurrent layers and embeddings.

    uses   in the order of the computation
    other  names of parameters that were used in another way, too: what is noted of them is not all

    Args:
        model: whose parameters
        cut: whether the maps of recurrent layers see their inputs as constants
        poison: ε by the parameter's name in the place of zeros, [B, z]
    """

    def __init__(
        self, model: nn.Module, *, cut: bool = False, poison: dict[str, Tensor] | None = None
    ) -> None:
        super().__init__()
        self.names = {id(w): name for name, w in _tappable(model)}
        self.inside = {
            id(w) for m in model.modules() if isinstance(m, Recurrent) for w in m.parameters()
        }
        self.cut, self.poison, self.searching = cut, poison or {}, poison is not None
        self.uses: list[Use] = []
        self.other: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        watched = [t for t in (*args, *kwargs.values()) if id(t) in self.names]
        if not watched:
            return func(*args, **kwargs)
        if func is F.linear:
            return self._linear(*args, **kwargs)
        if func is F.embedding and len(watched) == 1 and watched[0] is args[1]:
            return self._embedding(args, kwargs)
        if func is F.layer_norm and len(watched) == len(args) - 2:
            x, shape, *vectors = args
            y = F.layer_norm(x, shape, **kwargs)
            y = y * vectors[0]  # each product or sum comes back here, as one of a vector
            return y + vectors[1] if len(vectors) > 1 and vectors[1] is not None else y
        if func in ELEMENTWISE and len(watched) == 1 and watched[0].dim() == 1:
            rest = [t for t in args if isinstance(t, Tensor) and t is not watched[0]]
            if len(rest) == 1 and rest[0].dim() >= 2 and rest[0].shape[-1] == len(watched[0]):
                return self._vector(func, args, kwargs, watched[0], rest[0])
        result = func(*args, **kwargs)
        if isinstance(result, Tensor | tuple | list):
            parts = (result,) if isinstance(result, Tensor) else result
            if any(isinstance(part, Tensor) and part.requires_grad for part in parts):
                self.other |= {self.names[id(t)] for t in watched}
        return result

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        name = self.names.get(id(weight), "")
        second = "" if bias is None else self.names.get(id(bias), "")
        if not name or (bias is not None and not second) or input.dim() > 3:
            self.other |= {n for n in (name, second) if n}
            return F.linear(input, weight, bias)
        if self.cut and id(weight) in self.inside:
            # In a search for NaNs, too, nothing may come through.
            input = input.detach().nan_to_num() if self.searching else input.detach()
        return self._tapped("map", name, second, input.detach(), F.linear(input, weight, bias))

    def _embedding(self, args: Sequence[Any], kwargs: Any) -> Tensor:
        name = self.names[id(args[1])]
        one_hot = F.one_hot(args[0], args[1].shape[0]).to(args[1].dtype)
        return self._tapped("table", name, "", one_hot, F.embedding(*args, **kwargs))

    def _vector(
        self, func: Any, args: Sequence[Any], kwargs: Any, vector: Tensor, rest: Tensor
    ) -> Tensor:
        name, rows = self.names[id(vector)], vector.expand(rest.shape[-2], -1)
        rows = self._tapped("vector", name, "", None, rows)
        return func(*(rows if t is vector else t for t in args), **kwargs)

    def _tapped(self, kind: str, weight: str, bias: str, a: Tensor | None, y: Tensor) -> Tensor:
        poison = self.poison.get(weight)
        ε = torch.zeros_like(y) if poison is None else poison.to(y).expand_as(y).clone()
        ε = ε.requires_grad_(torch.is_grad_enabled())
        self.uses.append(Use(kind, weight, bias, a, ε))
        return y + ε


def _tappable(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters whose uses are known to be row by row: one row, one sequence and step."""
    for prefix, module in model.named_modules(remove_duplicate=True):
        if isinstance(module, Recurrent | nn.Embedding):
            for name, w in module.named_parameters(prefix, recurse=False):
                if w.requires_grad:
                    yield name, w


@contextmanager
def in_plain_torch(model: nn.Module, fused: bool = False) -> Generator[None]:
    """Within the block layers run by engines that taps and repeated derivatives see into.

    With `fused`, cells that are linear in their state may still run in generated C: their maps are
    outside the loop. Then derivatives can be taken one by one only, not many at once.
    """
    layers: list[Any] = [m for m in model.modules() if getattr(m, "engine", "") in CHOICES]
    engines = [layer.engine for layer in layers]
    for layer in layers:
        layer.engine = _visible(layer, fused)
    try:
        yield
    finally:
        for layer, engine in zip(layers, engines, strict=True):
            layer.engine = engine


def _visible(layer: nn.Module, fused: bool) -> str:
    if type(layer).forward is not Recurrent.forward or not isinstance(layer, Recurrent):
        return "eager"
    if not layer.cell.linear:
        return "eager"
    on_cpu = all(w.is_cpu for w in layer.parameters())
    as_it_is = fused and on_cpu and not layer.cell.vectors and layer.engine in ("auto", "cpu")
    return layer.engine if as_it_is else "scan"
