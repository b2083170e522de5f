"""Nodes of an ONNX graph, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from metarnn.layers.onnx import proto

Shape = Sequence[int | str]


class Constants:
    """Numbers that a graph and the loops in it share, each once."""

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray] = {}
        self.used: set[str] = set()  # names that a graph reads, constants and others
        self._known: dict[Any, str] = {}

    def add(self, value: Tensor | np.ndarray, name: str = "") -> str:
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = f"{name or 'constant'}_{len(self.tensors)}"
            self.tensors[self._known[key]] = array
        return self._known[key]


class Node(NamedTuple):
    inputs: Sequence[str]
    outputs: Sequence[str]
    content: bytes


class Builder:
    """A graph: `input`s, then `add` for each node, then `output`s."""

    def __init__(self, constants: Constants | None = None, prefix: str = "") -> None:
        self.constants = Constants() if constants is None else constants
        self.prefix, self.count = prefix, 0
        self.nodes: list[Node] = []
        self.inputs: list[bytes] = []
        self.outputs: list[bytes] = []
        self.results: list[str] = []

    def name(self) -> str:
        self.count += 1
        return f"{self.prefix}v{self.count}"

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The result of a node."""
        return self.several(op, inputs, 1, **attributes)[0]

    def several(self, op: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """The results of a node that has several."""
        names = [self.name() for _ in range(count)]
        self.nodes.append(Node(inputs, names, proto.node(op, inputs, names, attributes)))
        return names

    @property
    def own_batch(self) -> str:
        """The name of the batch's size within a loop: it may be another than the inputs' B."""
        return f"{self.prefix}B"

    def const(self, value: Tensor | np.ndarray, name: str = "") -> str:
        return self.constants.add(value, name)

    def number(self, value: float) -> str:
        return self.const(np.array([value], np.float32))

    def ints(self, *values: int) -> str:
        return self.const(np.array(values, np.int64))

    def input(self, name: str, shape: Shape, kind: str = "float32") -> str:
        self.inputs.append(proto.value_info(name, kind, shape))
        return name

    def output(self, value: str, name: str, shape: Shape, kind: str = "float32") -> None:
        self.nodes.append(Node([value], [name], proto.node("Identity", [value], [name], {})))
        self.results.append(name)
        self.outputs.append(proto.value_info(name, kind, shape))

    # What several parts need.

    def slice(self, x: str, start: int, stop: int, axis: int) -> str:
        return self.add("Slice", x, self.ints(start), self.ints(stop), self.ints(axis))

    def batch(self, x: str, axis: int) -> str:
        """The size of a dimension, [1]."""
        return self.add("Gather", self.add("Shape", x), self.ints(axis), axis=0)

    def filled(self, *shape: str, value: float = 0.0) -> str:
        """A tensor of one number; its shape in parts, [n] each."""
        size = self.add("Concat", *shape, axis=0)
        return self.add("ConstantOfShape", size, value=np.array([value], np.float32))

    def linear(self, x: str, weight: Tensor, bias: Tensor | None, int8: bool = False) -> str:
        """x Wᵀ + b; with int8 both rounded to a byte: weights by rows, x as it comes."""
        if int8:
            scale = (weight.abs().amax(1) / 127).clamp(min=1e-12)
            rounded = (weight / scale.unsqueeze(1)).round().to(torch.int8)
            bytes_, step, zero = self.several("DynamicQuantizeLinear", [x], 3)
            whole = self.add("MatMulInteger", bytes_, self.const(rounded.T), zero)
            y = self.add("Mul", self.add("Cast", whole, to=1), step)
            y = self.add("Mul", y, self.const(scale))
        else:
            y = self.add("MatMul", x, self.const(weight.T.float(), "weight"))
        return y if bias is None else self.add("Add", y, self.const(bias.float(), "bias"))

    def graph(self, name: str) -> bytes:
        return proto.graph(name, self._live(), self.inputs, self.outputs)

    def _live(self) -> list[bytes]:
        """The nodes that results depend on, here or in the loops of this graph."""
        used, live = self.constants.used, list[bytes]()
        used.update(self.results)
        for node in reversed(self.nodes):
            if not used.isdisjoint(node.outputs):
                used.update(node.inputs)
                live.append(node.content)
        return live[::-1]

    def model(self, name: str, notes: dict[str, str] | None = None) -> bytes:
        """The whole file."""
        nodes, every = self._live(), self.constants
        tensors = [proto.tensor(n, value) for n, value in every.tensors.items() if n in every.used]
        body = proto.graph(name, nodes, self.inputs, self.outputs, tensors)
        return proto.model(body, notes or {})
