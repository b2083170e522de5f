"""Compiles C with the system's compiler, once: results are kept on disk by their content."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import grp
import hashlib
import itertools
import os
import platform
import pwd
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from metarnn.engines.autograd import EngineFailure

FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
FLAGS += ("-std=gnu11", "-shared", "-fPIC", "-pthread", "-w")
MAX_LIBRARIES = 2000  # that a cache keeps, of about 50 kB each; a trained cell has three
TIMEOUT = 120.0  # seconds a call of the compiler may take; a cell takes less than one
ABANDONED = 3600.0  # seconds after which a folder to build in was left by a process that died


class CannotCompile(EngineFailure):
    """There is no working C compiler, or it refused the source."""


def find_compiler() -> tuple[str, ...]:
    """The C compiler as a command: $CC (which may carry flags), cc, gcc or clang; () for none."""
    try:
        chosen = shlex.split(os.environ.get("CC", ""))
    except ValueError:  # a quotation that does not end
        chosen = []
    for command in (chosen, ["cc"], ["gcc"], ["clang"]):
        path = shutil.which(command[0]) if command else None
        if path:
            return path, *command[1:]
    return ()


compiler = functools.cache(find_compiler)


@functools.cache
def _machine() -> str:
    """Describe what a library depends on beside its source: compiler, flags, processor.

    Returns "" if the compiler hangs: it is not tried again in this process.
    """
    try:
        version = _run([*compiler(), "--version"]).stdout
    except subprocess.TimeoutExpired:
        return ""
    except OSError:
        version = ""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
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
    """Return whether only this user and root can rename what is in a folder."""
    info = folder.stat()
    if info.st_uid not in (0, os.getuid()):
        return False
    if info.st_mode & stat.S_ISVTX or not info.st_mode & 0o022:
        return True
    return not info.st_mode & 0o002 and _private_group(info.st_gid) and not _has_acl(folder)


def _private_group(number: int) -> bool:
    """Return whether a group is the one that many systems make for this user alone."""
    try:
        user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def _has_acl(folder: Path) -> bool:
    """Return whether an access control list may name more users than the mode shows."""
    try:
        return "system.posix_acl_access" in os.listxattr(folder)
    except (AttributeError, OSError):  # no Linux, or a file system without attributes
        return False


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
    """Return the shared library of a C source, from the cache or compiled now."""
    if not compiler():
        raise CannotCompile("no C compiler found (looked for $CC, cc, gcc, clang)")
    if not _machine():
        raise CannotCompile(f"{compiler()[0]} --version did not end within {TIMEOUT:.0f} s")
    name = hashlib.sha256((source + _machine()).encode()).hexdigest()[:32]
    for find in (cache_folder, lambda: _private_folder(os.getpid())):
        try:
            folder = find()
            if folder is None:
                continue
            target, seal = folder / f"{name}.so", folder / f"{name}.sha256"
            library = _read_sealed(target, seal)
            if library is not None:
                with contextlib.suppress(OSError):
                    os.utime(target, follow_symlinks=False)  # the cache drops the least used
            else:
                library = _build(source, target, seal)
                _trim(folder)
            return _load_bytes(library)
        except OSError:  # a full disk, a folder that went away, a file no loader takes
            continue
    raise CannotCompile("neither the cache nor a temporary folder could be written to")


_loaded = itertools.count()


def _load_bytes(library: bytes) -> ctypes.CDLL:
    """Load a library from memory: what was verified is what runs, whatever its file is by now."""
    with contextlib.suppress(AttributeError, OSError):  # no Linux, or no code from memory there
        descriptor = os.memfd_create("metarnn")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(library)
            # The loader takes equal paths for one library, and descriptors are reused: spell each
            # path in its own way, a bit of a counter with each slash.
            bits = f"{next(_loaded):b}"
            slashes = "".join("/." if bit == "1" else "/" for bit in bits)
            return ctypes.CDLL(f"/proc/self/fd{slashes}/{descriptor}")
        finally:
            os.close(descriptor)
    with tempfile.NamedTemporaryFile(suffix=".so", dir=_private_folder(os.getpid())) as copy:
        copy.write(library)
        copy.flush()
        return ctypes.CDLL(copy.name)


def _trim(folder: Path) -> None:
    """Remove what was not used for longest, a quarter at a time, once there is too much.

    Whoever has a file loaded keeps it, whoever is about to load one that goes builds it elsewhere.
    """
    with contextlib.suppress(OSError):
        entries = [(entry.stat().st_mtime, Path(entry)) for entry in os.scandir(folder)]
        libraries = sorted((used, path) for used, path in entries if path.suffix == ".so")
        if len(libraries) > MAX_LIBRARIES:
            for _, path in libraries[: -(MAX_LIBRARIES * 3 // 4)]:
                path.with_suffix(".sha256").unlink(missing_ok=True)
                path.unlink(missing_ok=True)
        for used, path in entries:
            if path.name.startswith(".build-") and used < time.time() - ABANDONED:
                shutil.rmtree(path, ignore_errors=True)


def _read_sealed(target: Path, seal: Path) -> bytes | None:
    """Return a cached library, None unless it is this user's and fits its seal.

    The seal covers the name too, so that one library cannot stand in for another.
    """
    try:
        library, digest = _read_own(target), _read_own(seal)
    except OSError:
        return None
    return library if _digest(target.name, library).encode() == digest else None


def _read_own(path: Path) -> bytes:
    """Read a file through the descriptor whose owner and mode were checked."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
            raise PermissionError(f"{path} is not a file that this user alone can write")
        return file.read()


def _digest(name: str, library: bytes) -> str:
    return hashlib.sha256(name.encode() + b"\n" + library).hexdigest()


def _build(source: str, target: Path, seal: Path) -> bytes:
    """Compile beside the target and rename, so that readers see a complete file or none.

    Returns the library.
    """
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as work:
        code, built = Path(work, "step.c"), Path(work, "step.so")
        code.write_text(source, encoding="utf-8")
        command = [*compiler(), *FLAGS, str(code), "-o", str(built), "-lm"]
        try:
            result = _run(command)
            if result.returncode in (-signal.SIGINT, 128 + signal.SIGINT):
                result = _run(command)  # Ctrl-C came before it had a session of its own
        except subprocess.TimeoutExpired as error:
            raise CannotCompile(f"the C compiler did not end within {TIMEOUT:.0f} s") from error
        if result.returncode:
            message = result.stderr.strip().splitlines()
            raise CannotCompile(
                f"{compiler()[0]} failed: {message[0] if message else 'no message'}"
            )
        library = built.read_bytes()
        sealed = Path(work, "seal")
        sealed.write_text(_digest(target.name, library), encoding="ascii")
        # Two processes may build the same, and compilers give the same bytes for it; were it
        # otherwise, a seal that does not fit would only make the next process build again.
        for path in (built, sealed):
            path.chmod(0o600)  # whatever the umask: what others could write is not loaded
        os.replace(built, target)
        os.replace(sealed, seal)
        return library


# Runs a command and, beside it, a watcher that kills the process group once the other end of
# standard input closes: when the caller is done, or dies, even by SIGKILL.
WATCHED = 'exec 3<&0 0</dev/null; (read _ <&3; kill -KILL 0) >/dev/null 2>&1 & "$@" 3<&-'


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in a session of its own, so that Ctrl-C does not reach it: saving a training
    may have to compile. Its whole process group ends with the call."""
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", WATCHED, "sh", *command],
            stdin=reader,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        with process:
            try:
                output, errors = process.communicate(timeout=TIMEOUT)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)
    finally:
        os.close(reader)
        os.close(writer)
