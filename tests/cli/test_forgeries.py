"""Results that were tampered with or broken: refused by run, leaderboard, export, compare and check alike."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stsbench.results.folder import read_result
from tests.boards.scored import drawn, sts, write as write_results
from tests.cli.commands import HASHED, QUICK, Command
from tests.forgeries import BY_COLUMNS, FEW, FORGERIES, cut, items_of_others

OF_FILE = {name: FORGERIES[name] for name in FEW}
EVERY = {**OF_FILE, **BY_COLUMNS}
ALL = pytest.mark.parametrize(("forge", "message"), OF_FILE.values(), ids=OF_FILE)
HELD = pytest.mark.parametrize(("forge", "message"), EVERY.values(), ids=EVERY)


@pytest.fixture
def path(stsbench: Command) -> Path:
    """A result of encoder ``a`` on sts12; its neighbour on sts13 and an encoder ``b`` stay as they are."""
    gold, similarity = drawn(1, 200)
    tasks = ("sts12", "sts13")
    for encoder, shift in (("a", 0.0), ("b", 0.5)):
        worse = similarity + shift * drawn(2, 200)[1]
        write_results(Path("results"), *(sts(encoder, task, gold, worse) for task in tasks))
    shutil.copytree("results", "old")
    return next(Path("results/a").glob("sts12.*.json"))


def names_file_and_field(err: str, path: Path, message: str) -> bool:
    """Whether stderr is one line that names the file and what is wrong."""
    stem = path.name.removesuffix(".json")
    assert (
        err.count("\n") == 1 and err.startswith("stsbench: ") and stem in err and len(err) < 800
    ), err
    return any(part in err for part in message.split("|"))


@ALL
def test_the_leaderboard_shows_the_rest(stsbench, path, forge, message):
    forge(path)
    code, out, err = stsbench("leaderboard", "--suite", "sts", "--format", "markdown")
    assert code == 0 and names_file_and_field(err, path, message), err
    a, b = (
        next(line for line in out.splitlines() if line.startswith(f"| {name} ")) for name in "ab"
    )
    assert a.count(".") == b.count(".") - 1


@HELD
def test_export_writes_the_rest(stsbench, path, forge, message):
    forge(path)
    code, _, err = stsbench("export", "--format", "mteb", "--out", "x")
    assert code == 0 and names_file_and_field(err, path, message), err
    names = sorted(file.name for file in Path("x").rglob("*.json") if "__a" in str(file))
    assert names == ["STS13.json", "model_meta.json"]


@HELD
def test_compare_compares_the_rest(stsbench, path, forge, message):
    forge(path)
    code, out, err = stsbench("compare", "a", "b")
    assert code == 0 and names_file_and_field(err, path, message), err
    assert "sts13" in out and "every encoder: sts12" in out


@HELD
def test_run_scores_it_again(stsbench, own, forge, message):
    command = ("run", *HASHED, *QUICK, "--json")
    before = stsbench.json(*command[:-1])["results"][0]
    path = next(Path("results/hashed").glob("*.json"))
    forge(path)
    code, out, err = stsbench(*command)
    assert code == 0 and names_file_and_field(err, path, message), err
    (result,) = json.loads(out)["results"]
    assert result["score"] == before["score"] == read_result(path).score
    assert stsbench.json(*command[:-1])["results"] == [result]


def test_a_check_of_nothing_but_broken_files_is_reported(stsbench, path):
    for one in Path("old/a").glob("*.json"):
        cut(one)
    code, out, _ = stsbench("check", "results/a", "--against", "old", "--junit", "j.xml")
    assert code == 2 and "2 cells: 2 unreadable" in out
    assert ElementTree.parse("j.xml").getroot()[0].get("errors") == "2"
    # Another encoder's broken files, and another task's, are none of this check's.
    assert (
        stsbench("check", "results", "--against", "old", "-e", "b", "--against-encoder", "b").code
        == 0
    )
    assert stsbench("check", "results/b", "--against", "old").code == 0
    assert stsbench("check", "results", "--against", "old", "-e", "a").code == 2
    shutil.copytree("results", "good")
    cut(path)
    assert stsbench("check", "results", "--against", "good", "--tasks", "sts13").code == 0
    assert stsbench("check", "results", "--against", "good", "--tasks", "sts12").code == 2
    assert stsbench("check", "results", "--against", "published").code == 2


def test_no_lock_is_made_beside_a_broken_file(stsbench, path):
    cut(path)
    refusal = stsbench.refused("lock", "--out", "lock.json")
    assert (
        path.name in refusal
        and "repair or remove the file" in refusal
        and not Path("lock.json").exists()
    )
    assert "locked 2 cells" in stsbench.fine("lock", "--out", "lock.json", "-e", "b")


def test_ranks_leave_out_what_has_other_columns(stsbench, path):
    items_of_others(path)
    code, _, err = stsbench("leaderboard", "--ranks", "--suite", "sts", "--format", "markdown")
    assert code == 0 and "is not what" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('suite = "stss"', "key 'suite': 'stss' is not a suite; did you mean 'sts'"),
        ('suite = "sts"\ndecimals = -1', "t.toml: key 'decimals': -1 is not from 0 to 12"),
        ('suite = "sts"\ndecimals = 1000000000', "key 'decimals': 1000000000 is not from 0 to 12"),
        ('suite = "sts"\nprotocol = "unknown"', "'sts12' has neither a metric nor a protocol"),
        (
            'columns = [{average_of = "t.toml"}]',
            "'average_of' is 't.toml'; it takes a table of the project's",
        ),
    ],
)
def test_a_wrong_table_of_ones_own_is_one_line(stsbench, text, message):
    protocol = "" if "protocol" in text else 'protocol = "simcse"\n'
    Path("t.toml").write_text(f'title = "x"\n{protocol}{text}\n[board]\n')
    assert message in stsbench.refused("leaderboard", "--table", "t.toml")
    assert "unknown table" in stsbench.refused("leaderboard", "--table", "x" * 300 + ".toml")
