"""Ctrl-C and SIGTERM: finish the step, save, and say how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType


class Interrupted(Exception):
    """Raised out of work that may be given up, such as a validation."""


class Interruption:
    """Whether someone asked to stop: Ctrl-C or SIGTERM, inside `watched()`.

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
        before = {each: signal.signal(each, self._note) for each in (signal.SIGINT, signal.SIGTERM)}
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
        for each in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):
                signal.signal(each, signal.default_int_handler if each == 2 else signal.SIG_DFL)
        if self._may_raise:
            raise Interrupted
