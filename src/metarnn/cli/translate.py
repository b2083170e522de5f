"""`metarnn translate RUN`: standard input, a sentence a line, to standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from metarnn.cells import check
from metarnn.decoding import Sampler, Search
from metarnn.graph.files import write
from metarnn.report.attention import alignment
from metarnn.runs import translation
from metarnn.runs.tasks import open_run, refuse_use
from metarnn.tasks.language import UNK, Vocabulary
from metarnn.tasks.translation import EncoderDecoder, Translation
from metarnn.tasks.translation import translate as find
from metarnn.training.progress import for_output, progress
from metarnn.training.world import find_device

PORTION = 16  # batches that are read before the first is written, to sort sentences by length


def translate(
    run: Path,
    /,
    beam: int = 0,
    nbest: int = 1,
    length_penalty: float | None = None,
    coverage_penalty: float = 0.0,
    min_length: int = 0,
    max_length: int = 0,
    no_repeat: int = 0,
    groups: int = 1,
    diversity: float = 0.5,
    prefix: str = "",
    sample: bool = False,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    copy_unknown: bool = False,
    batch: int = 64,
    pictures: Path | None = None,
    device: str = "auto",
) -> None:
    """Translate standard input, a sentence a line, to standard output.

    With --nbest, each line is the number of the sentence, the score and a translation, with tabs
    between them. An empty line stays one.

    echo "the 3rd of May 1999" | metarnn translate runs/translation --beam 5 --nbest 3

    metarnn translate runs/translation < new.de > new.en

    Args:
        run: the run folder
        beam: width of the search, 1 for greedy; by default what the run was tested with
        nbest: how many translations of each sentence
        length_penalty: rank by log p / length^this; by default as the run was tested
        coverage_penalty: on what of the source was never attended to
        min_length: fewest tokens
        max_length: most tokens; 0 as the run has it
        no_repeat: no so many tokens in a row come twice; 0 for no such rule
        groups: diverse beams: groups that share the beam, each avoiding what others chose
        diversity: how much they avoid it
        prefix: what every translation begins with
        sample: draw translations instead of searching for the most probable, --nbest of each
        temperature: below 1 for the probable, above for the daring
        top_k: draw from so many tokens at most; 0 for all
        top_p: draw from the fewest tokens that together have this probability
        seed: of what is drawn
        copy_unknown: write the word attended to in the place of one that is unknown (words only)
        batch: sentences side by side: the speed, not the result
        pictures: a folder for pictures of attention, one a sentence
        device: where to compute: auto, cpu, cuda
    """
    opened = open_run(run)
    if not isinstance(opened.config, translation.Config):
        refuse_use(run, "a translator", opened.entry)
    config = opened.config
    search = replace(
        translation.search(config),
        width=nbest if sample else beam or max(config.beam, nbest),
        nbest=nbest,
        length_penalty=config.length_penalty if length_penalty is None else length_penalty,
        coverage_penalty=coverage_penalty,
        min_length=min_length,
        max_length=max_length or config.max_length,
        no_repeat=no_repeat,
        groups=groups,
        diversity=diversity if groups > 1 else 0.0,
        sampler=Sampler(temperature, top_k, top_p) if sample else None,
        seed=seed,
    )
    place = find_device(device)
    model = translation.ENTRY.model(config, opened.folder)
    opened.weights(model)
    vocabularies = translation.vocabularies(opened.folder)
    if pictures is not None:
        if model.attention is None:
            check.refuse("pictures", str(pictures), "nothing: this model attends not")
        pictures.mkdir(parents=True, exist_ok=True)
    sentences = _sentences(config.lowercase)
    translations = _translations(
        model.to(place), vocabularies, sentences, search, batch, prefix, copy_unknown
    )
    for number, (sentence, found) in enumerate(translations):
        for one in found:
            line = one.text if nbest == 1 else f"{number}\t{one.score:.6f}\t{one.text}"
            print(for_output(line))
        sys.stdout.flush()
        if pictures is not None and found[0].tokens:
            write(
                pictures / f"{number}.svg",
                alignment(model, vocabularies, sentence, found[0]),
            )


def _sentences(lowercase: bool) -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise ValueError(f"line {number} of the input is no UTF-8") from None
        yield text.lower() if lowercase else text


def _translations(
    model: EncoderDecoder,
    vocabularies: tuple[Vocabulary, Vocabulary],
    sentences: Iterable[str],
    search: Search,
    batch: int,
    prefix: str,
    copy_unknown: bool,
) -> Iterator[tuple[str, list[Translation]]]:
    """Sentences with their translations, in their order, a portion at a time."""
    done, empty, unknown, show = 0, 0, 0, progress()
    while portion := list(islice(sentences, PORTION * batch)):
        found = find(
            model,
            *vocabularies,
            portion,
            search,
            batch=batch,
            prefixes=[prefix] * len(portion) if prefix else None,
            copy_unknown=copy_unknown,
            first=done,
        )
        yield from zip(portion, found, strict=True)
        done += len(portion)
        empty += portion.count("")
        unknown += sum(int((vocabularies[0].encode(text) == UNK).sum()) for text in portion)
        if done > PORTION * batch or len(portion) == PORTION * batch:
            show.say(f"{done:,} sentences")
    if empty or unknown:
        show.say(f"{done:,} sentences, {empty:,} of them empty, {unknown:,} unknown tokens")
