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
from typing import Any, NoReturn

import torch

from metarnn.cells import check
from metarnn.search.problem import Problem
from metarnn.search.trial import Outcome, Trial
from metarnn.training import World
from metarnn.training.interrupt import Interrupted
from metarnn.training.world import find_device

LOOK = 0.2  # seconds from one look at whether someone asked to stop to the next
PATIENCE = 3.0  # seconds in which a worker may end by itself


class WorkerFailed(ValueError):
    """A worker ended, or could not do what it was given."""


@dataclass
class _Worker:
    number: int
    process: BaseProcess
    connection: Connection
    task: _Task | None = None


@dataclass
class _Task:
    trial: Trial
    outcome: Outcome | None = None


class Workers:
    """Tries up to `count` units at once, each in a process of its own with one thread.

        with Workers(make_problem, 4) as workers:
            found = Search(make_problem(), space, settings, options, workers=workers).run()

    Which worker tries what, and how long that takes, changes nothing: outcomes are asked for in the
    order in which trials began. Workers end with this process, whatever becomes of it.

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
                    self._listen()
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
            self._workers.append(self._start(len(self._workers) + 1))
        for worker in self._workers:
            if worker.task is None and self._queue:
                worker.task = self._queue.popleft()
                try:
                    worker.connection.send(worker.task.trial)
                except OSError:
                    self._died(worker)

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

    def _listen(self) -> None:
        """Take in what workers have to say, for a moment, and give them more to do."""
        busy = {worker.connection: worker for worker in self._busy()}
        for connection in wait(list(busy), LOOK):
            worker = busy[connection]  # pyright: ignore[reportArgumentType]
            try:
                said = worker.connection.recv()
            except (EOFError, OSError):
                self._died(worker)
            task, worker.task = worker.task, None
            if isinstance(said, str):
                raise WorkerFailed(f"worker {worker.number} failed:\n{said}")
            assert task is not None
            task.outcome = said
        self._feed()

    def _died(self, worker: _Worker) -> NoReturn:
        worker.process.join(PATIENCE)
        assert worker.task is not None
        raise WorkerFailed(
            f"worker {worker.number} of {self.count} ended by itself, with exit code "
            f"{worker.process.exitcode}, on the unit\n{_described(worker.task.trial)}\n"
            "Where memory is short, take fewer --workers; --resume goes on from here."
        )


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
        try:
            problem = make() if problem is None else problem
            device = find_device(trial.settings.device)
            said = trial.run(problem, World(device=device))
        except Interrupted:
            return
        except Exception:
            said = traceback.format_exc()
        try:
            connection.send(said)
        except OSError:  # nobody is left to be told
            return
