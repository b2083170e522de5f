"""Under torch.compile a fused loop is an operator of the operator model, gradients and all."""

import copy
import pickle
import shutil
from typing import Any

import pytest
import torch
from torch import nn

from metarnn import cells
from metarnn.engines import ENGINES, Request, operator
from tests.helpers.cases import EVERY, make, randn
from tests.helpers.compare import assert_close

needs_a_compiler = pytest.mark.skipif(
    bool(ENGINES["cpu"].obstacle(Request(EVERY["lstm"]))), reason="no C compiler"
)
pytestmark = [pytest.mark.medium, needs_a_compiler]


class Model(nn.Module):
    """A layer with something to compile below and above it."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self.below = nn.Linear(3, 3)
        self.layer = make(EVERY[name], **{"dtype": torch.float32, **options})
        self.above = nn.Linear(self.layer.output_size, 2)

    def forward(self, x, **call):
        output, state = self.layer(self.below(x).tanh(), **call)
        parts = (state,) if isinstance(state, torch.Tensor) else state
        return self.above(output).sin(), *(part * 2 for part in parts)


def results(run, model, x, **call):
    torch.manual_seed(3)
    outputs = run(x, **call)
    loss = sum((output.cos().sum() for output in outputs), torch.zeros(()))
    return [*outputs, *torch.autograd.grad(loss, list(model.parameters()))]


def agree(model: nn.Module, *shapes: tuple[int, int], backend: str = "aot_eager", **call) -> int:
    """The number of graphs that it took to agree with the model as it is."""
    from torch._dynamo.testing import CompileCounterWithBackend  # takes a second to import

    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    run = torch.compile(model, backend=counter, fullgraph=True)
    for steps, batch in shapes:
        x = randn(steps, batch, 3, dtype=torch.float32)
        assert_close(results(run, model, x, **call), results(model, model, x, **call), 1e-5)
    return counter.frame_count


@pytest.mark.parametrize("name", ["lstm", "lstm-all", "gru", "qrnn-2", "sru-2", "mingru", "own"])
def test_a_whole_model_is_one_graph(name):
    assert agree(Model(name), (4, 2)) == 1


def test_stacks_directions_lengths_resets_and_masks_are_part_of_it():
    model = Model("lstm", num_layers=2, bidirectional=True, zoneout=0.3, recurrent_dropout=0.2)
    resets = torch.zeros(6, 4).bool()
    resets[2, 1] = True
    call: Any = {"lengths": torch.tensor([6, 2, 3, 5]), "resets": resets}
    agree(model, (6, 4), **call)
    agree(model.eval(), (6, 4), **call)


def test_a_new_length_or_batch_is_operator_for_once():
    assert agree(Model("lstm"), (9, 2), (11, 5), (6, 8), (17, 7), (12, 10)) == 2


def test_without_gradients():
    model = Model("gru")
    torch._dynamo.reset()
    run, x = torch.compile(model, backend="aot_eager", fullgraph=True), randn(4, 2, 3).float()
    with torch.no_grad():
        assert_close(run(x), model(x), 1e-5)


def test_under_autocast():
    model = Model("lstm")
    with torch.autocast("cpu", torch.bfloat16):
        torch._dynamo.reset()
        run, x = torch.compile(model, backend="aot_eager", fullgraph=True), randn(4, 2, 3).float()
        assert_close(results(run, model, x), results(model, model, x), 1e-2)


@pytest.mark.slow  # in seconds: test_a_model_around_a_layer_compiles
@pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs a C++ compiler")
def test_inductor_compiles_it():
    agree(Model("lstm", num_layers=2), (4, 2), (7, 5), backend="inductor")


def test_an_eager_loop_is_no_part_of_it():
    model = Model("lstm", engine="eager")
    torch._dynamo.reset()
    x = randn(4, 2, 3, dtype=torch.float32)
    around = torch.compile(model, backend="aot_eager")
    assert_close(results(around, model, x), results(model, model, x), 1e-5)
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="_forward"):
        torch.compile(model, backend="aot_eager", fullgraph=True)(x)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_a_model_compiles(copied, monkeypatch):
    model = Model("gru")
    monkeypatch.setattr(operator, "_cells", dict(operator._cells))
    assert agree(copied(model), (4, 2)) == 1


def test_a_name_stands_for_what_a_cell_computes():
    names = [operator.register(cell) for cell in EVERY.values()]
    assert len(set(names)) == len(EVERY)
    assert operator.register(copy.copy(EVERY["lstm"])) == operator.register(EVERY["lstm"])


@pytest.mark.parametrize("name", ["lstm", "sru-2"])
def test_the_operator_keeps_torchs_rules(name, monkeypatch):
    calls, as_it_is = [], operator._as_operator

    def seen(*args):
        calls.append(args)
        return as_it_is(*args)

    monkeypatch.setattr(operator, "_as_operator", seen)
    layer = make(EVERY[name])
    state = [torch.zeros(2, n, dtype=torch.float64) for n in layer.state_sizes]
    weights = list(layer.weights(0).values())
    unit = operator.register(layer.cell)
    operator._recurrence(unit, "cpu", randn(4, 2, 3), state, weights, [], "", [], [], "", [], "")
    ((engine, plan, *sizes, tensors),) = calls
    (known,) = [key for key, found in operator._plans.items() if found is plan]
    leaves = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
    torch.library.opcheck(torch.ops.metarnn.loop.default, (known, engine, True, *sizes, leaves))


def test_a_cell_that_cannot_be_traced_has_no_name():
    assert operator.register(cells.Elman(3, 4, torch.atan)) == ""
    model = Model("lstm")
    model.layer = make(cells.Elman(3, 4, torch.atan), dtype=torch.float32)
    x = randn(4, 2, 3, dtype=torch.float32)
    torch._dynamo.reset()
    around = torch.compile(model, backend="aot_eager")
    assert_close(results(around, model, x), results(model, model, x), 1e-5)
