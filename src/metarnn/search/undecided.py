"""A mixture whose shares a network writes: the `structure` form of `MetaRecurrent` in a search."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from metarnn.cells import Cell, Drive, Map, State, Theta, check
from metarnn.cells.mixed import CHOICE
from metarnn.hyper import MetaRecurrent
from metarnn.hyper.watch import Record
from metarnn.layers import Recurrent
from metarnn.search.space import Choices, Space
from metarnn.search.supernet import Supernet, replaced, start

LOGITS = f"{CHOICE}mix"
SURE = 1e4  # a logit that leaves nothing to the other options, whatever is added to them


class Undecided(Cell):
    """A space's mixture with logits in place of shares: mix = softmax(sharpness ⊙ choice_mix).

    `choice_mix` has the logits of all decisions, one after the other. What a network adds to them
    (`form="structure"`) decides, from step to step, what the unit is.
    """

    space: Space

    @property
    def mixture(self) -> Cell:
        return self.space.mixture(self.input_size, self.hidden_size)

    @property
    def maps(self) -> dict[str, Map]:
        return self.mixture.maps

    @property
    def vectors(self) -> dict[str, int]:
        own = {name: width for name, width in self.mixture.vectors.items() if name != "mix"}
        return {**own, LOGITS: sum(self.space.sizes), "sharpness": 1}

    @property
    def states(self) -> tuple[int, ...]:
        return self.mixture.states

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        return self.mixture.drive(theta, x)

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        mix = self.space.probabilities(theta.sharpness * getattr(theta, LOGITS))
        return self.mixture.step(Theta.holding({**vars(theta), "mix": mix}), drive, state)

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        """Start near equal shares, but not at them: equal logits get equal gradients."""
        weights["sharpness"].fill_(1.0)
        weights[LOGITS].normal_(std=0.1)


class WrittenNet(Supernet):
    """A model with undecided units, to whose logits a network adds what it makes of the inputs.

    alpha    the logits that are the same everywhere
    writers  the parameters of the networks, which are not among those that are trained as weights
    """

    def __init__(self, space: Space, model: nn.Module, seed: int = 0) -> None:
        self.space, self.model, self.temperature = space, model, 1.0
        self.layers: list[MetaRecurrent] = []
        for layer in [each for each in model.modules() if isinstance(each, Recurrent)]:
            if isinstance(layer.cell, Undecided):
                self.layers.append(_written(layer))
                replaced(model, layer, self.layers[-1])
        if not self.layers:
            check.refuse("model", type(model).__name__, "one with the unit it was given in a layer")
        self.places = []
        for layer in self.layers:
            own = [name for name, _ in layer.named_parameters(recurse=False)]
            for name in [each for each in own if each.startswith((LOGITS, "sharpness"))]:
                delattr(layer, name)
                self.places.append((layer, name))
        self.writers = [w for layer in self.layers for w in layer.sources.parameters()]
        for weight in self.writers:
            weight.requires_grad_(False)
        self.alpha = start(space, seed, next(model.parameters()).device)
        self.use(self.alpha)

    def use(self, mix: Tensor | Choices) -> None:
        """Have the model compute with these logits, or as the unit of these choices."""
        logits = SURE * self.space.one_hot(mix) if isinstance(mix, tuple) else mix
        sharpness = torch.tensor([1 / self.temperature])
        for layer, name in self.places:
            like = next(layer.parameters())
            setattr(layer, name, (logits if name.startswith(LOGITS) else sharpness).to(like))

    @contextmanager
    def writing(self) -> Generator[list[Tensor]]:
        """What decides on the structure, as something to differentiate by."""
        for weight in self.writers:
            weight.requires_grad_(True)
        try:
            yield [self.alpha, *self.writers]
        finally:
            for weight in self.writers:
                weight.requires_grad_(False)

    def shares(self, records: Sequence[Record]) -> tuple[Tensor, float]:
        """The sum of the shares over all steps and sequences that were watched, and their count."""
        total, count = torch.zeros_like(self.alpha.detach()), 0.0
        for record in records:
            logits = self.alpha.detach() + record.numbers[f"shift_{LOGITS}"].detach()
            rows = self.space.probabilities(logits / self.temperature)
            alive = torch.ones_like(rows[..., :1]) if record.alive is None else record.alive
            total += (rows * alive).flatten(0, -2).sum(0)
            count += float(alive.sum())
        return total, count


def _written(layer: Recurrent) -> MetaRecurrent:
    """The same layer with a network that writes logits from the inputs up to each step."""
    names = ("bidirectional", "merge", "residual", "batch_first", "init", "engine")
    options = {name: getattr(layer, name) for name in (*names, "checkpoint_every")}
    made = MetaRecurrent(layer.cell, layer.num_layers, form="structure", **options)
    made.dropouts = layer.dropouts
    return made.to(next(layer.parameters()).device)
