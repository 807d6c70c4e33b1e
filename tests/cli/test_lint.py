"""``stsbench lint``, and what `new task` and `run` say of data without being asked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stsbench.data.quality import CHECKS
from stsbench.numbers.dependence import sentence_columns
from stsbench.results.folder import read_folder, read_item_columns
from stsbench.results.record import Result
from tests.cli.commands import Command

WORDS = "cat dog bird fish horse cow sheep goat duck hen".split()
ADJECTIVES = "good fine great nice well bad poor awful weak dull".split()


def reviews(n: int, start: int = 0) -> list[str]:
    """Rows of a text and its label, which is that of an adjective; each text is another one."""
    return [
        f"the {WORDS[row // 10 % 10]} of house {row} is {ADJECTIVES[row % 10]}\t"
        f"{'good' if row % 10 < 5 else 'bad'}\n"
        for row in range(start, start + n)
    ]


def write_table(path: Path, header: str, rows: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(header + "\n" + "".join(rows))


def write_splits(n_leaked: int) -> None:
    """A folder of training and test data; the first texts of both are the same."""
    train, test = reviews(120), reviews(60, start=200)
    write_table(Path("shop/train.tsv"), "text\tlabel", train)
    write_table(Path("shop/test.tsv"), "text\tlabel", [*train[:n_leaked], *test[n_leaked:]])


def write_pairs(path: str) -> None:
    rows = [f"the {word} sleeps\ta {word} is awake\t{n % 6}\n" for n, word in enumerate(WORDS)]
    swapped = "a dog is awake\tthe dog sleeps\t4\n"
    write_table(Path(path), "s1\ts2\tscore", [*rows, rows[0], swapped])


def score(stsbench: Command, task: str, *more: str) -> Result:
    stsbench.fine("run", "own_encoders:Hashed", "-t", task, "-p", "logreg", *more)
    (result,) = read_folder(Path("results")).results
    return result


def share_right(result: Result, texts: list[str]) -> float:
    """The share of right answers among the items of some texts, by the items of a result."""
    columns = read_item_columns(result)
    right_by_id = dict(zip(columns["sentence1"], columns["correct"], strict=True))
    return float(sum(right_by_id[number] for number in sentence_columns(texts)["sentence1"])) / len(
        texts
    )


def test_a_leak_is_told_of_by_new_task_and_its_score_stands_beside_the_score(stsbench):
    write_splits(n_leaked=35)
    out = stsbench.fine("new", "task", "shop")
    leak = "check the data: test: 35 of 60 items stand in another split too: train 35 (leak)"
    assert leak in out and f"# {leak}\n" in Path("cards/tasks/shop.toml").read_text()
    result = score(stsbench, "shop", "--cards", "cards")
    (clean,) = result.clean
    new_texts = [row.split("\t")[0] for row in reviews(60, start=200)[35:]]
    assert (clean.name, clean.n) == ("without copies", 25)
    assert clean.score == pytest.approx(share_right(result, new_texts), abs=1e-12)
    assert clean.score is not None and clean.interval is not None
    assert clean.interval[0] < clean.score < clean.interval[1]
    assert result.score != clean.score


def test_run_says_it_in_one_line_and_prints_both_scores(stsbench):
    write_splits(n_leaked=35)
    stsbench.fine("new", "task", "shop")
    run = ("run", "own_encoders:Hashed", "-t", "shop", "--cards", "cards", "-p", "logreg")
    code, out, err = stsbench(*run)
    line = "items of shop (test): 35 of 60 stand in another split too: train 35"
    assert (code, err) == (0, f"stsbench: {line}\n")
    (row,) = (line for line in out.splitlines() if line.startswith("  without copies"))
    assert row.split()[-1] == "25"
    assert "without copies: the score of the items that have no copy in another split or" in out
    # Once more, nothing is scored or written again.
    files = {path: path.stat().st_mtime_ns for path in Path("results").rglob("*.json")}
    assert stsbench(*run).out == out
    assert files == {path: path.stat().st_mtime_ns for path in Path("results").rglob("*.json")}
    # Without the leak there is neither a line nor a second score.
    write_splits(n_leaked=0)
    stsbench.fine("new", "task", "shop", "--force")
    code, out, err = stsbench(*run)
    assert (code, err) == (0, "") and "without copies" not in out


def test_copies_across_folds_are_told_of_with_the_score_without_them(stsbench):
    rows = reviews(80)
    write_table(Path("one.tsv"), "text\tlabel", [*rows, *rows[:20]])
    out = stsbench.fine("new", "task", "one.tsv")
    assert "all: 40 of 100 items have a copy, most often in another fold (folds)" in out
    result = score(stsbench, "one", "--cards", "cards")
    (clean,) = result.clean
    alone = [row.split("\t")[0] for row in rows[20:]]
    assert clean.n == 60
    assert clean.score == pytest.approx(share_right(result, alone), abs=1e-12)


def test_a_broken_split_that_no_score_needs_does_not_stop_a_run(stsbench):
    rows = [f"the {word} sleeps\ta {word} is up\t{n % 6}\n" for n, word in enumerate(WORDS)]
    for name in ("train", "test"):
        write_table(Path(f"mine/{name}.tsv"), "s1\ts2\tscore", rows)
    stsbench.fine("new", "task", "mine")
    run = ("run", "own_encoders:Hashed", "-t", "mine", "--cards", "cards")
    assert "items of mine (test): all 10 stand in another split too" in stsbench(*run).err
    Path("mine/train.tsv").write_bytes(b"\xff\0")
    assert stsbench(*run)[::2] == (0, "")


def test_copies_of_our_own_tasks_are_excluded_on_request(stsbench):
    run = ("run", "own_encoders:Hashed", "-t", "quickstart-probe", "-p", "logreg")
    code, out, err = stsbench(*run, "--clean", "copies")
    # It has none.
    assert (code, err) == (0, "") and "without copies" not in out


@pytest.mark.data
def test_our_tasks_are_not_told_of_unless_it_is_asked(stsbench):
    run = ("run", "own_encoders:Hashed", "-t", "trec", "-p", "logreg")
    assert stsbench(*run)[::2] == (0, "")
    code, out, err = stsbench(*run, "--clean", "copies")
    assert code == 0 and "items of trec (test): 11 of 500 stand in another split too" in err
    (row,) = (line for line in out.splitlines() if line.startswith("  without copies"))
    assert row.split()[-1] == "489"


def lint(stsbench: Command, *arguments: str) -> dict[str, Any]:
    code, out, err = stsbench("lint", *arguments, "--json")
    report: dict[str, Any] = json.loads(out)
    assert err == "" and report["exit"] == code
    return report


def test_lint_has_json_and_an_exit_code_for_ci(stsbench):
    write_pairs("pairs.tsv")
    report = lint(stsbench, "pairs.tsv")
    (split,) = report["splits"]
    assert (split["task"], split["split"], split["n"], split["alone"]) == (
        "pairs.tsv",
        "test",
        12,
        8,
    )
    assert {finding["check"]: finding["items"] for finding in split["findings"]} == {
        "contradicting": [1, 11],
        "doubled": [10],
        "swapped": [11],
    }
    assert (report["exit"], split["warnings"]) == (1, 3)
    ignored = lint(
        stsbench, "pairs.tsv", "--ignore", "contradicting,doubled", "--ignore", "swapped"
    )
    assert ignored["exit"] == 0 and ignored["splits"][0]["findings"] == []
    refused = stsbench.refused("lint", "pairs.tsv", "--ignore", "dubled")
    assert "'dubled'" in refused and "doubled" in refused


def test_lint_prints_what_is_wrong_where(stsbench):
    write_pairs("pairs.tsv")
    code, out, err = stsbench("lint", "pairs.tsv")
    assert (code, err) == (1, "")
    words = " ".join(out.split())
    assert (
        "2 of 12 have the same texts and other" in words
        and "3 points apart (pairs.tsv: line 3, pairs.tsv: line 13)" in words
    )
    assert out.startswith("pairs.tsv test: 12 items, 8 without a copy\n  warning: ")
    assert out.endswith("3 warnings, 0 notes\n")
    assert max(map(len, out.splitlines())) <= 80
    markdown = stsbench("lint", "pairs.tsv", "--format", "markdown").out
    assert markdown.splitlines()[2:] == [
        "| pairs.tsv | test | 12 | 8 | contradicting 2, doubled 1, swapped 1 |"
    ]


def test_lint_takes_files_as_new_task_does_beside_tasks(stsbench):
    rows = [f"the {word} sleeps;a {word} is up;{n % 6}\n" for n, word in enumerate(WORDS)]
    rows[3] = rows[3].replace("3\n", "n/a\n")
    write_table(Path("own.csv"), "u;v;rating", rows)
    options = ("own.csv", "--columns", "gold=rating")
    assert "line 5: 'n/a'" in stsbench.refused("lint", *options)
    report = lint(stsbench, "quickstart-en", *options, "--drop-unscored")
    assert [(split["task"], split["n"]) for split in report["splits"]] == [
        ("own.csv", 9),
        ("quickstart-en", 300),
    ]
    # Line 4 of the file is repeated below a row that is left out.
    write_table(Path("own.csv"), "u;v;rating", [*rows, rows[2]])
    words = " ".join(stsbench("lint", *options, "--drop-unscored").out.split())
    assert "1 of 10 repeat an earlier item (own.csv: line 12) [doubled]" in words
    (split,) = lint(stsbench, *options, "--drop-unscored")["splits"]
    (doubled,) = (one for one in split["findings"] if one["check"] == "doubled")
    assert (doubled["items"], doubled["locations"]) == ([9], [f"{Path.cwd()}/own.csv: line 12"])
    # A file has no task's options, and a task none of a file's.
    assert "--columns" in stsbench.refused("lint", "quickstart-en", "--columns", "gold=x")
    assert "quickstart-en" in stsbench.refused("lint", "quickstart-em")
    assert "'gone.csv' does not exist" in stsbench.refused("lint", "gone.csv")
    assert "'html'" in stsbench.refused("lint", "own.csv", "--format", "html")


def test_lint_alone_checks_all_tasks_that_are_on_this_machine(stsbench):
    report = lint(stsbench)
    names = {split["task"] for split in report["splits"]}
    assert names == {"quickstart-en", "quickstart-es-en", "quickstart-probe"}
    assert report["exit"] == 0
    assert [split["findings"] for split in report["splits"]] == [[]] * 4


PAGE = (Path(__file__).parents[2] / "docs" / "data-quality.md").read_text(encoding="utf-8")


def test_the_page_names_every_check_and_its_level():
    rows = re.findall(r"^\| `(\w+)` \| (warning|note) \|", PAGE, re.M)
    assert sorted(rows) == sorted((check.name, check.level) for check in CHECKS)


@pytest.mark.data
def test_the_page_has_what_lint_finds_in_our_tasks(stsbench):
    tasks = ["sts12", "stsb", "sts17-es-en-b", "cr", "trec", "mrpc", "stsb-fr"]
    table = stsbench("lint", *tasks, "--format", "markdown").out.splitlines()
    # Near-duplicates take longer.
    rows = re.sub(r"(, )?near [\d,]+(?= \||,|$)", "", PAGE).replace("| , ", "| ").splitlines()
    assert table[:2] == rows[-86:-84]
    assert len(table) == 15 and set(table) <= set(rows)
