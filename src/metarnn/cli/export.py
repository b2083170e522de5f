"""`metarnn export RUN`: a trained model for other programs."""

from __future__ import annotations

import importlib.util
import io
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn.functional import pad

from metarnn.cells import Theta, check
from metarnn.cli.table import say
from metarnn.graph.files import beside
from metarnn.hyper.encoders import RecurrentEncoder
from metarnn.layers import Recurrent
from metarnn.layers.edges import Inputs
from metarnn.layers.unroll import state_sizes
from metarnn.runs.tasks import open_run
from metarnn.tasks.classification import Classifier
from metarnn.tasks.classification.task import collate
from metarnn.tasks.onnx import FORMS, Exported, without_step
from metarnn.tasks.onnx import export as to_onnx
from metarnn.tasks.pretrained import from_pretrained
from metarnn.tasks.session import flat
from metarnn.tasks.translation import EncoderDecoder
from metarnn.training import Folder

CLOSE = 1e-4  # float32 in another order of sums


def export(
    run: Path,
    /,
    to: Literal["onnx", "torch"] = "onnx",
    form: Literal["all", "step", "sequence"] = "all",
    int8: bool = False,
    out: Path | None = None,
) -> None:
    """Write the model of a run folder for other programs, and check it against the original.

    metarnn export runs/lm

    metarnn export runs/classification --form sequence --int8 --out shipped

    Args:
        run: the run folder, or one written by save_pretrained
        to: onnx, or torch (a program of torch.export; the step only)
        form: step is fed one step at a time, with its state; sequence reads whole ones, of any
            number and length
        int8: also with recurrent products rounded to a byte (ONNX), and what that costs: of a
            classifier's run in accuracy, on what was held out
        out: the folder to write to; by default the run's own
    """
    _export(run, to, form, int8, out or run)


def _export(run: Path, to: str, form: str, int8: bool, out: Path) -> None:
    model = from_pretrained(run)
    out.mkdir(parents=True, exist_ok=True)
    if to == "torch":
        if form == "sequence" or int8:
            advice = "ONNX has both: --to onnx."
            check.refuse("form", form, "step, in float32, of a program of torch", advice)
        _write_torch(model, out / "step.pt2")
        return
    wanted = [f for f in FORMS if form in ("all", f)]
    if form == "all" and (reason := without_step(model)):
        say(f"no step: {reason}")
        wanted = ["sequence"]
    for one in wanted:
        _write_onnx(to_onnx(model, one), out / f"{one}.onnx")
        if int8:
            rounded = to_onnx(model, one, int8=True)
            _write_onnx(rounded, out / f"{one}.int8.onnx", rounded=True)
            if one == "sequence" and isinstance(model, Classifier):
                _write_cost(run, model, rounded.content)


def _write_onnx(found: Exported, path: Path, rounded: bool = False) -> None:
    size = f"{path}: {len(found.content):,} bytes"
    if importlib.util.find_spec("onnxruntime") is None:
        _write(path, found.content)
        say(f"{size}; not checked, which needs the package onnxruntime")
        return
    import onnxruntime  # pyright: ignore[reportMissingImports]

    answers = onnxruntime.InferenceSession(found.content).run(None, found.inputs)
    pairs = zip(map(np.asarray, answers), found.outputs, strict=True)
    gap = max(_gap(ours, theirs) for ours, theirs in pairs) / found.unit
    if not rounded and not gap < CLOSE:
        raise ValueError(f"{path} is not written: it is {gap:.1e} away from the model")
    _write(path, found.content)
    cost = " (what rounding to a byte costs)" if rounded else ""
    say(f"{size}, at most {gap:.1e} away from the model{cost}")


def _gap(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(np.subtract(ours, theirs, dtype=np.float64)).max(initial=0.0))


def _write_cost(run: Path, model: Classifier, content: bytes) -> None:
    """Say how many labels of the held-out part are right, before and after rounding; nothing where
    there is no such part, as in a folder of save_pretrained."""
    there = Folder(run).config.exists() and importlib.util.find_spec("onnxruntime") is not None
    if model.scheme.kind != "one" or not there:
        return
    import onnxruntime  # pyright: ignore[reportMissingImports]

    found = open_run(run, device="cpu")
    job = found.prepare()
    name = found.entry.held_out(job)
    part, session = job.task.data[name], onnxruntime.InferenceSession(content)
    right = {"": 0, " with bytes": 0}
    for numbers in np.array_split(np.arange(len(part)), -(-len(part) // 64)):
        batch = collate(part, numbers)
        given = {"x": batch.x, "lengths": batch.lengths, "times": batch.times}
        inputs = {key: value.numpy() for key, value in given.items() if value is not None}
        with torch.no_grad():
            exact = model(batch.x, batch.lengths, batch.times).numpy()
        rounded = np.asarray(session.run(None, inputs)[0])
        assert batch.y is not None
        for way, logits in zip(right, (exact, rounded), strict=True):
            right[way] += int((logits.argmax(-1) == batch.y.numpy()).sum())
    words = " and ".join(f"{count / len(part):.2%}{way}" for way, count in right.items())
    say(f"accuracy on {len(part):,} examples ({name}): {words}")


def _write(path: Path, content: bytes) -> None:
    with beside(path) as new:
        new.write_bytes(content)


class _Step(nn.Module):
    """A step with its state flat, as programs take it."""

    def __init__(self, model: nn.Module, shape: Any) -> None:
        super().__init__()
        self.model, self.shape = model, shape
        for layer in model.modules():
            if isinstance(layer, Recurrent):
                object.__setattr__(layer, "step", partial(_plain_step, layer))
            if isinstance(layer, RecurrentEncoder):
                object.__setattr__(layer, "forward", partial(_plain_encoding, layer))

    def forward(self, x: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        step: Any = self.model.step
        y, after = step(x, _nested(self.shape, iter(state)))
        return y, *flat(after)


def _plain_step(layer: Recurrent, x: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
    """`layer.step` in plain operations, which an export can follow."""
    parts = state if isinstance(state, tuple) else (state,)
    finals = []
    for k, cell in enumerate(layer.cells):
        theta, source = Theta(cell, layer.weights(k)), layer.generator(k, 0)
        rows = [part[k][..., :n] for part, n in zip(parts, state_sizes(cell, source), strict=True)]
        inner, rest = tuple(rows[: len(cell.states)]), rows[len(cell.states) :]
        seen, past = x, []
        if cell.window > 1:
            seen = torch.cat([rest.pop(0), x], -1)
            past = [seen[..., cell.input_size :]]
        read: Any = seen
        if source is not None:
            call = Inputs(x.unsqueeze(0), None, None, None, True, False, None, None)
            numbers, kept = source(call.x, tuple(rest), call, None)
            read = {"x": seen, **{name: row[0] for name, row in numbers.items()}}
            rest = list(kept)
        drive = cell.drive(theta, read)
        new = cell.step(theta, drive, inner)
        y = cell.output(theta, drive, new)
        x = y + x if layer.residual and k else y
        finals.append([*new, *past, *rest])
    final = tuple(
        torch.stack([pad(row, (0, width - row.shape[-1])) for row in part])
        for part, width in zip(zip(*finals, strict=True), layer.state_sizes, strict=True)
    )
    return x, final[0] if len(final) == 1 else final


def _plain_encoding(
    encoder: RecurrentEncoder, x: torch.Tensor, state: Any, lengths: None, resets: None
) -> tuple[torch.Tensor, Any]:
    """`encoder.forward` for one step, likewise."""
    rows = tuple(s.unflatten(-1, (encoder.rows, -1)).transpose(0, 1) for s in state)
    c, end = _plain_step(encoder.layer, x[0], rows)
    return c.unsqueeze(0), tuple(e.transpose(0, 1).flatten(1) for e in flat(end))


def _nested(shape: Any, tensors: Any) -> Any:
    if isinstance(shape, torch.Tensor):
        return next(tensors)
    return tuple(_nested(part, tensors) for part in shape)


def _without_program(model: nn.Module) -> str:
    """Why a model is no program of one step, "" where it is."""
    if isinstance(model, EncoderDecoder):
        return "A step writes what was read before, and that program would read no sentence."
    return without_step(model)


@torch.no_grad()
def _write_torch(model: Any, path: Path) -> None:
    if reason := _without_program(model):
        check.refuse("to", "torch", "onnx, for this model", f"{reason} A program is one step.")
    embedded = getattr(model, "embedding", None)
    if embedded is not None:
        x = torch.randint(embedded.num_embeddings, (3,))
    else:
        width = model.scheme.channels if hasattr(model, "scheme") else model.vocabulary_size
        x = torch.randn(3, width)
    _, state = model.step(x, None)
    step, batch = _Step(model, state), torch.export.Dim("batch", min=1)
    arguments = (x, *flat(state))
    shapes = ({0: batch}, tuple({1: batch} for _ in arguments[1:]))
    program = torch.export.export(step, arguments, dynamic_shapes=shapes)
    other = (x[:2], *(part[:, :2] for part in arguments[1:]))
    pairs = zip(program.module()(*other), step(*other), strict=True)
    gap = max(float((ours - theirs).abs().max()) for ours, theirs in pairs)
    if not gap < CLOSE:
        raise ValueError(f"{path} is not written: it is {gap:.1e} away from the model")
    content = io.BytesIO()
    torch.export.save(program, content)
    _write(path, content.getvalue())
    say(f"{path}: {path.stat().st_size:,} bytes, at most {gap:.1e} away from the model")
