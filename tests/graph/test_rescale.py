"""A graph for states of another width is what the same cell of that width gives."""

import pytest

from metarnn import cells
from metarnn.graph import GraphError, rescaled, trace_cell

SCALABLE = {
    "elman": cells.Elman,
    "lstm": cells.LSTM,
    "lstm, peepholes, norm": lambda I, H: cells.LSTM(I, H, peephole=True, layer_norm=True),
    "gru": cells.GRU,
    "gru, reset before": lambda I, H: cells.GRU(I, H, reset="before"),
    "mingru": cells.MinGRU,
    "qrnn": cells.QRNN,
}


@pytest.mark.parametrize("sizes", [(3, 4, 6), (4, 4, 2), (6, 4, 6)])
@pytest.mark.parametrize("name", SCALABLE)
def test_it_is_the_graph_of_the_cell_of_that_width(name, sizes):
    I, H, wanted = sizes
    make = SCALABLE[name]
    try:
        ours = rescaled(trace_cell(make(I, H)), wanted)
    except GraphError:
        assert "norm" in name  # whose gates are normalised together
        return
    assert ours == trace_cell(make(I, wanted))


@pytest.mark.parametrize("cell", [cells.LSTM(3, 4, proj_size=2), cells.ONLSTM(3, 8, chunk=2)])
def test_a_graph_with_units_of_several_widths_is_refused(cell):
    with pytest.raises(GraphError, match="units of one width only"):
        rescaled(trace_cell(cell), 16)
