"""Columns of facts that are added to a board on request, and the filter by time."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from stsbench.api.calls import leaderboard
from stsbench.core.errors import DataError, UnknownName
from stsbench.results.record import CleanScore, Result
from tests.made import make_result

SUITE = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")


def results_of(encoder: str, score: float, ms: float | None) -> list[Result]:
    run: dict[str, Any] = {"dimensions": 384, "device": "cpu"}
    run |= {"ms_per_sentence": ms} if ms else {}
    return [make_result(encoder, task, score=score, run=run) for task in SUITE]


RESULTS = [
    *results_of("slow", 0.9, 80.0),
    *results_of("fast", 0.7, 9.0),
    *results_of("new", 0.8, None),
]


def test_size_dimensions_and_milliseconds_are_columns_on_request():
    text = leaderboard(RESULTS, columns="dimensions,ms,size", sort="ms").to_markdown()
    rows = [
        line.split(" | ")[0].strip("| *") for line in text.splitlines() if line.startswith("| ")
    ]
    assert rows[-3:] == ["fast", "slow", "new"]
    # A column without any fact, here the size, is left out.
    assert "| Avg. | Dims | ms |" in text and "| 384 | 9.00 |" in text
    assert "ms: milliseconds to embed a sentence, in batches, measured on cpu\n" in text
    assert "Dims" not in leaderboard(RESULTS).to_markdown()


def test_rows_of_clean_scores_have_the_facts_of_their_encoder():
    clean = [CleanScore(corpora=["nli"], text="a", near=None, n=2, score=0.5, interval=(0.4, 0.6))]
    results = [structs.replace(result, clean=clean) for result in RESULTS if result.score != 0.8]
    text = leaderboard(results, max_ms=50, columns="Dimensions,dimensions").to_markdown()
    assert text.count("| fast |") == 2 and text.count("| 384 | 9.00 |") == 2
    assert "2 rows are not shown (at most 50 ms a sentence)" in text


def test_rows_are_sorted_by_the_differences_that_are_shown():
    results = [*results_of("simcse-bert-base", 0.74, 9.0), *results_of("ct-bert-base", 0.73, 9.0)]
    board = leaderboard(
        results, table="simcse-5", show="difference", columns="dimensions", sort="average"
    )
    text = board.to_markdown()
    rows = [line for line in text.splitlines() if "| +0.95 | 384 |" in line or "| -2.25 |" in line]
    assert [row.split(" | ")[0] for row in rows] == ["| CT-BERT-base", "| SimCSE-BERT-base"]


def test_facts_are_shown_whichever_scores_are():
    results = results_of("simcse-bert-base", 0.74, 9.0)
    for show in ("published", "difference", "measured", "both"):
        board = leaderboard(results, suite="sts", show=show, columns="dimensions")
        assert "| Dims |" in board.to_markdown(), show


def test_differences_to_one_row_are_sorted_best_first():
    board = leaderboard([], table="declutr-2", show="published", sort="distance")
    last = board.to_markdown().partition("*Unsupervised*")[2].splitlines()
    differences = [line.split(" | ")[-1].strip(" |") for line in last if line.startswith("| ")]
    assert differences[:3] == ["-1.60", "-6.40", "-6.52"]


def test_the_best_under_50_ms_is_answered():
    board = leaderboard(RESULTS, max_ms=50)
    text = board.to_markdown()
    assert "| fast |" in text and "| slow |" not in text
    assert "2 rows are not shown, 1 of them because the facts are not known: new (at most" in text
    with pytest.raises(DataError, match="no row fits"):
        leaderboard(RESULTS, max_ms=1)
    with pytest.raises(DataError, match="the key 'parameters' of an encoder's card is its number"):
        leaderboard(RESULTS, max_parameters=1)


def test_a_time_that_was_measured_on_another_task_counts_on_each_board():
    fast, *_ = results_of("fast", 0.7, 9.0)
    probe = {"name": "senteval", "kfold": 10}
    on_probe = make_result("fast", "mr", score=0.8, protocol=probe, split="all")
    # The same name, but other weights: their time is not known.
    other = make_result("fast", "mr", 0.6, protocol=probe, split="all", fingerprint="other")
    board = leaderboard([fast, on_probe, other], suite="mr", max_ms=50)
    lines = board.to_markdown().splitlines()
    (row,) = [line for line in lines if line.startswith("| fast")]
    assert "| 80.00 | 9.00 |" in row.replace("*", "")
    (note,) = [line for line in lines if "not known" in line]
    assert "1 row is not shown" in note


def test_an_unknown_column_lists_the_known():
    with pytest.raises(UnknownName, match="unknown column 'sizes'.*known: size, dimensions, ms"):
        leaderboard(RESULTS, columns="sizes")
