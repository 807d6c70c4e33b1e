"""What a comparison says in a sentence."""

from __future__ import annotations

import pytest

from stsbench.compare.comparison import Comparison, Difference, Effort, compare
from stsbench.compare.sentences import sentences
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
        ([difference("x", 0.02, 0.3)], "no significant difference between A1 and B2 on x (p = .300)"),
        (
            [difference("x", 0.02, 0.3), difference("y", 0.02, 0.3), difference("mean of 2", 0.02, 0.2, tasks=2)],
            "no significant difference between A1 and B2 on any of 2 tasks (lowest p = .300); "
            "no significant difference in the mean of 2 tasks, 2.00 points (p = .200)",
        ),
        (
            [
                difference("x", 0.02, 0.001, True),
                difference("y", -0.03, 0.001, True),
                difference("z", 0.1, 0.3),
                difference("u", 0.1, None),
                difference("mean of 4", -0.004, 0.001, True, tasks=4),
            ],
            "B2 is better than A1 on 1 of 4 tasks: x (+2.00); A1 is better than B2 on 1 of 4 tasks: y (+3.00); "
            "no significant difference on the other 1 task; no paired test is known for u; "
            "A1 is better by 0.40 points in the mean of 4 tasks",
        ),
    ],
)
def test_a_sentence_says_which_differences_are_real(differences, sentence):
    found = Comparison(encoders=["A1", "B2"], differences=differences, level=0.05)
    family = "3 tests of tasks and 4 of means" if len(differences) == 3 else "3 tests of tasks"
    family = "3 tests of tasks and 6 of means" if len(differences) == 5 else family
    assert sentences(found) == [f"{sentence} (level 0.05, corrected after Holm over {family})."]


def test_a_planted_difference_is_found_and_a_null_one_is_not():
    effort = Effort(permutations=999)
    same = [pair(shift=0.0), pair("sts13", shift=0.02, n=300), pair("sts14", shift=1.0, n=300)]
    found = compare({"a": [x for x, _ in same], "b": [y for _, y in same]}, effort=effort)
    assert [d.real for d in found.differences] == [False, False, True, True]
    assert found.differences[0].p == 1.0 and found.differences[0].interval == (0.0, 0.0)
    assert sentences(found)[0].startswith("a is better than b on 1 of 3 tasks: sts14 (+")
