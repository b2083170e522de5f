import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.func import jvp, vmap

from metarnn import cells
from metarnn.engines.scan import scan
from tests.helpers.cases import make, randn
from tests.helpers.compare import assert_close, cotangents, inputs

LONG = 4_000


def loop(a, b, start):
    """The definition, in float64: s_t = a_t s_{t-1} + b_t."""
    states, s = [], start.astype(np.float64)
    for a_t, b_t in zip(a.astype(np.float64), b.astype(np.float64), strict=True):
        s = a_t * s + b_t
        states.append(s)
    return np.stack(states)


def loop_gradients(a, states, start, g):
    """(∂/∂a, ∂/∂b, ∂/∂start) of Σ g_t s_t: d_t = ∂/∂s_t, from the last step back."""
    a, g = a.astype(np.float64), g.astype(np.float64)
    before = np.concatenate([start[None], states[:-1]])
    d, later = np.zeros_like(states), np.zeros_like(states[0])
    for t in reversed(range(len(a))):
        d[t] = g[t] + later
        later = a[t] * d[t]
    return d * before, d, later


@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 1.0]))
def test_a_scan_is_the_loop_that_defines_it(steps, seed, exact):
    draw = np.random.default_rng(seed)
    a, b, start = draw.uniform(-1, 1, (steps, 3)), draw.normal(size=(steps, 3)), draw.normal(size=3)
    gates = draw.uniform(size=a.shape) < exact  # this share of the gates is exactly 0 or 1
    a = np.where(gates, draw.integers(0, 2, a.shape), a)
    found = scan(*map(torch.from_numpy, (a, b, start)))
    assert_close(found, torch.from_numpy(loop(a, b, start)))


@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_its_gradient_is_the_loops_from_the_end_back(steps, seed):
    draw = np.random.default_rng(seed)
    a, b, start = draw.uniform(0, 1, (steps, 2)), draw.normal(size=(steps, 2)), draw.normal(size=2)
    tensors = inputs(*map(torch.from_numpy, (a, b, start)))
    states = scan(*tensors)
    g = cotangents([states])
    expected = loop_gradients(a, loop(a, b, start), start, g[0].numpy())
    assert_close(torch.autograd.grad(states, tensors, g), list(map(torch.as_tensor, expected)))


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 9, 10])
def test_derivatives_of_a_scan(steps):
    point = tuple(inputs(randn(steps, 2), randn(steps, 2, seed=2), randn(2, seed=3)))
    assert gradcheck(scan, point, check_forward_ad=True)
    assert gradgradcheck(scan, point)


def test_forward_derivatives_where_only_one_argument_moves():
    a, b, start = randn(5, 2), randn(5, 2, seed=2), randn(2, seed=3)
    moves = [
        (a, lambda v: scan(v, b, start)),
        (b, lambda v: scan(a, v, start)),
        (start, lambda v: scan(a, b, v)),
    ]
    for value, function in moves:
        direction = randn(*value.shape, seed=7)
        tangent = jvp(function, (value,), (direction,))[1]
        ahead, back = function(value + 1e-6 * direction), function(value - 1e-6 * direction)
        assert_close(tangent, (ahead - back) / 2e-6, 1e-7)


def test_vmap_of_a_scan_with_shared_and_batched_arguments():
    a, b, start = randn(3, 6, 2), randn(6, 2, seed=2), randn(3, 2, seed=3)
    found = vmap(scan, in_dims=(0, None, 0))(a, b, start)
    assert_close(found, torch.stack([scan(a[k], b, start[k]) for k in range(3)]))


def saturated(*shape):
    """Gate values of which a third is exactly 0, a third exactly 1."""
    draw = np.random.default_rng(0)
    kind, values = draw.integers(0, 3, shape), draw.uniform(0, 1, shape)
    return np.where(kind == 2, values, kind).astype(np.float32)


def test_a_long_scan_in_float32_is_the_loop_in_float64_with_gates_at_0_and_1():
    draw = np.random.default_rng(1)
    a = saturated(LONG, 2, 8)
    a[:, 0, 0], a[:, 0, 1], a[:, 0, 2] = 0, 1, 1 - 2.0**-24
    b = draw.normal(size=a.shape).astype(np.float32)
    start = draw.normal(size=a.shape[1:]).astype(np.float32)
    tensors = inputs(*map(torch.from_numpy, (a, b, start)))
    found = scan(*tensors)
    states = loop(a, b, start)
    assert_close(found, torch.from_numpy(states), 1e-5)
    g = cotangents([found])
    gradients = torch.autograd.grad(found, tensors, g)
    expected = loop_gradients(a, states, start, g[0].numpy())
    assert_close(gradients, list(map(torch.as_tensor, expected)), 1e-5)


LINEAR = {
    "qrnn-f": cells.QRNN(2, 3, 2, "f"),
    "qrnn-fo": cells.QRNN(2, 3, 1, "fo"),
    "qrnn-ifo": cells.QRNN(2, 3, 3, "ifo"),
    "sru": cells.SRU(2, 3),
    "sru-tanh": cells.SRU(2, 3, activation="tanh"),
    "mingru": cells.MinGRU(2, 3),
    "minlstm": cells.MinLSTM(2, 3),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", LINEAR)
def test_a_long_sequence_by_scan_in_float32_is_its_sequential_definition(name):
    """Inputs that drive gates to ±200 and beyond at some steps, and leave them alone at others."""
    loud = torch.rand(LONG, 2, 1, generator=torch.Generator().manual_seed(3)) < 0.3
    # x and the weights are multiples of 1/64 and 1/8, whose products and sums are exact in float32:
    # what is compared is the recurrence.
    x = (64 * randn(LONG, 2, 2, dtype=torch.float32)).round() / 64
    x = torch.where(loud, 400 * x.sign(), x)
    found: dict[tuple, list] = {}
    for engine, dtype in [
        ("scan", torch.float32),
        ("scan", torch.float64),
        ("eager", torch.float64),
    ]:
        layer = make(LINEAR[name], engine=engine)
        with torch.no_grad():
            for p in layer.parameters():
                p.copy_((8 * p).round() / 8)
        layer.to(dtype)
        point = x.to(dtype, copy=True).requires_grad_()
        output, final = layer(point)
        loss = output.mean() + output.square().mean()
        by_x, *by_weights = torch.autograd.grad(loss, [point, *layer.parameters()])
        assert all(g.isfinite().all() for g in by_weights)
        found[engine, dtype] = [output, final, by_x, by_weights]
    expected = found["eager", torch.float64]
    assert_close(found["scan", torch.float64], expected, 1e-10)
    # Not the weights' gradients: a sum of 8,000 products in float32, by any engine.
    assert_close(found["scan", torch.float32][:3], expected[:3], 1e-5)


@pytest.mark.parametrize("name", LINEAR)
def test_saturated_gates_give_no_nan_and_no_infinity(name):
    layer = make(LINEAR[name], engine="scan", dtype=torch.float32)
    x = torch.where(randn(64, 2, 2) > 0, 1e4, -1e4).float().requires_grad_()
    output, _ = layer(x)
    gradients = torch.autograd.grad(output.sum(), [x, *layer.parameters()])
    assert all(value.isfinite().all() for value in (output, *gradients))


def test_narrow_floats_are_accumulated_in_float32():
    a, b = torch.ones(2000, 1).bfloat16(), torch.full((2000, 1), 0.01).bfloat16()
    found = scan(a, b, torch.zeros(1).bfloat16())
    assert found.dtype == torch.bfloat16
    assert found[-1].item() == pytest.approx(2000 * b[0].item(), rel=2**-8)
