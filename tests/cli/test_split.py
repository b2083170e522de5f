"""One model on one split has one score, and a run that begins again has the same weights."""

import shutil

import numpy as np
import pytest

from metarnn.cli.main import main
from metarnn.graph.files import document
from metarnn.runs.tasks import open_run
from metarnn.tasks.split import FILE, Split
from metarnn.training.progress import scores_in_words

pytestmark = pytest.mark.medium

COMMON = ["--steps", "4", "--validate-every", "2", "--device", "cpu", "--width", "4"]
QUICK = {
    "lm": ["--embedding", "4", "--batch", "2", "--length", "8", "--engine", "eager"],
    "translation": ["--embedding", "4", "--batch", "4", "--engine", "eager"],
    "classification": ["--batch", "4", "--engine", "eager", "--split", "60/20/20"],
    "forecasting": ["--batch", "4", "--engine", "eager", "--horizon", "2", "--members", "1"],
    "fewshot": ["--family", "characters", "--method", "maml", "--batch", "2", "--tasks", "2",
                "--length", "8", "--shots", "2", "--queries", "2"],
}  # fmt: skip


def texts(folder):
    folder.mkdir()
    for k in range(12):
        words = np.random.default_rng(k).choice(["ab ", "cd ", "efg "], 200)
        (folder / f"{k:02}.txt").write_text("".join(words))
    return folder


def pairs(folder):
    rows = [f"word {k}\t{k:03}" for k in range(120)]
    return written(folder / "pairs.tsv", "\n".join(rows) + "\n")


def labelled(folder):
    random = np.random.default_rng(0)
    path = folder / "labelled.npz"
    x = random.standard_normal((60, 5, 2)).astype(np.float32)
    np.savez(path, x=x, y=np.arange(60) % 3)
    return path


def series(folder):
    rows = "".join(f"2020-{1 + k // 28:02}-{1 + k % 28:02},{k % 7}\n" for k in range(200))
    return written(folder / "series.csv", "date,value\n" + rows)


def written(path, text):
    path.write_text(text)
    return path


DATA = {
    "lm": lambda folder: texts(folder / "texts"),
    "translation": pairs,
    "classification": labelled,
    "forecasting": series,
    "fewshot": lambda folder: texts(folder / "tasks"),
}


def train(task, data, out, *flags):
    arguments = ["--data", str(data), "--out", str(out), *COMMON, *QUICK[task], *flags]
    assert main(["train", task, *arguments]) == 0
    return out


def scores(run):
    opened = open_run(run)
    job = opened.prepare()
    model = opened.weights(job.model)
    return job.task.evaluate(model, opened.entry.held_out(job))


def edited(task, data):
    """Change one example of the test data, or of all where files do not tell which they are."""
    if task == "classification":
        arrays = dict(np.load(data))
        np.savez(data, x=arrays["x"] + 1, y=arrays["y"])
        return
    for path in [data] if data.is_file() else sorted(data.iterdir()):
        path.write_text(path.read_text()[:-2] + "5\n")


@pytest.mark.parametrize("task", DATA)
def test_runs_of_two_seeds_have_the_same_split_and_changed_data_are_refused(task, tmp_path, capsys):
    data = DATA[task](tmp_path)
    runs = [train(task, data, tmp_path / str(seed), "--seed", str(seed)) for seed in (0, 1)]
    parts = [document(run / FILE) for run in runs]
    assert parts[0] == parts[1]
    assert set(parts[0]) == {"train", "valid", "test"}
    said = capsys.readouterr().out
    again = scores(runs[1])
    assert scores_in_words(again) in said
    assert main(["evaluate", str(runs[1])]) == 0
    name, value = next(iter(again.items()))
    rows = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines()[: len(again)])
    assert float(rows[name].replace(",", "")) == pytest.approx(value, abs=1e-6)

    edited(task, data)
    with pytest.raises(ValueError, match="has changed since the run"):
        open_run(runs[1]).prepare()
    config = (runs[1] / "config.toml").read_text()
    assert main(["train", task, "--out", str(runs[1]), "--resume", "--steps", "6"]) == 2
    assert (runs[1] / "config.toml").read_text() == config


def test_a_run_without_a_stored_split_is_refused(tmp_path):
    run = train("classification", labelled(tmp_path), tmp_path / "run")
    (run / FILE).unlink()
    with pytest.raises(ValueError, match="did not store which"):
        open_run(run).prepare()


def test_all_runs_of_a_comparison_have_the_split_of_its_study(tmp_path):
    out, data = tmp_path / "study", labelled(tmp_path)
    flags = ["--steps", "3", "--contenders", "1", "--params", "400", "--device", "cpu", "--compare"]
    assert main(["learn", str(data), "--out", str(out), *flags]) == 0
    rows = {row["name"]: row for row in document(out / "verdict.json")["rows"]}
    for name in ("GRU with the task's settings", "LSTM with the winner's settings"):
        run = out / "verdict" / f"{name.replace(' ', '-')}-0"
        assert Split.read(run) == Split.read(out)
        opened = open_run(run)
        job = opened.prepare()
        scores = job.task.evaluate(opened.weights(job.model), "test")
        assert scores["accuracy"] == rows[name]["scores"][0]["accuracy"]


@pytest.mark.parametrize("task", DATA)
def test_a_run_killed_before_its_first_checkpoint_ends_with_the_same_weights(task, tmp_path):
    data = DATA[task](tmp_path)
    first = train(task, data, tmp_path / "first", "--seed", "3")
    described = [path for path in first.iterdir() if path.suffix in (".json", ".toml")]
    kept = [path.name for path in sorted(described, key=lambda path: path.stat().st_mtime_ns)]
    for count in range(len(kept) + 1):
        again = tmp_path / f"again{count}"
        again.mkdir()
        for name in kept[:count]:
            shutil.copy(first / name, again)
        train(task, data, again, "--seed", "3", "--resume")
        weights = [(run / "model.safetensors").read_bytes() for run in (first, again)]
        assert weights[0] == weights[1], kept[:count]
