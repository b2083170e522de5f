import dataclasses

import pytest
import torch

from metarnn.tasks.language import (
    LanguageTask,
    ModelOptions,
    Vocabulary,
    build_model,
    count_parameters,
    load,
)
from metarnn.tasks.language.presets import PRESETS
from metarnn.tasks.language.vocabulary import SPECIAL

# Parameters as published, with a vocabulary of this many tokens.
SIZES = {
    "char-small": (107, 400_000, 1_000_000),
    "char-ptb": (53, 4_200_000, 4_300_000),
    "word-ptb": (10_003, 24_000_000, 24_300_000),
    "tinyshakespeare": (69, 9_000_000, 10_700_000),
    "char-small-meta": (107, 640_000, 647_019),
    "char-ptb-hyperlstm": (53, 4_800_000, 5_000_000),
    "char-ptb-mogrifier": (53, 4_000_000, 5_000_000),
    "char-ptb-meta": (53, 4_000_000, 5_000_000),
}


def chosen(kind, preset):
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in PRESETS[preset].items() if name in names}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_the_size_it_names(preset):
    size, least, most = SIZES[preset]
    with torch.device("meta"):
        model = build_model(size, ModelOptions(**chosen(ModelOptions, preset)))
    assert least <= count_parameters(model.parameters()) <= most


def test_the_default_reads_what_is_always_there():
    preset = next(iter(PRESETS))
    corpus = load(PRESETS[preset]["data"], PRESETS[preset]["level"])
    LanguageTask(corpus, **chosen(LanguageTask, preset))


def test_characters_parted_by_spaces_are_words_of_one_character():
    vocabulary = Vocabulary.build([[" a _ b a n k \n"]], "word")
    assert set(vocabulary.tokens) == {*SPECIAL, "a", "_", "b", "n", "k"}
    assert vocabulary.unit == "character"
    assert Vocabulary.build([["a bank"]], "word").unit == "word"
