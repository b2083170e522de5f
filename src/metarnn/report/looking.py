"""A trained model looked at while it works, within seconds, for a report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from metarnn.gradients.reach import Reach
from metarnn.hyper.inspect import motion
from metarnn.report import inside
from metarnn.report.gates import activity
from metarnn.report.markup import Markup, join
from metarnn.report.materials import Materials
from metarnn.report.probing import of_layer, of_model, opened
from metarnn.report.reading import Reading, reading
from metarnn.report.work import EXHIBITS, Work
from metarnn.runs.tasks import open_run
from metarnn.tasks.task import Shard
from metarnn.training.progress import SILENT, Progress

T = TypeVar("T")
LENGTH, BATCH = 64, 4  # of the sequences that are looked at
SECONDS = 30.0  # after which nothing more is begun, unless the caller has less
# A model, or data that changed since it was trained, may fail in any of these ways: a report says
# so and goes on.
TROUBLE = (ValueError, OSError, RuntimeError, LookupError, TypeError, AttributeError, ImportError,
           AssertionError, ArithmeticError)  # fmt: skip


@dataclass
class Look:
    """What was seen: nothing of what failed but a line in `missing`."""

    size: int = 0
    engine: str = ""
    reach: Reach | None = None
    moving: Markup | None = None
    gates: Markup | None = None
    work: Markup | None = None
    missing: list[str] = field(default_factory=list)


class Looking:
    """Looks at one run; what was begun in time is finished."""

    def __init__(self, found: Materials, show: Progress = SILENT, seconds: float = SECONDS) -> None:
        self.found, self.show, self.seconds = found, show, seconds
        self.seen = Look()
        self._end = time.monotonic() + seconds

    def look(self) -> Look:
        found, seen = self.found, self.seen
        if found.is_search or not found.config or found.task not in EXHIBITS:
            return seen
        if not (found.path / "model.safetensors").exists():
            seen.missing.append("the model at work: there is no model.safetensors yet")
            return seen
        work = self._open()
        if work is None:
            return seen
        seen.size = sum(weight.numel() for weight in work.model.parameters())
        exhibit = EXHIBITS[found.task]
        seen.work = self._try("samples of its work", lambda: join(list(exhibit.show(work))))
        call, tokens = self._read(work) if exhibit.inside else (None, [])
        if call is not None:
            self._inside(work, call, tokens)
        return seen

    def moving(self) -> Markup | None:
        """How the generated weights of this run move, and nothing else."""
        work = self._open()
        call, tokens = (None, []) if work is None else self._read(work)
        return self._moving(call, tokens) if call is not None and call.generates else None

    def _read(self, work: Work) -> tuple[Reading | None, list[str]]:
        """What a layer reads in a batch, and the tokens of its first sequence, if it has any."""
        job, exhibit = work.job, EXHIBITS[self.found.task]
        if job is None:
            return None, []
        batch = self._try("its data", lambda: next(iter(job.task.batches(Shard()))))
        if batch is None:
            return None, []
        call = self._try(
            "what its layers read",
            lambda: reading(work.model, lambda: job.task.loss(work.model, batch)),
        )
        tokens = self._try("what its tokens are", lambda: exhibit.tokens(work, batch)) or []
        steps = 0 if call is None else min(len(call.x), LENGTH)
        return call, tokens[:steps] if len(tokens) >= steps else []

    def _moving(self, call: Reading, tokens: list[str]) -> Markup | None:
        one = call.x[:LENGTH, 0]
        return self._try(
            "generated weights", lambda: inside.moving(motion(call.layer, one)[0], tokens)
        )

    def _inside(self, work: Work, call: Reading, tokens: list[str]) -> None:
        """What can be told of the layer from what it read."""
        seen, layer, x = self.seen, call.layer, call.x[:LENGTH]
        engine = self._try("its engine", lambda: layer.choose(call.x, **call.arguments))
        seen.engine = str(engine or "")
        if call.generates:
            seen.moving = self._moving(call, tokens)
        if layer.cells[0].window == 1:
            numbers = {n: d[:LENGTH] if d.dim() == 3 else d for n, d in call.numbers.items()}
            gates = self._try("gate activity", lambda: activity(layer, x, numbers))
            seen.gates = inside.gating(gates, tokens) if gates else None
        seen.reach = self._try("gradient reach", lambda: self._reach(work, call))

    def _reach(self, work: Work, call: Reading) -> Reach:
        """Of the task's own loss where it is a sum over time, else of a direction of the output."""
        if work.job is not None and hasattr(work.job.task, "split"):
            return of_model(work.job, work.model, LENGTH)
        return of_layer(call, LENGTH)

    def _open(self) -> Work | None:
        """The model with its data, or without where they are gone."""
        path = self.found.path
        both = self._try("its data", lambda: opened(path, LENGTH, BATCH, self.show))
        if both is None:
            run = self._try("the model", lambda: open_run(path))
            if run is None:
                return None
            model = self._try(
                "the model", lambda: run.weights(run.entry.model(run.config, run.folder))
            )
            return None if model is None else Work(run, model, None)
        run, job = both
        model = self._try("the model", lambda: run.weights(job.model))
        return None if model is None else Work(run, model, job)

    def _try(self, what: str, make: Callable[[], T]) -> T | None:
        if time.monotonic() > self._end:
            self.seen.missing.append(
                f"{what}: there was no time left, of {self.seconds:.0f} seconds; metarnn report "
                f"takes up to {SECONDS:.0f}"
            )
            return None
        try:
            return make()
        except TROUBLE as error:
            said = str(error).splitlines()
            self.seen.missing.append(f"{what}: {said[0] if said else type(error).__name__}")
            return None
