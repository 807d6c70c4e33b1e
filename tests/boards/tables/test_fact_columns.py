"""Columns of facts that are added to a board on request, and the filter by time."""

from __future__ import annotations

from typing import Any

import pytest

from stsbench.api.calls import leaderboard
from stsbench.core.errors import DataError, UnknownName
from stsbench.results.record import Result
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


def test_the_best_under_50_ms_is_answered():
    board = leaderboard(RESULTS, max_ms=50)
    text = board.to_markdown()
    assert "| fast |" in text and "| slow |" not in text
    assert "2 rows are not shown, 1 of them because the facts are not known: new (at most" in text
    with pytest.raises(DataError, match="no row fits"):
        leaderboard(RESULTS, max_ms=1)


def test_an_unknown_column_lists_the_known():
    with pytest.raises(UnknownName, match="unknown column 'sizes'.*known: size, dimensions, ms"):
        leaderboard(RESULTS, columns="sizes")
