"""Settings survive TOML; what a file has wrong is named with the file and the key."""

import tomllib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metarnn.training import Settings, config

FLOATS = st.floats(allow_nan=False)


@dataclass(frozen=True)
class Anything:
    text: str
    number: float
    whole: int
    flag: bool
    list: tuple[int, ...]
    pair: tuple[float, str]


@given(st.builds(Anything, number=FLOATS, pair=st.tuples(FLOATS, st.text())))
def test_what_is_written_is_read_back(settings):
    keys = tomllib.loads(config.to_toml(settings))
    assert config.from_keys(Anything, keys, "it") == settings


def test_settings_are_read_back(tmp_path):
    settings = Settings(lr=1e-5, betas=(0.5, 0.9), tensorboard=True, schedule="cosine")
    config.save(tmp_path / "c.toml", "lm", settings)
    keys = config.read(tmp_path / "c.toml")
    assert keys.pop("task") == "lm"
    assert config.from_keys(Settings, keys, "c.toml") == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr = ", "c.toml is not TOML"),
        ("\xff", "c.toml is no text"),
        ("larning_rate = 1", "c.toml: key='larning_rate'"),
        ("step = 1", "Did you mean 'steps'"),
        ("lr = 'fast'", "c.toml: lr='fast': expected a number"),
        ("steps = 1.5", "steps=1.5: expected a whole number"),
        ("steps = true", "steps=True: expected a whole number"),
        ("betas = [1]", "a list of 2"),
        ("betas = 1", "expected a list"),
        ("schedule = 'cosin'", "Did you mean 'cosine'"),
        ("tensorboard = 1", "true or false"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
    path = tmp_path / "c.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        config.from_keys(Settings, config.read(path), "c.toml")


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": -1.0},
        {"lr": float("nan")},
        {"batch": 0},
        {"ema": 1.0},
        {"ema": 0.9, "nonmono": 5},
        {"accumulate": 3},
        {"betas": (0.9, 1.0)},
        {"steps": -1},
        {"momentum": 1.0},
        {"optimizer": "adam"},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Settings(**wrong)
