"""Modules of torch, and of users, as encoders and as hypernetworks."""

from typing import Any

import pytest
import torch
from torch import nn

import metarnn
from metarnn import MetaRecurrent, cells, hyper
from tests.helpers.cases import randn, randomize
from tests.helpers.compare import assert_close

LENGTHS = [6, 2, 4]
RESETS = torch.tensor([[0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0]]).bool()
CALLS: dict[str, Any] = {
    "plain": {},
    "lengths": {"lengths": LENGTHS},
    "resets": {"resets": RESETS},
    "both": {"lengths": LENGTHS, "resets": RESETS},
}


def meta(encoder: Any, **options: Any) -> Any:
    made = {"dtype": torch.float64, "engine": "eager", **options}
    layer = MetaRecurrent(cells.GRU(3, 4), encoder=encoder, **made)
    randomize(layer)
    return layer


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_a_recurrent_layer_of_torch_reads_as_ours_does(kind, batch_first, call):
    theirs = meta(lambda n: getattr(nn, kind)(n, 5, 2, batch_first=batch_first).double())
    ours = meta(lambda n: getattr(metarnn, kind)(n, 5, 2, dtype=torch.float64))
    weights = theirs.state_dict()
    ours.load_state_dict({n.replace("encoder.module", "encoder.layer"): w
                          for n, w in weights.items()})  # fmt: skip
    x = randn(6, 3, 3)
    (y, state), (expected, last) = theirs(x, **call), ours(x, **call)
    assert_close(y, expected)
    assert_close(state, last)


@pytest.mark.parametrize("options", [{}, {"proj_size": 2}], ids=["lstm", "projected"])
def test_a_sequence_in_pieces_is_the_same_to_a_layer_of_torch(options):
    layer = meta(lambda n: nn.LSTM(n, 5, **options).double())
    x = randn(6, 2, 3)
    whole, end = layer(x)
    first, state = layer(x[:4])
    second, last = layer(x[4:], state)
    assert_close(torch.cat([first, second]), whole)
    assert_close(last, end)


class Attention(nn.Module):
    """A user's module that returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(3, 1, batch_first=True, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return self.inner(x, x, x, attn_mask=later)


def test_a_module_that_returns_a_tuple_is_read_causally_if_it_is_causal():
    layer = meta(Attention())
    assert layer.causal
    x = randn(6, 2, 3)
    later = x.clone()
    later[3:] += 1
    before, after = layer(x)[0], layer(later)[0]
    assert_close(after[:3], before[:3])
    assert not torch.allclose(after[3:], before[3:])


def transformer(batch_first: bool) -> nn.Module:
    block = nn.TransformerEncoderLayer(
        3, 1, 8, dropout=0.0, batch_first=batch_first, dtype=torch.float64
    )
    return nn.TransformerEncoder(block, 1, enable_nested_tensor=False)


NOT_CAUSAL = {
    "transformer": lambda: transformer(False),
    "batch first": lambda: transformer(True),
    "two directions": lambda: nn.LSTM(3, 2, bidirectional=True).double(),
}


@pytest.mark.parametrize("make", NOT_CAUSAL.values(), ids=NOT_CAUSAL)
def test_what_reads_ahead_is_refused_at_each_step_and_reads_whole_sequences(make):
    with pytest.raises(ValueError, match="not causal"):
        meta(make())
    layer = meta(make(), context="sequence").eval()
    x = randn(6, 3, 3)
    padded = x.clone()
    for k, length in enumerate(LENGTHS):
        padded[length:, k] += 100
    assert_close(layer(padded, lengths=LENGTHS)[0], layer(x, lengths=LENGTHS)[0])
    alone, _ = layer(x[:2, 1:2])  # the second sequence by itself
    assert_close(layer(x, lengths=LENGTHS)[0][:2, 1:2], alone)


class Later(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(0)


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(1, keepdim=True)


def test_an_encoder_that_would_read_padding_or_other_sequences_is_refused():
    with pytest.raises(ValueError, match="It would read padding"):
        meta(Later(), context="sequence")(randn(6, 3, 3), lengths=LENGTHS)
    with pytest.raises(ValueError, match="each sequence of a batch by itself"):
        meta(Mean())
    with pytest.raises(ValueError, match=r"a module that reads \[T, B, 3\]"):
        meta(nn.Linear(4, 4, dtype=torch.float64))


def total(numbers: Any) -> int:
    return sum(number.width for number in numbers.values())


def test_a_flat_vector_is_split_by_the_shapes_that_were_declared():
    dense = meta("gru", width=4, form=("scale", "lowrank"))

    def make(size: int, numbers: Any) -> nn.Module:
        return nn.Linear(size, total(numbers), bias=False)

    flat = meta("gru", width=4, form=("scale", "lowrank"), generator=make)
    heads = dense.sources[0].generator.heads
    weights = {n: w for n, w in dense.state_dict().items() if ".heads." not in n}
    joined = torch.cat(list(heads.values()))
    flat.load_state_dict({**weights, "sources.0.generator.module.weight": joined})
    x = randn(5, 2, 3)
    assert_close(flat(x)[0], dense(x)[0])


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a module"])
def test_a_gru_as_hypernetwork_never_reads_the_batch_or_the_steps_as_time(inside, batch_first):
    def make(size: int, numbers: Any) -> nn.Module:
        gru = nn.GRU(size, total(numbers), batch_first=batch_first)
        return nn.Sequential(nn.Linear(size, size), gru) if inside else gru

    layer = meta("input", generator=make)
    x = randn(5, 3, 3)
    together, _ = layer(x)
    for k in range(3):
        assert_close(layer(x[:, k : k + 1])[0], together[:, k : k + 1])
    later = x.clone()
    later[3:] += 1
    assert_close(layer(later)[0][:3], together[:3])


def test_what_a_hypernetwork_returns_has_the_size_of_what_is_generated():
    layer = meta("input", generator=lambda size, numbers: nn.Linear(size, 3))
    with pytest.raises(ValueError, match="all that is generated for each of N contexts"):
        layer(randn(5, 2, 3))


def test_one_descriptor_is_one_task():
    module = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    many = hyper.hypernetize(module, descriptor=3, start="hyperfan")
    task, x = torch.randn(3), torch.randn(7, 2)
    assert_close(many(task, x), many(task[None], x[None])[0])
    for name, weight in many.weights(task).items():
        assert_close(weight, many.weights(task[None])[name][0])
    assert many(task, x).shape == (7, 1)
