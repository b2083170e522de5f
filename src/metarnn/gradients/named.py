"""Rules by their names, as settings have them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from metarnn.cells import check
from metarnn.gradients.bptt import BPTT
from metarnn.gradients.kronecker import KFRTRL
from metarnn.gradients.rtrl import RTRL
from metarnn.gradients.rule import Rule
from metarnn.gradients.snap import RFLO, SnAp
from metarnn.gradients.truncated import ARTBP, TBPTT, RandomTBPTT, SampledTBPTT
from metarnn.gradients.uoro import UORO

BACKWARD = ("bptt", "tbptt", "random-tbptt", "sampled-tbptt", "artbp")
FORWARD: dict[str, Callable[..., Rule]] = {
    "rtrl": RTRL,
    "snap-1": SnAp,
    "snap-2": partial(SnAp, 2),
    "snap-3": partial(SnAp, 3),
    "rflo": RFLO,
    "kf-rtrl": KFRTRL,
    "uoro": UORO,
}
RULES = (*BACKWARD, *FORWARD)


def rule(name: str, *, k1: int = 8, k2: int = 32, checkpoint_every: int = 0, **options: Any) -> Any:
    """A rule by its name; `options` are those of every rule, `loss` and `split`.

    Args:
        name: one of `RULES`
        k1: steps of a stretch, within which nothing is cut: truncated rules
        k2: how far back gradients go, in steps, on average where that is random: truncated rules
        checkpoint_every: of "bptt"

    >>> rule("tbptt", k1=5, k2=10).k2
    10
    """
    check.one_of("gradient", name, RULES)
    if name in FORWARD:
        return FORWARD[name](**options)
    if name == "bptt":
        return BPTT(checkpoint_every, **options)
    if name == "tbptt":
        return TBPTT(k1, k2, **options)
    if name == "random-tbptt":
        return RandomTBPTT(k2 / (k1 + k2), k1, **options)
    if name == "sampled-tbptt":
        return SampledTBPTT(k2, k1, **options)
    return ARTBP(k2 / k1, every=k1, **options)
