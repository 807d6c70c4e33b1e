"""The examples of docs/extending.md, put where they say into a copy of the package, and seen on a board."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import spearmanr

import stsbench
from stsbench.core.catalogue import Catalogue
from stsbench.encoders.described import find_family
from tests.cli.commands import Outcome, python
from tests.training.students import sentences

PACKAGE = Path(stsbench.__file__).parent
ROOT = PACKAGE.parent
TEXT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
ROWS = "a\tb\tscore\nit rains\tit rains a lot\t4\nthe sun is out\tit snows\t1\nwind today\ta windy day\t5\nfog\tno fog\t2\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.S | re.M)


def put(copy: Path, block: str) -> None:
    """Put a block of code where its first line says: in a new file, before a name, or at the end of a table."""
    first, code = block.split("\n", 1)
    match = re.fullmatch(r"# (\S+): (?:a (new) file|(before|in) (\w+))", first)
    assert match, first
    path = copy / match[1]
    if match[2]:
        assert not path.exists()
        path.write_text(code, encoding="utf-8")
        return
    text = path.read_text(encoding="utf-8")
    imports, code = re.fullmatch(r"((?:from [^\n]*\n)*)\s*(.*)", code, re.S).groups()  # type: ignore[union-attr]
    text = text.replace("\nfrom stsbench.", f"\n{imports}from stsbench.", 1)
    (start,) = [
        found.start() for found in re.finditer(rf"^{match[4]}\b.* = \w*[{{(]\n", text, re.M)
    ]
    ends = [found for sign in ("\n}\n", "\n)\n") if (found := text.find(sign, start)) >= 0]
    at = start if match[3] == "before" else min(ends) + 1
    end = ",\n" if match[3] == "in" else "\n\n\n"
    path.write_text(f"{text[:at]}{code.rstrip()}{end}{text[at:]}", encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, masked_lm: Path) -> Path:
    """A copy of the package with every example in it, beside cards, data, text and a masked language model."""
    folder = tmp_path_factory.mktemp("extended")
    copy = folder / "checkout"
    shutil.copytree(PACKAGE, copy / "stsbench", ignore=shutil.ignore_patterns("*.pyc.*", "*.tmp.*"))
    for kind in ("tasks", "baselines", "trainers"):
        (copy / kind).symlink_to(ROOT / kind)
    for block in blocks("python"):
        put(copy if block.startswith("# stsbench/") else folder, block)
    for card in blocks("toml"):
        path = folder / card.split("\n", 1)[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(card.replace("FOLDER", str(masked_lm)), encoding="utf-8")
    (folder / "data" / "weather").mkdir(parents=True)
    (folder / "data" / "weather" / "test.tsv").write_text(ROWS, encoding="utf-8")
    pairs = zip(sentences(40, seed=1), sentences(40, seed=2), strict=True)
    (folder / "pairs.csv").write_text("anchor,positive\n" + "".join(f"{a},{b}\n" for a, b in pairs))
    return folder


def run(place: Path, command: str) -> Outcome:
    program, *arguments = shlex.split(command)
    assert program == "stsbench"
    return python("-m", "stsbench", *arguments, cwd=place, path=place / "checkout")


def test_all_of_them_are_seen_on_a_board(place):
    (commands,) = blocks("sh")
    trained, scored, board = (run(place, command) for command in commands.splitlines())
    assert trained.code == 0, trained.err
    assert (scored.code, board.code) == (0, 0), scored.err + board.err
    for encoder in ("smallest", "letters", "pull"):
        assert len(re.findall(rf"^{encoder}: -?\d+\.\d\d$", board.out, re.M)) == 3, board.out


def test_a_pair_scorer_of_a_users_own_is_scored(place):
    scored = run(place, "stsbench run shared_words:SharedWords --tasks quickstart-en --bare")
    assert scored.code == 0, scored.err
    split: Any = stsbench.load_task("quickstart-en").load("test")
    shares = [
        len({*a.split()} & {*b.split()}) / len({*a.split()} | {*b.split()})
        for a, b in zip(split.sentences1, split.sentences2, strict=True)
    ]
    assert scored.out == f"{100 * spearmanr(shares, split.gold).statistic:.2f}\n"


def test_a_family_of_a_users_own_is_read(place):
    family = Catalogue(place).families()["weather-models"]
    assert find_family("My-Group/weather-small", Catalogue(place)) == family
    assert find_family("my-group/other", Catalogue(place)).source == ""


def test_a_classifier_that_is_not_there_offers_the_nearest(place):
    command = (
        "stsbench run --encoder smallest --tasks quickstart-probe --protocol nearest-mien --cards ."
    )
    refused = run(place, command)
    assert refused.code == 2
    assert refused.err.startswith(
        "stsbench: unknown protocol 'nearest-mien'; did you mean 'nearest-mean'?"
    )


def test_the_table_of_costs_names_files_that_are_there():
    named = re.findall(r"`(stsbench/[\w/]+\.py)`", TEXT)
    assert named
    assert all((ROOT / name).is_file() for name in named)
