"""Everything that reads a file: how, and valid files for it."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metarnn import graph
from metarnn.cells import GRU, LSTM
from metarnn.graph.sealed import verify
from metarnn.layers import LSTM as LSTMLayer
from metarnn.report.materials import gather
from metarnn.report.write import page
from metarnn.runs import fewshot as fewshot_command
from metarnn.runs.lm import Config
from metarnn.runs.tasks import open_run
from metarnn.search import Search
from metarnn.search.genotype import Genotype
from metarnn.search.known import KNOWN
from metarnn.search.verdict import _scores
from metarnn.study.learn import _begun as _begun_study
from metarnn.study.study import Study
from metarnn.tasks.classification import formats
from metarnn.tasks.classification import load as load_labelled
from metarnn.tasks.classification.images import read_image
from metarnn.tasks.fewshot.family import table
from metarnn.tasks.fewshot.images import strokes
from metarnn.tasks.forecasting.series import read_csv
from metarnn.tasks.language import Vocabulary
from metarnn.tasks.language import corpus as corpora
from metarnn.tasks.look import look
from metarnn.tasks.pretrained import described, from_pretrained, save_pretrained
from metarnn.tasks.session import Session
from metarnn.tasks.translation.pairs import read as read_pairs
from metarnn.training import checkpoint, config
from metarnn.training.trainer import Trainer
from tests.helpers.study import make_study
from tests.helpers.toy import QUICK, ToyModel, ToyTask
from tests.search.test_strategies import search as make_search

OURS = (ValueError, OSError, ModuleNotFoundError)


@dataclass(frozen=True)
class Parser:
    """How a kind of file is read.

    file   what it is called
    valid  files of the kind
    read   what is done with one; of a folder, with what is beside it
    named  whether what is wrong is said with the file's name
    """

    file: str
    valid: Callable[[Path], list[bytes]]
    read: Callable[[Path], Any]
    named: bool = True


def unsealed(data: bytes) -> bytes:
    """A file without its checksum, so that what is wrong with it is found by other checks."""
    if data.startswith(b"{"):
        return json.dumps(verify(json.loads(data))).encode()
    return data.replace(b'"blake2b":"', b'"another":"')


def _checkpoint(folder: Path) -> list[bytes]:
    trainer = Trainer(ToyTask(8), ToyModel(), QUICK)
    trainer.update()
    checkpoint.save(folder / "valid", trainer.state_dict())
    return [unsealed((folder / "valid").read_bytes())]


def _weights(folder: Path) -> list[bytes]:
    checkpoint.save_weights(folder / "valid", {"a": torch.ones(2, 3), "b": torch.zeros(0, 4)})
    return [unsealed((folder / "valid").read_bytes())]


@cache
def _trainer() -> Trainer:
    return Trainer(ToyTask(8), ToyModel(), QUICK)


def _resume(path: Path) -> None:
    _trainer().load_state_dict(checkpoint.load(path))


def _searches(kind: str) -> Callable[[Path], list[bytes]]:
    def valid(folder: Path) -> list[bytes]:
        search = _search(kind, folder)
        search.run()
        assert search.folder is not None
        return [unsealed(search.folder.last.read_bytes())]

    return valid


@cache
def _search(kind: str, folder: Path) -> Search:
    return make_search(kind, folder)


def _resume_search(kind: str) -> Callable[[Path], Any]:
    return lambda path: _search(kind, path.parents[1]).resume()


def _graphs(folder: Path) -> list[bytes]:
    return [graph.to_json(graph.trace_cell(cell(3, 4))).encode() for cell in (LSTM, GRU)]


def _run_graph(path: Path) -> None:
    found = graph.read(path)
    graph.text(found)
    graph.GraphCell(found)


def _vocabularies(folder: Path) -> list[bytes]:
    found = []
    for level in ("character", "word", "byte", "bpe"):
        Vocabulary.build([["a text\nof some words"]], level).save(folder / "valid")
        found.append(unsealed((folder / "valid").read_bytes()))
    return found


def _run_vocabulary(path: Path) -> None:
    vocabulary = Vocabulary.load(path)
    vocabulary.decode(vocabulary.encode("some words, some not").tolist())


def _models(folder: Path) -> list[bytes]:
    from metarnn.tasks import classification, forecasting, language

    language_model = language.build_model(9, language.ModelOptions(width=4, embedding=3))
    scheme = classification.Scheme("one", ("a", "b"), 2, mean=(0.0, 0.0), std=(1.0, 1.0))
    classifier = classification.build_model(scheme, classification.ClassifierOptions(width=4))
    scheme = forecasting.Scheme(("s",), ("v",), ((0.0,),), ((1.0,),), lookback=8, horizon=4)
    options = forecasting.ForecasterOptions(width=4)
    forecaster = forecasting.build_model(scheme, options)
    found = []
    for model in (language_model, classifier, forecaster):
        save_pretrained(model, folder)
        found.append(unsealed((folder / "model.json").read_bytes()))
    return found


def _pretrained(folder: Path) -> list[bytes]:
    _models(folder)
    return [unsealed((folder / "model.safetensors").read_bytes())]


def _streams(folder: Path) -> list[bytes]:
    session = Session(LSTMLayer(3, 4))
    session.feed(torch.randn(2, 3), ["anna", "ben"])
    session.save(folder / "valid")
    return [unsealed((folder / "valid").read_bytes())]


def _npz(folder: Path) -> list[bytes]:
    x, y = np.random.default_rng(0).normal(size=(6, 5)), np.arange(6) % 2
    found = []
    for write in (np.savez, np.savez_compressed):
        for arrays in (
            {"x": x, "y": y, "lengths": y + 3},
            {"x_train": x, "y_train": y, "x_test": x, "y_test": y},
        ):
            out = io.BytesIO()
            write(out, **arrays)
            found.append(out.getvalue())
    return found


def png(width: int, height: int, pixels: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    signature = b"\x89PNG\r\n\x1a\n"
    return (
        signature
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(pixels))
        + chunk(b"IEND", b"")
    )


def _images(folder: Path) -> list[bytes]:
    rows = b"".join(bytes([kind]) + bytes(range(4)) for kind in range(5))
    return [
        png(4, 5, rows),
        b"P5 # x\n3 2\n255\n" + bytes(6),
        b"P2 2 2 9 1 2 3 4",
        b"P6 1 1 255\nabc",
    ]


def _text(*texts: str) -> Callable[[Path], list[bytes]]:
    return lambda folder: [text.encode() for text in texts]


TS = """@problemName x
@classLabel true a b
@data
1,2,3:4,5,6:a
1,?,3:4,5:b
"""
TIMED = """@timestamps true
@classLabel true a b
@data
(1,2),(2,3):(1,4):a
(2020-01-01 10:00:00,1):(2020-01-01 10:00:00,2):b
"""
STEPS = "id,time,a,b,label\n1,1,0.5,2,x\n1,2,,3,x\n2,1,1,1,y\n"
LABELLED = """{"x": [1, 2, null], "label": "a"}
{"x": [[1], [2]], "label": "b", "time": [1, 2]}
"""
DAYS = "date,a,b\n2020-01-01,1,2\n2020-01-02,,3\n2020-01-04,4,4\n"
TRANSLATED = """{"source": "a", "target": "b"}
{"translation": {"source": "a", "target": "b"}}
"""
FAMILY = """{"form": {"image": "", "size": 28, "length": 5, "mean": [0, 0], "spread": [1, 1]},
"inputs": 3}"""
csv = _text(STEPS, "a,b,c,label\n1,2,3,x\n4,5,,y\n", "text,label\nhi,a\n")
jsonl = _text(LABELLED, '{"text": "hi", "tags": ["a", "b"]}\n')
tsv = _text("a\ttext one\nb\ttext two\n", STEPS.replace(",", "\t"))
days = _text(DAYS, "month,x\n2020-01,1\n2020-02,2\n2020-03,3\n")


def _family(path: Path) -> None:
    (path.parent / "config.toml").write_text('task = "fewshot"\nfamily = "sequences"\nways = 2\n')
    run = open_run(path.parent)
    family = fewshot_command.family(run.config, run.folder)
    example = path.parent / "one.csv"
    example.write_text("1,2\n3,4\n")
    family.asked(example)


def _cached(folder: Path) -> list[bytes]:
    (folder / "text.txt").write_text("a text that is kept, once it is numbered, in a folder\n" * 30)
    corpora.load(str(folder / "text.txt"), cache=folder, in_memory=0)
    (kept,) = (folder / "corpora").iterdir()
    return [json.dumps({p.name: p.read_bytes().hex() for p in sorted(kept.iterdir())}).encode()]


def _run_cached(path: Path) -> None:
    """The folder of a numbered text, all of its files in one."""
    folder = path.parent / "kept"
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    try:
        for name, content in json.loads(path.read_bytes()).items():
            (folder / Path(name).name).write_bytes(bytes.fromhex(content))
    except (ValueError, AttributeError, TypeError, OSError, RecursionError):
        return
    found = corpora._open(folder, str(path), [])
    for split in found.splits.values():
        split.tokens.read(0, 10)


def _split_pairs(path: Path) -> None:
    read_pairs(str(path), split="all")


# A study, and the report of one.
LEARNING = """{"version": 2, "task": "lm", "seconds": 1.5, "base": {"data": "a", "lr": 0.1},
"budget": {"minutes": 1, "params": "6k", "steps": 4, "contenders": 4, "seed": 0, "device": "cpu"},
"race": {"length": 4, "contenders": ["GRU", "LSTM"], "finals": {},
"rungs": [{"until": 1, "kept": ["GRU"], "standing": []}]}}"""


def _begun(path: Path) -> None:
    study = Study(path.parent, 1)
    study.read()
    _begun_study(study)


def _look(path: Path) -> None:
    look(str(path), "lm")  # what is not clear is no error then


def _report(path: Path) -> None:
    """Written whatever a file holds, unless there is neither a run nor a study."""
    try:
        page([gather(path.parent)]).html().encode()
    except FileNotFoundError:
        return
    except OURS as error:
        raise AssertionError(f"there is no report: {error!r}") from error


def _of_study(name: str) -> Callable[[Path], list[bytes]]:
    def valid(folder: Path) -> list[bytes]:
        return [(make_study(folder) / name).read_bytes()]

    return valid


PARSERS = {
    "checkpoint": Parser("last.safetensors", _checkpoint, checkpoint.load),
    "weights": Parser("model.safetensors", _weights, checkpoint.read_weights),
    "resume": Parser("last.safetensors", _checkpoint, _resume, named=False),
    "evolution": Parser(
        "checkpoints/last.safetensors", _searches("evolution"), _resume_search("evolution"), False
    ),
    "darts": Parser(
        "checkpoints/last.safetensors", _searches("darts"), _resume_search("darts"), False
    ),
    "cell": Parser("cell.json", _graphs, _run_graph, named=False),
    "vocabulary": Parser("vocabulary.json", _vocabularies, _run_vocabulary),
    "config": Parser(
        "config.toml",
        lambda folder: [config.to_toml(Config()).encode()],
        lambda path: config.from_keys(Config, config.read(path), str(path)),
    ),
    "model": Parser("model.json", _models, lambda path: described(path.parent)),
    "pretrained": Parser(
        "model.safetensors", _pretrained, lambda path: from_pretrained(path.parent)
    ),
    "session": Parser("streams", _streams, lambda path: Session(LSTMLayer(3, 4)).restore(path)),
    "ts": Parser("x.ts", _text(TS, TIMED), formats.read),
    "csv": Parser("x.csv", csv, formats.read),
    "tsv": Parser("x.tsv", tsv, formats.read),
    "jsonl": Parser("x.jsonl", jsonl, formats.read),
    "npz": Parser("x.npz", _npz, lambda path: load_labelled(str(path)), named=False),
    "txt": Parser("x.txt", _text("a\tone\nb\ttwo\n"), formats.read),
    "labelled": Parser(
        "x.jsonl", _text(8 * LABELLED), lambda p: load_labelled(str(p)), named=False
    ),
    "dates": Parser("x.csv", days, read_csv),
    "pairs": Parser("x.tsv", _text("eins\tone\nzwei\ttwo\n"), _split_pairs),
    "pairs of json": Parser("x.jsonl", _text(TRANSLATED), _split_pairs),
    "packed pairs": Parser(
        "x.tsv.gz", lambda folder: [gzip.compress(b"eins\tone\nzwei\ttwo\n")], _split_pairs
    ),
    "image": Parser("x.png", _images, read_image),
    "strokes": Parser("x.pgm", _images, lambda path: strokes(path, 8, 8)),
    "table": Parser("x.csv", _text("a,b\n1,2\n3,4\n", "1 2\n3 4\n"), table),
    "family": Parser("family.json", _text(FAMILY), _family),
    "text": Parser(
        "x.txt",
        _text("A text of a few words, again and again.\n" * 20),
        lambda path: [corpora.load(str(path), level) for level in ("character", "word")],
    ),
    "numbered text": Parser("kept.json", _cached, _run_cached, named=False),
    "genotype": Parser(
        "unit.txt",
        _text(*(str(KNOWN[name]) for name in list(KNOWN)[:3])),
        lambda path: Genotype.parse(path.read_bytes().decode()).cell(3, 4),
        named=False,
    ),
    "scores": Parser("scores.json", _text('{"nll": 1.5, "bpc": 2.0}'), _scores),
    "look at csv": Parser("x.csv", _text(STEPS, DAYS, "a,b,label\n1,2,x\n4,,y\n"), _look),
    "look at tsv": Parser("x.tsv", tsv, _look),
    "look at json": Parser("x.jsonl", _text(LABELLED, TRANSLATED), _look),
    "look at text": Parser("x.txt", _text("a text\nof lines\n", "a\tone\nb\ttwo\n"), _look),
    "look at packed": Parser("x.tsv.gz", lambda _: [gzip.compress(b"ab\tcd\nef\tgh\n")], _look),
    "study": Parser("learn.json", _text(LEARNING), _begun),
    "reported study": Parser("learn.json", _of_study("learn.json"), _report),
    "reported verdict": Parser("verdict.json", _of_study("verdict.json"), _report),
    "reported search": Parser("search.json", _of_study("search/search.json"), _report),
    "reported curve": Parser("metrics.jsonl", _of_study("search/metrics.jsonl"), _report),
    "reported settings": Parser("config.toml", _of_study("search/config.toml"), _report),
}
