import importlib.util
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "hypernetwork.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("hypernetwork_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gradient_reaches_the_generator_and_no_weights_are_kept(example):
    torch.manual_seed(0)
    model = example.Hypernetworks(2, 1, 1)
    about, x, _ = example.sines(3)
    found = model(about, x)
    found.square().sum().backward()
    assert all(w.grad.abs().sum() > 0 for w in model.generator.parameters())
    assert not torch.equal(model(about.flip(0), x), found)


@pytest.mark.medium
def test_it_learns_tasks_from_their_descriptions(example):
    torch.manual_seed(0)
    assert example.train(example.Hypernetworks(2, 1, 1), 150) < 1.5  # always the mean: 4.3
