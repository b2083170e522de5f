import xml.etree.ElementTree as ET

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metarnn.report import Tree, tree

SVG = "{http://www.w3.org/2000/svg}"

# Few different heights, so that ties are common.
heights = st.lists(st.integers(0, 4), min_size=1, max_size=14)
# Everything XML and a terminal may stumble over, but no spaces.
any_word = st.text(st.characters(exclude_categories=["Zs"]), min_size=1, max_size=6)


def numbered(distances) -> Tree:
    return tree([f"w{i}" for i in range(len(distances))], distances)


def split_at_the_first_largest(start, stop, distances):
    """The definition, word for word: (spans, brackets) of words[start:stop]."""
    if stop - start == 1:
        return set(), f"w{start}"
    split = max(range(start + 1, stop), key=lambda t: distances[t])
    left_spans, left = split_at_the_first_largest(start, split, distances)
    right_spans, right = split_at_the_first_largest(split, stop, distances)
    return {(start, stop)} | left_spans | right_spans, f"({left} {right})"


@given(heights)
def test_the_tree_splits_top_down_at_the_first_largest_distance(distances):
    spans, brackets = split_at_the_first_largest(0, len(distances), distances)
    assert numbered(distances).spans() == spans
    assert numbered(distances).brackets() == brackets


@given(heights)
def test_a_node_stands_before_its_children_and_left_before_right(distances):
    expected = []

    def visit(start, stop):
        if stop - start > 1:
            split = max(range(start + 1, stop), key=lambda t: distances[t])
            expected.append((start, split, stop))
            visit(start, split)
            visit(split, stop)

    visit(0, len(distances))
    assert list(numbered(distances).nodes) == expected


@given(heights, st.floats(allow_nan=True))
def test_the_distance_before_the_first_word_is_ignored(distances, first):
    assert numbered(distances) == numbered([first, *distances[1:]])


def test_only_the_order_of_distances_matters_and_a_tensor_will_do():
    distances = [0.0, 0.5, -1.0, 7.0, 2.0]
    assert numbered(distances) == numbered(torch.tensor(distances).exp())


def test_text_draws_left_right_and_mixed_branching():
    words = ["a", "b", "c", "d"]
    assert tree(words, [0, 1, 2, 3]).text().splitlines() == [
        "┬─┬─┬─ a",
        "│ │ └─ b",
        "│ └─── c",
        "└───── d",
    ]
    assert tree(words, [0, 3, 2, 1]).text().splitlines() == [
        "┬───── a",
        "└─┬─── b",
        "  └─┬─ c",
        "    └─ d",
    ]
    assert tree(words, [0, 3, 1, 2]).text().splitlines() == [
        "┬───── a",
        "└─┬─┬─ b",
        "  │ └─ c",
        "  └─── d",
    ]


def spans_read_off_the_drawing(drawing):
    """Each ┬ is a constituent: its right child begins at the └ below it, and ends with it."""
    rows = drawing.splitlines()
    spans = set()
    for start, row in enumerate(rows):
        for column in (c for c, mark in enumerate(row) if mark == "┬"):
            split = next(r for r in range(start + 1, len(rows)) if rows[r][column] == "└")
            stop = split + 1
            while stop < len(rows) and rows[stop][column] == " ":
                stop += 1
            spans.add((start, stop))
    return spans


@given(heights)
def test_the_spans_can_be_read_off_the_text(distances):
    assert spans_read_off_the_drawing(numbered(distances).text()) == numbered(distances).spans()


@given(st.lists(any_word, min_size=1, max_size=6))
def test_any_words_give_well_formed_svg_and_one_line_each(words):
    sentence = tree(words, range(len(words)))
    assert len(sentence.text().split("\n")) == len(words)
    drawn = [element.text for element in ET.fromstring(sentence.svg()).iter(f"{SVG}text")]
    assert drawn == ["".join(c if c.isprintable() else "�" for c in word) for word in words]


def test_markup_in_words_is_escaped():
    words = ["<b>", "R&D", '"x"']
    picture = tree(words, [0, 1, 2]).svg()
    assert "<b>" not in picture
    assert [element.text for element in ET.fromstring(picture).iter(f"{SVG}text")] == words


def test_words_stand_in_order_inside_the_picture_without_overlap():
    words = ["Supercalifragilistic", "i", "go", "東京都", "there"]
    root = ET.fromstring(tree(words, [0, 2, 1, 4, 3]).svg())
    middles = [float(element.attrib["x"]) for element in root.iter(f"{SVG}text")]
    assert middles == sorted(middles)
    narrowest = [0.3 * 17 * len(word) / 2 for word in words]
    for i in range(len(words) - 1):
        assert middles[i] + narrowest[i] < middles[i + 1] - narrowest[i + 1]
    assert middles[0] - narrowest[0] > 0
    assert middles[-1] + narrowest[-1] < float(root.attrib["width"])


def test_one_word_is_a_tree_without_constituents():
    word = tree(["hello"], [float("nan")])
    assert (word.brackets(), word.text(), word.spans()) == ("hello", "hello", set())
    assert ET.fromstring(word.svg()).find(f".//{SVG}path") is None


@pytest.mark.parametrize("order", [1, -1])
def test_a_chain_of_5000_words_needs_no_recursion(order):
    chain = numbered([order * t for t in range(5000)])
    assert len(chain.spans()) == 4999
    assert chain.brackets().count("(") == 4999
    assert chain == numbered([order * t for t in range(5000)])
    assert hash(chain) == hash(numbered([order * t for t in range(5000)]))
    assert repr(chain).startswith("Tree(")
    ET.fromstring(chain.svg())


@pytest.mark.parametrize("order", [1, -1])
def test_the_text_of_a_chain_deeper_than_the_recursion_limit(order):
    assert len(numbered([order * t for t in range(1500)]).text().splitlines()) == 1500


@pytest.mark.parametrize(
    ("words", "distances", "message"),
    [
        ([], [], "words is empty"),
        (["a", "b"], [0.0], "1 entries for 2 words"),
        (["a"], [0.0, 1.0], "2 entries for 1 words"),
        (["a", "b", "c"], [0.0, 1.0, float("nan")], r"distances\[2\]=nan"),
    ],
)
def test_what_cannot_be_a_tree_is_refused(words, distances, message):
    with pytest.raises(ValueError, match=message):
        tree(words, distances)
