"""`metarnn export`."""

import re
from dataclasses import replace

import pytest
import torch

from metarnn.cli.main import main
from metarnn.tasks import forecasting
from metarnn.tasks.classification import ClassifierOptions, Scheme
from metarnn.tasks.classification import build_model as build_classifier
from metarnn.tasks.language import ModelOptions, build_model
from metarnn.tasks.onnx import export
from metarnn.tasks.pretrained import save_pretrained

SCHEME = Scheme("one", ("a", "b", "c"), 2, mean=(1, 2), std=(3, 4), length=20)


def models():
    for pool in ("last", "mean", "max", "attention"):
        options = ClassifierOptions(width=6, layers=2, bidirectional=False, pool=pool)
        yield pytest.param(build_classifier(SCHEME, options), True, id=pool)
        both = ClassifierOptions(width=6, pool=pool, patch=3)
        yield pytest.param(build_classifier(SCHEME, both), False, id=f"{pool}-both-ends-patches")
    for missing, timed in ((True, False), (False, True), (True, True)):
        scheme = replace(SCHEME, missing=missing, timed=timed, gap=0.7)
        model = build_classifier(scheme, ClassifierOptions(width=6, patch=2))
        yield pytest.param(model, False, id=f"missing-{missing}-timed-{timed}")
    for kind in ("one", "multi", "tags"):
        options = ClassifierOptions(width=6, members=3, bidirectional=False)
        model = build_classifier(replace(SCHEME, kind=kind), options)
        yield pytest.param(model, True, id=f"three members, {kind}")
    yield pytest.param(build_model(20, ModelOptions(width=8, layers=2, embedding=4)), True, id="lm")
    adaptive = ModelOptions(width=16, embedding=4, cutoffs=(4, 10))
    yield pytest.param(build_model(20, adaptive), True, id="adaptive softmax")


@pytest.mark.parametrize(("model", "streams"), list(models()))
def test_models_in_onnx_answer_as_they_do_themselves(model, streams):
    onnxruntime = pytest.importorskip("onnxruntime")
    for form in ("sequence", "step") if streams else ("sequence",):
        found = export(model, form)
        answers = onnxruntime.InferenceSession(found.content).run(None, found.inputs)
        for ours, theirs in zip(answers, found.outputs, strict=True):
            torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=1e-5, rtol=0)


FORECASTERS = {
    "quantiles": {},
    "gaussian, its own scale": {"likelihood": "gaussian", "anchor": "scale"},
    "student": {"likelihood": "student", "anchor": "mean", "linear": False},
    "a point, by three": {"likelihood": "mse", "members": 3, "anchor": "none"},
    "no whole segments": {"patch": 3, "context": "none"},
    "windows of inputs": {"cell": "qrnn"},
    "both ends": {"bidirectional": True, "layers": 2},
    "both ends, generated": {"bidirectional": True, "cell": "meta-gru"},
}


@pytest.mark.medium
@pytest.mark.parametrize("data", ["shops", "lorenz"])
@pytest.mark.parametrize("options", FORECASTERS.values(), ids=FORECASTERS)
def test_forecasters_in_onnx_tell_what_they_do_themselves(options, data):
    onnxruntime = pytest.importorskip("onnxruntime")
    windows = forecasting.load(data, horizon=7, lookback=22)
    torch.manual_seed(0)
    chosen = forecasting.ForecasterOptions(**{"width": 6, **options})
    model = forecasting.build_model(windows.scheme, chosen)
    model.start(windows)
    for one in [model, *model.others]:
        torch.nn.init.normal_(one.head.weight, std=0.3)
    found = export(model, "sequence")
    answers = onnxruntime.InferenceSession(found.content).run(None, found.inputs)
    assert len(answers) == 1 + (chosen.likelihood in ("quantiles", "gaussian"))
    for ours, theirs in zip(answers, found.outputs, strict=True):
        assert abs(ours - theirs).max() < 1e-5 * max(found.unit, abs(theirs).max())


def test_what_has_no_step_says_why():
    windows = forecasting.load("sunspots", horizon=3)
    model = forecasting.build_model(windows.scheme, forecasting.ForecasterOptions(width=4))
    with pytest.raises(ValueError, match="whole windows"):
        export(model, "step")
    scheme = replace(SCHEME, missing=True)
    one_way = build_classifier(scheme, ClassifierOptions(width=4, bidirectional=False))
    with pytest.raises(ValueError, match="Missing values"):
        export(one_way, "step")


@pytest.fixture
def run(tmp_path):
    options = ClassifierOptions(width=6, bidirectional=False)
    save_pretrained(build_classifier(SCHEME, options), tmp_path)
    return tmp_path


def test_files_are_written_beside_the_model(run, capsys):
    assert main(["export", str(run), "--int8"]) == 0
    written = {path.name for path in run.glob("*.onnx")}
    forms = ("step", "sequence")
    assert written == {f"{form}{kind}.onnx" for form in forms for kind in ("", ".int8")}
    assert "bytes" in capsys.readouterr().out


@pytest.mark.medium
def test_a_program_of_torch_takes_batches_of_any_size(run):
    assert main(["export", str(run), "--to", "torch"]) == 0
    program = torch.export.load(run / "step.pt2").module()
    for batch in (1, 5):
        parts = [(1, batch, 6), (1, batch, 6), (1, batch, 1), (1, batch, 1)]
        y, *_ = program(torch.randn(batch, 2), *(torch.zeros(part) for part in parts))
        assert y.shape == (batch, 3)


def test_a_form_that_is_not_there_is_refused(run, capsys):
    assert main(["export", str(run), "--to", "torch", "--form", "sequence"]) == 2
    assert "ONNX has both" in capsys.readouterr().err


@pytest.mark.medium
def test_rounding_says_what_it_costs_in_accuracy(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    run = str(tmp_path / "run")
    few = ["--steps", "20", "--validate-every", "20", "--width", "8", "--device", "cpu"]
    assert main(["train", "classification", "--data", "visits", "--out", run, *few]) == 0
    trained = re.search(r"accuracy (0\.\d+)", capsys.readouterr().out)
    assert trained is not None
    assert main(["export", run, "--int8"]) == 0
    said = re.search(r"\(test\): (\S+)% and (\S+)% with bytes", capsys.readouterr().out)
    assert said is not None
    assert float(said[1]) == pytest.approx(100 * float(trained[1]), abs=0.01)
    assert abs(float(said[1]) - float(said[2])) < 5
