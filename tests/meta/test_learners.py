"""Learners: each learns something, none looks at what it must not see."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from metarnn.hyper import Join, SupportSet, hypernetize
from metarnn.meta import (
    Adapting,
    Episode,
    Generating,
    Implicit,
    Joint,
    Matching,
    Prototypical,
    Reading,
    Reptile,
    accuracy,
    fine_tuning,
    score,
)
from metarnn.tasks.fewshot import Perceptron, Sinusoids, waves
from tests.helpers.cases import randn
from tests.helpers.compare import assert_close

WAYS = 3


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def hyper(**options):
    return hypernetize(Perceptron(1, 8, 1), descriptor=SupportSet(1, 1), **options)


REGRESSION = {
    "maml": lambda: Adapting(Perceptron(1, 8, 1)),
    "fomaml": lambda: Adapting(Perceptron(1, 8, 1), order=1),
    "anil": lambda: Adapting(Perceptron(1, 8, 1), names="head.*"),
    "metasgd": lambda: Adapting(Perceptron(1, 8, 1), learn_rates=True),
    "adam inside": lambda: Adapting(Perceptron(1, 8, 1), inner="adam", steps=3, checkpoint=2),
    "reptile": lambda: Reptile(Perceptron(1, 8, 1), steps=3),
    "imaml": lambda: Implicit(Perceptron(1, 8, 1), steps=4),
    "joint": lambda: Joint(Perceptron(1, 8, 1)),
    "hyper": lambda: Generating(hyper()),
    "hyper and maml": lambda: Generating(hyper(), steps=2, regularise=0.1, reconstruct=0.1),
    "reading": lambda: Reading(1, 1, 16),
}


class Flat(nn.Module):
    """An embedding to compare in."""

    def __init__(self, width=32, out=16):
        super().__init__()
        self.map = nn.Linear(width, out)

    def forward(self, x):
        return self.map(x.flatten(1))


class Scores(Flat):
    """Scores of classes from sequences."""

    def __init__(self):
        super().__init__(out=WAYS)


CLASSES = {
    "maml": lambda: Adapting(Scores(), "cross_entropy", lr=0.1),
    "prototypical": lambda: Prototypical(Flat(), WAYS),
    "matching": lambda: Matching(Flat(), WAYS),
    "reading": lambda: Reading(16, WAYS, 32, "cross_entropy", embedding=Flat()),
}


def sines(tasks=4, shots=5):
    return Sinusoids().draw("train", tasks, shots, 6, random())


def classes(tasks=4, shots=2, split="train", seed=0):
    return waves(WAYS).draw(split, tasks, shots, 4, random(seed))


def each():
    for name, make in REGRESSION.items():
        yield pytest.param(make, sines(), id=name)
    for name, make in CLASSES.items():
        yield pytest.param(make, classes(), id=f"classes, {name}")


@pytest.mark.parametrize(("make", "episode"), list(each()))
def test_training_reaches_every_parameter(make, episode):
    torch.manual_seed(0)
    learner = make()
    rule = torch.optim.Adam(learner.parameters(), 1e-3)
    for _ in range(3):  # what starts at 0 lets gradients through after an update
        rule.zero_grad()
        loss = learner(episode)
        assert loss.shape == (4,)
        loss.mean().backward()
        rule.step()
    dead = [n for n, w in learner.named_parameters() if w.grad is None or not w.grad.any()]
    assert dead == []


@pytest.mark.parametrize(("make", "episode"), list(each()))
def test_predictions_depend_neither_on_the_answers_nor_on_other_queries_or_tasks(make, episode):
    torch.manual_seed(0)
    learner = make().double()
    double = Episode(
        *(t.double() if t.is_floating_point() else t for t in (*episode.support, *episode.query))
    )
    found = learner.predict(double)
    blind = replace(double, query_y=torch.zeros_like(double.query_y))
    assert_close(learner.predict(blind), found)
    fewer = Episode(*(t[1:2] for t in double.support), *(t[1:2, :3] for t in double.query))
    assert_close(learner.predict(fewer)[0], found[1, :3], 1e-9)
    assert not learner.transductive


def test_batch_norm_over_the_queries_is_called_transductive():
    net = nn.Sequential(
        nn.Linear(1, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1)
    )
    found = score(Adapting(net), [sines()])
    assert found.transductive
    assert "(95% over 4 tasks, transductive)" in str(found)


def test_prototypes_are_the_means_of_classes():
    learner = Prototypical(nn.Identity(), 2)
    x = torch.tensor([[[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]]])
    episode = Episode(
        x, torch.tensor([[0, 0, 1]]), torch.tensor([[[1.0, 1.0]]]), torch.tensor([[0]])
    )
    assert learner.predict(episode).tolist() == [[[-1, -10]]]


def test_matching_is_a_vote_of_the_support():
    learner = Matching(nn.Identity(), 2)
    episode = Episode(
        torch.eye(2).unsqueeze(0), torch.tensor([[0, 1]]), torch.eye(2)[None, :1], torch.zeros(1, 1)
    )
    expected = torch.tensor([[[10.0, 0.0]]]).log_softmax(-1)
    assert_close(learner.predict(episode), expected, 1e-6)


def test_a_class_without_an_example_is_refused():
    episode = classes()
    with pytest.raises(ValueError, match="all 3 classes"):
        Prototypical(Flat(), WAYS).predict(replace(episode, y=torch.zeros_like(episode.y)))


def test_the_gradient_of_reptile_is_the_mean_way_that_tasks_went():
    learner = Reptile(Perceptron(1, 8, 1), steps=5, lr=0.05)
    episode = sines()
    learner(episode).mean().backward()
    whole = Episode(
        torch.cat([episode.x, episode.query_x], 1),
        torch.cat([episode.y, episode.query_y], 1),
        *episode.query,
    )
    found = learner.adapted(whole, 5)
    for name, weight in learner.network.named_parameters():
        assert_close(weight.grad, (weight - found[name]).mean(0), 1e-6)


def test_a_join_is_given_the_support_beside_what_is_known():
    about = Join(known=Sinusoids().metadata(), support=SupportSet(1, 1))
    learner = Generating(hypernetize(Perceptron(1, 8, 1), descriptor=about))
    episode = sines()
    assert learner(replace(episode, about={"known": episode.about})).shape == (4,)


def test_without_what_is_known_a_generator_says_what_is_missing():
    learner = Generating(hypernetize(Perceptron(1, 8, 1), descriptor=Sinusoids().metadata()))
    with pytest.raises(ValueError, match="what Metadata describes"):
        learner(replace(sines(), about=None))


def test_a_score_is_the_mean_over_tasks_with_its_interval():
    class Known(Joint):
        def predict(self, episode, steps=None):
            return episode.query_y + torch.arange(4.0).view(4, 1, 1).expand_as(episode.query_y)

    found = score(Known(Perceptron(1, 8, 1)), [sines()])  # errors 0, 1, 4 and 9
    spread = torch.tensor([0.0, 1, 4, 9]).std()
    assert (found.mean, found.tasks, found.transductive) == (3.5, 4, False)
    assert found.interval == pytest.approx(1.96 * float(spread) / 2)


def test_accuracy_counts_the_largest():
    assert accuracy(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([1, 1])) == 0.5


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 3, 1), (2, 4, 1), (2, 5, 1), (2, 5, 1)],
        [(2, 3, 1), (2, 3, 1), (3, 5, 1), (3, 5, 1)],
        [(2, 0, 1), (2, 0, 1), (2, 5, 1), (2, 5, 1)],
        [(0, 3, 1), (0, 3, 1), (0, 5, 1), (0, 5, 1)],
        [(2,), (2,), (2,), (2,)],
    ],
)
def test_an_episode_whose_parts_do_not_fit_is_refused(shapes):
    with pytest.raises(ValueError, match="episode="):
        Episode(*(randn(*shape) for shape in shapes))


@pytest.mark.medium
@pytest.mark.parametrize("name", ["metasgd", "hyper"])
def test_a_learner_learns_sinusoids(name):
    torch.manual_seed(0)
    learner, family, source = REGRESSION[name](), Sinusoids(), random(1)
    rule = torch.optim.Adam(learner.parameters(), 3e-3)
    test = [family.draw("test", 100, 10, 20, random(2))]
    before = score(learner, test).mean
    for _ in range(200):
        rule.zero_grad()
        learner(family.draw("train", 16, 10, 10, source)).mean().backward()
        rule.step()
    assert score(learner, test).mean < 0.75 * before


@pytest.mark.medium
@pytest.mark.parametrize("name", CLASSES)
def test_a_learner_learns_to_tell_classes_it_has_never_seen(name):
    torch.manual_seed(0)
    learner, family, source = CLASSES[name](), waves(WAYS), random(1)
    rule = torch.optim.Adam(learner.parameters(), 3e-3)
    for _ in range(150):
        rule.zero_grad()
        learner(family.draw("train", 8, 2, 4, source)).mean().backward()
        rule.step()
    test = [family.draw("test", 50, 2, 4, random(2))]
    assert score(learner, test, metric=accuracy).mean > 0.55  # by chance 1/3


def test_fine_tuning_is_what_scores_best_and_leaves_the_learner_as_it_was():
    learner = Joint(Perceptron(1, 8, 1), lr=0.5)
    episodes = [Sinusoids().draw("valid", 20, 5, 10, random(3))]
    rates, steps = (0.0, 0.01, 0.1), (1, 4)
    found = fine_tuning(learner, episodes, rates, steps)
    assert learner.lr == 0.5
    costs = {}
    for learner.lr in rates:
        costs |= {(learner.lr, n): score(learner, episodes, n).mean for n in steps}
    assert costs[found] == min(costs.values()) < costs[0.0, 1]


def test_one_network_for_all_tasks_learns_from_support_and_query_alike():
    learner = Joint(Perceptron(1, 8, 1))
    episode = Sinusoids().draw("train", 3, 5, 10, random(3))
    x = torch.cat([episode.x, episode.query_x], 1)
    y = torch.cat([episode.y, episode.query_y], 1)
    expected = (learner.network(x) - y).square().mean((1, 2))
    assert_close(learner(episode), expected, 1e-6)
