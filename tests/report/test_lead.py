"""The sentence on top says what the table can bear."""

from pathlib import Path

import pytest

from metarnn.report.lead import lead
from metarnn.report.materials import Judged, Materials
from metarnn.search.verdict import Row


def judged(large=False, **scores):
    rows = [
        Row(n.replace("_", " "), 8, 100, tuple({"nll": v} for v in vs)) for n, vs in scores.items()
    ]
    return Materials(Path("run"), "run", verdict=Judged(tuple(rows), "test", 10, "nll", large))


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (
            {"found": [1.0, 1.1], "gru": [2.0, 2.1]},
            "The found unit has the lowest mean nll, 1.0500",
        ),
        ({"found": [3.0, 3.1], "gru": [2.0, 2.1]}, "GRU has the lowest mean nll, 2.0500"),
        ({"found": [1.0, 2.0], "gru": [1.1, 2.1]}, "No clear winner: the found unit has"),
        ({"found": [1.0, 2.0], "gru": [1.1, 2.1]}, "but it ties with GRU."),
        ({"found": [1.0], "lstm": [9.0]}, "Undecided with one seed: the found unit"),
        (
            {"found": [float("nan"), 1.0], "lstm": [9.0, 9.1]},
            "LSTM has the lowest mean nll, 9.0500",
        ),
        (
            {"best_of_random": [1.0, 1.1], "gru": [2.0, 2.1]},
            "The best random unit has the lowest",
        ),
    ],
)
def test_a_verdict_is_a_sentence_that_names_no_winner_chance_could_make(scores, words):
    assert words in lead([judged(**scores)], {})


def test_where_a_large_score_is_good_the_largest_is_best():
    found = judged(large=True, found=[0.1, 0.2, 0.15], gru=[0.9, 0.8, 0.85])
    assert lead([found], {}).startswith("GRU has the highest mean nll, 0.8500")


def test_what_a_study_decided_comes_before_what_we_would_say():
    found = judged(found=[1.0], gru=[2.0])
    found.learn = {"verdict": "Undecided."}
    assert lead([found], {}) == "Undecided."


def run(name, task="lm", **scores):
    line = {"step": 5, **{f"valid_{k}": v for k, v in scores.items()}}
    return Materials(Path(name), name, {"task": task, "cell": "gru"}, [line])


def test_a_run_tells_its_unit_its_size_and_its_best_score():
    assert lead([run("a", nll=2.5)], {"a": 1234}) == (
        "GRU with 1,234 parameters reaches nll 2.5000 in validation after 5 updates."
    )


def test_a_run_that_was_not_validated_says_so():
    assert lead([run("a")], {}) == "GRU, not validated yet."


def test_runs_are_ranked_only_where_they_are_scored_alike():
    both = [run("a", nll=2.5), run("b", nll=2.4)]
    assert lead(both, {}) == "Of 2 runs, b has the lowest nll in validation: 2.4000."
    assert lead([both[0], run("c", nll=1.0, task="translation")], {}) == "2 runs side by side."
    assert lead([both[0], run("c", crps=1.0)], {}) == "2 runs side by side."
