"""Exact scores: every token, states carried from the beginning of a document to its end."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from metarnn.layers.nested import select
from metarnn.tasks import watch
from metarnn.tasks.language.corpus import Split
from metarnn.tasks.language.model import detached, restart
from metarnn.tasks.language.streams import long_documents, stream_losses
from metarnn.tasks.language.vocabulary import BOS, PAD, Vocabulary

logger = logging.getLogger(__name__)

SEGMENT = 256
BITS = {"character": "bpc", "byte": "bits_per_byte"}  # where bits of a token say something


@dataclass
class Score:
    """The loss of a model on a split.

    nats       of each document, in total
    tokens     of each document
    worst      of each document, the mean loss of its worst segment; -inf if it is too short
    segments   mean losses of all segments
    """

    nats: np.ndarray
    tokens: np.ndarray
    worst: np.ndarray
    segments: list[float] = field(default_factory=list)

    @property
    def nll(self) -> float:
        return float(self.nats.sum() / self.tokens.sum())

    def ran_off(self, vocabulary_size: int) -> list[int]:
        """Documents with a segment that is worse than guessing, and twice the usual loss."""
        known = [mean for mean in self.segments if not math.isnan(mean)]
        usual = float(np.median(known)) if known else self.nll
        limit = max(math.log(vocabulary_size), 2 * usual)
        return [int(k) for k in np.flatnonzero(~(self.worst <= limit))]  # NaN is beyond, too


@dataclass
class Lane:
    """A document on its way through one column of the batch."""

    document: int
    start: int
    length: int
    place: int = 0

    @property
    def left(self) -> int:
        return self.length - self.place


def score(model: nn.Module, split: Split, batch: int = 64) -> Score:
    """Documents side by side; how many changes the speed and, to rounding, nothing else."""
    found, state = _empty(split), None
    was = model.training
    model.eval()
    try:
        with torch.no_grad():
            apart = _read_long(model, split, batch, found)
            segments = _segments(split, batch, _device(model), without=apart)
            for lanes, fresh, columns, inputs, targets in segments:
                if columns is not None:
                    state = select(state, columns)
                if state is not None and fresh.any():
                    state = restart(state, fresh.to(inputs.device))
                output = model(inputs, targets, state)
                state = output.state
                _note(found, lanes, output.nll)
    finally:
        model.train(was)
    return found


def _read_long(model: nn.Module, split: Split, batch: int, found: Score) -> set[int]:
    """Score the long documents that would keep all others waiting; which these are."""
    bounds, read = split.tokens.bounds, set[int]()
    for k in long_documents(bounds, batch):
        start, length = int(bounds[k]), int(bounds[k + 1] - bounds[k])
        losses = stream_losses(model, split.tokens, start, length, batch)
        if losses is None:
            break
        for place in range(0, length, SEGMENT):
            part = torch.from_numpy(losses[place : place + SEGMENT]).unsqueeze(1)
            _note(found, [Lane(k, start, length, place)], part)
        read.add(k)
    return read


def dynamic_score(
    model: nn.Module, split: Split, rate: float = 5e-4, decay: float = 1e-3, length: int = 20
) -> Score:
    """Dynamic evaluation (Krause et al. 2018): the weights go on learning from what was read.

    θ ← θ - rate·g/RMS(g) + decay·(θ_0 - θ) after each stretch of `length` tokens. One document
    after the other, so that the order is the text's own. The model itself stays as it is.
    """
    found, state = _empty(split), None
    model = copy.deepcopy(model).eval()
    weights = [p for p in model.parameters() if p.requires_grad]
    first = [p.detach().clone() for p in weights]
    squares = [torch.zeros_like(p) for p in weights]
    step = 0
    for lanes, fresh, _, inputs, targets in _segments(split, 1, _device(model), length, False):
        state = None if fresh.any() else state
        with torch.enable_grad():
            output = model(inputs, targets, state)
            gradients = torch.autograd.grad(output.nll.mean(), weights, allow_unused=True)
        state = detached(output.state)
        _note(found, lanes, output.nll.detach())
        step += 1
        with torch.no_grad():
            for p, p0, square, g in zip(weights, first, squares, gradients, strict=True):
                if g is None:
                    continue
                square.lerp_(g * g, 1e-3)
                root = (square / (1 - 0.999**step)).mean().sqrt() + 1e-8
                p.add_(g / root, alpha=-rate).lerp_(p0, decay)
    return found


def _empty(split: Split) -> Score:
    count = split.tokens.documents
    return Score(np.zeros(count), np.diff(split.tokens.bounds), np.full(count, -np.inf))


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _segments(
    split: Split,
    batch: int,
    device: torch.device,
    length: int = SEGMENT,
    longest_first: bool = True,
    without: Collection[int] = (),
) -> Iterator[tuple[list[Lane], Tensor, Tensor | None, Tensor, Tensor]]:
    """Stretches of the documents in up to `batch` lanes, until all are read.

    A lane whose document has ended takes the next one; with none left it is closed. Yields the
    lanes, which of them begin, the columns of the last stretch that are still there (None for
    all), inputs and targets [T, lanes]. The longest documents go first: lanes end together.
    """
    bounds = split.tokens.bounds
    order = (
        np.argsort(-np.diff(bounds), kind="stable") if longest_first else np.arange(len(bounds) - 1)
    )
    waiting = iter([k for k in order if int(k) not in without])

    def take() -> Lane | None:
        k = next(waiting, None)
        return None if k is None else Lane(int(k), int(bounds[k]), int(bounds[k + 1] - bounds[k]))

    lanes = [lane for lane in (take() for _ in range(batch)) if lane is not None]
    columns: Tensor | None = None
    done = 0
    while lanes:
        steps = min(length, max(lane.left for lane in lanes))
        inputs = np.full((steps, len(lanes)), PAD, np.int64)
        targets = np.full((steps, len(lanes)), PAD, np.int64)
        for column, lane in enumerate(lanes):
            count = min(steps, lane.left)
            stretch = split.tokens.read(lane.start + lane.place - 1, count + 1)
            stretch[0] = stretch[0] if lane.place else BOS
            inputs[:count, column], targets[:count, column] = stretch[:-1], stretch[1:]
        fresh = torch.tensor([lane.place == 0 for lane in lanes])
        tensors = (torch.from_numpy(inputs).to(device), torch.from_numpy(targets).to(device))
        yield lanes, fresh, columns, *tensors
        for lane in lanes:
            done += min(steps, lane.left)
            lane.place += min(steps, lane.left)
        watch.report(done, int(bounds[-1] - bounds[0]))
        going = [lane if lane.left else take() for lane in lanes]
        kept = [column for column, lane in enumerate(going) if lane is not None]
        columns = None if len(kept) == len(lanes) else torch.tensor(kept, device=device)
        lanes = [lane for lane in going if lane is not None]


def _note(found: Score, lanes: list[Lane], nll: Tensor) -> None:
    losses = nll.double().cpu().numpy()
    for column, lane in enumerate(lanes):
        count = min(len(losses), lane.left)
        nats = losses[:count, column].sum()
        found.nats[lane.document] += nats
        if count < SEGMENT // 4 and not math.isnan(nats):
            continue  # of so few tokens a mean says little
        found.segments.append(nats / count)
        # np.maximum keeps a NaN once it is there.
        found.worst[lane.document] = np.maximum(found.worst[lane.document], nats / count)


def summary(
    found: Score, split: Split, vocabulary: Vocabulary, prefix: str = "", *, warn: bool = True
) -> dict[str, float]:
    """Return a score as figures by name; log the documents on which the model diverged."""
    nll = found.nll
    off = found.ran_off(len(vocabulary))
    for k in off[:5] if warn else ():
        logger.warning(
            "the model diverged on long input: %.1f nats a token in a part of %s, %.2f on all "
            "texts. Its state drifts over more tokens than it was trained on: train with a "
            "larger --reset, a smaller --lr, or --zoneout",
            found.worst[k],
            split.names[k],
            nll,
        )
    figures = {"nll": nll, "perplexity": math.exp(min(nll, 700.0)) if nll == nll else nll}
    if (unit := vocabulary.unit) in BITS:
        figures[BITS[unit]] = nll / math.log(2)
    figures = {prefix + name: value for name, value in figures.items()}
    counts = {"tokens": found.tokens.sum(), "unknown": split.unknown, "ran_off": len(off)}
    return figures | {name: float(value) for name, value in counts.items()}
