"""How the loss reaches the weights, and how far back it gets."""

from metarnn.gradients.bptt import BPTT
from metarnn.gradients.kronecker import KFRTRL
from metarnn.gradients.rtrl import RTRL
from metarnn.gradients.rule import Gradients, Rule
from metarnn.gradients.snap import RFLO, SnAp
from metarnn.gradients.truncated import ARTBP, TBPTT, RandomTBPTT, SampledTBPTT
from metarnn.gradients.uoro import UORO

__all__ = [
    "ARTBP",
    "BPTT",
    "KFRTRL",
    "RFLO",
    "RTRL",
    "TBPTT",
    "UORO",
    "Gradients",
    "RandomTBPTT",
    "Rule",
    "SampledTBPTT",
    "SnAp",
]
