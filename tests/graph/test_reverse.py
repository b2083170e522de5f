"""The reverse graph against autograd, for one step: every state, input, vector and weight."""

import pytest
import torch

from metarnn.graph import Builder, cut, evaluate, linear, reverse, trace_cell
from metarnn.graph.ops import OPS
from tests.graph.test_derive import known_values
from tests.helpers.cases import EVERY, randn
from tests.helpers.compare import assert_close
from tests.helpers.operations import arguments, attributes
from tests.helpers.random_graphs import random_graph

GRAPHS = {name: trace_cell(cell) for name, cell in EVERY.items()}
GRAPHS |= {f"random-{seed}": random_graph(seed, extra_outputs=True) for seed in range(60)}


def compare(graph):
    wanted = list(graph.named("input"))
    known, weights = known_values(graph)
    leaves = {**{("node", k): v for k, v in known.items()}, **weights}
    leaves = {key: value.requires_grad_() for key, value in leaves.items()}
    found = evaluate(graph, known, graph.results, linear(weights), randn(1))
    tie = sum(0 * value.sum() for value in leaves.values())  # a result may depend on none
    found = [row.expand(2, -1) + tie for row in found]
    adjoints = [randn(*row.shape, seed=50 + k) for k, row in enumerate(found)]
    expected = dict(
        zip(
            leaves,
            torch.autograd.grad(
                found, list(leaves.values()), adjoints, allow_unused=True, materialize_grads=True
            ),
            strict=True,
        )
    )

    back = reverse(graph, wanted)
    products = evaluate(graph, known, back.products, linear(weights), randn(1))
    count = len(graph.next_states)
    given = dict(zip((f"grad.{name}" for name in graph.outputs), adjoints[count:], strict=True))
    given |= {f"product.{k}": p.expand(2, -1) for k, p in enumerate(products)}
    for k, node in enumerate(graph.nodes):
        if node.op == "state":
            given[f"before.{node['index']}"] = known[k]
        elif node.op in ("input", "vector"):
            given[node["name"]] = known[k]
    values = {}
    for k, node in enumerate(back.graph.nodes):
        if node.op == "state":
            values[k] = adjoints[node["index"]]
        elif node.source and node.op != "number":
            values[k] = given[node["name"]]
    results = evaluate(back.graph, values, back.graph.results, linear(weights), randn(1))
    results = [row.expand(2, -1) for row in results]
    outputs = dict(zip(back.graph.outputs, results[count:], strict=True))

    for k, node in enumerate(graph.nodes):
        if node.op == "state":
            actual = results[node["index"]]
        elif node.op == "input":
            zero = torch.zeros_like(known[k])
            actual = outputs.get(f"dinput.{node['name']}", zero)
        elif node.op == "vector":
            actual = outputs[f"dvector.{node['name']}"].sum(0)
        else:
            continue
        assert_close(actual, expected["node", k], 1e-12)
    for name, m in graph.maps.items():
        dw, db = torch.zeros(m.outputs, m.inputs).double(), torch.zeros(m.outputs).double()
        for number, k in enumerate(back.products):
            node = graph.nodes[k]
            if node["map"] != name or f"dproduct.{number}" not in outputs:
                continue
            adjoint = outputs[f"dproduct.{number}"]
            argument = graph.nodes[node.args[0]]
            row = outputs.get(f"argument.{number}")
            row = given[f"before.{argument['index']}"] if row is None else row
            dw[:, node["start"] : node["stop"]] += adjoint.T @ row
            db += adjoint.sum(0) if node["bias"] else 0
        assert_close([dw, db], [expected[f"weight_{name}"], expected[f"bias_{name}"]], 1e-12)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_reverse_of_a_step_is_its_gradient(name):
    compare(GRAPHS[name])


@pytest.mark.parametrize("name", GRAPHS)
def test_the_reverse_of_what_stays_in_the_loop_is_its_gradient(name):
    compare(cut(GRAPHS[name]).loop)


@pytest.mark.parametrize("widths", [(6, 6, 6), (6, 1, 6), (1, 6, 6), (6, 6, 1)])
@pytest.mark.parametrize("op", OPS)
def test_every_operation_has_its_adjoint_repeated_numbers_included(op, widths):
    builder = Builder({})
    rows = [builder.add("input", width=n, name=f"x{k}") for k, n in enumerate(widths)]
    arity = 3 if OPS[op].arity == -1 else OPS[op].arity
    if arity == 1 and widths != (6, 6, 6):
        return
    made = builder.add(op, *arguments(builder, OPS[op], rows[:arity]), **attributes(OPS[op]))
    state = builder.add("state", width=builder.nodes[made].width, index=0)
    compare(builder.graph([builder.add("mul", state, made)], {"z": made}))
