"""Tables and boards of a user's own file: labels, which published row an encoder has, averages, gaps."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from stsbench.boards.published.rows import read_published_rows
from stsbench.boards.tables import published_numbers
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.request import TableRequest
from stsbench.boards.tables.rows import AddedRow
from stsbench.boards.tables.table import AVERAGE, EXACT, Table
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError
from stsbench.results.record import Result
from tests.boards.shown import row, sts
from tests.made import make_result

BOARD = """
title = "Mine"
protocol = "simcse"
columns = ["stsb", "sickr"]
[board]
whole = false
"""
WITH_AVERAGE = BOARD + '[average]\ntask = "sts"\n'


@pytest.fixture
def table_of(tmp_path: Path):
    def build(card: str, *results: Result) -> Table:
        (tmp_path / "mine.toml").write_text(card, encoding="utf-8")
        return build_table(str(tmp_path / "mine.toml"), results)

    return build


def test_rows_of_two_papers_with_the_same_label_have_their_paper_behind_it(table_of):
    columns = '["sts", {task = "stsb", split = "validation"}]'
    labels = [row.label for row in table_of(BOARD.replace('["stsb", "sickr"]', columns)).rows()]
    assert {"tau 0.1 (SG-OPT)", "tau 0.1 (SimCSE)", "L_opt1", "tau 0.01"} <= set(labels)
    assert "tau 0.1" not in labels and "L_opt1 (SG-OPT)" not in labels


def test_of_an_encoders_published_rows_the_one_with_an_average_is_shown(table_of):
    bert = row(table_of(WITH_AVERAGE), "BERT-base (mean)")
    # BERT-flow's Table 5 has STS-B alone.
    assert bert.published_key == "sgopt/table-1/BERT-base Mean"
    average = bert.cell(AVERAGE).published
    assert average is not None and average.value == 52.57


def test_an_average_of_another_row_does_not_fill_a_hole(table_of):
    simcse = row(table_of(WITH_AVERAGE), "SimCSE-BERT-large (unsup.)")
    average, stsb = simcse.cell(AVERAGE).published, simcse.cell("stsb").published
    assert average is not None and stsb is not None
    # SimCSE prints the mean of seven tasks alone; DistilCSE has both columns, whose mean is 76.57.
    assert (average.value, average.published_key) == (
        78.41,
        "simcse/readme-models/unsup-simcse-bert-large-uncased",
    )
    assert (stsb.value, stsb.published_key) == (
        79.26,
        "distillcse/readme-baselines/SimCSE-BERT-large",
    )
    assert simcse.cell(EXACT).published is None


def test_of_equal_rows_the_source_is_shown_and_not_the_one_taken_over(table_of):
    board = table_of(BOARD.replace("simcse", "wmean"))
    # SG-OPT's Table 1 has the same numbers from BERT-flow, and the encoder's card names it first.
    keys = {row.encoder: row.published_key for row in board.rows()}
    assert keys["sbert-bert-base-flow"] == "bert-flow/table-3/BERT-base-NLI-flow (target)"


def test_equal_numbers_of_one_column_do_not_make_two_encoders_one(table_of):
    rows = table_of(BOARD.replace('["stsb", "sickr"]', '["stsb"]')).rows()
    numbers = {row.published_key: row.cell("stsb").published for row in rows}
    assert sorted(key for key, number in numbers.items() if number and number.value == 81.46) == [
        "rankcse/leaderboard/RankCSE_listNet-BERT-base",
        "sgopt/table-1/SBERT-base SG-OPT",
        "simcse/table-5/CT-SBERT-base",
    ]
    # Three papers have taken over IS-BERT's own numbers.
    assert sum("IS-BERT" in key for key in numbers) == 1


def test_a_row_with_a_number_that_was_read_off_a_figure_is_on_no_board(table_of, monkeypatch):
    key = "sncse/leaderboard/SNCSE-RoBERTa-large"
    first, *others = read_published_rows()[key].scores
    uncertain = structs.replace(
        read_published_rows()[key], scores=(structs.replace(first, verified="figure"), *others)
    )
    assert key in [row.published_key for row in table_of(BOARD).rows()]
    changed = {**read_published_rows(), key: uncertain}
    monkeypatch.setattr(published_numbers, "read_published_rows", lambda: changed)
    assert key not in [row.published_key for row in table_of(BOARD).rows()]


PAPER_TABLE = """
title = "Mine"
paper = "sgopt"
table = "table-1"
protocol = "simcse"
columns = ["stsb"]
[[groups]]
rows = ["SBERT-base Mean"]
"""


def test_a_table_of_one_column_has_the_average_that_is_printed(table_of):
    sbert = row(table_of(PAPER_TABLE + '[average]\ntask = "sts"\n'), "SBERT-base Mean")
    average, exact = sbert.cell(AVERAGE).published, sbert.cell(EXACT).published
    assert average is not None and exact is not None
    assert (average.value, exact.value) == (74.85, 76.98)


def test_the_column_of_another_tables_average_has_a_head_of_its_own(table_of):
    columns = 'columns = ["stsb", {average_of = "sts"}]\nheads = {stsb = "B", sts = "All seven"}'
    table = table_of(PAPER_TABLE.replace('columns = ["stsb"]', columns))
    assert [column.head for column in table.columns] == ["B", "All seven"]


def test_a_row_of_another_protocol_is_measured_by_it(table_of):
    rows = 'rows = ["SBERT-base Mean", {row = "SBERT-base Flow", protocol = "wmean"}]'
    table = table_of(
        PAPER_TABLE.replace('rows = ["SBERT-base Mean"]', rows),
        *sts("sbert-bert-base", 0.5, tasks=["stsb"]),
        *sts("sbert-bert-base-flow", 0.5, tasks=["stsb"]),
    )
    scores = [row.cell("stsb").measured for row in table.rows()]
    assert [score and score.value for score in scores] == [50.0, 49.0]


def test_what_no_run_measures_is_told_last(tmp_path):
    card = PAPER_TABLE.replace(
        '["stsb"]',
        '[{task = "stsb", metric = "training_seconds", head = "Time"}, "sts12", "sts13"]',
    ).replace("SBERT-base Mean", "BERT-base Mean")
    (tmp_path / "mine.toml").write_text(card, encoding="utf-8")
    results = sts("mine", 0.5, tasks=["sts12"])
    request = TableRequest(
        catalogue=Catalogue(), results=results, added=[AddedRow("mine", "Ours", results)]
    )
    advice = request.make_table(str(tmp_path / "mine.toml")).advice
    assert [notice.problem for notice in advice if isinstance(notice, DataError)] == [
        "row 'Ours' has no STS13",
        "row 'Ours' has no Time, which no evaluator measures",
    ]


def test_a_baseline_alone_is_nothing_to_show():
    protocol = {"name": "logreg", "kfold": 10}
    scores = {"accuracy": 0.7, "majority": 0.5}
    result = make_result("mine", "mr", 0.7, split="all", protocol=protocol, scores=scores)
    request = TableRequest(catalogue=Catalogue(), results=[result], show="measured")
    with pytest.raises(DataError, match="nothing to show as 'measured', for no result fits it"):
        request.make_table("simcse-e1")


def test_without_any_result_no_other_suite_is_named():
    with pytest.raises(DataError, match="suite 'sts'") as caught:
        TableRequest(catalogue=Catalogue()).make_boards("sts")
    assert caught.value.hint == ""
