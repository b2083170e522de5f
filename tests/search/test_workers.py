"""Units tried side by side: the same unit whatever the timing, and no process is left behind."""

import multiprocessing
import os
import signal
from dataclasses import replace

import pytest

from metarnn.search import Search, SearchOptions, UnitSpace, Workers, known
from metarnn.search import workers as module
from metarnn.search.strategies.evolution import Evolution
from metarnn.search.trial import Trial
from metarnn.search.workers import WorkerFailed
from metarnn.training import Folder, Settings, World
from metarnn.training.interrupt import Interrupted
from tests.helpers import planted

SPACE = UnitSpace(slots=("lin", "lin", "mix"), states=1)
SETTINGS = Settings(steps=24, batch=16, lr=0.01, device="cpu")
OPTIONS = SearchOptions(
    search_width=4, candidate_steps=3, population=3, tournament=2, polish=3, finalists=2,
    finalist_steps=3, search_batch=8, finalist_params="200",
)  # fmt: skip


@pytest.fixture(scope="module")
def workers():
    with Workers(planted.eager, 2) as workers:
        yield workers
    assert not multiprocessing.active_children()


def search(workers, folder=None):
    place = None if folder is None else Folder(folder)
    if place is not None:
        place.last.parent.mkdir(parents=True, exist_ok=True)
    return Search(planted.eager(), SPACE, SETTINGS, OPTIONS, folder=place, workers=workers)


@pytest.fixture(scope="module")
def whole(workers):
    return search(workers).run()


@pytest.mark.medium
def test_a_worker_says_of_a_unit_what_this_process_would(workers):
    settings = replace(SETTINGS, steps=5)
    trials = [Trial(unit.cell, settings, 4) for unit in (known.GRU, known.ELMAN, known.LSTM)]
    begun = [workers.begin(trial) for trial in trials]
    theirs = [outcome(lambda: None).score for outcome in reversed(begun)]
    ours = [trial.run(planted.eager(), World()).score for trial in reversed(trials)]
    assert theirs == pytest.approx(ours, rel=1e-5)


@pytest.mark.medium
def test_a_search_that_was_interrupted_finds_the_same_unit(workers, whole, tmp_path, monkeypatch):
    begun = search(workers, tmp_path)
    propose = Evolution.propose

    def signalled(self):
        if len(self.tried) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return propose(self)

    with monkeypatch.context() as patch:
        patch.setattr(Evolution, "propose", signalled)
        with pytest.raises(Interrupted):
            begun.run()
    again = search(workers, tmp_path)
    assert again.resume()
    assert again.strategy.state_dict()["waiting"]
    found = again.run()
    assert whole.steps == found.steps == SETTINGS.steps
    assert found.unit == whole.unit
    assert found.finalists == whole.finalists


def processes(before):
    return [process.pid or 0 for process in set(multiprocessing.active_children()) - set(before)]


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_hangs_changes_nothing(workers, whole, number, monkeypatch, caplog):
    """One that is stopped hangs as long as it likes."""
    monkeypatch.setattr(module, "LEAST", 1.0)
    monkeypatch.setattr(module, "SLOWER", 5)
    propose = Evolution.propose
    hit = []

    def disturbed(self):
        if len(self.tried) == 4 and not hit:
            hit.append(multiprocessing.active_children()[0].pid)
            os.kill(hit[0], number)
        return propose(self)

    monkeypatch.setattr(Evolution, "propose", disturbed)
    found = search(workers).run()
    assert hit
    assert hit[0] not in [process.pid for process in multiprocessing.active_children()]
    assert found == replace(whole, elapsed=found.elapsed)
    why = "ended by itself (exit code -9)" if number == signal.SIGKILL else "said nothing for"
    assert why in caplog.text


@pytest.mark.medium
def test_a_trial_that_kills_every_worker_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    before = multiprocessing.active_children()
    with Workers(planted.eager, 1) as own:
        outcome = own.begin(Trial(known.GRU.cell, SETTINGS, 4))

        def kill():
            for process in processes(before):
                os.kill(process, signal.SIGKILL)

        with pytest.raises(WorkerFailed, match=r"(?s)worker 1 of 1 .*code -9.*2 attempts.*blend"):
            outcome(kill)


@pytest.mark.medium
def test_what_goes_wrong_in_a_worker_is_told_here(workers):
    nowhere = Trial(known.GRU.cell, replace(SETTINGS, steps=1, device="cuda:99"), 4)
    with pytest.raises(WorkerFailed, match="device"):
        workers.begin(nowhere)(lambda: None)
    again = [workers.begin(replace(nowhere, settings=SETTINGS)) for _ in range(3)]
    assert len({outcome(lambda: None).score for outcome in again}) == 1  # all are still at work


def test_several_processes_that_train_together_have_no_workers():
    world = World(0, 2)
    with pytest.raises(ValueError, match="workers"):
        Search(
            planted.eager(),
            SPACE,
            SETTINGS,
            OPTIONS,
            world=world,
            workers=Workers(planted.eager, 2),
        )
