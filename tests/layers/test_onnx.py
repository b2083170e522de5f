"""ONNX files of layers, run by onnxruntime, against the layers themselves."""

import numpy as np
import pytest
import torch

from metarnn import cells, graph
from metarnn.graph import GraphCell, trace_cell
from metarnn.hyper import MetaRecurrent
from metarnn.hyper.onnx import GIVEN
from metarnn.layers import LSTM, Recurrent
from metarnn.layers.onnx import (
    Builder,
    Loop,
    proto,
    sequence_model,
    step_model,
    write_alive,
    write_states,
)
from tests.helpers.operations import every_operation

onnxruntime = pytest.importorskip("onnxruntime")

MORE = {"jordan": {"outputs": 6}, "onlstm": {"chunk": 2}}


def run(content, **inputs):
    session = onnxruntime.InferenceSession(content)
    return session.run(None, {name: value.numpy() for name, value in inputs.items()})


def same_sequences(layer, steps=7):
    x, lengths = torch.randn(steps, 3, layer.input_size), torch.tensor([steps, 1, 4])
    with torch.no_grad():
        y, _ = layer.eval()(x, lengths=lengths)
    (ours,) = run(sequence_model(layer, given=GIVEN), x=x, lengths=lengths)
    np.testing.assert_allclose(ours, y.numpy(), atol=1e-5)


def same_steps(layer, steps=5):
    session = onnxruntime.InferenceSession(step_model(layer, given=GIVEN))
    x = torch.randn(steps, 2, layer.input_size)
    with torch.no_grad():
        y, _ = layer.eval()(x)
    state = [np.zeros((layer.num_layers, 2, n), np.float32) for n in layer.state_sizes]
    for t in range(steps):
        names = [f"state_{k}" for k in range(len(state))]
        given = dict(zip(names, state, strict=True))
        ours, *state = session.run(None, {"x": x[t].numpy(), **given})
        np.testing.assert_allclose(ours, y[t].numpy(), atol=1e-5)


@pytest.mark.parametrize("name", list(cells.CELLS))
def test_every_cell_in_stacks_and_both_directions(name):
    unit = cells.cell(name, 5, 6, **MORE.get(name, {}))
    same_sequences(Recurrent(unit, 2, bidirectional=True))
    same_sequences(Recurrent(unit, 2))
    same_steps(Recurrent(unit, 2))


@pytest.mark.parametrize("encoder", ["input", "gru"])
def test_generated_weights_in_both_directions(encoder):
    layer = MetaRecurrent(cells.GRU(5, 6), 2, bidirectional=True, encoder=encoder)
    for name, weight in layer.named_parameters():
        if "generator" in name:  # they start at no effect
            torch.nn.init.normal_(weight, std=0.5)
    same_sequences(layer)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", ["lstm", "qrnn", "meta"])
def test_states_at_the_end_of_each_sequence(name, bidirectional):
    if name == "meta":
        layer = MetaRecurrent(cells.GRU(5, 6), 2, bidirectional=bidirectional, encoder="lstm")
    else:
        layer = Recurrent(cells.cell(name, 5, 6), 2, bidirectional=bidirectional)
    x, lengths = torch.randn(7, 3, 5), torch.tensor([7, 1, 4])
    b = Builder()
    alive = write_alive(b, b.input("x", ("T", "B", 5)), b.input("lengths", ("B",), "int64"))
    seen = b.add("Where", alive, "x", b.const(torch.zeros(1)))
    _, parts = write_states(b, layer, seen, Loop(alive, given=GIVEN))
    for k, (part, width) in enumerate(zip(parts, layer.state_sizes, strict=True)):
        b.output(part, f"state_{k}", (2 * layer.directions, "B", width))
    with torch.no_grad():
        _, state = layer.eval()(x, lengths=lengths)
    state = state if isinstance(state, tuple) else (state,)
    for ours, theirs in zip(run(b.model("states"), x=x, lengths=lengths), state, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-5)


def test_options_of_layers():
    layer = LSTM(5, 6, 3, residual=True, peephole=True, layer_norm=True)
    same_sequences(layer)
    same_steps(layer)
    same_sequences(Recurrent(cells.GRU(5, 6), 2, bidirectional=True, merge="sum"))
    same_steps(LSTM(5, 6, feedback=True))


def test_a_cell_read_from_a_file():
    found = graph.from_json(graph.to_json(trace_cell(cells.GRU(5, 6))))
    layer = Recurrent(GraphCell(found))
    same_sequences(layer)
    same_steps(layer)


def test_every_operation():
    layer = Recurrent(GraphCell(every_operation()))
    same_sequences(layer)
    same_steps(layer)


@pytest.mark.parametrize("function", ["gelu", "elu", "silu"])
def test_a_nonlinearity_of_several_operations(function):
    same_steps(Recurrent(cells.Elman(5, 6, function)))


@pytest.mark.parametrize(
    ("context", "encoder"), [("step", "input"), ("step", "gru"), ("state", "gru")]
)
def test_generated_weights(context, encoder):
    layer = MetaRecurrent(cells.LSTM(5, 8), 2, context=context, encoder=encoder)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    same_sequences(layer)
    same_steps(layer)


def test_rounding_to_a_byte_costs_little():
    layer = LSTM(8, 16).eval()
    x, lengths = torch.randn(20, 4, 8), torch.full((4,), 20)
    with torch.no_grad():
        y, _ = layer(x)
    (ours,) = run(sequence_model(layer, int8=True), x=x, lengths=lengths)
    gap = np.abs(ours - y.numpy()).max()
    assert 1e-5 < gap < 0.05


def test_files_are_what_the_official_package_reads():
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(sequence_model(LSTM(5, 6, bidirectional=True)))
    onnx.checker.check_model(model, full_check=True)


def test_a_file_has_no_node_or_number_that_no_result_depends_on():
    b = Builder()
    x = b.input("x", ("B", 2))
    b.add("Mul", b.add("Neg", x), b.const(torch.tensor([3.0])))
    b.output(b.add("Add", x, b.const(torch.tensor([4.0]))), "y", ("B", 2))
    content = b.model("small")
    names = {kind: kind.encode() in content for kind in ("Mul", "Neg", "Add", "constant_0")}
    assert names == {"Mul": False, "Neg": False, "Add": True, "constant_0": False}
    assert b"constant_1" in content


def test_numbers_on_the_wire():
    assert proto.varint(1) == b"\x01"
    assert proto.varint(300) == b"\xac\x02"
    assert len(proto.varint(-1)) == 10


def test_what_onnx_cannot_have_is_refused():
    with pytest.raises(ValueError, match="begins at the end"):
        step_model(Recurrent(cells.GRU(3, 4), bidirectional=True))
    with pytest.raises(ValueError, match=r"hyper\.onnx"):
        sequence_model(MetaRecurrent(cells.GRU(3, 4)))
