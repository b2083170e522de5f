"""The triton engine against the eager one in float64: values and all gradients."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from metarnn import Cell, cells, hyper
from metarnn.cells import Map
from metarnn.engines.plan import plan_loop
from metarnn.engines.triton import kernel
from metarnn.engines.triton.loops import loop_kernels
from metarnn.engines.triton.program import Program
from metarnn.engines.triton.tiling import Tiling, tile
from metarnn.graph import GraphCell
from tests.helpers.cases import EVERY, TRACEABLE, make, parts, randn
from tests.helpers.compare import assert_close, cotangents, inputs, leaves, measure
from tests.helpers.operations import every_operation
from tests.helpers.oracle import TYPES, agree, everything, given, pair
from tests.helpers.random_graphs import random_graph

MASKS = {"lengths": [3, 1, 2], "resets": torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 1]]).bool()}
ODD = {
    "elman": cells.Elman(3, 5),
    "lstm": cells.LSTM(5, 7),
    "lstm-proj": cells.LSTM(3, 5, proj_size=3),
    "gru": cells.GRU(3, 5),
    "gru-before": cells.GRU(3, 5, reset="before"),
    "lstm-norm": cells.LSTM(3, 3, layer_norm=True),
    "one": cells.LSTM(1, 1),
    "mogrifier": hyper.Mogrifier(cells.LSTM(20, 24), rounds=3, rank=3),  # short rows, and beside
}


@pytest.mark.medium
@pytest.mark.parametrize("name", EVERY)
def test_every_cell_with_lengths_resets_and_an_initial_state(name, device):
    agree(EVERY[name], device, call=MASKS)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["lstm", "jordan", "gru", "qrnn-2", "sru-2"])
def test_two_layers_and_both_directions_with_zoneout(name, device):
    zoneout = (0.3, 0.1)[: len(EVERY[name].states)]
    ours, oracle = pair(EVERY[name], device, num_layers=2, bidirectional=True, zoneout=zoneout)
    tensors = given(ours, 3, 2)
    found = [everything(layer.eval(), tensors, lengths=[2, 1, 2]) for layer in (ours, oracle)]
    assert_close(found[0], found[1], 1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["lstm", "mingru"])
def test_stretches_that_are_computed_again(name, device):
    agree(EVERY[name], device, call=MASKS, checkpoint_every=2)


@pytest.mark.medium
@pytest.mark.parametrize("options", [{"zoneout": 0.4}, {"recurrent_dropout": 0.4}], ids=str)
@pytest.mark.parametrize("name", ["lstm", "lstm-all"])
def test_what_is_dropped_by_the_same_seed_is_what_eager_drops(name, options, device):
    found = []
    for engine in ("triton", "eager"):
        layer = make(EVERY[name], engine=engine, dtype=torch.float32, device=device, **options)
        torch.manual_seed(6)
        # Not the oracle in float64, which would draw other numbers.
        found.append(everything(layer.train(), given(layer, 3, 3)))
    assert_close(found[0], found[1], 1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("name", ODD)
def test_widths_and_batches_that_are_no_powers_of_two(name, device):
    for batch in (1, 5):
        agree(ODD[name], device, batch=batch, steps=2)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["lstm", "gru-before"])
def test_a_batch_that_takes_more_than_one_launch(name, device):
    agree(ODD[name], device, batch=19, steps=2)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["lstm", "mingru"])
def test_no_sequences_and_a_single_step(name, device):
    agree(EVERY[name], device, batch=0)
    agree(EVERY[name], device, steps=1)


@pytest.mark.medium
@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("name", ["lstm", "gru-before", "lstm-norm", "mogrifier"])
def test_long_sums_may_be_shared_by_warps(name, resident, device, monkeypatch):
    """As they are where a program has few units: here it has all, and would not need to."""

    def in_parts(program: Program, *given: Any) -> Tiling:
        tiling = tile(program, *given)
        chunk = max((c.inner for c in tiling.chunks), default=16) if resident else 16
        chunks = (
            c if group.in_registers
            else replace(c, chunk=chunk, inner=max(c.inner, chunk), resident=resident, parts=2)
            for group, c in zip(program.groups, tiling.chunks, strict=True)
        )  # fmt: skip
        return replace(tiling, chunks=tuple(chunks))

    monkeypatch.setattr(kernel, "tile", in_parts)
    agree(ODD[name], device, steps=2)


@pytest.mark.medium
def test_programs_that_wait_for_nobody_share_units_and_sequences(device, monkeypatch):
    monkeypatch.setattr(kernel, "sm_count", lambda device: 8)
    # Two programs for 70 units, three groups for 9 rows.
    agree(cells.SRU(3, 70, version=2), device, batch=9, steps=2)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["lstm", "gru-before", "mingru"])
def test_narrow_types_of_numbers(name, dtype, device):
    ours, oracle = pair(EVERY[name], device, dtype)
    tensors = given(ours, 3, 3)
    found, expected = (everything(layer, tensors) for layer in (ours, oracle))
    assert {t.dtype for t in leaves(found)} == {dtype}
    assert_close(found, expected, TYPES[dtype])


@pytest.mark.medium
@pytest.mark.parametrize("name", ["lstm", "gru-before", "mingru"])
def test_autocast_multiplies_narrow_numbers_and_keeps_the_state_in_float32(name, device):
    ours, oracle = pair(EVERY[name], device)
    found = []
    for layer in (ours, oracle):
        x, *state = inputs(*(t.to(next(layer.parameters())) for t in given(ours, 3, 3)))
        with torch.autocast(device, torch.bfloat16, enabled=layer is ours):
            values = leaves(layer(x, tuple(state)))
        wrt = [x, *state, *layer.parameters()]  # the backward pass is outside, as torch advises
        found.append([values, torch.autograd.grad(values, wrt, cotangents(values))])
    assert {t.dtype for t in leaves(found[0])} == {torch.float32}
    assert_close(found[0], found[1], 2e-2)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["lstm", "lstm-all", "gru-before", "sru-2"])
def test_derivatives_of_derivatives(name, device):
    def twice(layer, tensors):
        x, *state = inputs(*(t.to(next(layer.parameters())) for t in tensors))
        wrt = [x, *state, *layer.parameters()]
        values = leaves(layer(x, tuple(state)))
        every: Any = {"allow_unused": True, "materialize_grads": True}
        first = torch.autograd.grad(values, wrt, cotangents(values), create_graph=True, **every)
        forms = [(g * c).sum() for g, c in zip(first, cotangents(first, seed=3), strict=True)]
        return torch.autograd.grad(torch.stack(forms).sum(), wrt, **every)

    ours, oracle = pair(EVERY[name], device)
    tensors = given(ours, 2, 3)
    assert_close(twice(ours, tensors), twice(oracle, tensors), 1e-4)


@pytest.mark.medium
@pytest.mark.parametrize("asked", ["x", "state", "weights", "one weight"])
def test_gradients_by_some_of_the_tensors_only(asked, device):
    found = []
    for layer in pair(EVERY["lstm"], device):
        x, *state = (t.to(next(layer.parameters())) for t in given(layer, 2, 2))
        chosen = {
            "x": [x],
            "state": state,
            "weights": list(layer.parameters()),
            "one weight": [next(layer.parameters())],
        }[asked]
        layer.requires_grad_(False)
        for tensor in chosen:
            tensor.requires_grad_()
        found.append(measure(lambda: layer(x, tuple(state)), chosen))  # noqa: B023
    assert_close(found[0], found[1], 1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("which", ["output", "state"])
def test_gradients_of_the_output_or_of_the_final_state_alone(which, device):
    found = []
    for layer in pair(EVERY["lstm"], device):
        x = given(layer, 2, 3)[0].to(next(layer.parameters())).requires_grad_()
        y, final = layer(x)
        values = [y] if which == "output" else list(parts(final))
        wrt = [x, *layer.parameters()]
        found.append(torch.autograd.grad(values, wrt, cotangents(values), materialize_grads=True,
                                         allow_unused=True))  # fmt: skip
    assert_close(found[0], found[1], 1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["lstm", "gru-before", "onlstm"])
def test_what_is_not_finite_stays_in_its_sequence_and_is_as_in_torch(name, value, device):
    ours, oracle = pair(EVERY[name], device)
    x = given(ours, 3, 3)[0].to(device)
    x[1, 1, 0] = value
    with torch.no_grad():
        y, expected = ours(x)[0], oracle(x.double())[0]
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert y[:, [0, 2]].isfinite().all()


@pytest.mark.medium
def test_large_values_saturate_as_in_torch(device):
    ours, oracle = pair(EVERY["lstm"], device)
    x = 1e30 * given(ours, 3, 3)[0].to(device)
    assert_close(ours(x), oracle(x.double()), 1e-5)


@pytest.mark.medium
def test_inputs_may_lie_in_memory_in_any_way(device):
    ours, oracle = pair(EVERY["lstm"], device)
    x = randn(3, 4, 5, dtype=torch.float32).to(device).permute(2, 1, 0)  # T = 5, B = 4, I = 3
    assert_close(ours(x), oracle(x.double()), 1e-5)


@pytest.mark.medium
def test_a_state_that_is_changed_in_place_changes_no_output(device):
    layer, _ = pair(EVERY["lstm"], device)
    with torch.no_grad():
        y, state = layer(randn(3, 2, 3, dtype=torch.float32).to(device))
        before = y.clone()
        for part in parts(state):
            part.fill_(7)
    assert torch.equal(y, before)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(4))
def test_random_graphs(seed, device):
    agree(GraphCell(random_graph(seed)), device, steps=2)


@pytest.mark.medium
def test_every_operation(device):
    agree(GraphCell(every_operation()), device, steps=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 150))
def test_many_random_graphs(seed, device):
    cell = GraphCell(random_graph(seed))
    agree(cell, device, call=MASKS)
    agree(cell, device, batch=17, steps=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACEABLE)
def test_every_option_of_every_cell(name, device):
    agree(TRACEABLE[name], device)
    agree(TRACEABLE[name], device, call=MASKS, num_layers=2, bidirectional=True)


@pytest.mark.medium
@pytest.mark.parametrize("form", ["both", "bounded"])
def test_a_sum_for_each_sequence_is_not_that_of_all(form, device):
    layers = [
        hyper.MetaRecurrent(
            cells.LSTM(3, 5),
            form=form,
            context="sequence",
            engine=engine,
            dtype=dtype,
            device=device,
        )
        for engine, dtype in (("triton", torch.float32), ("eager", torch.float64))
    ]
    for weight in layers[0].parameters():
        torch.nn.init.normal_(weight, std=0.3)
    layers[1].load_state_dict(layers[0].state_dict())
    tensors = given(layers[0], 3, 3)
    found, expected = (everything(layer, tensors) for layer in layers)
    assert_close(found, expected, 1e-5)


def test_parts_of_a_state_keep_their_types(device):
    kinds, found = (torch.float16, torch.float32), []
    for engine in ("triton", "eager"):
        layer = make(cells.LSTM(3, 4), engine=engine, dtype=torch.float32, device=device)
        state = tuple(torch.ones(1, 2, 4, dtype=kind, device=device) for kind in kinds)
        with torch.autocast(device, torch.float16):
            found.append(layer(torch.ones(3, 2, 3, device=device), state))
    for _, final in found:
        assert tuple(part.dtype for part in final) == kinds
    assert_close(found[0], found[1], 2e-3)


class Twice(Cell):
    """Two maps of h to short rows of different widths, beside one of h to h."""

    @property
    def states(self):
        return (self.hidden_size,)

    @property
    def maps(self):
        n = self.hidden_size
        downs = {"a_down": Map(n, 2), "b_down": Map(n, 3)}
        return {"ih": Map(self.input_size, n), "hh": Map(n, n), **downs,
                "a_up": Map(2, n), "b_up": Map(3, n)}  # fmt: skip

    def drive(self, theta, x):
        return theta.ih(x)

    def step(self, theta, drive, state):
        a, b = torch.tanh(theta.a_down(state[0])), torch.sigmoid(theta.b_down(state[0]))
        short = torch.sigmoid(theta.a_up(a)) + theta.b_up(b)
        return (torch.tanh(drive + theta.hh(state[0]) * short),)


@pytest.mark.medium
def test_products_of_the_same_rows_are_computed_once_each(device):
    agree(Twice(3, 6), device)
    program = loop_kernels(plan_loop(Twice(3, 6))).train.program
    assert program.exchanges == 1
    results = re.findall(r"^ *acc_(\w+) = dot\(", program.source, re.MULTILINE)
    assert sorted(results) == ["a_down", "a_up", "b_down", "b_up", "hh"]
