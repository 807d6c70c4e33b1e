"""Data files with every fault there is: one line naming the file, and nothing scored."""

from __future__ import annotations

import re

import pytest

from tests.cli.commands import (
    GOLD,
    HASHED,
    PAIR_TABLE,
    PAIRS,
    SEMEVAL,
    TABLE,
    Command,
    Own,
    make_own,
    sha256,
    write,
)


def run(stsbench: Command, own: Own, task: str) -> str:
    return stsbench.refused("run", *HASHED, "--tasks", task, *own.options())


Faults = dict[str, tuple[dict[str, str | bytes], str]]
SEMEVAL_FAULTS: Faults = {
    "a column is missing": (
        {"in_txt": PAIRS.replace("\t", " ")},
        "in.txt: line 1: 1 columns, column 1 is missing",
    ),
    "fewer gold scores": ({"gs_txt": "5\n3.5\n2\n"}, "in.txt: 4 pairs, but gs.txt has 3 lines"),
    "a pair ungraded": (
        {"gs_txt": "5\n\n2\n0.5\n"},
        "rows 3, the card says 4; use the files of the release",
    ),
    "Latin-1": ({"in_txt": PAIRS.encode("latin-1")}, "in.txt: line 3: not valid UTF-8 (byte 0xe9)"),
    "a tab too many": (
        {"in_txt": PAIRS.replace("a dog", "a\tdog")},
        "in.txt: differs from the file that its card nam",
    ),
    "CRLF": (
        {"in_txt": PAIRS.replace("\n", "\r\n")},
        "differs from the file that its card names (its line ends",
    ),
    "empty gold": ({"gs_txt": ""}, "gs.txt: the file is empty; restore it"),
    "another score": (
        {"gs_txt": GOLD.replace("5\n3.5", "4\n3.5")},
        "gs.txt: differs from the file that its card name",
    ),
}


@pytest.mark.parametrize("fault", SEMEVAL_FAULTS)
def test_faults_of_semeval_files(stsbench, tmp_path, fault):
    files, message = SEMEVAL_FAULTS[fault]
    assert message in run(stsbench, make_own(tmp_path, **files), "semeval")
    assert not list((tmp_path / "results").glob("*/*"))


TABLE_FAULTS: Faults = {
    "a column is mistyped": (
        {"table_tsv": TABLE.replace("score", "scores")},
        "has s1, s2, scores); did you mean 'sco",
    ),
    "no rows": ({"table_tsv": "s1\ts2\tscore\n"}, "table.tsv: no rows below the header"),
    "a row too many": (
        {"table_tsv": TABLE + "a\tb\t1\n"},
        "rows 5, the card says 4; use the files of the release",
    ),
    "other characters": (
        {"table_tsv": TABLE.replace("cat", "cats", 1)},
        "characters [34, 41], the card says [33, 41]",
    ),
    "another mean": (
        {"table_tsv": TABLE.replace("\t2\n", "\t3\n")},
        "mean gold score 3.000000, the card says 2.75000",
    ),
}


@pytest.mark.parametrize("fault", TABLE_FAULTS)
def test_faults_of_a_table(stsbench, tmp_path, fault):
    files, message = TABLE_FAULTS[fault]
    assert message in run(stsbench, make_own(tmp_path, **files), "table")


def test_a_missing_file_and_a_folder_in_its_place(stsbench, tmp_path):
    own = make_own(tmp_path)
    path = own.data / "mine" / "table.tsv"
    path.unlink()
    error = run(stsbench, own, "table")
    assert error.startswith(
        f"table: no data for table (test): it is local only; pass --data DIR (or set STSBENCH_DATA) with {path}"
    )
    path.mkdir()
    assert run(stsbench, own, "table") == error


UNPINNED = PAIR_TABLE.replace(f', sha256 = "{sha256(TABLE)}"', "")
LOOSE_FAULTS: dict[str, tuple[str, str, str]] = {
    "a tab too many": (
        UNPINNED,
        TABLE.replace("\t5\n", "\t5\tx\n"),
        "table.tsv: line 2: 4 fields, expected 3",
    ),
    "gold beyond its range": (
        "gold_range = [1, 5]\n" + UNPINNED,
        TABLE,
        "row 4: gold score 0.5 is not in the card's",
    ),
    "lines too few": (
        UNPINNED.replace('"table.tsv"', '"table.tsv", rows = 6'),
        TABLE,
        "table.tsv: lines 5, the card",
    ),
    "a mean that is nan": (
        UNPINNED.replace("2.75", "nan"),
        TABLE,
        "key 'splits.test.mean': nan and inf are not allow",
    ),
    "a parameter that is inf": (
        UNPINNED.replace("header = true", "header = true, x = [inf]"),
        TABLE,
        "key 'local.params.x': nan and inf are not allowed",
    ),
}


@pytest.mark.parametrize("fault", LOOSE_FAULTS)
def test_faults_of_a_table_whose_card_gives_no_hash(stsbench, tmp_path, fault):
    card, content, message = LOOSE_FAULTS[fault]
    own = make_own(tmp_path, table_tsv=content)
    write(own.cards / "tasks" / "table.toml", card)
    assert message in run(stsbench, own, "table")


def test_lines_are_as_the_card_says_whether_or_not_the_last_one_ends(stsbench, tmp_path):
    own = make_own(tmp_path, table_tsv=TABLE.removesuffix("\n"))
    write(
        own.cards / "tasks" / "table.toml", UNPINNED.replace('"table.tsv"', '"table.tsv", rows = 5')
    )
    (result,) = stsbench.json("run", *HASHED, "--tasks", "table", *own.options())["results"]
    assert (result["task"], result["n"]) == ("table", 4)


OWN_READER = """
import numpy as np
from stsbench.data.splits import PairSplit

def read(files, *, gold: list[float], short: int = 0):
    texts = [f"sentence {i}" for i in range(4)]
    return PairSplit(sentences1=texts, sentences2=texts[short:], gold=np.array(gold), subset=[""] * 4)

def nothing(files):
    return None
"""


@pytest.mark.parametrize(
    ("reader", "params", "message"),
    [
        (
            "own_readers:read",
            "{gold = [1.0, 2.0, 3.0, 1e400]}",
            "key 'local.params.gold': nan and inf are not allowed",
        ),
        (
            "own_readers:read",
            "{gold = [1.0, 2.0]}",
            "gold is float64 of shape (2,), not float64 of shape (4,)",
        ),
        (
            "own_readers:read",
            "{gold = [1.0, 2.0, 3.0, 4.0], short = 1}",
            "sentences2 has 3 rows, 4 are needed",
        ),
        (
            "own_readers:nothing",
            "{}",
            "the reader returned a NoneType, a split is one of PairSplit",
        ),
    ],
)
def test_what_a_readers_own_code_returns_is_checked(
    stsbench, tmp_path, monkeypatch, reader, params, message
):
    own = make_own(tmp_path)
    write(tmp_path / "code" / "own_readers.py", OWN_READER)
    monkeypatch.syspath_prepend(tmp_path / "code")
    card = re.sub("params = .*", f"params = {params}", UNPINNED.replace("pair_table", reader))
    write(own.cards / "tasks" / "table.toml", card)
    assert message in run(stsbench, own, "table")


CARD_FAULTS: dict[str, tuple[str | bytes, str]] = {
    "an unknown key": (
        "paht = 1\n" + PAIR_TABLE,
        "tasks/table.toml: unknown key 'paht'; did you mean 'path'?",
    ),
    "a doubled key": (
        'name = "Twice"\n' + PAIR_TABLE,
        "tasks/table.toml: not valid TOML: Cannot overwrite a value (a",
    ),
    "a missing key": (
        PAIR_TABLE.replace('paper = "none"\n', ""),
        "tasks/table.toml: key 'paper' is missing",
    ),
    "a wrong type": (
        PAIR_TABLE.replace("n = 4", 'n = "4"'),
        "tasks/table.toml: key 'splits[...].n': expected a whole",
    ),
    "no TOML": (PAIR_TABLE + "[[[", "tasks/table.toml: not valid TOML: "),
    "no UTF-8": (
        (PAIR_TABLE + "# é").encode("latin-1"),
        "tasks/table.toml: not valid UTF-8 (byte ",
    ),
    "an unknown reader": (
        PAIR_TABLE.replace("pair_table", "pairtable"),
        "unknown reader 'pairtable'; did you mean 'p",
    ),
    "an unknown parameter": (
        PAIR_TABLE.replace("gold =", "glod ="),
        "task table: [params]: unknown key 'glod'; did y",
    ),
    "a missing parameter": (
        PAIR_TABLE.replace('sentence1 = "s1", ', ""),
        "table.tsv: one sentence of the pair is giv",
    ),
    "a parameter of a wrong type": (
        PAIR_TABLE.replace("header = true", "header = 1"),
        "key 'header': expected true o",
    ),
    "an unknown evaluator": (
        PAIR_TABLE.replace('"sts"', '"stss"'),
        "unknown evaluator 'stss'; did you mean 'sts'",
    ),
    "no such split": (
        'score_split = "dev"\n' + PAIR_TABLE,
        "table.toml: score_split 'dev' is not one of test",
    ),
    "a file too few": (
        SEMEVAL.split(", {path")[0] + "]",
        "reader 'semeval' takes input and gold files in turn",
    ),
}


@pytest.mark.parametrize("fault", CARD_FAULTS)
def test_faults_of_a_task_card(stsbench, tmp_path, fault):
    own = make_own(tmp_path)
    text, message = CARD_FAULTS[fault]
    write(own.cards / "tasks" / "table.toml", text)
    assert message in run(stsbench, own, "table")
