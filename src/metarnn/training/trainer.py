"""The loop: update, validate, save, and go on from there as if nothing had happened."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.gradients import rule
from metarnn.tasks.task import Loss, Shard, Task
from metarnn.training import checkpoint, generators, optimizer
from metarnn.training.average import Average, stalled
from metarnn.training.blame import first_broken
from metarnn.training.deterministic import deterministic
from metarnn.training.folder import Folder
from metarnn.training.guard import ADVICE, Guard, NotFinite
from metarnn.training.interrupt import Interrupted, Interruption
from metarnn.training.means import Means
from metarnn.training.memory import answered
from metarnn.training.metrics import Metrics
from metarnn.training.parts import Parts
from metarnn.training.position import Position
from metarnn.training.progress import SILENT, Progress, Report, scores_in_words
from metarnn.training.schedule import factor
from metarnn.training.settings import Settings
from metarnn.training.spike import LOWER, MOST, Spikes
from metarnn.training.tree import pack, unpack
from metarnn.training.world import World, place

UNFINISHED = ("interrupted", "paused")  # reasons after which a training goes on


@dataclass(frozen=True)
class Result:
    """How a training ended. The model has its best weights then, unless it was interrupted."""

    reason: str  # the limit that was reached, "interrupted" or "paused"
    step: int
    best: float  # the best score, of the validation after step `best_step`
    best_step: int
    elapsed: float
    signal: int = 0  # what interrupted it


class Trainer:
    """Trains a model on a task.

        trainer = Trainer(task, model, Settings(steps=1000))
        trainer.fit()

    Args:
        task: its batches, loss and score
        model: trained in place; on the world's device afterwards
        settings: how
        folder: where checkpoints and metrics go, locked by the caller; None to keep nothing
        world: the processes that train together; None for this one, on the settings' device
        progress: where to show how it goes
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        settings: Settings,
        *,
        folder: Folder | None = None,
        world: World | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.task, self.settings, self.folder = task, settings, folder
        self.world = World(device=place(model, settings.device)) if world is None else world
        self.progress = SILENT if progress is None else progress
        self.model = model.to(self.world.device)
        shards = self.world.shards(settings.accumulate)
        if settings.batch % shards[0].count:
            parts = f"a multiple of {shards[0].count}"
            why = f"{self.world.size} processes share it, in {settings.accumulate} parts each."
            check.refuse("batch", settings.batch, parts, why)
        if (theirs := getattr(task, "batch", settings.batch)) != settings.batch:
            check.refuse("batch", settings.batch, f"{theirs}, the task's")
        self.parts = Parts(task, shards)
        if not any((settings.steps, settings.epochs, settings.minutes, settings.patience)):
            check.refuse("steps", 0, "a limit: steps, epochs, minutes or patience")
        # Where data have no end, such as those that are generated, there is no epoch.
        self.batches_per_epoch = float(getattr(task, "batches_per_epoch", 0.0))
        if settings.epochs and not self.batches_per_epoch:
            check.refuse("epochs", settings.epochs, "0: this task's data have no end; use steps")
        if settings.tensorboard and importlib.util.find_spec("tensorboard") is None:
            check.refuse("tensorboard", True, "an extra package: pip install tensorboard")
        self.rule = rule(
            settings.gradient,
            k1=settings.k1,
            k2=settings.k2,
            checkpoint_every=settings.checkpoint_every,
            loss=self._loss,
            split=self._split,
        )
        self._check_rule()
        self.optimizer = optimizer.build(self.model, settings)
        self.parameters = {n: w for n, w in self.model.named_parameters() if w.requires_grad}
        self.average = Average(self.model, settings.ema or None)
        # Above the lowest validation score, within which later weights are kept, and as a share.
        self.margin = (math.inf if getattr(task, "refit", False) else 0.0, 0.0)
        self.at = Position()
        self.guard, self.interruption = Guard(), Interruption()
        self.metrics = Metrics(None)
        self.means = Means()
        self._measured = 0  # bytes of metrics that belong to where we stand
        self._saved: tuple[int, int] | None = None
        self._last: tuple[Any, Any] | None = None  # the last part of a batch, and its state
        self._best_weights: dict[str, Tensor] | None = None
        self.spikes = Spikes(settings.spike)
        self._good: Tensor | None = None  # where to go back to when the loss spikes
        self._start_clock()
        generators.seed_all(settings.seed + self.world.rank)
        self.world.share_weights(list(checkpoint.weights(self.model).values()))
        self._random = generators.states()  # ours, whatever others draw between two calls of `fit`

    def fit(self, pause: Callable[[Position], bool] | None = None) -> Result:
        """Train until a limit is reached; the model then has the weights that scored best.

        Args:
            pause: stops before an update where it is true, with everything saved; `fit` goes on
                from there
        """
        if self.folder is not None and self.world.is_first and self.metrics.path is None:
            board = self.folder.path / "tensorboard" if self.settings.tensorboard else None
            self.metrics = Metrics(self.folder.metrics, self._measured, board)
        self._start_clock()
        generators.restore(self._random)
        with self.interruption.watched(), self.progress, deterministic(self.settings.deterministic):
            self._keep_good()
            reason = self._train(pause)
        self._random = generators.states()
        self.metrics.close()
        if reason not in UNFINISHED:
            self._take_best()
            if self.folder is not None and self.world.is_first:
                self.folder.drop_earlier()
        p = self.at
        number = self.interruption.signal
        return Result(reason, p.step, p.best, p.best_step, p.elapsed, number)

    def _start_clock(self) -> None:
        self._began = time.monotonic() - self.at.elapsed
        self._logged = (self.at.tokens, self.at.elapsed)

    def limit(self, **limits: Any) -> None:
        """Change when the training ends: steps, epochs or minutes, and what follows from that."""
        self.settings = replace(self.settings, **limits)

    def _train(self, pause: Callable[[Position], bool] | None) -> str:
        s = self.settings
        try:
            while True:
                if self.at.due(s.validate_every) and self.at.validated != self.at.step:
                    self.validate()
                if reason := self._why_stop():
                    break
                if pause is not None and pause(self.at):
                    reason = "paused"
                    break
                try:
                    self.update()
                except NotFinite as error:
                    if not s.spike:
                        raise
                    self._go_back(error)
                    continue
                if self._spiked():
                    self._go_back(None)
                    continue
                if self.at.due(s.log_every):
                    self._log()
                if self.at.due(s.save_every):
                    self._save()
            if reason not in UNFINISHED and self.at.validated != self.at.step:
                self.validate()
        except Interrupted:
            reason = "interrupted"
        self._save()
        return reason

    # One update.

    def update(self) -> None:
        """One update of the weights: what `fit` repeats, for those who do more in between."""
        s, at = self.settings, self.at
        self.optimizer.zero_grad(set_to_none=True)
        self.model.train()
        with answered(at.step + 1, s.batch, self.parts.shards[0].count, self._attempt):
            count = self._change()
        if s.ema or self.average.count:
            self.average.update()
        at.step += 1
        at.tokens += count
        at.elapsed = time.monotonic() - self._began

    def _change(self) -> float:
        """Change the weights by the gradients of the next batch; how many tokens it had."""
        s, at = self.settings, self.at
        loss, count, scale = self._gradients()
        progress = at.scheduled(s, self.batches_per_epoch)
        share = factor(s.schedule, at.step + 1, progress, warmup=s.warmup, floor=s.floor)
        optimizer.set_lr(self.optimizer, s.lr * share * scale * at.slowed)
        norm, norms, clipped = optimizer.clip(self.parameters, s.clip, s.clip_by)
        noted = {"gradient_norm": norm} | ({"clipped": clipped} if s.clip else {})
        self.means.add(noted, count / self.world.size)
        try:
            self.guard.look(at.step + 1, loss, norms)
        except NotFinite as error:
            raise error.at(self._broken_layer()) from None
        self.optimizer.step()
        return count

    def _attempt(self, parts: int) -> None:
        """Take the memory of an update in so many parts, for nothing but to see whether it fits."""
        self.optimizer.zero_grad(set_to_none=True)
        new = self.settings.optimizer == "adamw" and not self.optimizer.state
        _moments = [torch.empty_like(w) for w in 2 * list(self.parameters.values()) if new]
        batches = self.task.batches(Shard(0, parts))
        for _ in range(2):  # the second part comes while the gradients of the first are there
            self.rule.step(self.model, next(batches), None).put(self.model)

    def _broken_layer(self) -> str:
        """Where the last batch goes wrong, as far as the same computation tells it."""
        last = self._last
        if last is None or self.world.device.type == "cuda":
            return ""  # on a GPU the weights have moved on
        before = generators.states()
        try:
            return first_broken(self.model, lambda: self.task.loss(self.model, *last))
        finally:
            generators.restore(before)

    def _spiked(self) -> bool:
        """Whether the loss spiked on any process: the same answer on all of them."""
        if not self.settings.spike or self.guard.loss is None:
            return False
        return self.spikes.seen(self.world.largest([self.guard.loss])[0])

    def _keep_good(self) -> None:
        if self.settings.spike:
            self._good = pack(self.state_dict())

    def _go_back(self, error: NotFinite | None) -> None:
        """To the last checkpoint, with a lower rate; the error stands if that was tried enough."""
        slowed, step = self.at.slowed * LOWER, self.at.step
        if self._good is None or slowed < LOWER**MOST:
            why = f"the loss spiked {MOST} times, at last at step {step}. {ADVICE}"
            raise error or ArithmeticError(why)
        self.load_state_dict(unpack(self._good))
        self.at.slowed = slowed
        self._keep_good()
        self.metrics.add(step, {"spike": step, "back_to": self.at.step, "slowed": slowed})
        told = f"step {step}: the loss spiked; back to step {self.at.step}"
        self.progress.say(f"{told}, the learning rate times {slowed:g}")

    def _gradients(self) -> tuple[Tensor, float, float]:
        """The gradients of the mean loss over all parts of a batch, in `.grad`.

        With n_k tokens in part k, of all parts on all processes: ∇ = Σ n_k ∇_k / Σ n_k.
        Returned are our loss, the number of tokens, and the factor on the learning rate.
        """
        device = self.world.device
        ours, scale, total = 0.0, 1.0, torch.zeros((), dtype=torch.float64, device=device)
        for k, last in enumerate(self.parts):
            self._last = last
            found = self.rule.step(self.model, *last)
            found.put(self.model)
            self.parts.carried[k] = found.carried
            total += found.value
            for loss in found.notes:
                ours, scale = ours + loss.count, loss.scale
                self.means.add({"loss": loss.value, **loss.metrics}, loss.count)
        self.means.count(ours)
        everyones = ours
        if self.parts.shards[0].count > 1:
            self.world.sum_gradients(list(self.parameters.values()))
            (everyones,) = self.world.sum([ours])
        for w in self.parameters.values():
            if w.grad is not None:
                w.grad.div_(everyones)
        return total / ours, everyones, scale

    def _loss(self, model: nn.Module, batch: Any, carried: Any) -> tuple[Tensor, Any, Loss]:
        """The task's loss as gradient rules take it: a sum, not a mean."""
        bfloat16 = self.settings.precision == "bfloat16"
        with torch.autocast(self.world.device.type, torch.bfloat16, bfloat16):
            loss = self.task.loss(model, batch, carried)
        state = loss.carried if loss.state is None else loss.state
        note = replace(loss, value=loss.value.detach(), carried=None, state=None)
        return loss.value * loss.count, state, note

    def _check_rule(self) -> None:
        s = self.settings
        if not hasattr(self.task, "split"):
            why = "this task has no split(batch, steps), which cuts a batch in time"
            if s.gradient != "bptt":
                check.refuse("gradient", s.gradient, f"'bptt': {why}")
            if s.checkpoint_every:
                check.refuse("checkpoint_every", s.checkpoint_every, f"0: {why}")
        self.rule.examine(self.model)

    def _split(self, batch: Any, steps: int) -> Any:
        return cast(Any, self.task).split(batch, steps)

    def _why_stop(self) -> str:
        """Why to stop here, "" to go on: the same on every process."""
        at = self.at
        number, at.elapsed = self.world.largest([self.interruption.signal, at.elapsed])
        self.interruption.signal = int(number)
        return "interrupted" if number else at.reached(self.settings, self.batches_per_epoch)

    # What comes out.

    def _log(self) -> None:
        numbers = self.means.take(self.world)
        if "nll" in numbers:
            numbers["perplexity"] = _exp(numbers["nll"])
        (tokens, elapsed), at = self._logged, self.at
        speed = (at.tokens - tokens) / max(at.elapsed - elapsed, 1e-9)
        self._logged = (at.tokens, at.elapsed)
        more = {
            "lr": self.optimizer.param_groups[0]["lr"],
            "tokens": at.tokens,
            "tokens_per_second": speed,
            "seconds": at.elapsed,
        }
        self.metrics.add(at.step, {**numbers, **more})
        done = at.done(self.settings, self.batches_per_epoch)
        self.progress.show(Report(at.step, done, at.elapsed, speed, numbers))

    def validate(self) -> None:
        """Score the model on the validation data, keep it if it is the best so far, and save."""
        self.guard.check()
        scores = self.world.tell(self._evaluate() if self.world.is_first else None)
        if scores is None:
            raise Interrupted
        s, at = self.settings, self.at
        better = at.judge(next(iter(scores.values())), *self.margin)
        if s.nonmono and not self.average.count and stalled(at.scores, s.nonmono):
            self.average.update()
            self.progress.say(f"step {at.step}: validation stalled, averaging from here")
        named = {f"valid_{k}": v for k, v in scores.items()}
        self.metrics.add(at.step, {**named, "seconds": time.monotonic() - self._began})
        words = scores_in_words(scores) + ("  (best)" if better else "")
        self.progress.say(f"step {at.step:>6}  valid  {words}")
        if better:
            self._save(best=True)
        elif not s.save_every:
            self._save()

    def _evaluate(self) -> dict[str, float] | None:
        """The scores on the validation data; None if a signal interrupted that."""
        self.model.eval()
        before = generators.states()
        try:
            with self.average.applied(), self.interruption.abandoning(), torch.no_grad():
                return self.task.evaluate(self.model, "valid")
        except Interrupted:
            return None
        finally:
            generators.restore(before)

    # Checkpoints.

    def _save(self, best: bool = False) -> None:
        self.guard.check()
        if best:
            self._keep_best()
        if self._saved == (self.at.step, self.at.validated):
            return
        if self.folder is None:
            self._keep_good()
            return
        state = self.state_dict()
        if self.settings.spike:
            self._good = pack(state)
        if self.world.is_first:
            self.folder.save_last(state)
            if best:
                self._write_best()
        self._saved = (self.at.step, self.at.validated)

    def _write_best(self) -> None:
        assert self.folder is not None
        assert self._best_weights is not None
        self.folder.keep_as_best()
        checkpoint.save_weights(self.folder.model, self._best_weights)

    def _keep_best(self) -> None:
        with self.average.applied():
            weights = checkpoint.weights(self.model)
            self._best_weights = {name: w.to("cpu", copy=True) for name, w in weights.items()}

    def _take_best(self) -> None:
        if self._best_weights is not None:
            checkpoint.load_weights(self.model, self._best_weights)

    def state_dict(self) -> dict[str, Any]:
        """All that the next update depends on, of all processes together."""
        return {
            "weights": checkpoint.weights(self.model),
            "optimizer": optimizer.state(self.optimizer, self.model),
            "average": self.average.state_dict(),
            "position": asdict(self.at),
            "sums": self.means.state_dict(self.world),
            "metrics": self.metrics.saved(),
            "spikes": self.spikes.state,
            **self.parts.state_dict(self.world),
            "random": self.world.gather(generators.states()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; a CheckpointError says where that is not possible."""
        with checkpoint.usable():
            checkpoint.load_weights(self.model, state["weights"])
            optimizer.load_state(self.optimizer, self.model, state["optimizer"])
            self.average.load_state_dict(state["average"])
            self.at = Position(**state["position"])
            self.means.load_state_dict(state["sums"], self.world)
            self._measured = int(state["metrics"])
            self.spikes.state = state.get("spikes", (0.0, 0))
            self.parts.load_state_dict(state, self.world.device)
            if len(state["random"]) == self.world.size:
                generators.restore(state["random"][self.world.rank])
            else:  # other processes than those that saved: all begin anew, none like another
                generators.seed_all(hash((self.settings.seed, self.at.step, self.world.rank)))
            self._random = generators.states()
            self._start_clock()
        self._saved = (self.at.step, self.at.validated)

    def resume(self) -> bool:
        """Go on from the folder's last checkpoint; False if there is none yet."""
        assert self.folder is not None
        state = self.folder.read_last(self.progress.say)
        if state is None:
            return False
        self.load_state_dict(state)
        if self.at.best_step and self.at.best_step == self.at.validated == self.at.step:
            # Perhaps the process ended between the last checkpoint and these.
            self._keep_best()
            if self.world.is_first:
                self._write_best()
        elif self.at.best_step:
            self._best_weights = checkpoint.read_weights(self.folder.model)
        return True


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
