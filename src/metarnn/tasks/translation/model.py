"""The encoder–decoder: one sequence read, another one written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metarnn.cells import check
from metarnn.layers import Recurrent
from metarnn.layers.nested import select
from metarnn.tasks.translation.attention import Attention, Memory
from metarnn.tasks.translation.bridge import Bridge

# Below this a mixture of probabilities is taken for it: its logarithm must stay finite.
TINY = 1e-30

# (t, true tokens [B], log-probabilities that the model has for them [B, V]) -> tokens to read
Feed = Callable[[int, Tensor, Tensor], Tensor]


class State(NamedTuple):
    """All that a decoder goes on from; sequences stand along dimension 1 everywhere.

    layers   what each recurrent layer carries
    memory   what it attends to
    covered  [S, B], how much attention each place of the source has had
    summary  [1, B, n], what every step reads beside its token
    fed      [1, B, n], the last readout, where that is fed back
    """

    layers: tuple[Any, ...]
    memory: Memory | None = None
    covered: Tensor | None = None
    summary: Tensor | None = None
    fed: Tensor | None = None


class EncoderDecoder(nn.Module):
    """p(y_t | y_<t, x) = softmax(W o_t + b),  o_t = tanh(R [h_t; c_t])

    An encoder reads x; h_t comes from a stack of recurrent layers over y_<t; c_t is what attention,
    asked by the lowest of them, finds in the encoder's outputs, and the layers above read it
    too. So all steps of every layer run at once, whatever the unit; only `feeding` must go
    step by step.

    >>> from metarnn.layers import GRU, LSTM
    >>> encoder = LSTM(8, 16, bidirectional=True)
    >>> model = EncoderDecoder(30, 40, encoder, [GRU(8, 24), GRU(24 + 32, 24)], embedding=8)
    >>> state = model.encode(torch.randint(30, (7, 2)), torch.tensor([7, 5]))
    >>> log_p, state = model.step(torch.tensor([2, 2]), state)
    >>> log_p.shape
    torch.Size([2, 40])

    encoder, layers  any with `layer(x, state) -> y, state`, `step`, `state_sizes`, `input_size` and
                     `output_size`; the encoder takes `lengths` too
    initial          the encoder's last state becomes the decoder's first, by a `Bridge`
    summary          the encoder's last output is an input of every step (Cho et al. 2014)
    attention        "additive", "dot", "multihead" or "none"; see `Attention`, as for `heads` and
                     `coverage`
    feeding          o_{t-1} is an input of step t (Luong et al. 2015)
    tied             W is the target's embedding
    shared           source and target have one embedding, of one vocabulary
    copies           [V_x], for each source token its number in the target's vocabulary, or -1: a
                     target is then also copied, p = (1 - g_t) softmax(…) + g_t Σ_s a_ts [x_s = y]
                     (See et al. 2017), g_t for the places that can be copied
    dropout          on embeddings, between layers and on o_t
    """

    copies: Tensor | None
    description: dict[str, Any]  # plain data, of a model that was built from options

    def __init__(
        self,
        source_size: int,
        target_size: int,
        encoder: Any,
        layers: Sequence[Any],
        *,
        embedding: int,
        attention: str = "dot",
        heads: int = 4,
        coverage: bool = False,
        initial: bool = True,
        summary: bool = False,
        feeding: bool = False,
        tied: bool = False,
        shared: bool = False,
        copies: Tensor | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not (initial or summary or attention != "none"):
            check.refuse("attention", attention, "some way from the source to the target")
        if attention == "none" and (coverage or copies is not None):
            check.refuse("attention", attention, "some attention for coverage and for copying")
        if shared and source_size != target_size:
            check.refuse("shared", shared, "False: source and target differ in their vocabularies")
        self.dropout = check.probability("dropout", dropout)
        self.encoder: Any = encoder
        self.layers = nn.ModuleList(layers)
        self.feeding, self.tied, self.shared = feeding, tied, shared
        width: int = encoder.output_size
        self.context_size = 0 if attention == "none" else width
        self.readout_size: int = embedding if tied else layers[-1].output_size
        self.input_size = embedding + width * summary + self.readout_size * feeding
        self._check_layers(encoder, layers, embedding)
        self.embedding = nn.Embedding(target_size, embedding)
        self.source_embedding = None if shared else nn.Embedding(source_size, embedding)
        self.bridge = Bridge(encoder, layers) if initial else None
        self.reads_summary = summary
        self.attention = None
        if attention != "none":
            query = layers[0].output_size
            self.attention = Attention(query, width, attention, heads=heads, coverage=coverage)
        self.readout = nn.Linear(layers[-1].output_size + self.context_size, self.readout_size)
        self.weight = None if tied else nn.Parameter(torch.empty(target_size, self.readout_size))
        self.bias = nn.Parameter(torch.zeros(target_size))
        self.gate = None if copies is None else nn.Linear(self.readout_size, 1)
        self.register_buffer("copies", copies, persistent=False)
        self.reset_parameters()

    def _check_layers(self, encoder: Any, layers: Sequence[Any], embedding: int) -> None:
        expected = {"encoder": (encoder, embedding)}
        inputs = self.input_size
        for k, layer in enumerate(layers):
            expected[f"layers[{k}]"] = (layer, inputs)
            inputs = layer.output_size + self.context_size * (k == 0)
            if getattr(layer, "bidirectional", False):
                check.refuse(f"layers[{k}]", "bidirectional", "one direction: it writes")
        for name, (layer, size) in expected.items():
            if layer.input_size != size:
                check.refuse(f"{name}.input_size", layer.input_size, f"{size}")

    def reset_parameters(self) -> None:
        std = 0.1 if self.tied else 0.5  # as for language models: small ones hardly reach the gates
        for table in (self.embedding, self.source_embedding):
            if table is not None:
                nn.init.normal_(table.weight, std=std)
        if self.weight is not None:
            nn.init.uniform_(self.weight, -0.1, 0.1)

    @property
    def cells(self) -> dict[str, Recurrent]:
        """Layers with the units that options name: of the encoder, and the decoder's lowest."""
        layers = {"cell": self.encoder, "decoder_cell": self.layers[0]}
        return {name: each for name, each in layers.items() if isinstance(each, Recurrent)}

    # Reading.

    def encode(self, source: Tensor, lengths: Tensor) -> State:
        """Source tokens [S, B], padded beyond their lengths [B] -> what decoding begins with."""
        table = self.embedding if self.source_embedding is None else self.source_embedding
        x = self._drop(table(source))
        states, final = self.encoder(x, lengths=lengths)
        states = self._drop(states)
        S, B = source.shape
        begin = (None,) * len(self.layers) if self.bridge is None else self.bridge(final)
        state = State(begin)
        if self.attention is not None:
            mask = torch.arange(S).unsqueeze(1) < lengths.cpu()
            tokens = source if self.copies is None else self.copies[source]
            memory = self.attention.look(states, mask.to(source.device), tokens)
            state = state._replace(memory=memory, covered=states.new_zeros(S, B))
        if self.reads_summary:
            state = state._replace(summary=self._summary(states, lengths))
        if self.feeding:
            state = state._replace(fed=states.new_zeros(1, B, self.readout_size))
        return state

    def _summary(self, states: Tensor, lengths: Tensor) -> Tensor:
        """What each direction has put out at its end, [1, B, n]."""
        ends = (lengths.to(states.device) - 1).view(1, -1, 1)
        if not getattr(self.encoder, "bidirectional", False) or self.encoder.merge == "sum":
            return states.gather(0, ends.expand(1, *states.shape[1:]))
        forward, backward = states.chunk(2, -1)
        forward = forward.gather(0, ends.expand(1, *forward.shape[1:]))
        return torch.cat([forward, backward[:1]], -1)

    # Writing.

    def decode(
        self, inputs: Tensor, state: State, feed: Feed | None = None
    ) -> tuple[Tensor, Tensor | None, State]:
        """Tokens [T, B] -> readouts o [T, B, n], attention weights [T, B, S], the state after them.

        feed  decides at each step but the first what is read instead of the true token
        """
        if len(inputs) == 1 or not (self.feeding or feed):
            return self._steps(inputs, state)
        found, tokens = [], inputs[0]
        for t in range(len(inputs)):
            o, weights, state = self._steps(tokens.unsqueeze(0), state)
            found.append((o, weights))
            if t + 1 < len(inputs):
                tokens = inputs[t + 1]
                if feed is not None:
                    with torch.no_grad():
                        tokens = feed(t + 1, tokens, self.log_p(o, weights, state)[0])
        readouts, weights = zip(*found, strict=True)
        return torch.cat(readouts), None if weights[0] is None else torch.cat(weights), state

    def _steps(self, inputs: Tensor, state: State) -> tuple[Tensor, Tensor | None, State]:
        x = [self._drop(self.embedding(inputs))]
        if state.summary is not None:
            x.append(state.summary.expand(len(inputs), -1, -1))
        if state.fed is not None:
            x.append(state.fed)
        h, after, context, weights = torch.cat(x, -1), [], None, None
        for k, layer in enumerate(self.layers):
            if k == 1 and context is not None:
                h = torch.cat([h, context], -1)
            h = self._drop(h) if k else h
            h, final = _run(layer, h, state.layers[k])
            after.append(final)
            if k == 0 and self.attention is not None:
                assert state.memory is not None
                assert state.covered is not None
                context, weights = self.attention(h, state.memory, state.covered)
                state = state._replace(covered=state.covered + weights.sum(0).T)
        h = h if context is None else torch.cat([h, context], -1)
        o = self._drop(torch.tanh(self.readout(h)))
        fed = o[-1:] if self.feeding else None
        return o, weights, state._replace(layers=tuple(after), fed=fed)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Tokens [N] -> log-probabilities of what follows [N, V]: a `decoding.Scorer`."""
        o, weights, state = self._steps(tokens.unsqueeze(0), state)
        return self.log_p(o, weights, state)[0], state

    def reorder(self, state: State, rows: Tensor) -> State:
        """Rows in another order within their sentences, whose memory stays: most of the state."""
        moved = select((state.layers, state.covered, state.fed), rows)
        return state._replace(layers=moved[0], covered=moved[1], fed=moved[2])

    def coverage(self, state: State) -> Tensor:
        """Σ_s log min(Σ_t a_ts, 1) over the places of the source, [N] (Wu et al. 2016)."""
        if state.memory is None or state.covered is None:
            check.refuse("coverage_penalty", "given", "0: this model attends not")
        log = state.covered.clamp(TINY, 1).log()
        return log.masked_fill(~state.memory.mask, 0.0).sum(0)

    def logits(self, o: Tensor) -> Tensor:
        weight = self.embedding.weight if self.weight is None else self.weight
        logits = F.linear(o, weight, self.bias)
        return logits if logits.dtype == torch.float64 else logits.float()

    def log_p(self, o: Tensor, weights: Tensor | None, state: State) -> Tensor:
        """Log-probabilities of all tokens, [T, B, V], where the readout is o."""
        if self.gate is None:
            return self.logits(o).log_softmax(-1)
        assert weights is not None
        assert state.memory is not None
        tokens = state.memory.tokens.T  # [B, S]
        copied, g = self._copied(o, weights, tokens)
        p = (1 - g) * self.logits(o).softmax(-1)
        p = p.scatter_add(-1, tokens.clamp(min=0).expand_as(copied), copied.to(p.dtype))
        return p.clamp(min=TINY).log()

    def _copied(self, o: Tensor, weights: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """With what probability each place of the source is copied, [..., S], and one is at all."""
        assert self.gate is not None
        g = torch.sigmoid(self.gate(o).to(weights.dtype))
        copied = (g * weights).masked_fill(tokens < 0, 0.0)
        return copied, copied.sum(-1, keepdim=True)

    # Learning.

    def forward(
        self,
        source: Tensor,
        lengths: Tensor,
        inputs: Tensor,
        targets: Tensor,
        places: Tensor,
        feed: Feed | None = None,
    ) -> tuple[Tensor, Tensor]:
        """-log p of each target token, and the mean of -log p over the vocabulary beside it.

        Args:
            source: [S, B], and lengths: [B], on the CPU
            inputs: [T, B], what the decoder reads
            targets: [n], the true tokens alone: no padding reaches the softmax
            places: [n], where each stands in [T, B] read row by row
            feed: see `decode`
        """
        state = self.encode(source, lengths)
        o, weights, state = self.decode(inputs, state, feed)
        o = o.flatten(0, 1)[places]
        log_p = self.logits(o).log_softmax(-1)
        everywhere = -log_p.mean(-1)
        wanted = log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        if self.gate is None:
            return -wanted, everywhere
        assert weights is not None
        assert state.memory is not None
        a = weights.flatten(0, 1)[places]  # [n, S]
        tokens = state.memory.tokens.T[places % inputs.shape[1]]
        copied, g = self._copied(o, a, tokens)
        copied = (copied * (tokens == targets.unsqueeze(-1))).sum(-1)
        p = (1 - g).squeeze(-1) * wanted.exp() + copied
        return -p.clamp(min=TINY).log(), everywhere

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


def _run(layer: Any, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    if len(x) > 1 or torch.is_grad_enabled():
        return layer(x, state)
    y, state = layer.step(x[0], state)  # for one step without gradients the shortest way
    return y.unsqueeze(0), state
