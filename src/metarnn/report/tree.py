"""From syntactic distances to a binary tree over a sentence, and pictures of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import SupportsFloat
from unicodedata import combining, east_asian_width

# Lengths in the SVG, in pixels.
FONT = 17
GAP = 24  # between two words
LEVEL = 30  # from a constituent to the one above it
CORNER = 9  # radius of a branch's bend
MARGIN = 28


@dataclass(frozen=True)
class Tree:
    """A binary tree over the words of a sentence; `tree` makes one.

    `nodes` lists each constituent of two words or more as (start, split, stop), a parent before
    its children and left before right: it covers `words[start:stop]`, its left child
    `words[start:split]`, its right child `words[split:stop]`. Being flat, it can be compared,
    printed and drawn at any depth without recursion.
    """

    words: tuple[str, ...]
    nodes: tuple[tuple[int, int, int], ...]

    def spans(self) -> set[tuple[int, int]]:
        """(start, stop) of each constituent of two words or more, the sentence among them.

        >>> sorted(tree(["the", "cat", "sat"], [0, 1, 2]).spans())
        [(0, 2), (0, 3)]
        """
        return {(start, stop) for start, _, stop in self.nodes}

    def brackets(self) -> str:
        """The tree in one line; the words stand in it as they are.

        >>> tree(["the", "cat", "sat", "down"], [0, 1, 3, 2]).brackets()
        '((the cat) (sat down))'
        """
        opened = Counter(start for start, _, _ in self.nodes)
        closed = Counter(stop - 1 for _, _, stop in self.nodes)
        return " ".join(
            "(" * opened[i] + word + ")" * closed[i] for i, word in enumerate(self.words)
        )

    def text(self) -> str:
        """A drawing for a terminal, one word a line, the root at the left.

        >>> print(tree(["the", "cat", "sat", "down"], [0, 1, 3, 2]).text())
        ┬─┬─ the
        │ └─ cat
        └─┬─ sat
          └─ down
        """
        if len(self.words) == 1:
            return _printable(self.words[0])
        branches: list[str] = []
        around: list[tuple[int, int, int]] = []  # constituents around the word, outermost first
        following = iter(self.nodes)
        node = next(following)
        for row in range(len(self.words)):
            while around and around[-1][2] <= row:
                around.pop()
            while node and node[0] == row:
                around.append(node)
                node = next(following, None)
            branches.append("".join(_joint(start, split, row) for start, split, _ in around))
        width = max(map(len, branches))
        return "\n".join(
            f"{branch:─<{width}} {_printable(word)}"
            for branch, word in zip(branches, self.words, strict=True)
        )

    def svg(self) -> str:
        """A standalone SVG picture, the root at the top, the words in one line below.

        >>> picture = tree(["the", "cat"], [0, 1]).svg()
        >>> picture.startswith("<svg"), picture.endswith("</svg>")
        (True, True)
        """
        words = [_printable(word) for word in self.words]
        # Where the branch to a constituent ends: its middle, and its level above the words.
        ends: dict[tuple[int, int], tuple[float, int]] = {}
        right = float(MARGIN)
        for i, word in enumerate(words):
            width = _width(word)
            ends[i, i + 1] = right + width / 2, 0
            right += width + GAP
        for start, split, stop in reversed(self.nodes):
            (left_x, left_level), (right_x, right_level) = ends[start, split], ends[split, stop]
            ends[start, stop] = (left_x + right_x) / 2, 1 + max(left_level, right_level)

        ground = MARGIN + LEVEL * ends[0, len(words)][1]
        branches: list[str] = []
        for start, split, stop in self.nodes:
            (left_x, left_level), (right_x, right_level) = ends[start, split], ends[split, stop]
            y = ground - LEVEL * ends[start, stop][1]
            branches.append(
                f"M{left_x:.1f} {ground - LEVEL * left_level}V{y + CORNER}q0 {-CORNER} {CORNER}"
                f" {-CORNER}H{right_x - CORNER:.1f}q{CORNER} 0 {CORNER} {CORNER}"
                f"V{ground - LEVEL * right_level}"
            )

        width, height = math.ceil(right - GAP + MARGIN), ground + 2 * FONT + MARGIN // 2
        # A background of its own keeps the picture readable on a dark page.
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" role="img">\n'
            f'<rect width="{width}" height="{height}" rx="10" fill="#fff"/>\n'
            f'<g fill="none" stroke="#6b8299" stroke-width="1.75" stroke-linecap="round">\n'
        )
        drawn = "".join(f'<path d="{branch}"/>\n' for branch in branches)
        labels = "".join(
            f'<text x="{ends[i, i + 1][0]:.1f}" y="{ground + FONT + 6}">{escape(word)}</text>\n'
            for i, word in enumerate(words)
        )
        style = f'fill="#17212b" font-family="system-ui, sans-serif" font-size="{FONT}"'
        return f'{head}{drawn}</g>\n<g {style} text-anchor="middle">\n{labels}</g>\n</svg>'


def tree(words: Sequence[str], distances: Iterable[SupportsFloat]) -> Tree:
    """Build the tree that syntactic distances describe (ON-LSTM, Shen et al. 2019).

    `distances[t]` is the height of the boundary between `words[t - 1]` and `words[t]`;
    `distances[0]`, before the first word, is ignored. The sentence is split at its highest
    boundary, each part again at its own, down to single words. Of equal heights the first wins.

    Args:
        words: the sentence, n words, at least one.
        distances: n numbers: a list, an array or a tensor of shape [n].

    Example:
        >>> tree(["the", "cat", "sat", "down"], [0, 1, 3, 2]).brackets()
        '((the cat) (sat down))'
    """
    heights = [float(distance) for distance in distances]
    if not words:
        raise ValueError("words is empty: expected a sentence of at least one word.")
    if len(words) != len(heights):
        raise ValueError(
            f"distances has {len(heights)} entries for {len(words)} words: expected one a word,"
            " the first of them (before the first word) being ignored."
        )
    for t, height in enumerate(heights[1:], start=1):
        if math.isnan(height):
            raise ValueError(f"distances[{t}]={height}: expected a number to compare with others.")

    # Splitting top down, the constituent split at boundary b reaches back to the nearest boundary
    # at least as high, since the first of equals splits earlier, and on to the nearest one higher.
    # A stack of falling heights finds both in one pass, whatever the depth of the tree.
    nodes: list[tuple[int, int, int]] = []
    pending: list[tuple[int, int]] = []  # (start, boundary), still without a stop
    for boundary in range(1, len(words)):
        while pending and heights[pending[-1][1]] < heights[boundary]:
            nodes.append((*pending.pop(), boundary))
        pending.append((pending[-1][1] if pending else 0, boundary))
    nodes += ((*entry, len(words)) for entry in pending)
    nodes.sort(key=lambda node: (node[0], -node[2]))  # parents first
    return Tree(tuple(words), tuple(nodes))


def _joint(start: int, split: int, row: int) -> str:
    """How a constituent around the word in this row shows to the left of it."""
    if row == start:
        return "┬─"
    if row == split:
        return "└─"
    return "│ " if row < split else "  "


def _printable(word: str) -> str:
    """Control characters break a line of the terminal and are illegal in XML."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in word)


def _width(word: str) -> float:
    """Estimated width in pixels: which font draws the picture is not known here."""
    ems = (
        0 if combining(c) else 1 if east_asian_width(c) in "WF" else 0.68 if c.isupper() else 0.54
        for c in word
    )
    return FONT * sum(ems)
