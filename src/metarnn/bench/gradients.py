"""What gradient rules cost, and how near the exact gradient they come."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from metarnn import cells
from metarnn.gradients import BPTT, KFRTRL, RFLO, RTRL, UORO, SnAp
from metarnn.layers import LSTM, RNN, Recurrent
from metarnn.tasks.synthetic import adding, copying, counting

Chunk = tuple[Tensor, Tensor, Tensor]  # inputs [T, B, n], targets, weights of the steps [T, B]


class Network(nn.Module):
    """A layer with a linear read-out; the loss is summed over the steps, a mean over sequences."""

    def __init__(self, layer: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.layer, self.readout = layer, nn.Linear(width, outputs)

    def forward(self, chunk: Chunk, state: Any) -> tuple[Tensor, Any]:
        x, y, weight = chunk
        h, state = self.layer(x, state)
        output = self.readout(h)
        if y.is_floating_point():
            losses = (output - y).square().sum(-1)
        else:
            losses = cross_entropy(output.flatten(0, 1), y.flatten(), reduction="none")
        return (losses.view_as(weight) * weight).sum() / weight.shape[1], state


def _copy(batch: int, source: torch.Generator) -> Chunk:
    x, y = copying(40, batch, symbols=5, generator=source)
    return one_hot(x, 7).float(), y, torch.ones(x.shape)


def _adding(batch: int, source: torch.Generator) -> Chunk:
    x, y = adding(100, batch, generator=source)
    weight = torch.zeros(100, batch)
    weight[-1] = 1
    return x, y.expand(100, batch, 1).contiguous(), weight


def _counting(batch: int, source: torch.Generator) -> Chunk:
    x, y = counting(100, batch, generator=source)
    return one_hot(x, 3).float(), y, torch.ones(x.shape)


# Each problem with its numbers of inputs and outputs.
PROBLEMS: dict[str, tuple[Callable[[int, torch.Generator], Chunk], int, int]] = {
    "copy, delay 40": (_copy, 7, 7),
    "adding, T = 100": (_adding, 2, 1),
    "aⁿbⁿ, T = 100": (_counting, 3, 3),
}
APPROXIMATIONS = {"snap-1": SnAp(1), "kf-rtrl": KFRTRL(), "rflo": RFLO(), "uoro": UORO()}


def cosines(
    problem: str, *, width: int = 64, batch: int = 16, seeds: int = 3, updates: int = 60
) -> dict[str, tuple[float, float]]:
    """By the rule, the mean cosine of its gradient with the exact one, of the recurrent weights,
    and the variance of the estimate relative to ‖∇‖².

    A tanh network learns by exact gradients (Adam, 0.001); ten times, evenly spaced over the
    updates, each rule's gradient of the same batch is compared.
    """
    draw, inputs, outputs = PROBLEMS[problem]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in APPROXIMATIONS}
    for seed in range(seeds):
        torch.manual_seed(seed)
        source = torch.Generator().manual_seed(seed)
        network = Network(RNN(inputs, width), width, outputs)
        optimizer = torch.optim.Adam(network.parameters(), 1e-3)
        for update in range(updates):
            chunk = draw(batch, source)
            exact = BPTT().step(network, chunk)
            if update % max(updates // 10, 1) == 0:
                true = _recurrent(exact.named)
                for name, rule in APPROXIMATIONS.items():
                    guess = _recurrent(rule.step(network, chunk).named)
                    error = (guess - true).square().sum() / true.square().sum()
                    cosine = torch.cosine_similarity(guess, true, 0)
                    found[name].append((cosine.item(), error.item()))
            optimizer.zero_grad()
            exact.put(network)
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
    return {
        name: (sum(c for c, _ in each) / len(each), sum(e for _, e in each) / len(each))
        for name, each in found.items()
    }


def _recurrent(named: dict[str, Tensor]) -> Tensor:
    return torch.cat([g.flatten() for n, g in sorted(named.items()) if n.startswith("layer")])


def checkpoints(lengths: tuple[int, ...] = (1024, 4096, 16384)) -> Iterator[dict[str, Any]]:
    """Time and memory of BPTT through T steps of an LSTM of 64 units at B = 8, plain and with
    checkpoints at every √T-th step; each in a process of its own, whose memory is then its own."""
    for steps in lengths:
        times, memory = {}, {}
        for name, every in (("plain", 0), ("checkpoints", -1)):
            times[name], memory[name] = _apart(_bptt, steps, every)
        yield {
            "T": steps,
            "seconds": times["plain"],
            "seconds, checkpoints": times["checkpoints"],
            "MB": memory["plain"],
            "MB, checkpoints": memory["checkpoints"],
        }


def _bptt(steps: int, every: int) -> tuple[float, float]:
    network = Network(LSTM(32, 64), 64, 1)
    rule = BPTT(every)
    rule.step(network, _zeros(64))
    chunk = _zeros(steps)
    before = _peak()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        rule.step(network, chunk)
        times.append(time.perf_counter() - start)
    return min(times), _peak() - before


def _zeros(steps: int) -> Chunk:
    return torch.randn(steps, 8, 32), torch.zeros(steps, 8, 1), torch.ones(steps, 8)


def elementwise(
    width: int = 1000, inputs: int = 64, batch: int = 8, steps: int = 512
) -> Iterator[dict[str, Any]]:
    """Microseconds of a step of exact RTRL, of all steps in one call and of one step a call, beside
    those of the forward pass, step by step: of the layer alone, and of the model with its loss."""
    for cell in (cells.MinGRU(inputs, width), cells.QRNN(inputs, width), cells.SRU(inputs, width)):
        layer = Recurrent(cell)
        network, rule = Network(layer, width, 1), RTRL()
        x = torch.randn(steps, batch, inputs)
        chunk = x, torch.zeros(steps, batch, 1), torch.ones(steps, batch)
        singly = list(zip(*(part.split(1) for part in chunk), strict=True))

        def forward(layer: Recurrent = layer, x: Tensor = x) -> None:
            state = None
            with torch.no_grad():
                for x_t in x:
                    _, state = layer.step(x_t, state)

        def model(network: Network = network, singly: list[Chunk] = singly) -> None:
            state = None
            with torch.no_grad():
                for one in singly:
                    _, state = network(one, state)

        def learn(rule: RTRL = rule, network: Network = network, chunk: Chunk = chunk) -> None:
            rule.step(network, chunk)

        def follow(
            rule: RTRL = rule, network: Network = network, singly: list[Chunk] = singly
        ) -> None:
            carried = None
            for one in singly:
                carried = rule.step(network, one, carried).carried

        micro = [1e6 * _fastest(call) / steps for call in (forward, model, learn, follow)]
        yield {
            "cell": type(cell).__name__,
            "layer, µs a step": micro[0],
            "model, µs a step": micro[1],
            "rtrl, µs a step": micro[2],
            "of the layer": micro[2] / micro[0],
            "rtrl, a step a call, µs": micro[3],
            "of the model": micro[3] / micro[1],
        }


def memory_over_time(lengths: tuple[int, ...] = (10_000, 100_000)) -> dict[int, float]:
    """MB that exact RTRL of a MinGRU of 256 units takes through a stream of so many steps."""
    return {steps: _apart(_stream, steps) for steps in lengths}


def _stream(steps: int) -> float:
    network, rule, carried = Network(Recurrent(cells.MinGRU(16, 256)), 256, 1), RTRL(), None
    before = _peak()
    for _ in range(0, steps, 500):
        chunk = torch.randn(500, 4, 16), torch.zeros(500, 4, 1), torch.ones(500, 4)
        carried = rule.step(network, chunk, carried).carried
    return _peak() - before


def online(values: Tensor, rule: Any, *, width: int = 32, lr: float = 0.01, seed: int = 0) -> float:
    """The error of forecasts of a series one step ahead, learned in one pass over it, normalised by
    its variance: each value is predicted before it is learned from.

    A tanh network says how far the next value is from the last, at first 0; an update a step.
    """
    series = (values - values.mean()) / values.std()
    torch.manual_seed(seed)
    network = Network(RNN(1, width), width, 1)
    for weight in network.readout.parameters():
        nn.init.zeros_(weight)
    optimizer = torch.optim.SGD(network.parameters(), lr)
    carried, error = None, 0.0
    for now, following in pairwise(series):
        chunk = now.view(1, 1, 1), (following - now).view(1, 1, 1), torch.ones(1, 1)
        found = rule.step(network, chunk, carried)
        error, carried = error + found.value.item(), found.carried
        optimizer.zero_grad()
        found.put(network)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    return error / (len(series) - 1)


def repeating(values: Tensor) -> float:
    """The same error of the forecast that the next value is the last."""
    return (values.diff().square().mean() / values.var()).item()


def _fastest(call: Callable[[], None], rounds: int = 4) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def _apart(function: Callable[..., Any], *arguments: int) -> Any:
    """What a function returns, called in a new process."""
    words = [function.__name__, *map(str, arguments)]
    command = [sys.executable, "-m", __name__, *words]
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}  # of a checkout that is not installed, too
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":  # python -m metarnn.bench.gradients FUNCTION NUMBERS, for `_apart`
    torch.set_num_threads(1)
    print(json.dumps(globals()[sys.argv[1]](*map(int, sys.argv[2:]))))
