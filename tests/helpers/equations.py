"""The cells' equations, written anew in numpy for one sequence, one step at a time."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from metarnn import Cell, cells
from tests.helpers.own import Average, Leaky

Array = np.ndarray
Weights = dict[str, Array]
State = list[Array]


def σ(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_erf = np.vectorize(math.erf)
POINTWISE: dict[Any, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.where(x > 0, x, 0),
    "sigmoid": σ,
    "identity": lambda x: x,
    "softplus": lambda x: np.log(1 + np.exp(x)),
    "gelu": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    torch.sin: np.sin,
    torch.atan: np.arctan,
}


def linear(w: Weights, name: str, x: Array) -> Array:
    """W x + b, normalised to mean 0 and variance 1 where the weights have a gain for it."""
    y = w[f"weight_{name}"] @ x
    return normalised(w, name, y + w[f"bias_{name}"] if f"bias_{name}" in w else y)


def normalised(w: Weights, name: str, y: Array) -> Array:
    if f"gain_{name}" not in w:
        return y
    centred = y - y.mean()
    y = w[f"gain_{name}"] * centred / np.sqrt((centred**2).mean() + 1e-5)
    return y + w[f"shift_{name}"] if f"shift_{name}" in w else y


def elman(cell: cells.Elman, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    h = POINTWISE[cell.nonlinearity](linear(w, "ih", x) + linear(w, "hh", state[0]))
    return h, [h]


def jordan(cell: cells.Jordan, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    h = POINTWISE[cell.nonlinearity](linear(w, "ih", x) + linear(w, "yh", state[0]))
    y = POINTWISE[cell.output_nonlinearity](linear(w, "hy", h))
    return y, [y]


def lstm(cell: cells.LSTM, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    h, c = state
    n = cell.hidden_size
    a = linear(w, "ih", x) + linear(w, "hh", h)
    order = "igo" if cell.coupled else "ifgo"
    pre = {gate: a[k * n : (k + 1) * n] for k, gate in enumerate(order)}
    peep = {gate: w.get(f"peep_{gate}", np.zeros(n)) for gate in "ifo"}
    i = σ(pre["i"] + peep["i"] * c)
    f = 1 - i if cell.coupled else σ(pre["f"] + peep["f"] * c)
    c = f * c + i * np.tanh(pre["g"])
    h = σ(pre["o"] + peep["o"] * c) * np.tanh(normalised(w, "c", c))
    h = w["weight_hr"] @ h if cell.proj_size else h
    return h, [h, c]


def gru(cell: cells.GRU, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    (h,) = state
    n = cell.hidden_size
    a, u = linear(w, "ih", x), linear(w, "hh", h)
    r, z = σ(a[:n] + u[:n]), σ(a[n : 2 * n] + u[n : 2 * n])
    within = r * u[2 * n :] if cell.reset == "after" else linear(w, "hn", r * h)
    h = (1 - z) * np.tanh(a[2 * n :] + within) + z * h
    return h, [h]


def qrnn(cell: cells.QRNN, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    n = cell.hidden_size
    a = linear(w, "ih", x)
    gates = {gate: σ(a[(k + 1) * n : (k + 2) * n]) for k, gate in enumerate(cell.pooling)}
    f = gates["f"]
    c = f * state[0] + gates.get("i", 1 - f) * np.tanh(a[:n])
    return gates.get("o", 1.0) * c, [c]


def sru(cell: cells.SRU, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    n, c = cell.hidden_size, state[-1]
    a = linear(w, "gates", x)
    v_f, v_r = w.get("v_f", np.zeros(n)), w.get("v_r", np.zeros(n))
    f, r = σ(a[:n] + v_f * c), σ(a[n:] + v_r * c)
    c = f * c + (1 - f) * linear(w, "ih", x)
    h = r * (np.tanh(c) if cell.activation == "tanh" else c)
    if cell.highway:
        α = (1 + 2 * math.exp(cell.highway_bias)) ** 0.5 if cell.rescale else 1
        h = h + (1 - r) * α * (w["weight_highway"] @ x if "weight_highway" in w else x)
    return h, [c] if cell.version == 1 else [h, c]


def mingru(cell: cells.MinGRU, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    z, n = np.split(linear(w, "ih", x), 2)
    h = (1 - σ(z)) * state[0] + σ(z) * n
    return h, [h]


def minlstm(cell: cells.MinLSTM, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    f, i, g = np.split(linear(w, "ih", x), 3)
    f, i = σ(f), σ(i)
    h = f / (f + i) * state[0] + i / (f + i) * g
    return h, [h]


def onlstm(cell: cells.ONLSTM, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    h, c = state
    n, levels = cell.hidden_size, cell.hidden_size // cell.chunk
    a = linear(w, "ih", x) + linear(w, "hh", h)
    i, f, g, o = σ(a[:n]), σ(a[n : 2 * n]), np.tanh(a[2 * n : 3 * n]), σ(a[3 * n : 4 * n])
    master_f = np.repeat(cumax(a[4 * n : 4 * n + levels]), cell.chunk)
    master_i = np.repeat(1 - cumax(a[4 * n + levels :]), cell.chunk)
    overlap = master_f * master_i
    c = (f * overlap + (master_f - overlap)) * c + (i * overlap + (master_i - overlap)) * g
    h = o * np.tanh(c)
    return h, [h, c]


def cumax(x: Array) -> Array:
    p = np.exp(x) / np.exp(x).sum()
    return np.array([p[: k + 1].sum() for k in range(len(x))])


def mixed(cell: cells.Mixed, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    (h,) = state
    a, u = linear(w, "ih", x), linear(w, "hh", h)
    (xz, xr, xn), (hz, hr, hn) = np.split(a, 3), np.split(u, 3)
    z, r = σ(xz + hz), σ(xr + hr)
    share = {k: np.exp(w[f"choice_{k}"]) for k in ("activation", "carry")}
    share = {k: e / e.sum() for k, e in share.items()}
    inner = [POINTWISE[φ](xn + r * hn) for φ in cell.activations]
    n = sum(s * y for s, y in zip(share["activation"], inner, strict=True))
    every = {"gate": (1 - z) * n + z * h, "add": h + z * n, "replace": n, "scale": z * h + n}
    carried = [s * every[c] for s, c in zip(share["carry"], cell.carries, strict=True)]
    h = np.sum(carried, 0)
    return h, [h]


def leaky(cell: Leaky, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    h = np.tanh(linear(w, "ih", x) + linear(w, "hh", state[0]))
    h = cell.leak * state[0] + (1 - cell.leak) * h
    return h, [h]


def average(cell: Average, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    a, b = np.split(linear(w, "in", x), 2)
    h = σ(a) * state[0] + b
    return h, [h]


STEPS: dict[type[Cell], Callable[..., tuple[Array, State]]] = {
    cells.Elman: elman,
    cells.Jordan: jordan,
    cells.LSTM: lstm,
    cells.GRU: gru,
    cells.QRNN: qrnn,
    cells.SRU: sru,
    cells.MinGRU: mingru,
    cells.MinLSTM: minlstm,
    cells.ONLSTM: onlstm,
    cells.Mixed: mixed,
    Leaky: leaky,
    Average: average,
}


def step(cell: Cell, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    """One step: (output, state). With a window w > 1 the last state part is the w - 1 inputs
    before x, oldest first."""
    if cell.window == 1:
        return STEPS[type(cell)](cell, w, x, state)
    *inner, past = state
    seen = np.concatenate([past, x])
    y, inner = STEPS[type(cell)](cell, w, seen, inner)
    return y, [*inner, seen[len(x) :]]


def sequence(cell: Cell, w: Weights, x: Array, state: State) -> tuple[Array, State]:
    """All steps over x [T, I]: outputs [T, O] and the final state."""
    outputs = []
    for x_t in x:
        y, state = step(cell, w, x_t, state)
        outputs.append(y)
    return np.stack(outputs), state


def arrays(tensors) -> Weights:
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}
