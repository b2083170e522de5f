"""Memory for results, on huge pages if it is large, and the workspace of kernels."""

import ctypes
import sys

import pytest
import torch

from metarnn import Recurrent, cells
from metarnn.engines.cpu import kernel, memory, workspace
from tests.helpers.compare import assert_same

CPU = torch.device("cpu")


@pytest.mark.parametrize("numbers", [0, 3, memory.HUGE // 4 + 5])
def test_all_of_it_can_be_written_and_read(numbers):
    made = memory.empty_on_huge_pages((numbers, 1), dtype=torch.float32, device=CPU).fill_(2)
    assert made.shape == (numbers, 1)
    assert made.dtype == torch.float32
    assert float(made.sum()) == 2 * numbers


def test_where_a_system_knows_no_huge_pages_there_are_small_ones(monkeypatch):
    monkeypatch.setattr(sys, "platform", "other")
    memory._madvise.cache_clear()
    assert memory._madvise() is None
    tensor = memory.empty_on_huge_pages((memory.HUGE,), dtype=torch.float32, device=CPU)
    assert tensor.numel() == memory.HUGE
    memory._madvise.cache_clear()


def test_only_large_tensors_lie_on_huge_pages():
    assert memory.allocator((memory.HUGE // 4 - 1,), torch.float32)[0] is torch.empty
    assert memory.allocator((memory.HUGE // 4,), torch.float32)[0] is memory.empty_on_huge_pages
    assert memory.allocator((memory.HUGE // 8,), torch.float64)[0] is memory.empty_on_huge_pages


def test_a_large_tensor_that_lies_in_no_order_is_copied_into_one():
    x = torch.randn(memory.HUGE // 4, 2).T
    found = memory.contiguous(x)
    assert found.is_contiguous()
    assert torch.equal(found, x)


def trained(cell, sizes, dtype=torch.float64):
    """The outputs and gradients of a new layer at each size (T, B), in turn."""
    torch.manual_seed(0)
    layer, found = Recurrent(cell, engine="cpu", dtype=dtype), []
    for steps, batch in sizes:
        x = torch.randn(steps, batch, cell.input_size, dtype=dtype, requires_grad=True)
        y, state = layer(x)
        with torch.no_grad():
            found += [layer(x)[0]]
        found += [y, state, *torch.autograd.grad(y.sin().sum(), [x, *layer.parameters()])]
    return found


CELLS = {
    "lstm": cells.LSTM(5, 7, peephole=True),
    "lstm-layernorm": cells.LSTM(5, 7, layer_norm=True),
    "onlstm": cells.ONLSTM(5, 8, chunk=2),
    "gru-before": cells.GRU(5, 7, reset="before"),
    "qrnn": cells.QRNN(5, 7),
    "sru": cells.SRU(5, 7),
}
SIZES = ((9, 3), (2, 1), (9, 3), (30, 5))


@pytest.mark.parametrize("name", CELLS)
def test_a_program_relies_on_nothing_that_was_in_memory_before(name, monkeypatch):
    expected, acquire = trained(CELLS[name], SIZES), kernel.CallFrame.acquire

    def spoiled(frame):
        acquire(frame)
        ctypes.memset(frame.block.address, 0xFF, frame.block.size)  # no numbers at all

    monkeypatch.setattr(kernel.CallFrame, "acquire", spoiled)
    assert_same(trained(CELLS[name], SIZES), expected)


def test_one_block_does_for_all_kernels_and_stays(monkeypatch):
    monkeypatch.setattr(workspace.POOL, "free", blocks := [])
    for name in ("lstm", "sru", "lstm"):
        trained(CELLS[name], SIZES)
        assert len(blocks) == 1
    (block,) = blocks
    trained(CELLS["sru"], SIZES)
    assert blocks == [block]


def test_a_block_that_is_too_large_to_stay_is_let_go(monkeypatch):
    monkeypatch.setattr(workspace.POOL, "free", blocks := [])
    monkeypatch.setattr(workspace, "MAX_KEPT", 0)
    expected = trained(CELLS["lstm"], SIZES)
    assert not blocks
    monkeypatch.undo()
    assert_same(trained(CELLS["lstm"], SIZES), expected)
