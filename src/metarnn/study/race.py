"""A race in which nothing is thrown away: whoever stays goes on from its own weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from metarnn.study.contenders import Contender, shortened, variants
from metarnn.study.forecast import forecasts
from metarnn.study.runner import Runner
from metarnn.study.study import Study
from metarnn.training.progress import Progress, clock

# (share of a full training, contenders that stay): the learning rate is constant until the last.
RUNGS = ((0.03, 3), (0.06, 2), (0.12, 1))
KEY = "race"
FEWEST = 60  # updates, fewer than which rank nothing
CHECKS = 12  # validations of a final training
EARLY = 0.35  # of a training, in which it is not said to overfit
PATIENCE = 0.3  # of a training without a better validation, after which it has overfitted
MARGIN = 1.05  # of the time that a second final is expected to take
PRIOR = 0.005  # of its predicted score that a contender has to win for each place behind the first
# Where a training overfits, the next ones last so many times as long as its best validation took:
# the learning rate falls before they overfit.
SHORTENED = 1.5
LEAST = 0.01  # lower, as a share, is a validation loss that is preferred
VARIANTS = 6  # that are tried at most


class Race:
    """Trains contenders side by side until one leads, and that one to the end of the budget.

    Where the data are small and time is left, others are trained to the end as well, then variants
    of the best of them; the best validation decides.

    Args:
        study: stores every decision, so that a race that was stopped goes on as it was planned
        make: makes the runner of a contender for a full training of this length
        contenders: the most promising first
        left: seconds that are left for training
        useful: the updates after which a training gains nothing
        steps: updates of a full training, where the clock decides nothing; else 0
        least: the share by which another's validation loss must be lower to be preferred: with few
            validation examples small differences tell nothing
        floor: the difference by which it must be lower whatever its size: where all losses are next
            to nothing, a single example decides on their ratio
        progress: where to show how it goes
        unstable: why a contender would fail on long input whatever its score, "" if it would not
        validation: what contenders are scored on, in words: "48 examples"
        key: under which the study stores it
        length: of a full training, where that is set
    """

    def __init__(
        self,
        study: Study,
        make: Callable[[Contender, float], Runner],
        contenders: Sequence[Contender],
        *,
        left: Callable[[], float],
        useful: float,
        steps: int,
        progress: Progress,
        least: float = LEAST,
        floor: float = 0.0,
        unstable: Callable[[Runner], str] = lambda runner: "",
        validation: str = "the validation data",
        key: str = KEY,
        length: float = 0.0,
    ) -> None:
        self.study, self.make, self.left, self.useful = study, make, left, useful
        self.contenders, self.steps, self.progress = list(contenders), steps, progress
        self.least, self.floor = least, floor
        self.validation, self.unstable = validation, unstable
        self.runners: dict[str, Runner] = {}
        self.key, self.fixed = key, length
        self.plan: dict[str, Any] = study.about.setdefault(key, {"rungs": [], "finals": {}})

    def run(self) -> Runner:
        """Return the winner, trained to the end."""
        if "length" not in self.plan:
            self.plan |= self._planned()
            self._decide_contenders()
        names = {each.name: each for each in self.contenders}
        running = [self._runner(names[name]) for name in self.plan["contenders"]]
        rungs = [(share, stay) for share, stay in RUNGS if stay < len(running)]
        for k, (share, stay) in enumerate(rungs):
            running = self._rung(k, running, share * self.length, stay)
        reason = "the only one" if len(names) == 1 else "the first after the last rung"
        if len(names) > 1 and not rungs:
            reason = "the first in the order of the portfolio"
        finished = [self._final(running[0], reason)]
        if not self.steps and not self.fixed:
            finished += self._further_finals(running[0])
        best = self._preferred(finished)
        if best.failure:
            names = self.plan["contenders"]
            raise ArithmeticError(
                f"none of the {len(names)} contenders could be trained: {best.failure}. Look for "
                "values in the data that are out of proportion"
            )
        self._decide_winner(best, finished)
        return best

    @property
    def trained(self) -> list[Runner]:
        """All contenders that have weights to use."""
        return [runner for runner in self.runners.values() if not runner.failure and runner.curve]

    @property
    def length(self) -> float:
        """The length of a full training, in seconds or updates."""
        return self.plan["length"]

    def _decide(self, stage: str, decision: str, reason: str, **figures: Any) -> None:
        own = stage if self.key == KEY else f"{self.key}, {stage}"
        self.progress.say(self.study.decide(own, decision, reason, **figures))

    # Planning.

    def _planned(self) -> dict[str, Any]:
        """The length of a full training and who takes part, by the pace of the first contender."""
        names = [each.name for each in self.contenders]
        if self.steps or self.fixed:
            return {"length": self.fixed or float(self.steps), "contenders": names}
        first = self._runner(self.contenders[0], length=self.left())
        pace = first.pace(FEWEST // 3)
        if len(names) * MARGIN * self.useful * pace <= self.left():  # there is time for all
            length = self.useful * pace
            return {"length": length, "contenders": names, "seconds_per_update": pace}
        count = len(names)
        while count > 1 and RUNGS[0][0] * self.left() / (1 + cost(count)) < FEWEST * pace:
            count -= 1  # the fewer, the longer their rungs
        length = min(self.left() / (1 + cost(count)), self.useful * pace)
        return {"length": length, "contenders": names[:count], "seconds_per_update": pace}

    def _decide_contenders(self) -> None:
        count, every = len(self.plan["contenders"]), len(self.contenders)
        decision = f"{count} of {every} take part; a full training takes {self._words(self.length)}"
        if self.steps or self.fixed:
            reason = "its length was set beforehand"
        elif count < every:
            pace = self.plan["seconds_per_update"]
            reason = (
                f"each must train {FEWEST} updates before the first ones stop, an update takes "
                f"{1000 * pace:,.0f} ms"
            )
        elif self.length < self.left() / 2:
            reason = "longer trainings gain nothing on so few data"
        else:
            reason = "all that the time allows"
        self._decide("contenders", decision, reason)

    def _runner(self, contender: Contender, length: float = 0.0) -> Runner:
        """The runner of a contender, ready to train."""
        if contender.name not in self.runners:
            self.runners[contender.name] = self.make(contender, length or self.length)
        return self.runners[contender.name]

    # Rungs.

    def _rung(self, k: int, running: list[Runner], until: float, stay: int) -> list[Runner]:
        """Train all until so much time is spent, and keep those with the best predictions."""
        rungs = self.plan["rungs"]
        if k == len(rungs):
            for runner in running:
                runner.advance(rungs[-1]["until"] if rungs else 0.0, until)
            self._decide_rung(running, until, stay)
        kept = self.plan["rungs"][k]["kept"]
        return [self.runners[name] for name in kept]

    def _decide_rung(self, running: list[Runner], until: float, stay: int) -> None:
        curves = [[] if runner.failure else runner.curve for runner in running]
        names = (runner.name for runner in running)
        predicted = dict(zip(names, forecasts(curves, self.length), strict=True))
        places = {name: k for k, name in enumerate(self.plan["contenders"])}

        def rank(runner: Runner) -> float:
            score = max(predicted[runner.name].score, self.floor)
            return score * (1 + PRIOR * places[runner.name])

        ranked = sorted(running, key=rank)
        kept, unstable = self._stable(ranked, stay)
        standing = [
            {
                "name": runner.name,
                "score": runner.score,
                "predicted": predicted[runner.name].score,
                "interval": [predicted[runner.name].low, predicted[runner.name].high],
                "failure": runner.failure,
                "unstable": unstable.get(runner.name, ""),
            }
            for runner in ranked
        ]
        rung = {"until": until, "standing": standing, "kept": kept}
        self.plan["rungs"] = [*self.plan["rungs"], rung]
        for line in rung_lines(rung, self._words(until)):
            self.progress.say(line)
        out = [runner.name for runner in ranked if runner.name not in kept]
        for name, reason in unstable.items():
            decision = "unstable" if name in out else "unstable, kept since too few are stable"
            self._decide(f"stability of {name}", decision, reason)
        worst = predicted[kept[-1]].high
        close = [name for name in out if predicted[name].low <= worst]
        reason = f"the worst predictions for the end of the training, on {self.validation}"
        if close:
            reason += f"; too close to {kept[-1]} to tell: {'; '.join(close)}"
        self._decide(f"rung {len(self.plan['rungs'])}", f"out: {'; '.join(out)}", reason)

    def _stable(self, ranked: Sequence[Runner], stay: int) -> tuple[list[str], dict[str, str]]:
        """The first so many that are stable, or of the others where those are too few; and why
        those before them are unstable."""
        stable: list[str] = []
        unstable: dict[str, str] = {}
        for runner in ranked:
            if len(stable) == stay or runner.failure:
                break
            if reason := self.unstable(runner):
                unstable[runner.name] = reason
            else:
                stable.append(runner.name)
        others = [runner.name for runner in ranked if runner.name not in stable]
        return [*stable, *others[: stay - len(stable)]], unstable

    def _words(self, time: float) -> str:
        return f"{time:,.0f} updates" if self.steps else clock(time)

    # Finals.

    def _final(self, runner: Runner, reason: str, length: float = 0.0) -> Runner:
        """Train a contender to the end; what has failed by then keeps its best weights."""
        finals = self.plan["finals"]
        if runner.name not in finals:
            end = self._end(runner, length or self.length, first=not finals)
            finals[runner.name] = {"since": runner.spent, "end": end, "reason": reason}
            self.study.note()
            self.progress.say(f"\n{runner.name} is trained to the end: {self._words(end)} in all")
        final = finals[runner.name]
        if "score" not in final:
            end = final["end"]
            short = end < 0.9 * self.length  # its learning rate soon falls anyway
            done = (lambda runner: False) if short else self._overfits(end)
            runner.finish(final["since"], end, CHECKS, done)
            final |= {"spent": runner.spent, "score": runner.best, "failure": runner.failure}
            spent = self._words(runner.spent)
            decision = f"best validation {runner.best:.4f} after {spent}"
            reason = final["reason"]
            if runner.failure:
                reason += f"; {runner.failure}"
            elif runner.spent < 0.9 * end:
                final["overfits_after"] = min(runner.curve, key=lambda point: point[1])[0]
                reason += "; ended early, since it overfits"
            self._decide(f"final of {runner.name}", decision, reason)
        return runner

    def _overfits(self, end: float) -> Callable[[Runner], bool]:
        return lambda runner: overfits(runner.curve, end, self.floor)

    def _decide_winner(self, best: Runner, finished: Sequence[Runner]) -> None:
        """Say who is kept, and whether the validation data could tell."""
        others = sorted((each for each in finished if each is not best), key=lambda r: r.best)
        if others and others[0].best < best.best:
            least = f"{self.least:.0%}"
            if self._margin(best) > self.least * abs(best.best):
                least = f"{self.floor:.4f}"
            reason = (
                f"no other's validation loss is lower by {least}; {others[0].name} with "
                f"{others[0].best:.4f} against {best.best:.4f} is too close to tell"
            )
        elif others:
            reason = (
                f"of {len(finished)} trained to the end it has the lowest validation loss, "
                f"{best.best:.4f}; next is {others[0].name} with {others[0].best:.4f}"
            )
            if others[0].best - best.best < self._margin(best):
                reason += ", too close to tell"
        elif not self.plan["rungs"]:
            reason = "no other contender took part"
            if len(self.contenders) == 1:
                reason = "it was the only contender"
        else:
            reason = self._lead(best)
        if others or self.plan["rungs"]:
            reason += f", on {self.validation}"
        figures = {each.name: each.best for each in finished}
        self._decide("winner", f"{best.name} is kept", reason, **figures)

    def _lead(self, best: Runner) -> str:
        """How the winner stood against the runner-up, when they were last compared."""
        rows = {row["name"]: row for row in self.plan["rungs"][-1]["standing"]}
        second = next(row for name, row in rows.items() if name != best.name)
        low, high = second["interval"]
        own = rows[best.name]["predicted"]
        close = ", too close to tell" if low <= own else ""
        return (
            f"it led {len(self.plan['contenders'])} contenders after equal time; the runner-up, "
            f"{second['name']}, was predicted to reach a validation loss of "
            f"{second['predicted']:.4f} ({low:.4f} to {high:.4f}), the winner {own:.4f}{close}"
        )

    def _preferred(self, finished: Sequence[Runner]) -> Runner:
        """The most promising, unless another's validation loss is lower by enough to tell."""
        names = [each.name for each in self.contenders]
        order = {name: float(k) for k, name in enumerate(names)}
        # The shorter training of a contender that overfits is preferred to the longer one.
        order |= {shortened(each).name: order[each.name] - 0.5 for each in self.contenders}
        best, *others = sorted(finished, key=lambda runner: order.get(runner.name, len(names)))
        for runner in others:
            if runner.best < best.best - self._margin(best) or best.failure:
                best = runner
        return best

    def _margin(self, runner: Runner) -> float:
        """By how much another's validation loss must be lower to be preferred to this one's."""
        return max(self.least * abs(runner.best), self.floor)

    def _end(self, runner: Runner, length: float, *, first: bool) -> float:
        """When a final ends: the first takes all the time that is left, as far as it is of use."""
        if self.steps or self.fixed:
            return length
        wanted = self.useful * runner.pace() if first else length
        return min(wanted, runner.spent + self.left())

    def _further_finals(self, first: Runner) -> Iterator[Runner]:
        """Finals of the others, by their last standing, then of variants of the best.

        If the first one overfits, it is trained anew, and all of them for a shorter time.
        """
        length, at = self.length, self.plan["finals"][first.name].get("overfits_after")
        if at is not None:
            length *= min(SHORTENED * at / length, 1.0)
            contender = shortened(first.contender, length / self.length)
            if contender.name in self.plan["finals"] or MARGIN * length <= self.left():
                reason = f"{first.name} overfits after {self._words(at)}"
                yield self._final(self._runner(contender, length), reason, length)
        order = [each["name"] for rung in self.plan["rungs"][::-1] for each in rung["standing"]]
        for name in dict.fromkeys(order):
            runner = self.runners[name]
            known = name in self.plan["finals"]
            end = max(length, 2 * runner.spent)
            enough = MARGIN * (end - runner.spent) <= self.left()
            if name != first.name and not runner.failure and (known or enough):
                yield self._final(runner, "time is left for it", end)
        best = self._preferred([self.runners[name] for name in self.plan["finals"]])
        queue, tried = list(variants(best.contender)), 0
        if self.least > LEAST:
            reason = f"{self.validation} tell only differences of {self.least:.0%} or more"
            self._decide("variants", "none are tried", reason)
            return
        while queue and tried < VARIANTS:
            contender, tried = queue.pop(0), tried + 1
            length = contender.length * self.length
            if contender.name not in self.plan["finals"] and MARGIN * length > self.left():
                continue
            runner = self._runner(contender, length)
            yield self._final(runner, f"time is left for a variant of {best.name}", length)
            if self._preferred([best, runner]) is runner:
                best, queue = runner, list(variants(runner.contender))


def cost(contenders: int) -> float:
    """What the losers of a race cost, as a share of a full training.

    >>> round(cost(5), 2), cost(1)
    (0.24, 0.0)
    """
    total, running = 0.0, contenders
    for share, stay in RUNGS:
        total += max(running - stay, 0) * share
        running = min(running, stay)
    return total


def overfits(curve: Sequence[tuple[float, float]], end: float, floor: float = 0.0) -> bool:
    """Whether validation has gained nothing for so long, and lost since, that it will not.

    Nothing is said of the first third of a training: while the learning rate is high, a score on a
    text goes up and down with the place that is being read (by 3% on Tiny Shakespeare).
    """
    if len(curve) < 4 or curve[-1][0] < EARLY * end:
        return False
    spent, score = curve[-1]
    at, best = min(curve, key=lambda point: point[1])
    return score > best + max(0.02 * abs(best), floor) and spent - at > PATIENCE * spent


def rung_lines(rung: dict[str, Any], time: str) -> Iterator[str]:
    """A rung as a table of 80 columns at most."""
    yield f"\nafter {time} each:{'validation':>32}  predicted for the end"
    for row in rung["standing"]:
        low, high = row["interval"]
        stays = "  stays" if row["name"] in rung["kept"] else "  unstable" * bool(row["unstable"])
        if row["failure"] or not math.isfinite(row["score"]):
            yield f"  {row['name'][:36]:<36} diverged"
        else:
            words = f"{row['predicted']:.3f} ({low:.3f} to {high:.3f})"
            yield f"  {row['name'][:36]:<36} {row['score']:>8.4f}  {words}{stays}"
