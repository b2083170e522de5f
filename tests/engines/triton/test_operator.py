"""A kernel as an operator of a compiled model."""

import pytest
import torch

from tests.helpers.cases import EVERY, make, randn
from tests.helpers.compare import assert_close


@pytest.mark.medium
@pytest.mark.parametrize(
    "name", ["lstm", "mingru", pytest.param("lstm-all", marks=pytest.mark.slow)]
)
def test_a_compiled_layer_contains_its_kernel(name, device):
    layer = make(EVERY[name], engine="triton", dtype=torch.float32, device=device)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for steps, batch in ((3, 2), (4, 5)):
        x = randn(steps, batch, 3, dtype=torch.float32).to(device)
        found = []
        for run in (compiled, layer):
            output, _ = run(x)
            grads = torch.autograd.grad(output.square().sum(), list(layer.parameters()))
            found.append([output, *grads])
        assert_close(found[0], found[1], 1e-5)
