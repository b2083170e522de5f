"""Processes and threads: forks, DataLoader workers, many compilers at once, memory."""

import gc
import os
import threading

import pytest
import torch

from metarnn import Recurrent, cells
from tests.helpers.compare import assert_close, assert_same
from tests.helpers.memory import resident
from tests.helpers.process import succeed

# Wide enough that a second thread is used.
CELLS = {
    "elman": cells.Elman(70, 130),
    "lstm": cells.LSTM(64, 64),
    "gru-before": cells.GRU(33, 97, reset="before"),
    "lstm-all": cells.LSTM(20, 72, proj_size=40, peephole=True, layer_norm=True),
    "onlstm": cells.ONLSTM(24, 64, chunk=4),
    "mingru": cells.MinGRU(64, 128),
    "minlstm": cells.MinLSTM(64, 96),
}


@pytest.fixture
def threads():
    """Sets the number of threads; afterwards it is as it was."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def layer_of(name: str, **options) -> Recurrent:
    torch.manual_seed(0)
    return Recurrent(CELLS[name], engine="cpu", **options)


def results(layer: Recurrent, x: torch.Tensor) -> list[torch.Tensor]:
    """Output, and gradients by input and weights."""
    x = x.detach().requires_grad_()
    y, _ = layer(x)
    grads = torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])
    return [y.detach(), *grads]


@pytest.mark.medium
@pytest.mark.parametrize("batch", [1, 5, 16])
@pytest.mark.parametrize("name", CELLS)
def test_the_number_of_threads_changes_no_bit(name, batch, threads, monkeypatch):
    # Of generated code, that is: the products that torch computes before and after the loop do
    # differ (a 9 × 64 by 64 × 256 one on 2 threads), so torch itself keeps to one thread here.
    threads(1)
    layer = layer_of(name)
    x = torch.randn(9, batch, layer.input_size)
    found = []
    for number in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda: number)  # noqa: B023
        found.append(results(layer.train(), x))
        with torch.no_grad():
            found[-1] += [layer(x)[0], layer.eval().step(x[0])[0]]
    assert_same(found[1], found[0])
    assert_same(found[2], found[0])


@pytest.mark.medium
def test_the_same_call_gives_the_same_bits_again(threads):
    threads(2)
    layer = layer_of("lstm")
    x = torch.randn(20, 6, 64)
    first = results(layer, x)
    for _ in range(20):
        assert_same(results(layer, x), first)


@pytest.mark.medium
@pytest.mark.parametrize("number", [1, 2])
def test_python_threads_may_call_one_layer_at_once(number, threads):
    threads(number)
    # A cell of its own, so that the threads also meet while it is compiled.
    torch.manual_seed(0)
    layer = Recurrent(cells.LSTM(64, 64 + number, peephole=True), engine="cpu")
    eager = Recurrent(layer.cell, engine="eager")
    eager.load_state_dict(layer.state_dict())
    x = torch.randn(4, 10, 4, 64)
    found: dict[int, list] = {}
    begin = threading.Barrier(4)

    def work(k: int) -> None:
        begin.wait()
        found[k] = [results(layer, x[k]) for _ in range(10)]

    running = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    assert sorted(found) == [0, 1, 2, 3], "a thread failed"
    for k, again in found.items():
        assert_close(again[0], results(eager, x[k]), 1e-5)
        for other in again[1:]:
            assert_same(other, again[0])


FORK = """
    import os, signal, sys, time
    import torch
    from metarnn import Recurrent, cells

    torch.manual_seed(0)
    layer = Recurrent(cells.LSTM(64, 64), engine="cpu")
    x = torch.randn(9, 5, 64)

    def results():
        y, _ = layer(x)
        grads = torch.autograd.grad(y.square().sum(), list(layer.parameters()))
        with torch.no_grad():
            return [y, *grads, layer(x)[0]]

    def end(child):
        "Its exit code; a child that takes longer than this is killed."
        for _ in range(300):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "killed: it hangs"
"""


@pytest.mark.medium
def test_forked_children_compute_the_same():
    code = (
        FORK
        + """
    layer(x)  # on two threads
    torch.set_num_threads(1)
    expected = results()
    torch.set_num_threads(2)
    for number in (1, 2):
        layer(x)
        child = os.fork()
        if child == 0:
            # OpenMP's threads do not follow into a child, and torch's own products wait for them
            # forever: torch keeps to one thread, as in a DataLoader's worker, we may take more.
            torch.set_num_threads(1)
            torch.get_num_threads = lambda: number
            same = all(torch.equal(a, b) for a, b in zip(results(), expected, strict=True))
            os._exit(0 if same else 3)
        code = end(child)
        assert code == 0, (number, code)
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(results(), expected, strict=True))
    """
    )
    succeed(code, OMP_NUM_THREADS="2")


@pytest.mark.medium
def test_a_child_of_a_fork_that_ends_takes_no_files_from_its_parent(tmp_path):
    # Without a cache, compiled files lie in a folder that goes when the process ends.
    code = (
        FORK
        + """
    with torch.no_grad():
        layer(x)
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert end(child) == 0
    import warnings
    warnings.simplefilter("error")
    with torch.no_grad():
        Recurrent(cells.GRU(2, 3), engine="cpu")(torch.randn(2, 2, 2))
    """
    )
    (tmp_path / "file").write_text("")
    succeed(code, METARNN_CACHE=tmp_path / "file" / "cache")


@pytest.mark.medium
def test_layers_run_in_the_workers_of_a_data_loader():
    code = """
        import torch
        from torch.utils.data import DataLoader, Dataset
        from metarnn import Recurrent, cells

        class Encoded(Dataset):
            def __init__(self):
                torch.manual_seed(0)
                self.layer = Recurrent(cells.LSTM(64, 64), engine="cpu")
                self.x = torch.randn(4, 9, 5, 64)
            def __len__(self):
                return 4
            def __getitem__(self, k):
                with torch.no_grad():
                    return self.layer(self.x[k])[0]

        data = Encoded()
        expected = [data[k] for k in range(4)]
        loader = DataLoader(
            data, num_workers=1, batch_size=None, multiprocessing_context="fork", timeout=30
        )
        for found, wanted in zip(loader, expected, strict=True):
            assert torch.equal(found, wanted)
    """
    succeed(code, OMP_NUM_THREADS="2")


@pytest.mark.slow
def test_twenty_processes_compile_the_same_cell_at_once(tmp_path):
    code = """
        import os, sys
        import torch
        from metarnn import Recurrent, cells

        torch.manual_seed(0)
        layer = Recurrent(cells.LSTM(2, 3), engine="cpu")
        x = torch.randn(3, 2, 2)
        eager = Recurrent(layer.cell, engine="eager")
        eager.load_state_dict(layer.state_dict())
        with torch.no_grad():
            expected = eager(x)[0]
        waiting, begin = os.pipe()
        children = []
        for _ in range(20):
            child = os.fork()
            if child == 0:
                os.close(begin)
                os.read(waiting, 1)  # until the parent closes its end: all begin at once
                import warnings
                warnings.simplefilter("error")
                code = 4
                try:
                    with torch.no_grad():
                        code = 0 if (layer(x)[0] - expected).abs().max() < 1e-6 else 3
                finally:
                    os._exit(code)
            children.append(child)
        os.close(begin)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert codes == [0] * 20, codes
        with torch.no_grad():
            assert (layer(x)[0] - expected).abs().max() < 1e-6
    """
    (tmp_path / "temporary").mkdir()
    succeed(code, METARNN_CACHE=tmp_path / "cache", TMPDIR=tmp_path / "temporary")
    assert not list((tmp_path / "temporary").iterdir())
    left = sorted(path.suffix for path in (tmp_path / "cache").iterdir())
    assert left == [".sha256", ".sha256", ".so", ".so"]  # the products, and the cell


@pytest.mark.medium
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc to read memory from")
def test_no_memory_is_lost_from_call_to_call(threads):
    threads(2)
    layer = layer_of("lstm")
    x = torch.randn(8, 128, 64)  # one array of states is 256 KiB, so 50 of them are 13 MiB

    def use(times: int) -> None:
        for _ in range(times):
            results(layer, x)
            with torch.no_grad():
                layer(x)
                layer.step(x[0])
        gc.collect()

    use(20)
    before = resident()
    use(50)
    assert resident() - before < 6 * 2**20
