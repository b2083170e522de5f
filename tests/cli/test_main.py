import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest
import torch

import metarnn
from metarnn import __version__, public
from metarnn.cli import doctor
from metarnn.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment
    )


@pytest.mark.medium
@pytest.mark.parametrize("module", ["metarnn", "metarnn.cli.main"])
def test_doctor_runs_as_a_module(module):
    done = python("-m", module, "doctor")
    assert done.returncode == 0, done.stderr
    for expected in (f"metarnn   {__version__}", torch.__version__, "C compiler", "CUDA", "Triton"):
        assert " ".join(expected.split()) in " ".join(done.stdout.split())


def test_doctor_finds_the_compiler_named_by_cc_and_says_when_there_is_none(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "cells run in plain torch" in shown
    assert "native, scan, eager" in shown
    assert "cpu, " not in shown

    compiler = tmp_path / "mycc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", "mycc -O2")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert f"{compiler} -O2" in shown
    assert "does not work (it makes no library)" in shown
    assert doctor.APT in shown


def test_doctor_names_the_line_that_installs_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for extra in doctor.EXTRAS.values():
        assert f"  {extra.install}  # " in shown


def test_the_extras_of_the_doctor_are_those_of_the_package():
    for name, extra in doctor.EXTRAS.items():
        assert name in PROJECT["optional-dependencies"]
        assert f"metarnn[{name}]" in extra.install or "--no-deps" in extra.install


def test_doctor_shows_the_cache_and_says_when_there_is_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("METARNN_CACHE", str(tmp_path))
    (tmp_path / "kept").write_bytes(bytes(2_500_000))
    assert main(["doctor"]) == 0
    assert "2.5 MB, writable" in capsys.readouterr().out
    monkeypatch.setenv("METARNN_CACHE", str(tmp_path / "kept"))
    assert main(["doctor"]) == 0
    assert "METARNN_CACHE=FOLDER names one" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"metarnn {PROJECT['version']}\n"


def test_the_console_script_is_main():
    module, name = PROJECT["scripts"]["metarnn"].split(":")
    assert getattr(importlib.import_module(module), name) is main


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_without_a_command_the_help_names_the_commands(arguments, capsys):
    assert main(arguments) == 0
    assert "doctor" in capsys.readouterr().out


def test_an_unknown_command_fails(capsys):
    assert main(["doctr"]) == 2
    assert capsys.readouterr().err == (
        "metarnn: there is no command 'doctr'; did you mean `metarnn doctor`?\n"
    )


@pytest.mark.parametrize("missing", ["tyro", "rich"])
def test_without_the_cli_extra_one_line_says_what_to_install(missing, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "tyro.extras", raising=False)
    assert main(["doctor"]) == 2
    message = capsys.readouterr().err
    assert "pip install 'metarnn[cli]'" in message
    assert message.count("\n") == 1


@pytest.mark.medium
def test_the_library_itself_imports_neither_tyro_nor_rich():
    done = python("-c", "import sys, metarnn; print(sorted({'tyro', 'rich'} & set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.medium
def test_help_and_the_version_need_no_torch():
    code = """
        import sys
        from metarnn.cli.main import main
        for arguments in (["--version"], ["--help"], ["bench"]):
            main(arguments)
        print("torch" in sys.modules)
    """
    done = python("-c", dedent(code))
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_the_package_offers_the_public_names_and_no_others():
    assert set(dir(metarnn)) == {*public.__all__, "__version__"}
    for name in public.__all__:
        assert getattr(metarnn, name) is getattr(public, name)
    with pytest.raises(AttributeError, match="no attribute 'LSTN'"):
        metarnn.LSTN  # noqa: B018


@pytest.mark.parametrize("command", [["generate"], ["forecast"], ["translate"], ["adapt"]])
def test_a_run_of_another_task_is_refused(command, tmp_path, capsys):
    task = "lm" if command == ["forecast"] else "forecasting"
    (tmp_path / "config.toml").write_text(f'task = "{task}"\n')
    more = ["--support", "x.csv"] if command == ["adapt"] else []
    assert main([*command, str(tmp_path), *more]) == 2
    assert str(tmp_path) in capsys.readouterr().err
