"""Hostile circumstances: one warning at most, and always the right results."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from metarnn.engines.cpu import compile
from tests.helpers.process import python, succeed

pytestmark = pytest.mark.medium

# One cell or three, forward and backward, several times, against eager. What comes out: the
# largest difference, the warnings, and the engine that a last call would take.
CELLS = dedent("""
    import json, warnings
    import torch
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import metarnn
        from metarnn import cells

        def results(layer):
            torch.manual_seed(1)
            x = torch.randn(3, 2, 2, requires_grad=True)
            found = []
            for _ in range(2):
                y, _ = layer(x)
                found += [y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])]
            with torch.no_grad():
                found.append(layer(x)[0])
            return [tensor.detach() for tensor in found]

        worst, engines = 0.0, []
        every = (cells.LSTM(2, 3), cells.GRU(2, 3, reset="before"), cells.MinGRU(2, 3))
        for cell in every[:COUNT]:
            ours = metarnn.Recurrent(cell, engine=ENGINE)
            eager = metarnn.Recurrent(cell, engine="eager")
            eager.load_state_dict(ours.state_dict())
            for a, b in zip(results(ours), results(eager), strict=True):
                worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp(min=1)))
            ours.engine = "auto"
            engines.append(ours.choose(torch.zeros(3, 2, 2)).engine)
    said = [(w.category.__name__, str(w.message)) for w in caught]
    print(json.dumps({"worst": worst, "said": said, "engines": engines}))
""")


def program(engine: str, count: int, before: str = "") -> str:
    return f"{dedent(before)}\nENGINE, COUNT = {engine!r}, {count}\n{CELLS}"


def report(engine: str = "auto", count: int = 3, **environment) -> dict:
    done = json.loads(succeed(program(engine, count), **environment))
    assert done["worst"] < 2e-6
    return done


def assert_given_up(done: dict, message: str) -> None:
    assert [kind for kind, _ in done["said"]] == ["RuntimeWarning"]
    assert message in done["said"][0][1]
    assert "cpu" not in done["engines"]


def assert_compiled(done: dict) -> None:
    assert done["said"] == []
    assert {*done["engines"]} == {"cpu"}


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def intact(folder: Path) -> dict[Path, bool]:
    """The compiled files in a cache, and whether each is what its seal says."""
    return {
        so: compile._digest(so.name, so.read_bytes()).encode()
        == so.with_suffix(".sha256").read_bytes()
        for so in folder.glob("*.so")
    }


def seal(so: Path) -> None:
    digest = compile._digest(so.name, so.read_bytes())
    so.with_suffix(".sha256").write_text(digest, encoding="ascii")


def test_without_a_compiler_one_warning_and_the_right_results(tmp_path):
    done = report(PATH=tmp_path, CC=None, METARNN_CACHE=tmp_path / "cache")
    assert_given_up(done, "no C compiler was found")


BROKEN = {
    "fails": "exit 1",
    "writes garbage": 'while [ $# -gt 0 ]; do [ "$1" = -o ] && echo junk > "$2"; shift; done',
    "writes nothing": "exit 0",
    "ends by a signal": "kill -SEGV $$",
}
SIGNAL = pytest.param("ends by a signal", marks=pytest.mark.slow)
PROC = pytest.param("in /proc", marks=pytest.mark.slow)


@pytest.mark.parametrize("how", ["fails", "writes garbage", "writes nothing", SIGNAL])
def test_with_a_broken_compiler_one_warning_and_the_right_results(how, tmp_path):
    compiler = script(tmp_path / "brokencc", BROKEN[how])
    done = report(CC=compiler, METARNN_CACHE=tmp_path / "cache")
    assert_given_up(done, "without generated C code")
    assert not list((tmp_path / "cache").glob(".build-*"))


def test_an_interrupt_meant_for_the_process_does_not_end_its_compiler(tmp_path):
    good = shlex.join(compile.compiler())
    pressed = script(tmp_path / "cc", f'kill -s INT -- "-$GROUP"\nexec {good} "$@"')
    code = """
        import os, signal
        os.setsid()  # nobody else is in this group
        os.environ["GROUP"] = str(os.getpgrp())
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        import torch
        from metarnn import Recurrent, cells
        y, _ = Recurrent(cells.Elman(2, 3), engine="cpu")(torch.ones(2, 1, 2))
        print(bool(seen), y.grad_fn.name())
    """
    done = python(code, CC=pressed, METARNN_CACHE=tmp_path / "cache")
    assert done.stderr == ""
    assert done.stdout.split() == ["True", "_CallBackward"]


def test_a_compiler_that_is_no_program_is_a_broken_one(tmp_path):
    compiler = tmp_path / "brokencc"
    compiler.write_bytes(b"\x7fELF, not really")
    compiler.chmod(0o755)
    assert_given_up(report(CC=compiler, METARNN_CACHE=tmp_path / "cache"), "without generated C")


@pytest.mark.slow
def test_what_a_broken_compiler_left_does_not_stand_in_the_way_of_a_good_one(tmp_path):
    # Both say the same version, so they look for the same files.
    good = shlex.join(compile.compiler())
    same = f'[ "$1" = --version ] && {{ echo 1; exit; }}\n{BROKEN["writes garbage"]}'
    bad = script(tmp_path / "onecc", same)
    report(CC=bad, METARNN_CACHE=tmp_path / "cache")
    script(bad, f'[ "$1" = --version ] && {{ echo 1; exit; }}\nexec {good} "$@"')
    assert_compiled(report("cpu", CC=bad, METARNN_CACHE=tmp_path / "cache"))


@pytest.mark.parametrize("where", ["below a file", PROC])
def test_a_cache_that_cannot_be_written_is_done_without(where, tmp_path):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache" if where == "below a file" else Path("/proc/metarnn")
    (tmp_path / "temporary").mkdir()
    done = report("cpu", 1, METARNN_CACHE=folder, TMPDIR=tmp_path / "temporary")
    assert_compiled(done)
    assert not list((tmp_path / "temporary").iterdir()), "temporary files were left behind"


@pytest.mark.slow
def test_a_temporary_folder_that_cannot_be_had_is_not_needed_beside_a_cache(tmp_path):
    careful = """
        import tempfile
        make = tempfile.mkdtemp
        def careful(suffix=None, prefix=None, dir=None):
            if dir is None:
                raise FileNotFoundError("No usable temporary directory found")
            return make(suffix, prefix, dir)
        tempfile.mkdtemp = careful
    """
    code = program("cpu", 3, careful)
    assert_compiled(json.loads(succeed(code, METARNN_CACHE=tmp_path / "cache")))


def test_a_full_disk_is_survived(tmp_path):
    full = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
    """
    done = json.loads(succeed(program("auto", 3, full), METARNN_CACHE=tmp_path / "cache"))
    assert done["worst"] < 2e-6
    assert_given_up(done, "without generated C code")


@pytest.mark.slow
def test_damaged_files_in_the_cache_are_built_anew(tmp_path):
    cache = tmp_path / "cache"
    assert_compiled(report("cpu", METARNN_CACHE=cache))
    files = sorted(intact(cache))
    assert len(files) >= 6
    damages = {
        "truncated": lambda so: os.truncate(so, so.stat().st_size // 2),
        "emptied": lambda so: os.truncate(so, 0),
        "overwritten": lambda so: so.write_bytes(b"\0" * so.stat().st_size),
        "removed": lambda so: so.unlink(),
        "wrong seal": lambda so: so.with_suffix(".sha256").write_text("0" * 64),
        "no seal": lambda so: so.with_suffix(".sha256").unlink(),
        "a seal that is no text": lambda so: so.with_suffix(".sha256").write_bytes(b"\xff\xfe"),
    }
    for k, so in enumerate(files):
        list(damages.values())[k % len(damages)](so)
    assert_compiled(report("cpu", METARNN_CACHE=cache))
    assert sorted(intact(cache)) == files
    assert all(intact(cache).values())


def test_a_cache_that_is_too_large_loses_what_was_not_used_for_longest(tmp_path, monkeypatch):
    monkeypatch.setattr(compile, "MAX_LIBRARIES", 8)
    monkeypatch.setenv("METARNN_CACHE", str(tmp_path))
    for k in range(9):
        old = tmp_path / f"{k}.so"
        old.write_bytes(b"")
        seal(old)
        os.utime(old, (k, k))
    (tmp_path / ".build-dead").mkdir()
    os.utime(tmp_path / ".build-dead", (0, 0))
    (tmp_path / ".build-live").mkdir()
    compile.load.cache_clear()
    library = compile.load("int answer(void) { return 42; }")
    assert library.answer() == 42
    left = {path.stem for path in tmp_path.glob("*.so")}
    assert len(left) == 6
    assert {str(k) for k in range(4, 9)} < left
    assert {path.stem for path in tmp_path.glob("*.sha256")} == left
    assert [path.name for path in tmp_path.glob(".build-*")] == [".build-live"]
    compile.load.cache_clear()
    newest = (left - set("0123456789")).pop()
    os.utime(tmp_path / f"{newest}.so", (0, 0))
    compile.load("int answer(void) { return 42; }")
    assert (tmp_path / f"{newest}.so").stat().st_mtime > 0, "a use was not noted"


HANGS = """echo $$ >> {folder}/pids
sleep 60 & echo $! >> {folder}/pids
wait"""


def assert_ended(folder: Path) -> None:
    """The compiler and its child are gone, or become so at once."""
    pids = [int(line) for line in (folder / "pids").read_text(encoding="ascii").split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(map(running, pids)):
        time.sleep(0.01)
    assert not any(map(running, pids))


def running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def test_a_compiler_that_hangs_is_ended_with_its_children_and_tried_once(tmp_path, monkeypatch):
    cc = script(tmp_path / "cc", HANGS.format(folder=tmp_path))
    monkeypatch.setattr(compile, "compiler", lambda: (str(cc),))
    monkeypatch.setattr(compile, "TIMEOUT", 0.5)
    compile._machine.cache_clear()
    try:
        for source in ("int a;", "int b;"):
            with pytest.raises(compile.CannotCompile, match="did not end"):
                compile.load(source)
        assert_ended(tmp_path)
    finally:
        compile._machine.cache_clear()


def test_a_compiler_ends_when_its_parent_is_killed(tmp_path):
    cc = script(tmp_path / "cc", HANGS.format(folder=tmp_path))
    code = f"from metarnn.engines.cpu.compile import _run; _run([{str(cc)!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (
        not (tmp_path / "pids").exists()
        or len((tmp_path / "pids").read_text(encoding="ascii").split()) < 2
    ):
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    assert_ended(tmp_path)


@pytest.mark.medium
def test_an_ascii_locale_compiles_like_any_other(tmp_path):
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert_compiled(report("cpu", 1, METARNN_CACHE=tmp_path, **ascii_locale))


@pytest.mark.slow
def test_sealed_garbage_in_the_cache_is_survived(tmp_path):
    cache = tmp_path / "cache"
    report("cpu", METARNN_CACHE=cache)
    for so in intact(cache):
        so.write_bytes(b"no library")
        seal(so)
    assert_compiled(report("cpu", METARNN_CACHE=cache))


def test_code_is_not_loaded_from_a_folder_that_others_can_write_to(tmp_path):
    cache = tmp_path / "cache"
    report("cpu", 1, METARNN_CACHE=cache)
    evil = tmp_path / "evil.c"
    evil.write_text(
        "#include <unistd.h>\n__attribute__((constructor)) void f(void) { _exit(99); }\n"
    )
    flags = ["-shared", "-fPIC", str(evil), "-o", str(tmp_path / "evil.so")]
    subprocess.run([*compile.compiler(), *flags], check=True)
    for so in intact(cache):
        so.write_bytes((tmp_path / "evil.so").read_bytes())
        seal(so)
    trusted = python(program("cpu", 1), METARNN_CACHE=cache)
    assert trusted.returncode == 99, "this test proves nothing: the cache was not read"
    cache.chmod(0o777)
    assert_compiled(report("cpu", 1, METARNN_CACHE=cache))


def test_a_cell_that_cannot_be_traced_runs_in_plain_torch_with_one_warning():
    code = """
        import warnings
        import torch, metarnn
        from metarnn import Cell, Map

        class Atan(Cell):
            @property
            def maps(self):
                n = self.hidden_size
                return {"ih": Map(self.input_size, n), "hh": Map(n, n, recurrent=True)}
            def drive(self, theta, x):
                return theta.ih(x)
            def step(self, theta, drive, state):
                return (torch.atan(drive + theta.hh(state[0])),)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            first = metarnn.Recurrent(Atan(2, 3))
            second = metarnn.Recurrent(Atan(2, 3))
            eager = metarnn.Recurrent(Atan(2, 3), engine="eager")
            x = torch.randn(4, 2, 2)
            for layer in (first, second):
                eager.load_state_dict(layer.state_dict())
                for _ in range(2):
                    assert torch.equal(layer(x)[0], eager(x)[0])
            assert first.choose(x).engine == "eager"
        assert [w.category for w in caught] == [RuntimeWarning], [str(w.message) for w in caught]
        assert "Atan" in str(caught[0].message) and "atan" in str(caught[0].message)
        try:
            metarnn.Recurrent(Atan(2, 3), engine="cpu")(x)
        except ValueError as error:
            assert "atan" in str(error)
        else:
            raise AssertionError("engine='cpu' ran it")
    """
    succeed(code)
