"""Random search with weight sharing (Li & Talwalkar 2019)."""

from __future__ import annotations

from metarnn.search import guards
from metarnn.search.space import Choices
from metarnn.search.strategies.shared import Shared


class RandomSharing(Shared):
    """Each update trains one unit at random; at the end many are scored with the shared weights."""

    def sampled(self) -> Choices:
        return self.space.draw(self.random)

    def measure(self) -> dict[str, float]:
        """The loss of the mixture with equal shares: how far the shared weights are."""
        loss = self.score(self.mixture().detach())
        self.first_loss = loss if self.first_loss is None else self.first_loss
        guards.check_loss(self.first_loss, loss)
        return {"structure_loss": loss}

    def finalists(self) -> list[Choices]:
        return self.scored(lambda: self.space.draw(self.random))
