"""Networks that write numbers: from a context [..., C] to rows [..., width] by name.

They know nothing of recurrence. `Dense` has a matrix for each row of numbers. The others cut all
rows into chunks of one size and write each chunk from the context and from its address, so their
parameters do not depend on how much is written: the same generator serves units of any size.

Every one ends in a linear head. With `start="zero"` the head, and only it, starts at 0: all
numbers are 0 at first, and gradient reaches everything behind the head after one update. With
`start="hyperfan"` numbers start random, with the standard deviation that each of them asks for
(hyperfan initialisation, Chang et al. 2020, for each row apart).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metarnn.cells import check
from metarnn.hyper.forms import Number
from metarnn.hyper.modules import ModuleGenerator
from metarnn.layers import GRU


class Generator(nn.Module):
    """context   the width of what it reads, numbers of a variance about 1
    numbers   the rows to write
    start     "zero" or "hyperfan"
    """

    def __init__(self, context: int, numbers: Mapping[str, Number], start: str = "zero") -> None:
        super().__init__()
        self.context = check.size("context", context)
        self.numbers = dict(numbers)
        self.start = check.one_of("start", start, ["zero", "hyperfan"])

    def begin(self, head: Tensor, std: float) -> None:
        """Starting values of a head that reads features of variance 1, [rows, features]."""
        with torch.no_grad():
            head.zero_()
            if self.start == "hyperfan":
                head.normal_(0, std / math.sqrt(head.shape[-1]))


class Dense(Generator):
    """Numbers = M c, or M relu(W c + b) with a layer of `hidden` units; one M a row of numbers.

    >>> numbers = {"rows": Number((8,), 0.1), "shift": Number((8,), 0.5)}
    >>> {name: row.shape for name, row in Dense(4, numbers)(torch.randn(20, 3, 4)).items()}
    {'rows': torch.Size([20, 3, 8]), 'shift': torch.Size([20, 3, 8])}
    """

    def __init__(
        self,
        context: int,
        numbers: Mapping[str, Number],
        start: str = "zero",
        *,
        hidden: int = 0,
    ) -> None:
        super().__init__(context, numbers, start)
        self.hidden = nn.Linear(context, check.size("hidden", hidden)) if hidden else None
        if self.hidden is not None:
            nn.init.kaiming_normal_(self.hidden.weight, nonlinearity="relu")
            nn.init.zeros_(self.hidden.bias)
        features = hidden or context
        self.heads = nn.ParameterDict(
            {name: torch.empty(n.width, features) for name, n in numbers.items()}
        )
        for name, number in numbers.items():
            # relu halves the second moment that He initialisation had doubled: it is 1 again.
            self.begin(self.heads[name], number.std)

    def forward(self, context: Tensor) -> dict[str, Tensor]:
        features = context if self.hidden is None else torch.relu(self.hidden(context))
        return {name: F.linear(features, self.heads[name]) for name in self.numbers}


class Chunked(Generator):
    """All rows in chunks of `chunk` numbers, each written from the context and its address.

    A chunk's address says which row it belongs to and, by sines, where in that row it stands.
    """

    def __init__(
        self,
        context: int,
        numbers: Mapping[str, Number],
        start: str = "zero",
        *,
        chunk: int = 64,
        features: int = 64,
    ) -> None:
        super().__init__(context, numbers, start)
        self.chunk, self.features = check.size("chunk", chunk), check.size("features", features)
        self.row = nn.Parameter(torch.randn(len(numbers), features))
        self.place = nn.Linear(2 * PLACES, features)
        self.enter = nn.Linear(context, features)
        self.head = nn.Parameter(torch.empty(chunk, features))
        self.begin(self.head, 1.0)
        places, rows = [], []
        for k, number in enumerate(numbers.values()):
            count = -(-number.width // chunk)
            places.append(fourier((torch.arange(count) + 0.5) / count, PLACES, 2.0))
            rows += [k] * count
        self.register_buffer("_places", torch.cat(places), persistent=False)
        self.register_buffer("_rows", torch.tensor(rows), persistent=False)
        self._counts = [-(-number.width // chunk) for number in numbers.values()]

    def addresses(self) -> Tensor:
        """[chunks, features]"""
        places: Any = self._places
        rows: Any = self._rows
        return self.row[rows] + self.place(places.to(self.row.dtype))

    def written(self, features: Tensor) -> dict[str, Tensor]:
        """The numbers from the features of each chunk, [..., chunks, features]."""
        chunks = F.linear(F.layer_norm(features, features.shape[-1:]), self.head)
        found = {}
        parts = chunks.split(self._counts, -2)
        for (name, number), part in zip(self.numbers.items(), parts, strict=True):
            found[name] = number.std * part.flatten(-2)[..., : number.width]
        return found

    def forward(self, context: Tensor) -> dict[str, Tensor]:
        lead = context.shape[:-1]
        rows = self.written(self.mixed(context.flatten(0, -2), self.addresses()))
        return {name: row.unflatten(0, lead) for name, row in rows.items()}

    def mixed(self, context: Tensor, addresses: Tensor) -> Tensor:
        """Features of every chunk, [N, chunks, features], from contexts [N, C]."""
        return torch.relu(self.enter(context).unsqueeze(-2) + addresses)


class Convolutional(Chunked):
    """Chunks lie in a line, and convolutions over `kernel` neighbours write them."""

    def __init__(
        self,
        context: int,
        numbers: Mapping[str, Number],
        start: str = "zero",
        *,
        kernel: int = 3,
        layers: int = 2,
        **sizes: int,
    ) -> None:
        super().__init__(context, numbers, start, **sizes)
        if check.size("kernel", kernel) % 2 == 0:
            check.refuse("kernel", kernel, "an odd number")
        n = self.features
        self.convolutions = nn.ModuleList(
            nn.Conv1d(n, n, kernel, padding=kernel // 2)
            for _ in range(check.size("layers", layers))
        )

    def mixed(self, context: Tensor, addresses: Tensor) -> Tensor:
        line = super().mixed(context, addresses).transpose(-1, -2)
        for convolution in self.convolutions:
            line = line + torch.relu(convolution(line))
        return line.transpose(-1, -2)


class Attention(Chunked):
    """Each chunk asks the context: its address is a query, parts of the context are what it reads.

    The context is cut into `tokens` parts, each with keys and values of `heads` heads.
    """

    def __init__(
        self,
        context: int,
        numbers: Mapping[str, Number],
        start: str = "zero",
        *,
        tokens: int = 8,
        heads: int = 4,
        **sizes: int,
    ) -> None:
        super().__init__(context, numbers, start, **sizes)
        n = self.features
        if n % check.size("heads", heads):
            check.refuse("heads", heads, f"a divisor of features={n}")
        self.tokens, self.heads = check.size("tokens", tokens), heads
        self.enter = nn.Linear(context, tokens * n)
        self.query, self.key, self.value, self.out = (nn.Linear(n, n) for _ in range(4))

    def mixed(self, context: Tensor, addresses: Tensor) -> Tensor:
        tokens = torch.relu(self.enter(context)).unflatten(-1, (self.tokens, -1))
        q, k, v = (
            of(row).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
            for of, row in (
                (self.query, addresses.expand(len(context), *addresses.shape)),
                (self.key, tokens),
                (self.value, tokens),
            )
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        read = (scores.softmax(-1) @ v).transpose(-2, -3).flatten(-2)
        return addresses + self.out(read)


class Rolling(Chunked):
    """A GRU walks over the addresses, from a state made of the context, and writes as it goes."""

    def __init__(
        self,
        context: int,
        numbers: Mapping[str, Number],
        start: str = "zero",
        **sizes: int,
    ) -> None:
        super().__init__(context, numbers, start, **sizes)
        self.walk = GRU(self.features, self.features)

    def mixed(self, context: Tensor, addresses: Tensor) -> Tensor:
        x = addresses.unsqueeze(1).expand(-1, len(context), -1)  # chunks are its time
        return self.walk(x, torch.tanh(self.enter(context)).unsqueeze(0))[0].transpose(0, 1)


PLACES = 8  # sines and cosines of a chunk's place in its row


def fourier(t: Tensor, count: int, longest: float) -> Tensor:
    """sin and cos of 2π t / p for `count` periods p, each half the one before: [..., 2 count]."""
    angles = t.unsqueeze(-1) * (2 * math.pi / longest) * 2.0 ** torch.arange(count, device=t.device)
    return torch.cat([angles.sin(), angles.cos()], -1)


GENERATORS: dict[str, Callable[..., Generator]] = {
    "dense": Dense,
    "conv": Convolutional,
    "attention": Attention,
    "recurrent": Rolling,
}


def generator(
    kind: str | Callable[..., nn.Module], context: int, numbers: Mapping[str, Number]
) -> nn.Module:
    """A generator by its name, or what a function (context, numbers) -> module makes."""
    if isinstance(kind, str):
        kind = GENERATORS[check.one_of("generator", kind, GENERATORS)]
    return as_generator(kind(context, numbers), context, numbers)


def as_generator(module: nn.Module, context: int, numbers: Mapping[str, Number]) -> nn.Module:
    """The module itself if it is a `Generator`, else one that takes whatever it returns apart."""
    if isinstance(module, Generator):
        return module
    return ModuleGenerator(module, context, numbers)
