"""Compiles C with the system's compiler, once: results are kept on disk by their content."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path

FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
FLAGS += ("-std=gnu11", "-shared", "-fPIC", "-pthread", "-w")
MOST_FILES = 2000  # that a cache keeps, of about 50 kB each; a trained cell has three
ABANDONED = 3600.0  # seconds after which a folder to build in was left by a process that died


class CannotCompile(RuntimeError):
    """There is no working C compiler, or it refused the source."""


def find_compiler() -> tuple[str, ...]:
    """The C compiler as a command: $CC (which may carry flags), cc, gcc or clang; () for none."""
    try:
        asked = shlex.split(os.environ.get("CC", ""))
    except ValueError:  # a quotation that does not end
        asked = []
    for command in (asked, ["cc"], ["gcc"], ["clang"]):
        found = shutil.which(command[0]) if command else None
        if found:
            return found, *command[1:]
    return ()


compiler = functools.cache(find_compiler)


@functools.cache
def _machine() -> str:
    """What a compiled file depends on beside its source: compiler, flags and kind of processor."""
    try:
        version = subprocess.run(
            [*compiler(), "--version"], capture_output=True, text=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError):
        version = ""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        cpu = platform.processor()
    return "\n".join([version, " ".join(FLAGS), platform.machine(), cpu])


def cache_folder() -> Path | None:
    """Where compiled files are kept; None where no folder of our own can be had.

    Code is loaded from there, so the folder must belong to this user and be closed to others, and
    nobody else may put another one in its place.
    """
    base = os.environ.get("METARNN_CACHE")
    if not base:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(base, "metarnn")
    folder = Path(base)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = folder.resolve(strict=True)
        info = folder.stat()
        if info.st_uid != os.getuid() or info.st_mode & 0o022 or not os.access(folder, os.W_OK):
            return None
        return folder if all(map(_guarded, folder.parents)) else None
    except (OSError, RuntimeError):  # RuntimeError: links that go round in a circle
        return None


def _guarded(folder: Path) -> bool:
    """Whether no stranger can rename what is in a folder."""
    info = folder.stat()
    sticky = bool(info.st_mode & stat.S_ISVTX)
    return info.st_uid in (0, os.getuid()) and (sticky or not info.st_mode & 0o002)


@functools.cache
def _private_folder(process: int) -> Path:
    """A folder for one process alone, for when there is no cache; gone when the process ends."""
    folder = tempfile.mkdtemp(prefix="metarnn-")

    def remove() -> None:
        if os.getpid() == process:  # not in a forked child, which runs this too
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)


@functools.cache
def load(source: str) -> ctypes.CDLL:
    """The shared library of a C source, from the cache or compiled now."""
    if not compiler():
        raise CannotCompile("no C compiler found (looked for $CC, cc, gcc, clang)")
    name = hashlib.sha256((source + _machine()).encode()).hexdigest()[:32]
    for find in (cache_folder, lambda: _private_folder(os.getpid())):
        try:
            folder = find()
            if folder is None:
                continue
            target, seal = folder / f"{name}.so", folder / f"{name}.sha256"
            if _intact(target, seal):
                with contextlib.suppress(OSError):
                    os.utime(target)  # used now: it goes last when the cache is trimmed
            else:
                _build(source, target, seal)
                _trim(folder)
            return ctypes.CDLL(str(target))
        except OSError:  # a full disk, a folder that went away, a file no loader takes
            continue
    raise CannotCompile("neither the cache nor a temporary folder could be written to")


def _trim(folder: Path) -> None:
    """Remove what was not used for longest, a quarter at a time, once there is too much.

    Whoever has a file loaded keeps it, whoever is about to load one that goes builds it elsewhere.
    """
    with contextlib.suppress(OSError):
        found = [(entry.stat().st_mtime, Path(entry)) for entry in os.scandir(folder)]
        libraries = sorted((used, path) for used, path in found if path.suffix == ".so")
        if len(libraries) > MOST_FILES:
            for _, path in libraries[: -(MOST_FILES * 3 // 4)]:
                path.with_suffix(".sha256").unlink(missing_ok=True)
                path.unlink(missing_ok=True)
        for used, path in found:
            if path.name.startswith(".build-") and used < time.time() - ABANDONED:
                shutil.rmtree(path, ignore_errors=True)


def _intact(target: Path, seal: Path) -> bool:
    """Whether a cached file is this user's, and what was written: loading a damaged one could end
    the process."""
    try:
        for path in (target, seal):
            info = path.lstat()
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
                return False
        return hashlib.sha256(target.read_bytes()).hexdigest().encode() == seal.read_bytes()
    except OSError:
        return False


def _build(source: str, target: Path, seal: Path) -> None:
    """Compile beside the target and rename: whoever looks sees a whole file or none."""
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as work:
        code, built = Path(work, "step.c"), Path(work, "step.so")
        code.write_text(source)
        try:
            result = _call(code, built)
            if result.returncode == -signal.SIGINT:  # it was not in a group of its own yet
                result = _call(code, built)
        except subprocess.TimeoutExpired as error:
            raise CannotCompile("the C compiler did not come to an end") from error
        if result.returncode:
            message = result.stderr.strip().splitlines()
            raise CannotCompile(
                f"{compiler()[0]} failed: {message[0] if message else 'no message'}"
            )
        sealed = Path(work, "seal")
        sealed.write_text(hashlib.sha256(built.read_bytes()).hexdigest())
        # Two processes may build the same, and compilers give the same bytes for it; were it
        # otherwise, a seal that does not fit would only make the next process build again.
        for path in (built, sealed):
            path.chmod(0o600)  # whatever the umask: what others could write is not loaded
        os.replace(built, target)
        os.replace(sealed, seal)


def _call(code: Path, built: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*compiler(), *FLAGS, str(code), "-o", str(built), "-lm"],
        capture_output=True,
        text=True,
        timeout=120,
        process_group=0,  # Ctrl-C is for us: who saves a training may have to compile
    )
