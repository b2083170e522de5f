import torch

from metarnn.decoding import Sampler


def draws(log_p, count=4000, **options):
    chance = torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = Sampler(**options)(log_p.expand(count, -1), chance)
    return torch.bincount(drawn, minlength=len(log_p)) / count


P = torch.tensor([0.5, 0.3, 0.15, 0.05])


def test_tokens_are_drawn_as_often_as_they_are_probable():
    torch.testing.assert_close(draws(P.log()), P, atol=0.03, rtol=0)


def test_a_temperature_sharpens():
    expected = (P.log() / 0.5).softmax(0)
    torch.testing.assert_close(draws(P.log(), temperature=0.5), expected, atol=0.03, rtol=0)


def test_top_k_and_top_p_leave_the_probable_tokens_in_proportion():
    two = torch.tensor([0.625, 0.375, 0, 0])
    torch.testing.assert_close(draws(P.log(), top_k=2), two, atol=0.03, rtol=0)
    torch.testing.assert_close(draws(P.log(), top_p=0.7), two, atol=0.03, rtol=0)
    assert draws(P.log(), 50, top_p=0.5)[0] == 1
    assert draws(P.log(), 50, top_p=1e-9)[0] == 1


def test_what_has_no_probability_is_not_drawn_at_the_ends_of_chance():
    log_p = torch.tensor([[0.0, 0.25, 0.75, 0.0]]).log().expand(2, -1)
    assert Sampler()(log_p, torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)).tolist() == [
        1,
        2,
    ]
