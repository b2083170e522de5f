"""What may be said of a study: who was kept, by what, and what was not shown."""

from __future__ import annotations

from collections.abc import Mapping

from metarnn.tasks.rules import RuleScores
from metarnn.tasks.task import Measure
from metarnn.training.progress import clock


def summary(
    winner: str,
    trained: tuple[float, int],
    scores: Mapping[str, float],
    measure: Measure,
    where: str,
    reason: str,
    rules: RuleScores | None,
    *,
    refit: bool = False,
) -> str:
    """A few sentences: how good the model is, beside what, and what that rests on.

    Args:
        trained: the seconds and the updates of the winner's training
        where: the examples that it was scored on
        reason: why the winner was kept
        refit: whether it was trained again on all but the held-out data
    """
    seconds, updates = trained
    said = [
        f"{winner} is kept: {measure.name} {scores[measure.name]:.4f} on "
        f"{where}, after {clock(seconds)} of training ({updates:,} updates)."
    ]
    if rules is not None and (sentence := rules.sentence(scores, "the model that was kept")):
        said.insert(0 if rules.outcome(scores) != "loses to" else 1, sentence)
    said.append(f"{reason[0].upper()}{reason[1:]}.")
    if refit:
        said.append("It was then trained anew, on training and validation data.")
    said.append("A full comparison at equal time was not made; --compare makes one.")
    return " ".join(said)
