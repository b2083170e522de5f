"""Trainings to the end: of the leader of a race, of others where data are small, and of the best on
all data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from metarnn.study.contenders import Contender, refitted, shortened, variants
from metarnn.study.course import Course
from metarnn.study.judgement import LEAST, MARGIN, Judgement, Refit
from metarnn.study.runner import Runner

CHECKS = 12  # validations of a final training
EARLY = 0.35  # of a training, in which it is not said to overfit
PATIENCE = 0.3  # of a training without a better validation, after which it has overfitted
# Where a training overfits, the next ones last so many times as long as its best validation took:
# the most that is not above half of a full training, and the least in any case. Their learning rate
# falls before they overfit. Test losses, one seed: 30 kB of text 1.755 nats after 1.5 times and
# after 3 times as long, sunspots 0.687 after 1.7 times and 0.678 after 3.3 times.
SHORTENED = (1.5, 3.0)
VARIANTS = 6  # that are tried at most
ENOUGH = 0.8  # of the length of a refit, with less than which there is none


class Finals:
    """The trainings to the end that follow the rungs of a race.

    Args:
        course: the plan and the runners of the race
        contenders: in the order of the portfolio
        judgement: what validation losses can tell
        refit: how the best is trained on all data
        useful: the updates after which a training gains nothing
        length: of a full training, where that is set
    """

    def __init__(
        self,
        course: Course,
        contenders: Sequence[Contender],
        judgement: Judgement,
        refit: Refit,
        useful: float,
        length: float = 0.0,
    ) -> None:
        self.course, self.contenders, self.judgement = course, contenders, judgement
        self.refit, self.useful, self.fixed = refit, useful, length
        self.plan = course.plan

    def run(self, leader: Runner, reason: str) -> Runner:
        """Train the leader to the end, and what the time allows beside it; return the winner."""
        by_clock = not self.course.steps and not self.fixed
        finished = [self._final(leader, reason)]
        if by_clock:
            finished += self._further(leader)
        best = self._preferred(finished)
        if best.failure:
            raise ArithmeticError(
                f"none of the {len(self.plan['contenders'])} contenders could be trained: "
                f"{best.failure}. Look for values in the data that are out of proportion"
            )
        self._decide_winner(best, finished)
        return self._refitted(best) if by_clock and self.refit.ratio else best

    def _final(self, runner: Runner, reason: str, length: float = 0.0) -> Runner:
        """Train a contender to the end; what has failed by then keeps its best weights."""
        finals, course = self.plan["finals"], self.course
        if runner.name not in finals:
            end = self._end(runner, length or course.length, first=not finals)
            finals[runner.name] = {"since": runner.spent, "end": end, "reason": reason}
            course.study.note()
            course.progress.say(
                f"\n{runner.name} is trained to the end: {course.words(end)} in all"
            )
        final = finals[runner.name]
        if "score" not in final:
            end = final["end"]
            short = end < 0.9 * course.length  # its learning rate soon falls anyway
            done = (lambda runner: False) if short else self._overfits(end)
            runner.finish(final["since"], end, CHECKS, done)
            final |= {"spent": runner.spent, "score": runner.best, "failure": runner.failure}
            decision = f"best validation {runner.best:.4f} after {course.words(runner.spent)}"
            reason = final["reason"]
            if runner.failure:
                reason += f"; {runner.failure}"
            elif runner.spent < 0.9 * end:
                final["overfits_after"] = best_time(runner.curve)
                reason += "; ended early, since it overfits"
            course.decide(f"final of {runner.name}", decision, reason)
        return runner

    def _overfits(self, end: float) -> Callable[[Runner], bool]:
        return lambda runner: overfits(runner.curve, end, self.judgement.floor)

    def _end(self, runner: Runner, length: float, *, first: bool) -> float:
        """When a final ends: the first takes the time that is left, as far as it is of use."""
        course = self.course
        if course.steps or self.fixed:
            return length
        if first and self.plan.get("small"):
            return min(length, runner.spent + course.left())
        end = self.useful * runner.pace() if first else length
        return min(end, runner.spent + course.left())

    def _further(self, first: Runner) -> Iterator[Runner]:
        """Finals of the others, by their last standing, then of variants of the best.

        If the first one overfits, it is trained anew, and all of them for a shorter time.
        """
        course = self.course
        length, at = course.length, self.plan["finals"][first.name].get("overfits_after")
        if at is not None:
            least, most = (times * at for times in SHORTENED)
            length = min(max(least, min(most, length / 2)), length)
            contender = shortened(first.contender, length / course.length)
            if contender.name in self.plan["finals"] or MARGIN * length <= self._room(length):
                reason = f"{first.name} overfits after {course.words(at)}"
                yield self._final(course.runner(contender, length), reason, length)
        order = [each["name"] for rung in self.plan["rungs"][::-1] for each in rung["standing"]]
        for name in dict.fromkeys(order):
            runner = course.runners[name]
            known = name in self.plan["finals"]
            end = max(length, 2 * runner.spent)
            enough = MARGIN * (end - runner.spent) <= self._room(length)
            if name != first.name and not runner.failure and (known or enough):
                yield self._final(runner, "time is left for it", end)
        best = self._preferred([course.runners[name] for name in self.plan["finals"]])
        queue, tried = list(variants(best.contender)), 0
        if self.judgement.least > LEAST:
            least = f"{self.judgement.least:.0%}"
            reason = f"{self.judgement.on} tell only differences of {least} or more"
            course.decide("variants", "none are tried", reason)
            return
        while queue and tried < VARIANTS:
            contender, tried = queue.pop(0), tried + 1
            length = contender.length * course.length
            known = contender.name in self.plan["finals"]
            if not known and MARGIN * length > self._room(length):
                continue
            runner = course.runner(contender, length)
            yield self._final(runner, f"time is left for a variant of {best.name}", length)
            if self._preferred([best, runner]) is runner:
                best, queue = runner, list(variants(runner.contender))

    def _room(self, length: float) -> float:
        """The time for a further training, beside a refit of this length."""
        refit = MARGIN * self.refit.ratio * self.refit.members * length
        return self.course.left() - refit

    # The winner.

    def _preferred(self, finished: Sequence[Runner]) -> Runner:
        """The most promising, unless another's validation loss is lower by enough to tell."""
        names = [each.name for each in self.contenders]
        order = {name: float(k) for k, name in enumerate(names)}
        # The shorter training of a contender that overfits is preferred to the longer one.
        order |= {shortened(each).name: order[each.name] - 0.5 for each in self.contenders}
        best, *others = sorted(finished, key=lambda runner: order.get(runner.name, len(names)))
        for runner in others:
            if runner.best < best.best - self.judgement.margin(best.best) or best.failure:
                best = runner
        return best

    def _decide_winner(self, best: Runner, finished: Sequence[Runner]) -> None:
        """Say who is kept, and whether the validation data could tell."""
        judgement = self.judgement
        others = sorted((each for each in finished if each is not best), key=lambda r: r.best)
        if others and others[0].best < best.best:
            least = f"{judgement.least:.0%}"
            if judgement.margin(best.best) > judgement.least * abs(best.best):
                least = f"{judgement.floor:.4f}"
            reason = (
                f"no other's validation loss is lower by {least}; {others[0].name} with "
                f"{others[0].best:.4f} against {best.best:.4f} is too close to tell"
            )
        elif others:
            reason = (
                f"of {len(finished)} trained to the end it has the lowest validation loss, "
                f"{best.best:.4f}; next is {others[0].name} with {others[0].best:.4f}"
            )
            if others[0].best - best.best < judgement.margin(best.best):
                reason += ", too close to tell"
        elif not self.plan["rungs"]:
            reason = "no other contender took part"
            if len(self.contenders) == 1:
                reason = "it was the only contender"
        else:
            reason = self._lead(best)
        if others or self.plan["rungs"]:
            reason += f", on {judgement.on}"
        figures = {each.name: each.best for each in finished}
        self.course.decide("winner", f"{best.name} is kept", reason, **figures)

    def _lead(self, best: Runner) -> str:
        """How the winner stood against the runner-up, when they were last compared."""
        rows: dict[str, dict[str, Any]]
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

    # All data.

    def _refitted(self, best: Runner) -> Runner:
        """Train the best anew on training and validation data, if there is time for it.

        It has as many passes over the data as the best one needed, and as many members as the time
        allows. It is not kept if it fits the validation data, which it has seen, worse than the
        best does, which has not.
        """
        course, refit = self.course, self.refit
        plan: dict[str, Any] | None = self.plan.get("refit")
        if plan is None:
            length = refit.ratio * best.kept_at
            room = course.left() / MARGIN
            members = min(round(room / length), refit.members)
            if members < 1 or room < ENOUGH * length:
                return best
            end = min(members * length, room)
            plan = self.plan["refit"] = {"of": best.name, "members": members, "end": end}
            course.study.note()
        members, end = plan["members"], plan["end"]
        runner = course.runner(refitted(best.contender, members), end)
        if "score" not in plan:
            course.progress.say(f"\n{runner.name}: {course.words(end)} on all but the test data")
            runner.finish(0.0, end, 1, lambda runner: False)
            plan |= {"score": runner.best, "failure": runner.failure}
            worse = runner.best > best.best + self.judgement.margin(best.best)
            plan["kept"] = not runner.failure and not worse
            of = f"{members} members from different starts, " if members > 1 else ""
            reason = "nothing is left to choose, and more data make a better model"
            if runner.failure:
                reason = runner.failure
            elif worse:
                reason = (
                    f"it fits the validation data worse, {runner.best:.4f}, than {best.name}, "
                    f"{best.best:.4f}, that was not trained on them"
                )
            kept = "kept" if plan["kept"] else "not kept"
            course.decide("refit", f"{of}trained on training and validation data: {kept}", reason)
        return runner if plan["kept"] else best


def best_time(curve: Sequence[tuple[float, float]]) -> float:
    """When a learning curve is lowest.

    >>> best_time([(1.0, 3.0), (2.0, 2.5), (3.0, 2.6)])
    2.0
    """
    return min(curve, key=lambda point: point[1])[0]


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
