import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad

import metarnn
from metarnn import cells, explain
from metarnn.engines import ENGINES
from tests.helpers.cases import EVERY, LINEAR, engines, make, randn, random_state
from tests.helpers.own import Leaky

X = randn(4, 2, 3)
needs_a_compiler = pytest.mark.skipif(
    "cpu" not in engines(EVERY["lstm"]), reason="generated code needs a C compiler"
)


@pytest.fixture
def in_torch(monkeypatch):
    """As where no code can be generated: what torch itself has."""
    monkeypatch.setattr(ENGINES["cpu"], "obstacle", lambda request: "left out")


def test_the_fastest_engine_that_fits_is_taken():
    """`ENGINES` is in the order of speed, and what was passed over has a reason."""
    for cell in EVERY.values():
        choice = explain(make(cell), X)
        assert choice.engine == engines(cell)[0]
        names = list(ENGINES)
        assert list(choice.ruled_out) == names[: names.index(choice.engine)]


@needs_a_compiler
def test_without_gradients_torchs_own_lstm_runs_a_plain_batch():
    layer = make(EVERY["lstm"], dtype=torch.float32)
    x = randn(4, 16, 3, dtype=torch.float32)
    assert explain(layer, x).engine == "cpu"
    with torch.no_grad():
        choice = explain(layer, x)
    assert choice.engine == "native"
    assert "faster" in choice.ruled_out["cpu"]


def test_without_generated_code_a_plain_cell_is_torchs_own(in_torch):
    for name in ("lstm", "gru", "elman"):
        choice = explain(make(EVERY[name], 2, bidirectional=True), X)
        assert choice.engine == "native"
        assert choice.ruled_out["cpu"] == "left out"
        assert list(choice.ruled_out) == ["cpu", "triton"]
        assert "torch" in choice.reason


@pytest.mark.parametrize("name", LINEAR)
def test_without_generated_code_a_cell_linear_in_its_state_is_scanned(name, in_torch):
    choice = explain(make(EVERY[name]), X)
    assert choice.engine == "scan"
    assert list(choice.ruled_out) == ["cpu", "triton", "native"]
    assert "linear" in choice.reason


@pytest.mark.parametrize(
    ("layer", "call", "engine", "word"),
    [
        (lambda: make(EVERY["lstm"]), {"lengths": [4, 2]}, "native", ""),
        (lambda: make(EVERY["lstm"]), {"resets": torch.zeros(4, 2).bool()}, "eager", "resets"),
        (lambda: make(EVERY["lstm"], zoneout=0.1), {}, "eager", "zoneout"),
        (lambda: make(EVERY["lstm"], recurrent_dropout=0.1), {}, "eager", "recurrent_dropout"),
        (lambda: make(EVERY["lstm"], recurrent_dropout=0.1).eval(), {}, "native", ""),
        (lambda: make(EVERY["lstm"], weight_drop=0.1), {}, "native", ""),
        (lambda: make(EVERY["lstm"], checkpoint_every=2), {}, "eager", "checkpoint_every"),
        (lambda: make(EVERY["lstm"], feedback=True), {}, "eager", "Feedback"),
        (lambda: make(cells.LSTM(3, 4, peephole=True)), {}, "eager", "LSTM"),
        (lambda: make(cells.LSTM(3, 4, coupled=True)), {}, "eager", "LSTM"),
        (lambda: make(cells.LSTM(3, 4, layer_norm=True)), {}, "eager", "LSTM"),
        (lambda: make(cells.GRU(3, 4, reset="before")), {}, "eager", "GRU"),
        (lambda: make(cells.Elman(3, 4, "sigmoid")), {}, "eager", "Elman"),
        (lambda: make(cells.SRU(3, 4, version=2)), {}, "eager", "SRU"),
        (lambda: make(Leaky(3, 4)), {}, "eager", "Leaky"),
        (lambda: make(EVERY["qrnn-2"], zoneout=0.1), {"lengths": [4, 2]}, "scan", "QRNN"),
        (lambda: make(EVERY["qrnn-2"], checkpoint_every=2), {}, "scan", "QRNN"),
    ],
)
def test_what_a_call_asks_for_rules_engines_out_with_a_reason(layer, call, engine, word, in_torch):
    choice = explain(layer(), X, **call)
    assert choice.engine == engine
    assert word in " ".join(choice.ruled_out.values())
    shown = str(choice)
    assert shown.startswith(f"engine: {engine}")
    assert all(f"not {name}: {why}" in shown for name, why in choice.ruled_out.items())


@needs_a_compiler
def test_generated_code_is_passed_over_where_it_cannot_go():
    layer = metarnn.Recurrent(EVERY["gru"], device="meta")
    assert "meta" in explain(layer, torch.zeros(4, 2, 3, device="meta")).ruled_out["cpu"]


def test_a_teacher_forced_jordan_cell_says_that_it_runs_all_steps_at_once():
    choice = explain(make(EVERY["jordan"]), X, teacher=randn(4, 2, 2))
    assert "all steps run at once" in choice.reason


def test_under_a_transform_kernels_are_passed_over():
    layer = make(EVERY["lstm"])
    seen = []

    def loss(weights):
        seen.append(explain(layer, X).engine)
        return functional_call(layer, weights, (X,))[0].sum()

    grad(loss)({name: p.detach() for name, p in layer.named_parameters()})
    with forward_ad.dual_level():
        seen.append(explain(layer, X).engine)
    assert seen == ["eager", "eager"]
    assert explain(layer, X).engine == engines(EVERY["lstm"])[0] != "eager"


@pytest.mark.parametrize(
    ("cell", "engine", "reason"),
    [
        (cells.LSTM(3, 4, peephole=True), "native", "no kernel for this LSTM"),
        (cells.LSTM(3, 4), "scan", "LSTM is not linear"),
        (cells.QRNN(3, 4), "native", "no kernel for this QRNN"),
        (cells.SRU(3, 4, version=2), "scan", "SRU is not linear"),
    ],
)
def test_an_engine_that_can_never_run_a_cell_is_refused_at_construction(cell, engine, reason):
    with pytest.raises(ValueError, match=f"engine='{engine}'.*{reason}"):
        metarnn.Recurrent(cell, engine=engine)


def test_an_engine_that_cannot_run_a_call_is_refused_there():
    layer = make(EVERY["lstm"], engine="native")
    with pytest.raises(ValueError, match=r"engine='native'.*resets"):
        layer(X, resets=torch.zeros(4, 2).bool())
    with pytest.raises(ValueError, match=r"engine='native'.*zoneout"):
        make(EVERY["lstm"], engine="native", zoneout=0.1)(X)


def test_checkpoints_under_a_transform_are_refused_with_the_reason():
    layer = make(EVERY["gru"], checkpoint_every=2)
    with pytest.raises(ValueError, match=r"checkpoint_every.*torch\.func"):
        grad(lambda x: layer(x)[0].sum())(X)


def test_an_engine_asked_for_is_taken():
    for engine in ("eager", "native"):
        assert explain(make(EVERY["gru"], engine=engine), X).engine == engine


def test_explain_refuses_what_is_no_layer_and_what_the_layer_would_refuse():
    with pytest.raises(ValueError, match="layer='Linear'"):
        explain(torch.nn.Linear(3, 4), X)
    with pytest.raises(ValueError, match=r"x\.shape"):
        explain(make(EVERY["lstm"]), randn(4, 2, 5))
    with pytest.raises(ValueError, match=r"argument='length'.*lengths"):
        explain(make(EVERY["lstm"]), X, length=[3, 4])


@pytest.mark.parametrize("name", EVERY)
def test_gradients_flow_in_evaluation_mode(name):
    layer = make(EVERY[name])
    results = []
    for mode in (True, False):
        output, _ = layer.train(mode)(X, random_state(layer, 2))
        results.append(torch.autograd.grad(output.sum(), list(layer.parameters())))
    for trained, evaluated in zip(*results, strict=True):
        assert torch.equal(trained, evaluated)
