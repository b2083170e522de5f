from metarnn.cells import GRU, LSTM, QRNN, Feedback, Jordan


def test_a_cell_that_feeds_back_reads_its_output_and_carries_it():
    cell = Feedback.around(LSTM(3, 5, proj_size=2))
    assert (cell.input_size, cell.unit.input_size, cell.output_size) == (3, 5, 2)
    assert cell.states == (2, 5, 2)
    assert Feedback.around(Jordan(3, 5, 2)).states == (2, 2)


def test_with_a_window_it_carries_past_inputs_and_past_outputs():
    cell = Feedback.around(QRNN(3, 4, window=3))
    assert cell.window == 1
    assert cell.states == (4, 4, 2 * (3 + 4))


def test_it_can_be_resized_for_the_upper_layers_of_a_stack():
    cell = Feedback.around(GRU(3, 4)).resized(8)
    assert (cell.input_size, cell.unit.input_size) == (8, 12)
