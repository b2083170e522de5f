"""The C of operations of one value: how far from the truth, and what of NaN and infinity."""

import ctypes

import mpmath
import numpy as np
import pytest
import torch

from metarnn.engines.cpu.compile import load
from metarnn.engines.cpu.program import SIMD
from metarnn.graph.ops import OPS
from tests.helpers.operations import UNARY

NAMES = list(UNARY)
HARNESS = "\n".join(
    f"void f_{name}(const real *x, real *y, long n) {{ for (long i = 0; i < n; i += VL) {{"
    f" const v y0 = load(x + i, n - i), y1 = {OPS[name].c.format('y0')};"
    f" store(y + i, y1, n - i); }} }}"
    for name in NAMES
)
TYPES = {"float": np.float32, "double": np.float64}
BOUNDS = {name: op.ulp for name, op in UNARY.items() if op.ulp}


def library(real: str) -> ctypes.CDLL:
    defines = f"#define REAL {real}\n#define IS_DOUBLE {int(real == 'double')}\n"
    return load(defines + SIMD + HARNESS)


def apply(name: str, x: np.ndarray) -> np.ndarray:
    real = "float" if x.dtype == np.float32 else "double"
    x, y = np.ascontiguousarray(x), np.empty_like(x)
    function = getattr(library(real), f"f_{name}")
    function.restype = None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    function(x.ctypes.data, y.ctypes.data, x.size)
    return y


def exact(name: str, x: np.ndarray) -> np.ndarray:
    """In a wider type: the truth to well below a unit in the last place of x's type."""
    x = x.astype(np.longdouble)
    with np.errstate(over="ignore", under="ignore"):
        return {
            "exp": lambda: np.exp(x),
            "sigmoid": lambda: np.where(
                x > 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(x) / (1 + np.exp(-np.abs(x)))
            ),
            "tanh": lambda: np.tanh(x),
            "softplus": lambda: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
            "log": lambda: np.log(x),
            "sqrt": lambda: np.sqrt(x),
            "expm1": lambda: np.expm1(x),
            "sin": lambda: np.sin(x),
            "cos": lambda: np.cos(x),
            "erf": lambda: np.array([*map(erf, x)]),
        }[name]()


def erf(x: np.longdouble) -> np.longdouble:
    """No package computes it in a wider type but digit by digit."""
    if abs(x) > 10:
        return np.sign(x)
    with mpmath.workprec(80):
        return np.longdouble(mpmath.nstr(mpmath.erf(mpmath.mpf(float(x))), 22))


def arguments(kind: type, name: str = "") -> np.ndarray:
    """Where functions are used, where they saturate, near 0, and where a formula changes."""
    source = np.random.default_rng(0)
    wide = 90 if kind == np.float32 else 710
    drawn = [source.uniform(-1, 1, 200_000) * scale for scale in (0.3, 1, 10, wide)]
    drawn += [s * 10.0 ** source.uniform(-30, 1, 100_000) for s in (1, -1)]
    edges = (0.15, 0.25, 0.34657359, 0.7071, 0.9277, 1, 1.4142, 4.1, 6)
    for edge in (*edges, 88.7228, 87.3365, 709.7827, 708.3964):
        near = np.linspace(edge - 1e-4, edge + 1e-4, 2001)
        drawn += [near, -near]
    if name in ("sin", "cos"):  # up to where they reduce their argument, and to its multiples
        drawn += [source.uniform(-1, 1, 200_000) * 1e6, np.arange(640_000) * (np.pi / 2)]
    if name in ("log", "sqrt"):
        limits = np.log10(np.finfo(kind).tiny) - 5, np.log10(np.finfo(kind).max)
        drawn += [10.0 ** source.uniform(*limits, 200_000), np.linspace(0.99, 1.01, 100_000)]
    found = np.concatenate(drawn).astype(kind)
    found = found[found > 0] if name and OPS[name].positive else found
    return found[:: len(found) // 40_000] if name == "erf" else found


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="no wider type to compare with")
@pytest.mark.parametrize("real", TYPES)
@pytest.mark.parametrize("name", BOUNDS)
def test_vector_functions_keep_their_stated_bounds(name, real):
    kind = TYPES[real]
    x = arguments(kind, name)
    truth, found = exact(name, x), apply(name, x)
    info = np.finfo(kind)
    # Results below the smallest normal number may be 0, those above the largest are infinite.
    tiny, huge = np.abs(truth) < 2 * info.tiny, truth > info.max * (1 - 4 * info.eps)
    assert np.all(np.abs(found[tiny] - truth[tiny]) <= 2 * info.tiny)
    assert np.all(found[huge] >= info.max * (1 - 8 * info.eps))
    usual = ~(tiny | huge)
    unit = np.spacing(np.abs(truth[usual]).astype(kind)).astype(np.longdouble)
    error = np.abs(found[usual] - truth[usual]) / unit
    assert error.max() <= BOUNDS[name], (error.max(), x[usual][error.argmax()])


@pytest.mark.parametrize("real", TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_nan_stays_nan_and_infinities_are_as_in_torch(name, real):
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-30, -1e-30]
    # At every place of a vector, and in one that is not full.
    x = np.array(special * 5, TYPES[real])
    expected = OPS[name].compute(torch.from_numpy(x)).numpy()
    found = apply(name, x)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    # A sigmoid is not followed below the smallest normal number, to 0.
    near_zero = 2 * float(np.finfo(x.dtype).tiny)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=near_zero)


@pytest.mark.parametrize("real", TYPES)
def test_functions_are_what_symmetry_says(real):
    x = arguments(TYPES[real])
    for name in ("tanh", "erf", "sin"):
        assert np.array_equal(apply(name, -x), -apply(name, x))
    for name in ("sigmoid", "tanh", "erf", "sin", "cos"):
        y = apply(name, x)
        assert y.max() <= 1
        assert y.min() >= (0 if name == "sigmoid" else -1)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 15, 16, 17, 33])
@pytest.mark.parametrize("name", NAMES)
def test_what_lies_beyond_a_row_is_neither_read_nor_written(name, n):
    x = np.linspace(-2, 2, n, dtype=np.float32)
    whole = np.full(n + 64, 7, np.float32)
    function = getattr(library("float"), f"f_{name}")
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    function(x.ctypes.data, whole.ctypes.data, n)
    assert np.all(whole[n:] == 7)
    assert np.array_equal(whole[:n], apply(name, x), equal_nan=True)
