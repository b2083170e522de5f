"""A run stopped and resumed ends bit for bit where an uninterrupted one does."""

import json
import signal
from dataclasses import replace

import pytest

from tests.helpers.toy import QUICK, same, train

pytestmark = pytest.mark.medium

CASES = {
    "adamw": QUICK,
    "momentum": replace(QUICK, optimizer="sgd", lr=0.5, momentum=0.9),
    "sgd": replace(QUICK, optimizer="sgd", lr=0.5),
    "ema": replace(QUICK, ema=0.9, schedule="cosine", warmup=5, weight_decay=0.1),
    "nt-asgd": replace(QUICK, optimizer="sgd", lr=5.0, nonmono=1, validate_every=4),
    "parts": replace(QUICK, accumulate=4),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_was_interrupted_thrice_ends_like_one_that_was_not(tmp_path, name):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, CASES[name])
    for when, number in ((0, signal.SIGINT), (23, signal.SIGTERM), ("valid", signal.SIGTERM)):
        _, result = train(parts, CASES[name], resume=True, signals={when: number})
        assert (result.reason, result.signal) == ("interrupted", number)
        assert not same(whole, parts)
    _, result = train(parts, CASES[name], resume=True)
    assert result.reason == "steps"
    assert same(whole, parts)


def test_the_averages_of_nt_asgd_are_in_use_where_that_is_tested(tmp_path):
    trainer, _ = train(tmp_path / "run", CASES["nt-asgd"])
    assert 5 < trainer.average.count < 40


def test_metrics_have_each_line_once_and_the_same_numbers(tmp_path):
    def lines(out):
        text = (out / "metrics.jsonl").read_text().splitlines()
        timing = ("seconds", "tokens_per_second", "blake2b")
        found = [json.loads(line) for line in text]
        return [{k: v for k, v in line.items() if k not in timing} for line in found]

    train(tmp_path / "whole")
    for when in (17, "valid", 31):
        train(tmp_path / "parts", resume=True, signals={when: signal.SIGTERM})
    train(tmp_path / "parts", resume=True)
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")
    assert [line["step"] for line in lines(tmp_path / "whole") if "valid_nll" in line] == [
        10, 20, 30, 40,
    ]  # fmt: skip
