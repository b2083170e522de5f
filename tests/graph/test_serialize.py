"""JSON both ways; and every way in which a stranger's document may be damaged is told."""

import copy
import json
import math
import os
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metarnn.graph import (
    Builder,
    GraphCell,
    GraphError,
    check_graph,
    cut,
    from_json,
    latex,
    read,
    save,
    stages,
    text,
    to_json,
    trace_cell,
)
from tests.helpers.cases import EVERY
from tests.helpers.random_graphs import random_graph

GRAPHS = {name: trace_cell(cell) for name, cell in EVERY.items()}
GRAPHS |= {f"random-{seed}": random_graph(seed) for seed in range(30)}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_written_is_read_again(name):
    graph = GRAPHS[name]
    again = from_json(to_json(graph))
    assert again == graph
    assert hash(again) == hash(graph)
    assert to_json(again) == to_json(graph)
    assert list(again.maps) == list(graph.maps)


SAVED = """{
  "format": "metarnn-cell", "version": 1, "window": 1,
  "maps": {"ih": {"inputs": 3, "rows": 2, "bias": true, "recurrent": false}},
  "nodes": [
    {"op": "state", "args": [], "width": 2, "index": 0},
    {"op": "input", "args": [], "width": 3, "name": "x"},
    {"op": "linear", "args": [1], "width": 2, "map": "ih", "start": 0, "stop": 3, "bias": true},
    {"op": "norm", "args": [2], "width": 2, "eps": 1e-05},
    {"op": "join", "args": [3, 0], "width": 4},
    {"op": "fold", "args": [4], "width": 2, "times": 2},
    {"op": "softplus", "args": [5], "width": 2},
    {"op": "number", "args": [], "width": 1, "value": "inf"},
    {"op": "min", "args": [6, 7], "width": 2},
    {"op": "slice", "args": [4], "width": 2, "start": 1, "stop": 3},
    {"op": "cumsum_back", "args": [9], "width": 2},
    {"op": "greater", "args": [10, 8], "width": 2},
    {"op": "where", "args": [11, 8, 10], "width": 2}
  ],
  "next_states": [12], "outputs": {"y": 12}
}"""


def test_a_file_of_the_first_version_is_read_as_it_always_was():
    graph = from_json(SAVED)
    assert json.loads(to_json(graph)) == json.loads(SAVED)
    assert text(graph).splitlines()[-1] == "y_t = h_t"
    assert GraphCell(graph).states == (2,)


def test_graphs_survive_copies_and_other_processes():
    graph = GRAPHS["lstm"]
    hash(graph)
    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert other == graph
        assert hash(other) == hash(graph)
    assert b"_hash" not in pickle.dumps(graph)  # strings hash differently elsewhere


def test_numbers_are_read_as_they_were_written():
    for value in (0.1, 1e-300, -math.inf, math.inf, 3.0):
        builder = Builder({})
        h = builder.add("state", width=2, index=0)
        graph = builder.graph([builder.add("max", h, builder.number(value))], {"y": 0})
        assert from_json(to_json(graph)) == graph


def test_a_file_is_replaced_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / "cell.json"
    save(GRAPHS["lstm"], path)
    assert read(path) == GRAPHS["lstm"]

    def broken(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="no space"):
        save(GRAPHS["gru"], path)
    assert read(path) == GRAPHS["lstm"]
    assert os.listdir(tmp_path) == ["cell.json"]


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "cell.json"
    for content in (b"{", b"\xff\xfe", b""):
        path.write_bytes(content)
        with pytest.raises(GraphError, match=r"cell\.json"):
            read(path)


# --- hostile documents ------------------------------------------------------------------------
# The document of an LSTM: nodes 0 x, 1 h, 2 c, then its two products.
LSTM = json.loads(to_json(GRAPHS["lstm"]))
NODES = [node["op"] for node in LSTM["nodes"]]
LINEAR, ADD, SLICE = NODES.index("linear"), NODES.index("add"), NODES.index("slice")
STATES = [k for k, op in enumerate(NODES) if op == "state"]
END = len(NODES)


def norm(eps):
    return lambda d: d["nodes"].append({"op": "norm", "args": [1], "width": 4, "eps": eps})


def put(*path):
    """A change of the document: put(key, key, ..., value)."""

    def change(document):
        *keys, last, value = path
        for key in keys:
            document = document[key]
        document[last] = value

    return change


def drop(*path):
    def change(document):
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]

    return change


def number(value):
    return lambda d: d["nodes"].append({"op": "number", "args": [], "width": 1, "value": value})


DAMAGED = {
    "wrong format": (put("format", "onnx"), "format 'onnx': expected 'metarnn-cell'"),
    "no format": (drop("format"), "has no 'format'"),
    "later version": (put("version", 2), "version 2: expected 1"),
    "version true": (put("version", True), "version True"),
    "unknown field": (put("author", "me"), "field 'author'"),
    "nodes no list": (put("nodes", {}), "nodes is {}"),
    "no nodes": (put("nodes", []), "0 nodes"),
    "node no object": (put("nodes", 0, 7), "node 0 is 7"),
    "unknown op": (put("nodes", ADD, "op", "system"), f"node {ADD} .* no known operation"),
    "op no text": (put("nodes", ADD, "op", ["add"]), "no known operation"),
    "derived op": (put("nodes", LINEAR, "transposed", True), "field 'transposed'"),
    "too few arguments": (put("nodes", ADD, "args", [1]), f"node {ADD} .* 1 arguments: expected 2"),
    "too many arguments": (put("nodes", ADD, "args", [1, 1, 1]), "3 arguments"),
    "empty join": (
        lambda d: d["nodes"].append({"op": "join", "args": [], "width": 1}),
        "0 arguments",
    ),
    "arguments no list": (put("nodes", ADD, "args", "12"), "arguments '12'"),
    "itself": (put("nodes", ADD, "args", [ADD, ADD]), "an earlier node"),
    "cycle": (put("nodes", ADD, "args", [ADD + 1, LINEAR]), "an earlier node"),
    "out of range": (put("nodes", ADD, "args", [99, LINEAR]), "argument 99"),
    "negative": (put("nodes", ADD, "args", [-1, LINEAR]), "argument -1"),
    "argument true": (put("nodes", ADD, "args", [True, LINEAR]), "argument True"),
    "argument 1.0": (put("nodes", ADD, "args", [1.0, LINEAR]), r"argument 1\.0"),
    "missing attribute": (drop("nodes", SLICE, "start"), f"node {SLICE} .* has no 'start'"),
    "unknown attribute": (put("nodes", ADD, "alpha", 2), "field 'alpha'"),
    "start true": (put("nodes", SLICE, "start", True), "start=True"),
    "start 0.0": (put("nodes", SLICE, "start", 0.0), r"start=0\.0"),
    "bias 1": (put("nodes", LINEAR, "bias", 1), "bias=1: expected true or false"),
    "name 7": (put("nodes", 0, "name", 7), "name=7"),
    "number true": (number(True), "value=True"),
    "number text": (number("nan"), "value='nan'"),
    "number too large": (number(10**400), "too large"),
    "eps true": (norm(True), "eps=True"),
    "eps text": (norm("inf"), "eps='inf'"),
    "eps negative": (norm(-1.0), r"eps=-1\.0"),
    "slice beyond": (put("nodes", SLICE, "stop", 17), r"slice \[0, 17\) of a row of 16"),
    "slice empty": (put("nodes", SLICE, "stop", 0), r"slice \[0, 0\)"),
    "width": (put("nodes", ADD, "width", 15), f"node {ADD} .* width 15: expected 16"),
    "width true": (put("nodes", 1, "width", True), "width True"),
    "width 0": (put("nodes", 1, "width", 0), "width 0"),
    "widths that differ": (put("nodes", ADD, "args", [1, LINEAR]), "different widths"),
    "linear of too few": (put("nodes", 0, "width", 2), "a row of 2: expected 3"),
    "linear beyond": (put("nodes", LINEAR, "stop", 9), r"columns \[0, 9\): expected a part"),
    "unknown map": (put("nodes", LINEAR, "map", "xx"), "map 'xx'"),
    "bias of none": (put("maps", "ih", "bias", False), "adds a bias"),
    "state beyond": (put("nodes", STATES[0], "index", 2), "is state 2"),
    "state twice": (put("nodes", STATES[0], "index", 1), "one node a state"),
    "state width": (put("next_states", [LINEAR, LINEAR]), "width 4: expected 16"),
    "no next state": (put("next_states", []), "0 next states"),
    "next state beyond": (put("next_states", [1, END]), f"next state 1 is node {END}"),
    "next states no list": (put("next_states", 3), "next_states is 3"),
    "output beyond": (put("outputs", {"y": END}), f"output 'y' is node {END}"),
    "output null": (put("outputs", {"y": None}), "node None"),
    "outputs no object": (put("outputs", [1]), r"outputs is \[1\]"),
    "output name": (put("outputs", {"y;": 1}), "an identifier"),
    "map no object": (put("maps", "ih", 3), "map 'ih' is 3"),
    "map without rows": (drop("maps", "ih", "rows"), "has no 'rows'"),
    "map rows": (put("maps", "ih", "rows", [16, -4]), r"rows=\(16, -4\)"),
    "map rows nested": (put("maps", "ih", "rows", [[4]]), "rows="),
    "map no rows": (put("maps", "ih", "rows", []), "rows="),
    "map inputs": (put("maps", "ih", "inputs", 3.0), r"inputs=3\.0"),
    "map flag": (put("maps", "ih", "recurrent", None), "recurrent=None"),
    "map name": (put("maps", "a b", LSTM["maps"]["ih"]), "map 'a b'"),
    "map name dunder": (put("maps", "__class__", LSTM["maps"]["ih"]), "an identifier"),
    "second input": (lambda d: d["nodes"].append(dict(d["nodes"][0])), "a second input 'x'"),
    "name no identifier": (put("nodes", 0, "name", "x); system("), "an identifier"),
    "name long": (put("nodes", 0, "name", "x" * 1000), "an identifier"),
    "vector like a weight": (
        lambda d: d["nodes"].append({"op": "vector", "args": [], "width": 4, "name": "weight_ih"}),
        "a name that no map",
    ),
    "window 0": (put("window", 0), "window 0"),
    "window true": (put("window", True), "window True"),
    "many nodes": (lambda d: d.update(nodes=d["nodes"] * 1000), "at most 10,000"),
    "wide": (put("nodes", 0, "width", 10**6 + 1), "1,000,000"),
    "wide join": (
        lambda d: d["nodes"].extend(
            {"op": "repeat", "args": [END + k - 1 if k else 1], "width": 4 * 10 ** (k + 1)}
            | {"times": 10}
            for k in range(6)
        ),
        "width 4000000",
    ),
    "many weights": (
        put("maps", "big", {"inputs": 10**5, "rows": 10**5, "bias": False, "recurrent": False}),
        "10,000,000,112: expected at most 1,000,000,000",
    ),
    "many weights together": (
        lambda d: d["maps"].update(
            {
                f"m{k}": {"inputs": 10**4, "rows": 10**4, "bias": False, "recurrent": False}
                for k in range(11)
            }
        ),
        "at most 1,000,000,000",
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_document_is_refused_and_says_where(kind):
    change, expected = DAMAGED[kind]
    document = copy.deepcopy(LSTM)
    change(document)
    with pytest.raises(GraphError, match=expected) as caught:
        from_json(json.dumps(document))
    assert len(str(caught.value)) < 500


TEXTS = {
    "nothing": ("", "not JSON"),
    "no JSON": ("cell: lstm", "not JSON"),
    "a list": ("[1]", "expected an object"),
    "null": ("null", "expected an object"),
    "deep": ("[" * 10**6, "not JSON"),
    "deep objects": ('{"a":' * 10**5, "not JSON"),
    "long": (" " * (16 * 2**20 + 1), "at most 16,777,216"),
    "long number": ("9" * 10**5, "not JSON"),
    "NaN": (json.dumps(LSTM).replace('"version": 1', '"version": NaN'), "NaN is no number"),
    "infinite": (json.dumps(LSTM).replace('"version": 1', '"version": 1e999'), "version inf"),
    "twice": ('{"format": 1, "format": 2}', "'format' stands twice"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_that_is_no_document_is_refused(kind):
    content, expected = TEXTS[kind]
    with pytest.raises(GraphError, match=expected):
        from_json(content)


def test_infinite_and_missing_numbers_are_refused_where_they_stand():
    for value in ("1e999", "NaN", "-Infinity"):
        node = f'{{"op": "norm", "args": [1], "width": 4, "eps": {value}}}'
        document = json.dumps(LSTM).replace('], "next_states"', f', {node}], "next_states"')
        with pytest.raises(GraphError, match=r"no number|too large"):
            from_json(document)


def test_a_graph_that_could_not_be_read_is_not_written():
    derived = cut(GRAPHS["lstm"]).loop  # its inputs are called hoisted.0
    with pytest.raises(GraphError, match="identifier"):
        to_json(derived)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 20)
    | st.sampled_from([10**7, 10**30, "x", "h", "add", "linear", "state", "inf", "ih", 0.5])
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def places(tree, path=()):
    """The path to every value in a document."""
    yield path
    items = enumerate(tree) if isinstance(tree, list) else ()
    for key, value in tree.items() if isinstance(tree, dict) else items:
        yield from places(value, (*path, key))


@given(data=st.data())
@settings(max_examples=200)
def test_whatever_is_changed_in_a_document_only_a_graph_error_comes_of_it(data):
    names = ["lstm-all", "onlstm", "gru", "qrnn-2", "random-3"]
    document = json.loads(to_json(GRAPHS[data.draw(st.sampled_from(names))]))
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from([p for p in places(document) if p]))
        parent = document
        for key in path:
            parent = parent[key]
        action = data.draw(st.sampled_from(["replace", "remove", "repeat"]))
        if action == "replace":
            parent[last] = data.draw(ANYTHING)
        elif action == "remove":
            del parent[last]
        elif isinstance(parent, list):
            parent.insert(last, copy.deepcopy(parent[last]))
    try:
        graph = from_json(json.dumps(document))
    except GraphError:
        return
    # What passed is a graph: all that works on graphs works on it.
    assert from_json(to_json(check_graph(graph))) == graph
    assert text(graph)
    assert latex(graph)
    stages(cut(graph).loop)
    try:
        cell = GraphCell(graph)
    except GraphError:
        return
    assert trace_cell(cell).states == graph.states
