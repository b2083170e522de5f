"""The other two ways to learn to learn: by a metric, and by a model that reads the examples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metarnn.cells import check
from metarnn.layers import LSTM
from metarnn.meta.episode import Episode
from metarnn.meta.learners import Learner


class Prototypical(Learner):
    """A query belongs to the class whose mean in the space of embeddings is nearest.

    p(class) = softmax(-‖e(x) - mean of e over the class's support‖²)  (Snell et al. 2017)

    embedding  a module from x, [M, …], to [M, n]: a recurrent network for sequences
    ways       how many classes an episode has
    """

    def __init__(self, embedding: nn.Module, ways: int) -> None:
        super().__init__("cross_entropy")
        self.embedding, self.ways = embedding, check.size("ways", ways, least=2)

    def predict(self, episode: Episode, steps: int | None = None) -> Tensor:
        support, query, belongs = self._embedded(episode)
        members = belongs.sum(1).unsqueeze(-1)  # [N, ways, 1]
        centres = belongs.mT @ support / members.clamp(min=1)
        apart = torch.cdist(query, centres, compute_mode="donot_use_mm_for_euclid_dist")
        return -apart.square()

    def _embedded(self, episode: Episode) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings of support and query, and who belongs to which class, [N, K, ways]."""
        x = torch.cat([episode.x, episode.query_x], 1)
        found = self.embedding(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        belongs = F.one_hot(episode.y, self.ways).to(found.dtype)
        if bool((belongs.sum(1) == 0).any()):
            check.refuse("support", "a class without an example", f"all {self.ways} classes")
        return found[:, : episode.x.shape[1]], found[:, episode.x.shape[1] :], belongs


class Matching(Prototypical):
    """A query's class is voted on by the support, each with the cosine of the angle between them.

    p(class) = Σ_k softmax_k(scale · cos(e(x), e(x_k))) [y_k = class]  (Vinyals et al. 2016)
    """

    def __init__(self, embedding: nn.Module, ways: int) -> None:
        super().__init__(embedding, ways)
        self.scale = nn.Parameter(torch.tensor(10.0))

    def predict(self, episode: Episode, steps: int | None = None) -> Tensor:
        support, query, belongs = self._embedded(episode)
        cosine = F.normalize(query, dim=-1) @ F.normalize(support, dim=-1).mT
        votes = (self.scale * cosine).softmax(-1) @ belongs
        return votes.clamp(min=1e-12).log()


class Reading(Learner):
    """A recurrent network reads the support as a sequence of pairs; its state is what it learned.

    s_k = LSTM([e(x_k); y_k; 1], s_{k-1});  prediction = head(LSTM([e(x); 0; 0], s_K))

    Every query goes on from s_K by itself, so that no query tells anything about another.

    inputs     numbers of an x, or of what `embedding` makes of it
    outputs    numbers of a prediction; classes, where y are whole numbers
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: int = 64,
        criterion: str | Callable[[Tensor, Tensor], Tensor] = "mse",
        *,
        embedding: nn.Module | None = None,
    ) -> None:
        super().__init__(criterion)
        self.inputs, self.outputs = check.size("inputs", inputs), check.size("outputs", outputs)
        self.embedding = embedding
        self.reader = LSTM(inputs + outputs + 1, check.size("hidden", hidden))
        self.head = nn.Sequential(
            nn.Linear(hidden + inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
        )

    def predict(self, episode: Episode, steps: int | None = None) -> Tensor:
        x, query = self._flat(episode.x), self._flat(episode.query_x)
        y = episode.y
        y = y.flatten(2) if y.is_floating_point() else F.one_hot(y, self.outputs).to(x.dtype)
        pairs = torch.cat([x, y, torch.ones_like(x[..., :1])], -1)
        _, state = self.reader(pairs.transpose(0, 1))
        count = query.shape[1]
        asked = torch.cat([query, query.new_zeros(*query.shape[:2], self.outputs + 1)], -1)
        state = tuple(part.repeat_interleave(count, 1) for part in state)
        read, _ = self.reader(asked.flatten(0, 1).unsqueeze(0), state)
        found = self.head(torch.cat([read[0], query.flatten(0, 1)], -1))
        found = found.unflatten(0, query.shape[:2])
        return found.view(episode.query_y.shape) if episode.y.is_floating_point() else found

    def _flat(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            return self.embedding(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        return x.flatten(2)
