"""How to train: what every task has in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from metarnn.cells import check
from metarnn.gradients import FORWARD, rule
from metarnn.training.schedule import SHAPES

OPTIMIZERS = ("adamw", "sgd")


@dataclass(frozen=True)
class Settings:
    """How to train. Each field is a flag of `metarnn train` and a key of `config.toml`.

    A limit of 0 is none; with several, the first reached ends the training.
    """

    steps: int = 0
    """Stop after this many updates of the weights; 0 for no limit."""
    epochs: float = 0.0
    """Stop after this many passes over the training data; 0 for no limit."""
    minutes: float = 0.0
    """Stop after this many minutes of training; 0 for no limit. Where it is the only limit,
    schedules follow the clock."""

    batch: int = 32
    """Sequences in an update, over all processes together."""
    accumulate: int = 1
    """Compute each update in this many parts: less memory, more time, the same result."""
    seed: int = 0
    """Where all randomness begins: starting weights, order of the data, dropout."""
    device: str = "auto"
    """Where to compute: auto (a GPU if there is one), cpu, cuda, cuda:1."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number type of matrix products: bfloat16 is mixed precision, weights stay float32."""

    deterministic: bool = False
    """Only computations that give the same bits each time, also on a GPU, where that costs speed;
    what has none there is refused."""
    spike: float = 0.0
    """Go back to the last checkpoint, and halve the learning rate, when the loss is this many times
    the usual one (3), or no number; 0 for never."""

    optimizer: Literal["adamw", "sgd"] = "adamw"
    """What turns gradients into updates."""
    lr: float = 1e-3
    """Learning rate, at its highest."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's memory of gradients and of their squares."""
    momentum: float = 0.0
    """SGD's memory of gradients."""
    weight_decay: float = 0.0
    """Pull towards zero, on matrices only: biases and gains are left alone."""
    clip: float = 1.0
    """Gradients above this are shortened to it; 0 for never."""
    clip_by: Literal["norm", "value", "adaptive"] = "norm"
    """What --clip limits: the norm of all gradients; each number of them; or the norm of each
    unit's gradient as a share of its weights' (try 0.01)."""
    gradient: Literal[
        "bptt",
        "tbptt",
        "random-tbptt",
        "sampled-tbptt",
        "artbp",
        "rtrl",
        "snap-1",
        "snap-2",
        "snap-3",
        "rflo",
        "kf-rtrl",
        "uoro",
    ] = "bptt"
    """How the loss reaches the weights: backwards through a batch, cut or not, or forwards in time,
    past its beginning (docs/gradients.md)."""
    k1: int = 8
    """Steps of a stretch, within which truncated gradients are not cut."""
    k2: int = 32
    """How many steps back truncated gradients go, on average where that is random."""
    checkpoint_every: int = 0
    """Keep states of every so many steps only and compute the rest again: less memory for bptt; -1
    takes the square root of the length, 0 keeps all."""
    schedule: Literal["constant", "cosine", "linear", "trapezoid", "inverse-sqrt"] = "constant"
    """How the learning rate falls after the warm-up; trapezoid: linearly, over the last three
    quarters."""
    warmup: int = 0
    """Updates over which the learning rate rises from 0."""
    floor: float = 0.0
    """Where cosine, linear and trapezoid end, as a share of the learning rate."""

    ema: float = 0.0
    """Evaluate an exponential average of the weights with this decay (0.999); 0 for none."""
    nonmono: int = 0
    """Evaluate the mean of all weights since validation last stalled: that is, since a score was no
    better than the best before the last so many validations (NT-ASGD; AWD-LSTM has 5); 0: never."""

    validate_every: int = 500
    """Updates from one validation to the next; 0 for only at the end."""
    patience: int = 0
    """Stop after this many validations without a better score; 0 for never."""
    save_every: int = 0
    """Updates from one checkpoint to the next; 0 for one at each validation."""
    log_every: int = 50
    """Updates from one line of metrics.jsonl to the next."""
    tensorboard: bool = False
    """Also write event files for TensorBoard into the run folder."""

    def __post_init__(self) -> None:
        for name in ("batch", "accumulate", "log_every"):
            check.size(name, getattr(self, name))
        for name in ("steps", "seed", "warmup", "nonmono", "validate_every", "patience"):
            check.size(name, getattr(self, name), least=0)
        check.size("save_every", self.save_every, least=0)
        for name in ("epochs", "minutes", "lr", "momentum", "weight_decay", "clip", "spike"):
            if check.number(name, getattr(self, name)) < 0:
                check.refuse(name, getattr(self, name), "a number not below 0")
        for name in ("ema", "floor", "momentum"):
            if not 0 <= check.number(name, getattr(self, name)) < 1:
                check.refuse(name, getattr(self, name), "a number from 0 to below 1")
        if 0 < self.spike <= 1:
            check.refuse("spike", self.spike, "0, or a number above 1: times the usual loss")
        check.one_of("optimizer", self.optimizer, OPTIMIZERS)
        check.one_of("clip_by", self.clip_by, ("norm", "value", "adaptive"))
        rule(
            self.gradient, k1=self.k1, k2=self.k2, checkpoint_every=self.checkpoint_every
        )  # refuses what makes no sense
        if self.gradient in FORWARD and self.precision != "float32":
            check.refuse("precision", self.precision, f"float32 with gradient={self.gradient!r}")
        check.one_of("schedule", self.schedule, SHAPES)
        check.one_of("precision", self.precision, ("float32", "bfloat16"))
        for beta in self.betas:
            if not 0 <= check.number("betas", beta) < 1:
                check.refuse("betas", self.betas, "two numbers from 0 to below 1")
        if self.ema and self.nonmono:
            check.refuse("ema", self.ema, f"0 beside nonmono={self.nonmono}", "Use one average.")
        if self.batch % self.accumulate:
            parts = f"a divisor of batch={self.batch}"
            check.refuse("accumulate", self.accumulate, parts, "The parts must be equal.")
