"""Steps that are linear in their state, against the eager engine in float64."""

import pytest
import torch

from metarnn import cells
from metarnn.engines.plan import plan_loop
from metarnn.engines.triton import scan, scan_source
from metarnn.engines.triton.loops import loop_kernels
from tests.helpers.cases import EVERY, LINEAR, randn
from tests.helpers.oracle import agree, pair


def small_segments(monkeypatch: pytest.MonkeyPatch, lookback: int) -> None:
    """Segments of two rows of three steps, in groups of 2 · `lookback`."""
    monkeypatch.setattr(scan_source, "STEPS", (2, 2))
    monkeypatch.setattr(scan_source, "SPANS", (3, 3))
    monkeypatch.setattr(scan, "BUSY", 1 << 30)
    monkeypatch.setattr(scan, "ROWS", 2)
    monkeypatch.setattr(scan, "lookback", lambda segments: lookback)


# The states of qrnn-1, qrnn-2 and mingru pass on as that of qrnn-3 does.
SEGMENTED = [
    pytest.param(name, marks=pytest.mark.slow) if name in ("qrnn-1", "qrnn-2", "mingru") else name
    for name in LINEAR
]


@pytest.mark.medium
@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize(("lookback", "steps"), [(1, 24), (1, 25), (2, 55)])
@pytest.mark.parametrize("name", SEGMENTED)
def test_a_scan_over_several_segments_of_time(name, lookback, steps, device, monkeypatch):
    """Segments of six steps, the last one's maybe alone, in groups of two or of four."""
    small_segments(monkeypatch, lookback)
    agree(LINEAR[name], device, batch=2, steps=steps)


@pytest.mark.medium
@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["mingru", "sru-2"])
def test_a_reset_forgets_what_is_not_finite(name, value, device, monkeypatch):
    """In the segment of the reset and in those after it, of its group and of the next."""
    small_segments(monkeypatch, lookback=1)
    ours, oracle = pair(EVERY[name], device)
    x = randn(40, 1, ours.cell.input_size, dtype=torch.float32).to(device)
    resets = torch.zeros(40, 1, dtype=torch.bool, device=device)
    x[4], resets[9] = value, True
    with torch.no_grad():
        y, expected = ours(x, resets=resets)[0], oracle(x.double(), resets=resets)[0]
    assert expected[9:].isfinite().all()
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("width", [2, 5, 12, 16, 32, 100])
def test_no_two_threads_have_the_same_number_of_a_segment(width):
    """One might find it published and the other not yet, and only one of them be asked."""
    made = loop_kernels(plan_loop(cells.MinGRU(2, width))).train
    assert isinstance(made, scan.Scan)
    _, constants, _ = made.launch_options(1000, in_segments=True)
    assert constants["ROWS"] * constants["UNITS"] % (32 * scan.ROWS) == 0  # a warp for each row


class FirstUnit(cells.MinGRU):
    """Linear in its state, but for a part of it that scales what is put out."""

    def output(self, theta, drive, state):
        return state[0][..., :1] * state[0]


@pytest.mark.medium
def test_a_part_of_a_state_is_no_scan(device):
    assert not isinstance(loop_kernels(plan_loop(FirstUnit(3, 4))).train, scan.Scan)
    agree(FirstUnit(3, 4), device, batch=2, steps=5)
