"""A race in which nothing is thrown away: whoever stays goes on from its own weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from metarnn.study.contenders import Contender
from metarnn.study.course import KEY, Course
from metarnn.study.finals import Finals
from metarnn.study.forecast import forecasts
from metarnn.study.judgement import MARGIN, Judgement, Refit
from metarnn.study.runner import Runner
from metarnn.study.study import Study
from metarnn.training.progress import Progress

# (share of a full training, contenders that stay): the learning rate is constant until the last.
RUNGS = ((0.03, 3), (0.06, 2), (0.12, 1))
FEWEST = 60  # updates, fewer than which rank nothing
PRIOR = 0.005  # of its predicted score that a contender has to win for each place behind the first
# Of the useful length of a training, what is worth more than a refit with members: data are small
# if there is time for both. A refit of a single model leaves the whole of it: the labels of Morse
# code, a GRU, 90 s in all, one thread, one seed: 0.0101 nats refitted after 38 s, 0.0006 trained
# for all of the time without a refit.
SHORT = 0.3


class Race:
    """Trains contenders side by side until one leads, and that one to the end of the budget.

    Where the data are small and time is left, others are trained to the end as well, then variants
    of the best of them; the best validation decides, and the best is trained anew on all data.

    Args:
        study: stores every decision, so that a race that was stopped goes on as it was planned
        make: makes the runner of a contender for a full training of this length
        contenders: the most promising first
        left: seconds that are left for training
        useful: the updates after which a training gains nothing
        steps: updates of a full training, where the clock decides nothing; else 0
        judgement: what validation losses can tell
        refit: how the best is trained on all data
        progress: where to show how it goes
        unstable: why a contender would fail on long input whatever its score, "" if it would not
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
        judgement: Judgement = Judgement(),  # noqa: B008  frozen
        refit: Refit = Refit(),  # noqa: B008  frozen
        unstable: Callable[[Runner], str] = lambda runner: "",
        key: str = KEY,
        length: float = 0.0,
    ) -> None:
        self.course = Course(study, make, left, steps, progress, key)
        self.contenders = [each for each in contenders if not each.parent]
        self.copies = [each for each in contenders if each.parent]
        self.useful, self.fixed = useful, length
        self.judgement, self.refit, self.unstable = judgement, refit, unstable
        self.plan = self.course.plan

    def run(self) -> Runner:
        """Return the winner, trained to the end."""
        course = self.course
        if "length" not in self.plan:
            self.plan |= self._planned()
            self._decide_contenders()
        names = {each.name: each for each in self.contenders}
        running = [course.runner(names[name]) for name in self.plan["contenders"]]
        rungs = [(share, stay) for share, stay in RUNGS if stay < len(running)]
        for k, (share, stay) in enumerate(rungs):
            if k:
                running += self._growing(running)
            running = self._rung(k, running, share * course.length, stay)
        reason = "the only one" if len(names) == 1 else "the first after the last rung"
        if len(names) > 1 and not rungs:
            reason = "the first in the order of the portfolio"
        finals = Finals(
            course, self.contenders, self.judgement, self.refit, self.useful, self.fixed
        )
        return finals.run(running[0], reason)

    @property
    def trained(self) -> list[Runner]:
        """All contenders that have weights to use."""
        runners = self.course.runners.values()
        return [runner for runner in runners if not runner.failure and runner.curve]

    # Planning.

    def _planned(self) -> dict[str, Any]:
        """The length of a full training and who takes part, by the pace of the first contender."""
        names, left = [each.name for each in self.contenders], self.course.left
        if self.course.steps or self.fixed:
            return {"length": self.fixed or float(self.course.steps), "contenders": names}
        pace = self.course.runner(self.contenders[0], left()).pace(FEWEST // 3)
        useful = self.useful * pace
        refit = self.refit.cost
        least = SHORT * useful if self.refit.members > 1 else useful
        small = refit > 0 and least * (1 + cost(len(names)) + refit) <= left()
        refit = refit if small else 0.0
        plan = {"contenders": names, "seconds_per_update": pace, "small": small}
        if (len(names) * MARGIN + refit) * useful <= left():  # there is time for all
            return {**plan, "length": useful}
        count = len(names)
        while count > 1 and RUNGS[0][0] * left() / (1 + cost(count) + refit) < FEWEST * pace:
            count -= 1  # the fewer, the longer their rungs
        length = min(left() / (1 + cost(count) + refit), useful)
        return {**plan, "length": length, "contenders": names[:count]}

    def _decide_contenders(self) -> None:
        course = self.course
        count, every = len(self.plan["contenders"]), len(self.contenders)
        length = course.words(course.length)
        decision = f"{count} of {every} take part; a full training takes {length}"
        if course.steps or self.fixed:
            reason = "its length was set beforehand"
        elif count < every:
            pace = self.plan["seconds_per_update"]
            reason = (
                f"each must train {FEWEST} updates before the first ones stop, an update takes "
                f"{1000 * pace:,.0f} ms"
            )
        elif self.plan["small"]:
            reason = "data are small: there is time to train the best again, on all of them"
        elif course.length < course.left() / 2:
            reason = "longer trainings gain nothing on so few data"
        else:
            reason = "all that the time allows"
        course.decide("contenders", decision, reason)

    # Rungs.

    def _rung(self, k: int, running: list[Runner], until: float, stay: int) -> list[Runner]:
        """Train all until so much time is spent, and keep those with the best predictions."""
        rungs = self.plan["rungs"]
        if k == len(rungs):
            for runner in running:
                runner.advance(rungs[-1]["until"] if rungs else 0.0, until)
            self._decide_rung(running, until, stay)
        kept = self.plan["rungs"][k]["kept"]
        return [self.course.runners[name] for name in kept]

    def _growing(self, running: list[Runner]) -> list[Runner]:
        """Changed copies of the leader, which join the race beside it."""
        course, leader = self.course, running[0]
        joined = []
        for contender in self.copies:
            if contender.parent != leader.name or contender.name in course.runners:
                continue
            joined.append(course.grow(contender, leader))
            reason = f"{leader.name} leads; the copy has its weights, and stays if it gets ahead"
            course.decide("growth", f"{contender.name} joins", reason)
        return joined

    def _decide_rung(self, running: list[Runner], until: float, stay: int) -> None:
        course = self.course
        curves = [[] if runner.failure else runner.curve for runner in running]
        names = (runner.name for runner in running)
        predicted = dict(zip(names, forecasts(curves, course.length), strict=True))
        places = {name: k for k, name in enumerate(self.plan["contenders"])}
        places |= {each.name: places.get(each.parent, 0) + 1 for each in self.copies}

        def rank(runner: Runner) -> float:
            score = max(predicted[runner.name].score, self.judgement.floor)
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
        for line in rung_lines(rung, course.words(until)):
            course.progress.say(line)
        out = [runner.name for runner in ranked if runner.name not in kept]
        for name, reason in unstable.items():
            decision = "unstable" if name in out else "unstable, kept since too few are stable"
            course.decide(f"stability of {name}", decision, reason)
        worst = predicted[kept[-1]].high
        close = [name for name in out if predicted[name].low <= worst]
        reason = f"the worst predictions for the end of the training, on {self.judgement.on}"
        if close:
            reason += f"; too close to {kept[-1]} to tell: {'; '.join(close)}"
        course.decide(f"rung {len(self.plan['rungs'])}", f"out: {'; '.join(out)}", reason)

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
