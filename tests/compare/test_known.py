"""Intervals of means that were computed before: found again by what they were computed from, and by nothing less."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stsbench.compare import means
from stsbench.compare.known import mark_of
from stsbench.compare.means import Interval, mean_intervals
from stsbench.results.folder import scan_results
from stsbench.results.record import Result, columns_digest, items_path
from tests.compare.pairs import pair, told
from tests.leaderboard.scored import write

WANTED = {0: [(0, 1)]}


def with_own_hash(result: Result) -> Result:
    return msgspec.structs.replace(result, items=columns_digest(result.per_item))


def on_disk(folder: Path, *results: Result) -> list[Result]:
    """The results as they are read from a folder, in this order."""
    for one in results:
        write(folder, with_own_hash(one))
    read = {(one.encoder, one.task): one for one in scan_results(folder).results}
    return [read[one.encoder, one.task] for one in results]


def damage(result: Result) -> None:
    assert result.path is not None
    items_path(result.path).write_bytes(b"cut")


@pytest.fixture
def row(tmp_path: Path) -> list[list[Result]]:
    """One encoder's results on two tasks."""
    one, two = on_disk(tmp_path, told(pair()[0]), told(pair("sts13", n=40)[0], 100))
    return [[one], [two]]


def test_an_interval_computed_before_is_not_computed_again(row: list[list[Result]]):
    known: dict[str, Interval] = {}
    before = mean_intervals({0: row}, WANTED, known=known)
    assert list(known.values()) == list(before.intervals.values()) and len(known) == 1
    damage(row[0][0])
    # The result still names the columns that the interval is of.
    again = mean_intervals({0: row}, WANTED, known=known)
    assert again.intervals == before.intervals and again.lacking == []
    assert mean_intervals({0: row}, WANTED).lacking == row[0]


def test_columns_that_are_gone_are_missed_all_the_same(row: list[list[Result]]):
    known: dict[str, Interval] = {}
    mean_intervals({0: row}, WANTED, known=known)
    assert row[0][0].path is not None
    items_path(row[0][0].path).unlink()
    found = mean_intervals({0: row}, WANTED, known=known)
    assert found.lacking == row[0] and not found.intervals


@pytest.mark.parametrize(
    "changes", [{"score": 0.5}, {"items": "0" * 64}, {"train_seed": 7}, {"eval_seed": 1}, {"protocol": {"name": "own"}}]
)
def test_another_score_or_other_items_seeds_and_protocols_are_another_interval(
    row: list[list[Result]], changes: dict[str, object]
):
    other = msgspec.structs.replace(row[0][0], **changes)
    assert mark_of(row, (0, 1), ()) != mark_of([[other], row[1]], (0, 1), ())


def test_tasks_counts_and_the_score_that_counts_are_part_of_it(row: list[list[Result]]):
    marks = [mark_of(row, tasks, scores) for tasks in ((0,), (0, 1), (0, 0, 1)) for scores in ((), ("f1", "f1"))]
    assert None not in marks and len(set(marks)) == len(marks)


def test_rows_are_counted_whether_read_known_or_lacking(row: list[list[Result]]):
    known: dict[str, Interval] = {}
    rows = {0: row, 1: row, 2: [[msgspec.structs.replace(row[0][0], path=None)], []]}
    wanted: dict[int, list[tuple[int, ...]]] = {0: [(0, 1)], 1: [(0,)], 2: [(0,)]}
    for _ in range(2):
        seen: list[tuple[int, int]] = []
        mean_intervals(rows, wanted, known=known, progress=lambda done, total: seen.append((done, total)))  # noqa: B023
        assert seen == [(1, 3), (2, 3), (3, 3)] and len(known) == 2


def test_results_in_memory_are_computed_each_time():
    known: dict[str, Interval] = {}
    one = told(pair()[0])
    assert mark_of([[one]], (0,), ()) is None
    assert mean_intervals({0: [[one]]}, {0: [(0,)]}, known=known).intervals and not known


def test_what_hangs_on_the_sentences_of_another_row_is_not_kept_and_found_each_time(tmp_path: Path):
    tells, tells_not = on_disk(tmp_path, told(pair()[1]), pair()[0])
    rows, wanted = {0: [[tells]], 1: [[tells_not]]}, {0: [(0,)], 1: [(0,)]}
    known: dict[str, Interval] = {}
    before = mean_intervals(rows, wanted, known=known)
    assert len(before.intervals) == 2 and list(known) == [mark_of(rows[0], (0,), ())]
    assert mean_intervals(rows, wanted, known=known) == before
    assert mean_intervals({1: rows[1]}, wanted, known=known).untold == [tells_not]


def test_rows_read_one_by_one_have_the_intervals_of_rows_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = {place: [[one]] for place, one in enumerate(on_disk(tmp_path, pair()[0], told(pair()[1])))}
    wanted = dict.fromkeys(rows, [(0,)])
    at_once = mean_intervals(rows, wanted)
    assert len(at_once.intervals) == 2
    monkeypatch.setattr(means, "ROWS_AT_ONCE", 1)
    # The first is read before the one that tells its sentences.
    assert mean_intervals(rows, wanted) == at_once
