"""How the loss reaches the weights, and how far back it gets."""

from metarnn.gradients.bptt import BPTT
from metarnn.gradients.kronecker import KFRTRL
from metarnn.gradients.named import FORWARD, RULES, rule
from metarnn.gradients.rtrl import RTRL
from metarnn.gradients.rule import Gradients, Rule
from metarnn.gradients.snap import RFLO, SnAp
from metarnn.gradients.truncated import ARTBP, TBPTT, RandomTBPTT, SampledTBPTT
from metarnn.gradients.uoro import UORO

__all__ = [
    "ARTBP",
    "BPTT",
    "FORWARD",
    "KFRTRL",
    "RFLO",
    "RTRL",
    "RULES",
    "TBPTT",
    "UORO",
    "Gradients",
    "RandomTBPTT",
    "Rule",
    "SampledTBPTT",
    "SnAp",
    "rule",
]
