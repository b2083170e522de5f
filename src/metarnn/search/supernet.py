"""A model whose units are mixtures of all units of a space, and the logits of the mixture."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.layers import Recurrent
from metarnn.search.space import Choices, Space


class Supernet:
    """A model with mixtures in its recurrent layers, all of which have the same shares.

    The shares are no parameters of the model: they are handed to its layers by `use`, as a tensor
    that may depend on `alpha`, so that whoever trains the model trains its weights alone.
    """

    def __init__(self, space: Space, model: nn.Module, seed: int = 0) -> None:
        self.space, self.model = space, model
        self.places: list[tuple[Recurrent, str]] = []
        for layer in model.modules():
            if isinstance(layer, Recurrent):
                for name in [n for n, _ in layer.named_parameters(recurse=False)]:
                    if name.startswith("mix_l"):
                        delattr(layer, name)
                        self.places.append((layer, name))
        if not self.places:
            check.refuse("model", type(model).__name__, "one with the unit it was given in a layer")
        self.alpha = start(space, seed, next(model.parameters()).device)
        self.use(self.mixture())

    def mixture(self, temperature: float = 1.0) -> Tensor:
        """The shares that the logits stand for; the lower the temperature, the more decided."""
        return self.space.probabilities(self.alpha / temperature)

    def use(self, mix: Tensor | Choices) -> None:
        """Have the model compute with these shares, or as the unit of these choices."""
        if isinstance(mix, tuple):
            mix = self.space.one_hot(mix)
        mix = mix.to(self.alpha.device)
        for layer, name in self.places:
            dtype = next(layer.parameters()).dtype
            setattr(layer, name, mix.to(dtype))


def start(space: Space, seed: int, device: torch.device) -> Tensor:
    """Logits to begin with: nearly the same for all options, as in DARTS."""
    draw = torch.Generator().manual_seed(seed)
    return (1e-3 * torch.randn(sum(space.sizes), generator=draw)).to(device).requires_grad_()


def replaced(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put one part of a model in the place of another, wherever that is."""
    for part in list(model.modules()):
        for name, child in part.named_children():
            if child is old:
                setattr(part, name, new)
