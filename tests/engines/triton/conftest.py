from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers import interpreter


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where kernels run: on a GPU, or else on a CPU in Triton's interpreter."""
    if not interpreter.INSTALLED:
        pytest.skip("Triton is not installed (pip install triton)")
    if not interpreter.ON_GPU:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        _multiply_bfloat16(monkeypatch)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return interpreter.DEVICE


@pytest.fixture
def own_kernels(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that no other test has made or will run: for constants of a test's own."""
    from metarnn.engines.triton import loops

    monkeypatch.setattr(loops, "loop_kernels", lru_cache(loops.LoopKernels))


def _multiply_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter keeps bfloat16 as the 16 bits it is, and multiplies those as integers."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    as_it_is = InterpreterBuilder.create_dot

    def wide(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        return TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return as_it_is(self, wide(a), wide(b), *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
