import pytest
import torch

from metarnn import GraphCell, Recurrent, cells
from metarnn.bench.ahead import compiled_ahead
from metarnn.bench.cells import (
    CELLS,
    GPU_SHAPES,
    LONG,
    MGU,
    SHAPES,
    Case,
    Row,
    cases,
    flops,
    measure,
)
from metarnn.graph import ops, trace_cell
from metarnn.graph.derive import stages


def test_every_cell_is_measured_at_every_shape_for_inference_training_and_one_step():
    found = {(case.cell, case.mode, (case.T, case.B, case.H)) for case in cases()}
    for name in CELLS:
        for shape in SHAPES:
            assert (name, "inference", shape) in found
            assert (name, "training", shape) in found
        assert (name, "step", (1, 1, 256)) in found
    long = {name for name, _, shape in found if shape == LONG}
    assert long == {"qrnn", "sru", "mingru", "minlstm"}


def test_the_lstm_is_measured_under_auto_and_under_cpu():
    asked = {case.engine for case in cases(["lstm"])}
    assert asked == {"auto", "cpu"}
    assert {case.engine for case in cases(["gru"])} == {"auto"}


def test_an_unknown_cell_is_refused_with_a_hint():
    with pytest.raises(ValueError, match="Did you mean 'lstm'"):
        cases(["lstn"])


def test_only_the_modes_that_are_asked_for_are_measured():
    every = cases(["gru"])
    assert cases(["gru"], modes=["training"]) == [c for c in every if c.mode == "training"]
    with pytest.raises(ValueError, match="modes"):
        cases(["gru"], device="cuda", modes=["step"])


def test_flops_are_those_of_the_products():
    assert flops(cells.LSTM(8, 16)) == 2 * (8 * 64 + 16 * 64)
    assert flops(cells.QRNN(8, 16)) == 2 * (2 * 8 * 48)
    assert flops(MGU(8, 16)) == 2 * (8 * 32 + 16 * 16 + 16 * 16)


def test_the_random_graph_is_the_same_each_time_and_has_eight_nodes():
    cell = CELLS["graph8"](8, 8)
    assert isinstance(cell, GraphCell)
    assert cell == CELLS["graph8"](8, 8)
    work = [node for node in cell.graph.nodes if node.op not in ops.SOURCES]
    assert len(work) == 8
    assert all(node.op == "linear" or node.elementwise for node in work)
    assert len(cell.graph.maps) == 3


def test_eight_nodes_as_in_darts_are_nine_products_in_a_row():
    cell = CELLS["darts"](8, 8)
    assert isinstance(cell, GraphCell)
    assert len(stages(cell.graph)) == 9


def test_the_users_cell_is_a_minimal_gated_unit():
    cell = MGU(3, 4)
    layer = Recurrent(cell, engine="eager")
    x, h = torch.randn(1, 2, 3), torch.randn(1, 2, 4)
    w = layer.weights(0)
    a_f, a_n = (x[0] @ w["weight_ih"].T + w["bias_ih"]).chunk(2, -1)
    f = torch.sigmoid(a_f + h[0] @ w["weight_fh"].T + w["bias_fh"])
    n = torch.tanh(a_n + (f * h[0]) @ w["weight_nh"].T + w["bias_nh"])
    torch.testing.assert_close(layer(x, h)[0][0], (1 - f) * h[0] + f * n)


def test_of_the_users_cells_one_waits_for_others_twice_a_step_and_one_once():
    assert len(stages(trace_cell(CELLS["user"](3, 4)))) == 2
    assert len(stages(trace_cell(CELLS["user-ugrnn"](3, 4)))) == 1


def test_an_update_gate_network_keeps_what_its_gate_says():
    layer = Recurrent(CELLS["user-ugrnn"](3, 4), engine="eager")
    x, h = torch.randn(1, 2, 3), torch.randn(1, 2, 4)
    w = layer.weights(0)
    sums = x[0] @ w["weight_ih"].T + w["bias_ih"] + h[0] @ w["weight_hh"].T + w["bias_hh"]
    a_g, a_n = sums.chunk(2, -1)
    g = torch.sigmoid(a_g)
    torch.testing.assert_close(layer(x, h)[0][0], g * h[0] + (1 - g) * torch.tanh(a_n))


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["inference", "training", "step"])
@pytest.mark.parametrize("name", ["user", "qrnn"])
def test_a_row_says_what_was_measured(name, mode):
    case = Case(name, mode, 1 if mode == "step" else 3, 2, 4)
    row = measure(case, seconds=0, rounds=2)
    assert isinstance(row, Row)
    assert (row.cell, row.mode, row.T, row.B, row.I, row.H) == (name, mode, case.T, 2, 4, 4)
    assert row.dtype == "float32"
    assert row.engine in ("cpu", "native", "scan", "eager")
    assert row.ratio_torch == pytest.approx(row.torch_ms / row.ours_ms)
    assert row.eager_ms is not None
    assert row.ratio_eager == pytest.approx(row.eager_ms / row.ours_ms)
    passes = 3 if mode == "training" else 1
    work = passes * case.T * 2 * flops(CELLS[name](4, 4))
    assert row.gflops == pytest.approx(work / (row.ours_ms * 1e6))
    assert row.ratio_gflops == pytest.approx(row.gflops / row.torch_gflops)


@pytest.mark.medium
def test_the_cpu_engine_gets_a_row_of_its_own_where_auto_takes_another():
    # Without gradients and at a batch above 8, auto leaves the LSTM to torch.
    native = measure(Case("lstm", "inference", 2, 16, 4), seconds=0, rounds=2)
    forced = measure(Case("lstm", "inference", 2, 16, 4, engine="cpu"), seconds=0, rounds=2)
    assert native is not None
    assert forced is not None
    assert (native.engine, forced.engine) == ("native", "cpu")
    assert measure(Case("lstm", "training", 2, 16, 4, engine="cpu"), seconds=0, rounds=2) is None


def test_a_gpu_has_shapes_of_its_own():
    found = {(case.T, case.B, case.H) for case in cases(["lstm"], device="cuda")}
    assert found == set(GPU_SHAPES)


@pytest.mark.medium
def test_what_other_processes_compiled_is_there_for_this_one(tmp_path, monkeypatch):
    monkeypatch.setenv("METARNN_CACHE", str(tmp_path))
    case = Case("graph8", "training", 3, 2, 5)
    assert list(compiled_ahead([case], "cpu", torch.float32, tf32=True)) == [case]
    programs = set(tmp_path.rglob("*"))
    assert programs
    measure(case, seconds=0, rounds=1)
    assert set(tmp_path.rglob("*")) == programs
