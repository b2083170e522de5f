"""One model on one split has one score, whoever says it."""

import json
import re
from statistics import fmean

import pytest

from metarnn.cli.main import main
from metarnn.graph.files import document
from metarnn.report.write import write_report
from metarnn.runs.tasks import open_run
from metarnn.search.verdict import VALID
from metarnn.tasks.task import COUNTS
from metarnn.training.progress import scores_in_words
from tests.helpers.sources import SOURCES

pytestmark = pytest.mark.medium

BRIEF = ["--steps", "4", "--validate-every", "2", "--device", "cpu"]


SEARCH = [
    "--strategy", "random", "--candidate-steps", "1", "--finalists", "1", "--finalist-steps", "1",
    "--random-units", "1", "--steps", "2", "--seeds", "2", "--verdict-steps", "2",
    "--search-width", "4", "--params", "3k", "--device", "cpu",
]  # fmt: skip


def table(page, title):
    """The rows of a table of a page, as texts."""
    (body,) = re.findall(rf'<section id="{title}".*?</section>', page, re.DOTALL)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in row] for row in cells]


def assert_printed(scores, said):
    """`metarnn evaluate` printed these scores."""
    lines = [line.split() for line in said.splitlines()]
    scored = [line for line in lines if len(line) == 2 and line[0] in scores]
    printed = {name: value.replace(",", "") for name, value in scored[: len(scores)]}
    for metric, value in scores.items():
        exact = float(value).is_integer()
        assert printed[metric] == (f"{value:.0f}" if exact else f"{value:.6f}"), metric


@pytest.mark.parametrize("name", [name for name in SOURCES if "fewshot" not in name])
def test_train_evaluate_report_and_python_agree_on_a_score(name, tmp_path, capsys, monkeypatch):
    source = SOURCES[name]
    source.shrink(monkeypatch)
    data = source.write(tmp_path)
    counts = set()
    for seed in (0, 1):
        out = tmp_path / f"run{seed}"
        arguments = [*source.arguments(data), *BRIEF, "--seed", str(seed), "--out", str(out)]
        assert main(["train", source.task, *arguments]) == 0
        train = capsys.readouterr().out

        run = open_run(out)
        job = run.prepare()
        model = run.weights(job.model)
        split = run.entry.held_out(job)
        scores = {s: job.task.evaluate(model, s) for s in ("valid", split)}
        held_out = scores[split]
        counts.add(tuple(held_out.get(count) for count in sorted(COUNTS)))
        assert f"{split}, with the weights of step" in train
        assert scores_in_words(held_out) in train

        assert main(["evaluate", str(out)]) == 0
        assert_printed(held_out, capsys.readouterr().out)

        metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        ended = json.loads((out / "ended.json").read_text())
        assert ended["step"] == 4
        validations = [line for line in metrics if any(key.startswith("valid_") for key in line)]
        stored = [{k.removeprefix("valid_"): v for k, v in line.items()} for line in validations]
        assert any(scores["valid"].items() <= line.items() for line in stored)
        recorded = [line for line in metrics if "simple_rules" in line]
        (line,) = recorded
        assert {f"{split}_{metric}": value for metric, value in held_out.items()}.items() <= (
            line.items()
        )

        page = write_report([out]).read_text()
        head, *rows = table(page, "rules")
        (own,) = [row for row in rows if row[0] == "this model"]
        shown = dict(zip(head[1:], own[1:], strict=True))
        assert shown
        for title, value in shown.items():
            assert value == f"{held_out[title.removesuffix(f' ({split})')]:.4f}"
        first, value = next(iter(scores["valid"].items()))
        assert f"reaches {first} {value:.4f} in validation" in page
    assert len(counts) == 1


@pytest.mark.parametrize(
    "name", ["lm, folder", "translation, file", "classification, file", "forecasting, file"]
)
def test_a_verdict_says_of_its_models_what_evaluate_and_python_say(name, tmp_path, capsys):
    source, out = SOURCES[name], tmp_path / "search"
    arguments = [*source.arguments(source.write(tmp_path)), *SEARCH, "--out", str(out)]
    assert main(["search", source.task, *arguments]) == 0
    verdict = json.loads((out / "verdict.json").read_text())
    path, again = out, {}
    for row in verdict["rows"]:
        for seed, scores in enumerate(row["scores"]):
            path = out / "verdict" / f"{row['name']}-{seed}"
            assert document(path / "scores.json") == scores
            run = open_run(path)
            job = run.prepare()
            assert run.entry.held_out(job) == verdict["split"]
            again = job.task.evaluate(run.weights(job.model), verdict["split"])
            assert again == {k: v for k, v in scores.items() if k != VALID}
    capsys.readouterr()
    assert main(["evaluate", str(path)]) == 0
    assert_printed(again, capsys.readouterr().out)
    head, *rows = table(write_report([out]).read_text(), "verdict")
    for row in verdict["rows"]:
        (cells,) = [each for each in rows if each[0].lower().startswith(row["name"])]
        shown = dict(zip(head, cells, strict=True))[verdict["metric"]]
        mean = fmean(scores[verdict["metric"]] for scores in row["scores"])
        assert shown.startswith(f"{mean:.4f}")
