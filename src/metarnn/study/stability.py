"""Whether a trained model can be trusted on sequences longer than those it was trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from metarnn.tasks.language import LanguageTask
from metarnn.tasks.language.corpus import Split
from metarnn.tasks.language.evaluation import score
from metarnn.tasks.language.part import stretch
from metarnn.tasks.language.tokens import Tokens

TIMES = 10  # a training document
MOST = 20_000  # tokens of the text; while contenders still train, QUICK
QUICK = 4_000
STEPS, SEQUENCES = 512, 4  # of the roll-out that gradients are taken of
GROWS = 10.0  # times as large, further back, is a gradient that explodes


def instability(job: Any, most: int = MOST) -> str:
    """Why a language model cannot be trusted on long text, "" where it can.

    It reads a text ten times as long as a training document, of at most so many tokens, and must
    neither diverge on it nor have gradients that explode. Models of other tasks read sequences that
    end, from a fresh state each time: of them nothing is said.
    """
    task = job.task
    if not isinstance(task, LanguageTask):
        return ""
    train = task.corpus["train"]
    document = int(np.median(np.diff(train.tokens.bounds)))
    text = stretch(train, 0, min(TIMES * max(document, task.length), most, len(train.tokens)))
    bounds = np.array([0, len(text.tokens)])
    joined = Split(Tokens(text.tokens.values, bounds), ("training text",), text.unknown)
    if score(job.model, joined, 1).ran_off(len(task.corpus.vocabulary)):
        return "its loss diverges on long text"
    steps = min(STEPS, len(text.tokens) // SEQUENCES)
    values = np.asarray(text.tokens.values[: steps * SEQUENCES]).astype(np.int64)
    growth = gradient_growth(job.model, torch.from_numpy(values.reshape(SEQUENCES, steps).T.copy()))
    if not growth < GROWS:
        return f"its gradients grow {growth:.1e} times over {steps} steps"
    return ""


def gradient_growth(model: nn.Module, tokens: Tensor) -> float:
    """How many times as large ∂L_T/∂x_t is early in a text as late in it.

        mean of ‖∂L_T/∂x_t‖, t in the first quarter, over that of the last quarter

    L_T is the loss of the last step. A stable unit forgets: the ratio is below 1.

    Args:
        model: a language model
        tokens: [T, B]
    """
    inputs: list[Tensor] = []

    def watch(layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        inputs.append(arguments[0].detach().requires_grad_())
        return (inputs[-1], *arguments[1:])

    tokens = tokens.to(next(model.parameters()).device)
    handle = model.get_submodule("layers.0").register_forward_pre_hook(watch)
    training = model.training
    try:
        with torch.enable_grad():
            output = model.eval()(tokens[:-1], tokens[1:])
            (gradient,) = torch.autograd.grad(output.nll[-1].sum(), inputs)
    finally:
        handle.remove()
        model.train(training)
    norms = gradient.detach().double().flatten(1).norm(dim=1)
    quarter = max(len(norms) // 4, 1)
    return float(norms[:quarter].mean() / norms[-quarter:].mean().clamp(min=1e-30))
