"""Units we found are whole: graph, text and where they came from agree."""

import pytest

from metarnn.cli.main import main
from metarnn.graph import read
from metarnn.search import library


@pytest.mark.parametrize("name", library.names())
def test_a_found_unit_is_its_graph_and_says_where_it_came_from(name):
    graph = read(library.path(name))
    width = graph.states[0]
    assert graph == library.unit(name).graph(graph.nodes[0].width, width)
    found = library.about(name)
    assert {"data", "strategy", "steps", "date", "verdict"} <= found.keys()
    assert len(found["verdict"]["rows"]) == 4


def test_it_can_be_shown_by_its_name(capsys):
    assert main(["cell", "show", f"found/{library.names()[0]}", "--hidden-size", "5"]) == 0
    assert "h 5" in capsys.readouterr().out


def test_one_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="expected one of"):
        library.path("found/nothing")
