"""The space that LSTM and GRU are points of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import torch
from torch import Tensor

from metarnn.cells import Cell, Drive, Map, State, Theta, check
from metarnn.cells.base import POINTWISE
from metarnn.search.genotype import ACTIVATIONS, STATES, Genotype, Operation, map_name
from metarnn.search.space import Choices, Decision, Shares, Space, added, bounded, weighted
from metarnn.search.stability import is_bounded, is_neat

OPERATIONS = ("act", "sum", "prod", "blend")
SLOTS = ("lin",) * 3 + ("mix", "lin") + ("mix",) * 5


@dataclass(frozen=True)
class UnitSpace(Space):
    """State (h) or (h, c); nodes one after the other, each of earlier ones; next states of nodes.

    A slot `lin` decides what it reads and its activation; a slot `mix` decides its operation (an
    activation, a sum, a product, a blend) and which earlier values that takes. Which nodes are h'
    and c' is decided too. What then reaches neither of them is no part of the unit, so that units
    with fewer nodes are in the space as well.

    >>> from metarnn.search import known
    >>> space = UnitSpace()
    >>> gru = space.encode(known.GRU)
    >>> print(space.genotype(gru))
    n0 = sigmoid(lin(x, h))
    ...
    h' = blend(n1, h, n7)

    slots        "lin" or "mix" for each node; by default LSTM, its coupled variant, GRU of both
                 kinds, minGRU and Elman are points
    activations  of both kinds of slots; identity of `lin` only
    operations   of a slot `mix`
    states       1 for h alone, 2 for h and c
    reads        what a `lin` may read beside earlier `mix` nodes: "x", "h", "c"
    deep         whether a `lin` may read earlier `mix` nodes: one more stage in each step
    matrices     at most so many, the budget of parameters (an LSTM has 8, a GRU 6); 0: any number
    bounded      only units whose state cannot grow exponentially, whatever their weights
    neat         only units without wasted operations, whose blends are by gates
    """

    slots: tuple[str, ...] = SLOTS
    activations: tuple[str, ...] = ACTIVATIONS[:4]
    operations: tuple[str, ...] = OPERATIONS
    states: int = 2
    reads: tuple[str, ...] = ("x", "h")
    deep: bool = True
    matrices: int = 0
    bounded: bool = True
    neat: bool = True

    def __post_init__(self) -> None:
        for slot in self.slots:
            check.one_of("slots", slot, ("lin", "mix"))
        if self.slots[:1] != ("lin",):
            check.refuse("slots", self.slots, "first a lin: x is read by nothing else")
        for act in self.activations:
            check.one_of("activations", act, ACTIVATIONS)
        for op in self.operations:
            check.one_of("operations", op, OPERATIONS)
        for source in self.reads:
            check.one_of("reads", source, ("x", *self.old))
        if self.states not in (1, 2):
            check.refuse("states", self.states, "1 (h) or 2 (h and c)")
        if not self.activations or not self.ops:
            check.refuse("operations", self.operations, "at least one, and an activation")
        check.size("matrices", self.matrices, least=0)

    @property
    def old(self) -> tuple[str, ...]:
        return STATES[: self.states]

    @cached_property
    def ops(self) -> tuple[str, ...]:
        """The options of a `mix` slot: activations by their names."""
        acts = [act for act in self.activations if act != "identity"]
        return tuple(o for op in self.operations for o in (acts if op == "act" else [op]))

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:  # type: ignore[override]
        found: list[Decision] = []
        for k, slot in enumerate(self.slots):
            if slot == "lin":
                found += [
                    Decision(f"n{k}.act", self.activations, operation=True),
                    Decision(f"n{k}.reads", self._subsets(k)),
                ]
                continue
            values = self._values(k)
            found.append(Decision(f"n{k}.op", self.ops, operation=True))
            found += [Decision(f"n{k}.{role}", values) for role in self.roles]
        nodes = tuple(f"n{k}" for k in range(len(self.slots)))
        return (*found, *(Decision(f"{state}'", nodes) for state in self.old))

    @property
    def roles(self) -> str:
        """The values that an operation may take."""
        return "abz" if "blend" in self.ops else "ab" if {"sum", "prod"} & {*self.ops} else "a"

    def _values(self, k: int) -> tuple[str, ...]:
        return (*self.old, *(f"n{j}" for j in range(k)))

    def _subsets(self, k: int) -> tuple[str, ...]:
        """What a `lin` reads: x, or one of the others, or x and one of the others."""
        others = [source for source in self.reads if source != "x"]
        if self.deep:
            others += [f"n{j}" for j in range(k) if self.slots[j] == "mix"]
        first = ["x"] if "x" in self.reads else []
        return (*first, *(f"{p}{o}" for o in others for p in ["x ", ""][1 - len(first) :]))

    def allows(self, genotype: Genotype) -> bool:
        if not genotype.useful or 0 < self.matrices < genotype.matrices:
            return False
        if self.neat and not is_neat(genotype):
            return False
        return not self.bounded or is_bounded(genotype)

    def genotype(self, choices: Choices) -> Genotype:
        taken = self._taken(choices)
        unit = self._named(taken, self._names(taken, self.old)).pruned()
        if unit.states != self.old:  # nothing reads c, so that no node is to be called c'
            unit = self._named(taken, self._names(taken, ("h",))).pruned()
        return unit

    def _taken(self, choices: Choices) -> dict[str, str]:
        return {d.name: d.options[k] for d, k in zip(self.decisions, choices, strict=True)}

    def _names(self, taken: Mapping[str, str], states: tuple[str, ...]) -> dict[str, str]:
        """What each node is called: one that is a next state has its name."""
        names = {f"n{k}": f"n{k}" for k in range(len(self.slots))}
        return names | {taken[f"{state}'"]: f"{state}'" for state in reversed(states)}

    def _named(self, taken: Mapping[str, str], names: Mapping[str, str]) -> Genotype:
        made = []
        for k, slot in enumerate(self.slots):
            node = f"n{k}"
            op = "lin" if slot == "lin" else taken[f"{node}.op"]
            if op == "lin":
                args, act = taken[f"{node}.reads"].split(), taken[f"{node}.act"]
            elif op in ACTIVATIONS:
                args, act, op = [taken[f"{node}.a"]], op, "act"
            else:
                roles = "zab" if op == "blend" else "ab"
                args, act = [taken[f"{node}.{role}"] for role in roles], ""
            made.append(Operation(names[node], op, tuple(names.get(a, a) for a in args), act))
        if self.states == 2 and "c'" not in names.values():
            # One node is both, or nothing needs c.
            made.append(Operation("c'", "act", (names[taken["c'"]],), "identity"))
        return Genotype(tuple(made))

    def used(self, choices: Choices) -> tuple[bool, ...]:
        unit, taken = self.genotype(choices), self._taken(choices)
        node = {name: k for k, name in self._names(taken, unit.states).items()}
        parts = {node[each.name] for each in unit.operations if each.name in node}
        parts |= {f"{state}'" for state in unit.states}
        return tuple(decision.name.split(".")[0] in parts for decision in self.decisions)

    def encode(self, genotype: Genotype) -> Choices:
        """The first slot of its kind after all that a node takes is where it goes."""
        wanted: dict[str, str] = {}
        place: dict[str, int] = dict.fromkeys(("x", *self.old), -1)
        free = list(range(len(self.slots)))
        for each in genotype.operations:
            if not set(each.args) <= place.keys():
                self._lacks(f"`{each}`, which reads c: states={self.states}")
            kind = "lin" if each.op == "lin" else "mix"
            after = max(place[arg] for arg in each.args)
            k = next((k for k in free if k > after and self.slots[k] == kind), None)
            if k is None:
                self._lacks(f"a free slot `{kind}` for `{each}`")
            free.remove(k)
            place[each.name] = k
            args = [arg if place[arg] < 0 else f"n{place[arg]}" for arg in each.args]
            if kind == "lin":
                wanted |= {f"n{k}.act": each.act, f"n{k}.reads": " ".join(args)}
            else:
                roles = "zab" if each.op == "blend" else "ab"
                wanted[f"n{k}.op"] = each.act if each.op == "act" else each.op
                wanted |= {f"n{k}.{role}": a for role, a in zip(roles, args, strict=False)}
                if len(args) > len(roles):
                    self._lacks(f"`{each}`: a {each.op} takes {len(roles)} values")
        following = [f"{state}'" for state in self.old]
        wanted |= {name: f"n{place[name]}" for name in following if name in place}
        choices = []
        for decision in self.decisions:
            option = wanted.get(decision.name, decision.options[0])
            if option not in decision.options:
                self._lacks(f"{option!r} for {decision.name}, only {decision.options}")
            choices.append(decision.options.index(option))
        return tuple(choices)

    def _lacks(self, what: str) -> NoReturn:
        raise ValueError(f"this unit is no point of the space, which has no {what}")

    def mixture(self, input_size: int, hidden_size: int) -> Mixture:
        return Mixture(input_size, hidden_size, self)

    def inherited(
        self, choices: Choices, weights: Mapping[str, Tensor], hidden_size: int
    ) -> dict[str, Tensor]:
        unit, taken = self.genotype(choices), self._taken(choices)
        node = {name: k for k, name in self._names(taken, unit.states).items()}  # by its name
        readers = self.mixture(1, hidden_size).readers
        lins = [f"n{k}" for k, slot in enumerate(self.slots) if slot == "lin"]
        first = {each.name: each.args[0] for each in unit.operations if each.op == "lin"}
        biases = weights["bias"].split(hidden_size)
        found: dict[str, Tensor] = {}
        for source, gates in unit.readers().items():
            value = node.get(source, source)
            rows = weights[f"weight_{map_name(value)}"].split(hidden_size)
            chosen = [rows[readers[value].index(int(node[gate][1:]))] for gate in gates]
            found[f"weight_{map_name(source)}"] = torch.cat(chosen)
            if source in first.values():
                # The bias of a `lin` is that of the map of its first value, in the others it is 0.
                own = [biases[lins.index(node[gate])] for gate in gates]
                bias = [b if first[g] == source else 0 * b for b, g in zip(own, gates, strict=True)]
                found[f"bias_{map_name(source)}"] = torch.cat(bias)
        return found


class Mixture(Cell):
    """All units of a `UnitSpace` at once: each option counts by its share in `mix`.

    lin:  n = Σ_f p_f f(Σ_s q_s W_s s + b), q_s the shares of all sets that s is in
    mix:  a, b, z = Σ_s p_s s, for each with shares of its own
          n = Σ_f p_f f(a) + p_sum (a + b) + p_prod a ⊙ b + p_blend (z ⊙ a + (1 - z) ⊙ b)
    """

    space: UnitSpace

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """For each value that a `lin` may read, the slots that do."""
        found: dict[str, list[int]] = {}
        for decision in self.space.decisions:
            if decision.name.endswith(".reads"):
                k = int(decision.name[1:].split(".")[0])
                for source in dict.fromkeys(" ".join(decision.options).split()):
                    found.setdefault(source, []).append(k)
        return found

    @property
    def states(self) -> tuple[int, ...]:
        return (self.hidden_size,) * self.space.states

    @property
    def maps(self) -> dict[str, Map]:
        H = self.hidden_size
        return {
            map_name(source): Map(
                self.input_size if source == "x" else H,
                (H,) * len(slots),
                bias=False,
                recurrent=source != "x",
            )
            for source, slots in self.readers.items()
        }

    @property
    def vectors(self) -> dict[str, int]:
        lins = self.space.slots.count("lin")
        return {"bias": lins * self.hidden_size, "mix": sum(self.space.sizes)}

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        return theta.ih(x) if "x" in self.readers else x

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        space, H = self.space, self.hidden_size
        shares = Shares(theta.mix, space.decisions)
        values: dict[str, Tensor] = dict(zip(space.old, state, strict=True))
        products = {"x": drive}
        lins = [k for k, slot in enumerate(space.slots) if slot == "lin"]
        for k, slot in enumerate(space.slots):
            node = f"n{k}"
            if slot == "mix":
                values[node] = self._mixed(shares, node, values)
                continue
            subsets = shares.of(f"{node}.reads")
            start = lins.index(k) * H
            total = theta.bias[..., start : start + H]
            for source in dict.fromkeys(" ".join(subsets).split()):
                if source not in products:
                    products[source] = getattr(theta, map_name(source))(values[source])
                gate = self.readers[source].index(k) * H
                q = added(share for subset, share in subsets.items() if source in subset.split())
                total = total + q * products[source][..., gate : gate + H]
            acts = shares.of(f"{node}.act")
            values[node] = weighted((share, POINTWISE[f](total)) for f, share in acts.items())
        return bounded([shares.pick(f"{name}'", values) for name in space.old])

    def _mixed(self, shares: Shares, node: str, values: Mapping[str, Tensor]) -> Tensor:
        a, *rest = (shares.pick(f"{node}.{role}", values) for role in self.space.roles)
        results = []
        for op, share in shares.of(f"{node}.op").items():
            if op in ACTIVATIONS:
                value = POINTWISE[op](a)
            elif op == "sum":
                value = a + rest[0]
            elif op == "prod":
                value = a * rest[0]
            else:
                b, z = rest
                value = z * a + (1 - z) * b
            results.append((share, value))
        return weighted(results)
