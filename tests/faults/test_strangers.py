"""What a stranger's file asks for beside being read: memory without end, other files, code."""

import grp
import gzip
import io
import json
import os
import pickle
import pwd
import re
import struct
import time
import zipfile
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from metarnn import GraphCell, cells, graph
from metarnn.engines.cpu import compile as compiling
from metarnn.engines.cpu import program as c
from metarnn.engines.cpu.projections import all_gradients, input_projections
from metarnn.engines.plan import plan_loop
from metarnn.engines.triton import emit as triton
from metarnn.graph import files
from metarnn.report import materials
from metarnn.tasks.classification import formats
from metarnn.tasks.classification.images import read_image
from metarnn.tasks.forecasting.series import read_csv
from metarnn.tasks.language import Vocabulary
from metarnn.tasks.look.content import count
from metarnn.tasks.look.content import lines as look_lines
from metarnn.tasks.pretrained import described
from metarnn.tasks.translation.pairs import lines
from metarnn.training import Folder, FolderError, checkpoint, config
from metarnn.training.metrics import Metrics
from tests.faults.parsers import PARSERS, png
from tests.faults.test_hostile_files import little_memory
from tests.helpers.toy import QUICK, train

HUGE = 10**12


def safetensors(header: dict, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def npz(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def npy(shape: str, data: bytes = b"") -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


TENSOR = {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE]}
OBJECTS = io.BytesIO()
np.savez(OBJECTS, x=np.array([{"a": 1}, print], dtype=object))


def many_zeros() -> bytes:
    return gzip.compress(bytes(1 << 27), 1)


# What it is called, what is in it (or makes it), who reads it, and what is said.
BOMBS = {
    "a checkpoint of 10¹² numbers": (
        "c.safetensors", safetensors({"w": TENSOR}), checkpoint.load, "4,000,000,000,000 bytes",
    ),
    "an array of 10¹² numbers": (
        "x.npz", npz(("x.npy", npy(f"({HUGE},)"))), formats.read, "1000000000000",
    ),
    "10¹² empty sequences": (
        "x.npz", npz(("x.npy", npy(f"({HUGE}, 0)"))), formats.read, "1000000000000",
    ),
    "many zeros in few bytes": (
        "x.npz", lambda: npz(("x.npy", npy(f"({1 << 25},)", bytes(1 << 27)))), formats.read,
        "unpacks to",
    ),
    "Python's objects": ("x.npz", OBJECTS.getvalue(), formats.read, "expected numbers or texts"),
    "many zeros by gzip": (
        "x.tsv.gz", many_zeros, lines, "unpacks to more than",
    ),
    "many zeros by gzip, looked at": (
        "x.tsv.gz", many_zeros, count, "unpacks to more than",
    ),
    "an image of 10¹⁸ pixels": (
        "x.png", png(2**31 - 1, 2**31 - 1, b""), read_image, "2,147,483,647 × 2,147,483,647",
    ),
    "an image that unpacks to more than its pixels": (
        "x.png", png(2, 2, bytes(1 << 25)), None, "",
    ),
    "a grey image of 10¹⁸ pixels": (
        "x.pgm", b"P5 1000000000 1000000000 255\n" + bytes(100), read_image, "pixels",
    ),
    "many channels of which one has many steps": (
        "x.ts", b"@data\n" + b"1," * 9999 + b"1" + b":1" * 9999 + b":a\n", formats.read, "missing",
    ),
    "a date 8000 years after two that are a second apart": (
        "x.csv", b"date,a\n2000-01-01T00:00:00,1\n2000-01-01T00:00:01,1\n9999-01-01T00:00:00,1\n",
        read_csv, "too many to fill in",
    ),
}  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("what", BOMBS)
def test_sizes_are_checked_before_memory_is_taken(what, tmp_path):
    name, content, read, message = BOMBS[what]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content())
    before = time.monotonic()
    with little_memory():
        if read is None:
            assert read_image(path).shape == (2, 2, 1)
        else:
            with pytest.raises(ValueError, match=re.escape(message)):
                read(path)
    assert time.monotonic() - before < 5


def test_a_checkpoint_that_is_said_to_be_a_terabyte_is_not_read(tmp_path):
    path = tmp_path / "c.safetensors"
    path.write_bytes(safetensors({"w": {**TENSOR, "data_offsets": [0, 8]}}))
    os.truncate(path, HUGE)  # without taking up the disk
    with pytest.raises(ValueError, match="are there"):
        checkpoint.load(path)
    (tmp_path / "config.toml").write_text("")
    os.truncate(tmp_path / "config.toml", HUGE)
    with pytest.raises(ValueError, match="1,000,000,000,000 bytes"):
        config.read(tmp_path / "config.toml")


@pytest.mark.parametrize("part", ["a", '"!"', "'='", '"\\""'])
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "x = {{ {} = 1 }}", "x = 1\n{} = 1"])
def test_a_key_of_many_dots_is_refused_before_it_takes_time(form, part, tmp_path):
    (tmp_path / "config.toml").write_text(form.format(".".join([part] * 100_000)))
    with pytest.raises(ValueError, match=r"config\.toml: expected keys"):
        config.read(tmp_path / "config.toml")
    (tmp_path / "config.toml").write_text("x = [" + "0.5, " * 1000 + "]\ny = '" + "." * 99 + "'")
    assert len(config.read(tmp_path / "config.toml")["x"]) == 1000


@pytest.mark.medium
@pytest.mark.parametrize("size", [10**12, 10**400, 2**31])
def test_a_model_that_no_memory_could_hold_is_refused(size, tmp_path):
    options = {"cell": "lstm", "width": size, "embedding": 4}
    about = {"kind": "language", "vocabulary_size": 10, "options": options}
    (tmp_path / "model.json").write_text(json.dumps(about))
    with little_memory(), pytest.raises(ValueError, match=r"model\.json describes no model"):
        described(tmp_path)
    about["options"] = {"cell": "lstm", "width": 4, "layers": 10**9}
    (tmp_path / "model.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="at most 128"):
        described(tmp_path)


@pytest.mark.medium
def test_a_forecaster_with_members_without_end_is_refused(tmp_path):
    forecaster = json.loads(PARSERS["model"].valid(tmp_path)[-1])
    forecaster["options"]["members"] = HUGE
    (tmp_path / "model.json").write_text(json.dumps(forecaster))
    with pytest.raises(ValueError, match=r"model\.json describes no model: members.*at most 100"):
        described(tmp_path)


@pytest.mark.medium
@pytest.mark.parametrize("kind", [1, 2])  # a classifier, a forecaster
@pytest.mark.parametrize(
    ("key", "value"),
    [("std", "\ud800"), ("std", None), ("mean", float("nan")), ("std", 0.0), ("std", [1.0, 2.0])],
)
def test_a_model_of_data_that_cannot_be_is_refused(kind, key, value, tmp_path):
    about = json.loads(PARSERS["model"].valid(tmp_path)[kind])
    about["scheme"][key][0] = value if kind == 1 else [value]
    (tmp_path / "model.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=rf"model\.json describes no model: {key}="):
        described(tmp_path)


@pytest.mark.medium
@pytest.mark.parametrize("key", ["horizon", "lookback", "season"])
def test_a_forecast_without_end_is_refused(key, tmp_path):
    about = json.loads(PARSERS["model"].valid(tmp_path)[2])
    about["scheme"][key] = HUGE
    (tmp_path / "model.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=f"{key}=.* at most 1,000,000"):
        described(tmp_path)


READERS = {
    "checkpoint": checkpoint.load,
    "config": config.read,
    "vocabulary": Vocabulary.load,
    "cell": graph.read,
    "csv": formats.read_csv,
    "image": read_image,
    "text": formats.read_text,
    "look": look_lines,
    "metrics": materials._lines,
}


@pytest.mark.parametrize("reader", READERS)
def test_pipes_and_devices_are_refused_at_once(reader, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.symlink("/dev/zero", tmp_path / "zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "zero", "folder"):
        with pytest.raises((ValueError, OSError), match=name):
            READERS[reader](tmp_path / name)


# Paths: what a file names is never a place on the disk, and links are not followed on write.


@pytest.mark.medium
def test_a_model_reads_the_cell_in_its_own_folder_whatever_it_names(tmp_path):
    options = {"cell": "../../../etc/shadow.json", "width": 4}
    about = {"kind": "language", "vocabulary_size": 10, "options": options}
    (tmp_path / "model.json").write_text(json.dumps(about))
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "cell.json"))):
        described(tmp_path)
    graph.save(graph.trace_cell(cells.GRU(10, 4)), tmp_path / "cell.json")
    described(tmp_path)


def test_names_in_an_archive_are_no_paths(tmp_path):
    path = tmp_path / "below" / "x.npz"
    path.parent.mkdir()
    path.write_bytes(npz(("../evil.npy", npy("(1,)", bytes(4))), ("/evil.npy", b"")))
    with pytest.raises(ValueError, match=r"x\.npz"):
        formats.read(path)
    assert [p.name for p in tmp_path.rglob("*")] == ["below", "x.npz"]


def test_a_link_in_the_place_of_a_file_is_replaced_and_its_target_left_alone(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    (tmp_path / "cell.json").symlink_to(precious)
    files.write(tmp_path / "cell.json", "new")
    assert not (tmp_path / "cell.json").is_symlink()
    assert precious.read_text() == "years of work"


@pytest.mark.medium
@pytest.mark.parametrize("name", ["metrics.jsonl", ".lock", "checkpoints"])
def test_nothing_is_written_through_a_link_in_a_run(name, tmp_path):
    train(tmp_path / "run")
    precious = tmp_path / "precious"
    if name == "checkpoints":
        (tmp_path / "run" / name).rename(precious)
    else:
        (tmp_path / "run" / name).unlink()
        precious.write_text("years of work\n" * 100)
    (tmp_path / "run" / name).symlink_to(precious)
    before = _content(precious)
    with pytest.raises((FolderError, OSError), match="symbolic link"):
        train(tmp_path / "run", replace(QUICK, steps=60), resume=True)
    assert _content(precious) == before


def _content(path):
    return [p.read_bytes() for p in sorted(path.iterdir())] if path.is_dir() else path.read_bytes()


def test_metrics_are_not_added_through_a_link(tmp_path):
    (tmp_path / "precious").write_text("years of work")
    (tmp_path / "metrics.jsonl").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic link"):
        Metrics(tmp_path / "metrics.jsonl", 10**6).add(1, {"loss": 1.0})
    assert (tmp_path / "precious").read_text() == "years of work"


def test_leftovers_are_removed_only_inside_the_folder(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / ".model.safetensors.abcdefgh.new").write_text("mine")
    folder = Folder(tmp_path / "run")
    folder.make()
    (folder.path / "link").symlink_to(other)
    (folder.path / ".cell.json.abcdefgh.new").write_text("half")
    with folder.locked(resume=True):
        pass
    assert (other / ".model.safetensors.abcdefgh.new").exists()
    assert not (folder.path / ".cell.json.abcdefgh.new").exists()


# Code: what is generated has no name from a file in it.

HOSTILE = ["system", "main", "exit", "J", "work", "REAL", "s", "tl", "os", "é"]


def renamed(document: str, old: str, new: str) -> str:
    return document.replace(f'"{old}"', json.dumps(new))


@pytest.mark.parametrize("name", HOSTILE)
def test_generated_code_does_not_depend_on_names(name):
    document = graph.to_json(graph.trace_cell(cells.LSTM(3, 4, peephole=True)))
    plain = graph.from_json(document)
    old = next(iter(plain.maps))
    other = graph.from_json(renamed(document, old, name))
    every: list[dict[str, Any]] = [{}, {"backward": True}, {"single": True}]
    for options in every:
        assert c.emit(other, **options).source == c.emit(plain, **options).source
    for backward in (False, True):
        found = [triton.emit(g, backward=backward).source for g in (other, plain)]
        assert found[0] == found[1]
    plans = [plan_loop(GraphCell(g)) for g in (other, plain)]
    found = [c.emit(p.graphs().train, projections=partial(input_projections, p)) for p in plans]
    assert found[0].source == found[1].source
    found = [
        c.emit(p.graphs().backward.graph, backward=True, projections=partial(all_gradients, p))
        for p in plans
    ]
    assert found[0].source == found[1].source
    assert "gemm(" in found[0].source


@pytest.mark.parametrize(
    "name", ['x"); system("true"); //', "a b", "a;b", "a\nb", "a{}", "", "1a", "a-b", "__init__"]
)
def test_what_is_no_identifier_is_no_name(name):
    document = graph.to_json(graph.trace_cell(cells.GRU(3, 4)))
    old = next(iter(graph.from_json(document).maps))
    with pytest.raises(graph.GraphError, match="name"):
        graph.from_json(renamed(document, old, name))


# The cache of compiled code.


def test_the_cache_must_be_ours_and_closed_to_others(tmp_path, monkeypatch):
    cache = tmp_path / "a" / "cache"
    monkeypatch.setenv("METARNN_CACHE", str(cache))
    assert compiling.cache_folder() == cache.resolve()
    assert cache.stat().st_mode & 0o777 == 0o700
    for mode in (0o770, 0o707, 0o777):
        cache.chmod(mode)
        assert compiling.cache_folder() is None
    cache.chmod(0o700)
    cache.parent.chmod(0o777)  # anyone could put another folder in its place
    assert compiling.cache_folder() is None
    cache.parent.chmod(0o1777)
    assert compiling.cache_folder() == cache.resolve()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_someone_else_in_the_cache_is_not_loaded(tmp_path):
    target, seal = tmp_path / "x.so", tmp_path / "x.sha256"
    target.write_bytes(b"code")
    seal.write_text(compiling._digest("x.so", b"code"), encoding="ascii")
    target.chmod(0o600)
    seal.chmod(0o600)
    assert compiling._read_sealed(target, seal) == b"code"
    os.chown(target, 65534, -1)
    assert compiling._read_sealed(target, seal) is None


def test_a_sealed_library_under_another_name_is_not_loaded(tmp_path):
    for name in ("x", "y"):
        path = tmp_path / f"{name}.so"
        path.write_bytes(b"code")
        path.with_suffix(".sha256").write_text(compiling._digest("x.so", b"code"), encoding="ascii")
        for file in (path, path.with_suffix(".sha256")):
            file.chmod(0o600)
    sealed = [compiling._read_sealed(tmp_path / f"{n}.so", tmp_path / f"{n}.sha256") for n in "xy"]
    assert sealed == [b"code", None]


@pytest.mark.parametrize("own_group", [True, False])
def test_a_parent_that_a_group_can_write_is_refused_unless_the_group_is_the_users_own(
    own_group, tmp_path, monkeypatch
):
    parent = tmp_path / "a"
    parent.mkdir()
    parent.chmod(0o770)
    monkeypatch.setenv("METARNN_CACHE", str(parent / "cache"))
    user = pwd.getpwuid(os.getuid()).pw_name
    group = (user, "x", parent.stat().st_gid, [user] if own_group else [user, "mallory"])
    monkeypatch.setattr(grp, "getgrgid", lambda number: grp.struct_group(group))
    assert (compiling.cache_folder() is not None) == own_group


def test_a_library_swapped_after_its_check_does_not_run(tmp_path, monkeypatch):
    monkeypatch.setenv("METARNN_CACHE", str(tmp_path))
    source = "int answer(void) { return 42; }"
    compiling.load.cache_clear()
    compiling.load(source)
    load_bytes = compiling._load_bytes

    def swap_then_load(library):
        for path in tmp_path.glob("*.so"):
            path.write_bytes(b"another library")
        return load_bytes(library)

    monkeypatch.setattr(compiling, "_load_bytes", swap_then_load)
    compiling.load.cache_clear()
    assert compiling.load(source).answer() == 42
    assert any(path.read_bytes() == b"another library" for path in tmp_path.glob("*.so"))


def test_libraries_loaded_one_after_the_other_are_not_confused(tmp_path, monkeypatch):
    monkeypatch.setenv("METARNN_CACHE", str(tmp_path))
    sources = [f"int answer(void) {{ return {k}; }}" for k in range(5)]
    assert [compiling.load(source).answer() for source in sources] == [0, 1, 2, 3, 4]


@pytest.mark.medium
def test_no_module_that_could_run_a_pickle_is_used(tmp_path, monkeypatch):
    """Loading everything of a run asks `pickle` for nothing."""

    def never(*_, **__):
        raise AssertionError("a pickle was loaded")

    train(tmp_path / "run")
    for name in ("load", "loads", "Unpickler", "_Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    folder = Folder(tmp_path / "run")
    assert checkpoint.load(folder.last)["position"]["step"] == QUICK.steps
    assert checkpoint.read_weights(folder.model)
