"""A folder is read as far as it can be; what cannot be read is said."""

import json
import math

import pytest

from metarnn.report import materials
from metarnn.report.materials import Judged, curve, gather
from metarnn.search.verdict import Row
from tests.helpers.study import UNITS, make_study


def test_a_study_is_read_whole(tmp_path):
    found = gather(make_study(tmp_path / "study"))
    assert not found.missing
    assert found.task == "lm"
    assert found.verdict is not None
    assert [row.name for row in found.verdict.rows] == list(UNITS)
    assert {unit for unit, _ in found.trainings} == set(UNITS)
    assert curve(found.moved, "entropy")[0] == (10, 0.9)
    assert found.found is not None


def test_the_folder_of_a_search_is_no_run_but_tells_how_it_moved(tmp_path):
    folder = make_study(tmp_path / "study") / "search"
    found = gather(folder)
    assert found.is_search
    assert found.task == "lm"
    assert len(found.moved) == 5
    assert found.metrics == []
    assert found.found is not None


@pytest.mark.parametrize("name", ["", "nothing", "file.txt"])
def test_what_is_no_run_is_refused_by_name(name, tmp_path):
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(FileNotFoundError, match=name or "neither config.toml nor learn.json"):
        gather(tmp_path / name)


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    (tmp_path / "config.toml").write_text('task = "lm"\n')
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "valid_nll": 2.0}\n{"step": 2, "val')
    found = gather(tmp_path)
    assert found.curve("valid_nll") == [(1, 2)]
    assert not found.missing


def test_numbers_that_are_none_are_left_out_of_curves(tmp_path):
    (tmp_path / "config.toml").write_text('task = "lm"\n')
    values = ["1e999", "NaN", "true", '"x"', "null", "[1]", "1" + "0" * 400, "2.5"]
    lines = [f'{{"step": {k}, "valid_nll": {value}}}\n' for k, value in enumerate(values)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    found = gather(tmp_path)
    assert found.curve("valid_nll") == [(7, 2.5)]
    assert found.best() == {"nll": 2.5, "step": 7}


@pytest.mark.parametrize(("large", "best"), [(False, "b"), (True, "a")])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_blew_up_is_never_the_best(large, best, bad):
    rows = [
        Row(name, 1, 1, tuple({"score": v} for v in values))
        for name, values in {"bad": [bad, 1.0], "a": [2.0, 4.0], "b": [1.0, 1.5]}.items()
    ]
    assert Judged(tuple(rows), "test", 1, "score", large).best.name == best


BROKEN = {
    "config.toml": "task = ",
    "learn.json": "{",
    "metrics.jsonl": "nothing\nof this\n",
    "search/search.json": "[]",
    "search/cell.json": '{"nodes": 3}',
    "verdict.json": '{"rows": [{"name": "gru"}]}',
    "verdict/gru-0/metrics.jsonl": "\x00\x01",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_file_is_one_line_and_takes_nothing_else_with_it(name, tmp_path):
    folder = make_study(tmp_path / "study")
    (folder / "config.toml").write_text('task = "lm"\n')
    (folder / name).write_text(BROKEN[name])
    found = gather(folder)
    (line,) = found.missing
    assert line.startswith(f"{name} cannot be read: ")
    assert "\n" not in line


@pytest.mark.parametrize(
    "change",
    [
        {"rows": []},
        {"rows": None},
        {"rows": [{"name": "a", "width": 1, "parameters": 1, "scores": []}]},
        {"rows": [{"name": "a", "width": 1, "parameters": 1, "scores": [{"nll": "x"}]}]},
        {"steps": "many"},
        {"rows": [
            {"name": "a", "width": 1, "parameters": 1, "scores": [{"nll": 1}, {"bpc": 1}]},
        ]},
    ],
)  # fmt: skip
def test_a_verdict_that_makes_no_sense_is_left_out(change, tmp_path):
    folder = make_study(tmp_path / "study")
    known = json.loads((folder / "verdict.json").read_text())
    (folder / "verdict.json").write_text(json.dumps({**known, **change}))
    found = gather(folder)
    assert found.verdict is None
    assert len(found.missing) == 1


def test_metrics_beyond_what_memory_is_for_are_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(materials, "MEASURED", 400)
    study = make_study(tmp_path / "study")
    found = gather(study)
    assert not any(found.trainings.values()), "ten of them share these bytes"
    assert "verdict/gru-0/metrics.jsonl cannot be read" in "\n".join(found.missing)
    assert "expected at most 40" in "\n".join(found.missing)


@pytest.mark.parametrize("value", ["1e999", "1" + "0" * 400, "[]", "{}", '"x"', "null"])
@pytest.mark.parametrize("name", ["width", "scores", "name"])
def test_a_verdict_with_anything_in_it_is_read_or_named(name, value, tmp_path):
    study = make_study(tmp_path / "study")
    known = json.loads((study / "verdict.json").read_text())
    known["rows"][1][name] = "HERE"
    (study / "verdict.json").write_text(json.dumps(known).replace('"HERE"', value))
    found = gather(study)
    assert (found.verdict is None) == any("verdict.json" in line for line in found.missing)
