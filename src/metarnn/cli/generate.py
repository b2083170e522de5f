"""`metarnn generate RUN`: text from a trained language model, as it is drawn."""

from __future__ import annotations

import sys
from pathlib import Path

from metarnn.cells import check
from metarnn.decoding import Search
from metarnn.runs import lm
from metarnn.runs.tasks import open_run, refuse_use
from metarnn.tasks.language import LanguageModel, Vocabulary, continuations
from metarnn.tasks.language import generate as draw
from metarnn.training.progress import for_output
from metarnn.training.world import find_device


def generate(
    run: Path,
    /,
    length: int = 500,
    prompt: str = "",
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | None = None,
    beam: int = 0,
    no_repeat: int = 0,
    device: str = "cpu",
) -> None:
    """Write text with the language model of a run folder, token by token to standard output.

    On a terminal, control characters are shown escaped; a pipe or file gets the text as it is.

    metarnn generate runs/lm --prompt "The " --length 300 --temperature 0.7

    metarnn generate runs/lm --beam 5 --length 80

    Args:
        run: the run folder
        length: how many tokens; 0 for no end
        prompt: what to go on from
        temperature: below 1 for the probable, above for the daring; 0 takes the most probable
        top_k: draw from so many tokens at most; 0 for all
        top_p: draw from the fewest tokens that together have this probability
        seed: the same seed gives the same text; by default a new one each time
        beam: search for the most probable text with a beam of this width, instead of drawing one
        no_repeat: no so many tokens in a row come twice in what a beam finds; 0 for no such rule
        device: where to compute: auto, cpu, cuda
    """
    if beam:
        _search(run, length, prompt, Search(width=beam, no_repeat=no_repeat), device)
    else:
        _generate(run, length, prompt, temperature, top_k, top_p, seed, device)


def _generate(
    path: Path,
    length: int,
    prompt: str,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int | None,
    device: str,
) -> None:
    check.size("length", length, least=0)
    pieces = draw(
        *_open(path, device),
        prompt,
        length or None,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    try:
        sys.stdout.write(for_output(prompt))
        for piece in pieces:
            sys.stdout.write(for_output(piece))
            sys.stdout.flush()
        sys.stdout.write("\n")
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        raise


def _search(path: Path, length: int, prompt: str, search: Search, device: str) -> None:
    check.size("length", length)  # there is no most probable text without an end
    ((text, _),) = continuations(*_open(path, device), prompt, length, search)
    print(for_output(prompt + text))


def _open(path: Path, device: str) -> tuple[LanguageModel, Vocabulary]:
    place = find_device(device)
    run = open_run(path)
    if not isinstance(run.config, lm.Config):
        refuse_use(path, "a language model", run.entry)
    model = lm.ENTRY.model(run.config, run.folder)
    run.weights(model)
    return model.to(place), lm.vocabulary(run.folder)
