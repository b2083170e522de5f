"""Pictures of attention: what was looked at where each token was written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from metarnn.cells import check
from metarnn.tasks.language import Vocabulary
from metarnn.tasks.translation import EncoderDecoder, Translation, align

CELL, FONT, MARGIN = 22, 13, 12
WIDE = 0.62  # of a character, as a share of the size of the font


def heatmap(weights: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]) -> str:
    """An SVG picture of weights, one square each, the darker the larger (0 white, 1 blue).

    >>> heatmap([[0.9, 0.1], [0.2, 0.8]], ["the", "cat"], ["die", "Katze"]).count("<rect")
    5

    Args:
        weights: a list for each row
        rows: what was written, from top to bottom
        columns: what was looked at, from left to right
    """
    if len(weights) != len(rows) or any(len(row) != len(columns) for row in weights):
        shape = f"{len(weights)} × {len(weights[0]) if weights else 0}"
        check.refuse("weights", shape, f"{len(rows)} rows of {len(columns)}")
    left = MARGIN + round(FONT * WIDE * max(map(len, rows), default=0)) + 8
    top = MARGIN + round(FONT * WIDE * max(map(len, columns), default=0)) + 8
    width, height = left + CELL * len(columns) + MARGIN, top + CELL * len(rows) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img">\n'
        f'<rect width="{width}" height="{height}" rx="10" fill="#fff"/>\n'
    ]
    for i, row in enumerate(weights):
        for j, weight in enumerate(row):
            share = min(max(float(weight), 0.0), 1.0)
            parts.append(
                f'<rect x="{left + CELL * j}" y="{top + CELL * i}" width="{CELL - 1}"'
                f' height="{CELL - 1}" fill="#1f5fa8" fill-opacity="{share:.3f}">'
                f"<title>{escape(rows[i])} ← {escape(columns[j])}: {share:.3f}</title></rect>\n"
            )
    parts.append(f'<g fill="#17212b" font-family="system-ui, sans-serif" font-size="{FONT}">\n')
    for i, text in enumerate(rows):
        y = top + CELL * i + CELL // 2 + FONT // 3
        parts.append(f'<text x="{left - 6}" y="{y}" text-anchor="end">{escape(text)}</text>\n')
    for j, text in enumerate(columns):
        x = left + CELL * j + CELL // 2 + FONT // 3
        turned = f'transform="rotate(-90 {x} {top - 6})"'
        parts.append(f'<text x="{x}" y="{top - 6}" {turned}>{escape(text)}</text>\n')
    return "".join(parts) + "</g>\n</svg>"


def alignment(
    model: EncoderDecoder,
    vocabularies: tuple[Vocabulary, Vocabulary],
    sentence: str,
    hypothesis: Translation,
) -> str:
    """What the model attended to where it wrote each token of a translation."""
    source, target = vocabularies
    numbers = source.encode(sentence)
    weights = align(model, numbers, hypothesis.tokens)
    columns = [*_pieces(source, numbers.tolist()), "⏎"]
    rows = [*_pieces(target, hypothesis.tokens), "⏎"]
    return heatmap(weights.tolist(), rows, columns)


def _pieces(vocabulary: Vocabulary, numbers: Iterable[int]) -> list[str]:
    return [vocabulary.decode([number]).strip() or "␣" for number in numbers]
