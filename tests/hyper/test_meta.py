"""Layers whose weights are generated: what they start as, what they see, who runs them."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from metarnn import GraphCell, MetaRecurrent, Recurrent, cells, explain, hyper
from metarnn.graph import trace_cell
from metarnn.tasks.language import LanguageModel
from tests.helpers.cases import EVERY, parts, randn, randomize
from tests.helpers.compare import assert_close, inputs, measure

FORMS = ["scale", "rows", "columns", "bounded", "lowrank", "mixture", "full", ("scale", "lowrank")]
ENCODERS = ["input", "gru", "lstm", "mingru", "conv", "transformer"]
GENERATORS = ["dense", "conv", "attention", "recurrent"]
CAUSAL = {
    "step": {"context": "step"},
    "before": {"context": "step", "delay": True},
    "time": {"context": "step", "times": 3},
    "state": {"context": "state"},
}
LENGTHS = [6, 2, 4]
RESETS = torch.tensor([[0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]]).bool()


def meta(unit=None, *args, **options) -> Any:
    """A layer in float64 all of whose parameters matter."""
    unit = cells.LSTM(3, 4) if unit is None else unit
    layer = MetaRecurrent(unit, *args, **{"dtype": torch.float64, "width": 4, **options})
    randomize(layer)
    return layer


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("options", CAUSAL.values(), ids=CAUSAL)
def test_a_layer_starts_as_its_plain_unit(form, options):
    torch.manual_seed(0)
    layer = MetaRecurrent(cells.LSTM(3, 4), 2, form=form, dtype=torch.float64, **options)
    plain = Recurrent(cells.LSTM(3, 4), 2, dtype=torch.float64)
    plain.load_state_dict({n: w for n, w in layer.state_dict().items() if n in plain.state_dict()})
    x = randn(6, 3, 3)
    assert_close(layer(x, lengths=LENGTHS)[0], plain(x, lengths=LENGTHS)[0])


def test_by_default_the_input_says_how_much_each_number_of_the_state_counts():
    layer = meta(cells.GRU(3, 4))
    weights, source = layer.weights(0), layer.sources[0]
    (floor,), head = source.encoder.floors, source.generator.heads["columns_hh"]
    x, h, expected = randn(5, 2, 3), torch.zeros(2, 4, dtype=torch.float64), []
    for x_t in x:
        context = torch.tanh(x_t @ floor.weight.T + floor.bias)
        c = 2 * torch.sigmoid(nn.functional.layer_norm(context, [4]) @ head.T)
        of_x = x_t @ weights["weight_ih"].T + weights["bias_ih"]
        of_h = (c * h) @ weights["weight_hh"].T + weights["bias_hh"]
        (xr, xz, xn), (hr, hz, hn) = of_x.chunk(3, -1), of_h.chunk(3, -1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        h = (1 - z) * torch.tanh(xn + r * hn) + z * h
        expected.append(h)
    assert_close(layer(x)[0], torch.stack(expected))


def test_what_reads_one_input_is_narrow_and_what_reads_many_a_quarter_of_the_unit():
    def width(**options) -> Any:
        return MetaRecurrent(cells.GRU(3, 200), **options).sources[0].width

    assert [width(), width(encoder="gru"), width(width=32)] == [16, 50, 32]


@pytest.mark.parametrize("by", ["bounded", "deviation", "linear"])
def test_a_factor_is_made_of_a_number_as_its_name_says(by):
    d = randn(5, 4)
    expected = {"bounded": 2 / (1 + (-d).exp()), "deviation": 1 + d, "linear": d}
    assert_close(hyper.Scale(by=by).factor(d), expected[by])


@pytest.mark.parametrize("name", EVERY)
def test_any_unit_with_the_generator_at_zero_is_that_unit(name):
    unit = EVERY[name]
    layer = meta(unit, form=("both", "lowrank"), bidirectional=True)
    with torch.no_grad():
        for source in layer.sources:
            for head in source.generator.heads.values():
                head.zero_()
    plain = Recurrent(unit, bidirectional=True, dtype=torch.float64)
    plain.load_state_dict({n: w for n, w in layer.state_dict().items() if n in plain.state_dict()})
    x = randn(6, 3, unit.input_size)
    call = {"lengths": LENGTHS, "resets": RESETS}
    assert_close(layer(x, **call)[0], plain(x, **call)[0])


def test_around_a_graph_it_is_what_it_is_around_the_cell():
    one = meta(cells.GRU(3, 4))
    two = meta(GraphCell(trace_cell(cells.GRU(3, 4))))
    two.load_state_dict(one.state_dict())
    x = randn(5, 2, 3)
    assert_close(two(x)[0], one(x)[0])


def assert_engines_agree(engines, unit, call, **options):
    results = []
    for engine in ("eager", *engines):
        layer = meta(unit, engine=engine, **options)
        (x,) = inputs(randn(6, 3, 3))
        torch.manual_seed(0)
        wrt = [x, *layer.parameters()]
        results.append(measure(lambda: layer(x, **call), wrt))  # noqa: B023
    for found in results[1:]:
        assert_close(found, results[0])


@pytest.mark.medium
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("options", [{}, {"context": "sequence"}], ids=["step", "sequence"])
def test_generated_code_computes_every_form(form, options):
    call = {"lengths": LENGTHS} if options else {"lengths": LENGTHS, "resets": RESETS}
    assert_engines_agree(["cpu"], cells.LSTM(3, 4), call, form=form, **options)


@pytest.mark.medium
def test_generated_code_computes_structures_stacks_directions_and_dropouts():
    more = {"num_layers": 2, "bidirectional": True, "recurrent_dropout": 0.3, "zoneout": 0.3}
    mixed = cells.Mixed(3, 4)
    assert_engines_agree(["cpu"], mixed, {"lengths": LENGTHS}, form="structure", **more)


@pytest.mark.parametrize("name", ["qrnn-2", "mingru", "sru-1"])
def test_a_unit_linear_in_its_state_is_still_run_by_a_scan(name):
    call = {"lengths": LENGTHS, "resets": RESETS}
    assert_engines_agree(["scan"], EVERY[name], call, form=("scale", "lowrank"))


@pytest.mark.medium
@pytest.mark.parametrize("form", ["scale", "lowrank", "mixture", "full", "structure"])
@pytest.mark.parametrize("context", ["step", "sequence"])
def test_a_triton_kernel_computes_every_form(form, context, device):
    options = {"form": form, "context": context, "encoder": "gru", "width": 4}
    unit = cells.Mixed(3, 5) if form == "structure" else cells.LSTM(3, 5)
    ours = MetaRecurrent(unit, engine="triton", device=device, **options)
    oracle = MetaRecurrent(unit, engine="eager", device=device, dtype=torch.float64, **options)
    randomize(ours)
    oracle.load_state_dict(ours.state_dict())
    for source in ours.sources:
        source.encoder.layer.engine = "eager"  # type: ignore[union-attr]  tested elsewhere
    found = []
    for layer in (ours, oracle):
        (x,) = inputs(randn(3, 3, 3, dtype=torch.float32).to(next(layer.parameters())))
        wrt = [x, *layer.parameters()]
        found.append(measure(lambda: layer(x, lengths=[3, 1, 2]), wrt))  # noqa: B023
    assert_close(found[0], found[1], 1e-5)


def assert_causal(layer):
    x = randn(7, 2, 3)
    with torch.no_grad():
        before = layer(x)[0]
        for t in range(7):
            changed = x.clone()
            changed[t] += 1
            after = layer(changed)[0]
            assert torch.equal(after[:t], before[:t])
            assert not torch.equal(after[t:], before[t:])


@pytest.mark.medium
@pytest.mark.parametrize("form", [*FORMS, "structure"], ids=str)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_an_input_changes_nothing_before_it(encoder, form):
    unit = cells.Mixed(3, 4) if form == "structure" else cells.GRU(3, 4)
    for name, options in CAUSAL.items():
        if name != "state" or encoder not in ("input", "conv", "transformer"):
            layer = meta(unit, engine="eager", form=form, encoder=encoder, **options)
            assert layer.causal
            assert_causal(layer)


@pytest.mark.parametrize("generator", GENERATORS)
def test_no_generator_lets_time_steps_see_one_another(generator):
    assert_causal(meta(engine="eager", generator=generator))


def test_a_context_delayed_does_not_see_the_input_of_its_own_step():
    for delay in (False, True):
        layer = meta(delay=delay, engine="eager", encoder="gru")
        x = randn(5, 2, 3)
        x[2].requires_grad_(False)
        with hyper.watch() as one:
            layer(x)
        changed = x.clone()
        changed[2] += 1
        with hyper.watch() as two:
            layer(changed)
        same = [
            torch.equal(one[0].numbers["columns_hh"][t], two[0].numbers["columns_hh"][t])
            for t in range(5)
        ]
        assert same == [True, True, delay, False, False]


def test_who_watches_around_another_sees_what_that_one_sees():
    layer = MetaRecurrent(cells.GRU(3, 4), dtype=torch.float64)
    with hyper.watch() as outer:
        with hyper.watch() as inner:
            layer(randn(5, 2, 3))
        layer(randn(5, 2, 3))
    assert len(inner) == 1
    assert len(outer) == 2
    assert outer[0] is inner[0]


@pytest.mark.medium
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("options", CAUSAL.values(), ids=CAUSAL)
def test_steps_one_by_one_and_two_halves_give_what_the_whole_gives(encoder, options):
    if options["context"] == "state" and encoder in ("input", "conv", "transformer"):
        return
    layer = meta(cells.QRNN(3, 4), 2, encoder=encoder, engine="eager", **options).eval()
    x = randn(6, 3, 3)
    with torch.no_grad():
        whole, final = layer(x)
        first, state = layer(x[:2])
        second, end = layer(x[2:], state)
        assert_close(torch.cat([first, second]), whole)
        assert_close(parts(end), parts(final))
        state, outputs = None, []
        for x_t in x:
            y, state = layer.step(x_t, state)
            outputs.append(y)
        assert_close(torch.stack(outputs), whole)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_lengths_and_resets_are_those_of_sequences_run_alone(encoder):
    layer = meta(encoder=encoder, delay=True, times=2, engine="eager")
    x = randn(6, 3, 3)
    output, _ = layer(x, lengths=LENGTHS, resets=RESETS)
    for b, length in enumerate(LENGTHS):
        starts = [0, *torch.nonzero(RESETS[:length, b]).flatten().tolist()]
        ends = [*starts[1:], length]
        pieces = [layer(x[s:e, b])[0] for s, e in zip(starts, ends, strict=True)]
        assert_close(output[:length, b], torch.cat(pieces))
        assert (output[length:, b] == 0).all()


@pytest.mark.parametrize("pool", ["last", "mean", "attention"])
@pytest.mark.parametrize("encoder", [*ENCODERS, "both ways"])
def test_a_context_of_a_whole_sequence_sees_no_padding(encoder, pool):
    made = encoder
    if encoder == "both ways":
        made = lambda n: Recurrent(cells.GRU(n, 2), bidirectional=True)  # noqa: E731
    layer = meta(encoder=made, context="sequence", pool=pool, engine="eager")
    assert not layer.causal
    x = randn(6, 3, 3)
    output, _ = layer(x, lengths=LENGTHS)
    for b, length in enumerate(LENGTHS):
        assert_close(output[:length, b], layer(x[:length, b])[0])


def test_a_context_may_be_given_for_sequences_and_for_steps():
    layer = meta(encoder=None, context_size=5, bidirectional=True, engine="eager")
    x, c = randn(6, 3, 3), randn(3, 5, seed=4)
    one = layer(x, context=c, lengths=LENGTHS)[0]
    assert_close(layer(x, context=c.expand(6, 3, 5), lengths=LENGTHS)[0], one)
    assert not torch.equal(layer(x, context=2 * c[:, [1, 0, 2, 3, 4]])[0], layer(x, context=c)[0])
    with pytest.raises(ValueError, match="context='None'"):
        layer(x)
    with pytest.raises(ValueError, match=r"context.shape=\(3, 4\)"):
        layer(x, context=c[:, :4])
    with pytest.raises(ValueError, match="the encoder makes it"):
        meta()(x, context=c)


@pytest.mark.medium
@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("form", ["scale", "lowrank", "mixture", "full", "structure"])
def test_by_the_second_update_gradient_has_reached_every_parameter(form, generator):
    torch.manual_seed(0)
    unit = cells.Mixed(3, 8) if form == "structure" else cells.LSTM(3, 8)
    layer = MetaRecurrent(unit, form=form, generator=generator, engine="eager", times=2)
    optimizer = torch.optim.Adam(layer.parameters(), 1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        layer(torch.randn(6, 4, 3))[0].square().sum().backward()
        optimizer.step()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.medium
@pytest.mark.parametrize("form", ["scale", "lowrank", "mixture", "full"])
def test_gates_keep_their_scale_over_500_steps_with_numbers_that_are_not_zero(form):
    torch.manual_seed(0)

    def generator(context, numbers):
        return hyper.Dense(context, numbers, "hyperfan")

    scales = []
    for options in ({"generator": generator, "form": form}, None):
        unit = cells.LSTM(16, 16)
        layer = Recurrent(unit) if options is None else MetaRecurrent(unit, **options)
        with torch.no_grad():
            h = layer(torch.randn(500, 8, 16))[0]
        scales.append((h[:50].std(), h[-50:].std()))
    (early, late), (plain, _) = scales
    assert 0.7 < late / early < 1.4
    assert 0.5 < late / plain < 2


def test_second_derivatives_are_right():
    layer = meta(cells.GRU(2, 2), form=("scale", "lowrank"), width=2)
    x = randn(3, 1, 2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: layer(x)[0], (x,))


def test_checkpoints_over_time_change_nothing():
    results = []
    for every in (0, 2):
        layer = meta(checkpoint_every=every, engine="eager", context="sequence")
        (x,) = inputs(randn(5, 3, 3))
        wrt = [x, *layer.parameters()]
        results.append(measure(lambda: layer(x), wrt))  # noqa: B023
    assert_close(results[1], results[0])


def test_a_module_of_ones_own_reads_the_sequence():
    module = hyper.ModuleEncoder(nn.Linear(3, 5), 3, 5, causal=True)
    layer = meta(encoder=module, engine="eager")
    assert_causal(layer)
    for call, why in (
        (lambda: layer.step(randn(2, 3)), "carries a state"),
        (lambda: layer(randn(4, 2, 3), resets=torch.zeros(4, 2).bool()), "plain module"),
        (lambda: meta(2, encoder=module), "unit=2"),
        (lambda: meta(None, 2, encoder=module), "a function from an input width"),
        (lambda: meta(encoder=hyper.ModuleEncoder(nn.Linear(3, 5), 3, 5, False)), "not causal"),
    ):
        with pytest.raises(ValueError, match=why):
            call()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"form": "scael"}, "Did you mean 'scale'"),
        ({"form": "structure"}, "a unit with choices: LSTM has none"),
        ({"encoder": "grue"}, "Did you mean 'gru'"),
        ({"generator": "dens"}, "Did you mean 'dense'"),
        ({"context": "state", "encoder": "conv"}, "inside the step"),
        ({"context": "state", "generator": "conv"}, "'dense' with context='state'"),
        ({"context": "sequence", "delay": True}, "with context='step'"),
        ({"encoder": None}, "context_size"),
        ({"embedding": 3}, "with context='state'"),
        ({"feedback": True}, "where weights are generated"),
    ],
    ids=str,
)
def test_what_has_no_meaning_is_refused_with_the_reason(options, why):
    with pytest.raises(ValueError, match=why):
        meta(**options)


def test_a_language_model_refuses_a_context_of_whole_sequences():
    layer = MetaRecurrent(cells.GRU(4, 8), context="sequence")
    with pytest.raises(ValueError, match="no later token"):
        LanguageModel(9, layer, embedding=4)
    LanguageModel(9, MetaRecurrent(cells.GRU(4, 8)), embedding=4)


def test_explain_tells_who_runs_it_and_a_copy_is_whole():
    layer = MetaRecurrent(cells.LSTM(3, 4), encoder=None, context_size=2)
    x, c = torch.randn(5, 2, 3), torch.randn(2, 2)
    assert explain(layer, x, context=c).engine in ("cpu", "eager")
    again = copy.deepcopy(layer)
    torch.testing.assert_close(again(x, context=c)[0], layer(x, context=c)[0])


@pytest.mark.medium
@pytest.mark.parametrize("context", ["step", "sequence", "state"])
def test_a_compiled_model_contains_the_layer(context):
    layer = MetaRecurrent(cells.LSTM(3, 8), context=context)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x, weights = torch.randn(5, 2, 3), list(layer.parameters())
    (plain, _), (output, _) = layer(x), compiled(x)
    torch.testing.assert_close(output, plain)
    torch.testing.assert_close(
        torch.autograd.grad(output.sum(), weights, allow_unused=True, materialize_grads=True),
        torch.autograd.grad(plain.sum(), weights, allow_unused=True, materialize_grads=True),
    )
