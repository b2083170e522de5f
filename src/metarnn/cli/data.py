"""`metarnn data describe`: what is in a text."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import Progress

from metarnn.cells import check
from metarnn.cli.table import console, print_table, say
from metarnn.graph.files import write
from metarnn.tasks.language import split as splits
from metarnn.tasks.language.corpus import counted_pieces, number
from metarnn.tasks.language.ngram import KneserNey, Laplace
from metarnn.tasks.language.plot import zipf_svg, zipf_text
from metarnn.tasks.language.source import standard_input, total
from metarnn.tasks.language.statistics import Description, describe
from metarnn.training.progress import one_line

BASELINES = 1 << 24  # bytes of text up to which n-grams are counted too, in seconds
ORDERS = (1, 2, 3, 4, 5)


def data_describe(
    file: Annotated[str, tyro.conf.Positional] = "",
    /,
    data: str = "",
    out: Path | None = None,
    split: str = "auto",
    seed: int = 0,
) -> None:
    """Count words, stop words and n-grams of a text, and show Zipf's law in it.

    metarnn data describe book.txt --out zipf.svg

    Args:
        file: a file, a folder, a pattern of files, - for standard input, hf:NAME for a dataset,
            or pydoc or stdlib, which every Python carries; by default pydoc
        data: the same, as other commands have it
        out: draw the Zipf curves into this SVG file
        split: shares of train, valid and test, where names of files do not tell, as in 90/5/5;
            auto is that with at most 1 MiB for valid and for test
        seed: of the split
    """
    if file and data:
        check.refuse("data", data, f"one text; {file!r} is named, too")
    data = file or data or "pydoc"
    if out is not None and not out.absolute().parent.is_dir():
        raise ValueError(f"out={str(out)!r}: expected a file in a folder that exists")
    quiet = Console(stderr=True, markup=False, highlight=False)
    with tempfile.TemporaryDirectory(prefix="metarnn-") as work:
        source = data
        if data == "-":
            source = str(Path(work, "input.txt"))
            standard_input(Path(source))
        found = splits.find(source, split, seed, Path(work))
        documents = splits.find(source, "all", seed, Path(work))["all"]
        with Progress(console=quiet, transient=True, disable=not quiet.is_terminal) as progress:
            bar = progress.add_task("reading", total=total(documents))

            def show(what: str, done: int, whole: int) -> None:
                progress.update(bar, completed=done)

            description = describe(counted_pieces(documents, "character", "reading", show))
            small = total(documents) <= BASELINES and len(found) > 1
            baselines = _baselines(found) if small else ""
    out_console = console()
    _print(out_console, data, description)
    if baselines:
        say(f"\n{baselines}")
    sizes = ", ".join(f"{name} {len(part)} ({total(part):,} bytes)" for name, part in found.items())
    say(f"\nsplit by document: {sizes}")
    if out is not None:
        write(out, zipf_svg(description.grams, f"Zipf's law in {data}"))
        say(f"drawn to {out}")


def _baselines(found: splits.Splits) -> str:
    """How well n-grams of characters predict the last split, by two ways of smoothing."""
    vocabulary, parts = number(found, "character")
    train, (name, last) = parts["train"].tokens, list(parts.items())[-1]
    orders = "".join(f"n = {n:<3}" for n in ORDERS)
    lines = [f"bits per character of {name}, by n-grams of train:", f"{'':<33}{orders}"]
    named = {"interpolated Kneser–Ney": KneserNey, "Laplace (unfit: it gets worse)": Laplace}
    for title, kind in named.items():
        bits = (kind(train, len(vocabulary), n).bits(last.tokens) for n in ORDERS)
        lines.append(f"  {title:<31}" + "".join(f"{b:<7.3f}" for b in bits))
    return "\n".join(lines)


def _print(out: Console, data: str, found: Description) -> None:
    say(
        f"{one_line(data)}: {found.documents:,} documents, {found.lines:,} lines, "
        f"{found.words:,} words, {found.characters:,} characters ({found.alphabet} different)\n",
        out,
    )
    rows: list[list[str]] = []
    for gram in found.grams:
        counts = (f"{count:,}" for count in (gram.total, gram.distinct, gram.once))
        rows.append([str(gram.n), *counts, f"{gram.slope:.2f}"])
    print_table(["n-grams", "in all", "different", "seen once", "slope"], rows, out)
    say("\nmost frequent:", out)
    for gram in found.grams:
        say("  " + ", ".join(f"{one_line(words)} {count}" for words, count in gram.top[:5]), out)
    stops = ", ".join(f"{word} {count}" for word, count in found.stop_words)
    say(f"\nstop words: {found.stop_share:.0%} of all words: {stops}\n", out)
    say(zipf_text(found.grams), out)
