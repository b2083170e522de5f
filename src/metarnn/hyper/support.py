"""A task described by examples of it: tasks never seen before need no name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metarnn.cells import check
from metarnn.hyper.descriptors import Descriptor, finite


class SupportSet(Descriptor):
    """ρ(mean_k φ([x_k; y_k])): the same whatever the order of the examples, for any number of them.

    Between φ and the mean, each example may look at the others (`attention` rounds).

    >>> about = SupportSet(1, 1, width=8)
    >>> x, y = torch.randn(4, 5, 1), torch.randn(4, 5, 1)
    >>> again = about((x.flip(1), y.flip(1)))
    >>> torch.allclose(about((x, y)), again, atol=1e-6)
    True

    inputs     numbers of an x, all its dimensions together; or of what `reads` makes of it
    outputs    numbers of a y; of whole numbers below `outputs`, one-hot
    width      of the description
    hidden     units of the layers of φ and ρ
    attention  rounds of self-attention
    reads      a module from x, [N·K, …], to [N·K, inputs]: a recurrent network for sequences
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int = 64,
        hidden: int = 128,
        *,
        attention: int = 1,
        reads: nn.Module | None = None,
    ) -> None:
        super().__init__(width)
        self.inputs, self.outputs = check.size("inputs", inputs), check.size("outputs", outputs)
        check.size("hidden", hidden)
        self.reads = reads
        self.pair = nn.Sequential(
            nn.Linear(inputs + outputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden)
        )
        self.rounds = nn.ModuleList(
            _Round(hidden) for _ in range(check.size("attention", attention, least=0))
        )
        self.whole = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, width))

    def forward(self, given: Any) -> Tensor:
        x, y = self._checked(given)
        if self.reads is not None:
            x = self.reads(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        if not y.is_floating_point():
            y = F.one_hot(y, self.outputs).to(x.dtype)
        x, y = x.flatten(2), y.flatten(2)
        for name, value, expected in (("x", x, self.inputs), ("y", y, self.outputs)):
            if value.shape[-1] != expected:
                check.refuse(f"support {name}", tuple(value.shape), f"{expected} numbers each")
        pairs = torch.relu(self.pair(torch.cat([x, y], -1)))
        for look in self.rounds:
            pairs = look(pairs)
        return self.whole(pairs.mean(1))

    def _checked(self, given: Any) -> tuple[Tensor, Tensor]:
        if not isinstance(given, tuple | list) or len(given) != 2:
            check.refuse("support", type(given).__name__, "(x, y), [tasks, examples, …] each")
        x, y = given
        if x.dim() < 2 or x.shape[:2] != y.shape[:2]:
            shapes = tuple(x.shape), tuple(y.shape)
            check.refuse("support", shapes, "as many tasks and examples in x as in y")
        if not x.shape[0] or not x.shape[1]:
            why = "at least one task and one example of each: of an empty set nothing is known"
            check.refuse("support", tuple(x.shape), why)
        x = x.unsqueeze(-1) if x.dim() == 2 else x
        if y.is_floating_point():
            y = y.unsqueeze(-1) if y.dim() == 2 else y
            finite("support y", y)
        elif int(y.min()) < 0 or int(y.max()) >= self.outputs:
            check.refuse("support y", f"{int(y.max())}", f"classes 0 to {self.outputs - 1}")
        if x.is_floating_point():
            finite("support x", x)
        return x, y


class _Round(nn.Module):
    """Each example looks at all of its task."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(2 * width, width)

    def forward(self, pairs: Tensor) -> Tensor:
        q, k, v = self.q(pairs), self.k(pairs), self.v(pairs)
        read = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return pairs + torch.relu(self.out(torch.cat([pairs, read], -1)))
