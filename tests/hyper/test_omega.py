"""Terms of the loss for what generates weights, each against its definition."""

from typing import Any

import pytest
import torch

from metarnn import MetaRecurrent, Recurrent, cells, hyper
from metarnn.hyper import Omega, omega
from metarnn.tasks.language import LanguageTask, ModelOptions, build_model, load
from metarnn.tasks.task import Shard
from tests.helpers.cases import randn, randomize


def watched(layer, x, **call):
    with hyper.watch() as records:
        layer(x, **call)
    return records


def meta(**options):
    layer = MetaRecurrent(cells.GRU(3, 4), width=2, dtype=torch.float64, **options)
    randomize(layer)
    return layer


def test_every_term_is_what_it_is_called():
    layer = meta(reconstruct=True)
    records = watched(layer, randn(6, 2, 3))
    weights = dict.fromkeys(vars(Omega()), 0.5)
    terms = Omega(**weights)(layer, records)
    d = list(records[0].numbers.values())
    φ = list(layer.sources.parameters())
    matrices = [p for p in φ if p.dim() == 2]
    decoder: Any = layer.sources[0].decoder
    decoded = decoder(records[0].encoding)
    expected = {
        "phi": sum(p.square().mean() for p in φ) / len(φ),
        "deviation": sum(n.square().mean() for n in d) / len(d),
        "smooth": sum((n[1:] - n[:-1]).square().mean() for n in d) / len(d),
        "reconstruction": (decoded - randn(6, 2, 3)).square().mean(),
    }
    for name, value in expected.items():
        torch.testing.assert_close(terms[f"omega_{name}"], 0.5 * value)
    largest = sum(torch.linalg.matrix_norm(m, 2).square() for m in matrices) / len(matrices)
    torch.testing.assert_close(terms["omega_spectral"], 0.5 * largest, rtol=0.05, atol=0)
    sum(terms.values()).backward()  # type: ignore[union-attr]
    assert all(p.grad is not None for p in φ)


def test_padding_counts_in_no_term():
    layer = meta(reconstruct=True)
    x, which = randn(6, 1, 3), Omega(deviation=1, smooth=1, reconstruction=1)
    alone = which(layer, watched(layer, x[:4]))
    padded = which(layer, watched(layer, x, lengths=[4]))
    for name, value in alone.items():
        torch.testing.assert_close(padded[name], value)


def test_numbers_of_a_whole_sequence_do_not_move():
    layer = meta(context="sequence")
    assert Omega(smooth=1)(layer, watched(layer, randn(5, 2, 3)))["omega_smooth"] == 0


def test_the_parameters_of_coupled_hypernetworks_are_phi():
    unit = cells.LSTM(3, 4)
    layer = Recurrent(hyper.Mogrifier(unit, 2))
    assert {tuple(p.shape) for p in omega.phi(layer)} == {(3, 4), (4, 3)}
    layer = MetaRecurrent(unit, context="state", width=2)
    plain = sum(p.numel() for p in Recurrent(unit).parameters())
    whole = sum(p.numel() for p in layer.parameters())
    assert sum(p.numel() for p in omega.phi(layer)) == whole - plain


def test_a_term_about_nothing_is_refused():
    layer = Recurrent(cells.GRU(3, 4))
    with pytest.raises(ValueError, match="omega deviation=1"):
        Omega(deviation=1.0)(layer, watched(layer, torch.randn(5, 2, 3)))
    with pytest.raises(ValueError, match="smooth=-1"):
        Omega(smooth=-1.0)


def test_a_language_task_adds_the_terms_and_shows_each_apart():
    corpus = load("pydoc")
    options = ModelOptions(model="meta", context="step", encoder="gru", width=8, embedding=4)
    model = build_model(len(corpus.vocabulary), options)
    randomize(model)
    which = Omega(phi=0.1, deviation=0.2, smooth=0.3)
    task = LanguageTask(corpus, batch=4, length=8, omega=which)
    loss = task.loss(model, next(task.batches(Shard())))
    assert sorted(loss.metrics) == ["nll", "omega_deviation", "omega_phi", "omega_smooth"]
    torch.testing.assert_close(loss.value, sum(map(torch.as_tensor, loss.metrics.values())))
