"""A long document read in streams has the score of reading it from beginning to end."""

import numpy as np
import pytest
import torch

from metarnn.tasks.language import ModelOptions, build_model, evaluation, streams
from metarnn.tasks.language.corpus import Split
from metarnn.tasks.language.tokens import Tokens

VOCABULARY = 20


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Streams of a few tokens."""
    for name, value in {"LONG": 200, "SHORTEST": 40, "BURN_IN": 16, "SEGMENT": 16}.items():
        monkeypatch.setattr(streams, name, value)


def text(*lengths):
    values = np.random.default_rng(0).integers(4, VOCABULARY, sum(lengths))
    bounds = np.cumsum([0, *lengths])
    return Split(Tokens(values, bounds), tuple(map(str, range(len(lengths)))), 0)


def model(**options):
    torch.manual_seed(0)
    options = {"width": 12, "embedding": 6, "engine": "eager", **options}
    return build_model(VOCABULARY, ModelOptions(**options)).eval()


def sequential(network, split, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(streams, "LONG", 10**9)
        return evaluation.score(network, split)


def assert_same(one, other):
    np.testing.assert_allclose(one.nats, other.nats, rtol=1e-6)
    np.testing.assert_allclose(one.worst, other.worst, rtol=1e-5)
    np.testing.assert_allclose(np.sort(one.segments), np.sort(other.segments), rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{"cell": "gru"}, {"cell": "lstm", "layers": 2}, {"cell": "gru", "model": "meta"}],
    ids=str,
)
def test_streams_have_the_score_of_one_pass(options, monkeypatch):
    network, split = model(**options), text(903, 50, 410)
    assert_same(evaluation.score(network, split), sequential(network, split, monkeypatch))


def test_a_model_that_never_forgets_is_read_again_until_every_stream_fits(monkeypatch):
    """Its state after a stream depends on all that was read before it."""
    network, split = model(cell="lstm"), text(600)
    with torch.no_grad():
        bias = network.get_parameter("layers.0.bias_ih_l0")
        bias[12:24] = 30.0  # the forget gate: c only adds up
    calls = []
    plain = network.forward
    monkeypatch.setattr(network, "forward", lambda *a: calls.append(a[0].shape[1]) or plain(*a))
    found = evaluation.score(network, split)
    assert len(calls) > 10
    assert min(calls) < max(calls)
    assert_same(found, sequential(network, split, monkeypatch))


def test_few_documents_of_like_length_stay_side_by_side(monkeypatch):
    monkeypatch.setattr(streams, "stream_losses", None)  # not to be called
    monkeypatch.setattr(evaluation, "stream_losses", None)
    evaluation.score(model(), text(*[300] * 64))
