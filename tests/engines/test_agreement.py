"""Every engine against eager: the same values, the same gradients, the same units dropped."""

from itertools import product
from typing import Any

import pytest
import torch

from tests.helpers.cases import (
    EVERY,
    LINEAR,
    QUICK,
    RUNNABLE,
    compiled_is_medium,
    engines,
    make,
    parts,
    randn,
    random_state,
)
from tests.helpers.compare import assert_close, inputs, measure

NATIVE = [name for name, cell in EVERY.items() if "native" in engines(cell)]


def compare(cell, engine, call, batch, options, train=False):
    results = []
    for name in ("eager", engine):
        layer = make(cell, engine=name, **options).train(train)
        x, *state = inputs(
            randn(call["steps"], batch, cell.input_size), *random_state(layer, batch)
        )
        keywords = {k: v for k, v in call.items() if k != "steps"}
        torch.manual_seed(6)
        wrt = [x, *state, *layer.parameters()]
        results.append(measure(lambda: layer(x, tuple(state), **keywords), wrt))  # noqa: B023
    assert_close(results[1], results[0])


@pytest.mark.medium
@pytest.mark.parametrize("zoneout", [0.0, 0.4])
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 101])
@pytest.mark.parametrize("name", LINEAR)
def test_scan_equals_eager_with_lengths_resets_and_zoneout(name, steps, zoneout):
    source = torch.Generator().manual_seed(steps)
    lengths = torch.randint(1, steps + 1, (3,), generator=source)
    resets = torch.rand(steps, 3, generator=source) < 0.2
    options = {"bidirectional": True, "zoneout": zoneout, "num_layers": 2}
    for given in ({}, {"lengths": lengths}, {"resets": resets, "lengths": lengths}):
        for train in {False, zoneout > 0}:
            compare(LINEAR[name], "scan", {"steps": steps, **given}, 3, options, train)


DROPOUTS = {
    "dropout": {"dropout": 0.5},
    "variational": {"variational_dropout": 0.5},
    "both": {"dropout": 0.3, "variational_dropout": 0.3},
    "input": {"input_dropout": 0.5},
    "weight_drop": {"weight_drop": 0.5},  # of the first map
    "zoneout": {"zoneout": 0.5},
    "recurrent": {"recurrent_dropout": 0.5},
    "all": {
        "dropout": 0.3,
        "variational_dropout": 0.3,
        "input_dropout": 0.3,
        "weight_drop": 0.5,
    },
}
WITH_BOTH = [
    (name, engine, kind)
    for (name, engine), kind in product(RUNNABLE, DROPOUTS)
    if engine != "eager"
    and (engine != "cpu" or kind in ("zoneout", "recurrent"))  # the rest is done in torch
    and (engine, kind) not in [("native", "zoneout"), ("native", "recurrent")]
    and (kind != "recurrent" or any(m.recurrent for m in EVERY[name].maps.values()))
]


@pytest.mark.parametrize(("name", "engine", "kind"), compiled_is_medium(WITH_BOTH))
def test_with_the_same_seed_every_engine_drops_the_same_units(name, engine, kind):
    options: dict[str, Any] = {"num_layers": 2, "bidirectional": True, **DROPOUTS[kind]}
    if "weight_drop" in options:
        options["weight_drop"] = {next(iter(EVERY[name].maps)): 0.5}
    compare(EVERY[name], engine, {"steps": 7, "lengths": [7, 2, 4]}, 3, options, train=True)


# What is summed is summed in torch, whatever the cell: of generated code, a few are enough.
SUMMED = [
    (name, engine)
    for name, engine in RUNNABLE
    if engine != "cpu" or name in ("elman", "lstm-all", "gru-before", "sru-2", "minlstm")
]


@pytest.mark.medium
@pytest.mark.parametrize(("name", "engine"), SUMMED)
def test_every_engine_equals_eager_with_residuals_and_summed_directions(name, engine):
    options = {"num_layers": 3, "bidirectional": True, "residual": True, "merge": "sum"}
    for lengths in (None, [5, 1, 3]):
        compare(EVERY[name], engine, {"steps": 5, "lengths": lengths}, 3, options)


@pytest.mark.parametrize("name", NATIVE)
def test_weight_drop_on_recurrent_maps_is_the_same_for_native_and_eager(name):
    compare(EVERY[name], "native", {"steps": 5}, 3, {"weight_drop": 0.5}, train=True)


@pytest.mark.parametrize(("name", "engine"), QUICK)
def test_a_state_that_is_changed_in_place_changes_no_output(name, engine):
    layer = make(EVERY[name], engine=engine)
    with torch.no_grad():
        output, state = layer(randn(5, 3, layer.input_size))
        before = output.clone()
        for part in parts(state):
            part.fill_(7)
    assert torch.equal(output, before)


@pytest.mark.parametrize(("name", "engine"), QUICK)
def test_a_state_may_be_detached_in_place_as_torchs(name, engine):
    """At the first call and at those like it, for which layers take a shorter way."""
    layer = make(EVERY[name], engine=engine)
    state = None
    for _ in range(3):
        _, state = layer(randn(5, 3, layer.input_size), state)
        for part in parts(state):
            part.detach_()
            assert not part.requires_grad
