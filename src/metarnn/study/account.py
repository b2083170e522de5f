"""What may be said of a study: who was kept, by what, and what was not shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from metarnn.tasks.rules import RuleScores
from metarnn.tasks.task import Measure
from metarnn.training.progress import clock


def decisions(race: Mapping[str, Any], winner: str) -> Iterator[dict[str, Any]]:
    """Each decision of a race with its reason, as `Study.decide` takes it."""
    for k, rung in enumerate(race["rungs"], 1):
        out = [row["name"] for row in rung["standing"] if row["name"] not in rung["kept"]]
        for row in rung["standing"]:
            if row["unstable"]:
                decision = "out" if row["name"] in out else "stays, since too few are stable"
                yield {
                    "stage": f"stability of {row['name']} after rung {k}",
                    "decision": decision,
                    "reason": row["unstable"],
                }
        yield {
            "stage": f"rung {k}",
            "decision": f"out: {', '.join(out)}",
            "reason": "the worst predictions for the end of the training, after equal time",
            **{row["name"]: row["predicted"] for row in rung["standing"]},
        }
    finals = {name: final["score"] for name, final in race["finals"].items() if "score" in final}
    several = "the lowest validation loss of those trained to the end"
    reason = several if len(finals) > 1 else "it led after the last rung"
    yield {"stage": "winner", "decision": f"{winner} is kept", "reason": reason, **finals}


def summary(
    race: Mapping[str, Any],
    winner: str,
    trained: tuple[float, int],
    scores: Mapping[str, float],
    measure: Measure,
    split: str,
    rules: RuleScores | None,
) -> str:
    """A few sentences: how good the model is, beside what, and what that rests on.

    Args:
        trained: the seconds and the updates of the winner's training
    """
    seconds, updates = trained
    said = [
        f"{winner} is kept: {measure.name} {scores[measure.name]:.4f} on "
        f"{split}, after {clock(seconds)} of training ({updates:,} updates)."
    ]
    if rules is not None and (sentence := rules.sentence(scores, "the model that was kept")):
        said.insert(0 if rules.outcome(scores) != "loses to" else 1, sentence)
    said += _rivals(race, winner)
    said.append("A full comparison at equal time was not made; --compare makes one.")
    return " ".join(said)


def _rivals(race: Mapping[str, Any], winner: str) -> Iterator[str]:
    """How the winner stood against the others."""
    finals = {name: row for name, row in race["finals"].items() if "score" in row}
    if len(finals) > 1:
        others = sorted((row["score"], name) for name, row in finals.items() if name != winner)
        yield (
            f"Of {len(finals)} trained to the end it has the lowest validation loss, "
            f"{finals[winner]['score']:.4f}; next is {others[0][1]} with {others[0][0]:.4f}."
        )
        return
    if not race["rungs"]:
        yield "There was time for one contender only."
        return
    rows = {row["name"]: row for row in race["rungs"][-1]["standing"]}
    second = next((row for name, row in rows.items() if name != winner), None)
    if second is not None and winner in rows:
        low, high = second["interval"]
        yield (
            f"It led {len(race['contenders'])} contenders after equal time; the runner-up, "
            f"{second['name']}, was predicted to reach a validation loss of "
            f"{second['predicted']:.4f} ({low:.4f} to {high:.4f}), the winner "
            f"{rows[winner]['predicted']:.4f}."
        )
