"""The canonical form of a unit: equal for genotypes that compute the same functions.

It does not depend on the names and the order of nodes, on the order of what is added or
multiplied, on dead and duplicated nodes, or on the sign of a gate: σ(-u) = 1 - σ(u), so that
blend(σ(u), a, b) and blend(σ(u), b, a) are one unit wherever the weights of u are free.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import product

from metarnn.search.genotype import Genotype, Operation

SIGNS = 6  # gates of several blends at most whose signs are tried; others keep theirs
Term = tuple[str, tuple[int, ...]]  # operation, arguments
# By the gate of blends: "either" order of the two values, or "swap" them. Others stay as they are.
Signs = Mapping[int, str]


@lru_cache(maxsize=1 << 14)
def canonical(unit: Genotype) -> str:
    """A digest that two genotypes share if they differ in no more than how they are written.

    >>> mine = Genotype.parse("g = sigmoid(lin(h, x)); a = tanh(lin(x, h)); h' = blend(g, a, h)")
    >>> yours = Genotype.parse("n = tanh(lin(x, h)); z = sigmoid(lin(x, h)); h' = blend(z, h, n)")
    >>> mine == yours, canonical(mine) == canonical(yours)
    (False, True)
    """
    expression = _Expression.of(unit.pruned())
    return min(expression.label({}, signs) for signs in expression.signs())


@dataclass
class _Expression:
    """A unit as terms: each `lin` is a term of its own, since its weights are; equal terms
    without weights are one."""

    bias: bool
    terms: list[Term] = field(default_factory=list)
    results: tuple[int, ...] = ()

    @classmethod
    def of(cls, unit: Genotype) -> _Expression:
        made = cls(unit.bias)
        place = {name: made._add(name) for name in ("x", "h", "c")}
        for each in unit.operations:
            place[each.name] = made._term(each, [place[arg] for arg in each.args])
        made.results = tuple(place[f"{state}'"] for state in unit.states)
        if len(made.results) == 2 and made.results[0] == made.results[1]:
            return cls.of(_without_cell(unit))
        made._merge_products()
        return made

    def _add(self, op: str, args: Iterable[int] = ()) -> int:
        term = (op, tuple(args))
        if op != "lin" and term in self.terms:
            return self.terms.index(term)
        self.terms.append(term)
        return len(self.terms) - 1

    def _term(self, each: Operation, args: list[int]) -> int:
        if each.op == "lin":
            return self._activated(each.act, self._add("lin", sorted(set(args))))
        if each.op == "act":
            return self._activated(each.act, args[0])
        if each.op == "blend":
            return args[1] if args[1] == args[2] else self._add("blend", args)
        if each.op in ("sum", "prod"):  # (a + b) + c = a + b + c
            args = [a for arg in args for a in self._operands(each.op, arg)]
        return args[0] if len(args) == 1 else self._add(each.op, sorted(args))

    def _activated(self, act: str, arg: int) -> int:
        return arg if act == "identity" else self._add(act, (arg,))

    def _operands(self, op: str, term: int) -> tuple[int, ...]:
        return self.terms[term][1] if self.terms[term][0] == op else (term,)

    def _merge_products(self) -> None:
        """W a + V b is one map of a and b, where nothing else reads the two."""
        readers = self._readers()
        for k, (op, args) in enumerate(self.terms):
            own = [a for a in args if self.terms[a][0] == "lin" and len(readers[a]) == 1]
            if op != "sum" or len(own) < 2 or k not in readers:
                continue
            others = tuple(a for a in args if a not in own)
            read = ("lin", tuple(sorted({a for lin in own for a in self.terms[lin][1]})))
            if others:
                self.terms[own[0]] = read
                self.terms[k] = ("sum", tuple(sorted((own[0], *others))))
            else:
                self.terms[k] = read

    def _readers(self) -> dict[int, list[int]]:
        """For each term that reaches a result, those that read it; -1 for the unit itself."""
        readers: dict[int, list[int]] = defaultdict(list)
        todo = list(dict.fromkeys(self.results))
        for result in self.results:
            readers[result].append(-1)
        while todo:
            k = todo.pop()
            for arg in self.terms[k][1]:
                if arg not in readers:
                    todo.append(arg)
                readers[arg].append(k)
        return readers

    def signs(self) -> Iterable[Signs]:
        """The ways to write blends whose gate has a free sign."""
        readers = self._readers()
        free: dict[int, int] = {}
        for z, (op, args) in enumerate(self.terms):
            if op != "sigmoid" or z not in readers or self.terms[args[0]][0] != "lin":
                continue
            blends = [self.terms[k] if k >= 0 else ("", ()) for k in readers[z]]
            alone = readers[args[0]] == [z]
            if alone and all(b[0] == "blend" and z not in b[1][1:] for b in blends):
                free[z] = len(blends)
        several = [z for z, count in free.items() if count > 1][:SIGNS]
        single = {z: "either" for z, count in free.items() if count == 1}
        for signs in product(("keep", "swap"), repeat=len(several)):
            yield single | dict(zip(several, signs, strict=True))

    def label(self, colours: Mapping[int, str], signs: Signs) -> str:
        """The least form over all ways to tell apart maps that nothing else tells apart."""
        colours = self._refined(colours, signs)
        tied = _first_tie(colours)
        if not tied:
            return self._form(colours, signs)
        forms: dict[str, str] = {}
        for k in tied:
            marked = {**colours, k: f"{colours[k]}!"}
            # The same first form: an automorphism, and so the same forms from here on.
            first = self._first_form(marked, signs)
            if first not in forms:
                forms[first] = self.label(marked, signs)
        return min(forms.values())

    def _first_form(self, colours: Mapping[int, str], signs: Signs) -> str:
        colours = self._refined(colours, signs)
        while tied := _first_tie(colours):
            colours = self._refined({**colours, tied[0]: f"{colours[tied[0]]}!"}, signs)
        return self._form(colours, signs)

    def _refined(self, colours: Mapping[int, str], signs: Signs) -> dict[int, str]:
        """Colours of the maps, different for those with different places in the unit."""
        readers, count = self._readers(), 0
        maps = [k for k, (op, _) in enumerate(self.terms) if op == "lin" and k in readers]
        colours = {k: colours.get(k, "") for k in maps}
        while len(set(colours.values())) > count:
            count = len(set(colours.values()))
            colours = {k: self._form({**colours, k: f"*{colours[k]}"}, signs) for k in maps}
        return colours

    def _form(self, colours: Mapping[int, str], signs: Signs) -> str:
        """A digest of the unit whose maps have these colours."""
        seen: dict[int, str] = {}

        def digest_of(k: int) -> str:
            if k not in seen:
                op, args = self.terms[k]
                if op == "lin":
                    seen[k] = _digest("lin", colours[k])
                else:
                    parts = [digest_of(arg) for arg in args]
                    seen[k] = _digest(
                        op, *_ordered(op, parts, signs.get(args[0], "") if args else "")
                    )
            return seen[k]

        maps = [_digest(c, *sorted({digest_of(a) for a in self.terms[k][1]}))
                for k, c in colours.items()]  # fmt: skip
        return _digest(str(self.bias), *sorted(maps), *(digest_of(k) for k in self.results))


def _ordered(op: str, parts: list[str], sign: str) -> list[str]:
    if op != "blend":
        return sorted(parts)
    z, a, b = parts
    if sign == "either":
        a, b = sorted((a, b))
    return [z, b, a] if sign == "swap" else [z, a, b]


def _first_tie(colours: Mapping[int, str]) -> list[int]:
    """The maps of one colour, the least that several have."""
    counts = Counter(colours.values())
    shared = min((c for c, count in counts.items() if count > 1), default=None)
    return [k for k, colour in colours.items() if colour == shared]


def _digest(*parts: str) -> str:
    return blake2b("|".join(parts).encode(), digest_size=12).hexdigest()


def _without_cell(unit: Genotype) -> Genotype:
    """The unit with h in the place of c, where the two are always equal."""
    operations = [
        Operation(each.name, each.op, tuple("h" if a == "c" else a for a in each.args), each.act)
        for each in unit.operations
    ]
    return Genotype(tuple(operations), unit.bias).pruned()
