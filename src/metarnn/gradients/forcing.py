"""What a network that reads its own outputs is given while it learns: the truth, or those outputs.

Teacher forcing is `teacher=` of layers that feed back (`Jordan`, `feedback=True`), where all steps
of an output-recurrent network run at once; free running is the same call without it. Here is what
lies between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metarnn.cells import check
from metarnn.layers import GRU


@dataclass(frozen=True)
class Schedule:
    """How probable the truth is after so many updates (Bengio et al. 2015), from 1 to `least`.

        linear            1 - i / length
        exponential       exp(-i / length), that is kⁱ with k = exp(-1/length)
        inverse-sigmoid   k / (k + exp(i / k)), with k so that 1/2 is reached at `length`

    Args:
        kind: the curve
        length: its scale, in updates
        least: where it ends

    >>> [round(Schedule("linear", 100)(i), 2) for i in (0, 50, 200)]
    [1.0, 0.5, 0.0]
    """

    kind: Literal["linear", "exponential", "inverse-sigmoid"] = "inverse-sigmoid"
    length: float = 10000.0
    least: float = 0.0

    def __post_init__(self) -> None:
        check.one_of("kind", self.kind, ["linear", "exponential", "inverse-sigmoid"])
        if check.number("length", self.length) <= 0:
            check.refuse("length", self.length, "a number of updates above 0")
        check.probability("least", self.least)

    def __call__(self, update: float) -> float:
        if self.kind == "linear":
            p = 1 - update / self.length
        elif self.kind == "exponential":
            p = math.exp(-update / self.length)
        else:
            k = _half(self.length)
            p = 1 / (1 + math.exp(min(update / k, 700.0)) / k)
        return min(max(p, self.least), 1.0)


def _half(length: float) -> float:
    """The k of k ln k = length: there k / (k + exp(length / k)) is 1/2."""
    low, high = 1.0, length + 3.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.log(middle) < length else (low, middle)
    return low


def mix(truth: Tensor, own: Tensor, p: float | Tensor) -> Tensor:
    """Each token or vector from the truth with probability p, else the network's own.

    truth, own: [B] or [T, B] of tokens, [B, n] or [T, B, n] of vectors; the choice is made anew for
    each token of each sequence, for all n numbers of a vector at once.

    >>> mix(torch.ones(3), torch.zeros(3), 1.0)
    tensor([1., 1., 1.])
    """
    if truth.shape != own.shape:
        check.refuse("own", list(own.shape), f"the shape of the truth, {list(truth.shape)}")
    if not isinstance(p, Tensor):
        check.probability("p", p)
    lead = truth.shape[:-1] if truth.is_floating_point() and truth.dim() > 1 else truth.shape
    chosen = torch.rand(lead, device=truth.device) < p
    return torch.where(chosen.view(*lead, *[1] * (truth.dim() - len(lead))), truth, own)


def scheduled(
    step: Callable[[Tensor, Any], tuple[Tensor, Any]],
    truth: Tensor,
    state: Any = None,
    *,
    p: float,
    own: Callable[[Tensor], Tensor] = lambda output: output,
) -> tuple[Tensor, Any]:
    """Run step by step on true inputs with probability p, else on what the network just said.

        output_t, state = step(input_t, state),   input_{t+1} = truth_{t+1} or own(output_t)

    p = 1 is teacher forcing, p = 0 free running from the first input on; between them lies
    scheduled sampling, token by token. The first input is always the true one.

    Args:
        step: one step of the network, `step(input, state) -> output, state`
        truth: the true inputs, [T, B] or [T, B, n]
        state: where to begin
        p: how probable the truth is, see `Schedule`
        own: the next input that an output stands for, such as
            `lambda logits: logits.argmax(-1)`; no gradient passes through it

    Returns:
        the outputs, [T, B, ...], and the state after the last step

    >>> truth = torch.arange(4.0).view(4, 1)
    >>> outputs, _ = scheduled(lambda x, s: (10 * x + 1, s), truth, p=0.0)
    >>> outputs.flatten().tolist()
    [1.0, 11.0, 111.0, 1111.0]
    """
    given, outputs = truth[0], []
    for t in range(len(truth)):
        if t:
            given = mix(truth[t], own(outputs[-1]).detach(), p)
        output, state = step(given, state)
        outputs.append(output)
    return torch.stack(outputs), state


class Professor(nn.Module):
    """Professor forcing (Lamb et al. 2016): the network shall behave alike, taught or free.

    A discriminator reads the sequence of hidden states [T, B, n] of a teacher-forced and of a
    free-running pass and says which is which; the network learns to leave it in doubt.

        ℓ_D = -log D(taught) - log(1 - D(free)),   ℓ_G = -log D(free)

    >>> professor = Professor(8)
    >>> taught, free = torch.randn(2, 20, 4, 8)
    >>> professor.judge(taught, free).shape, professor.persuade(free).shape
    (torch.Size([]), torch.Size([]))

    Args:
        layer: what reads the states, by default a GRU of `width` in both directions
    """

    def __init__(self, hidden_size: int, width: int = 64, layer: nn.Module | None = None) -> None:
        super().__init__()
        if layer is None:
            layer = GRU(hidden_size, width, bidirectional=True)
        self.layer: Any = layer
        self.readout = nn.Linear(self.layer.output_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """The log-odds that these states were taught, [B]."""
        output, _ = self.layer(hidden)
        return self.readout(output.mean(0)).squeeze(-1)

    def judge(self, taught: Tensor, free: Tensor) -> Tensor:
        """ℓ_D, the discriminator's loss: no gradient reaches the network."""
        real, fake = self(taught.detach()), self(free.detach())
        return F.softplus(-real).mean() + F.softplus(fake).mean()

    def persuade(self, free: Tensor) -> Tensor:
        """ℓ_G, to add to the network's loss; the discriminator's weights are not to follow it."""
        with _frozen(self):
            return F.softplus(-self(free)).mean()


@contextmanager
def _frozen(module: nn.Module) -> Generator[None]:
    weights = [w for w in module.parameters() if w.requires_grad]
    for w in weights:
        w.requires_grad_(False)
    try:
        yield
    finally:
        for w in weights:
            w.requires_grad_(True)
