"""Translators as ONNX, against the models themselves."""

import numpy as np
import pytest
import torch

from metarnn.tasks.language import Vocabulary
from metarnn.tasks.onnx import export
from metarnn.tasks.translation import ModelOptions, build_model

onnxruntime = pytest.importorskip("onnxruntime")
SOURCE, TARGET = (Vocabulary.build([[text]]) for text in ("abcdefgh ", "fghij"))
OPTIONS = {
    "two directions": {},
    "states passed on": {"bidirectional": False, "layers": 2},
    "deep": {"layers": 2, "decoder_layers": 3, "cell": "gru"},
    "a window": {"cell": "qrnn", "layers": 2},
    "generated": {"cell": "meta-gru"},
    "additive, covered": {"attention": "additive", "coverage": True, "decoder_cell": "gru"},
    "heads, copies": {"attention": "multihead", "heads": 2, "copy": True},
    "no attention": {"attention": "none", "summary": True, "initial": False},
    "fed, tied": {"feeding": True, "tied": True, "summary": True, "bidirectional": False},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_translation_step_by_step_is_that_of_the_model(options):
    torch.manual_seed(0)
    model = build_model(
        SOURCE, TARGET, ModelOptions(**{"width": 8, "embedding": 6, "engine": "eager", **options})
    ).eval()
    reads, writes = (
        onnxruntime.InferenceSession(export(model, form).content) for form in ("sequence", "step")
    )
    x, lengths = torch.randint(len(SOURCE), (6, 3)), torch.tensor([6, 2, 4])
    names = [each.name for each in reads.get_outputs()]
    answers = reads.run(None, {"x": x.numpy(), "lengths": lengths.numpy()})
    state = dict(zip(names, answers, strict=True))
    needed = {each.name for each in writes.get_inputs()}
    with torch.no_grad():
        expected = model.encode(x, lengths)
        for tokens in torch.randint(len(TARGET), (4, 3)):
            log_p, expected = model.step(tokens, expected)
            given = {"x": tokens.numpy(), **state}
            y, *after = writes.run(None, {name: given[name] for name in needed})
            np.testing.assert_allclose(y, log_p.numpy(), atol=1e-5)
            changed = [each.name.removesuffix("_next") for each in writes.get_outputs()[1:]]
            state |= dict(zip(changed, after, strict=True))
