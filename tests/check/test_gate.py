"""Checks: what is matched with what, tolerance classes, both rules, exit codes, locks, reports, means, published scores."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from stsbench.boards.published.rows import look_up_published_row, read_published_protocols
from stsbench.check.gate import check
from stsbench.check.lock import (
    CheckSide,
    LockedCell,
    lock_cell,
    lock_cells,
    read_lock,
    read_side,
    to_lock,
)
from stsbench.check.published import check_published
from stsbench.check.reports import to_github_commands, to_junit, to_markdown
from stsbench.check.verdicts import (
    TOLERANCES,
    CheckReport,
    Verdict,
    difference_class,
    parse_tolerances,
)
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError, UnknownName
from stsbench.results.record import Result
from stsbench.significance.comparison import compare
from stsbench.significance.comparison_record import TestSettings
from stsbench.significance.descriptions import describe_p
from tests.boards.scored import RUN, SENTEVAL, drawn, probe, sts, write
from tests.boards.shown import STS
from tests.made import SIMCSE, make_result

FEW = TestSettings(n_permutations=199)
BF16 = {**RUN, "dtype": "bfloat16"}
CUDA = {**RUN, "device": "cuda"}
WMEAN = {**SIMCSE, "name": "wmean", "aggregation": "wmean"}


def side(*results: Result) -> CheckSide:
    return CheckSide([lock_cell(result) for result in results], [])


def locked(*results: Result) -> CheckSide:
    return CheckSide(
        [msgspec.structs.replace(lock_cell(result), result=None) for result in results], []
    )


def made(score: float = 0.5, task: str = "sts12", **changes: Any) -> Result:
    encoder = changes.pop("encoder", "minilm")
    return make_result(encoder, task, score, **{"run": RUN, "n": 3108, **changes})


def outcomes(report: CheckReport) -> list[tuple[str, str]]:
    return [(verdict.task, verdict.outcome) for verdict in report.verdicts]


# Tolerance classes.


@pytest.mark.parametrize(
    ("new", "old", "name", "points"),
    [
        ({}, {}, "same", 0.001),
        ({"run": CUDA}, {}, "other-machine", 0.01),
        ({"run": {**RUN, "versions": {"python": "3.12.0"}}}, {}, "other-machine", 0.01),
        ({"run": BF16, "fingerprint": "x"}, {}, "half", 0.1),
        ({"run": BF16}, {"run": BF16}, "half", 0.1),
        ({"run": {**RUN, "dtype": "float16"}, "fingerprint": "x"}, {"run": BF16}, "half", 0.1),
        ({"run": {**RUN, "dtype": "int8"}, "fingerprint": "x"}, {}, "half", 0.1),
        ({"run": BF16, "fingerprint": "x"}, {"run": BF16}, "changed", 0.01),
        ({"run": BF16, "encoder": "minilm+dtype=bfloat16"}, {}, "half", 0.1),
        ({"run": BF16, "encoder": "glove"}, {}, "changed", 0.01),
        ({"run": BF16, "encoder": "minilm+pooling=max+dtype=bfloat16"}, {}, "changed", 0.01),
        ({"run": BF16, "fingerprint": "x", "revision": "r"}, {}, "changed", 0.01),
        ({"fingerprint": "x"}, {}, "changed", 0.01),
        ({"fingerprint": None}, {"fingerprint": None}, "changed", 0.01),
        ({"fingerprint": "x", "run": {**RUN, "dtype": None}}, {}, "changed", 0.01),
        ({"protocol": SENTEVAL}, {}, "same", 0.001),
        ({"protocol": SENTEVAL, "run": CUDA}, {}, "probe", 0.5),
        ({"protocol": SENTEVAL, "run": CUDA, "n": 1725}, {}, "probe-few", 1.5),
        ({"protocol": SENTEVAL, "run": CUDA, "n": 1799}, {}, "probe-few", 1.5),
        ({"protocol": SENTEVAL, "run": CUDA, "n": 1800}, {}, "probe", 0.5),
        ({"protocol": SENTEVAL, "run": BF16, "fingerprint": "x", "n": 1821}, {}, "probe", 0.5),
        ({"protocol": SENTEVAL, "fingerprint": "x"}, {}, "changed", 0.01),
    ],
)
def test_the_class_is_chosen_by_what_the_results_tell(new, old, name, points):
    assert difference_class(lock_cell(made(**new)), lock_cell(made(**old))) == name
    assert TOLERANCES[name].points == points


def test_half_precision_is_allowed_more_where_pairs_are_few():
    half = TOLERANCES["half"]
    assert [half.allowed(n) for n in (4000, 1000, 250, 100)] == pytest.approx(
        [0.1, 0.1, 0.2, 0.1 * 10**0.5]
    )
    assert TOLERANCES["same"].allowed(10) == 0.001
    assert parse_tolerances(["half=0.2"])["half"].allowed(10) == 0.2


@pytest.mark.parametrize(("fell", "code"), [(0.00099, 0), (0.001, 0), (0.00102, 1)])
def test_a_score_may_fall_by_its_tolerance_and_no_further(fell, code):
    report = check(side(made(0.7237 - fell / 100)), side(made(0.7237)))
    assert report.exit_code == code
    assert report.verdicts[0].points == 0.001


def test_a_rise_is_no_regression_unless_scores_must_not_move():
    new, old = side(made(0.6)), side(made(0.5))
    assert outcomes(check(new, old)) == [("sts12", "higher")]
    assert (check(new, old).exit_code, check(new, old, exact=True).exit_code) == (0, 1)
    assert (
        check(new, old)
        .verdicts[0]
        .reason.startswith("rose by 10.000 points; 0.001 allowed: same encoder, device")
    )


def test_a_cell_that_the_new_side_lacks_may_be_allowed():
    new, old = side(made()), side(made(), made(task="sts13"))
    assert check(new, old).exit_code == 2
    allowed = check(new, old, allow_missing=True)
    assert allowed.exit_code == 0 and outcomes(allowed)[1] == ("sts13", "missing")
    scores = [(verdict.new, verdict.old) for verdict in check(old, new).verdicts]
    assert scores == [(0.5, 0.5), (0.5, None)]
    assert [(verdict.new, verdict.old) for verdict in allowed.verdicts] == [(0.5, 0.5), (None, 0.5)]


def test_encoders_that_were_chosen_are_checked_alone():
    other = msgspec.structs.replace(made(), encoder="other")
    new, old = side(made()), side(made(), other)
    assert outcomes(check(new, old)) == [("sts12", "fine"), ("sts12", "missing")]
    assert outcomes(check(new, old, chosen=True)) == [("sts12", "fine")]
    # Without one of that name there is only the other one to check against.
    assert outcomes(check(new, side(other), chosen=True)) == [("sts12", "fine")]
    both = side(made(), other)
    assert [len(both.select_encoders(names).cells) for names in ([], ["other"], ["nobody"])] == [
        2,
        1,
        0,
    ]


def test_a_side_is_in_a_folder_if_all_of_its_files_are(tmp_path):
    write(tmp_path, made(), msgspec.structs.replace(made(), encoder="other"))
    whole, part = read_side(tmp_path), read_side(tmp_path / "other")
    assert part.is_in(tmp_path / "other") and not part.is_in(tmp_path)
    assert not whole.is_in(tmp_path / "other") and not side().is_in(tmp_path)


def test_tolerances_are_given_for_all_or_one():
    assert {t.points for t in parse_tolerances(["0.5"]).values()} == {0.5}
    given = parse_tolerances(["0.5", "half=0"])
    assert (given["half"].points, given["same"].points) == (0.0, 0.5)
    assert (
        check(side(made(0.49)), side(made(0.5)), tolerances=parse_tolerances(["same=1"])).exit_code
        == 0
    )
    with pytest.raises(UnknownName, match="mean 'half'") as caught:
        parse_tolerances(["hlaf=1"])
    assert (caught.value.kind, caught.value.name) == ("tolerance class", "hlaf")
    for text in ("x", "half=", "-1", "inf", "nan", ""):
        with pytest.raises(StsbenchError, match="give points, such as 0.5 or half=0.2"):
            parse_tolerances([text])


# Cells that cannot be compared.


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"protocol": WMEAN}, "protocol field 'aggregation' differs: 'wmean' against 'all'"),
        ({"data": "e" * 64}, "data hash differs: eeeeeeeeeeee against dddddddddddd"),
        ({"split": "validation"}, "split differs: 'validation' against 'test'"),
        ({"eval_seed": 3}, "eval_seed differs: 3 against 0"),
        ({"train_seed": 1}, "train_seed differs: 1 against None"),
    ],
)
def test_what_cannot_be_compared_says_why(change, reason):
    report = check(side(made(**change)), side(made()))
    assert [(v.outcome, v.reason) for v in report.verdicts] == [("not comparable", reason)]
    assert report.exit_code == 2 and report.verdicts[0].difference is None


def test_a_regression_outweighs_what_cannot_be_compared():
    new = side(made(0.4), made(task="sts13", data="e" * 64))
    report = check(new, side(made(), made(task="sts13")))
    assert outcomes(report) == [("sts12", "regression"), ("sts13", "not comparable")]
    assert report.exit_code == 1
    assert report.summary == "2 cells: 1 regression, 1 not comparable"


def test_missing_and_new_cells():
    report = check(side(made(), made(task="mr")), side(made(), made(task="sts13")))
    assert outcomes(report) == [("sts12", "fine"), ("mr", "new"), ("sts13", "missing")]
    assert report.exit_code == 2
    assert check(side(made(), made(task="mr")), side(made())).exit_code == 0
    # Nothing was compared: that is not fine.
    assert check(side(made(task="mr")), side(made())).exit_code == 2


def test_another_protocol_beside_the_same_one_is_new_and_not_compared():
    report = check(side(made(), made(protocol=WMEAN)), side(made()))
    assert [(v.protocol, v.outcome) for v in report.verdicts] == [
        ("simcse", "fine"),
        ("wmean", "new"),
    ]


def test_encoders_are_matched_by_name_or_alone_on_their_side():
    other = msgspec.structs.replace(made(0.4), encoder="other")
    assert check(side(other), side(made())).exit_code == 1
    both = side(made(), other)
    assert outcomes(check(both, side(made()))) == [("sts12", "fine"), ("sts12", "new")]
    third = msgspec.structs.replace(made(), encoder="third")
    with pytest.raises(
        DataError,
        match="no encoder is in both: new third; old minilm, other; choose one of each with",
    ):
        check(side(third), both)
    with pytest.raises(DataError, match="the new side"):
        check(side(), both)
    with pytest.raises(DataError, match="the old side"):
        check(both, side())


# The statistical rule.


def noisy(
    noise: float, *, task: str = "sts12", seed: int = 5, fingerprint: str = "new", **changes: Any
) -> Result:
    gold, similarity = drawn(seed, 400)
    moved = similarity + noise * np.random.default_rng(seed + 1).normal(size=400)
    return sts("minilm", task, gold, moved, fingerprint=fingerprint, **changes)


@pytest.mark.parametrize(
    ("noise", "absolute", "statistical"), [(0.0, 0, 0), (0.05, 1, 0), (0.6, 1, 1)]
)
def test_by_the_statistical_rule_only_a_real_fall_is_a_regression(noise, absolute, statistical):
    new, old = side(noisy(noise)), side(noisy(0.0, fingerprint="old"))
    assert check(new, old).exit_code == absolute
    report = check(new, old, rule="statistical", settings=FEW)
    assert report.exit_code == statistical
    if absolute:
        test = f"corrected p {describe_p(report.verdicts[0].p)} (paired test, Student's t)"
        assert test in report.verdicts[0].reason
        sides = {"old": [noisy(0.0, fingerprint="old")], "new": [noisy(noise)]}
        assert report.verdicts[0].p == compare(sides, settings=FEW).differences[0].p
    if absolute > statistical:
        assert (
            outcomes(report) == [("sts12", "lower")]
            and "may be chance" in report.verdicts[0].reason
        )


def test_a_fall_is_real_only_below_the_level_and_not_at_it():
    new, old = side(noisy(0.05)), side(noisy(0.0, fingerprint="old"))
    p = check(new, old, rule="statistical", settings=FEW).verdicts[0].p
    assert p is not None
    for level, outcome in ((p, "lower"), (p + 0.001, "regression")):
        settings = TestSettings(n_permutations=199, level=level)
        report = check(new, old, rule="statistical", settings=settings)
        assert outcomes(report) == [("sts12", outcome)]


def test_without_items_the_intervals_are_tested():
    old, near, far = (made(score, fingerprint=str(score), interval=(score - 0.02, score + 0.02))
                      for score in (0.5, 0.48, 0.46))  # fmt: skip
    report = check(side(near), locked(old), rule="statistical")
    # A standard error of .02 / 1.96 each: z is 1.386. That finds too little to call a fall chance.
    assert (
        "the statistical rule cannot judge it: the lock holds no per-item"
        in report.verdicts[0].reason
    )
    assert report.exit_code == 2 and outcomes(report) == [("sts12", "not comparable")]
    unknown = made(0.1, fingerprint="unknown", interval=(-1.0, 1.0))
    assert check(side(unknown), locked(old), rule="statistical").exit_code == 2
    report = check(side(far), locked(old), rule="statistical")
    # Here z is 2.772.
    assert report.verdicts[0].p == pytest.approx(0.00557, abs=1e-4) and report.exit_code == 1
    reason = report.verdicts[0].reason
    assert "; real, corrected p = .006 (from the intervals); " in reason
    assert reason.endswith("; training noise is not covered")


def test_p_values_are_corrected_over_all_cells():
    old = made(0.5, fingerprint="old", interval=(0.48, 0.52))
    new = made(0.46, fingerprint="new", interval=(0.44, 0.48))
    assert check(side(new), locked(old), rule="statistical").exit_code == 1
    rest = [made(0.5, task=f"t{at}") for at in range(20)]
    report = check(side(new, *rest), locked(old, *rest), rule="statistical")
    assert report.exit_code == 2 and report.verdicts[0].outcome == "not comparable"


def test_the_same_encoder_is_judged_by_tolerance_whatever_the_rule():
    assert check(side(made(0.4999)), locked(made(0.5)), rule="statistical").exit_code == 1


def test_probes_are_tested_by_their_items():
    old = probe("minilm", "mr", [1] * 60 + [0] * 40, fingerprint="old")
    few = probe("minilm", "mr", [1] * 58 + [0] * 42, fingerprint="new")
    many = probe("minilm", "mr", [1] * 40 + [0] * 60, fingerprint="new")
    assert check(side(few), side(old), rule="statistical", settings=FEW).exit_code == 0
    assert check(side(many), side(old), rule="statistical", settings=FEW).exit_code == 1


# Lock files.


def test_a_lock_file_reads_back_and_is_the_same_bytes_in_any_order(tmp_path):
    results = [
        made(1 / 3, task="sts13"),
        made(0.1 + 0.2, task="mr", protocol=SENTEVAL, run={}),
        noisy(0.1),
    ]
    content = to_lock(lock_cells(results))
    assert content == to_lock(lock_cells(results[::-1]))
    (tmp_path / "lock").write_bytes(content)
    cells = read_lock(tmp_path / "lock")
    assert {cell.digest for cell in cells} == {
        cell.to_row()["digest"] for cell in lock_cells(results)
    }
    # The first two were made without per-item columns.
    assert sorted(cell.paired is None for cell in cells) == [False, True, True]
    assert isinstance(cells[0], LockedCell) and content.count(b"\n") == len(results) + 2
    report = check(read_side(write(tmp_path / "results", *results)), read_side(tmp_path / "lock"))
    assert report.exit_code == 0 and report.count("fine") == 3


def test_what_is_not_a_number_is_never_locked():
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_lock(lock_cells([made(float("nan"), interval=(0.0, 1.0))]))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'{"lock": 3', b"", "is not a lock file"),
        (
            b'"lock": 3',
            b'"lock": 4',
            "is a lock file of version 4, this stsbench reads 3; lock again",
        ),
        (
            b'"lock": 3',
            b'"lock": 2',
            "is a lock file of version 2, this stsbench reads 3; lock again",
        ),
        (b'"lock": 3', b'"lock": "3"', "is not a lock file"),
        (b'"paired": null', b'"paired": {"column": "similarity"}', "is not a lock file"),
        (b'"score"', b'"socre"', r"is not a lock file: .*socre"),
        (b'"score": 0.5', b'"score": null', r"is not a lock file: .*score"),
        (b'"score": 0.5', b'"score": ' + b"9" * 5000, "is not a lock file"),
        (b'"versions": {', b'"versions": 5, "x": {', "is not a lock file"),
        (
            b'"name": "simcse"',
            b'"name": ' + b"[" * 3000 + b"]" * 3000,
            "was edited|is not a lock file",
        ),
        *(
            (old, new, "minilm on sts12: was edited after it was locked")
            for old, new in [
                (b'"task_card": "c', b'"task_card": "x'),
                (b'"items": "', b'"items": "x'),
                (b'"aggregation": "all"', b'"aggregation": "mean"'),
                (b'"score": 0.5', b'"score": 0.4'),
                (b'"score": 0.5', b'"score": 0.5, "score": 0.4'),
                (b'"interval": [0.4', b'"interval": [0.3'),
                (b'"n": 3108', b'"n": 3'),
                (b'"dtype": "float32"', b'"dtype": "bfloat16"'),
                (b'"digest": "', b'"digest": "0'),
            ]
        ),
    ],
)
def test_what_is_no_lock_file_or_was_edited_is_one_line(tmp_path, old, new, message):
    content = to_lock(lock_cells([made()]))
    assert old in content
    (tmp_path / "lock").write_bytes(content.replace(old, new))
    with pytest.raises(DataError, match=message):
        read_lock(tmp_path / "lock")


def test_a_side_of_some_tasks(tmp_path):
    write(tmp_path, made(), made(task="mr"))
    assert [cell.task for cell in read_side(tmp_path).select_tasks(["mr"]).cells] == ["mr"]
    write(tmp_path, made(fingerprint="x"), made(task="mr", fingerprint="x"))
    assert {one.task for one in read_side(tmp_path).older} == {"sts12", "mr"}
    assert {one.task for one in read_side(tmp_path).select_tasks(["mr"]).older} == {"mr"}
    (tmp_path / "lock").write_bytes(to_lock(lock_cells([made(), made(task="mr")])))
    assert [cell.task for cell in read_side(tmp_path / "lock").select_tasks(["mr"]).cells] == ["mr"]


def test_an_unreadable_file_of_another_task_is_no_problem_of_those_chosen(tmp_path):
    write(tmp_path, made(), made(task="mr"))
    (broken,) = tmp_path.glob("minilm/mr.*.json")
    broken.write_text("{", encoding="utf-8")
    # Its name does not tell of which task it is.
    nameless = tmp_path / "minilm" / "notes.json"
    nameless.write_text("{", encoding="utf-8")
    for tasks, paths in ((["sts12"], [nameless]), (["mr"], [broken, nameless])):
        assert [
            problem.path for problem in read_side(tmp_path).select_tasks(tasks).problems
        ] == paths


def test_a_locked_column_is_kept_though_another_row_of_the_same_items_has_none():
    whole = noisy(0.1)
    bare = msgspec.structs.replace(whole, per_item={})
    (packed,) = lock_cells([whole])
    other = msgspec.structs.replace(packed, protocol=WMEAN, paired=None)
    for earlier in ([packed, other], [other, packed]):
        (cell,) = lock_cells([bare], earlier)
        assert cell.paired is not None and cell.paired == packed.paired


# Reports.

HOSTILE = "own/enc|oder: 50%,\n<b>\x1b ![x](https://a.b) [y](z)"


def reported() -> CheckReport:
    new = [
        made(0.4),
        made(0.6, task="sts13"),
        made(task="sts14", data="e" * 64),
        made(task="sts15"),
    ]
    new = [msgspec.structs.replace(result, encoder=HOSTILE) for result in new]
    old = [made(0.5), made(0.5, task="sts13"), made(task="sts14"), made(task="sts16")]
    return check(
        side(*new), side(*(msgspec.structs.replace(result, encoder=HOSTILE) for result in old))
    )


def test_junit_has_a_case_a_cell():
    suite = ElementTree.fromstring(to_junit(reported())).find("testsuite")
    assert suite is not None
    counts = {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "5", "failures": "1", "errors": "2", "skipped": "1"}
    kinds = [(case.get("name"), [child.tag for child in case]) for case in suite]
    assert kinds == [
        ("sts12 (simcse)", ["failure"]),
        ("sts13 (simcse)", ["system-out"]),
        ("sts14 (simcse)", ["error"]),
        ("sts15 (simcse)", ["skipped"]),
        ("sts16 (simcse)", ["error"]),
    ]
    assert suite[0].get("classname") == HOSTILE.replace("\x1b", "\\u001b")
    assert str(suite[0][0].get("message")).startswith(
        "regression: 50.000 -> 40.000, fell by 10.000 points"
    )


def test_a_case_names_the_split_and_the_seeds_that_are_not_the_usual_ones():
    result = made(split="validation", train_seed=3, eval_seed=1)
    suite = ElementTree.fromstring(to_junit(check(side(result), side(result)))).find("testsuite")
    assert suite is not None
    names = [case.get("name") for case in suite]
    assert names == ["sts12 (validation, simcse, train seed 3, seed 1)"]


def test_annotations_are_one_line_each_and_escaped():
    lines = to_github_commands(reported())
    assert [line.split(" ")[0] for line in lines] == ["::error", "::notice", "::error", "::error"]
    title = "own/enc|oder%3A 50%25%2C%0A<b>\\u001b ![x](https%3A//a.b) [y](z)%3A sts12 (simcse)"
    assert lines[0].startswith(f"::error title={title}::regression: 50.000 -> 40.000, fell by")
    assert not any("\n" in line for line in lines)


def test_the_summary_is_a_table_whatever_the_names():
    lines = to_markdown(reported()).splitlines()
    assert lines[0] == "### stsbench check: regression"
    assert lines[2].startswith(
        "5 cells: 1 regression, 1 not comparable, 1 missing in the new results, 1 higher, 1 new"
    )
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 7 and all(line.replace("\\|", "").count("|") == 8 for line in table)
    assert table[2].startswith(
        r"| own/enc\|oder: 50%, &lt;b>\\u001b !\[x\](https&#58;//a.b) \[y\](z) | sts12 (simcse) |"
    )
    assert "**not comparable**: data hash differs: eeeeeeeeeeee against dddddddddddd" in lines[-3]


@pytest.mark.parametrize(
    ("new", "verdict"), [({}, "fine"), ({"score": 0.4}, "regression"), ({"n": 3}, "not comparable")]
)
def test_the_summary_begins_with_the_verdict(new, verdict):
    text = to_markdown(check(side(made(**new)), side(made())))
    assert text.startswith(f"### stsbench check: {verdict}\n")


# Means over suites.

SUITES = {"pair": Suite(name="Pair", tasks=["sts12", "sts13"])}


def pair(*scores: float, **changes: Any) -> list[Result]:
    return [
        made(score, task, **changes) for task, score in zip(("sts12", "sts13"), scores, strict=True)
    ]


def means(report: CheckReport) -> list[Verdict]:
    return [verdict for verdict in report.verdicts if verdict.is_mean]


def test_a_mean_is_of_test_splits_whatever_a_task_calls_its_own():
    suites = {"two": Suite(name="Two", tasks=["mr", "mrpc"])}
    results = [
        made(0.5, task, protocol=SENTEVAL, split=split)
        for task, split in (("mr", "all"), ("mrpc", "test"))
    ]
    (mean,) = means(check(side(*results), side(*results), suites=suites))
    assert mean.split == "test"


def test_a_drift_that_no_cell_shows_is_caught_on_the_mean():
    # Each may fall by 0.1 points, their mean by 0.1 * sqrt(2) / 2.
    fell = check(
        side(*pair(0.4991, 0.6991, run=BF16, fingerprint="h")), side(*pair(0.5, 0.7)), suites=SUITES
    )
    assert [v.outcome for v in fell.verdicts] == ["fine", "fine", "regression"]
    (mean,) = means(fell)
    assert (mean.task, mean.tolerance) == ("mean of Pair", "half")
    assert [mean.new, mean.old] == pytest.approx([0.5991, 0.6])
    assert mean.points == pytest.approx(0.1 * 2**0.5 / 2) and fell.exit_code == 1
    assert fell.summary == "2 cells and 1 mean: 1 regression, 2 fine"
    assert "| mean of Pair (simcse) |" in to_markdown(fell)
    noise = check(
        side(*pair(0.4991, 0.7005, run=BF16, fingerprint="h")), side(*pair(0.5, 0.7)), suites=SUITES
    )
    assert noise.exit_code == 0 and len(means(noise)) == 1
    wide = parse_tolerances(["half=0.2"])
    again = check(
        side(*pair(0.4991, 0.6991, run=BF16)), side(*pair(0.5, 0.7)), suites=SUITES, tolerances=wide
    )
    assert again.exit_code == 0


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (pair(0.5, 0.7)[:1], pair(0.5, 0.7)),
        (pair(0.5, 0.7), pair(0.5, 0.7)[:1]),
        ([made(0.5), made(0.7, "sts13", data="e" * 64)], pair(0.5, 0.7)),
        (
            [made(0.5), made(0.7, "sts13", protocol=WMEAN)],
            [made(0.5), made(0.7, "sts13", protocol=WMEAN)],
        ),
        (pair(0.5, 0.7, split="validation"), pair(0.5, 0.7, split="validation")),
    ],
)
def test_no_mean_over_a_hole_other_data_two_protocols_or_another_split(new, old):
    assert not means(check(side(*new), side(*old), suites=SUITES))


def test_suites_without_a_mean_have_none_and_seeds_have_one_each():
    pair_of = Suite(name="Pair", tasks=["sts12", "sts13"], average=False)
    bare = {"pair": pair_of, "one": Suite(name="1", tasks=["sts12"])}
    assert not means(check(side(*pair(0.5, 0.7)), side(*pair(0.5, 0.7)), suites=bare))
    two = [*pair(0.5, 0.7), *pair(0.4, 0.6, eval_seed=1)]
    first, second = means(check(side(*two), side(*two), suites=SUITES))
    assert (first.eval_seed, second.eval_seed) == (0, 1)
    assert [first.new, second.new] == pytest.approx([0.6, 0.5])


def test_protocols_of_one_name_that_differ_have_a_mean_each():
    by_dot = {**SIMCSE, "similarity": "dot"}
    two = [*pair(0.5, 0.7), *pair(0.4, 0.6, protocol=by_dot)]
    by_cosine_mean, by_dot_mean = means(check(side(*two), side(*two), suites=SUITES))
    assert [by_cosine_mean.new, by_dot_mean.new] == pytest.approx([0.6, 0.5])
    one_task_each = [made(0.5), made(0.7, "sts13", protocol=by_dot)]
    assert not means(check(side(*one_task_each), side(*one_task_each), suites=SUITES))


def test_a_mean_of_the_same_encoder_on_two_machines_is_judged_by_tolerance():
    def both(noise: float, **changes: Any) -> CheckSide:
        first = noisy(noise, fingerprint="same", **changes)
        return side(first, noisy(0.0, task="sts13", seed=6, fingerprint="same"))

    # A test would find that the fall may be chance, as that of a changed encoder.
    report = check(both(0.05, run=CUDA), both(0.0), rule="statistical", suites=SUITES, settings=FEW)
    (mean,) = means(report)
    assert [verdict.tolerance for verdict in report.verdicts] == [
        "other-machine",
        "same",
        "several",
    ]
    assert (mean.outcome, mean.p, report.exit_code) == ("regression", None, 1)


@pytest.mark.parametrize(("noise", "outcome"), [(0.01, "lower"), (0.6, "regression")])
def test_by_the_statistical_rule_a_mean_must_fall_really(noise, outcome):
    old, new = (
        [
            noisy(moved, task=task, seed=at, fingerprint=print_)
            for at, task in enumerate(("sts12", "sts13"))
        ]
        for moved, print_ in ((0.0, "old"), (noise, "new"))
    )
    report = check(side(*new), side(*old), rule="statistical", suites=SUITES, settings=FEW)
    (mean,) = means(report)
    assert mean.outcome == outcome and "(paired test, " in mean.reason
    (locked_mean,) = means(check(side(*new), locked(*old), rule="statistical", suites=SUITES))
    unknown = "cannot judge it: the lock holds no per-item values" in locked_mean.reason
    assert unknown or locked_mean.outcome == "regression"


def test_the_intervals_of_a_mean_are_half_as_wide_as_four_cells():
    tasks = ["sts12", "sts13", "sts14", "sts15"]
    suites = {"four": Suite(name="Four", tasks=tasks)}

    def four(score: float) -> list[Result]:
        return [
            made(score, task, fingerprint=str(score), interval=(score - 0.02, score + 0.02))
            for task in tasks
        ]

    (mean,) = means(check(side(*four(0.48)), locked(*four(0.5)), rule="statistical", suites=suites))
    # One cell's z is 1.386 (p 0.17), that of the mean of four twice as much. Five are corrected.
    assert mean.p == pytest.approx(5 * 0.0056, abs=1e-3) and mean.outcome == "regression"


# Published scores.

KEY = "simcse/table-5/SimCSE-BERT-base"
PRINTED = {score.task: score.value / 100 for score in look_up_published_row(KEY).scores}


def simcse(task: str, moved: float = 0.0, **changes: Any) -> Result:
    score = PRINTED[task] + moved / 100
    facts: dict[str, Any] = {"scores": {"spearman.all": score}, "run": RUN, "n": 3000}
    return make_result("simcse-bert-base", task, score, **facts | changes)


def published(*results: Result, **options: Any) -> CheckReport:
    return check_published(side(*results), Catalogue(), **options)


def of_table(report: CheckReport) -> list[Verdict]:
    return [verdict for verdict in report.verdicts if verdict.reason.endswith(KEY)]


def test_measured_scores_may_be_a_tenth_of_a_point_below_print():
    verdicts = of_table(published(*(simcse(task, -0.09) for task in STS)))
    assert [(v.task, v.outcome, v.tolerance, v.points) for v in verdicts] == [
        (t, "fine", "published", 0.1) for t in STS
    ]
    fallen = published(simcse("sts12", -0.2), simcse("sts13", 0.2))
    assert {(v.task, v.outcome) for v in of_table(fallen)} == {
        ("sts12", "regression"),
        ("sts13", "higher"),
    }
    assert fallen.exit_code == 1
    wide = parse_tolerances(["published=0.3"])
    assert {v.outcome for v in of_table(published(simcse("sts12", -0.2), tolerances=wide))} == {
        "fine"
    }
    assert published(simcse("sts13", 0.2), exact=True).exit_code == 1


def test_seeds_are_their_mean():
    seeds = [simcse("sts12", moved, eval_seed=at) for at, moved in enumerate((-0.3, 0.3))]
    (verdict,) = of_table(published(*seeds))
    assert verdict.outcome == "fine" and verdict.new == pytest.approx(PRINTED["sts12"])


def test_a_score_is_verified_whatever_results_of_other_protocols_are():
    result = simcse("sts12")
    other = simcse("sts12", protocol={**SIMCSE, "similarity": "dot"})
    for unverified, outcome in ((other, "fine"), (result, "not verified")):
        reasons = {"it has no items": [unverified]}
        new = CheckSide(side(result, other).cells, [], unverified=reasons)
        (verdict,) = of_table(check_published(new, Catalogue(), strict=True))
        assert verdict.outcome == outcome


@pytest.mark.parametrize(
    ("deviation", "allowed", "reason"),
    [
        (0.04, 0.1, "a score printed to two decimals"),
        (0.05, 0.1, "a score printed to two decimals"),
        (0.06, 0.12, "twice the printed deviation"),
    ],
)
def test_twice_a_printed_deviation_is_allowed_where_that_is_more(
    monkeypatch, deviation, allowed, reason
):
    row = look_up_published_row(KEY)
    scores = tuple(msgspec.structs.replace(score, deviation=deviation) for score in row.scores)
    changed = msgspec.structs.replace(row, scores=scores)
    monkeypatch.setattr(
        "stsbench.check.published.look_up_published_row",
        lambda key: changed if key == KEY else look_up_published_row(key),
    )
    (verdict,) = of_table(published(simcse("sts12")))
    assert verdict.points == pytest.approx(allowed)
    assert f"allowed: {reason}" in verdict.reason


def test_probes_are_allowed_as_much_as_other_stacks_drift():
    facts = {**read_published_protocols()["senteval"].fields["probe"], "name": "senteval"}
    key = next(
        key for key in Catalogue().encoder("simcse-bert-base").published if "/table-e.1/" in key
    )
    printed = {score.task: score.value / 100 for score in look_up_published_row(key).scores}
    results = [
        make_result("simcse-bert-base", task, printed[task], split=split, protocol=facts, n=n,
                    scores={"accuracy": printed[task] - 0.004})
        for task, split, n in (("mr", "all", 1800), ("trec", "test", 1799))
    ]  # fmt: skip
    outcome_by_task = {
        v.task: (v.outcome, v.tolerance)
        for v in published(*results).verdicts
        if v.reason.endswith(key)
    }
    assert outcome_by_task == {"mr": ("fine", "probe"), "trec": ("fine", "probe-few")}


def test_misprints_and_rows_of_a_lock_are_passed_over():
    key = "bert-flow/table-2/BERT CLS-vector"
    scores = {score.task: score.value / 100 for score in look_up_published_row(key).scores}
    results = [
        make_result(
            "bert-base-cls-penultimate",
            task,
            scores[task],
            scores={"spearman.all": scores[task]},
            run=RUN,
            n=3000,
        )
        for task in ("sts15", "sts16")
    ]
    verdicts = published(*results).verdicts
    assert [verdict.task for verdict in verdicts if verdict.reason.endswith(key)] == ["sts15"]
    with pytest.raises(DataError, match="a published score"):
        check_published(locked(*results), Catalogue())


@pytest.mark.parametrize(
    "result",
    [
        msgspec.structs.replace(simcse("sts12"), encoder="simcse-bert-base+pooling=max"),
        msgspec.structs.replace(simcse("sts12"), encoder="mine"),
        simcse("sts12", scores={"pearson.all": 0.5}),
        simcse("sts12", split="validation"),
    ],
)
def test_nothing_published_is_an_error(result):
    refused = "no result has a published score to check it against: a card's key 'published'"
    with pytest.raises(DataError, match=refused):
        published(result)
