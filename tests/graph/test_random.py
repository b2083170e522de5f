"""Random cells: generated C against eager torch in float64, forward and backward, any threads."""

import pytest
import torch

from metarnn import GraphCell, Recurrent
from metarnn.engines.cpu import loops, threads
from tests.helpers.cases import randn, random_state
from tests.helpers.compare import assert_close, assert_same, inputs, measure
from tests.helpers.operations import every_operation
from tests.helpers.random_graphs import covering, random_graph

STEPS, BATCH = 6, 3
SEEDS = range(324)
# Some that have every operation between them, as far as two dozen do, and the first others.
COVERING = covering(SEEDS[:60])
FEW = [*COVERING, *(seed for seed in SEEDS if seed not in COVERING)][:24]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    """What is compiled here is kept out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METARNN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def layer_of(cell, engine, dtype):
    layer = Recurrent(cell, engine=engine, dtype=torch.float64)
    with torch.no_grad():
        for seed, weight in enumerate(layer.parameters()):
            weight.copy_(randn(*weight.shape, seed=seed) / max(weight.shape[-1], 4) ** 0.5)
    return layer.to(dtype)


def run(cell, engine, dtype, **call):
    layer = layer_of(cell, engine, dtype)
    given = [randn(STEPS, BATCH, cell.input_size), *random_state(layer, BATCH)]
    x, *state = inputs(*(t.to(dtype) for t in given))
    return measure(lambda: layer(x, tuple(state), **call), [x, *state, *layer.parameters()])


def compare(seed):
    cell = GraphCell(random_graph(seed))
    expected = run(cell, "eager", torch.float64)
    assert_close(run(cell, "cpu", torch.float64), expected, 1e-11)
    assert_close(run(cell, "cpu", torch.float32), expected, 2e-6)


@pytest.mark.medium
@pytest.mark.parametrize("seed", FEW)
def test_a_random_cell_in_generated_code_is_exact(seed):
    compare(seed)


@pytest.mark.medium
def test_every_operation_in_generated_code_is_exact():
    cell = GraphCell(every_operation())
    expected = run(cell, "eager", torch.float64)
    assert_close(run(cell, "cpu", torch.float64), expected, 1e-11)
    assert_close(run(cell, "cpu", torch.float32), expected, 2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted({*SEEDS} - {*FEW}))
def test_hundreds_of_random_cells_in_generated_code_are_exact(seed):
    compare(seed)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(6))
def test_a_random_cell_with_lengths_and_resets_in_generated_code_is_exact(seed):
    cell = GraphCell(random_graph(seed))
    resets = torch.rand(STEPS, BATCH, generator=torch.Generator().manual_seed(seed)) < 0.3
    call = {"lengths": [STEPS, 1, 4], "resets": resets}
    expected = run(cell, "eager", torch.float64, **call)
    assert_close(run(cell, "cpu", torch.float64, **call), expected, 1e-11)


@pytest.mark.medium
@pytest.mark.parametrize("split", ["sequences", "units"])
@pytest.mark.parametrize("seed", range(8))
def test_the_number_of_threads_changes_no_bit_of_the_loop(seed, split, monkeypatch):
    monkeypatch.setattr(threads, "MIN_STEP_WORK", 0)
    monkeypatch.setattr(threads, "MIN_LOOP_WORK", 0)
    monkeypatch.setattr(threads, "MAX_WEIGHTS_BY_SEQUENCE", 10**9 if split == "sequences" else -1)
    loops.loop_kernel.cache_clear()  # a kernel that was called before has decided already
    cell, before = GraphCell(random_graph(seed)), torch.get_num_threads()
    found = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            values, gradients = run(cell, "cpu", torch.float32)
            count = 1 + len(cell.states)
            found.append((values, gradients[:count], gradients[count:]))
    finally:
        torch.set_num_threads(before)
    assert_same(found[1][:2], found[0][:2])
    # Weight gradients are torch's own products, which depend on its threads in the last bit.
    assert_close(found[1][2], found[0][2], 1e-6)
