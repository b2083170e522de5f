"""A language model whose recurrent unit is written anew at every step.

c_t = Encoder(x_1 … x_t),  θ_t = g_φ(c_t, t),  h_t = f_θt(x_t, h_{t-1}),
p(x_{t+1} | x_1 … x_t) = softmax(W h_t + b),  J = L + λ Ω(φ)
"""

import sys

import torch
from torch import nn

import metarnn
from metarnn import Cell, Map, hyper
from metarnn.tasks import language
from metarnn.training import Settings, Trainer


class LearnedRecurrentUnit(Cell):
    """h_t = h_{t-1} + σ(z) ⊙ (tanh(n) - h_{t-1}), by weights that it is handed."""

    @property
    def maps(self):
        I, H = self.input_size, self.hidden_size
        return {"ih": Map(I, (H, H)), "hh": Map(H, (H, H), bias=False, recurrent=True)}

    def drive(self, theta, x):
        return theta.ih(x)

    def step(self, theta, drive, state):
        (h,) = state
        z, n = (drive + theta.hh(h)).chunk(2, -1)
        return (h + torch.sigmoid(z) * (torch.tanh(n) - h),)


class HyperNetwork(hyper.Generator):
    """From a context to the numbers that a form of weights asks for, here through two layers."""

    def __init__(self, context, numbers):
        super().__init__(context, numbers)
        self.trunk = nn.Sequential(nn.Linear(context, 64), nn.ReLU())
        self.write = hyper.Dense(64, numbers)

    def forward(self, context):
        return self.write(self.trunk(context))


def main(steps: int = 300) -> float:
    corpus, unit = language.load("pydoc"), LearnedRecurrentUnit(64, 128)
    layer = metarnn.MetaRecurrent(unit, encoder="gru", generator=HyperNetwork, times=4)
    model = language.LanguageModel(len(corpus.vocabulary), layer, embedding=64)
    task = language.LanguageTask(corpus, 16, 64, omega=hyper.Omega(phi=1e-3, smooth=1e-3))
    Trainer(task, model, Settings(batch=16, steps=steps, lr=3e-3)).fit()
    bits = task.evaluate(model, "test")["bpc"]
    print(f"{bits:.3f} bits per character after {steps} updates")
    return bits


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
