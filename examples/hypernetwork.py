"""A generator network writes the weights of a main network from a description of the task.

A textbook version of this has three parts, GeneratorNetwork, MainNetwork and Hypernetworks. Three
things often go wrong in it, and are right here:

- Weights that were generated must not be wrapped in `nn.Parameter`: that makes new leaves, and no
  gradient reaches the generator. Here they are plain tensors, applied with `functional_call`.
- Weights must not be kept from one task to the next: each description has its own. Here one pass
  computes many tasks, each with weights of its own.
- The generator must start so that the main network it writes keeps the scale of its inputs.

The first half is the textbook's classes, completed; the second half is the same with
`metarnn.hyper.hypernetize`, which does it for any module. Runs in about ten seconds.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from metarnn.hyper import hypernetize

HIDDEN = 64


class GeneratorNetwork(nn.Module):
    """τ -> all weights of the main network in one row, [N, output_dim]."""

    def __init__(self, task_dim: int, output_dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(task_dim, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, output_dim)

    def forward(self, task_desc: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(task_desc)))


class MainNetwork(nn.Module):
    """x -> y; which weights it has is decided by whoever calls it."""

    def __init__(self, input_dim: int, output_dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(input_dim, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, output_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


class Hypernetworks(nn.Module):
    """y = g_θ(x) with θ = f_φ(τ), for N tasks at once: τ [N, task_dim], x [N, K, input_dim]."""

    def __init__(self, task_dim: int, input_dim: int, output_dim: int) -> None:
        super().__init__()
        main = MainNetwork(input_dim, output_dim)
        self.shapes = {name: weight.shape for name, weight in main.named_parameters()}
        self.generator = GeneratorNetwork(task_dim, sum(s.numel() for s in self.shapes.values()))
        with torch.no_grad():  # every task begins with the main network's own good start
            self.generator.fc2.weight.mul_(0.1)
            self.generator.fc2.bias.copy_(torch.cat([w.flatten() for w in main.parameters()]))
        self.main = main.to("meta")  # its code is used, its weights never are

    def forward(self, task_desc: Tensor, x: Tensor) -> Tensor:
        rows = self.generator(task_desc)
        parts = rows.split([shape.numel() for shape in self.shapes.values()], -1)
        weights = {
            name: part.unflatten(-1, shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
        return vmap(lambda w, x: functional_call(self.main, w, (x,)))(weights, x)


def sines(tasks: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tasks described by amplitude and phase, of numbers about 1; x and y of 20 points each."""
    amplitude, phase = 0.1 + 4.9 * torch.rand(tasks, 1, 1), math.pi * torch.rand(tasks, 1, 1)
    x = 10 * torch.rand(tasks, 20, 1) - 5
    about = torch.cat([amplitude[..., 0] / 2.5 - 1, phase[..., 0] / (math.pi / 2) - 1], -1)
    return about, x, amplitude * torch.sin(x - phase)


def train(model: nn.Module, steps: int) -> float:
    """Meta-training on new tasks at each step; the error on tasks never seen."""
    rule = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(steps):
        about, x, y = sines(32)
        rule.zero_grad()
        (model(about, x) - y).square().mean().backward()
        rule.step()
    with torch.no_grad():
        about, x, y = sines(600)
        return float((model(about, x) - y).square().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    _, _, y = sines(600)
    print(f"always the mean        {float((y - y.mean()).square().mean()):.3f}")
    print(f"by hand                {train(Hypernetworks(2, 1, 1), steps):.3f}")
    for generator in ("dense", "attention"):
        model = hypernetize(MainNetwork(1, 1), generator, descriptor=2, start="hyperfan")
        size = sum(weight.numel() for weight in model.parameters())
        error = train(model, steps)
        print(f"hypernetize, {generator:<9} {error:.3f}  ({size:,} parameters)")


if __name__ == "__main__":
    main()
