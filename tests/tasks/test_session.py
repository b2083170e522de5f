"""Streams that are fed step by step are what whole sequences are."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from metarnn.layers import GRU, LSTM
from metarnn.tasks.classification import Classifier, ClassifierOptions, Scheme
from metarnn.tasks.language import ModelOptions, build_model
from metarnn.tasks.pretrained import from_pretrained, save_pretrained
from metarnn.tasks.session import Session


def test_streams_that_come_and_go_have_states_of_their_own():
    layer = LSTM(3, 5, 2).eval()
    session = Session(layer)
    x = {name: torch.randn(6, 3) for name in "abc"}
    at, found = dict.fromkeys("abc", 0), {name: [] for name in "abc"}
    for names in ("a", "ab", "cb", "abc", "ca", "b", "bac", "abc"):
        y = session.feed(torch.stack([x[n][at[n]] for n in names]), names)
        for n, row in zip(names, y, strict=True):
            found[n].append(row)
            at[n] += 1
    for name, rows in found.items():
        with torch.no_grad():
            whole, _ = layer(x[name][: at[name]].unsqueeze(1))
        torch.testing.assert_close(torch.stack(rows), whole.squeeze(1))


def test_a_stream_that_ended_begins_anew_and_leaves_the_others_alone():
    session = Session(GRU(3, 5))
    x = torch.randn(3, 2, 3)
    first = session.feed(x[0], ["a", "b"])
    session.end(["a"])
    again = session.feed(x[0], ["a", "c"])
    torch.testing.assert_close(first, again)
    assert session.streams == ["b", "a", "c"]
    with pytest.raises(ValueError, match="has begun"):
        session.end(["z"])


@pytest.mark.parametrize("pool", ["last", "mean", "max", "attention"])
def test_states_are_saved_and_restored(pool, tmp_path):
    scheme = Scheme("one", ("a", "b"), 3, mean=(0, 0, 0), std=(1, 1, 1))
    options = ClassifierOptions(width=6, layers=2, bidirectional=False, pool=pool)
    model = Classifier(scheme, options)
    session, x = Session(model), torch.randn(4, 2, 3)
    for t in range(3):
        session.feed(x[t], ["u", "v"])
    session.save(tmp_path / "states")
    other = Session(model)
    other.restore(tmp_path / "states")
    told = session.feed(x[3], ["u", "v"])
    torch.testing.assert_close(other.feed(x[3].flip(0), ["v", "u"]).flip(0), told)
    torch.testing.assert_close(told, model(x, torch.tensor([4, 4])))


def test_a_language_model_from_its_folder(tmp_path):
    model = build_model(20, ModelOptions(width=8, layers=2, embedding=4)).eval()
    save_pretrained(model, tmp_path)
    session = Session.load(tmp_path)
    tokens = torch.randint(20, (5, 3))
    told = torch.stack([session.feed(row) for row in tokens])
    with torch.no_grad():
        torch.testing.assert_close(-told, model(tokens).nll)
    assert from_pretrained(tmp_path) is not model


def test_what_cannot_be_streamed_is_refused(tmp_path):
    with pytest.raises(ValueError, match="with a step"):
        Session(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="different ones"):
        Session(GRU(2, 2)).feed(torch.randn(2, 2), ["a", "a"])
    with pytest.raises(FileNotFoundError, match=r"model\.json"):
        Session.load(tmp_path)
    (tmp_path / "broken").write_bytes(b"no")
    with pytest.raises(ValueError, match="cannot be restored"):
        Session(GRU(2, 2)).restore(tmp_path / "broken")


@pytest.mark.medium
def test_many_streams_at_once_are_much_faster_than_one_by_one():
    layer, x = GRU(16, 64), torch.randn(1000, 16)
    together, apart = Session(layer), Session(layer)
    together.feed(x)
    began = time.perf_counter()
    for _ in range(10):
        together.feed(x)
    fast = (time.perf_counter() - began) / 10 / 1000
    apart.feed(x[:1])
    began = time.perf_counter()
    for _ in range(500):
        apart.feed(x[:1])
    slow = (time.perf_counter() - began) / 500
    assert slow > 10 * fast  # measured alone: see docs/results.md


def test_threads_may_share_a_session():
    layer = GRU(2, 3)
    session, interval = Session(layer), sys.getswitchinterval()
    x = torch.randn(20, 4, 2)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            feeds = [pool.submit(_feed_all, session, x[:, k], f"stream {k}") for k in range(4)]
            outputs = torch.stack([feed.result() for feed in feeds], 1)
    finally:
        sys.setswitchinterval(interval)
    torch.testing.assert_close(outputs, layer(x)[0].detach())


def _feed_all(session, rows, name):
    return torch.cat([session.feed(row[None], [name]) for row in rows])
