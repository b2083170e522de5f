"""What leaves the loop, in which order the rest runs, and that nothing changes by it."""

import pytest
import torch

from metarnn import Cell, Map
from metarnn.graph import Builder, cut, evaluate, linear, stages, trace_cell
from metarnn.graph.derive import sink_slices
from tests.helpers.cases import EVERY, randn
from tests.helpers.compare import assert_close
from tests.helpers.random_graphs import random_graph

GRAPHS = {name: trace_cell(cell) for name, cell in EVERY.items()}
GRAPHS |= {f"random-{seed}": random_graph(seed, extra_outputs=True) for seed in range(40)}


def known_values(graph, batch=2):
    """A value for each source but numbers, and weights."""
    known = {}
    for k, node in enumerate(graph.nodes):
        if node.source and node.op != "number":
            shape = (node.width,) if node.op == "vector" else (batch, node.width)
            seed = sum(map(ord, f"{node.op}{sorted(node.attributes.items())}"))
            known[k] = 0.5 * randn(*shape, seed=seed)
    weights = {}
    for name, m in graph.maps.items():
        seed = sum(map(ord, name))
        weights[f"weight_{name}"] = 0.5 * randn(m.outputs, m.inputs, seed=seed)
        weights[f"bias_{name}"] = 0.5 * randn(m.outputs, seed=100 + seed)
    return known, weights


def results(graph):
    known, weights = known_values(graph)
    found = evaluate(graph, known, graph.results, linear(weights), torch.zeros(1).double())
    return [row.expand(2, -1) for row in found]


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_cut_in_three_still_computes_the_same(name):
    graph = GRAPHS[name]
    parts = cut(graph)
    whole, loop, like = parts.full, parts.loop, torch.zeros(1).double()
    known, weights = known_values(whole)
    apply = linear(weights)
    hoisted = evaluate(whole, known, parts.hoisted.values(), apply, like)
    by_name = dict(zip(parts.hoisted, hoisted, strict=True))
    inner, _ = known_values(loop)
    inner |= {k: by_name[n] for n, k in loop.named("input").items() if n in by_name}
    found = evaluate(loop, inner, loop.results, apply, like)
    new = found[: len(graph.next_states)]
    kept = dict(zip(parts.kept.values(), found[len(new) :], strict=True))
    outputs = evaluate(whole, {**known, **kept}, whole.outputs.values(), apply, like)
    assert_close([row.expand(2, -1) for row in [*new, *outputs]], results(graph), 1e-13)


@pytest.mark.parametrize("name", GRAPHS)
def test_slices_that_sink_change_nothing_and_reach_no_elementwise_result(name):
    graph = sink_slices(GRAPHS[name])
    assert_close(results(graph), results(GRAPHS[name]), 1e-13)
    for node in graph.nodes:
        if node.op == "slice":
            below = graph.nodes[node.args[0]]
            assert not below.elementwise
            assert below.op not in ("slice", "join", "number")


@pytest.mark.parametrize("name", GRAPHS)
def test_stages_hold_every_node_once_products_first_and_arguments_before_use(name):
    for graph in (GRAPHS[name], cut(GRAPHS[name]).loop):
        nodes = graph.nodes
        done = {k for k, node in enumerate(nodes) if node.source}
        for stage in stages(graph):
            assert all(nodes[k].op == "linear" for k in stage.products)
            assert all(set(nodes[k].args) <= done for k in stage.products)
            done.update(stage.products)
            for k in stage.rest:
                assert nodes[k].op != "linear"
                assert set(nodes[k].args) <= done
                assert k not in done
                done.add(k)
        assert done == set(range(len(nodes)))


def test_a_result_that_nothing_reads_stands_beside_rows_of_its_width():
    """Else the last stage, of rows of width 4, would have one of width 2 as well."""
    builder = Builder({"down": Map(4, 2, bias=False), "up": Map(2, 4, bias=False)})
    h = builder.add("state", width=4, index=0)
    s = builder.add("input", width=2, name="s")
    down = builder.add("linear", h, map="down", start=0, stop=4, bias=False)
    loose, read = builder.add("mul", s, s), builder.add("mul", s, down)
    up = builder.add("linear", read, map="up", start=0, stop=2, bias=False)
    graph = builder.graph([builder.add("tanh", up)], {"square": loose})
    assert [stage.rest for stage in stages(graph)] == [(loose, read), graph.next_states]


class Both(Cell):
    """W [x; h], and an output that is a product of its own."""

    @property
    def maps(self):
        n = self.input_size + self.hidden_size
        return {"both": Map(n, self.hidden_size), "out": Map(self.hidden_size, 7)}

    @property
    def output_size(self):
        return 7

    def step(self, theta, drive, state):
        return (torch.tanh(theta.both(torch.cat([drive, state[0]], -1))),)

    def output(self, theta, drive, state):
        return torch.sigmoid(theta.out(state[0]))


def test_of_a_product_of_joined_rows_the_part_without_a_state_leaves_the_loop():
    parts = cut(trace_cell(Both(3, 4)))
    inside = [n for n in parts.loop.nodes if n.op == "linear"]
    assert [(n["map"], n["start"], n["stop"], n["bias"]) for n in inside] == [("both", 3, 7, False)]
    (hoisted,) = [parts.full.nodes[k] for k in parts.hoisted.values()]
    assert (hoisted["start"], hoisted["stop"], hoisted["bias"]) == (0, 3, True)


def test_what_only_the_output_needs_is_computed_after_the_loop():
    parts = cut(trace_cell(Both(3, 4)))
    assert not any(n.op == "linear" and n["map"] == "out" for n in parts.loop.nodes)
    assert list(parts.kept.values()) == list(parts.full.next_states)


def test_elementwise_work_without_a_state_stays_in_the_loop():
    parts = cut(trace_cell(EVERY["mingru"]))
    assert [parts.full.nodes[k].op for k in parts.hoisted.values()] in (["linear"], ["slice"] * 2)
    assert any(n.op == "sigmoid" for n in parts.loop.nodes)


def test_a_slice_below_a_deep_and_branching_chain_is_found_at_once():
    builder = Builder({})
    k = builder.add("state", width=4, index=0)
    for _ in range(3000):
        k = builder.add("tanh", builder.add("add", k, k))
    half = builder.add("slice", k, start=0, stop=2)
    graph = builder.graph([builder.add("join", half, half)], {})
    assert len(sink_slices(graph).nodes) < 7000
    assert len(stages(cut(graph).loop)) == 1


def test_graphs_that_are_equal_hash_alike_whatever_the_order_of_their_names():
    one, other = trace_cell(EVERY["lstm-all"]), trace_cell(EVERY["lstm-all"])
    assert one == other
    assert hash(one) == hash(other)
    assert one != trace_cell(EVERY["lstm"])
