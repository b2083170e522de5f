"""When the triton engine is taken, and why it is not."""

import re
import warnings

import pytest
import torch

from metarnn import Cell, Recurrent, cells, explain
from metarnn.engines import ENGINES, Request, choose, triton
from metarnn.engines.triton import engine, kernel, runtime
from metarnn.graph import trace_cell
from metarnn.search import UnitSpace
from tests.helpers.cases import EVERY, make, randn
from tests.helpers.interpreter import INSTALLED
from tests.helpers.process import succeed

X = randn(4, 2, 3, dtype=torch.float32)
needs_triton = pytest.mark.skipif(not INSTALLED, reason="Triton is not installed")


def request(cell: Cell = EVERY["lstm"], **options) -> Request:
    return Request(cell, **{"device": "cuda", **options})


@needs_triton
@pytest.mark.parametrize("name", EVERY)
def test_on_a_gpu_every_cell_is_run_by_it(name):
    choice = choose("auto", request(EVERY[name]))
    assert choice.engine == "triton"
    assert "Triton" in choice.reason
    assert choice.ruled_out == {"cpu": "it runs on a CPU, the layer is on cuda"}


def test_on_a_cpu_it_is_refused_with_the_reason():
    layer = make(EVERY["gru"], dtype=torch.float32, engine="triton")  # it may still be moved
    with pytest.raises(ValueError, match=r"engine='triton'.* on a GPU, the layer is on cpu"):
        layer(X)
    ruled_out = explain(make(cells.Elman(3, 4, torch.atan), dtype=torch.float32), X).ruled_out
    assert ruled_out["triton"] == "it runs on a GPU, the layer is on cpu"


def test_where_it_is_interpreted_it_runs_on_a_cpu_if_asked_for_and_never_by_itself(device):
    if device != "cpu":
        pytest.skip("there is a GPU: nothing is interpreted")
    for cell in EVERY.values():
        assert explain(make(cell, dtype=torch.float32), X).engine != "triton"
    choice = explain(make(EVERY["lstm"], dtype=torch.float32, engine="triton"), X)
    assert (choice.engine, choice.reason) == ("triton", "as asked")


def test_the_interpreter_is_passed_over_with_a_reason(device, monkeypatch):
    if device != "cpu":
        pytest.skip("there is a GPU: nothing is interpreted")
    monkeypatch.setattr(ENGINES["cpu"], "obstacle", lambda _: "left out")
    ruled_out = explain(make(EVERY["lstm"], dtype=torch.float32), X).ruled_out
    assert "interpreter is there for tests" in ruled_out["triton"]


def test_how_the_work_is_shared_is_told(device, monkeypatch):
    from metarnn.engines.triton import describe

    monkeypatch.setattr(describe, "sm_count", lambda device: 132)
    layer = Recurrent(cells.LSTM(256, 256), engine="triton", device=device)
    shown = str(explain(layer, torch.zeros(4, 64, 256, device=device))).splitlines()
    assert [line.split(":")[0].strip() for line in shown[1:]] == ["forward", "backward"]
    for line in shown[1:]:
        groups, programs = map(int, re.findall(r"(\d+) groups of (\d+) programs", line)[0])
        assert 1 < groups * programs <= 132
        assert re.search(r"weights (resident|streamed).*: hh \d+ KB.* a program", line)
        assert re.search(r"\d µs a step", line)
    scanned = Request(EVERY["mingru"], device=device, batch=2)
    assert "a scan" in str(ENGINES["triton"].describe(scanned))


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64], ids=str)
def test_a_type_of_number_it_does_not_have_is_refused_with_those_it_has(dtype):
    why = f"it computes in float32, bfloat16 or float16, not in {dtype}"
    assert choose("auto", request(dtype=dtype)).ruled_out["triton"] == why
    with pytest.raises(ValueError, match=why):
        choose("triton", request(dtype=dtype))


def test_a_layer_in_float64_is_refused_when_it_is_called(device):
    layer = make(EVERY["lstm"], engine="triton", device=device)
    with pytest.raises(ValueError, match=r"engine='triton'.*float32, bfloat16 or float16"):
        layer(X.double().to(device))


@needs_triton
@pytest.mark.parametrize("dtype", engine.DTYPES, ids=str)
def test_its_types_of_numbers_are_taken(dtype):
    assert choose("triton", request(dtype=dtype)).engine == "triton"


@needs_triton
def test_what_it_cannot_do_rules_it_out_with_a_reason():
    def why(cell: Cell = EVERY["gru"]) -> str:
        return choose("auto", request(cell)).ruled_out["triton"]

    assert "atan" in why(cells.Elman(3, 4, torch.atan))
    seen = []
    torch.func.grad(lambda x: seen.append(why()) or x.sum())(X)
    with torch.autograd.forward_ad.dual_level():
        seen.append(why())
    assert ["torch.func" in reason for reason in seen] == [True, True]


@needs_triton
def test_a_step_of_too_many_operations_is_run_by_another_engine(monkeypatch):
    cell = UnitSpace().mixture(8, 8)
    obstacle = ENGINES["triton"].obstacle
    assert not obstacle(Request(cell, device="cuda"))
    count = len(trace_cell(cell).nodes)
    monkeypatch.setattr(engine, "MOST_OPERATIONS", count - 1)
    other = UnitSpace().mixture(8, 9)  # of which nothing is known yet
    assert f"{count:,} operations" in obstacle(Request(other, device="cuda"))


def test_that_a_long_kernel_takes_long_is_said(monkeypatch):
    monkeypatch.setattr(runtime, "interpreted", lambda: False)
    runtime.warn_if_long("\n" * runtime.LONG)
    with pytest.warns(RuntimeWarning, match=f"{runtime.LONG + 1:,} lines"):
        runtime.warn_if_long("\n" * (runtime.LONG + 1))


@pytest.mark.medium
@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize("name", ["lstm", "mingru"])
def test_it_is_said_of_every_kernel(name, device, monkeypatch):
    from metarnn.engines.triton import scan

    said: list[str] = []
    for module in (kernel, scan):
        monkeypatch.setattr(module, "warn_if_long", said.append)
    layer = make(EVERY[name], engine="triton", dtype=torch.float32, device=device)
    x = randn(4, 2, layer.input_size, dtype=torch.float32).to(device).requires_grad_()
    layer(x)[0].sum().backward()
    assert len(said) == 2  # forward and backward


def test_without_triton_the_next_engine_takes_over_and_says_what_to_install(monkeypatch):
    monkeypatch.setattr(engine, "_installed", lambda: False)
    choice = choose("auto", request())
    assert choice.engine == "native"
    assert "pip install triton" in choice.ruled_out["triton"]
    with pytest.raises(ValueError, match="pip install triton"):
        choose("triton", request())


@needs_triton
def test_after_a_kernel_could_not_be_made_it_is_passed_over_with_one_warning(monkeypatch):
    monkeypatch.setattr(ENGINES["triton"], "failure", "")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            ENGINES["triton"].give_up(triton.CannotLaunch("no ptxas"))
    assert ["without generated GPU kernels" in str(w.message) for w in caught] == [True]
    choice = choose("auto", request())
    assert choice.engine != "triton"
    assert "no ptxas" in choice.ruled_out["triton"]


@pytest.mark.medium
def test_a_layer_on_a_cpu_imports_neither_triton_nor_torchs_compiler():
    imported = """
        import sys, torch, metarnn, metarnn.engines.triton
        metarnn.LSTM(3, 4)(torch.zeros(2, 1, 3))[0].sum().backward()
        print(*(name for name in ("triton", "torch._dynamo", "torch._inductor")
                if name in sys.modules))
    """
    assert succeed(imported).split() == []


class Refused(Exception):
    pass


@pytest.mark.parametrize("which", ["ForwardCall", "BackwardCall"])
def test_a_kernel_that_cannot_be_compiled_is_done_without_after_one_warning(
    which, device, monkeypatch
):
    from metarnn.engines.triton import loops

    def refuse(*args, **kwargs):
        raise triton.CannotLaunch("no such instruction") from Refused()

    monkeypatch.setattr(ENGINES["triton"], "failure", "")
    monkeypatch.setattr(getattr(loops, which), "run", refuse)
    x = torch.randn(3, 2, 3, device=device)
    layer = make(EVERY["lstm"], engine="triton").to(device, torch.float32)
    expected = make(EVERY["lstm"], engine="eager").to(device, torch.float32)
    expected.load_state_dict(layer.state_dict())
    with pytest.warns(RuntimeWarning, match="no such instruction"):
        layer(x)[0].sum().backward()
    expected(x)[0].sum().backward()
    for found, right in zip(layer.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found.grad, right.grad)


@needs_triton
@pytest.mark.parametrize(("batch", "size", "partial"), [(16, 256, True), (256, 1024, False)])
def test_explain_tells_of_partial_sums(batch, size, partial, monkeypatch):
    """Where 16 sequences a program are enough, and their sums stay in the caches."""
    from metarnn.engines.triton import describe

    monkeypatch.setattr(describe, "sm_count", lambda device: 132)
    cell = cells.LSTM(size, size)
    forward, backward = describe.describe(Request(cell, batch=batch, dtype=torch.bfloat16))
    assert "partial sums" not in forward
    assert ("partial sums" in backward) is partial


@needs_triton
@pytest.mark.parametrize(("batch", "size", "publish"), [(16, 256, True), (256, 1024, False)])
def test_explain_says_how_programs_exchange_values(batch, size, publish, monkeypatch):
    from metarnn.engines.triton import describe

    monkeypatch.setattr(describe, "sm_count", lambda device: 132)
    cell = cells.LSTM(size, size)
    for line in describe.describe(Request(cell, batch=batch, dtype=torch.bfloat16)):
        assert ("1 exchange per step (polling)" in line) is publish
        assert ("1 exchange per step (barrier)" in line) is not publish
