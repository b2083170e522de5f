"""Families of tasks: equations against closed forms, splits apart, files read as they are meant."""

import math

import pytest
import torch

from metarnn.tasks.fewshot import Characters, Classes, Dynamics, Sinusoids, characters, from_folder
from metarnn.tasks.fewshot.dynamics import BINS, SYSTEMS, parameters
from metarnn.tasks.fewshot.family import table
from metarnn.tasks.fewshot.images import read, rows, strokes


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def small(system="vanderpol", **options):
    return Dynamics(system, **{"pools": (20, 10, 10), "length": 60, **options})


def test_sinusoids_are_drawn_from_the_published_ranges():
    episode = Sinusoids().draw("train", 500, 10, 10, random())
    amplitude, phase = episode.about["amplitude"], episode.about["phase"]
    assert 0.1 <= float(amplitude.min()) < 0.2
    assert 4.8 < float(amplitude.max()) <= 5
    assert 0 <= float(phase.min()) < 0.1
    assert 3.0 < float(phase.max()) <= math.pi
    assert float(episode.x.abs().max()) <= 5
    expected = amplitude[:, None] * torch.sin(episode.query_x[..., 0] - phase[:, None])
    torch.testing.assert_close(episode.query_y[..., 0], expected)


def test_a_van_der_pol_oscillator_swings_between_minus_two_and_two():
    episode = small(history=30, horizon=10, length=120).draw("train", 20, 5, 5, random())
    top = 2 * episode.x[..., 0].amax((1, 2))
    assert (top > 1.8).all()
    assert (top < 2.1).all()


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_two_splits_share_a_part_of_the_parameter_range(name):
    system = SYSTEMS[name]
    low, high = next(iter(system.ranges.values()))
    bins = {}
    for split in ("train", "valid", "test"):
        first = next(iter(parameters(system, split, 500, random()).values()))
        assert float(first.min()) >= low
        assert float(first.max()) <= high
        bins[split] = set(((first - low) / (high - low) * BINS).long().tolist())
    assert not bins["train"] & bins["valid"] | bins["train"] & bins["test"]
    assert not bins["valid"] & bins["test"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_is_to_be_forecast_follows_the_history(name):
    family = small(name, history=6, horizon=4)
    episode = family.draw("test", 10, 3, 3, random())
    assert episode.x.shape == (10, 3, 6, family.inputs)
    assert episode.y.shape == (10, 3, 4, family.inputs)
    assert len(set(episode.about[next(iter(SYSTEMS[name].ranges))].tolist())) == 10
    # Observations change smoothly: the seam is no larger than other steps.
    steps = (episode.x[:, :, 1:] - episode.x[:, :, :-1]).abs().amax()
    seam = (episode.y[:, :, 0] - episode.x[:, :, -1]).abs().amax()
    assert seam < 3 * steps


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_fresh_start_tells_nothing_of_the_parameters(name):
    family = small(name, history=1, horizon=2, fresh=True, pools=(400, 10, 10))
    episode = family.draw("train", 400, 10, 10, random())
    start = episode.x.mean((1, 2, 3))
    for values in episode.about.values():
        assert abs(float(torch.corrcoef(torch.stack([start, values]))[0, 1])) < 0.15
    both = torch.cat([episode.x, episode.query_x], 1)[:, :, 0, 0]
    assert all(len(set(row.tolist())) == 20 for row in both)  # no example is there twice


def test_more_examples_than_fresh_trajectories_are_refused():
    with pytest.raises(ValueError, match="at most 20 with fresh=True"):
        small(fresh=True).draw("train", 2, 21, 5, random())


def test_noise_is_on_the_history_alone():
    exact, noisy = (small(noise=noise).draw("valid", 10, 3, 3, random()) for noise in (0.0, 0.1))
    assert torch.equal(exact.y, noisy.y)
    assert 0.08 < float((exact.x - noisy.x).std()) < 0.12


def write_classes(folder, classes=6, examples=5, columns=2):
    for k in range(classes):
        (folder / f"class{k}").mkdir(parents=True)
        for n in range(examples):
            length = 4 + n
            rows_ = "\n".join(",".join([str(k + t)] * columns) for t in range(length))
            (folder / f"class{k}" / f"{n}.csv").write_text("a,b\n" + rows_ + "\n")


def test_sequences_of_a_folder_end_together_and_tell_what_is_real(tmp_path):
    for split in ("train", "valid", "test"):
        write_classes(tmp_path / split, 2)
    family = from_folder(tmp_path, ways=2)
    first = family.bank["train"]["class0"][0]
    assert first.shape == (8, 3)
    assert first[:, -1].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    joined = torch.cat([x[x[..., -1] == 1] for x in family.bank["train"].values()])[:, 0]
    assert abs(float(joined.mean())) < 1e-5


def test_dealt_classes_are_in_one_split_only(tmp_path):
    write_classes(tmp_path, 10)
    family = from_folder(tmp_path, ways=2)
    names = [name for classes in family.bank.values() for name in classes]
    assert len(names) == len(set(names)) == 10


def test_an_episode_has_as_many_of_each_class_and_none_twice(tmp_path):
    write_classes(tmp_path, 10)
    family = from_folder(tmp_path, ways=2)
    episode = family.draw("train", 7, 2, 3, random())
    assert episode.y.tolist() == [[0, 0, 1, 1]] * 7
    assert episode.query_y.tolist() == [[0, 0, 0, 1, 1, 1]] * 7
    for x, query in zip(episode.x, episode.query_x, strict=True):
        shown = {str(row.tolist()) for row in (*x, *query)}
        assert len(shown) == 10


def test_a_run_reads_new_classes_as_it_read_those_of_training(tmp_path):
    write_classes(tmp_path / "data", 10)
    family = from_folder(tmp_path / "data", ways=2)
    write_classes(tmp_path / "new", 2, examples=1)
    again = Classes.from_state(family.state(), 2)
    for one in (family, again):
        x, y = one.known(tmp_path / "new")
        assert y.tolist() == [0, 1]
        assert x.shape == (2, 8, 3)
    assert torch.equal(family.known(tmp_path / "new")[0], again.known(tmp_path / "new")[0])


def pgm(path, image, plain=False):
    height, width = len(image), len(image[0])
    values = [value for row in image for value in row]
    kind = b"P2" if plain else b"P5"
    body = " ".join(map(str, values)).encode() if plain else bytes(values)
    path.write_bytes(kind + f"\n# a comment\n{width} {height}\n255\n".encode() + body)


@pytest.mark.parametrize("plain", [True, False])
def test_an_image_is_the_sequence_of_its_rows(tmp_path, plain):
    pgm(tmp_path / "a.pgm", [[0, 255], [255, 51]], plain)
    assert read(tmp_path / "a.pgm").tolist() == [[0, 1], [1, pytest.approx(0.2)]]
    assert rows(tmp_path / "a.pgm", 4)[0].tolist() == [0, 0, 1, 1]


def test_a_stroke_follows_the_ink_and_lifts_where_it_ends(tmp_path):
    image = [[0] * 9 for _ in range(9)]
    for k in range(9):
        image[0][k] = image[8][k] = 255
    pgm(tmp_path / "a.pgm", image)
    found = strokes(tmp_path / "a.pgm", 9, 18)
    assert found[:9, 1].tolist() == [-1] * 9  # the upper line, from left to right
    assert found[:9, 0].tolist() == pytest.approx([-1 + k / 4 for k in range(9)])
    assert found[9:, 1].tolist() == [1] * 9
    assert found[:, 2].tolist() == [0] * 9 + [1] + [0] * 8


def test_images_of_a_folder_are_classes(tmp_path):
    for k in range(10):
        (tmp_path / f"{k}").mkdir()
        for n in range(3):
            pgm(tmp_path / f"{k}" / f"{n}.pgm", [[20 * k, 20 * n], [0, 255]])
    for image, shape in (("rows", (28, 28)), ("strokes", (32, 3))):
        family = from_folder(tmp_path, ways=2, image=image)
        assert family.bank["train"][next(iter(family.bank["train"]))].shape[1:] == shape


def test_a_text_goes_on_where_the_support_ends(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "one.txt").write_text("abcdefghij" * 40)
    family = characters(str(tmp_path), length=5)
    episode = family.draw("test", 3, 2, 1, random())
    assert episode.x.shape == (3, 2, 5)
    for x, y, query in zip(episode.x, episode.y, episode.query_x, strict=True):
        read_ = "".join(family.vocabulary.decode(part.tolist()) for part in (*x, *query))
        assert read_ in "abcdefghij" * 40
        assert torch.equal(x.flatten()[1:], y.flatten()[:-1])
    again = Characters.from_state(family.state(), 5)
    (tmp_path / "new.txt").write_text("jihgfedcba")
    assert torch.equal(again.known(tmp_path / "new.txt")[0], family.known(tmp_path / "new.txt")[0])


def test_texts_that_are_too_short_and_methods_that_need_vectors_are_refused(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("abcdefghij" * 4)
    family = characters(str(tmp_path), length=5)
    with pytest.raises(ValueError, match=r"51 characters.*the longest has 40"):
        family.draw("test", 1, 8, 2, random())
    with pytest.raises(ValueError, match="metasgd, reptile, imaml or joint for texts"):
        family.reads(8, "lstm")
    (tmp_path / "short.txt").write_text("abcde")
    with pytest.raises(ValueError, match="5 characters: expected at least 6"):
        family.known(tmp_path / "short.txt")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2\n3\n", ":2: 1 numbers, expected 2"),
        ("1,2\n3,x\n", ":2: '3,x' is no row of numbers"),
        ("a,b\n", "no rows"),
        ("1,nan\n", "NaN"),
    ],
)
def test_a_file_that_is_no_table_is_refused_with_its_line(tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=words):
        table(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda tmp: from_folder(tmp / "none"), "is no folder"),
        (lambda tmp: from_folder(tmp), "no classes"),
        (lambda tmp: Dynamics("pendulum"), "system='pendulum'"),
        (lambda tmp: characters(str(tmp / "none")), "no such file"),
    ],
)
def test_data_that_are_not_there_are_refused(tmp_path, call, words):
    with pytest.raises((ValueError, OSError), match=words):
        call(tmp_path)


def test_too_few_examples_are_refused(tmp_path):
    write_classes(tmp_path, 10, examples=3)
    with pytest.raises(ValueError, match=r"shots \+ queries=4: expected at most 3"):
        from_folder(tmp_path, ways=2).draw("train", 1, 2, 2, random())
    with pytest.raises(ValueError, match="ways=5: expected at most the 2 classes"):
        from_folder(tmp_path, ways=5)
