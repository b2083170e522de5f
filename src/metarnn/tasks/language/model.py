"""A language model: embedding, recurrent layers, softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from metarnn.cells import check
from metarnn.layers.dropout import keep
from metarnn.tasks.limits import DEEPEST

# More logits than this at once are computed in parts, and again in the backward pass: 2^25 are
# 128 MB, and training would hold them three times.
LOGITS = 1 << 25
MOST_LAYERS = DEEPEST


class Output(NamedTuple):
    """What a call of a language model gives.

    nll      [T, B], -log p(target_t | inputs up to t), in nats; without targets -log p of every
             token, [T, B, V]
    state    what each layer carries on; sequences stand along dimension 1
    hidden   [T, B, n], what the last layer put out
    dropped  the same after dropout, what the softmax saw
    """

    nll: Tensor
    state: Any
    hidden: Tensor
    dropped: Tensor


class LanguageModel(nn.Module):
    """p(x_{t+1} | x_1 … x_t) = softmax(W h_t + b), h_t of a stack of recurrent layers.

    >>> from metarnn.layers import LSTM
    >>> model = LanguageModel(50, [LSTM(8, 16), LSTM(16, 8)], embedding=8, tied=True)
    >>> inputs, targets = torch.randint(50, (2, 20, 4))
    >>> output = model(inputs, targets)
    >>> output.nll.shape, len(output.state)
    (torch.Size([20, 4]), 2)

    layers             recurrent layers, each reading the outputs of the one before: any with
                       `layer(x, state, resets=…) -> y, state`, `step`, `input_size`, `output_size`
    embedding          its width; 0 for one-hot vectors, the embedding that is the identity
    tied               W is the embedding's own matrix
    embedding_dropout  whole tokens, everywhere in a batch (AWD-LSTM)
    input_dropout      on the embeddings, one mask for all steps, as the next two
    hidden_dropout     between layers
    output_dropout     before the softmax
    cutoffs            an adaptive softmax: frequent tokens below the first cutoff cost little
    """

    def __init__(
        self,
        vocabulary_size: int,
        layers: nn.Module | Sequence[nn.Module],
        *,
        embedding: int = 0,
        tied: bool = False,
        embedding_dropout: float = 0.0,
        input_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        output_dropout: float = 0.0,
        cutoffs: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.vocabulary_size = check.size("vocabulary_size", vocabulary_size)
        check.size("embedding", embedding, least=0)
        self.layers = nn.ModuleList([layers] if isinstance(layers, nn.Module) else layers)
        self.embedding_dropout = check.probability("embedding_dropout", embedding_dropout)
        self.input_dropout = check.probability("input_dropout", input_dropout)
        self.hidden_dropout = check.probability("hidden_dropout", hidden_dropout)
        self.output_dropout = check.probability("output_dropout", output_dropout)
        width = self._check_layers(embedding or vocabulary_size)
        self.tied = tied
        if tied and (not embedding or cutoffs):
            check.refuse("tied", tied, "False with one-hot inputs and with an adaptive softmax")
        if tied and width != embedding:
            check.refuse("tied", tied, f"a last layer as wide as the embedding: {width} is not")
        self.embedding = nn.Embedding(vocabulary_size, embedding) if embedding else None
        self.adaptive = self.weight = self.bias = None
        if cutoffs:
            self.adaptive = nn.AdaptiveLogSoftmaxWithLoss(width, vocabulary_size, list(cutoffs))
        else:
            self.bias = nn.Parameter(torch.empty(vocabulary_size))
            if not tied:
                self.weight = nn.Parameter(torch.empty(vocabulary_size, width))
        self.reset_parameters()

    # What `build_model` was given, as plain data, for `tasks.pretrained`.
    description: dict[str, Any] | None = None

    def _check_layers(self, width: int) -> int:
        """Refuse layers that do not fit; the width of what the last one puts out."""
        if not self.layers:
            check.refuse("layers", [], "at least one")
        for k, layer in enumerate(self.layers):
            if getattr(layer, "bidirectional", False):
                why = "one direction: the other reads the very tokens that are to be predicted"
                check.refuse(f"layers[{k}]", "bidirectional", why)
            if not getattr(layer, "causal", True):
                why = "one whose weights no later token enters: it would tell what is predicted"
                advice = "Use context='step' or 'state', not 'sequence'."
                check.refuse(f"layers[{k}]", "a context of whole sequences", why, advice)
            if getattr(layer, "batch_first", False):
                check.refuse(f"layers[{k}]", "batch_first", "time first")
            if layer.input_size != width:
                check.refuse(f"layers[{k}].input_size", layer.input_size, f"{width}")
            width = layer.output_size  # pyright: ignore[reportAssignmentType]
        return width

    def reset_parameters(self) -> None:
        if self.embedding is not None and self.tied:
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)  # as in AWD-LSTM
        elif self.embedding is not None:
            # Smaller ones hardly reach the gates: on pydoc with a GRU of 256, 0.06 was behind for
            # the first thousand updates.
            nn.init.normal_(self.embedding.weight, std=0.5)
        if self.weight is not None:
            nn.init.uniform_(self.weight, -0.1, 0.1)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        state: Any = None,
        resets: Tensor | None = None,
    ) -> Output:
        """The loss of each target after the inputs up to it, all [T, B]; see `Output`."""
        x = self.embed(inputs)
        after = []
        for k, layer in enumerate(self.layers):
            x = self._drop(x, self.hidden_dropout if k else self.input_dropout)
            x, final = layer(x, None if state is None else state[k], resets=resets)
            after.append(final)
        dropped = self._drop(x, self.output_dropout)
        return Output(self.nll(dropped, targets), tuple(after), x, dropped)

    def step(self, inputs: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One step without dropout: inputs [B] -> log-probabilities of what follows, [B, V]."""
        x, after = self.embed(inputs), []
        for k, layer in enumerate(self.layers):
            one: Any = layer
            x, final = one.step(x, None if state is None else state[k])
            after.append(final)
        return -self.nll(x, None), tuple(after)

    def embed(self, inputs: Tensor) -> Tensor:
        if self.embedding is None:
            like = next(self.layers.parameters())
            return F.one_hot(inputs, self.vocabulary_size).to(like.dtype)
        weight = self.embedding.weight
        if self.training and self.embedding_dropout:
            weight = weight * keep(self.embedding_dropout, len(weight), 1, like=weight)
        return F.embedding(inputs, weight)

    def nll(self, hidden: Tensor, targets: Tensor | None) -> Tensor:
        """-log softmax(W h + b) of the targets, or of every token."""
        if targets is None:
            return self._nll(hidden.flatten(0, -2), None).unflatten(0, hidden.shape[:-1])
        flat, wanted = hidden.flatten(0, -2), targets.flatten()
        rows = max(LOGITS // self.vocabulary_size, 1)
        if self.adaptive is not None or len(flat) <= rows:
            return self._nll(flat, wanted).view_as(targets)
        parts = [
            checkpoint(self._nll, h, t, use_reentrant=False, preserve_rng_state=False)
            for h, t in zip(flat.split(rows), wanted.split(rows), strict=True)
        ]
        return torch.cat(parts).view_as(targets)

    def _nll(self, hidden: Tensor, targets: Tensor | None) -> Tensor:
        """The same for hidden [N, n]: [N], or [N, V]."""
        if self.adaptive is not None:
            hidden = hidden.to(self.adaptive.head.weight.dtype)
            if targets is None:
                return -self.adaptive.log_prob(hidden)
            return -self.adaptive(hidden, targets).output
        weight = self.embedding.weight if self.embedding and self.tied else self.weight
        assert weight is not None
        logits = F.linear(hidden, weight, self.bias)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if targets is None:
            return -logits.log_softmax(-1)
        return F.cross_entropy(logits, targets, reduction="none")

    def _drop(self, x: Tensor, p: float) -> Tensor:
        """One mask for all steps."""
        return x * keep(p, 1, *x.shape[1:], like=x) if self.training and p else x


def restart(state: Any, fresh: Tensor) -> Any:
    """A carried state with zeros where `fresh`, [B], is true."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        return state.masked_fill(fresh.view(1, -1, *[1] * (state.dim() - 2)), 0)
    return tuple(restart(part, fresh) for part in state)


def detached(state: Any) -> Any:
    return state.detach() if isinstance(state, Tensor) else tuple(map(detached, state))


def count_parameters(parameters: Iterable[Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def solve_width(budget: int, build: Callable[[int], nn.Module]) -> int:
    """The largest width whose model has at most `budget` parameters.

    >>> solve_width(1000, lambda width: nn.Linear(width, 10))
    99
    """

    def size(width: int) -> int:
        with torch.device("meta"):  # shapes alone: nothing is allocated
            return count_parameters(build(width).parameters())

    low, high = 1, 2
    if (least := size(low)) > budget:
        check.refuse("params", budget, f"at least {least:,}, what a model of width 1 has")
    while size(high) <= budget:
        low, high = high, 2 * high
        if high > 1 << 24:
            check.refuse("params", budget, "fewer: the model does not grow with its width")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) <= budget else (low, middle)
    return low


def parse_count(text: str | int) -> int:
    """`5M` as 5000000; also `250k`, `1.5B` and plain numbers."""
    if isinstance(text, int) and not isinstance(text, bool):
        return check.size("params", text)
    factors = {"k": 1e3, "m": 1e6, "b": 1e9}
    number, factor = str(text).strip().lower(), 1.0
    if number and number[-1] in factors:
        number, factor = number[:-1], factors[number[-1]]
    try:
        found = round(float(number) * factor)
    except (ValueError, OverflowError):
        found = 0
    if found < 1:
        check.refuse("params", text, "a number of parameters, as in 250k, 5M or 24000000")
    return found
