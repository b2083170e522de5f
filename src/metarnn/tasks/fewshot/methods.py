"""Learners by the name of their method, for any family of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from metarnn.cells import check
from metarnn.hyper import SupportSet, hypernetize
from metarnn.hyper.generators import GENERATORS
from metarnn.meta import (
    Adapting,
    Generating,
    Implicit,
    Joint,
    Learner,
    Matching,
    Prototypical,
    Reading,
    Reptile,
)
from metarnn.tasks.fewshot.family import Family

Method = Literal[
    "maml", "fomaml", "anil", "metasgd", "reptile", "imaml", "joint", "hyper", "hyper-metadata",
    "hyper-maml", "prototypical", "matching", "reading",
]  # fmt: skip
STEPPING = ("maml", "fomaml", "anil", "metasgd", "reptile", "imaml", "joint", "hyper-maml")


@dataclass(frozen=True)
class LearnerOptions:
    """How to learn to learn.

    Args:
        method: maml, fomaml, anil, metasgd, reptile, imaml adapt by gradients; hyper writes weights
            from the support, hyper-metadata from what is known of a task, hyper-maml adapts
            weights that are written; prototypical and matching compare, reading reads; joint is
            one network for all tasks, fine-tuned
        width: hidden units of the network
        cell: its recurrent unit, where its inputs are sequences
        inner_steps: updates on the support in training
        inner_lr: their learning rate
        inner: their optimiser: sgd, momentum, adam
        checkpoint: keep the weights of every so many inner updates only; 0 for all
        strength: how strongly imaml holds adapted weights near where they began
        generator: what writes weights: dense, chunked, conv, attention, recurrent
        context: numbers of a task's embedding, for hyper
        regularise: factor of the mean square of weights that are written
        reconstruct: factor of an auxiliary loss: from the weights, tell the descriptor again
    """

    method: Method = "maml"
    width: int = 40
    cell: str = "lstm"
    inner_steps: int = 1
    inner_lr: float = 0.01
    inner: Literal["sgd", "momentum", "adam"] = "sgd"
    checkpoint: int = 0
    strength: float = 1.0
    generator: str = "dense"
    context: int = 64
    regularise: float = 0.0
    reconstruct: float = 0.0

    def __post_init__(self) -> None:
        for name in ("width", "context"):
            check.size(name, getattr(self, name))
        for name in ("inner_steps", "checkpoint"):
            check.size(name, getattr(self, name), least=0)


def build_learner(family: Family, options: LearnerOptions) -> Learner:
    """The learner of a method for a family.

    >>> from metarnn.tasks.fewshot import Sinusoids
    >>> learner = build_learner(Sinusoids(), LearnerOptions("hyper"))
    >>> type(learner).__name__
    'Generating'
    """
    o = options
    taking: dict[str, Any] = {
        "steps": o.inner_steps,
        "lr": o.inner_lr,
        "inner": o.inner,
        "checkpoint": o.checkpoint,
    }
    network, loss = family.network(o.width, o.cell), family.criterion
    match o.method:
        case "maml":
            return Adapting(network, loss, **taking)
        case "fomaml":
            return Adapting(network, loss, order=1, **taking)
        case "anil":
            return Adapting(network, loss, names="head.*", **taking)
        case "metasgd":
            return Adapting(network, loss, learn_rates=True, **taking)
        case "reptile":
            return Reptile(network, loss, **taking)
        case "joint":
            return Joint(network, loss, **taking)
        case "imaml":
            return Implicit(network, loss, strength=o.strength, **taking)
        case "hyper" | "hyper-metadata" | "hyper-maml":
            return _generating(family, network, o, taking)
        case "prototypical" | "matching":
            return _comparing(family, o)
        case "reading":
            reads, size = family.reads(o.width, o.cell)
            return Reading(size, family.outputs, o.width, loss, embedding=reads)
    check.refuse("method", o.method, "one of the methods that `LearnerOptions` names")


def _generating(
    family: Family, network: nn.Module, o: LearnerOptions, taking: dict[str, Any]
) -> Learner:
    if o.method == "hyper-metadata":
        descriptor = family.metadata()
        if descriptor is None:
            why = "a family of whose tasks something is known; here only examples are: hyper"
            check.refuse("method", o.method, why)
    else:
        reads, size = family.reads(o.width, o.cell)
        descriptor = SupportSet(size, family.outputs, reads=reads)
    check.one_of("generator", o.generator, [*GENERATORS, "chunked"])
    hyper = hypernetize(network, o.generator, descriptor=descriptor, context=o.context)
    steps = taking if o.method == "hyper-maml" else {}
    more: dict[str, Any] = {"regularise": o.regularise, "reconstruct": o.reconstruct}
    return Generating(hyper, family.criterion, **steps, **more)


def _comparing(family: Family, o: LearnerOptions) -> Learner:
    if family.criterion != "cross_entropy":
        check.refuse("method", o.method, "a family of classes: there is nothing to compare with")
    reads, _ = family.reads(o.width, o.cell)
    assert reads is not None
    kind = Prototypical if o.method == "prototypical" else Matching
    return kind(reads, family.outputs)
