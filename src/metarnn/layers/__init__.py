"""The nn.Modules people use: stacks, directions, dropout, lengths."""

from metarnn.layers.named import GRU, LSTM, ONLSTM, QRNN, RNN, SRU, Jordan, MinGRU, MinLSTM
from metarnn.layers.recurrent import Recurrent

__all__ = [
    "GRU",
    "LSTM",
    "ONLSTM",
    "QRNN",
    "RNN",
    "SRU",
    "Jordan",
    "MinGRU",
    "MinLSTM",
    "Recurrent",
]
