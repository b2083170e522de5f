import pytest
import torch

from metarnn import cells
from metarnn.engines.plan import plan_loop
from tests.helpers import interpreter

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(not interpreter.INSTALLED, reason="Triton is not installed"),
]


@pytest.fixture
def device(monkeypatch):
    if not interpreter.ON_GPU:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    return interpreter.DEVICE


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("cell", [cells.SRU(3, 3), cells.QRNN(2, 3)], ids=["sru", "qrnn"])
def test_a_scan_has_a_share_of_the_bandwidth_of_a_copy(cell, train, device):
    from metarnn.bench.scans import copy_share

    share = copy_share(cell, 3, 2, torch.float32, device, train=train)
    assert share is not None
    assert 0 < share < 2


def test_a_loop_that_is_no_scan_has_none(device):
    from metarnn.bench.scans import copy_share

    assert copy_share(cells.GRU(2, 3), 3, 2, torch.float32, device, train=True) is None


def test_every_number_of_a_minimal_gru_counts_once(device):
    """Its forward pass reads a gate and a candidate and writes states, T + 1 of them."""
    from metarnn.bench.scans import MOVED, given
    from metarnn.engines.triton.loops import loop_kernels
    from metarnn.engines.triton.scan import Scan

    steps, batch, width = 5, 2, 3
    kernel = loop_kernels(plan_loop(cells.MinGRU(4, width))).train
    assert isinstance(kernel, Scan)
    arrays = given(kernel, steps, batch, torch.bfloat16, device)
    moved = sum(t.nbytes for (kind, _), t in arrays.items() if kind in MOVED)
    assert moved == 2 * batch * width * (2 * steps + steps + 1)
