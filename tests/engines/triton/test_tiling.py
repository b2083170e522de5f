"""How work is shared among programs, for any number of SMs."""

import re
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from metarnn import cells, hyper
from metarnn.engines.plan import plan_loop
from metarnn.engines.triton import runtime
from metarnn.engines.triton.chunks import SHARED_MEMORY
from metarnn.engines.triton.cost import BARRIER, POLLING
from metarnn.engines.triton.loops import loop_kernels
from metarnn.engines.triton.program import ProductGroup, Program, next_power_of_2
from metarnn.engines.triton.tiling import Tiling, tile
from metarnn.graph import GraphCell
from tests.helpers.random_graphs import random_graph

CELLS = {
    "lstm-1": cells.LSTM(3, 1),
    "lstm-5": cells.LSTM(3, 5),
    "lstm-256": cells.LSTM(256, 256),
    "lstm-1000": cells.LSTM(256, 1000),
    "lstm-norm": cells.LSTM(64, 300, layer_norm=True),
    "lstm-proj": cells.LSTM(64, 512, proj_size=100),
    "gru-before": cells.GRU(64, 768, reset="before"),
    "onlstm": cells.ONLSTM(64, 96, chunk=8),
    "mingru": cells.MinGRU(64, 700),
    "sru": cells.SRU(64, 700, version=2),
    "mogrifier-512": hyper.Mogrifier(cells.LSTM(512, 512), rounds=5, rank=32),
    "hyperlstm-512": hyper.HyperLSTM(512, 512, 128),
    "lowrank-512": hyper.Generated(cells.LSTM(512, 512), (hyper.LowRank(),)),
    **{f"graph-{seed}": GraphCell(random_graph(seed)) for seed in range(6)},
}
KINDS = ("infer", "train", "backward")
SMS = [1, 2, 3, 16, 78, 132, 160]
BATCHES = [1, 5, 17, 64, 129, 1000]
ON_CHIP = 227 << 10  # of an H100 or H200: shared memory that one program may take


def program(name: str, kind: str) -> Program:
    return getattr(loop_kernels(plan_loop(CELLS[name])), kind).program


_known: dict[tuple[int, int], list[tuple[int, int, Tiling]]] = {}  # by a program's id, and size


def tilings(made: Program, size: int) -> list[tuple[int, int, Tiling]]:
    if (id(made), size) in _known:
        return _known[id(made), size]
    found = _known[id(made), size] = []
    for sms, batch in product(SMS, BATCHES):
        if -(-max(made.widths) // 128) <= sms:
            found.append((sms, batch, tile(made, batch, size, sms)))
    return found


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CELLS)
def test_every_tiling_does_all_the_work_with_programs_that_run_at_once(name, kind, size):
    made = program(name, kind)
    for sms, batch, t in tilings(made, size):
        where = f"{sms} SMs, a batch of {batch}: {t}"
        if t.share.programs > 1 and made.synchronizes:  # else nobody waits for another
            assert t.share.programs * t.share.groups <= sms, where
        assert t.share.groups <= -(-batch // t.share.sequences), where
        assert t.share.sequences <= t.share.block_b, where
        assert {n: t.share.programs * u >= n for n, u in t.share.units.items()} == dict.fromkeys(
            made.widths, True
        ), where
        assert len(t.chunks) == len(made.groups), where
        for group, c in zip(made.groups, t.chunks, strict=True):
            all = t.share.all_columns(group) if c.partial else group.inner
            assert c.inner >= all, where
            assert c.inner % c.chunk == 0, where
            assert not c.resident or c.chunk == c.inner, where


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CELLS)
def test_what_triton_needs_as_a_power_of_two_is_one(name, kind):
    made = program(name, kind)
    for _, _, t in tilings(made, 2):
        sizes = [t.share.block_b, *t.share.units.values(), t.warps]
        sizes += [n for c in t.chunks for n in (c.chunk, c.parts)]
        assert all(n == next_power_of_2(n) for n in sizes), t
        for group, c in zip(made.groups, t.chunks, strict=True):
            assert t.share.block_b >= 16, "a tensor core multiplies 16 rows at least"
            assert c.chunk >= (t.share.columns(group) if c.partial else 16 * c.parts)
            assert c.partial or c.parts <= t.warps
            assert t.share.programs == 1 or t.share.columns(group) >= 8


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("name", CELLS)
def test_the_chunks_of_a_product_in_flight_fit_on_the_chip(name, size):
    for kind in KINDS:
        made = program(name, kind)
        for sms, batch, t in tilings(made, size):
            if sms < 40:  # with fewer, the budget is cut until Triton finds it enough
                continue
            for group, c in zip(made.groups, t.chunks, strict=True):
                copies = 1 if c.resident else t.stages
                # 8 bytes are a weight in two parts, which its argument is not kept in.
                numbers = t.share.block_b * min(size, 4) + t.share.columns(group) * size
                if c.partial:
                    numbers = t.weights(group) // c.inner * size
                bytes = copies * c.chunk * numbers
                assert bytes <= ON_CHIP, f"{sms} SMs, a batch of {batch}: {t}"


@pytest.mark.parametrize("name", ["lstm-256", "lstm-1000", "gru-before"])
def test_less_room_on_the_chip_means_smaller_chunks(name):
    def bytes(budget: float) -> int:
        made = program(name, "train")
        t = tile(made, 64, 4, 132, budget)
        pairs = list(zip(made.groups, t.chunks, strict=True))
        held = sum(t.weights(group) for group, c in pairs if c.resident)
        rows = t.share.block_b
        moving = [
            t.stages * c.chunk * (rows + t.share.columns(g)) for g, c in pairs if not c.resident
        ]
        return 4 * (held + max(moving, default=0))

    assert bytes(1.0) >= bytes(0.5) >= bytes(0.1)
    assert bytes(1.0) > bytes(0.05)


@pytest.mark.parametrize("sms", [2, 3, 7])
def test_rows_too_wide_for_so_few_SMs_are_refused(sms):
    wide = program("lstm-1000", "train")
    message = re.escape(f"rows of 1000 units are too wide for {sms} SMs")
    with pytest.raises(ValueError, match=message):
        tile(wide, 8, 4, sms)


@pytest.mark.parametrize("name", CELLS)
def test_one_processor_is_one_program_for_everything(name):
    made = program(name, "train")
    t = tile(made, 100, 4, 1)
    assert (t.share.programs, t.share.groups) == (1, 1)
    assert all(units >= n for n, units in t.share.units.items())


@pytest.mark.parametrize("name", CELLS)
def test_where_programs_need_no_barrier_the_kernel_does_not_wait(name):
    for kind in KINDS:
        made = program(name, kind)
        if not made.synchronizes and not made.rows:
            assert "barrier_wait(" not in made.source
            assert "barrier_arrive(" not in made.source
        if not made.synchronizes and made.rows:
            assert tile(made, 100, 4, 132).share.programs == 1


@pytest.mark.parametrize("name", CELLS)
def test_constants_are_those_that_the_kernel_takes(name):
    for kind in KINDS:
        made = program(name, kind)
        if "counters_ptr" not in made.source:
            continue  # a scan has no tiling
        head = made.source.split("\n):\n")[0]
        taken = set(re.findall(r"(\w+): tl\.constexpr", head))
        flags = {"DOT_DTYPE", "SPLIT_FP32", "SINGLE"}
        flags |= {n for n in taken if n.startswith(("FULL_HISTORY_", "OFFSET_"))}
        assert set(tile(made, 64, 2, 132).constants(made)) == taken - flags


@pytest.mark.parametrize("sms", [8, 40, 132])
@pytest.mark.parametrize("batch", [16, 64, 256])
def test_weights_that_are_held_fit_beside_what_they_are_multiplied_by(batch, sms):
    made = loop_kernels(plan_loop(cells.LSTM(512, 512)))
    for each in (made.train, made.backward):
        for size in (2, 4):
            tiling = tile(each.program, batch, size, sms)
            for group, chunks in zip(each.program.groups, tiling.chunks, strict=True):
                columns = tiling.weights(group) // chunks.inner
                taken = chunks.chunk * (tiling.share.block_b + columns) * size
                assert not chunks.resident or taken <= SHARED_MEMORY


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", CELLS)
def test_all_that_is_held_fits_on_the_chip_together(name, size):
    for kind in KINDS:
        made = program(name, kind)
        tiling = tile(made, 128, size, 132)
        pairs = list(zip(made.groups, tiling.chunks, strict=True))
        held = sum(tiling.weights(g) * size for g, c in pairs if c.resident and not g.in_registers)
        assert held <= SHARED_MEMORY
        assert {c.chunk for g, c in pairs if g.in_registers} <= {16, 32}


MANY = {
    "mogrifier-768": hyper.Mogrifier(cells.LSTM(64, 768), rounds=4, rank=20),
    "hyperlstm-64": hyper.HyperLSTM(16, 64, 16, embedding=16),
    "hyperlstm-256": hyper.HyperLSTM(16, 256, 64, embedding=16),
    "hyperlstm-wide": hyper.HyperLSTM(16, 256, 256, embedding=4),
    "lowrank-512": CELLS["lowrank-512"],
}


def on_its_way(t: Tiling, group: ProductGroup, size: int) -> int:
    """The bytes that one of partial sums has on the chip besides weights that are held."""
    c = t.chunks[group.number]
    streamed = 0 if c.resident else t.stages * c.chunk * t.weights(group) // c.inner * size
    return t.share.block_b * c.chunk * 4 + streamed


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("name", MANY)
def test_partial_sums_of_many_products_fit_on_the_chip_and_cost_something(name, size):
    made = loop_kernels(plan_loop(MANY[name])).backward.program
    for sms, batch, t in tilings(made, size):
        where = f"{sms} SMs, a batch of {batch}: {t}"
        wait = POLLING if t.publish else BARRIER
        assert sms == 1 or t.cost >= wait * made.exchanges * t.launches(batch), where
        pairs = list(zip(made.groups, t.chunks, strict=True))
        held = sum(t.weights(g) * size for g, c in pairs if c.resident and not g.in_registers)
        moving = max((on_its_way(t, g, size) for g, c in pairs if c.partial), default=0)
        assert not moving or held + moving <= SHARED_MEMORY, where


def test_products_that_are_computed_together_are_cut_alike():
    for kind in KINDS:
        made = program("lowrank-512", kind)
        ((number, lead),) = (
            (g.number, g.fused_with) for g in made.groups if g.fused_with is not None
        )
        for size, batch in product((2, 4, 8), BATCHES):
            chunks = tile(made, batch, size, 132).chunks
            assert chunks[number].partial == chunks[lead].partial
            assert chunks[number] == chunks[lead] or chunks[number].partial


@pytest.fixture
def gpu(monkeypatch):
    """As if there were a GPU of 132 SMs."""
    there = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: there)
    runtime.sm_count.cache_clear()
    yield torch.device("cuda", 0)
    runtime.sm_count.cache_clear()


@pytest.mark.parametrize(("asked", "found"), [(None, 132), ("", 132), ("44", 44), ("132", 132)])
def test_a_loop_may_be_told_to_leave_SMs_to_others(asked, found, gpu, monkeypatch):
    if asked is not None:
        monkeypatch.setenv("METARNN_SMS", asked)
    assert runtime.sm_count(gpu) == found
    assert runtime.sm_count(torch.device("cpu")) == 1


@pytest.mark.parametrize("asked", ["0", "133", "-4", "half", "1.5"])
def test_but_not_to_take_more_than_there_are(asked, gpu, monkeypatch):
    monkeypatch.setenv("METARNN_SMS", asked)
    with pytest.raises(ValueError, match=f"METARNN_SMS='{asked}'.*from 1 to 132"):
        runtime.sm_count(gpu)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CELLS)
def test_what_is_published_is_read_at_once_and_by_one_thread_each(name, kind, size):
    made = program(name, kind)
    for _, _, t in tilings(made, size):
        pairs = zip(made.groups, t.chunks, strict=True)
        read = [(g, c) for g, c in pairs if g.published_width and t.publish]
        assert t.publish == bool(read)
        for group, c in read:
            assert c.resident or c.partial
            columns = t.share.columns(group) if c.partial else c.inner
            numbers = t.share.block_b * columns
            assert numbers >= 32 * t.warps


@pytest.mark.parametrize("kind", ["train", "backward"])
def test_an_lstm_of_256_units_is_published(kind):
    assert all(tile(program("lstm-256", kind), batch, 2, 132).publish for batch in (1, 16, 64))
