"""Boards: protocols and splits never mixed, no average with a hole, the same bytes every time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from stsbench.boards.render.formats import render
from stsbench.boards.tables.layout import build_layout
from stsbench.boards.tables.request import TableRequest
from stsbench.boards.tables.table import AVERAGE, Row, Table, TableNumber
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.results.record import CleanScore, Result
from stsbench.significance.means import compute_mean_interval
from tests.core.cards import TASK, write
from tests.made import SIMCSE, make_result
from tests.significance.pairs import pair, told

TASKS = ["sts12", "sts13"]
SUITE = Suite(name="STS", tasks=TASKS)
SCORED = {"sts12": "test", "sts13": "test"}
WMEAN = {**SIMCSE, "name": "wmean", "aggregation": "wmean"}


def both(encoder: str, first: float, second: float, **changes: Any) -> list[Result]:
    return [
        make_result(encoder, task, score, **changes)
        for task, score in zip(TASKS, (first, second), strict=True)
    ]


def boards(
    results: Sequence[Result],
    name: str,
    suite: Suite,
    scored: dict[str, str],
    protocol: str | None = None,
) -> list[Table]:
    return TableRequest(
        catalogue=Catalogue(), results=results, protocol=protocol
    ).make_suite_boards(name, suite, scored)


def gather(*results: Result, protocol: str | None = None, suite: Suite = SUITE) -> list[Table]:
    return boards(results, "sts", suite, scored=SCORED, protocol=protocol)


def markdown(*made: Table) -> str:
    return render(made, "markdown")


def number(row: Row, key: str) -> TableNumber:
    found = row.cell(key).measured
    assert found is not None
    return found


def shown(board: Table) -> list[list[str]]:
    lines = [line for line in plain(markdown(board)).splitlines() if line.startswith("| ")][2:]
    return [line.strip("| ").split(" | ") for line in lines]


def plain(text: str) -> str:
    return re.sub(r"\*\*|</?u>", "", text)


def test_rows_are_sorted_by_average_and_those_without_come_last():
    results = [
        *both("low", 0.1, 0.3),
        make_result("hole", "sts12", 0.9),
        *both("high", 0.7, 0.8),
        *both("a", 0.1, 0.3),
    ]
    (board,) = gather(*results)
    assert [row.label for row in board.rows()] == ["high", "a", "low", "hole"]
    averages = [row.cell(AVERAGE).measured for row in board.rows()]
    assert [one and one.value for one in averages] == [75.0, 20.0, 20.0, None]
    assert [row[-1] for row in shown(board)] == ["75.00", "20.00", "20.00", "–"]
    assert shown(board)[-1] == ["hole", "90.00", "–", "–"]


def test_protocols_never_meet_in_one_board():
    made = gather(
        *both("a", 0.5, 0.6), *both("b", 0.7, 0.8, protocol=WMEAN), make_result("b", "sts12", 0.1)
    )
    assert [[row.label for row in board.rows()] for board in made] == [["a", "b"], ["b"]]
    assert [board.title.split()[2] for board in made] == ["simcse", "wmean"]
    # b's scores under simcse and under wmean would make a row together: they do not.
    assert made[0].rows()[1].cell(AVERAGE).measured is None
    assert made[0].title == "STS, protocol simcse (spearman, all)"


def test_a_board_of_several_own_tasks_has_a_short_title(tmp_path):
    for task in ("pets", "plants"):
        write(tmp_path / "tasks" / f"{task}.toml", TASK.replace("Mine", task))
    catalogue = Catalogue([tmp_path])
    results = [make_result("a", task, 0.5) for task in ("pets", "plants", "sts12")]
    request = TableRequest(catalogue=catalogue, results=results)
    names = ("pets,plants", "pets", "pets,sts12")
    titles = [
        request.make_boards(name).tables[0].title.partition(", protocol")[0] for name in names
    ]
    assert titles == ["Own tasks", "pets", "pets, STS12"]
    assert [column.head for column in request.make_boards("pets,plants").tables[0].columns] == [
        "pets",
        "plants",
    ]


def test_a_field_replaced_is_another_protocol():
    few, many = ({"name": "senteval", "kfold": k, "nhid": 0} for k in (5, 10))
    made = gather(*both("a", 0.5, 0.6, protocol=few), *both("a", 0.7, 0.8, protocol=many))
    assert sorted(b.title for b in made) == [
        "STS, protocol senteval (kfold 10)",
        "STS, protocol senteval (kfold 5)",
    ]
    assert gather(*both("a", 0.5, 0.6, protocol=few))[0].title == "STS, protocol senteval"


@pytest.mark.parametrize("split", ["validation", "train", "dev", "all"])
def test_scores_of_other_splits_do_not_count(split):
    (board,) = gather(*both("a", 0.5, 0.6), *both("a", 0.9, 0.9, split=split))
    (row,) = board.rows()
    assert [number(row, task).value for task in TASKS] == [50.0, 60.0]
    assert number(row, "sts12").deviation is None


def test_seeds_are_a_mean_and_a_deviation():
    results = [
        r
        for seed, shift in enumerate((0.0, 0.1, 0.2))
        for r in both("a", 0.5 + shift, 0.6, eval_seed=seed)
    ]
    (board,) = gather(*results)
    (row,) = board.rows()
    # Deviation of 0.5, 0.6, 0.7 about 0.6: sqrt((0.01 + 0 + 0.01) / 2) = 0.1.
    assert number(row, "sts12")[:2] == pytest.approx((60.0, 10.0))
    assert number(row, "sts12").interval is None
    assert number(row, AVERAGE).value == pytest.approx(60.0)
    # Averages of the seeds: 0.55, 0.6, 0.65.
    assert number(row, AVERAGE).deviation == pytest.approx(5.0)
    assert shown(board) == [["a", "60.00±10.00", "60.00±0.00", "60.00±5.00"]]


def test_means_over_seeds_have_intervals_and_what_has_no_columns_is_told():
    seeds = [structs.replace(told(pair()[0]), eval_seed=seed, items=str(seed)) for seed in (0, 1)]
    bare = [make_result("bare", "sts12", 0.5, eval_seed=seed) for seed in (0, 1)]
    steps: list[tuple[int, int]] = []
    request = TableRequest(
        catalogue=Catalogue(),
        results=[*seeds, *bare],
        progress=lambda done, total: steps.append((done, total)),
    )
    (board,) = request.make_suite_boards(
        "one", Suite(name="One", tasks=["sts12"]), {"sts12": "test"}
    )
    intervals = {row.label: number(row, "sts12").interval for row in board.rows()}
    due = compute_mean_interval([seeds])
    assert due is not None and intervals["a"] == pytest.approx([100 * end for end in due])
    assert intervals["bare"] is None and steps == [(1, 2), (2, 2)]
    (note, signature) = board.measured_notes
    assert signature.startswith(f"signature:{board.signature_id} | tasks:sts12 | ")
    due_note = "no 95% interval of the mean and of scores over several seeds of bare: per-item"
    assert note.startswith(due_note)
    assert note in build_layout(board).legend
    assert note not in build_layout(board, "published").legend
    (board,) = request.make_suite_boards(
        "one", Suite(name="One", tasks=["sts12"], average=False), {"sts12": "test"}
    )
    assert board.measured_notes[0].startswith(due_note.replace("the mean and of ", ""))


def test_an_average_is_over_as_many_seeds_as_the_task_that_has_most():
    results = [make_result("a", "sts12", 0.5 + seed / 10, eval_seed=seed) for seed in range(3)]
    (board,) = gather(*results, make_result("a", "sts13", 0.6))
    (row,) = board.rows()
    assert [number(row, key).seeds for key in (*TASKS, AVERAGE)] == [3, 1, 3]
    # Not all tasks have these seeds: how far averages are apart is not known.
    average = number(row, AVERAGE)
    assert average.value == pytest.approx(60.0) and average.deviation is None


def test_training_seeds_are_one_encoder_though_their_weights_differ():
    results = [
        r
        for seed, shift in enumerate((0.0, 0.1))
        for r in both("a", 0.5 + shift, 0.6, train_seed=seed, fingerprint=f"weights {seed}")
    ]
    (board,) = gather(*results)
    assert shown(board) == [["a", "55.00±7.07", "60.00±0.00", "57.50±3.54"]]
    (board,) = gather(*results, *both("a", 0.1, 0.2, train_seed=1, fingerprint="other weights"))
    assert [row.label for row in board.rows()] == [
        "a [weights 1]",
        "a [weights 0]",
        "a [other wei]",
    ]


def test_scores_without_training_text_are_a_group_of_their_own_with_the_items_left():
    def clean(score: float | None, n: int) -> list[CleanScore]:
        interval = None if score is None else (score - 0.1, score + 0.1)
        return [
            CleanScore(
                corpora=["nli_triplets"],
                text="a" * 64,
                near=None,
                n=n,
                score=score,
                interval=interval,
            )
        ]

    results = [
        make_result("low", "sts12", 0.5, clean=clean(0.6, 2)),
        make_result("low", "sts13", 0.5, clean=clean(0.5, 2)),
        make_result("high", "sts12", 0.7, clean=clean(0.4, 2)),
        make_result("high", "sts13", 0.7, clean=clean(None, 0)),
        *both("none", 0.1, 0.1),
    ]
    (board,) = gather(*results)
    all_items, left = board.groups
    assert [row.label for row in all_items.rows] == ["high", "low", "none"]
    assert left.section == "Without nli_triplets" and [row.label for row in left.rows] == [
        "low",
        "high",
    ]
    assert number(left.rows[0], AVERAGE).value == pytest.approx(55.0)
    assert number(left.rows[1], "sts12").interval == pytest.approx((30.0, 50.0))
    assert (
        left.rows[1].cell("sts13").measured is None and left.rows[1].cell(AVERAGE).measured is None
    )
    assert board.measured_notes[0].startswith(
        "without nli_triplets, items left: STS12 2 of 3, STS13 "
    )
    assert "Without nli_triplets" in markdown(board)


def test_scores_without_training_text_have_no_interval_of_all_items():
    clean = CleanScore(
        corpora=["nli_triplets"], text="a" * 64, near=None, n=40, score=0.5, interval=(0.4, 0.6)
    )
    first, second = (
        structs.replace(told(pair()[0]), eval_seed=seed, items=str(seed), clean=[changed])
        for seed, changed in enumerate([clean, structs.replace(clean, score=0.6)])
    )
    (board,) = TableRequest(catalogue=Catalogue(), results=[first, second]).make_suite_boards(
        "one", Suite(name="One", tasks=["sts12"]), {"sts12": "test"}
    )
    all_items, left = board.rows()
    assert number(all_items, "sts12").interval is not None
    assert number(left, "sts12")[:2] == pytest.approx((55.0, 7.0710678))
    assert number(left, "sts12").interval is None


def test_overlap_is_marked_and_explained():
    (board,) = gather(
        *both("a", 0.5, 0.6),
        *both("b", 0.4, 0.4, overlap="text"),
        *both("c", 0.3, 0.3, overlap="gold"),
    )
    marks = [row[0] for row in shown(board)]
    assert marks[0] == "a" and marks[1][:-1] == "b" and marks[2][:-1] == "c"
    for mark, text in (
        (marks[1][-1], "or fitted on text that overlaps"),
        (marks[2][-1], "on gold scores that overlap"),
    ):
        assert f"\n{mark} trained {text}" in markdown(board)
    assert "overlap" not in markdown(*gather(*both("a", 0.5, 0.6, overlap="none")))


def probes(encoder: str, *scores: float, **changes: Any) -> list[Result]:
    levels = {"cr": 0.6376, "mpqa": 0.6877}
    protocol = {"name": "senteval", "kfold": 10}
    return [
        make_result(
            encoder,
            task,
            score,
            split="all",
            protocol=protocol,
            scores={"accuracy": score, "majority": level},
            **changes,
        )
        for (task, level), score in zip(levels.items(), scores, strict=False)
    ]


def test_the_majority_baseline_stands_below_the_encoders_and_is_never_ranked():
    suite = Suite(name="Two", tasks=["cr", "mpqa"])
    scored = {"cr": "all", "mpqa": "all"}
    results = [*probes("low", 0.5, 0.6), *probes("high", 0.7, 0.8)]
    (board,) = boards(results, "two", suite, scored=scored)
    printed = markdown(board)
    lines = [line for line in printed.splitlines() if line.startswith("| ")]
    assert lines[-2:] == ["| **Baseline** |  |  |  |", "| majority class | 63.76 | 68.77 | 66.26 |"]
    assert "| low | <u>50.00</u> | <u>60.00</u> | <u>55.00</u> |" in lines
    # Without an average of the encoders there is not one of the baseline, and one task's level is one task's.
    (board,) = boards(probes("hole", 0.5), "two", suite, scored=scored)
    assert "| majority class | 63.76 |" in markdown(board)
    (board,) = boards(
        results, "two", Suite(name="Two", tasks=suite.tasks, average=False), scored=scored
    )
    assert "| majority class | 63.76 | 68.77 |" in markdown(board)
    assert "majority" not in markdown(*gather(*both("a", 0.5, 0.6)))


def test_a_board_says_which_of_its_tasks_has_a_later_release():
    suite = Suite(name="Raw", tasks=["stsb-raw", "sts12"])
    scored = {"stsb-raw": "test", "sts12": "test"}
    (made,) = boards([make_result("a", "stsb-raw", 0.5)], "raw", suite, scored=scored)
    note = "STS-B (raw text) is version 1; STS-B v2 (stsb-raw-v2) replaces it, scores differ"
    assert note in made.notes and note in markdown(made)
    assert not any(
        "replaces it" in note for one in gather(*both("a", 0.5, 0.6)) for note in one.notes
    )
