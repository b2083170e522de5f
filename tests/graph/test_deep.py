"""A step may be a chain as long as graphs may be: no pass over its nodes recurses."""

import numpy as np
import pytest
import torch

from metarnn.cells import Map
from metarnn.cli.main import main
from metarnn.engines.cpu.program import emit as emit_c
from metarnn.engines.triton.emit import emit as emit_triton
from metarnn.engines.triton.scan_source import ScanSource
from metarnn.graph import (
    Builder,
    Graph,
    GraphCell,
    affine,
    check_graph,
    cut,
    from_json,
    latex,
    preactivations,
    reverse,
    save,
    stages,
    text,
    to_json,
    trace_cell,
)
from metarnn.graph.check import MOST_NODES
from metarnn.layers import Recurrent
from metarnn.layers.onnx.layer import sequence_model, step_model

INPUTS, WIDTH = 3, 2


def chain(nodes: int, kind: str) -> Graph:
    """h' = … σ(tanh(σ(tanh(W x + b + U h)))), or that of sums with h, in so many nodes."""
    b = Builder({"x": Map(INPUTS, WIDTH), "h": Map(WIDTH, WIDTH, bias=False, recurrent=True)})
    x, h = b.add("input", width=INPUTS, name="x"), b.add("state", width=WIDTH, index=0)
    from_x = b.add("linear", x, map="x", start=0, stop=INPUTS, bias=True)
    from_h = b.add("linear", h, map="h", start=0, stop=WIDTH, bias=False)
    value = b.add("add", from_x, from_h)
    while len(b.nodes) < nodes:
        last = len(b.nodes) % 2
        if kind == "curves":
            value = b.add(("tanh", "sigmoid")[last], value)
        else:
            value = b.add(("add", "sub")[last], h, value)
    return b.graph([value], {"y": value})


def carried(nodes: int) -> Graph:
    """h' = h + … σ(tanh(σ(tanh(W x + b)))): a recurrence that a scan runs."""
    b = Builder({"x": Map(INPUTS, WIDTH)})
    x, h = b.add("input", width=INPUTS, name="x"), b.add("state", width=WIDTH, index=0)
    value = b.add("linear", x, map="x", start=0, stop=INPUTS, bias=True)
    while len(b.nodes) < nodes - 1:
        value = b.add(("tanh", "sigmoid")[len(b.nodes) % 2], value)
    new = b.add("add", h, value)
    return b.graph([new], {"y": new})


def computed(graph: Graph, cell: GraphCell, x: torch.Tensor, layer: Recurrent) -> torch.Tensor:
    """The outputs for x [T, B, I], node by node in the order of the graph."""
    weights = layer.weights(0)
    h, outputs = torch.zeros(x.shape[1], WIDTH), []
    for row in x:
        values: list[torch.Tensor] = []
        for node in graph.nodes:
            args = [values[a] for a in node.args]
            if node.op == "input":
                values.append(row)
            elif node.op == "state":
                values.append(h)
            elif node.op == "linear":
                bias = weights[f"bias_{node['map']}"] if node["bias"] else None
                weight = weights[f"weight_{node['map']}"]
                values.append(torch.nn.functional.linear(args[0], weight, bias))
            else:
                values.append(getattr(torch, node.op)(*args))
        h = values[graph.next_states[0]]
        outputs.append(h)
    return torch.stack(outputs)


@pytest.mark.parametrize("kind", ["curves", "sums"])
@pytest.mark.parametrize("nodes", [1_500, pytest.param(MOST_NODES, marks=pytest.mark.medium)])
def test_a_long_chain_goes_through_every_pass(nodes, kind, tmp_path, capsys):
    graph = chain(nodes, kind)
    assert len(check_graph(graph).nodes) == nodes
    assert from_json(to_json(graph)) == graph
    cell = GraphCell(graph)
    assert len(trace_cell(cell).nodes) == nodes
    for written in (text(graph), latex(graph)):
        for op, symbol in (("tanh", "tanh("), ("sigmoid", "σ("), ("sub", " - ")):
            count = sum(node.op == op for node in graph.nodes)
            latexed = symbol.replace("(", r"\left(").replace("σ", r"\sigma")
            assert count == max(written.count(symbol), written.count(latexed))
    loop = cut(graph).loop
    assert sum(len(stage.rest) for stage in stages(loop)) >= nodes - 5
    back = reverse(loop, saved=preactivations(loop)).graph
    for each, backward in ((loop, False), (back, True)):
        curves = sum(node.op in ("tanh", "sigmoid") for node in each.nodes)
        for emit in (emit_c, emit_triton):
            source = emit(each, backward=backward).source
            assert sum(source.count(f"{name}(") for name in ("tanh", "sigmoid")) >= curves
    save(graph, tmp_path / "cell.json")
    assert main(["cell", "show", str(tmp_path / "cell.json")]) == 0
    assert f"{nodes} nodes" in capsys.readouterr().out


@pytest.mark.medium
def test_the_longest_chain_of_a_scan_is_written_for_gpus():
    loop = cut(carried(MOST_NODES)).loop
    written = ScanSource(affine(loop), name="", backward=False, kept=frozenset()).text
    assert written.count("tanh(") + written.count("sigmoid(") >= MOST_NODES - 10


@pytest.mark.parametrize("kind", ["curves", pytest.param("sums", marks=pytest.mark.medium)])
def test_the_longest_chain_computes_what_its_nodes_say(kind):
    graph = chain(MOST_NODES, kind)
    cell = GraphCell(graph)
    layer = Recurrent(cell, engine="eager")
    x = torch.randn(3, 2, INPUTS)
    y, _ = layer(x)
    torch.testing.assert_close(y, computed(graph, cell, x, layer))
    y.sum().backward()
    assert all(weight.grad is not None for weight in layer.parameters())
    step, sequence = step_model(layer), sequence_model(layer)
    onnxruntime = pytest.importorskip("onnxruntime")
    given = {"x": x.numpy(), "lengths": np.array([3, 3])}
    (answer,) = onnxruntime.InferenceSession(sequence).run(None, given)
    torch.testing.assert_close(torch.tensor(answer), y.detach(), atol=1e-5, rtol=1e-5)
    given = {"x": x[0].numpy(), "state_0": np.zeros((1, 2, WIDTH), np.float32)}
    answer, _ = onnxruntime.InferenceSession(step).run(None, given)
    torch.testing.assert_close(torch.tensor(answer), y[0].detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.medium
def test_a_chain_of_hundreds_compiles():
    graph = chain(600, "curves")
    cell = GraphCell(graph)
    layer = Recurrent(cell, engine="cpu")
    x = torch.randn(3, 2, INPUTS)
    y, _ = layer(x)
    torch.testing.assert_close(y, computed(graph, cell, x, layer), atol=1e-5, rtol=1e-5)
    y.sum().backward()
