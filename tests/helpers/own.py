"""Cells as a user would write them: at most 15 lines each, by the contract alone."""

import torch

from metarnn import Cell, LinearCell, Map


class Leaky(Cell):
    leak: float = 0.5

    @property
    def maps(self):
        widths = {"ih": self.input_size, "hh": self.hidden_size}
        return {k: Map(n, self.hidden_size, recurrent=k == "hh") for k, n in widths.items()}

    def drive(self, theta, x):
        return theta.ih(x)

    def step(self, theta, drive, state):
        (h,) = state
        return (self.leak * h + (1 - self.leak) * torch.tanh(drive + theta.hh(h)),)


class Average(LinearCell):
    @property
    def maps(self):
        return {"in": Map(self.input_size, (self.hidden_size,) * 2)}

    def drive(self, theta, x):
        a, b = getattr(theta, "in")(x).chunk(2, -1)
        return {"a": torch.sigmoid(a), "b": b}

    def affine(self, theta, drive):
        return ((drive["a"], drive["b"]),)
