"""How the columns of a step's matrix products are shared out in generated C."""

import pytest

from metarnn import cells, hyper
from metarnn.engines.cpu.program import emit
from metarnn.engines.plan import plan_loop

LANES = 16


@pytest.mark.parametrize("backward", [False, True])
def test_a_wide_product_is_not_cut_into_blocks_as_narrow_as_one_beside_it(backward):
    """W h beside V h of rank 8: in blocks of 8 half of each vector would be idle."""
    H, rank = 64, 8
    unit = hyper.Generated(cells.LSTM(16, H), (hyper.LowRank(rank=rank),))
    graphs = plan_loop(unit).graphs()
    program = emit(graphs.backward.graph if backward else graphs.train, backward=backward)
    packed = sum(size.elements(LANES) for size in program.packed.values())
    weights = H * 4 * H + H * rank + rank * 4 * H
    assert packed < 1.5 * weights
