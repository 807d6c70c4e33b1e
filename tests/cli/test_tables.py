"""``stsbench leaderboard --table``: papers' tables from what is shipped, and from results where there are some."""

import csv
import io
import re

import pytest

from stsbench.boards.published.rows import list_tables
from stsbench.results.folder import write_result
from tests.made import make_result

SCORES = {
    "sts12": 0.69,
    "sts13": 0.82,
    "sts14": 0.75,
    "sts15": 0.81,
    "sts16": 0.79,
    "stsb": 0.77,
    "sickr": 0.73,
}


@pytest.fixture
def folder(tmp_path):
    for task, score in SCORES.items():
        write_result(make_result("simcse-bert-base", task, score), tmp_path / "results")
    return tmp_path / "results"


def test_all_tables_are_listed(stsbench):
    out = stsbench.fine("list", "tables")
    for name in list_tables():
        assert f"\n{name} " in out
    listed = stsbench.json("list", "tables")
    assert [one["table"] for one in listed] == list_tables()
    (simcse,) = [one for one in listed if one["table"] == "simcse-5"]
    assert simcse["source"] == "SimCSE table-5"


def test_a_wide_table_comes_in_parts_that_lose_no_column(stsbench):
    out = stsbench.fine("leaderboard", "--table", "declutr-2")
    assert out.count("\nencoder ") == 3
    line = [text.split() for text in out.splitlines() if text.startswith("DeCLUTR-small")]
    assert len([word for words in line for word in words[1:]]) == 21


def test_parts_of_unlike_columns_fit_into_the_terminal(stsbench):
    words = ("--suite", "mteb-nld-v1-sts", "--show", "published", "--top", "3")
    out = stsbench.fine("leaderboard", *words)
    assert max(map(len, out.splitlines())) <= 80


def test_measured_and_published_stand_side_by_side(stsbench, folder):
    out = stsbench.fine("leaderboard", "--table", "simcse-5", "--results", folder)
    after = out[out.index("SimCSE-BERT-base ") :].splitlines()
    assert after[0].split()[1:] == "68.40 82.41 74.38 80.91 78.56 76.85 72.23 76.25".split()
    assert after[1].split() == "measured 69.00 82.00 75.00 81.00 79.00 77.00 73.00 76.57".split()
    assert after[2].split() == "difference +0.60 -0.41 +0.62 +0.09 +0.44 +0.15 +0.77 +0.32".split()
    out = stsbench.fine(
        "leaderboard", "--table", "simcse-5", "--results", folder, "--show", "difference"
    )
    assert "SimCSE-RoBERTa-base" not in out and "-0.41" in out


LOOKS = {
    "markdown": (r"\*\*77.43\*\*", r"<u>73.47</u>", r"\| 82.36\\\* \|"),
    "latex": (r"\\textbf\{77.43\}", r"\\underline\{73.47\}", r"& 82.36\\textsuperscript\{\*\} &"),
    "html": (r"<b>77.43</b>", r"<u>73.47</u>", r"(?<!<b>)(?<!<u>)82.36<"),
}
"""SICK-R of RoBERTa-large: the best and the second best that can be right, and above both a number that cannot."""


@pytest.mark.parametrize(
    ("layout", "show"),
    [("markdown", "both"), ("markdown", "merged"), ("latex", "published"), ("html", "both")],
)
def test_what_cannot_be_right_as_printed_is_never_best(stsbench, layout, show):
    out = stsbench.fine(
        "leaderboard", "--table", "sts-unsupervised", "--show", show, "--format", layout
    )
    for looks in LOOKS[layout]:
        assert re.search(looks, out), looks


@pytest.mark.parametrize("name", ["sts", "sgopt-1", "simcse-5", "bert-flow-2"])
def test_no_table_ranks_a_marked_number(stsbench, name):
    out = stsbench.fine("leaderboard", "--table", name, "--format", "markdown")
    assert "\\* |" in out and not re.search(r"(\*\*|</u>)\\\*", out)


def test_a_weighted_mean_on_the_unsupervised_board_is_not_ranked(stsbench):
    out = stsbench.fine("leaderboard", "--table", "sts-unsupervised", "--format", "markdown")
    assert (
        "| BERT-Whitening†‡§ | 64.34 | 74.60 | 69.64 | 74.68 | 75.90 | 72.48 | 60.80 | 70.35 |"
        in out
    )
    assert out.count("BERT-Whitening†‡§") == 1
    assert "(wmean); not ranked" in out


def test_the_row_with_all_tasks_counts_where_the_source_prints_the_average_alone(stsbench):
    out = stsbench.fine("leaderboard", "--table", "sts", "--format", "csv")
    (found,) = [
        row for row in csv.DictReader(io.StringIO(out)) if row["row"] == "InfoCSE-BERT-large"
    ]
    assert [found[task] for task in (*SCORES, "average")] == [
        *("71.89", "86.17", "77.72", "86.2", "81.29", "83.16", "74.84", "80.18")
    ]


def test_a_table_of_ones_own(stsbench, tmp_path):
    text = 'title = "Mine"\npaper = "sgopt"\ntable = "table-2"\nprotocol = "semeval"\ncolumns = ["sts14-es"]\n'
    (tmp_path / "mine.toml").write_text(
        f'{text}[[groups]]\nrows = ["mBERT SG"]\n', encoding="utf-8"
    )
    assert "82.09" in stsbench.fine("leaderboard", "--table", "mine.toml")
