import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metarnn.hyper import (
    Embedded,
    HashedNgrams,
    Join,
    Metadata,
    OneHot,
    SupportSet,
    Text,
    Vector,
    hypernetize,
)

ROWS = [
    {"rate": 1.0, "size": 10, "kind": "a"},
    {"rate": 3.0, "size": 30, "kind": "b"},
    {"rate": None, "size": 20, "kind": "c"},
]


def test_metadata_of_the_training_tasks_have_mean_zero_and_variance_one():
    found = Metadata.fit(ROWS)(ROWS)
    size = found[:, 2]
    assert size.mean().abs() < 1e-6
    assert float(size.std(correction=0)) == pytest.approx(1)


def test_a_missing_value_is_the_mean_and_is_marked():
    about = Metadata.fit(ROWS)
    first, last = about.fields["rate"]
    assert about([{"rate": None}])[0, first:last].tolist() == [0, 0]
    assert about([{}])[0].tolist() == [0] * about.width
    assert about([{"rate": 2.0}])[0, first:last].tolist() == [0, 1]


def test_each_task_of_a_learned_embedding_has_a_row_of_its_own():
    about = Embedded(5, 3)
    about(torch.tensor([1, 1, 4])).sum().backward()
    assert about.rows.grad is not None
    assert about.rows.grad[:, 0].tolist() == [0, 2, 0, 0, 1]


@given(st.permutations(range(6)), st.integers(0, 2))
def test_a_support_set_has_no_order(order, rounds):
    torch.manual_seed(0)
    about = SupportSet(2, 1, width=4, hidden=8, attention=rounds).double()
    x, y = torch.randn(3, 6, 2).double(), torch.randn(3, 6, 1).double()
    torch.testing.assert_close(about((x[:, order], y[:, order])), about((x, y)))


def test_a_support_set_of_classes_and_sequences():
    class Last(torch.nn.Module):
        def forward(self, x):
            return x[:, -1]

    about = SupportSet(3, 5, reads=Last())
    assert about((torch.randn(2, 4, 7, 3), torch.randint(5, (2, 4)))).shape == (2, 64)


def test_descriptors_combine_and_a_network_learns_from_all_of_them():
    about = Join(meta=Metadata.fit(ROWS), id=Embedded(3, 4), words=Text(HashedNgrams(8)))
    many = hypernetize(torch.nn.Linear(2, 1), descriptor=about, start="hyperfan")
    given = {"meta": ROWS, "id": [0, 1, 2], "words": ["slow waves", "fast waves", "noise"]}
    many(given, torch.randn(3, 4, 2)).sum().backward()
    embedded = about.parts["id"]
    assert isinstance(embedded, Embedded)
    assert embedded.rows.grad is not None
    assert embedded.rows.grad.abs().sum() > 0
    assert about.fields["meta.kind"] == (4, 7)
    assert about.fields["words"] == (11, 19)


def support(**options):
    return SupportSet(2, options.pop("outputs", 1), **options)


BAD = {
    "a vector too wide": (lambda: Vector(3)(torch.ones(2, 4)), "2, 4.*tasks, 3"),
    "a vector with NaN": (lambda: Vector(1)(torch.tensor([[float("nan")]])), "NaN"),
    "no tensor": (lambda: Vector(1)([1.0]), "tensor of numbers"),
    "a task too many": (lambda: OneHot(3)([0, 3]), "descriptor=3: expected the number .* 0 to 2"),
    "a task that is no number": (lambda: Embedded(3)(torch.ones(2)), "whole ones"),
    "an unknown category": (lambda: Metadata.fit(ROWS)([{"kind": "z"}]), "kind='z'.*'a', 'b', 'c'"),
    "an unknown name": (lambda: Metadata.fit(ROWS)([{"rat": 1.0}]), "Did you mean 'rate'"),
    "NaN among metadata": (lambda: Metadata.fit(ROWS)([{"rate": float("nan")}]), "None stands for"),
    "a text for a number": (lambda: Metadata.fit(ROWS)([{"rate": "fast"}]), "rate='fast'"),
    "no row": (lambda: Metadata.fit(ROWS)([]), "one a task"),
    "no row to fit": (lambda: Metadata.fit([]), "rows="),
    "an empty text": (lambda: Text(HashedNgrams())(["a", " "]), r"texts\[1\]"),
    "an empty support set": (
        lambda: support()((torch.ones(2, 0, 2), torch.ones(2, 0, 1))),
        "nothing is known",
    ),
    "a support set of unequal parts": (
        lambda: support()((torch.ones(2, 3, 2), torch.ones(2, 4, 1))),
        "as many tasks and examples",
    ),
    "a support set too wide": (
        lambda: support()((torch.ones(2, 3, 5), torch.ones(2, 3, 1))),
        "support x.*2 numbers",
    ),
    "a support set with NaN": (
        lambda: support()((torch.full((2, 3, 2), float("nan")), torch.ones(2, 3, 1))),
        "support x.*NaN",
    ),
    "a class too many": (
        lambda: support(outputs=2)((torch.ones(2, 3, 2), torch.full((2, 3), 2))),
        "classes 0 to 1",
    ),
    "a part that is not there": (lambda: Join(a=OneHot(2))({"b": [0]}), r"\['b'\]"),
    "parts of unequal size": (
        lambda: Join(a=OneHot(2), b=OneHot(2))({"a": [0], "b": [0, 1]}),
        "as many tasks",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_descriptor_is_refused_with_what_was_expected(name):
    call, words = BAD[name]
    with pytest.raises(ValueError, match=words):
        call()
