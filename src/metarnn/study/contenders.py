"""Who takes part in a race: whole configurations, the most promising first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from metarnn.tasks.unit import META, MOGRIFIER


@dataclass(frozen=True)
class Contender:
    """A configuration in a race: what it changes of the study's common settings.

    >>> Contender("GRU, lr × 2", {"cell": "gru"}, {"lr": 2.0}).folder
    'GRU-lr-×-2'

    Attributes:
        name: unique in its race
        settings: of the task's configuration: unit, width, learning rate, dropout …
        factors: settings to multiply, such as {"lr": 2.0}
        length: of its training, in full trainings
        parent: the contender that it grows from: once that one leads, this one joins the race with
            its weights and optimizer state, as a changed copy
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    length: float = 1.0
    parent: str = ""

    @property
    def folder(self) -> str:
        return self.name.replace(",", "").replace(" ", "-")

    def changes(self, base: Any) -> dict[str, Any]:
        """The settings of this contender, where the common ones are `base`."""
        own = {name: by for name, by in self.factors.items() if hasattr(base, name)}
        scaled = {name: getattr(base, name) * by for name, by in own.items()}
        most = {name: min(value, 0.8) for name, value in scaled.items() if name in DROPOUTS}
        return {**scaled, **most, **self.settings}


GRU, LSTM = Contender("GRU", {"cell": "gru"}), Contender("LSTM", {"cell": "lstm"})

# In the order in which they are worth trying: a short race takes the first of them. The order is by
# the regret on the data sets of docs/learn.md, where each was trained to the end.
PORTFOLIOS: Mapping[str, Sequence[Contender]] = {
    "lm": (
        Contender("Mogrifier-GRU, lr × 2", {"cell": f"{MOGRIFIER}gru"}, {"lr": 2.0}),
        GRU,
        LSTM,
        Contender("Mogrifier-LSTM, lr × 2", {"cell": f"{MOGRIFIER}lstm"}, {"lr": 2.0}),
        Contender("Mogrifier-GRU", {"cell": f"{MOGRIFIER}gru"}),
        Contender("GRU with generated weights", {"cell": f"{META}gru"}),
        Contender("minGRU, lr × 2", {"cell": "mingru", "layers": 2}, {"lr": 2.0}),
    ),
    "translation": (
        GRU,
        LSTM,
        Contender("GRU, lr × 2", {"cell": "gru"}, {"lr": 2.0}),
        Contender("Mogrifier-GRU", {"cell": f"{MOGRIFIER}gru"}),
        Contender("GRU with generated weights", {"cell": f"{META}gru"}),
    ),
    "classification": (
        GRU,
        LSTM,
        Contender("Mogrifier-GRU", {"cell": f"{MOGRIFIER}gru"}),
        Contender("GRU with generated weights", {"cell": f"{META}gru"}),
        Contender("minGRU", {"cell": "mingru"}),
    ),
    "forecasting": (
        GRU,
        LSTM,
        Contender("GRU of 256, 2 members", {"cell": "gru", "width": 256, "members": 2}),
        Contender("GRU of 128, 4 members", {"cell": "gru", "width": 128, "members": 4}),
        Contender("Mogrifier-GRU", {"cell": f"{MOGRIFIER}gru"}),
        Contender("GRU with generated weights", {"cell": f"{META}gru"}),
    ),
}

# What a leader may grow into, where a study is so long (minutes) that growing can pay off.
GROWN: Mapping[str, Sequence[Contender]] = {
    "lm": (
        Contender("GRU grown into a Mogrifier-GRU", {"cell": f"{MOGRIFIER}gru"}, parent=GRU.name),
        Contender(
            "LSTM grown into a Mogrifier-LSTM", {"cell": f"{MOGRIFIER}lstm"}, parent=LSTM.name
        ),
    ),
}
GROWING = 15.0

DROPOUTS = ("dropout", "input_dropout", "hidden_dropout", "output_dropout")


def variants(best: Contender) -> Sequence[Contender]:
    """What else to try of the best contender where data are small and time is left.

    >>> [each.name for each in variants(GRU)]
    ['GRU, dropout × 1.5', 'GRU, 2 × as long', 'GRU, lr × 0.5']
    """
    lr, dropout = (best.factors.get(name, 1.0) for name in ("lr", DROPOUTS[0]))
    more = {name: 1.5 * dropout for name in DROPOUTS}
    return (
        _variant(best, {**best.factors, **more}, best.length),
        _variant(best, best.factors, 2 * best.length),
        _variant(best, {**best.factors, "lr": lr / 2}, best.length),
    )


def shortened(contender: Contender, length: float = 0.5) -> Contender:
    """Return the same contender with a shorter training, as a share of a full one.

    >>> shortened(GRU).name
    'GRU, shorter'
    """
    name = f"{contender.name}, shorter"
    return replace(contender, name=name, length=length, parent="")


def refitted(contender: Contender, members: int = 1) -> Contender:
    """Return the same contender, trained on training and validation data.

    >>> refitted(GRU, members=3).name
    'GRU, 3 members, refit'
    """
    several = {"members": members} if members > 1 else {}
    name = f"{contender.name}, {members} members" if several else contender.name
    settings = {**contender.settings, **several, "refit": True}
    return replace(contender, name=f"{name}, refit", settings=settings, parent="")


def _variant(best: Contender, factors: Mapping[str, float], length: float) -> Contender:
    """The same unit with other factors, named by them."""
    shown = {"lr": factors.get("lr", 1.0), "dropout": factors.get(DROPOUTS[0], 1.0)}
    parts = [best.name.partition(",")[0]]
    parts += [f"{name} × {by:g}" for name, by in shown.items() if by != 1.0]
    parts += [f"{length:g} × as long"] if length != 1.0 else []
    return replace(best, name=", ".join(parts), factors=factors, length=length, parent="")
