"""`metarnn learn DATA`: the best model for some data that some minutes can buy."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Literal

import tyro

from metarnn.cli.table import print_table, say
from metarnn.report.write import write_report
from metarnn.study import samples
from metarnn.study.learn import learn as learned
from metarnn.study.study import Study
from metarnn.training.interrupt import Interrupted
from metarnn.training.progress import printable

PAGE = 0.03  # of the time, at most, for looking at the model at work


def learn(
    data: Annotated[str, tyro.conf.Positional] = "",
    /,
    minutes: float = 5.0,
    task: Literal["auto", "lm", "translation", "classification", "forecasting"] = "auto",
    out: str = "",
    resume: bool = False,
    params: str = "",
    steps: int = 0,
    contenders: int = 0,
    compare: bool = False,
    seeds: int = 1,
    unit: tuple[str, ...] = (),
    seed: int = 0,
    device: str = "auto",
) -> int:
    """Learn the best model for your data in the minutes you give it: recurrent units, each with its
    own learning rate, race at their final size, and the winner is trained to the end.

    metarnn learn book.txt --minutes 20
    metarnn learn pairs.tsv; metarnn learn signals_TRAIN.ts; metarnn learn sales.csv

    Args:
        data: a text, pairs (.tsv, .jsonl, two aligned files), labelled sequences (.ts, .npz, .csv,
            .jsonl, folders of images), a CSV of series with dates; or embedded data (pydoc)
        minutes: how long it may take, all in all
        task: what to learn; auto looks at the data and says why
        out: the folder of the study; by default a new one, runs/learn
        resume: go on with the study in --out, or with the latest unfinished one in runs/
        params: parameters of every model, as in 200k; by default those of the task
        steps: updates of the winner's training, in place of minutes: exactly reproducible
        contenders: how many take part in the race; by default as many as the time allows
        compare: then train GRU, LSTM and random units for as long as the winner, and compare them
            with it; how many minutes that takes is said before
        seeds: trainings of each of these
        unit: more contenders, the first to take part: names such as meta-lstm or
            found/ptb-products, files with a cell's graph such as a cell.json
        seed: where all randomness begins
        device: where to compute: auto, cpu, cuda
    """
    try:
        study = learned(
            data, minutes=minutes, task=task, out=out, resume=resume, params=params, steps=steps,
            contenders=contenders, units=unit, seed=seed, device=device,
        )  # fmt: skip
        if compare:
            study.compare(seeds)
    except KeyboardInterrupt:
        return _stopped(out, 2)
    except Interrupted as stopped:
        return _stopped(out, int(stopped.args[0]) if stopped.args and stopped.args[0] else 2)
    _show(study)
    return 0


def _stopped(out: str, number: int) -> int:
    place = f" --out {shlex.quote(out)}" if out else ""
    print(f"interrupted; all is saved. To go on: metarnn learn --resume{place}", file=sys.stderr)
    return 128 + number


def _show(study: Study) -> None:
    """What came out, a sample of it, and what to type next."""
    page = study.path / "report.html"
    if not page.exists():
        write_report([study.path], seconds=max(PAGE * study.seconds, 5.0))
    few = study.about.get("sample")
    head = ["score", f"{study.about['split']}{f', sample of {few:,}' if few else ''}"]
    print()
    print_table(head, [[name, f"{value:.4f}"] for name, value in study.scores.items()])
    say(f"\n{printable(study.summary)}\n")
    for line in () if study.rules is None else study.rules.lines(study.scores, study.best):
        say(printable(line))
    for line in study.samples():
        say(printable(line))
    say(f"\nThe model of {study.best} is in {study.path}, ready to use:")
    for line in samples.commands(study.task, study.path):
        print(f"  {line}")
    say(f"\nAll of it on a page: {page}")
