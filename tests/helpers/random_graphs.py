"""Random valid cell graphs over all operations, with values that stay small over many steps."""

import random
from collections.abc import Callable, Iterable

from metarnn.cells import Map
from metarnn.graph import Builder, Graph, check_graph
from tests.helpers.operations import ELEMENTWISE, arguments, attributes


def random_graph(seed: int, extra_outputs: bool = False) -> Graph:
    """A cell graph; with `extra_outputs` also outputs that no GraphCell may have.

    Seeds that follow one another have each elementwise operation among them.
    """
    certain = list(ELEMENTWISE)[seed % len(ELEMENTWISE)]
    return _Growth(random.Random(seed)).graph(certain, extra_outputs)


def covering(seeds: Iterable[int]) -> list[int]:
    """The seeds whose graph has an operation that no graph of an earlier one has."""
    seen: set[str] = set()
    found = []
    for seed in seeds:
        operations = {node.op for node in random_graph(seed).nodes}
        if not operations <= seen:
            found.append(seed)
        seen |= operations
    return found


class _Growth:
    """Grows a graph node by node. Every value in `pool` is a row of moderate numbers."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.maps: dict[str, Map] = {}
        self.builder = Builder({})
        self.builder.maps = self.maps  # maps are declared as they are needed
        self.bound: set[int] = set()  # nodes that depend on a state
        self.vectors = 0
        H = source.choice([2, 3, 4, 8, 16, 17])
        widths = [H, source.choice([H, H, 4, 6])][: source.choice([1, 1, 2])]
        # x beside the linear maps fixes its width: then it is as wide as the output.
        self.direct = source.random() < 0.3
        self.x = self.add("input", width=H if self.direct else source.choice([1, 3, 5]), name="x")
        self.states = [self.add("state", width=n, index=k) for k, n in enumerate(widths)]
        self.pool = [*self.states, self.linear(self.x, H), self.linear(self.states[0], H)]
        if self.direct:
            self.pool.append(self.x)

    def add(self, op: str, *args: int, **attributes) -> int:
        k = self.builder.add(op, *args, **attributes)
        if op == "state" or self.bound.intersection(args):
            self.bound.add(k)
        return k

    def width(self, k: int) -> int:
        return self.builder.nodes[k].width

    def number(self, value: float, width: int = 1) -> int:
        return self.builder.number(value, width)

    def linear(self, a: int, width: int) -> int:
        """A product, sometimes with a map that exists, sometimes of several gates."""
        recurrent = a in self.bound
        gates = (width,)
        if width % 2 == 0 and self.random.random() < 0.3:
            gates = (width // 2, width // 2)
        m = Map(self.width(a), gates, self.random.random() < 0.7, recurrent)
        same = [name for name, other in self.maps.items() if other == m]
        name = same[0] if same and self.random.random() < 0.3 else f"m{len(self.maps)}"
        self.maps[name] = m
        return self.add("linear", a, map=name, start=0, stop=self.width(a), bias=m.bias)

    def vector(self, width: int) -> int:
        self.vectors += 1
        return self.add("vector", width=width, name=f"v{self.vectors}")

    def pick(self, width: int = 0) -> int:
        """Any value, or one of that width."""
        recent = self.pool[-6:] if self.random.random() < 0.6 else self.pool
        if not width:
            return self.random.choice(recent)
        fitting = [k for k in recent if self.width(k) in (1, width)]
        if fitting and self.random.random() < 0.7:
            return self.random.choice(fitting)
        wider = [k for k in self.pool if self.width(k) > width]
        if wider and self.random.random() < 0.6:
            a = self.random.choice(wider)
            start = self.random.randrange(self.width(a) - width + 1)
            return self.add("slice", a, start=start, stop=start + width)
        return self.linear(self.random.choice(self.pool), width)

    def grow(self) -> int:
        a = self.pick()
        n = self.width(a)
        b, c = self.pick(n), self.pick(n)
        add, number = self.add, self.number

        def scaled(k: int, factor: float) -> int:
            return add("mul", k, number(factor))

        def joined() -> int:
            both = add("join", *self.random.sample([a, b, self.x, self.states[0]], 2))
            return self.linear(both, self.random.choice([n, 4, 6]))

        rules: list[Callable[[], int]] = [
            lambda: scaled(add("add", a, b), 0.5),
            lambda: scaled(add("sub", a, b), 0.5),
            lambda: add("mul", add("sigmoid", a), b),
            lambda: add("max", a, b),
            lambda: add("min", a, b),
            lambda: add("where", add("greater", a, b), b, c),
            lambda: add("sigmoid", self.linear(a, n)),
            lambda: add("tanh", self.linear(b, self.random.choice([n, 5, 8]))),
            lambda: add("relu", a),
            lambda: add("identity", a),
            lambda: add("softmax", a),
            lambda: add("cumsum", add("softmax", a)),
            lambda: add("cumsum_back", scaled(a, 1 / n)),
            lambda: scaled(add("norm", a, eps=0.1), 0.5),
            lambda: scaled(add("rstd", a, eps=0.5), 0.5),
            lambda: scaled(add("sum", a), 1 / n),
            lambda: add("mean", add("mul", a, add("tanh", b))),
            lambda: scaled(add("repeat", add("tanh", a), times=2), 0.5) if n < 9 else a,
            lambda: scaled(add("fold", a, times=2), 0.5) if n % 2 == 0 else a,
            lambda: add("join", add("tanh", a), b) if n < 9 else a,
            lambda: add("add", scaled(a, 0.5), scaled(self.vector(n), 0.5)),
            lambda: add("sub", number(1.0, n), add("sigmoid", add("mul", a, self.vector(n)))),
            joined,
            *[lambda: self.elementwise(self.random.choice(list(ELEMENTWISE)), n)] * 4,
        ]
        return self.random.choice(rules)()

    def elementwise(self, op: str, width: int) -> int:
        """An operation of moderate values."""
        found = ELEMENTWISE[op]
        bounded = [self.add("tanh", self.pick(width)) for _ in range(found.arity)]
        made = self.add(op, *arguments(self, found, bounded), **attributes(found))
        return self.add("mul", made, self.number(0.5))

    def graph(self, certain: str, extra_outputs: bool) -> Graph:
        for _ in range(self.random.randrange(3, 12)):
            self.pool.append(self.grow())
        new = []
        for state in self.states:
            n = self.width(state)
            candidate = self.full(self.add("mul", self.pick(n), self.number(0.5)), n)
            if not new:
                candidate = self.add("add", candidate, self.add("tanh", self.linear(self.x, n)))
                candidate = self.add("add", candidate, self.elementwise(certain, n))
            gate = self.add("sigmoid", self.full(self.pick(n), n))
            keep = self.add("sub", self.number(1), gate)
            mixed = self.add("add", self.add("mul", keep, state), self.add("mul", gate, candidate))
            choices = [mixed, mixed, self.add("tanh", candidate)]
            choices += [self.add("mul", gate, state)] if new else []
            new.append(self.random.choice(choices))
        outputs = {"y": self.output(new)}
        if extra_outputs:
            outputs |= {f"z{k}": self.pick() for k in range(self.random.randrange(3))}
        self.builder.maps = dict(self.maps)
        return check_graph(self.builder.graph(new, outputs))

    def full(self, k: int, width: int) -> int:
        return k if self.width(k) == width else self.add("mul", k, self.number(1, width))

    def output(self, new: list[int]) -> int:
        """Of the new states and the input, as wide as the first state."""
        h, n = new[0], self.width(new[0])
        rules: list[Callable[[], int]] = [
            lambda: h,
            lambda: h,
            lambda: self.add("mul", h, self.add("sigmoid", self.linear(self.x, n))),
            lambda: self.linear(h, n),
            lambda: self.add("tanh", self.linear(self.add("join", h, new[-1]), n)),
            lambda: self.add("softmax", h),
        ]
        return self.random.choice(rules)()
