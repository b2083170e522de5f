"""Each operation has all that engines, files and pictures want of it; functions are torch's."""

import math

import pytest
import torch
from torch.autograd import grad
from torch.nn import functional as F

from metarnn.graph import Builder, GraphCell, evaluate, from_json, latex, linear, reverse, svg, text
from metarnn.graph import to_json as json_of
from metarnn.graph.ops import OPS
from metarnn.graph.trace import Value
from tests.helpers.cases import randn
from tests.helpers.compare import assert_close
from tests.helpers.operations import ELEMENTWISE, every_operation
from tests.helpers.random_graphs import covering, random_graph

# Functions of torch, where they are smooth from -∞ to ∞, or from 0 on.
FUNCTIONS = {
    "softplus": F.softplus,
    "softplus-0.5": lambda x: F.softplus(x, 0.5),
    "logsigmoid": F.logsigmoid,
    "silu": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "elu": F.elu,
    "elu-0.3": lambda x: F.elu(x, 0.3),
    "selu": F.selu,
    "celu-2": lambda x: F.celu(x, 2.0),
    "leaky_relu": F.leaky_relu,
    "leaky_relu-0.2": lambda x: F.leaky_relu(x, 0.2),
    "hardtanh": F.hardtanh,
    "hardtanh-0-2": lambda x: F.hardtanh(x, 0.0, 2.0),
    "relu6": F.relu6,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "softsign": F.softsign,
    "abs": abs,
    "sign": lambda x: x.sign() * x,
    "cube": lambda x: x**3,
    "ninth": lambda x: torch.pow(x, 9),
    "reciprocal": lambda x: (1 + x * x).reciprocal() + (1 + x * x) ** -3,
    "wave": lambda x: torch.sin(x) * x.cos(),
    "expm1": lambda x: torch.expm1(x),
    "erf": torch.erf,
    "inplace": lambda x: F.elu(x + 1, inplace=True),
}
POSITIVE = {
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": lambda x: x.rsqrt() + x**-0.5,
    "root": lambda x: x**0.5,
    "pow-1.5": lambda x: x**1.5,
    "pow--0.7": lambda x: torch.pow(x, -0.7),
    "power-of-2": lambda x: 2**x,
    "self-power": lambda x: x**x,
    "rms-norm": lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5),
}


def traced(function, width):
    """The graph of h' = function(h)."""
    builder = Builder({})
    value = Value(builder, builder.add("state", width=width, index=0))
    return builder.graph([function(value).node], {})


def computed(graph, x):
    return evaluate(graph, {0: x}, graph.results, linear({}), x)[0]


def pulled(graph, x, g):
    """The adjoint of x, by the reverse graph."""
    back = reverse(graph).graph
    known = {}
    for k, node in enumerate(back.nodes):
        known |= {k: g} if node.op == "state" else {k: x} if node.op == "input" else {}
    return evaluate(back, known, back.next_states, linear({}), x)[0]


@pytest.mark.parametrize("name", [*FUNCTIONS, *POSITIVE])
def test_a_function_and_its_first_and_second_derivative_are_those_of_torch(name):
    function = FUNCTIONS.get(name) or POSITIVE[name]
    # No edge of a piece is among them: there torch's choice of a slope is as good as another.
    x = torch.cat([3 * randn(60, seed=5), torch.tensor([0.017, 7.1, 12.3]).double()])
    x = (x.abs() + 0.01 if name in POSITIVE else torch.cat([x, -x])).requires_grad_()
    g = randn(*x.shape, seed=6)
    graph = traced(function, len(x))
    assert_close(computed(graph, x), function(x.clone()), 1e-13)
    (expected,) = grad(function(x.clone()), x, g, create_graph=True)
    found = pulled(graph, x, g)
    # torch has the slope 1/6 in float32, whatever the type.
    assert_close(found, expected, 1e-7 if name == "hardsigmoid" else 1e-12)
    if expected.requires_grad and name != "hardsigmoid":  # which torch derives once only
        again = grad((found * g + 0 * x).sum(), x)
        assert_close(again, grad((expected * g).sum(), x), 1e-11)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_far_from_0_and_at_it_nothing_is_lost(name):
    """As in torch, in float32: no inf - inf, no 0 · inf."""
    function = FUNCTIONS[name]
    x = torch.tensor([0.0, -0.0, 1e-20, 30, -30, 100, -100, 1e4, -1e4, math.inf, -math.inf])
    if name in ("mish", "hardswish", "inplace"):  # where torch makes no number of -inf either
        x = x[:-2]
    x = x.requires_grad_()
    graph, expected = traced(function, len(x)), function(x.clone())
    found = computed(graph, x)
    usual = torch.isfinite(expected)
    assert_close(found[usual], expected[usual], 1e-6)
    assert torch.equal(found[torch.isinf(expected)], expected[torch.isinf(expected)])
    (slope,) = grad(expected.sum(), x)
    ours = pulled(graph, x, torch.ones_like(x))
    usual = torch.isfinite(slope) & torch.isfinite(x) & (x != 0)
    assert_close(ours[usual], slope[usual], 1e-6)


def test_random_graphs_have_every_operation_between_them():
    graphs = [random_graph(seed) for seed in covering(range(60))]
    assert {node.op for graph in graphs for node in graph.nodes} >= OPS.keys()


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_an_elementwise_operation_is_all_there(op):
    record = ELEMENTWISE[op]
    assert record.vjp
    assert record.c
    assert record.triton
    assert record.onnx
    assert {node.op for node in every_operation().nodes} >= {op}


def test_every_operation_is_saved_printed_and_drawn():
    graph = every_operation()
    assert from_json(json_of(graph)) == graph
    shown, set_ = text(graph), latex(graph)
    for piece in ("|", "pow(", "√(", "σ(", "erf(", "sin("):
        assert piece in shown
    for piece in (r"\sqrt{", r"\sin\left(", r"\operatorname{erf}\left(", r"\left|", "^{1.5}"):
        assert piece in set_
    for label in ("√", "pow 1.5", "abs", "⊙", "erf"):
        assert f">{label}<" in svg(graph)
    assert GraphCell(graph).graph == graph


def test_what_an_attribute_may_be_is_checked_in_a_file():
    found = json_of(every_operation())
    for damaged in ("'two'", 2.0, 1):  # C knows powers of whole numbers as products only
        said = str(damaged).replace("'", '"')
        with pytest.raises(ValueError, match="expected a finite number that is no whole one"):
            from_json(found.replace('"exponent": 1.5', f'"exponent": {said}'))
