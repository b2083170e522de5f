"""Processes beside this one that try units, a core each."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from metarnn.cells import check
from metarnn.search.problem import Problem
from metarnn.search.trial import Outcome, Trial
from metarnn.training import World
from metarnn.training.interrupt import Interrupted
from metarnn.training.world import find_device

LOOK = 0.2  # seconds from one look at whether someone asked to stop to the next
PATIENCE = 3.0  # seconds in which a worker may end by itself
ATTEMPTS = 3  # at one trial, each by a worker of its own, before it is given up
# A worker hangs after so many times the seconds that an update took in the slowest trial, or that
# starting took, but not before LEAST, in which a compiler that hangs is given up. Where nothing was
# measured yet, after UNKNOWN.
SLOWER, LEAST, UNKNOWN = 20, 200.0, 3600.0

log = logging.getLogger(__name__)


class WorkerFailed(ValueError):
    """A worker ended, or could not do what it was given."""


@dataclass
class _Worker:
    number: int
    process: BaseProcess
    connection: Connection
    task: _Task | None = None
    waited: float = 0.0  # seconds that were spent listening to it since it last said something
    ready: bool = False  # it has the problem


@dataclass
class _Task:
    trial: Trial
    outcome: Outcome | None = None
    attempts: int = 0

    @property
    def updates(self) -> int:
        return max(self.trial.settings.steps, 1)


class Workers:
    """Tries up to `count` units at once, each in a process of its own with one thread.

        with Workers(make_problem, 4) as workers:
            found = Search(make_problem(), space, settings, options, workers=workers).run()

    Which worker tries what, and how long that takes, changes nothing: outcomes are asked for in the
    order in which trials began. A worker that dies or hangs is replaced, and its trial run again by
    another; after three attempts that is a WorkerFailed. Workers end with this process, whatever
    becomes of it.

    Args:
        make: makes the problem, called once in each worker; a function of a module, since other
            processes have to find it
        count: how many
        device: where candidates are trained; finalists go where the settings say
    """

    def __init__(self, make: Callable[[], Problem], count: int, device: str = "cpu") -> None:
        check.size("workers", count)
        self.make, self.count, self.device = make, count, device
        # Trials differ in how long they take: who is done early has something to go on with.
        self.ahead = count + (count + 1) // 2
        self._workers: list[_Worker] = []
        self._queue: deque[_Task] = deque()
        self._pace = 0.0  # seconds an update took, with all that a trial takes beside, at most
        self._start_up = 0.0  # seconds until a worker was ready, at most

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(self, trial: Trial) -> Callable[[Callable[[], None]], Outcome]:
        """Begin a trial as soon as a worker is free; call what is returned for its outcome.

        That takes a function which raises if someone asked to stop: it is called now and then.
        """
        task = _Task(trial)
        self._queue.append(task)
        self._feed()

        def outcome(halt: Callable[[], None]) -> Outcome:
            while task.outcome is None:
                halt()
                try:
                    self._listen(halt)
                except WorkerFailed:
                    halt()  # a signal that ends this process may have reached the worker first
                    raise
            return task.outcome

        return outcome

    def close(self) -> None:
        """End all workers, whatever they are at."""
        for worker in self._workers:
            worker.connection.close()
        end(worker.process for worker in self._workers)
        self._workers.clear()
        self._queue.clear()

    def _feed(self) -> None:
        while len(self._workers) < min(self.count, len(self._queue) + len(self._busy())):
            numbers = {worker.number for worker in self._workers}
            free = next(k for k in range(1, self.count + 1) if k not in numbers)
            self._workers.append(self._start(free))
        for worker in [worker for worker in self._workers if worker.task is None]:
            if not self._queue:
                return
            worker.task = self._queue.popleft()
            worker.waited = 0.0
            worker.task.attempts += 1
            try:
                worker.connection.send(worker.task.trial)
            except OSError:
                self._replace(worker, "ended by itself")

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.task is not None]

    def _start(self, number: int) -> _Worker:
        # A forked process would share threads and a GPU's context with this one.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        name = f"metarnn worker {number}"
        process = context.Process(target=_work, args=(theirs, self.make), name=name, daemon=True)
        process.start()
        theirs.close()  # so that what we read ends when the worker does
        return _Worker(number, process, ours)

    def _listen(self, halt: Callable[[], None]) -> None:
        """Take in what workers have to say, for a moment, and give them more to do."""
        began = time.monotonic()
        busy = {worker.connection: worker for worker in self._busy()}
        for connection in wait(list(busy), LOOK):
            worker = busy.pop(connection)  # pyright: ignore[reportArgumentType]
            try:
                said = worker.connection.recv()
            except (EOFError, OSError):
                halt()  # a signal that ends this process may have reached the worker first
                self._replace(worker, "ended by itself")
                continue
            if said is None:
                self._start_up = max(self._start_up, worker.waited + time.monotonic() - began)
                worker.ready, worker.waited = True, 0.0
                continue
            task, worker.task = worker.task, None
            if isinstance(said, str):
                raise WorkerFailed(f"worker {worker.number} failed:\n{said}")
            assert task is not None
            task.outcome, seconds = said
            self._pace = max(self._pace, seconds / task.updates)
        # While this process stands still, stopped or at other work, so may the workers.
        listened = min(time.monotonic() - began, 2 * LOOK)
        for worker in busy.values():
            assert worker.task is not None
            worker.waited += listened
            if worker.waited > self._limit(worker):
                self._replace(worker, f"said nothing for {worker.waited:,.0f} s")
        self._feed()

    def _limit(self, worker: _Worker) -> float:
        """Seconds of silence after which a worker hangs."""
        assert worker.task is not None
        usual = self._pace * worker.task.updates if worker.ready else self._start_up
        return max(SLOWER * usual, LEAST) if usual else UNKNOWN

    def _replace(self, worker: _Worker, why: str) -> None:
        """End a worker, and have its trial run again; a WorkerFailed after too many attempts."""
        task = worker.task
        assert task is not None
        worker.process.join(PATIENCE if "ended" in why else 0.0)
        worker.process.kill()
        worker.process.join()
        code = worker.process.exitcode
        worker.connection.close()
        self._workers.remove(worker)
        why = f"worker {worker.number} of {self.count} {why} (exit code {code})"
        if task.attempts >= ATTEMPTS:
            raise WorkerFailed(
                f"{why}, in the last of {ATTEMPTS} attempts at the unit\n"
                f"{_described(task.trial)}\n"
                "Where memory is short, take fewer --workers; --resume goes on from here."
            )
        log.warning("%s: a new one runs its trial again", why)
        self._queue.appendleft(task)


def end(processes: Iterable[BaseProcess]) -> None:
    """Ask processes to end, and end those that have not done so soon."""
    processes = list(processes)
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + PATIENCE
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0.0))
        if process.is_alive():
            process.kill()
            process.join()


def ends_with_parent() -> None:
    """Have this process end as soon as the one that started it has, however that came about."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        assert parent is not None
        parent.join()
        os._exit(1)

    if parent is not None:
        threading.Thread(target=watch, daemon=True).start()


def _described(trial: Trial) -> str:
    return str(getattr(trial.unit, "__self__", trial.unit))


def _work(connection: Connection, make: Callable[[], Problem]) -> None:
    """What a worker does: trials, until the other end of the connection is closed."""
    ends_with_parent()
    for each in (signal.SIGINT, signal.SIGHUP):  # the parent answers for all
        signal.signal(each, signal.SIG_IGN)
    logging.getLogger("metarnn").setLevel(logging.ERROR)  # a unit that is bad has a bad score
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    problem: Problem | None = None
    while True:
        try:
            trial = connection.recv()
        except (EOFError, OSError):
            return
        said: Any
        began = time.monotonic()
        try:
            if problem is None:
                problem = make()
                connection.send(None)
                began = time.monotonic()
            device = find_device(trial.settings.device)
            outcome = trial.run(problem, World(device=device))
            said = outcome, time.monotonic() - began
        except Interrupted:
            return
        except Exception:
            said = traceback.format_exc()
        try:
            connection.send(said)
        except OSError:  # nobody is left to be told
            return
