"""How far back gradients get, in words, as a table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from metarnn.gradients.reach import Reach
from metarnn.graph.vector import COLORS, LINE, SMALL, Canvas

# Below the first, 1 % of a gradient is left after 63 steps; above the second it doubles within 24.
VANISHING, EXPLODING = 0.93, 1.03
SATURATED, DEAD = 0.5, 0.2


def words(found: Reach) -> list[str]:
    """What is wrong and what to change, one sentence each; the first says how far gradients get."""
    γ = found.gamma
    horizon = f"{found.horizon:.0f}" if math.isfinite(found.horizon) else "unlimited"
    said = []
    if γ > EXPLODING:
        said.append(
            f"exploding: a gradient grows by {γ:.3f} with each step back. Clip it (--clip 1), "
            "make recurrent weights smaller (a spectral radius below 1), or take a gated cell."
        )
    elif γ < VANISHING:
        said.append(
            f"vanishing: after each step back {γ:.3f} of a gradient is left, after 50 steps "
            f"{γ**50:.1g}. The weights learn from the last {horizon} steps alone: their gradient "
            "does not vanish, its distant part does. Where more is to be remembered, take a cell "
            "with a memory (LSTM), give its forget gate a larger bias (forget_bias=3), start "
            "recurrent weights orthogonal, or add residual layers."
        )
    else:
        said.append(
            f"reaches back: after each step back {γ:.3f} of a gradient is left, after 50 steps "
            f"{γ**50:.2g}; memory horizon {horizon} steps."
        )
    if found.exponents and found.exponents[0] > math.log(EXPLODING):
        said.append(
            f"chaotic: two states drift apart by exp({found.exponents[0]:.3f}) a step. What is "
            "remembered is lost in that; make recurrent weights smaller."
        )
    for gate, share in found.saturated.items():
        if share > SATURATED:
            said.append(
                f"saturated: {share:.0%} of all values of {gate} are within 5 % of its limits, "
                "where hardly any gradient passes. Scale inputs or weights down, use layer_norm, "
                "or a lower learning rate."
            )
    if found.dead > DEAD:
        said.append(
            f"dead: {found.dead:.0%} of the state never changes. Start with larger inputs or "
            "weights, or with another nonlinearity than relu."
        )
    return said


def table(found: Mapping[str, Reach]) -> list[list[str]]:
    """Rows of figures, a column for each name; the first row has the names."""
    lags = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    longest = max(len(each.norms) for each in found.values())
    rows = [["", *found]]

    def row(name: str, value: Callable[[Reach], str]) -> None:
        rows.append([name, *(value(each) for each in found.values())])

    row("γ, left of a gradient after one step", lambda r: f"{r.gamma:.4f}")
    row("memory horizon (95 % of ∂L/∂θ), steps", lambda r: f"{r.horizon:.0f}")
    row("largest Lyapunov exponent", lambda r: f"{r.exponents[0]:+.4f}" if r.exponents else "")
    row("spectral radius of a step", lambda r: "" if math.isnan(r.radius) else f"{r.radius:.4f}")
    for gate in sorted({gate for each in found.values() for gate in each.saturated}):
        row(f"saturated {gate}", lambda r, g=gate: f"{r.saturated.get(g, 0):.1%}")
    row("dead units", lambda r: f"{r.dead:.1%}")
    for lag in (lag for lag in lags if lag <= longest):
        row(f"‖∂L_t/∂s_k‖ at lag {lag}, of lag 1", lambda r, k=lag: _relative(r.norms, k))
    for lag in (lag for lag in (0, *lags) if lag <= longest):
        row(f"share of ∂L/∂θ within lag {lag}", lambda r, k=lag: f"{sum(r.shares[: k + 1]):.1%}")
    return rows


def svg(found: Mapping[str, Reach], title: str = "How far back gradients get") -> str:
    """‖∂L_t/∂s_k‖ against the lag, relative to lag 1, logarithmic; one curve a name."""
    width, height, left, top, right, bottom = 640.0, 420.0, 70.0, 50.0, 20.0, 60.0
    curves = {
        name: [(k + 1, n / each.norms[0]) for k, n in enumerate(each.norms) if n > 0]
        for name, each in found.items()
        if each.norms and each.norms[0] > 0
    }
    logs = [math.log10(v) for curve in curves.values() for _, v in curve] or [0.0]
    low = max(math.floor(min(logs)), -16)
    high = max(math.ceil(max(logs)), low + 1)
    longest = max((curve[-1][0] for curve in curves.values()), default=2)

    def place(lag: float, exponent: float) -> tuple[float, float]:
        x = left + (lag - 1) / max(longest - 1, 1) * (width - left - right)
        y = height - bottom - (exponent - low) / (high - low) * (height - top - bottom)
        return x, y

    canvas = Canvas()
    canvas.text(width / 2, 22, title)
    for exponent in range(low, high + 1, max((high - low) // 8, 1)):
        canvas.rule(place(1, exponent), place(longest, exponent), "#e9ecef")
        canvas.text(left - 26, place(1, exponent)[1], f"1e{exponent}", SMALL)
    for lag in range(0, longest + 1, max(longest // 8, 1)):
        x, y = place(max(lag, 1), low)
        canvas.text(x, y + 16, str(max(lag, 1)), SMALL)
    canvas.rule(place(1, low), place(longest, low), LINE)
    canvas.rule(place(1, low), place(1, high), LINE)
    canvas.text((left + width - right) / 2, height - 18, "lag t - k", SMALL)
    for number, ((name, curve), color) in enumerate(zip(curves.items(), COLORS * 9, strict=False)):
        canvas.path([place(k, max(math.log10(v), low)) for k, v in curve], color)
        y = top + 10 + 18 * number
        canvas.rule((width - 200, y), (width - 175, y), color)
        canvas.text(width - 100, y, f"{name}: γ = {found[name].gamma:.3f}", SMALL)
    return canvas.document(width, height, title)


def _relative(norms: list[float], lag: int) -> str:
    if len(norms) < lag or not norms[0]:
        return ""
    return f"{norms[lag - 1] / norms[0]:.2e}"
