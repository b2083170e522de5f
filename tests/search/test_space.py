"""Known units are points; a mixture whose shares are 0 and 1 is the unit of those choices."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from metarnn import cells
from metarnn.cells import shapes
from metarnn.graph import GraphCell, from_json, to_json
from metarnn.layers import Recurrent
from metarnn.search import DartsSpace, Genotype, UnitSpace, known
from metarnn.search.space import BOUND


def name(space) -> str:
    return f"{type(space).__name__}-{len(space.decisions)}"


I, H, T, B = 3, 4, 7, 2
DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def outputs(cell, weights, x: Tensor) -> Tensor:
    """The outputs of a cell with these weights, by the reference engine."""
    layer = Recurrent(cell, engine="eager", dtype=torch.float64)
    with torch.no_grad():
        for name, value in layer.weights(0).items():
            value.copy_(weights[name])
    return layer(x)[0]


def drawn(cell) -> dict[str, Tensor]:
    return {name: torch.randn(shape, **DOUBLE) * 0.7 for name, shape in shapes(cell).items()}


def with_one_bias(w):
    """torch.nn has two biases where one would do."""
    bias = {"bias_ih": w["bias_ih"] + w["bias_hh"]}
    return {"weight_ih": w["weight_ih"], "weight_hh": w["weight_hh"], **bias}


CASES = {
    "lstm": (
        cells.LSTM(I, H),
        known.LSTM,
        with_one_bias,
    ),
    "coupled-lstm": (
        cells.LSTM(I, H, coupled=True),
        known.COUPLED_LSTM,
        with_one_bias,
    ),
    "elman": (
        cells.Elman(I, H),
        known.ELMAN,
        with_one_bias,
    ),
    "mingru": (cells.MinGRU(I, H), known.MIN_GRU, lambda w: w),
    "gru": (
        cells.GRU(I, H),
        known.GRU,
        lambda w: {
            "weight_ih": w["weight_ih"],
            "weight_hh": w["weight_hh"],
            # That of hn alone is apart: r multiplies it.
            "bias_ih": w["bias_ih"] + torch.cat([w["bias_hh"][: 2 * H], 0 * w["bias_hh"][:H]]),
            "bias_hh": torch.cat([0 * w["bias_hh"][: 2 * H], w["bias_hh"][2 * H :]]),
        },
    ),
    "gru-before": (
        cells.GRU(I, H, reset="before"),
        known.GRU_BEFORE,
        lambda w: {
            "weight_ih": w["weight_ih"],
            "weight_hh": w["weight_hh"],
            "weight_past_h": w["weight_hn"],
            "bias_ih": w["bias_ih"] + torch.cat([w["bias_hh"], w["bias_hn"]]),
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_known_unit_as_a_genotype_computes_what_its_cell_does(name):
    torch.manual_seed(0)
    cell, genotype, translated = CASES[name]
    weights, x = drawn(cell), torch.randn(T, B, I, **DOUBLE)
    ours = outputs(genotype.cell(I, H), translated(weights), x)
    torch.testing.assert_close(ours, outputs(cell, weights, x), rtol=0, atol=1e-12)


def darts_reference(w, x: Tensor, nodes) -> Tensor:
    """DARTS-RNN, written out as in the paper."""
    h, found = x.new_zeros(B, H), []
    for x_t in x:
        c, g = (torch.cat([x_t, h], -1) @ w["W0"]).chunk(2, -1)
        states = [h + c.sigmoid() * (g.tanh() - h)]
        for i, (f, p) in enumerate(nodes):
            c, g = (states[p] @ w[f"W{i + 1}"]).chunk(2, -1)
            g = g if f == "identity" else getattr(torch, f)(g)
            states.append(states[p] + c.sigmoid() * (g - states[p]))
        h = torch.stack(states[1:]).mean(0)
        found.append(h)
    return torch.stack(found)


@pytest.mark.parametrize("name", ["DARTS_V1", "DARTS_V2"])
def test_the_published_cells_of_darts_compute_their_equations(name):
    torch.manual_seed(0)
    genotype, space = getattr(known, name), DartsSpace()
    nodes = [space.decisions[k].options[c].split() for k, c in enumerate(space.encode(genotype))]
    nodes = [(f, int(p)) for f, p in nodes]
    w = {f"W{i}": torch.randn(H, 2 * H, **DOUBLE) * 0.7 for i in range(1, 9)}
    w["W0"] = torch.randn(I + H, 2 * H, **DOUBLE) * 0.7
    ours = {"weight_ih": w["W0"][:I].T, "weight_hh": w["W0"][I:].T}
    for p in range(9):
        rows = [w[f"W{i + 1}"].T for i, (_, q) in enumerate(nodes) if q == p]
        if rows:
            ours[f"weight_s{p}_h"] = torch.cat(rows)
    x = torch.randn(T, B, I, **DOUBLE)
    found = outputs(genotype.cell(I, H), ours, x)
    torch.testing.assert_close(found, darts_reference(w, x, nodes), rtol=0, atol=1e-12)


POINTS = ["lstm", "coupled-lstm", "gru", "gru-before", "elman", "mingru"]


@pytest.mark.parametrize("name", POINTS)
def test_known_units_are_points_of_the_default_space(name):
    torch.manual_seed(0)
    space = UnitSpace()
    genotype = known.KNOWN[name]
    point = space.genotype(space.encode(genotype))
    assert point.matrices == genotype.matrices
    assert len(point.operations) == len(genotype.operations)
    ours, theirs = point.cell(I, H), genotype.cell(I, H)
    weights, x = drawn(theirs), torch.randn(T, B, I, **DOUBLE)
    # Its nodes have other names, and so have maps that read them; their order is the same.
    renamed = dict(zip(shapes(ours), weights.values(), strict=True))
    one, other = outputs(ours, renamed, x), outputs(theirs, weights, x)
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("space", [UnitSpace(), UnitSpace(states=1), DartsSpace(nodes=3)], ids=name)
def test_a_mixture_with_shares_of_0_and_1_is_the_unit_of_those_choices(space):
    torch.manual_seed(0)
    source = random.Random(0)
    for _ in range(5):
        choices = space.draw(source)
        mixture = space.mixture(I, H)
        weights = drawn(mixture) | {"mix": space.one_hot(choices).double()}
        x = torch.randn(T, B, I, **DOUBLE) * 0.3
        unit = space.genotype(choices).cell(I, H)
        derived = outputs(unit, space.inherited(choices, weights, H), x)
        torch.testing.assert_close(derived, outputs(mixture, weights, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("space", [UnitSpace(), DartsSpace(nodes=3)], ids=name)
def test_no_weights_make_a_mixture_run_off(space):
    torch.manual_seed(0)
    layer = Recurrent(space.mixture(I, H), engine="eager")
    with torch.no_grad():
        for weight in layer.parameters():
            weight.mul_(10)
        layer.weights(0)["mix"].copy_(space.probabilities(torch.zeros(sum(space.sizes))))
    output, _ = layer(torch.randn(20, B, I))
    output.square().mean().backward()
    assert output.abs().max() <= BOUND
    grads = [weight.grad for weight in layer.parameters()]
    assert all(grad is not None and grad.isfinite().all() for grad in grads)


SMALL = UnitSpace(slots=("lin", "lin", "mix", "lin", "mix"))


@pytest.mark.medium
@pytest.mark.parametrize("space", [SMALL, DartsSpace(nodes=2)], ids=name)
def test_generated_code_computes_the_mixture_and_its_gradients(space):
    torch.manual_seed(0)
    fused, eager = (
        Recurrent(space.mixture(I, H), engine=engine, dtype=torch.float64)
        for engine in ("cpu", "eager")
    )
    with torch.no_grad():
        fused.weights(0)["mix"].copy_(space.probabilities(torch.randn(sum(space.sizes))))
    eager.load_state_dict(fused.state_dict())
    x = torch.randn(T, B, I, **DOUBLE)
    for layer in (fused, eager):
        layer(x)[0].square().sum().backward()
    for ours, theirs in zip(fused.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("space", [UnitSpace(), UnitSpace(deep=False), DartsSpace()], ids=name)
def test_every_drawn_or_changed_unit_depends_on_input_and_past_and_survives_a_file(space):
    source = random.Random(1)
    for _ in range(20):
        choices = space.draw(source)
        changed = space.mutate(choices, source)
        assert space.genotype(changed) != space.genotype(choices)
        for each in (choices, changed):
            unit = space.genotype(each)
            assert unit.useful
            assert Genotype.parse(unit.lines, unit.bias) == unit
            graph = unit.graph(I, H)
            assert GraphCell(from_json(to_json(graph))) == GraphCell(graph)


def test_a_budget_of_matrices_holds():
    space = UnitSpace(matrices=3)
    source = random.Random(0)
    assert all(space.genotype(space.draw(source)).matrices <= 3 for _ in range(20))
    assert not space.allows(known.GRU)


def test_what_is_restricted_is_not_found():
    space = UnitSpace(activations=("tanh", "sigmoid"), operations=("act", "prod"), states=1)
    source = random.Random(0)
    for _ in range(20):
        for each in space.genotype(space.draw(source)).operations:
            assert each.op in ("lin", "act", "prod")
            assert each.act in ("", "tanh", "sigmoid")
    for name in ("lstm", "gru"):
        with pytest.raises(ValueError, match="no point of the space"):
            space.encode(known.KNOWN[name])


@pytest.mark.parametrize(
    ("text", "useful"),
    [
        ("h' = tanh(lin(x, h))", True),
        ("h' = tanh(lin(x))", False),
        ("h' = tanh(lin(h))", False),
        ("a = tanh(lin(x)); h' = prod(a, h)", False),
        ("a = tanh(lin(x)); b = prod(h, c); c' = sum(c, h); h' = prod(a, b)", False),
        ("a = tanh(lin(x)); c' = sum(c, a); h' = prod(a, c)", True),  # c wakes h
        ("a = tanh(lin(x)); c' = sigmoid(c); h' = prod(a, c)", True),
    ],
)
def test_a_unit_is_of_use_if_it_has_input_and_past_and_leaves_zero(text, useful):
    unit = Genotype.parse(text)
    assert unit.useful == useful
    if "x" in text and "h" in text:
        layer = Recurrent(unit.cell(I, H), dtype=torch.float64, engine="eager")
        with torch.no_grad():
            for weight in layer.parameters():
                weight.normal_()
        output = layer(torch.randn(T, B, I, **DOUBLE))[0]
        assert useful <= bool((output != 0).any())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h' = tanh(x)", "values among"),
        ("h' = tanh(lin(x, q))", "values among"),
        ("h' = blend(h, c)", "3 values"),
        ("a = tanh(lin(x, h))", "one called h'"),
        ("h' = sum(h, c)", "c', since c is read"),
        ("h' = cosh(lin(x, h))", "sigmoid"),
        ("h' = tanh lin x", "one such as"),
    ],
)
def test_a_genotype_that_is_none_is_refused_with_a_reason(text, message):
    with pytest.raises(ValueError, match=message):
        Genotype.parse(text)
