"""What only a GPU can show: who runs at once, what happens if they do not, capture, streams."""

import ctypes
import os
from typing import Any

import pytest
import torch
from torch import Tensor

from metarnn import Recurrent, cells
from metarnn.engines.triton import kernel
from tests.helpers.cases import make, randn
from tests.helpers.compare import assert_close, assert_same, error
from tests.helpers.interpreter import ON_GPU

pytestmark = [pytest.mark.medium, pytest.mark.skipif(not ON_GPU, reason="there is no GPU")]


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def layer(size: int = 64, **options: Any) -> Recurrent:
    cell = cells.LSTM(size, size)
    return make(cell, **{"dtype": torch.float32, "device": "cuda", "engine": "triton", **options})


def given(size: int = 64, steps: int = 6, batch: int = 5) -> Tensor:
    return randn(steps, batch, size, dtype=torch.float32).cuda()


def results(module: torch.nn.Module, x: Tensor) -> list[Tensor]:
    output, state = module(x)
    loss = output.square().sum() + sum(part.sin().sum() for part in state)
    return [output, *state, *torch.autograd.grad(loss, list(module.parameters()))]


def oracle(ours: Recurrent, x: Tensor, **options: Any) -> list[Tensor]:
    right = layer(ours.hidden_size, engine="eager", dtype=torch.float64, **options)
    right.load_state_dict(ours.state_dict())
    return results(right, x.double())


class Launches:
    """Every launch, with the number of its programs, which may be changed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, change: Any = lambda launch, n: n) -> None:
        self.seen: list[tuple[Any, int]] = []
        start = kernel.start

        def noted(function: Any, launch: Any, programs: int, *arguments: Any) -> None:
            start(function, launch, change(launch, programs), *arguments)
            self.seen.append((launch, programs))

        monkeypatch.setattr(kernel, "start", noted)


def resident(launch: Any) -> int:
    """How many programs of a compiled kernel the device holds at once, by its own count."""
    made, found = launch.compiled[1], ctypes.c_int()
    ask = ctypes.CDLL("libcuda.so.1").cuOccupancyMaxActiveBlocksPerMultiprocessor
    threads, shared = 32 * made.metadata.num_warps, ctypes.c_size_t(made.metadata.shared)
    assert ask(ctypes.byref(found), ctypes.c_void_p(made.function), threads, shared) == 0
    return found.value * torch.cuda.get_device_properties(0).multi_processor_count


@pytest.mark.parametrize(("size", "batch"), [(64, 5), (256, 64), (300, 130), (1024, 64)])
def test_no_more_programs_wait_for_one_another_than_the_device_holds(size, batch, monkeypatch):
    launches = Launches(monkeypatch)
    results(layer(size), given(size, 2, batch))
    assert len(launches.seen) >= 2
    for launch, programs in launches.seen:
        assert launch.synchronizes
        assert programs <= resident(launch)


def test_a_launch_of_more_programs_than_run_at_once_is_refused(monkeypatch):
    ours, x = layer(), given()
    results(ours, x)
    with monkeypatch.context() as patch:
        Launches(patch, lambda launch, n: resident(launch) + 1)
        with pytest.raises(RuntimeError, match=r"(?i)cooperative|too large"):
            ours(x)
    assert_close(results(ours, x), oracle(ours, x), 1e-5)


@pytest.mark.parametrize("tf32", [False, True], ids=["barrier", "polling"])
@pytest.mark.parametrize("arrived", [0, 1])
@pytest.mark.slow
def test_programs_that_wait_in_vain_give_up_and_the_next_call_says_so(tf32, arrived, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    ours, x = layer(), given()
    before = results(ours, x)
    with monkeypatch.context() as patch:
        launches = Launches(patch, lambda launch, n: n - 1)
        # One is missing, but counted: then nobody waits for it at the first barrier.
        counters = torch.zeros(32, dtype=torch.int32, device="cuda")
        counters[0] = arrived
        patch.setattr(kernel, "counters", lambda groups, device: counters)
        ours(x)
        torch.cuda.synchronize()
        assert [launch.tiling.publish for launch, _ in launches.seen] == [tf32]
    with pytest.raises(RuntimeError, match="gave up waiting"):
        ours(x)
    assert_same(results(ours, x), before)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("size", "batch"), [(256, 1), (256, 16), (200, 19), (512, 64)])
def test_what_is_published_is_right_and_the_same_every_time(size, batch, narrow, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    ours, x = layer(size), given(size, 40, batch)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter /= 8
    launches = Launches(monkeypatch)
    with torch.autocast("cuda", torch.bfloat16, enabled=narrow):
        first = results(ours, x)
        for _ in range(10):
            assert_same(results(ours, x), first)
    assert any(launch.tiling.publish for launch, _ in launches.seen)
    assert_close(first, oracle(ours, x), 2e-2 if narrow else 2e-3)


def test_both_directions_at_once_agree_and_give_the_same_bits_every_time():
    ours, x = layer(256, bidirectional=True), given(256, 20, 16)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter /= 8  # with larger weights 256 units are chaotic, whoever computes them
    first = results(ours, x)
    assert_close(first, oracle(ours, x, bidirectional=True), 1e-5)
    for _ in range(5):
        assert_same(results(ours, x), first)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_training_step_is_captured_in_a_graph(bidirectional):
    x = given(128, 8, 16)
    ours, other = (layer(128, bidirectional=bidirectional) for _ in range(2))
    target = torch.randn_like(ours(x)[0])

    def step(module: Recurrent) -> None:
        for parameter in module.parameters():
            parameter.grad = None
        (module(x)[0] - target).square().mean().backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= 0.1 * parameter.grad  # type: ignore[operator]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(ours)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(ours)
    for _ in range(4):
        graph.replay()
    for _ in range(7):
        step(other)
    assert_close(list(ours.parameters()), list(other.parameters()), 1e-5)


def test_under_autocast_products_are_narrow_and_weights_are_not():
    ours, eager, x = layer(), layer(engine="eager"), given()
    with torch.autocast("cuda", torch.bfloat16):
        found, theirs = results(ours, x), results(eager, x)
    assert {t.dtype for t in found} == {torch.float32}
    right = oracle(ours, x)
    rounding = max(error(a, b) for a, b in zip(theirs, right, strict=True))
    assert_close(found, right, 2 * rounding)


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_distributed_over_one_process(backend, tmp_path):
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    store = f"file://{tmp_path}/store"
    distributed.init_process_group(backend, init_method=store, rank=0, world_size=1)
    try:
        ours, x = layer(), given()
        spread = DistributedDataParallel(ours, device_ids=[0])
        spread(x)[0].square().sum().backward()
        found = [p.grad for p in ours.parameters()]
    finally:
        distributed.destroy_process_group()
    right = torch.autograd.grad(ours(x)[0].square().sum(), list(ours.parameters()))
    assert_close(found, list(right), 1e-6)


def test_checkpoints_take_less_memory():
    x, peaks = given(256, 1024, 16), []
    for every in (0, 64):
        ours = layer(256, checkpoint_every=every)
        results(ours, x[:128])
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        ours(x)[0].sum().backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] < peaks[0] / 3


def test_gradients_under_autocast_are_not_rounded_to_its_type():
    ours, x = layer(), given().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16):
        output, _ = ours(x)
    found = torch.autograd.grad(output.float().square().sum(), [x, *ours.parameters()])
    assert {grad.dtype for grad in found} == {torch.float32}
    assert all((grad != grad.bfloat16()).any() for grad in found)
