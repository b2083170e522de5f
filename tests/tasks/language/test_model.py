import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import metarnn
from metarnn import cells
from metarnn.cells import CELLS
from metarnn.graph import save, trace_cell
from metarnn.layers.nested import select
from metarnn.tasks.language import (
    LanguageModel,
    ModelOptions,
    build_model,
    count_parameters,
    parse_count,
    solve_width,
    solved,
)
from metarnn.tasks.language import model as module
from metarnn.tasks.language.model import restart

V = 11


def inputs(steps=9, batch=3):
    return torch.randint(V, (steps, batch)), torch.randint(V, (steps, batch))


def test_the_loss_is_that_of_the_same_model_in_torch():
    x, y = inputs()
    model = LanguageModel(V, [metarnn.LSTM(5, 6), metarnn.LSTM(6, 7)], embedding=5)
    first, second = nn.LSTM(5, 6), nn.LSTM(6, 7)
    first.load_state_dict(model.layers[0].state_dict())
    second.load_state_dict(model.layers[1].state_dict())
    assert model.embedding is not None
    assert model.weight is not None
    h, _ = second(first(model.embedding(x))[0])
    logits = h @ model.weight.T + model.bias
    expected = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view_as(y)
    torch.testing.assert_close(model(x, y).nll, expected)


def test_one_hot_is_the_embedding_that_is_the_identity():
    x, y = inputs()
    one_hot = LanguageModel(V, metarnn.GRU(V, 6))
    embedded = LanguageModel(V, metarnn.GRU(V, 6), embedding=V)
    embedded.load_state_dict({**one_hot.state_dict(), "embedding.weight": torch.eye(V)})
    torch.testing.assert_close(one_hot(x, y).nll, embedded(x, y).nll)


@pytest.mark.parametrize("cell", ["lstm", "gru", "qrnn", "sru"])
@pytest.mark.parametrize("init", ["orthogonal", "torch"])
def test_one_hot_inputs_reach_a_gate_as_embeddings_do(cell, init):
    torch.manual_seed(0)

    def spread(embedding):
        model = build_model(50, ModelOptions(cell=cell, width=200, embedding=embedding, init=init))
        weight = next(w for name, w in model.layers[0].named_parameters() if "weight" in name)
        table = torch.eye(50) if model.embedding is None else model.embedding.weight
        width = table.shape[1]
        return (table @ weight[:, :width].T).std().item()  # of a window, what one input adds

    assert 0.5 < spread(0) / 0.3 < 2
    assert spread(0) > 0.5 * spread(128)


def test_tied_weights_are_one_matrix():
    x, y = inputs()
    model = LanguageModel(V, metarnn.LSTM(6, 6), embedding=6, tied=True)
    assert count_parameters(model.parameters()) == V * 6 + V + 4 * (6 * 6 * 2 + 2 * 6)
    untied = LanguageModel(V, metarnn.LSTM(6, 6), embedding=6)
    own = model.state_dict()
    untied.load_state_dict({**own, "weight": own["embedding.weight"]})
    torch.testing.assert_close(model(x, y).nll, untied(x, y).nll)


@pytest.mark.parametrize("cutoffs", [(), (3, 7)])
def test_probabilities_sum_to_one_and_the_loss_is_minus_their_logarithm(cutoffs):
    x, y = inputs()
    model = LanguageModel(V, metarnn.GRU(4, 16), embedding=4, cutoffs=cutoffs)
    every = model(x).nll
    torch.testing.assert_close(every.neg().exp().sum(-1), torch.ones(9, 3))
    torch.testing.assert_close(model(x, y).nll, every.gather(-1, y.unsqueeze(-1)).squeeze(-1))


@pytest.mark.medium  # steps are compiled
@pytest.mark.parametrize("cell", CELLS)
def test_steps_give_what_the_whole_gives_and_so_do_two_halves(cell):
    x, y = inputs()
    model = build_model(V, ModelOptions(cell=cell, width=6, layers=2, embedding=5)).eval()
    with torch.no_grad():
        whole = model(x, y)
        half = model(x[:4], y[:4])
        rest = model(x[4:], y[4:], half.state)
        torch.testing.assert_close(torch.cat([half.nll, rest.nll]), whole.nll)
        state = None
        for t in range(len(x)):
            log_p, state = model.step(x[t], state)
            nll = -log_p.gather(-1, y[t].unsqueeze(-1)).squeeze(-1)
            torch.testing.assert_close(nll, whole.nll[t])


def test_what_a_state_forgets_is_only_its_own_sequence():
    x, y = inputs()
    model = build_model(V, ModelOptions(width=6, embedding=5))
    state = model(x, y).state
    begun = restart(state, torch.tensor([False, True, False]))
    after = model(x, y, begun).nll
    torch.testing.assert_close(after[:, 1], model(x, y).nll[:, 1])
    torch.testing.assert_close(after[:, [0, 2]], model(x, y, state).nll[:, [0, 2]])
    picked = model(x[:, :2], y[:, :2], select(state, torch.tensor([2, 0]))).nll
    swapped = model(x[:, [1, 0]], y[:, [1, 0]], select(state, torch.tensor([0, 2]))).nll
    torch.testing.assert_close(picked, swapped[:, [1, 0]])


def test_dropouts_act_in_training_alone_and_on_what_they_name():
    x, y = inputs()
    options = ModelOptions(width=64, layers=2, embedding=64, tied=True)
    drops = ("embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout")
    for name in (*drops, "weight_drop", "zoneout"):
        model = build_model(V, ModelOptions(**{**vars(options), name: 0.5}))
        model.eval()
        plain = build_model(V, options).eval()
        plain.load_state_dict(model.state_dict())
        if name != "zoneout":  # which has its mean as its effect then
            torch.testing.assert_close(model(x, y).nll, plain(x, y).nll)
        model.train()
        assert not torch.equal(model(x, y).nll, model(x, y).nll)


def test_dropped_embeddings_are_whole_tokens_everywhere():
    model = build_model(V, ModelOptions(width=6, embedding=8, embedding_dropout=0.5))
    tokens = torch.arange(V).repeat(20, 1)
    found = model.embed(tokens)
    assert torch.equal(found, found[:1].expand_as(found))
    assert model.embedding is not None
    zero = (found[0] == 0).all(-1)
    torch.testing.assert_close(found[0][~zero], 2 * model.embedding.weight[~zero])
    assert 0 < zero.sum() < V


def test_one_mask_for_all_steps():
    model = build_model(V, ModelOptions(width=50, embedding=5, output_dropout=0.4))
    output = model(*inputs())
    kept = output.dropped != 0
    assert (kept == kept[:1]).all()
    assert 0.3 < kept[0].float().mean() < 0.9
    torch.testing.assert_close(output.dropped[kept], output.hidden[kept] / 0.6)


def test_a_cell_of_a_file_makes_a_model(tmp_path):
    save(trace_cell(cells.LSTM(3, 12)), tmp_path / "found.json")
    options = ModelOptions(cell=str(tmp_path / "found.json"), layers=2, embedding=5)
    model = build_model(V, options)
    assert [layer.input_size for layer in model.layers] == [5, 12]
    same = build_model(V, ModelOptions(cell="lstm", width=12, layers=2, embedding=5))
    own = zip(model.state_dict().values(), same.state_dict(), strict=True)
    same.load_state_dict({name: value for value, name in own})
    x, y = inputs()
    torch.testing.assert_close(model(x, y).nll, same(x, y).nll)


def test_the_widths_of_awd_lstm():
    options = ModelOptions(width=1150, layers=3, embedding=400, tied=True)
    with torch.device("meta"):
        model = build_model(10_000, options)
    assert [layer.output_size for layer in model.layers] == [1150, 1150, 400]
    assert count_parameters(model.parameters()) == 24_221_600  # 24M, as published


REFUSED = {
    "the other reads the very tokens": lambda: LanguageModel(
        V, metarnn.LSTM(5, 6, bidirectional=True), embedding=5
    ),
    "time first": lambda: LanguageModel(V, metarnn.LSTM(5, 6, batch_first=True), embedding=5),
    "input_size=7: expected 5": lambda: LanguageModel(V, metarnn.LSTM(7, 6), embedding=5),
    "as wide as the embedding": lambda: LanguageModel(
        V, metarnn.LSTM(5, 6), embedding=5, tied=True
    ),
    "False with one-hot": lambda: LanguageModel(V, metarnn.LSTM(V, 6), tied=True),
    "at least one": lambda: LanguageModel(V, []),
    "Did you mean 'lstm'": lambda: build_model(V, ModelOptions(cell="lst")),
    "qrnn has none": lambda: build_model(V, ModelOptions(cell="qrnn", layer_norm=True)),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_makes_no_language_model_is_refused_with_the_reason(why):
    with pytest.raises(ValueError, match=why):
        REFUSED[why]()


@pytest.mark.medium
@pytest.mark.parametrize("cell", ["lstm", "gru", "sru", "mingru"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_budget_of_parameters_is_used_up_and_never_passed(cell, tied):
    options = ModelOptions(cell=cell, layers=2, embedding=64, tied=tied, params="1M")
    found = solved(100, options)
    size = count_parameters(build_model(100, options).parameters())
    wider = ModelOptions(**{**vars(found), "width": found.width + 1})
    assert size <= 1_000_000 < count_parameters(build_model(100, wider).parameters())
    assert size > 990_000


def test_a_budget_that_cannot_be_met_is_refused():
    with pytest.raises(ValueError, match="what a model of width 1 has"):
        build_model(100, ModelOptions(params="1k"))
    with pytest.raises(ValueError, match="does not grow"):
        solve_width(100, lambda width: nn.Linear(2, 2))


def test_numbers_of_parameters_as_people_write_them():
    assert [parse_count(text) for text in ("5M", "250k", "1.5b", "1_000", 7)] == [
        5_000_000,
        250_000,
        1_500_000_000,
        1000,
        7,
    ]
    for text in ("", "M", "-5M", "nan", "inf", "five"):
        with pytest.raises(ValueError, match="number of parameters"):
            parse_count(text)


@pytest.mark.parametrize("tied", [False, True])
def test_logits_in_parts_change_nothing(tied, monkeypatch):
    x, y = inputs()
    model = build_model(V, ModelOptions(width=6, embedding=6, tied=tied))
    found = []
    for most in (1 << 25, 2 * V):
        monkeypatch.setattr(module, "LOGITS", most)
        loss = model(x, y).nll
        found.append((loss, torch.autograd.grad(loss.mean(), list(model.parameters()))))
    torch.testing.assert_close(found[0], found[1])


def test_a_fresh_model_is_about_as_good_as_guessing():
    x, y = inputs(50, 8)
    model = build_model(V, ModelOptions(width=32, embedding=16))
    assert model(x, y).nll.mean().item() == pytest.approx(math.log(V), rel=0.05)
