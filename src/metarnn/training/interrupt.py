"""Ctrl-C, SIGTERM and SIGHUP: finish the step, save, and say how to go on."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STREAMS = (0, 1, 2)  # file descriptors of the standard streams


class Interrupted(Exception):
    """Raised out of work that may be given up, such as a validation."""


class Interruption:
    """Whether someone asked to stop: Ctrl-C, SIGTERM or SIGHUP, inside `watched()`.

    SIGHUP stays ignored where it was: `nohup` means that the training goes on.

    The first one is noted, and the training stops where it can go on later. A second one has its
    usual effect: someone is in a hurry.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._may_raise = False

    @contextmanager
    def watched(self) -> Generator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread hears signals
            return
        heard = [
            each
            for each in SIGNALS
            if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN
        ]
        before = {each: signal.signal(each, self._note) for each in heard}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    @contextmanager
    def abandoning(self) -> Generator[None]:
        """Inside the block a signal raises `Interrupted` at once."""
        if self.signal:
            raise Interrupted
        self._may_raise = True
        try:
            yield
        finally:
            self._may_raise = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        for each in SIGNALS:
            if signal.getsignal(each) == self._note:
                signal.signal(each, signal.default_int_handler if each == 2 else signal.SIG_DFL)
        if number == signal.SIGHUP:
            _leave_terminal()
        if self._may_raise:
            raise Interrupted


def _leave_terminal() -> None:
    """Silence streams whose terminal was closed: a write to one would end the process unsaved."""
    for stream in STREAMS:
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                silence = os.open(os.devnull, os.O_RDWR)
                os.dup2(silence, stream)
                os.close(silence)
