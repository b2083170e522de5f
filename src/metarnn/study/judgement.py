"""What validation data can tell, and what is trained on them once they have told it."""

from __future__ import annotations

from dataclasses import dataclass

MARGIN = 1.05  # of the time that a further training is expected to take
LEAST = 0.01  # lower, as a share, is a validation loss that is preferred


@dataclass(frozen=True)
class Judgement:
    """What validation losses can tell.

    Attributes:
        least: the share by which another's must be lower to be preferred: with few validation
            examples small differences tell nothing
        floor: the difference by which it must be lower whatever its size: where all losses are next
            to nothing, a single example decides on their ratio
        on: what they are means over, in words: "48 examples"
    """

    least: float = LEAST
    floor: float = 0.0
    on: str = "the validation data"

    def margin(self, best: float) -> float:
        """By how much another's loss must be lower to be preferred to this one."""
        return max(self.least * abs(best), self.floor)


@dataclass(frozen=True)
class Refit:
    """How the chosen configuration is trained anew, on training and validation data.

    Attributes:
        ratio: how many examples that are, over those of the training data; 0 for no refit
        members: of the model, at most: classifiers from different starts, trained side by side
        least: members for which a race of small data leaves time
    """

    ratio: float = 0.0
    members: int = 1
    least: int = 1

    @property
    def cost(self) -> float:
        """The least time that it takes, in full trainings."""
        return MARGIN * self.ratio * self.least
