"""The race itself, with runners whose learning curves are known."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest

from metarnn.study.contenders import PORTFOLIOS, Contender
from metarnn.study.finals import overfits
from metarnn.study.forecast import forecasts
from metarnn.study.judgement import Judgement, Refit
from metarnn.study.race import Race, cost
from metarnn.study.study import Study
from metarnn.training.progress import SILENT

PACE = 0.01  # seconds of an update


@dataclass
class Clock:
    """Time that only trainings spend."""

    total: float
    spent: float = 0.0

    def left(self):
        return max(self.total - self.spent, 0.0)


@dataclass
class Scripted:
    """A runner that scores `final` + `gain` / (1 + time): it learns as it is told."""

    contender: Contender
    clock: Clock
    final: float
    gain: float = 1.0
    failure: str = ""
    fails: bool = False
    spent: float = 0.0
    starts: int = 0
    curve: list = field(default_factory=list)
    parameters: int = 1000
    overfits_after: float = math.inf  # seconds, from which on its score rises

    @property
    def name(self):
        return self.contender.name

    @property
    def score(self):
        return math.inf if self.failure else self.curve[-1][1]

    @property
    def best(self):
        return math.inf if self.failure else min(score for _, score in self.curve)

    @property
    def size(self):
        return {"width": 32}

    def inherit(self, parent):
        self.spent, self.curve = parent.spent, list(parent.curve)

    @property
    def kept_at(self):
        return min(self.curve, key=lambda point: point[1])[0]

    def pace(self, updates=0):
        self._train(max(self.spent, updates * PACE))
        return PACE

    def advance(self, since, until):
        for share in (0.5, 1.0):
            self._train(self.spent + (until - self.spent) * share)
            self._score()

    def finish(self, since, end, checks, done):
        for k in range(1, checks + 1):
            self._train(since + (end - since) * k / checks)
            self._score()
            if done(self):
                break

    def _train(self, until):
        self.clock.spent += max(until - self.spent, 0.0)
        self.spent = max(until, self.spent)
        self.failure = "diverged" if self.fails else ""

    def _score(self):
        late = 0.01 * max(self.spent - self.overfits_after, 0.0)
        self.curve.append((self.spent, self.final + self.gain / (1 + self.spent) + late))


def race(
    tmp_path, finals, total=1000.0, steps=0, useful=math.inf, study=None, fails=(), unstable=(),
    overfits_after=math.inf, grown=None, **judging,
):  # fmt: skip
    """A race of contenders with these final scores; its runners, winner and clock."""
    clock, runners = Clock(total), {}
    study = Study(tmp_path, 1.0) if study is None else study
    tmp_path.mkdir(exist_ok=True)

    def make(contender, length):
        name = contender.name.split(",")[0]
        final = finals[name] - 0.05 * (contender.name != name)
        runners[contender.name] = Scripted(
            contender, clock, final, fails=name in fails, overfits_after=overfits_after
        )
        return runners[contender.name]

    children = [Contender(name, parent=parent) for name, parent in (grown or {}).items()]
    every = [*(Contender(name) for name in finals if name not in (grown or {})), *children]
    running = Race(study, make, every, left=clock.left,
                   useful=useful, steps=steps, progress=SILENT, **judging,
                   unstable=lambda runner: "explodes" * (runner.name in unstable))  # fmt: skip
    return running, runners, clock


FIVE = {"a": 1.3, "b": 1.1, "c": 1.5, "d": 1.2, "e": 1.4}


def test_the_best_wins_with_two_thirds_of_the_time_as_one_training(tmp_path):
    running, _, clock = race(tmp_path, FIVE)
    winner = running.run()
    assert winner.name == "b"
    assert winner.spent >= 0.65 * clock.total
    assert clock.spent == pytest.approx(clock.total, rel=0.01)


def test_whoever_stays_goes_on_from_its_own_weights(tmp_path):
    """All time that was spent is in the runners: nobody began anew."""
    running, runners, clock = race(tmp_path, FIVE)
    running.run()
    assert sum(runner.spent for runner in runners.values()) == pytest.approx(clock.spent)
    assert set(runners) == set(FIVE)


def test_rungs_are_of_equal_time(tmp_path):
    running, runners, _ = race(tmp_path, FIVE)
    running.run()
    for rung in running.plan["rungs"]:
        out = [row["name"] for row in rung["standing"] if row["name"] not in rung["kept"]]
        assert all(runners[name].spent == pytest.approx(rung["until"]) for name in out)


def test_a_contender_that_diverges_never_wins(tmp_path):
    running, _, _ = race(tmp_path, FIVE, fails={"b"})
    assert running.run().name == "d"


def test_an_unstable_contender_leaves_its_place_to_the_next(tmp_path):
    running, runners, _ = race(tmp_path, FIVE, unstable={"b"})
    assert running.run().name == "d"
    assert runners["b"].spent == pytest.approx(running.plan["rungs"][0]["until"])
    (line,) = [each for each in running.course.study.decisions if each["reason"] == "explodes"]
    assert (line["stage"], line["decision"]) == ("stability of b", "unstable")


def test_where_all_are_unstable_the_best_of_them_wins(tmp_path):
    running, _, _ = race(tmp_path, FIVE, unstable=set(FIVE))
    assert running.run().name == "b"


def test_where_nobody_can_be_trained_the_error_says_so(tmp_path):
    running, _, _ = race(tmp_path, FIVE, fails=set(FIVE))
    with pytest.raises(ArithmeticError, match="none of the 5 contenders"):
        running.run()


def test_small_data_train_all_to_the_end_and_then_variants_of_the_best(tmp_path):
    running, runners, clock = race(tmp_path, FIVE, useful=1000)  # 10 of 1000 seconds
    winner = running.run()
    assert all(runners[name].spent >= 10 for name in FIVE)
    assert winner.name.startswith("b, ")
    assert clock.spent <= clock.total


def test_with_little_time_few_take_part(tmp_path):
    running, runners, clock = race(tmp_path, FIVE, total=10.0)
    running.run()
    assert len(runners) < len(FIVE)
    assert clock.spent <= 10.0 * 1.01


def test_steps_decide_nothing_by_the_clock(tmp_path):
    running, _, _ = race(tmp_path, FIVE, steps=500, total=0.0)
    winner = running.run()
    assert winner.spent == 500
    assert running.plan["contenders"] == list(FIVE)


def test_a_race_that_was_stopped_keeps_its_decisions(tmp_path):
    """Even where the scores that a rung was decided by would now say otherwise."""
    running, _, _ = race(tmp_path, FIVE)
    running.run()
    study = Study(tmp_path, 1.0)
    study.about["race"] = {**running.plan, "finals": {}}
    again, runners, _ = race(tmp_path, {**FIVE, "b": 9.0}, study=study)
    assert again.run().name == "b"
    assert runners["c"].spent == 0


def test_losers_leave_the_winner_three_quarters_of_the_time():
    assert cost(5) == pytest.approx(2 * 0.03 + 0.06 + 0.12)
    assert cost(1) == 0
    for portfolio in PORTFOLIOS.values():
        assert 1 / (1 + cost(len(portfolio))) >= 0.75


@pytest.mark.parametrize("slope", [0.0, 0.1, 0.3])
def test_a_forecast_lies_between_the_last_score_and_the_line_followed_to_the_end(slope):
    curve = [(t, 3 - slope * math.log(t)) for t in (1.0, 2.0, 4.0, 8.0)]
    end = 3 - slope * math.log(64.0)
    (predicted,) = forecasts([curve], 64.0)
    assert end <= predicted.score <= curve[-1][1]
    assert predicted.low < predicted.score < predicted.high


def test_a_curve_that_rises_is_forecast_to_stay():
    assert forecasts([[(1.0, 1.0), (2.0, 1.1), (4.0, 1.2)]], 100.0)[0].score == 1.2


def test_a_late_start_is_not_followed_to_the_end():
    """Curves of a Mogrifier-GRU, an LSTM and a Mogrifier-LSTM on pydoc, after 3% of a training."""
    curves = [[(2.7, 1.760), (5.3, 1.471)], [(2.8, 2.067), (5.3, 1.692)],
              [(2.9, 2.275), (5.3, 1.656)]]  # fmt: skip
    first, second, third = (each.score for each in forecasts(curves, 173.0))
    assert first < third < second


def test_a_contender_that_failed_is_forecast_to_be_last():
    finite, failed = forecasts([[(1.0, 2.0), (2.0, 1.8)], []], 64.0)
    assert finite.score < failed.score == math.inf


def test_with_few_validation_examples_the_first_stays_unless_another_is_far_better(tmp_path):
    near, far = {"a": 1.10, "b": 1.08}, {"a": 1.3, "b": 1.08}
    for finals, least, winner in ((near, 0.05, "a"), (far, 0.05, "b"), (near, 0.01, "b")):
        judgement = Judgement(least)
        running, _, _ = race(
            tmp_path / f"{winner}{least}", finals, useful=40_000, judgement=judgement
        )
        assert running.run().name.startswith(winner)
        reasons = {each["stage"]: each["reason"] for each in running.course.study.decisions}
        if winner == "a":
            assert "no other's validation loss is lower by 5%; b with" in reasons["winner"]
            assert "too close to tell" in reasons["winner"]
        else:
            assert "it has the lowest validation loss" in reasons["winner"]
        assert ("variants" in reasons) == (least > 0.01)


def decided(running):
    running.run()
    return {each["stage"]: f"{each['decision']}: {each['reason']}" for each in (
        running.course.study.decisions)}  # fmt: skip


def test_where_losses_are_next_to_nothing_their_ratio_decides_nothing(tmp_path):
    for floor, winner in ((0.0, "b"), (0.008, "a")):
        finals, judgement = {"a": 0.004, "b": 0.001}, Judgement(floor=floor)
        running, _, _ = race(tmp_path / winner, finals, useful=10_000, judgement=judgement)
        assert running.run().name.startswith(winner)
        (decision,) = [d for d in running.course.study.decisions if d["stage"] == "winner"]
        assert ("lower by 0.0080" in decision["reason"]) == (winner == "a")


def test_every_decision_of_a_race_is_stored_with_its_reason(tmp_path):
    running, _, _ = race(tmp_path, FIVE)
    decisions = decided(running)
    assert list(decisions) == ["contenders", "rung 1", "rung 2", "rung 3", "final of b", "winner"]
    assert decisions["contenders"].startswith("5 of 5 take part")
    assert decisions["rung 1"].startswith("out: e; c: the worst predictions")
    assert "led 5 contenders after equal time; the runner-up, d," in decisions["winner"]


def test_one_contender_has_led_nobody(tmp_path):
    running, _, _ = race(tmp_path, FIVE, total=1.0)
    decisions = decided(running)
    assert list(decisions) == ["contenders", "final of a", "winner"]
    assert "1 of 5 take part" in decisions["contenders"]
    assert "each must train 60 updates" in decisions["contenders"]
    assert decisions["winner"] == "a is kept: no other contender took part"


def test_contenders_whose_predictions_overlap_are_said_to_be_too_close_to_tell(tmp_path):
    running, _, _ = race(tmp_path, {"a": 1.1, "b": 1.1, "c": 5.0, "d": 9.0})
    decisions = decided(running)
    assert "too close" not in decisions["rung 1"]
    assert "too close to a to tell: b" in decisions["rung 3"]
    assert "too close to tell" in decisions["winner"]


def test_early_in_a_training_it_is_not_said_to_overfit():
    """A learning rate that is still high lets scores go up and down."""
    curve = [(5.0, 2.0), (10.0, 1.6), (20.0, 1.5), (34.0, 1.6)]
    assert not overfits(curve, 100.0)
    assert overfits(curve, 60.0)
    assert not overfits([*curve[:-1], (34.0, 1.52)], 60.0)
    assert not overfits(curve, 60.0, floor=0.2)  # what the validation data cannot tell


def test_where_a_training_overfits_shorter_ones_follow(tmp_path):
    running, runners, clock = race(tmp_path, {"a": 1.1, "b": 1.2}, useful=10_000, overfits_after=20)
    assert running.run().name == "a, shorter"
    at = min(runners["a"].curve, key=lambda point: point[1])[0]
    length = runners["a, shorter"].spent
    assert 1.5 * at <= length <= 3 * at
    assert length == pytest.approx(max(1.5 * at, min(3 * at, 0.5 * running.course.length)))
    assert runners["b"].spent <= length + 1e-9
    assert runners["a"].spent < 0.6 * running.course.length
    assert clock.left() >= 0


def test_small_data_leave_time_to_train_the_best_again_on_all_of_them(tmp_path):
    """With as many members as there is time for, each as long as the best was."""
    refit = Refit(1.25, members=8, least=3)
    running, runners, clock = race(tmp_path, FIVE, useful=25_000, refit=refit)
    winner = running.run()
    assert winner.name == "b, 3 members, refit"
    assert winner.contender.settings == {"members": 3, "refit": True}
    assert winner.spent == pytest.approx(3 * 1.25 * runners["b"].spent)
    assert clock.spent <= clock.total


def test_large_data_are_not_refitted(tmp_path):
    running, _, clock = race(tmp_path, FIVE, refit=Refit(1.25, members=8, least=3))
    winner = running.run()
    assert winner.name == "b"
    assert winner.spent >= 0.65 * clock.total


def test_a_refit_without_members_never_shortens_the_training(tmp_path):
    for members, shortened in ((3, True), (1, False)):
        refit = Refit(1.25, members=members)
        running, _, clock = race(tmp_path / str(members), FIVE, useful=60_000, refit=refit)
        running.run()
        assert running.plan["small"] == shortened
        assert clock.spent <= clock.total


def test_a_refit_is_as_long_as_what_was_kept_of_a_training_that_overfits(tmp_path):
    running, runners, _ = race(
        tmp_path, {"a": 1.1, "b": 1.2}, useful=10_000, overfits_after=20, refit=Refit(1.0)
    )
    winner = running.run()
    assert winner.name == "a, shorter, refit"
    assert winner.spent == pytest.approx(runners["a, shorter"].kept_at)


def test_a_refit_that_fits_the_validation_data_worse_is_not_kept(tmp_path):
    running, _, _ = race(tmp_path, FIVE, useful=10_000, refit=Refit(1.2))
    make: Any = running.course.make

    def worse(contender, length):
        runner = make(contender, length)
        runner.final += 1.0 * ("refit" in contender.settings)
        return runner

    running.course.make = worse
    assert "refit" not in running.run().name
    (refit,) = [each for each in running.course.study.decisions if each["stage"] == "refit"]
    assert "not kept" in refit["decision"]
    assert "fits the validation data worse" in refit["reason"]


def test_a_refit_that_was_stopped_goes_on_with_as_many_members(tmp_path):
    refit = Refit(1.25, members=8, least=3)
    running, _, _ = race(tmp_path, FIVE, useful=25_000, refit=refit)
    running.run()
    study = Study(tmp_path, 1.0)
    plan = running.plan["refit"]
    study.about["race"] = {**running.plan, "refit": {k: plan[k] for k in ("of", "members", "end")}}
    again, _, _ = race(tmp_path, FIVE, total=10.0, useful=25_000, study=study, refit=refit)
    for name in running.plan["contenders"]:
        again.course.runners[name] = running.course.runners[name]
    assert again.run().name == "b, 3 members, refit"


GROWN = {"b+": "b", "a+": "a"}


def test_a_changed_copy_of_the_leader_joins_the_race_and_wins_if_it_gets_ahead(tmp_path):
    for final, winner in ((1.0, "b+"), (1.099, "b"), (1.3, "b")):
        finals = {**FIVE, "b+": final, "a+": 0.1}  # a copy that is a little better is no gain
        running, runners, clock = race(tmp_path / str(final), finals, grown=GROWN)
        best = running.run()
        assert best.name == winner
        assert best.spent >= 0.65 * clock.total
        assert "a+" not in runners  # its parent never led
        first, second, *_ = running.plan["rungs"]
        assert "b+" not in [row["name"] for row in first["standing"]]
        assert {"b", "b+"} <= {row["name"] for row in second["standing"]}
    decisions = {each["stage"]: each["decision"] for each in running.course.study.decisions}
    assert decisions["growth"] == "b+ joins"


def test_a_copy_starts_from_its_parent_and_has_its_width(tmp_path):
    running, runners, _ = race(tmp_path, {**FIVE, "b+": 1.0}, grown={"b+": "b"})
    running.run()
    assert runners["b+"].contender.settings == {"width": 32}
    first, second, _ = (rung["until"] for rung in running.plan["rungs"])
    times = [time for time, _ in runners["b+"].curve]
    assert times[:2] == [time for time, _ in runners["b"].curve[:2]]
    assert first < times[2] <= second


def test_a_race_that_was_stopped_has_the_same_copies_again(tmp_path):
    finals, grown = {**FIVE, "b+": 1.0}, {"b+": "b"}
    running, _, _ = race(tmp_path, finals, grown=grown)
    running.run()
    study = Study(tmp_path, 1.0)
    study.about["race"] = {**running.plan, "finals": {}}
    again, runners, _ = race(tmp_path, {**finals, "b+": 9.0}, study=study, grown=grown)
    assert again.run().name == "b+"
    assert runners["b+"].contender.parent == "b"
