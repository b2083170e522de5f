"""Units that people know, as genotypes."""

from __future__ import annotations

from collections.abc import Sequence

from metarnn.search.canonical import canonical
from metarnn.search.genotype import Genotype, Operation

LSTM = Genotype.parse("""
    i = sigmoid(lin(x, h))
    f = sigmoid(lin(x, h))
    g = tanh(lin(x, h))
    o = sigmoid(lin(x, h))
    kept = prod(f, c)
    new = prod(i, g)
    c' = sum(kept, new)
    s = tanh(c')
    h' = prod(o, s)
""")

COUPLED_LSTM = Genotype.parse("""
    i = sigmoid(lin(x, h))
    g = tanh(lin(x, h))
    o = sigmoid(lin(x, h))
    c' = blend(i, g, c)
    s = tanh(c')
    h' = prod(o, s)
""")

# As torch.nn has it: the reset gate acts on the matrix product.
GRU = Genotype.parse("""
    r = sigmoid(lin(x, h))
    z = sigmoid(lin(x, h))
    xn = lin(x)
    hn = lin(h)
    past = prod(r, hn)
    s = sum(xn, past)
    n = tanh(s)
    h' = blend(z, h, n)
""")

# As Cho et al. (2014) have it: the reset gate acts on the state.
GRU_BEFORE = Genotype.parse("""
    r = sigmoid(lin(x, h))
    z = sigmoid(lin(x, h))
    past = prod(r, h)
    n = tanh(lin(x, past))
    h' = blend(z, h, n)
""")

ELMAN = Genotype.parse("h' = tanh(lin(x, h))")

MIN_GRU = Genotype.parse("""
    z = sigmoid(lin(x))
    n = lin(x)
    h' = blend(z, n, h)
""")


def darts(nodes: Sequence[tuple[str, int]], averaged: Sequence[int] | None = None) -> Genotype:
    """A cell of the DARTS-RNN space (Liu et al. 2019), from (activation, predecessor) a node.

    s_0 = blend(σ(W x + W h), tanh(W x + W h), h)
    s_i = blend(σ(W s_p), f(W s_p), s_p)
    h'  = mean of the nodes `averaged`, all but s_0 by default

    It has no biases.
    """
    made = [
        Operation("c0", "lin", ("x", "h"), "sigmoid"),
        Operation("g0", "lin", ("x", "h"), "tanh"),
        Operation("s0", "blend", ("c0", "g0", "h")),
    ]
    for i, (f, p) in enumerate(nodes, 1):
        made += [
            Operation(f"c{i}", "lin", (f"s{p}",), "sigmoid"),
            Operation(f"g{i}", "lin", (f"s{p}",), f),
            Operation(f"s{i}", "blend", (f"c{i}", f"g{i}", f"s{p}")),
        ]
    chosen = range(1, len(nodes) + 1) if averaged is None else averaged
    made.append(Operation("h'", "mean", tuple(f"s{i}" for i in chosen)))
    return Genotype(tuple(made), bias=False)


# The cells that DARTS found on PTB, by first and by second order.
DARTS_V1 = darts(
    [("relu", 0), ("relu", 1), ("tanh", 2), ("relu", 3), ("relu", 4), ("identity", 1), ("relu", 5),
     ("relu", 1)]
)  # fmt: skip
DARTS_V2 = darts(
    [("sigmoid", 0), ("relu", 1), ("relu", 1), ("identity", 1), ("tanh", 2), ("sigmoid", 5),
     ("tanh", 3), ("relu", 5)]
)  # fmt: skip

KNOWN = {
    "lstm": LSTM,
    "coupled-lstm": COUPLED_LSTM,
    "gru": GRU,
    "gru-before": GRU_BEFORE,
    "elman": ELMAN,
    "mingru": MIN_GRU,
    "darts-v1": DARTS_V1,
    "darts-v2": DARTS_V2,
}


def known_name(unit: Genotype) -> str:
    """The name of a unit that people know, "" for others.

    >>> known_name(Genotype.parse("z = sigmoid(lin(x)); n = lin(x); h' = blend(z, h, n)"))
    'mingru'
    """
    form = canonical(unit)
    return next((name for name, each in KNOWN.items() if canonical(each) == form), "")
