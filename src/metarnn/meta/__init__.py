"""Learning to learn: adaptation, bi-level objectives, learners for episodes."""

from metarnn.meta.adapt import adapt, objective
from metarnn.meta.baselines import Matching, Prototypical, Reading
from metarnn.meta.careful import careful
from metarnn.meta.episode import Episode
from metarnn.meta.generating import Generating
from metarnn.meta.implicit import implicit
from metarnn.meta.learners import Adapting, Implicit, Joint, Learner, Reptile
from metarnn.meta.optimisers import SGD, Adam, Optimiser, optimiser
from metarnn.meta.score import Score, accuracy, fine_tuning, score

__all__ = [
    "SGD",
    "Adam",
    "Adapting",
    "Episode",
    "Generating",
    "Implicit",
    "Joint",
    "Learner",
    "Matching",
    "Optimiser",
    "Prototypical",
    "Reading",
    "Reptile",
    "Score",
    "accuracy",
    "adapt",
    "careful",
    "fine_tuning",
    "implicit",
    "objective",
    "optimiser",
    "score",
]
