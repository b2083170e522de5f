"""Any module as a main network whose weights another network writes, anew for every task."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from metarnn.cells import check
from metarnn.hyper.descriptors import Descriptor, Vector
from metarnn.hyper.forms import Number
from metarnn.hyper.generators import GENERATORS, Chunked, as_generator
from metarnn.layers.nested import map_tensors

BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

MOST = 1 << 28  # parameters of a generator beyond which it is surely not what was meant: 1 GiB


def hypernetize(
    module: nn.Module,
    generator: str | Callable[..., nn.Module] = "dense",
    names: str | Sequence[str] = "*",
    *,
    descriptor: int | Descriptor,
    context: int = 64,
    start: str = "zero",
) -> Hypernetized:
    """The module with weights θ = f_φ(τ) for tasks described by τ; it is copied, not changed.

    >>> net = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 1))
    >>> many = hypernetize(net, descriptor=3)
    >>> tasks = torch.randn(7, 3)  # τ of seven tasks
    >>> many(tasks, torch.randn(7, 10, 1)).shape, many.weights(tasks)["0.weight"].shape
    (torch.Size([7, 10, 1]), torch.Size([7, 40, 1]))

    Args:
        module: any; each of its calls sees the inputs of one task
        generator: "dense", "chunked", "conv", "attention" or "recurrent" (all but the first write
            any number of weights with as many parameters), or a function (context, numbers,
            start) -> module, see `hyper.Generator`
        names: which weights are generated, as patterns of their names; the others are shared
        descriptor: what describes a task, see `hyper.Descriptor`; or how many numbers do
        context: numbers between descriptor and generator: the embedding of a task
        start: "zero": θ = θ_0 + f_φ(τ), where θ_0 are weights of its own that are trained too, and
            f_φ begins at 0: every task starts as the plain module. "hyperfan": θ = f_φ(τ) alone,
            of the scale that the module's layers need
    """
    return Hypernetized(module, generator, names, descriptor, context, start)


class Hypernetized(nn.Module):
    """What `hypernetize` makes.

    module      the main network; with start="zero" its weights are θ_0
    descriptor  from what is known of tasks to numbers
    embed       from these to the context, [N, context]
    generator   from the context to weights
    shapes      of what is generated, by name
    """

    def __init__(
        self,
        module: nn.Module,
        generator: str | Callable[..., nn.Module],
        names: str | Sequence[str],
        descriptor: int | Descriptor,
        context: int,
        start: str,
    ) -> None:
        super().__init__()
        check.one_of("start", start, ["zero", "hyperfan"])
        self.start = start
        for part in module.modules():
            if isinstance(part, nn.RNNBase):
                kind = type(part).__name__
                why = f"metarnn.{kind}: it loads the same weights, and torch cannot batch its own"
                check.refuse("module", f"with torch.nn.{kind}", why)
        self.module = copy.deepcopy(module)
        chosen = _chosen(self.module, names)
        self.shapes = {name: weight.shape for name, weight in chosen.items()}
        self.descriptor = Vector(descriptor) if isinstance(descriptor, int) else descriptor
        check.size("context", context)
        self.embed = nn.Sequential(
            nn.Linear(self.descriptor.width, context),
            nn.SiLU(),
            nn.Linear(context, context),
            nn.LayerNorm(context, elementwise_affine=False),  # generators read variance 1
        )
        biased = any(len(shape) == 1 for shape in self.shapes.values())
        relu = any(isinstance(part, nn.ReLU) for part in self.module.modules())
        # What starts as ones is a gain, of a norm: generated around 1.
        self._gains = {n for n, w in chosen.items() if w.dim() == 1 and bool((w == 1).all())}
        numbers = {}
        for name, shape in self.shapes.items():
            std = 0.1 if name in self._gains else hyperfan(shape, relu, biased)
            numbers[_key(name)] = Number((shape.numel(),), std)
        make = _generator(generator)
        if make is GENERATORS["dense"]:
            size = context * sum(number.width for number in numbers.values())
            if size > MOST:
                fewer = f"at most {MOST:,} parameters: generator='attention' has few for any size"
                check.refuse("generator", f"'dense', {size:,} parameters", fewer)
        self.generator = as_generator(make(context, numbers, start), context, numbers)
        if start == "hyperfan":
            _retire(self.module, chosen)
        first = next(iter(chosen.values()))
        self.embed.to(first.device, first.dtype)
        self.generator.to(first.device, first.dtype)

    def embedding(self, about: Any) -> Tensor:
        """What is known of N tasks as a point for each, [N, context]."""
        return self.embed(self.descriptor(about))

    def weights(self, about: Any) -> dict[str, Tensor]:
        """The generated weights of N tasks, {name: [N, …]}; of one descriptor, {name: […]}."""
        if self._is_single(about):
            return {name: w.squeeze(0) for name, w in self.weights(about.unsqueeze(0)).items()}
        return self.written(self.embedding(about))

    def _is_single(self, about: Any) -> bool:
        """Whether this is the descriptor of one task, without a dimension for tasks."""
        return isinstance(self.descriptor, Vector) and getattr(about, "ndim", 0) == 1

    def written(self, context: Tensor) -> dict[str, Tensor]:
        """The weights that belong to contexts, [N, context]."""
        rows = self.generator(context)
        found = {n: rows[_key(n)].unflatten(-1, shape) for n, shape in self.shapes.items()}
        if self.start == "zero":
            base = dict(self.module.named_parameters())
            return {name: base[name] + weight for name, weight in found.items()}
        return {n: 1 + weight if n in self._gains else weight for n, weight in found.items()}

    def forward(self, about: Any, *inputs: Any, **options: Any) -> Any:
        """The module on inputs [N, …] with the weights of N tasks: one pass for all of them.

        Options are the same for all tasks. With one descriptor, [width], inputs and outputs are
        those of that task.
        """
        if self._is_single(about):
            inputs = tuple(map_tensors(lambda x: x.unsqueeze(0), each) for each in inputs)
            outputs = self(about.unsqueeze(0), *inputs, **options)
            return map_tensors(lambda y: y.squeeze(0), outputs)
        return self.call(self.weights(about), *inputs, **options)

    def call(self, weights: dict[str, Tensor], *inputs: Any, **options: Any) -> Any:
        """The module on inputs [N, …] with weights {name: [N, …]}."""
        count = len(next(iter(weights.values())))
        for k, value in enumerate(inputs):
            if isinstance(value, Tensor) and (not value.dim() or len(value) != count):
                shape = tuple(value.shape)
                check.refuse(f"inputs[{k}].shape", shape, f"[{count}, …]: {count} tasks are given")
        for part in self.module.modules():
            norm = isinstance(part, BATCH_NORM) and part.training
            if norm and part.track_running_stats:
                why = "eval(), or track_running_stats=False: tasks share no running mean"
                check.refuse(type(part).__name__, "in training", why)

        def one(weights: dict[str, Tensor], *inputs: Any) -> Any:
            return functional_call(self.module, weights, inputs, options)

        # Neither fused attention nor the fast path of nn.TransformerEncoderLayer can be batched.
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with sdpa_kernel(SDPBackend.MATH):
                return vmap(one, randomness="different")(weights, *inputs)
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


def hyperfan(shape: Sequence[int], relu: bool, biased: bool) -> float:
    """The standard deviation of a generated weight that keeps the scale of its inputs.

    Var = c / (c_b·fan_in) for matrices, c / 2 for biases beside them, with c = 2 before ReLUs and
    c_b = 2 where biases are generated too (Chang, Flokas & Lipson 2020).
    """
    gain = 2.0 if relu else 1.0
    if len(shape) < 2:
        return math.sqrt(gain / 2)
    return math.sqrt(gain / ((2.0 if biased else 1.0) * math.prod(shape[1:])))


def _generator(kind: str | Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    if not isinstance(kind, str):
        return kind
    known: dict[str, Callable[..., nn.Module]] = {**GENERATORS, "chunked": Chunked}
    return known[check.one_of("generator", kind, known)]


def _chosen(module: nn.Module, names: str | Sequence[str]) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {
        n: w for n, w in module.named_parameters() if w.is_floating_point()
    }
    patterns = [names] if isinstance(names, str) else list(names)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in weights):
            check.refuse("names", pattern, f"a pattern of some of {list(weights)}")
    found = {n: w for n, w in weights.items() if any(fnmatchcase(n, p) for p in patterns)}
    if not found:
        check.refuse("names", names, f"patterns of some of {list(weights)}")
    return found


def _retire(module: nn.Module, chosen: dict[str, Tensor]) -> None:
    """Weights that are always generated are no parameters any more: not trained, not saved.

    A weight that is shared between parts of the module stays shared.
    """
    places = {id(weight): torch.zeros_like(weight) for weight in chosen.values()}
    for part in list(module.modules()):
        for name, weight in list(part.named_parameters(recurse=False, remove_duplicate=False)):
            if id(weight) in places:
                delattr(part, name)
                part.register_buffer(name, places[id(weight)], persistent=False)


def _key(name: str) -> str:
    """A name that a dict of parameters may have."""
    return name.replace(".", "/")
