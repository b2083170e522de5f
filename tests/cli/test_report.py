"""`metarnn report`: from run folders to a page."""

import json
import shutil
from pathlib import Path

import pytest

from metarnn.cli.main import main
from metarnn.report import looking as look
from metarnn.report import page as pages
from metarnn.report import sections
from metarnn.report.write import write_report
from tests.helpers.page import Page
from tests.helpers.study import HOSTILE, UNITS, dump, make_study

TEXT = f"the quick brown fox {HOSTILE} jumps over the lazy dog & more.\n" * 40
LM = [
    "--embedding", "4", "--width", "8", "--batch", "4", "--length", "16", "--steps", "6",
    "--validate-every", "3", "--log-every", "2", "--device", "cpu", "--engine", "eager",
    "--split", "80/10/10",
]  # fmt: skip


def train(task, out, *flags):
    assert main(["train", task, "--out", str(out), *map(str, flags)]) == 0
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def run(folder):
    """A language model with generated weights."""
    (folder / "text.txt").write_text(TEXT)
    flags = ["--model", "meta", "--cell", "gru", "--context", "step"]
    return train("lm", folder / "meta", "--data", folder / "text.txt", *LM, *flags)


@pytest.fixture(scope="module", autouse=True)
def _short():
    """Sequences long enough to show that it works."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look, "LENGTH", 12)
        yield


@pytest.fixture(scope="module")
def study(folder, run):
    return make_study(folder / "study", run)


@pytest.fixture(scope="module")
def page(study):
    return read(study)


def read(*folders, out=None) -> Page:
    return Page(write_report(folders, out).read_text(encoding="utf-8"))


@pytest.mark.medium
def test_a_study_has_every_section(page):
    assert page.sections == [
        "verdict", "rules", "learning", "cell", "search", "work", "theta", "gates", "reach",
        "speed", "origin",
    ]  # fmt: skip
    assert "missing" not in page.ids
    assert len(set(page.ids)) == len(page.ids)
    assert "GRU wins, but not by much." in page.words
    for unit in UNITS:
        assert unit in page.words
    for fact in ("ab" * 32, "torch 2.13.0", "2 cores", "61.2 s", "metarnn learn"):
        assert fact in page.words


@pytest.mark.medium
def test_nothing_is_fetched_and_only_our_script_runs(page):
    assert page.fetched == ["data:,"]
    own = Path(pages.__file__).with_name("page.js").read_text(encoding="utf-8")
    assert page.scripts == [own]
    assert HOSTILE in page.words  # from data and verdict, as text


@pytest.mark.medium
def test_links_lead_to_sections_and_pictures_have_words(page):
    links = [a["href"] for name, a in page.tags if name == "a"]
    assert links == [f"#{name}" for name in page.sections]
    pictures = [a for name, a in page.tags if name == "svg"]
    assert pictures
    assert all(a.get("role") == "img" for a in pictures)
    names = [name for name, _ in page.tags]
    assert names.count("title") > len(pictures)  # one each, and that of the page


@pytest.mark.medium
def test_several_runs_stand_side_by_side(run, folder, monkeypatch):
    plain = train("lm", folder / "plain", "--data", folder / "text.txt", *LM, "--cell", "lstm")
    monkeypatch.chdir(folder)
    assert main(["report", str(plain), str(run)]) == 0
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    assert page.sections[0] == "runs"
    assert "Of 2 runs, " in page.words
    curves = next(a["data-plot"] for _, a in page.tags if "data-plot" in a)
    assert [each["name"] for each in json.loads(curves)["series"]] == ["plain", "meta"]


def test_two_runs_of_one_name_are_told_apart(tmp_path):
    for k in "ab":
        make_study(tmp_path / k / "study")
    page = read(tmp_path / "a" / "study", tmp_path / "b" / "study", out=tmp_path / "page.html")
    for k in "ab":
        assert str(tmp_path / k / "study") in page.words


@pytest.mark.medium
def test_a_study_whose_best_is_plain_shows_the_generated_weights_of_its_rival(run, tmp_path):
    study = make_study(tmp_path / "study")
    shutil.copytree(run, study / "verdict" / "meta-gru-0", dirs_exist_ok=True)
    page = read(study)
    assert "theta" in page.sections
    assert "Of meta-gru-0" in page.words


TASKS = {
    "translation": ("--data", "pairs.tsv", "--width", "8", "--embedding", "4", "--max-length", "9"),
    "classification": ("--data", "digits", "--width", "6"),
    "forecasting": ("--width", "6"),
}
SHORT = ("--batch", "4", "--steps", "2", "--validate-every", "2", "--device", "cpu")
LONGER = {"translation": ("--steps", "150", "--validate-every", "150", "--lr", "0.02")}  # to say it
SHOWN = {
    "translation": ("reference", "Each row is a token that was written"),
    "classification": ("True class down", "Expected calibration error"),
    "forecasting": ("The band is from 10 % to 90 %",),
}


@pytest.mark.medium
@pytest.mark.parametrize("task", TASKS)
def test_each_task_shows_what_it_is_judged_by(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pairs.tsv").write_text("".join(f"nr {k}\t{k}\n" for k in range(100)))
    page = read(train(task, tmp_path / "run", *TASKS[task], *SHORT, *LONGER.get(task, ())))
    assert "work" in page.sections
    assert {"gates", "reach"} <= {*page.sections}
    assert "missing" not in page.ids, page.words[-500:]
    for words in SHOWN[task]:
        assert words in page.words


@pytest.mark.medium
@pytest.mark.parametrize(
    ("labels", "words"), [("morse", "answer"), ("tones", "holds"), ("shapes", "True class down")]
)
def test_each_kind_of_labels_has_a_table(labels, words, tmp_path):
    run = train("classification", tmp_path / "run", "--data", labels, "--width", "4", *SHORT)
    assert words in read(run).words


@pytest.mark.medium
def test_a_model_whose_data_are_gone_still_speaks(run, folder, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    config = (tmp_path / "run" / "config.toml").read_text().replace("text.txt", "gone.txt")
    edited = [line for line in config.splitlines() if not line.startswith("blake2b")]
    (tmp_path / "run" / "config.toml").write_text("\n".join(edited))
    page = read(tmp_path / "run")
    assert "work" in page.sections
    assert "reach" not in page.sections
    assert "gone.txt" in page.words


BROKEN = {
    "model.safetensors": ("the model", b"torn"),
    "vocabulary.json": ("vocabulary.json", b"{"),
    "config.toml": ("config.toml", b"task = 3\nwidth = 'x"),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_damaged_is_named_on_the_page(name, study, tmp_path, capsys):
    shutil.copytree(study, tmp_path / "study")
    told, content = BROKEN[name]
    (tmp_path / "study" / name).write_bytes(content)
    assert main(["report", str(tmp_path / "study")]) == 0
    page = Page((tmp_path / "study" / "report.html").read_text(encoding="utf-8"))
    assert told in page.words.partition("Not shown")[2]
    assert "origin" in page.sections
    assert "Traceback" not in capsys.readouterr().err


def test_a_unit_that_blew_up_is_in_the_table(tmp_path):
    study = make_study(tmp_path / "study")
    known = json.loads((study / "verdict.json").read_text())
    known["rows"][0]["scores"][0]["nll"] = float("inf")
    dump(study / "verdict.json", known)
    page = read(study)
    assert "missing" not in page.ids
    assert "not finite" in page.words


def test_a_section_that_fails_is_named_and_the_others_stand(tmp_path, monkeypatch):
    def fail(every):
        raise ZeroDivisionError("nobody thought of it")

    monkeypatch.setattr(sections, "learning", fail)
    page = read(make_study(tmp_path / "study"))
    assert "learning" not in page.sections
    assert {"verdict", "cell", "search", "speed", "origin"} <= {*page.sections}
    assert "nobody thought of it" in page.words.partition("Not shown")[2]


@pytest.mark.parametrize("content", [{}, {"data": 3, "seeds": {}, "stages": 1, "versions": []}])
def test_a_study_that_has_hardly_begun_has_a_page(content, tmp_path):
    dump(tmp_path / "learn.json", {"task": "lm", **content})
    page = read(tmp_path)
    assert page.sections == ["origin"]


def test_a_task_that_is_not_known_is_shown_as_far_as_it_goes(tmp_path):
    (tmp_path / "config.toml").write_text('task = "chess"\nwidth = 3\n')
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "valid_elo": 2.0}\n')
    assert read(tmp_path).sections == ["learning", "origin"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere does not exist"),
        ([], "runs"),
        (["."], "is no run: there is neither"),
    ],
)
def test_what_is_no_run_is_refused_in_a_line(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err + said.out
    assert "Traceback" not in said.err


def test_a_place_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    dump(tmp_path / "learn.json", {"task": "lm"})
    with pytest.raises(ValueError, match="a file in a folder that exists"):
        write_report([tmp_path], tmp_path / "nowhere" / "page.html")
