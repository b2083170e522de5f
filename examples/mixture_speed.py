"""How fast a search's mixture trains: generated code beside a loop in plain torch.

python examples/mixture_speed.py [cpu|cuda]
"""

import sys
import time

import torch

import metarnn
from metarnn.search import DartsSpace, UnitSpace

SIZES = {"cpu": (64, 16, 64), "cuda": (256, 64, 128)}  # width, batch, steps


def main(device: str = "cpu") -> None:
    width, batch, steps = SIZES[device]
    x = torch.randn(steps, batch, width, device=device)
    for space in (UnitSpace(), DartsSpace()):
        speeds = {}
        for engine in ("auto", "eager"):
            layer = metarnn.Recurrent(space.mixture(width, width), engine=engine).to(device)
            with torch.no_grad():
                mix = space.probabilities(torch.zeros(sum(space.sizes)))
                layer.weights(0)["mix"].copy_(mix)
            first, again = seconds(layer, x, 1), seconds(layer, x, 10 if engine == "auto" else 2)
            speeds[engine] = steps * batch / again
            print(
                f"{type(space).__name__:<10} {metarnn.explain(layer, x).engine:<7}"
                f"{speeds[engine]:>10,.0f} tokens/s, first call {first:.1f} s"
            )
        print(f"{type(space).__name__:<10} {speeds['auto'] / speeds['eager']:.1f} times as fast")


def seconds(layer: metarnn.Recurrent, x: torch.Tensor, repeats: int) -> float:
    """Of a forward and backward pass."""
    start = time.perf_counter()
    for _ in range(repeats):
        layer(x)[0].square().mean().backward()
    if x.is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


if __name__ == "__main__":
    main(*sys.argv[1:])
