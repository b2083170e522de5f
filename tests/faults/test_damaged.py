"""A bit of a run's files that flips is an error that names the file, or changes nothing."""

import shutil
from pathlib import Path

import pytest
import torch

from metarnn.cli.main import main
from metarnn.graph import read as read_cell
from metarnn.graph import to_json
from metarnn.graph.files import document
from metarnn.tasks.pretrained import from_pretrained, save_pretrained
from metarnn.training import Folder, checkpoint, config
from metarnn.training.metrics import read_lines
from tests.cli.test_split import DATA, train
from tests.helpers.toy import QUICK, equal, same
from tests.helpers.toy import train as train_toy

pytestmark = pytest.mark.medium

SAMPLES = 50  # of the bytes of a larger file


@pytest.fixture(scope="module", params=DATA)
def run(request, tmp_path_factory):
    """A run of each task."""
    folder = tmp_path_factory.mktemp(request.param)
    return train(request.param, DATA[request.param](folder), folder / "run", "--save-every", "1")


def content_of(path: Path):
    """What is read from a file of a run."""
    if path.suffix == ".toml":
        return config.read(path)
    if path.suffix == ".jsonl":
        return read_lines(path)
    if path.name in ("cell.json", "decoder.json"):
        return to_json(read_cell(path))
    if path.suffix == ".json":
        return document(path)
    is_checkpoint = path.parent.name == "checkpoints"
    return checkpoint.load(path) if is_checkpoint else checkpoint.read_weights(path)


def flip(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def test_every_flipped_bit_is_noticed_or_changes_nothing(run, tmp_path):
    files = [path for path in run.rglob("*") if path.is_file() and path.name != ".lock"]
    assert {path.suffix for path in files} == {".toml", ".json", ".jsonl", ".safetensors"}
    noticed = 0
    for path in files:
        data, expected = path.read_bytes(), content_of(path)
        other = tmp_path / path.relative_to(run)
        other.parent.mkdir(exist_ok=True)
        step = max(len(data) // SAMPLES, 1)
        for at in (*range(0, len(data) - 1, step), len(data) - 1):
            other.write_bytes(flip(data, at, at % 8))
            case = f"{path.name}, byte {at}"
            try:
                found = content_of(other)
            except ValueError as error:
                found = error
            if isinstance(found, ValueError):
                assert path.name in str(found), case
                noticed += 1
            else:
                assert _same(found, expected), case
    assert noticed > 400


def _same(found, expected):
    """Whether nothing but the name of a checksum has changed."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    return equal(found, expected)


@pytest.mark.parametrize("command", ["evaluate", "resume"])
def test_commands_name_the_damaged_file_or_print_the_same(run, tmp_path, command, capsys):
    task = config.read(run / "config.toml")["task"]
    copy = tmp_path / "run"
    call = {
        "evaluate": ["evaluate", str(copy), "--device", "cpu"],
        "resume": ["train", task, "--out", str(copy), "--resume", "--steps", "5"],
    }[command]
    results = {}
    for name in ("", *(path.name for path in run.iterdir() if path.is_file())):
        shutil.copytree(run, copy)
        if name and (data := (run / name).read_bytes()):
            (copy / name).write_bytes(flip(data, 2 * len(data) // 3, 0))
        code = main(call)
        output = capsys.readouterr()
        scores = [line for line in output.out.splitlines() if "ended after" not in line]
        results[name] = code, scores
        shutil.rmtree(copy)
        if code:
            assert code == 2
            assert name in output.err
            continue
        assert scores == results[""][1]
    refused = {name for name, (code, _) in results.items() if code}
    assert refused >= {"config.toml", "split.json"}
    assert command == "resume" or "model.safetensors" in refused


def test_of_a_damaged_checkpoint_the_one_before_is_taken(tmp_path, capsys):
    train_toy(tmp_path / "whole")
    for at in range(7):
        out = tmp_path / f"run{at}"
        train_toy(out, signals={18: 15})
        folder = Folder(out)
        steps = [
            checkpoint.load(path)["position"]["step"] for path in (folder.last, folder.earlier)
        ]
        assert steps == [19, 15]
        data = folder.last.read_bytes()
        folder.last.write_bytes(flip(data, at * len(data) // 7, at))
        said = []
        state = Folder(out).read_last(said.append)
        assert state is not None
        assert state["position"]["step"] == 15
        assert "last.safetensors is damaged" in said[0]
        train_toy(out, resume=True)
        assert same(tmp_path / "whole", out)
        assert not folder.earlier.exists()


def test_where_both_checkpoints_are_damaged_the_last_is_named(tmp_path):
    train_toy(tmp_path, signals={18: 15})
    folder = Folder(tmp_path)
    for path in (folder.last, folder.earlier):
        path.write_bytes(flip(path.read_bytes(), 500, 3))
    with pytest.raises(checkpoint.CheckpointError, match=r"last.safetensors is damaged"):
        train_toy(tmp_path, resume=True)


def test_a_damaged_line_of_metrics_is_named_before_a_training_goes_on(tmp_path):
    train_toy(tmp_path, signals={18: 15})
    path = Folder(tmp_path).metrics
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = flip(lines[1], 20, 0)
    path.write_bytes(b"".join(lines))
    with pytest.raises(ValueError, match=r"metrics.jsonl, line 2"):
        train_toy(tmp_path, resume=True)


def test_an_edited_configuration_is_refused_until_its_checksum_is_removed(tmp_path):
    path = tmp_path / "config.toml"
    config.save(path, "lm", QUICK)
    path.write_text(path.read_text().replace("lr = 0.02", "lr = 0.03"))
    with pytest.raises(ValueError, match=r"config.toml .*edited.*remove its entry 'blake2b'"):
        config.read(path)
    assert config.read(path, edited=True)["lr"] == 0.03
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    assert config.read(path)["lr"] == 0.03


def test_files_without_a_checksum_are_read_as_before(tmp_path):
    from safetensors.torch import save_file

    save_file({"w": torch.ones(2)}, tmp_path / "w.safetensors")
    assert checkpoint.read_weights(tmp_path / "w.safetensors")["w"].equal(torch.ones(2))
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert document(tmp_path / "a.json") == {"a": 1}


def test_pretrained_weights_are_verified(tmp_path):
    from metarnn.tasks.classification import ClassifierOptions, build_model, load

    model = build_model(load("digits").scheme, ClassifierOptions(width=4))
    save_pretrained(model, tmp_path)
    path = tmp_path / "model.safetensors"
    assert equal(checkpoint.read_weights(path), dict(model.state_dict()))
    data = path.read_bytes()
    path.write_bytes(flip(data, len(data) - 3, 2))
    with pytest.raises(ValueError, match=r"model.safetensors is damaged"):
        from_pretrained(tmp_path)
