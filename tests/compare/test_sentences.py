"""What a comparison says in a sentence."""

from __future__ import annotations

from dataclasses import replace as replace_fields

import pytest
from msgspec.structs import replace

from stsbench.compare.comparison import Comparison, Difference, Effort, compare
from stsbench.compare.sentences import columns, sentences
from stsbench.results.record import Result
from tests.compare.pairs import pair
from tests.made import SIMCSE


def difference(task: str, size: float, p: float | None, real: bool = False, tasks: int = 1) -> Difference:
    return Difference(
        first="A1", second="B2", task=task, tasks=["t"] * tasks, split="test", protocol=SIMCSE, n=9, seeds=(1, 1),
        scores=(0.5, 0.5 + size), deviations=None, difference=size, interval=(size - 0.01, size + 0.01),
        p=p, p_williams=None, p_corrected=p, real=real, family=tasks + 2 if p is not None else 0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("differences", "sentence"),
    [
        (
            [difference("x", 0.02, 0.051)],
            "No significant difference between A1 and B2 on x (p = .051). Level 0.05; Holm's correction over "
            "1 test (1 pair of encoders, 1 task).",
        ),
        (
            [difference("x", 0.02, 0.3), difference("y", 0.02, 0.3), difference("mean of 2", 0.02, 0.2, tasks=2)],
            "No significant difference between A1 and B2 on any of 2 tasks (lowest p = .300). "
            "No significant difference in the mean of 2 tasks: 2.00 points (p = .200). Level 0.05; Holm's correction "
            "over 2 tests (1 pair of encoders, 2 tasks) and, by itself, over 1 test of means.",
        ),
        (
            [
                difference("x", 0.02, 0.001, True),
                difference("y", -0.03, 0.001, True),
                difference("z", 0.1, 0.3),
                difference("u", 0.1, None),
                difference("mean of 4", -0.004, 0.0001, True, tasks=4),
            ],
            "B2 is better than A1 on 1 of 4 tasks: x (+2.00). A1 is better than B2 on 1 of 4 tasks: y (+3.00). "
            "No significant difference on the other 1 task. No paired test is known for u. "
            "A1 is better by 0.40 points in the mean of 4 tasks (p < .001). Level 0.05; Holm's correction over "
            "3 tests (1 pair of encoders, 3 tasks) and, by itself, over 1 test of means.",
        ),
        ([difference("u", 0.1, None)], "No paired test is known for u. Level 0.05."),
    ],
)
def test_a_sentence_says_which_differences_are_real(differences, sentence):
    found = Comparison(encoders=["A1", "B2"], differences=differences, level=0.05)
    assert sentences(found) == [sentence]


def test_holms_correction_counts_all_pairs_and_tasks():
    results: dict[str, list[Result]] = {}
    for task in ("sts12", "sts13"):
        for one in (*pair(task), replace(pair(task, shift=0.8)[1], encoder="c")):
            results.setdefault(one.encoder, []).append(one)
    found = compare(results, effort=Effort(permutations=99))
    assert {d.family for d in found.differences} == {6, 3}
    over = "Holm's correction over 6 tests (3 pairs of encoders, 2 tasks) and, by itself, over 3 tests of means."
    assert [sentence.endswith(over) for sentence in sentences(found)] == [True] * 3


def test_no_number_is_less_than_zero_by_its_sign_alone():
    tiny = difference("x", -0.00001, 0.9)
    (cells,) = columns([replace_fields(tiny, interval=(-0.00004, 0.00004))])[1]
    assert cells[3:5] == ["0.00", "0.00 to 0.00"]


def test_a_planted_difference_is_found_and_a_null_one_is_not():
    effort = Effort(permutations=999)
    same = [pair(shift=0.0), pair("sts13", shift=0.02, n=300), pair("sts14", shift=1.0, n=300)]
    found = compare({"a": [x for x, _ in same], "b": [y for _, y in same]}, effort=effort)
    assert [d.real for d in found.differences] == [False, False, True, True]
    assert found.differences[0].p == 1.0 and found.differences[0].interval == (0.0, 0.0)
    assert sentences(found)[0].startswith("a is better than b on 1 of 3 tasks: sts14 (+")
