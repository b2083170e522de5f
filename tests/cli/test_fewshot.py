"""`metarnn train fewshot`, `metarnn adapt`, `metarnn evaluate`, in this process."""

import pytest
from safetensors.torch import load_file

from metarnn.cli.main import main
from tests.tasks.fewshot.test_families import write_classes

SHORT = ["--steps", "2", "--batch", "2", "--width", "4", "--tasks", "4", "--device", "cpu"]


def train(out, *flags):
    assert main(["train", "fewshot", *SHORT, "--out", str(out), *flags]) == 0


def fails(arguments, capsys):
    assert main(arguments) == 2
    return capsys.readouterr().err


@pytest.mark.medium
def test_from_training_to_predictions_of_a_new_task(tmp_path, capsys):
    run, support, query = tmp_path / "run", tmp_path / "support.csv", tmp_path / "query.csv"
    train(run)
    said = capsys.readouterr().out
    assert "maml, 5 shots, 4 tasks never seen, not transductive" in said
    assert "mse after 10" in said
    main(["evaluate", str(run)])
    assert "mse_after_5_interval" in capsys.readouterr().out
    support.write_text("x,y\n1,2\n2,3\n")
    query.write_text("1\n2\n3\n")
    out = tmp_path / "adapted.safetensors"
    main(["adapt", str(run), "--support", str(support), "--query", str(query), "--out", str(out)])
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 3
    assert "loss on the support (2 examples): " in said.err
    weights = load_file(out)
    before = load_file(run / "model.safetensors")
    assert weights["head.bias"].shape == (1,)
    assert any((weights[n] != before[f"network.{n}"]).any() for n in weights)


@pytest.mark.medium
def test_a_trajectory_is_continued(tmp_path, capsys):
    train(tmp_path / "run", "--preset", "vanderpol", "--method", "hyper-metadata")
    rows = "\n".join(f"{k / 10},{-k / 10}" for k in range(20))
    (tmp_path / "path.csv").write_text(rows)
    call = ["adapt", str(tmp_path / "run"), "--support", str(tmp_path / "path.csv")]
    capsys.readouterr()
    main([*call, "--about", "mu=2.5", "k=1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert all(len(line.split(",")) == 2 for line in lines)
    assert "what Metadata describes" in fails(call, capsys)
    assert "expected one of ['mu', 'k']" in fails([*call, "--about", "nu=1"], capsys)
    main(["report", str(tmp_path / "run")])
    assert "from blue to orange with mu" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.medium
def test_new_classes_are_told_apart(tmp_path, capsys):
    write_classes(tmp_path / "data", 12)
    flags = ["--preset", "sequences", "--data", str(tmp_path / "data"), "--ways", "2"]
    train(tmp_path / "run", *flags, "--queries", "1", "--method", "prototypical")
    write_classes(tmp_path / "new", 2, examples=2)
    query = tmp_path / "new" / "class1"
    capsys.readouterr()
    call = ["adapt", str(tmp_path / "run"), "--support", str(tmp_path / "new")]
    main([*call, "--query", str(query)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.split(",")[0] in ("class0", "class1") for line in lines)
    assert "has no weights of a task" in fails([*call, "--out", str(tmp_path / "w")], capsys)


@pytest.mark.medium
def test_a_model_of_characters_adapts_to_a_text(tmp_path, capsys):
    (tmp_path / "texts").mkdir()
    for k in range(5):
        (tmp_path / "texts" / f"{k}.txt").write_text(f"so many words {k} " * 40)
    flags = ["--preset", "characters", "--data", str(tmp_path / "texts"), "--length", "8"]
    train(tmp_path / "run", *flags)
    (tmp_path / "new.txt").write_text("many new words " * 9)
    capsys.readouterr()
    new = str(tmp_path / "new.txt")
    main(["adapt", str(tmp_path / "run"), "--support", new, "--query", new])
    assert "nats on the query" in capsys.readouterr().err


def test_data_that_are_missing_are_named(tmp_path, capsys):
    call = ["train", "fewshot", *SHORT, "--out", str(tmp_path / "run"), "--family", "sequences"]
    assert main(call) == 2
    assert "a folder with a folder for each class" in capsys.readouterr().err
    assert main([*call, "--data", str(tmp_path / "none")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_a_run_of_another_kind_is_refused(tmp_path, capsys):
    (tmp_path / "config.toml").write_text('task = "lm"\n')
    said = fails(["adapt", str(tmp_path), "--support", "none.csv"], capsys)
    assert "a few-shot learner; this is one of 'lm'" in said
