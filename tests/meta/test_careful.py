import pytest
import torch

from metarnn.meta import SGD, Adam, adapt, careful
from tests.helpers.cases import randn
from tests.helpers.compare import assert_close
from tests.meta.test_adapt import TASKS, episodes, loss_of, network


@pytest.mark.parametrize("rule", [SGD(0.05), SGD(0.02, 0.9), Adam(0.01)])
@pytest.mark.parametrize("names", ["*", "2.*"])
def test_where_nothing_diverges_it_is_plain_adaptation(rule, names):
    net = network()
    params, loss, (support, _) = dict(net.named_parameters()), loss_of(net), episodes()
    found = careful(params, loss, support, 4, rule, names=names)
    plain = adapt(params, loss, support, 4, rule, 0, names=names, tasks=True)
    assert_close(list(found.values()), list(plain.values()))


def test_each_task_may_begin_with_weights_of_its_own():
    net = network()
    loss, (support, _) = loss_of(net), episodes()
    own = {n: randn(TASKS, *w.shape, seed=7) for n, w in net.named_parameters()}
    found = careful(own, loss, support, 3, SGD(0.02), own=True)
    plain = adapt(own, loss, support, 3, SGD(0.02), 0, tasks=True, own=True)
    assert_close(list(found.values()), list(plain.values()))


def test_a_task_that_would_diverge_ends_better_than_it_began_and_others_are_left_alone():
    def loss(w, curvature):
        return 0.5 * curvature * w["w"].square().sum()

    start, curvature = {"w": torch.ones(3)}, torch.tensor([1.0, 300.0])
    plain = adapt(start, loss, curvature, 10, SGD(0.1), 0, tasks=True)["w"]
    found = careful(start, loss, curvature, 10, SGD(0.1))["w"]
    assert plain[1].abs().max() > 1e10
    assert found[1].abs().max() < 0.5
    assert torch.equal(found[0], plain[0])
