"""Encoder, heads and unit are one function."""

import copy
from typing import Any

import pytest
import torch
from torch.nn.utils import parametrize

from metarnn import cells
from metarnn.engines import ENGINES
from metarnn.engines.plan import plan_loop
from metarnn.engines.prologue import GeneratedCall
from metarnn.hyper import MetaRecurrent
from metarnn.hyper.watch import watch
from tests.helpers.cases import randn
from tests.helpers.compare import assert_close, assert_same, leaves

SHAPE = (5, 2, 3)
OPTIONS = {
    "low rank": {"form": "lowrank", "encoder": "gru"},
    "scales": {"form": "scale", "encoder": "lstm"},
    "several heads": {"form": ("scale", "lowrank"), "encoder": "gru"},
    "a context of one number": {"form": "scale", "encoder": "gru", "width": 1},
    "an encoder that is scanned": {"form": "lowrank", "encoder": "mingru"},
}


def made(device, name="low rank", unit=None, **options) -> Any:
    """A layer whose weights are written, anything but its plain unit."""
    torch.manual_seed(0)
    unit = unit or cells.LSTM(3, 4)
    asked: Any = {**OPTIONS[name], **options}
    layer: Any = MetaRecurrent(unit, engine="triton", device=device, **asked)
    with torch.no_grad():
        for k, weight in enumerate(layer.parameters()):
            weight += 0.3 * randn(*weight.shape, seed=k, dtype=torch.float32).to(device)
    for source in layer.sources:
        source.encoder.layer.engine = "triton"
    return layer


def inputs(device):
    return randn(*SHAPE, dtype=torch.float32).to(device)


def called(layer, x):
    """Outputs, final states and gradients."""
    x = x.clone().requires_grad_()
    found = leaves(layer(x))
    total = torch.stack([(value**2).sum() for value in found]).sum()
    return [*found, *torch.autograd.grad(total, [x, *layer.parameters()])]


def whole(layer, x):
    """Whether a call is one function to autograd."""
    names, nodes = [], [layer(x)[0].grad_fn]
    while nodes:
        node = nodes.pop()
        names.append(node.name())
        nodes += [each for each, _ in node.next_functions if each is not None]
    return sum(name.startswith("_Call") for name in names) == 1


@pytest.mark.parametrize("name", OPTIONS)
def test_the_second_call_is_one_function_that_finds_what_the_first_did(name, device):
    layer, x = made(device, name), inputs(device)
    first = called(layer, x)
    assert whole(layer, x)
    assert_close(called(layer, x), first, 1e-5)


def test_from_whatever_state_a_layer_has_returned(device):
    layer, x = made(device), inputs(device)
    state = [randn(1, 2, n, seed=n, dtype=torch.float32).to(device) for n in layer.state_sizes]

    def run():
        parts = tuple(part.clone().requires_grad_() for part in state)
        found = leaves(layer(x, parts))
        total = torch.stack([(value**2).sum() for value in found]).sum()
        return [*found, *torch.autograd.grad(total, parts)]

    expected = run()
    assert whole(layer, x)
    assert_close(run(), expected, 1e-5)


def test_without_gradients_it_finds_the_same(device):
    layer, x = made(device), inputs(device)
    expected = layer(x)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            for _ in range(2):
                assert_same(leaves(layer(x)), leaves(expected))


def test_only_what_is_asked_for_gets_a_gradient(device):
    layer, x = made(device), inputs(device)
    layer.sources[0].encoder.requires_grad_(False)
    own = [weight for weight in layer.parameters() if weight.requires_grad]

    def run():
        return torch.autograd.grad((layer(x)[0] ** 2).sum(), own)

    expected = run()
    assert whole(layer, x)
    assert_close(run(), expected, 1e-5)
    layer.requires_grad_(False)
    layer.sources[0].encoder.requires_grad_(True)
    own = list(layer.sources[0].encoder.parameters())
    layer._calls.clear()
    expected = run()
    assert whole(layer, x)
    assert_close(run(), expected, 1e-5)


def test_under_autocast_gradients_are_of_the_weights_type(device):
    layer, x = made(device), inputs(device)
    exact = called(layer, x)
    with torch.autocast(device, torch.bfloat16):
        first = called(layer, x)
        assert whole(layer, x)
        second = called(layer, x)
    assert {value.dtype for value in second} == {torch.float32}
    outputs = 4  # and states: the way there is the same to the bit, the way back rounds less
    assert_same(second[:outputs], first[:outputs])
    assert_close(second, first, 2e-2)
    assert_close(second, exact, 5e-2)


def test_it_is_differentiated_twice(device):
    layer = made(device, unit=cells.Elman(2, 2), encoder="elman", width=2)
    eager = copy.deepcopy(layer)
    eager.engine = eager.sources[0].encoder.layer.engine = "eager"
    x = randn(3, 1, 2, dtype=torch.float32).to(device).requires_grad_()

    def twice(which):
        which(x)  # so that the next call is like one before
        (grad,) = torch.autograd.grad((which(x)[0] ** 2).sum(), x, create_graph=True)
        return torch.autograd.grad((grad**2).sum(), [x, *which.parameters()])

    found = twice(layer)
    assert whole(layer, x)
    assert_close(found, twice(eager), 1e-4)


@pytest.mark.parametrize("name", ["low rank", "several heads"])
def test_in_plain_torch_it_is_the_eager_layer(name, device):
    layer = made("cpu", name).double()
    layer.engine = layer.sources[0].encoder.layer.engine = "eager"
    x, encoder = randn(*SHAPE), layer.sources[0].encoder.layer
    output, (h, c, e) = layer(x)

    ahead, plan = (plan_loop(each.cell) for each in (encoder, layer))
    heads = layer.sources[0].generator.heads
    names = [name for _, name in plan.projection_arguments]
    generated = sorted((names.index(name), heads[name]) for name in heads)
    engine: Any = ENGINES["triton"]
    first, second = (
        engine.projected_call(p, 5, 2, x.dtype, [x.new_empty(0)] * len(p.states))
        for p in (ahead, plan)
    )
    both = GeneratedCall(first, second, True, tuple(place for place, _ in generated))

    def weights(plan, layer):
        own = {key: layer.weights(0)[name] for key, name, _ in plan.weights}
        return [own[key] for key in plan.projection_arguments if key in own]

    zero = [torch.zeros(2, part.shape[-1], dtype=x.dtype) for part in (e, h, c)]
    arguments = [zero[0], x, *weights(ahead, encoder), *(head for _, head in generated)]
    arguments += [*zero[1:], *weights(plan, layer)]
    found = both.reference(*arguments)
    expected = [h, c, *([output] if len(found) == 4 else []), e]
    assert_close(list(found), expected, 1e-12)


@pytest.mark.parametrize("where", ["source", "encoder", "layer", "generator"])
def test_whoever_has_hooked_a_part_of_it_is_called(where, device):
    layer, x = made(device), inputs(device)
    expected = leaves(layer(x))
    assert whole(layer, x)
    source, seen = layer.sources[0], []
    parts = {"source": source, "encoder": source.encoder, "layer": source.encoder.layer}
    part = parts.get(where, source.generator)
    hook = part.register_forward_hook(lambda *_: seen.append(where))
    assert_same(leaves(layer(x)), expected)
    assert seen == [where]
    hook.remove()
    assert whole(layer, x)


def test_hooks_of_all_modules_are_called_too(device):
    layer, x = made(device), inputs(device)
    layer(x)
    seen = []
    hook = torch.nn.modules.module.register_module_forward_hook(lambda m, *_: seen.append(type(m)))
    try:
        layer(x)
    finally:
        hook.remove()
    assert len(seen) == 5  # generator, layer, encoder, source and the whole


def test_who_watches_is_handed_what_is_generated(device):
    layer, x = made(device), inputs(device)
    layer(x)
    with watch() as records:
        layer(x)
    assert [sorted(record.numbers) for record in records] == [["rank_hh"]]


def test_heads_that_are_computed_count(device):
    layer, x = made(device), inputs(device)
    expected = layer(x)[0]
    heads = layer.sources[0].generator.heads

    class Doubled(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight

    parametrize.register_parametrization(heads, "rank_hh", Doubled())
    found = [layer(x)[0] for _ in range(2)]
    assert torch.equal(*found)
    assert not torch.equal(found[0], expected)
    eager = copy.deepcopy(layer)
    eager.engine = eager.sources[0].encoder.layer.engine = "eager"
    assert_close(found[0], eager(x)[0], 1e-5)


def test_weights_given_for_one_call_count(device):
    layer, x = made(device), inputs(device)
    layer(x)
    names = ["sources.0.generator.heads.rank_hh", "sources.0.encoder.layer.weight_hh_l0"]
    other = {name: layer.get_parameter(name).detach() * 2 for name in names}
    found, _ = torch.func.functional_call(layer, other, (x,))
    doubled = copy.deepcopy(layer)
    with torch.no_grad():
        for name in names:
            doubled.get_parameter(name).mul_(2)
    assert torch.equal(found, doubled(x)[0])
    assert not torch.equal(found, layer(x)[0])


def test_nothing_is_saved_twice(device):
    layer, x = made(device), inputs(device)
    state = tuple(torch.zeros(1, 2, n, device=device) for n in layer.state_sizes)
    packed = []
    with torch.autocast(device, torch.bfloat16):
        layer(x, state)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            layer(x, state)
    places = [(t.data_ptr(), t.shape) for t in packed]
    assert len(places) == len(set(places))


def test_what_hooks_have_turned_in_memory_is_read_as_it_is(device):
    layer, x = made(device), inputs(device)
    expected = called(layer, x)

    def turned(tensor):
        return tensor if tensor.dim() < 2 else tensor.mT.contiguous().mT

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, turned):
        assert_close(called(layer, x), expected, 1e-5)


def test_states_may_be_changed_in_place(device):
    layer, x = made(device), inputs(device)
    for _ in range(2):
        y, state = layer(x)
        for part in state:
            part[:, 0] = 0
        (y.sum() + torch.stack([part.sum() for part in state]).sum()).backward()
        _, state = layer(x)
        assert all(part.detach_().is_leaf for part in state)


@pytest.mark.parametrize("name", ["low rank", "scales"])
def test_where_only_the_encoders_state_is_used_the_unit_gets_no_gradient(name, device):
    layer, x = made(device, name), inputs(device)

    def missing() -> list[bool]:
        last = leaves(layer(x))[-1]
        found = torch.autograd.grad(last.sum(), list(layer.parameters()), allow_unused=True)
        return [grad is None for grad in found]

    first = missing()
    assert any(first)
    assert not all(first)
    assert missing() == first
    assert whole(layer, x)
