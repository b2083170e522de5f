"""How to search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from metarnn.cells import check
from metarnn.search.bilevel import HESSIANS
from metarnn.tasks.language.model import parse_count

STRATEGIES = ("darts", "gdas", "written", "random-sharing", "enas", "random", "evolution")


@dataclass(frozen=True)
class SearchOptions:
    """How to search. Each field is a flag of `metarnn search` and a key of `config.toml`.

    The budget (steps or minutes) and how weights are trained are those of `training.Settings`. A
    step is an update of weights: of shared ones with darts, gdas, written, random-sharing and
    enas; with random and evolution, of the weights of one candidate after the other.
    """

    strategy: Literal[
        "darts", "gdas", "written", "random-sharing", "enas", "random", "evolution"
    ] = "evolution"
    """How the space is searched."""
    search_width: int = 64
    """Hidden units of a layer while searching."""
    search_batch: int = 0
    """random, evolution, polish: sequences in an update of a candidate; 0 for --batch."""
    search_lr: float = 0.0
    """random, evolution, polish: learning rate of a candidate; 0 for --lr. Small models take a
    higher one."""
    structure_share: float = 0.25
    """Share of the training data that is kept for the structure; weights never see it."""

    order: int = 1
    """darts: 1 takes weights as given, 2 differentiates through their next update."""
    hessian: Literal["exact", "difference"] = "exact"
    """darts of order 2: how the product with the second derivatives is computed."""
    alpha_lr: float = 3e-3
    """darts, gdas, written, enas: learning rate of the structure, or of what writes or draws it."""
    alpha_decay: float = 1e-3
    """darts, gdas, written: pull of the logits towards zero, that is towards equal shares."""
    alpha_warmup: int = 0
    """Updates of the weights before the first of the structure."""
    temperature: tuple[float, float] = (1.0, 0.2)
    """darts, gdas, written: that of the softmax, or of the sampling, at the beginning and at the
    end. The mixture is the more decided the lower it is, until it is the unit derived from it."""
    selection: Literal["argmax", "perturbation"] = "argmax"
    """darts, gdas: take the option with the greatest share, or the one whose loss hurts most."""
    entropy_bonus: float = 1e-2
    """enas: what the controller's entropy counts beside its reward."""

    candidate_steps: int = 200
    """random, evolution: updates that each candidate is trained for."""
    population: int = 16
    """evolution: how many candidates are alive."""
    tournament: int = 4
    """evolution: of so many drawn at random the best has a child."""
    start_from: tuple[str, ...] = ("known",)
    """evolution: units of the first population (lstm, gru, gru-before, elman, ...; known for all
    that are points of the space; none to begin with units at random only)."""

    samples: int = 64
    """random-sharing, enas: units scored with shared weights at the end."""
    polish: int = 8
    """All but random: neighbours of the best units to try before the end, each trained as long as a
    candidate; 0 for none."""
    finalists: int = 4
    """Of the best so many units are trained from scratch, and the third part of the data decides
    among them."""
    finalist_steps: int = 400
    """Updates that each of them is trained for."""
    finalist_params: str = ""
    """At most so many parameters for each of them, as in 5M; by default they are as wide as
    candidates."""
    check_every: int = 100
    """Steps from one look at entropy, masses, gap and collapse to the next."""

    def __post_init__(self) -> None:
        check.one_of("strategy", self.strategy, STRATEGIES)
        check.one_of("hessian", self.hessian, HESSIANS)
        check.one_of("selection", self.selection, ("argmax", "perturbation"))
        for name in ("search_width", "candidate_steps", "population", "tournament", "samples",
                     "finalists", "finalist_steps", "check_every"):  # fmt: skip
            check.size(name, getattr(self, name))
        for name in ("search_batch", "alpha_warmup", "polish"):
            check.size(name, getattr(self, name), least=0)
        if check.number("search_lr", self.search_lr) < 0:
            check.refuse("search_lr", self.search_lr, "a number not below 0")
        if self.finalist_params:
            parse_count(self.finalist_params)
        if not 0 < check.number("structure_share", self.structure_share) < 1:
            check.refuse("structure_share", self.structure_share, "a number between 0 and 1")
        if self.order not in (1, 2):
            check.refuse("order", self.order, "1 or 2")
        if not all(check.number("temperature", t) > 0 for t in self.temperature):
            check.refuse("temperature", self.temperature, "numbers above 0")
        if self.tournament > self.population:
            check.refuse("tournament", self.tournament, f"at most population={self.population}")

    def temperature_at(self, done: float) -> float:
        """That of the softmax when this share of the search is done."""
        first, last = self.temperature
        return first * (last / first) ** done
