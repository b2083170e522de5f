"""Genotypes that differ in how they are written alone have one canonical form, others have not."""

import itertools
import math
import random

import pytest

from metarnn.search import DartsSpace, Genotype, UnitSpace
from metarnn.search.canonical import canonical
from metarnn.search.genotype import Operation
from metarnn.search.known import KNOWN, known_name

ACTS = {
    "sigmoid": lambda u: 1 / (1 + math.exp(-u)),
    "tanh": math.tanh,
    "relu": lambda u: max(u, 0.0),
    "identity": lambda u: u,
    "softplus": lambda u: math.log1p(math.exp(u)),
}


def rewritten(unit: Genotype, source: random.Random) -> Genotype:
    """The same unit: nodes renamed and in another order, operands shuffled, gates' signs flipped,
    with a dead node and a duplicated one."""
    operations = _flipped(unit.operations, source)
    names = {each.name: f"v{k}" for k, each in enumerate(operations) if "'" not in each.name}
    shuffled = []
    for each in operations:
        args = [names.get(arg, arg) for arg in each.args]
        if each.op != "blend":
            source.shuffle(args)
        shuffled.append(Operation(names.get(each.name, each.name), each.op, tuple(args), each.act))
    shuffled.append(Operation("dead", "lin", ("x",), "tanh"))
    ordered, ready = [], {"x", "h", "c"}
    while shuffled:
        able = [each for each in shuffled if ready.issuperset(each.args)]
        ordered.append(source.choice(able))
        shuffled.remove(ordered[-1])
        ready.add(ordered[-1].name)
    return Genotype(_duplicated(ordered, source), unit.bias)


def _flipped(operations: tuple[Operation, ...], source: random.Random) -> list[Operation]:
    readers = {o.name: [r for r in operations if o.name in r.args] for o in operations}
    flips = {
        gate.name
        for gate in operations
        if (gate.op, gate.act) == ("lin", "sigmoid")
        and all(r.op == "blend" and gate.name not in r.args[1:] for r in readers[gate.name])
        and source.random() < 0.5
    }
    return [
        Operation(o.name, o.op, (o.args[0], o.args[2], o.args[1]), o.act)
        if o.op == "blend" and o.args[0] in flips
        else o
        for o in operations
    ]


def _duplicated(operations: list[Operation], source: random.Random) -> tuple[Operation, ...]:
    """One node without weights twice: one of its readers reads the other."""
    plain = [k for k, o in enumerate(operations) if o.op != "lin" and "'" not in o.name]
    if not plain:
        return tuple(operations)
    k = source.choice(plain)
    twin = Operation("twin", *(getattr(operations[k], part) for part in ("op", "args", "act")))
    for n in range(k + 1, len(operations)):
        o = operations[n]
        if operations[k].name in o.args:
            args = tuple("twin" if a == operations[k].name else a for a in o.args)
            operations[n] = Operation(o.name, o.op, args, o.act)
            break
    return (*operations[: k + 1], twin, *operations[k + 1 :])


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_unit_has_its_name_however_it_is_written(name):
    source = random.Random(name)
    for _ in range(20):
        again = rewritten(KNOWN[name], source)
        assert known_name(again) == name, again


def test_known_units_differ_from_each_other():
    assert len({canonical(unit) for unit in KNOWN.values()}) == len(KNOWN)


def test_two_gates_are_not_one():
    one = Genotype.parse("z = sigmoid(lin(x, h)); p = prod(z, h); n = tanh(lin(x, p)); "
                         "h' = blend(z, h, n)")  # fmt: skip
    assert known_name(one) == ""


def test_a_gate_that_is_read_elsewhere_has_no_free_sign():
    text = "z = sigmoid(lin(x, h)); n = tanh(lin(x)); b = blend(z, {}); h' = prod(z, b)"
    mine, yours = (Genotype.parse(text.format(order)) for order in ("h, n", "n, h"))
    assert canonical(mine) != canonical(yours)


def test_a_gate_of_two_blends_flips_both_or_none():
    text = (
        "z = sigmoid(lin(x, h)); n = tanh(lin(x)); a = blend(z, {}); r = relu(h); b = blend(z, {});"
        "h' = sum(a, b)"
    )
    base = Genotype.parse(text.format("n, h", "n, r"))
    assert canonical(base) == canonical(Genotype.parse(text.format("h, n", "r, n")))
    assert canonical(base) != canonical(Genotype.parse(text.format("h, n", "n, r")))


def test_units_of_many_equal_branches_are_compared_at_once():
    space = DartsSpace(6)
    unit = space.genotype((0,) * 6)
    assert canonical(unit) == canonical(rewritten(unit, random.Random(0)))


def outputs(
    unit: Genotype, place: tuple[int, ...], signs: tuple[int, ...], seed: int
) -> tuple[float, ...]:
    """What a unit of width 1 puts out, the weights of its maps those at `place` in a drawn list,
    each with a sign."""
    drawn = random.Random(seed)
    weights = [{s: drawn.gauss(0, 1.5) for s in ("x", "h", "c", "", "bias")} for _ in range(8)]
    maps = [each.name for each in unit.operations if each.op == "lin"]
    rows = {name: (weights[k], s) for name, k, s in zip(maps, place, signs, strict=True)}
    values, found = {"h": -0.6, "c": -0.6}, []
    for x in (0.7, -1.1, 2.4, -3.0, 3.1, -0.2):
        values = {"x": x, "h": values["h"], "c": values["c"]}
        for each in unit.operations:
            args = [values[arg] for arg in each.args]
            if each.op == "lin":
                own, sign = rows[each.name]
                total = own["bias"] + sum(own.get(n, own[""]) * values[n] for n in each.args)
                value = ACTS[each.act](sign * total)
            elif each.op == "act":
                value = ACTS[each.act](args[0])
            elif each.op == "blend":
                value = args[0] * args[1] + (1 - args[0]) * args[2]
            else:
                value = math.prod(args) if each.op == "prod" else sum(args)
            values[each.name] = value
        values["h"], values["c"] = values["h'"], values.get("c'", 0.0)
        found.append(round(values["h"], 9))
    return tuple(found)


def compute_alike(mine: Genotype, yours: Genotype) -> bool:
    """Whether some assignment of weights to the maps of one computes what the other does."""
    count = sum(each.op == "lin" for each in mine.operations)
    if count != sum(each.op == "lin" for each in yours.operations):
        return False
    own = tuple(range(count)), (1,) * count
    targets = [outputs(mine, *own, seed) for seed in range(4)]
    return any(
        all(outputs(yours, place, signs, seed) == target for seed, target in enumerate(targets))
        for place in itertools.permutations(range(count))
        for signs in itertools.product((1, -1), repeat=count)
    )


def test_canonical_forms_are_equal_where_random_weights_compute_alike():
    space, source, equal = UnitSpace(), random.Random(0), 0
    for _ in range(60):
        choices = space.draw(source)
        mine, near = space.genotype(choices), space.genotype(space.mutate(choices, source))
        for yours in (near, rewritten(mine, source).pruned()):
            alike = compute_alike(mine, yours)
            assert (canonical(mine) == canonical(yours)) == alike, f"{mine}\n\n{yours}"
            equal += alike
    assert 50 < equal < 80
