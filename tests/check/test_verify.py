"""Verifying: what every evaluator measures is made again from its items, and what was edited is not."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stsbench.check.verify import LocalData, VerificationReport, verify
from stsbench.core.cards import task_digest
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError, StsbenchError
from stsbench.evaluators.base import Scores
from stsbench.evaluators.belief import VerifiedFile, believe
from stsbench.evaluators.probe.evaluator import PROTOCOLS as PROBES, ProbeEvaluator
from stsbench.evaluators.registry import EVALUATORS
from stsbench.evaluators.relatedness import RelatednessEvaluator
from stsbench.evaluators.retrieval import (
    PROTOCOLS as RETRIEVALS,
    RetrievalEvaluator,
    recall_of_images,
)
from stsbench.evaluators.sts import PROTOCOLS, StsEvaluator, StsProtocol
from stsbench.results.folder import read_states
from stsbench.results.record import Result, digest_columns, items_path, score_name
from tests.boards.scored import drawn, sts, write
from tests.evaluators import test_relatedness, test_sts
from tests.evaluators.probe import helpers
from tests.forgeries import resealed, write_columns
from tests.made import CATALOGUE, make_result


def result_of(task: str, protocol: Any, scores: Scores, **changes: Any) -> Result:
    """What ``run`` keeps of an evaluation of this task."""
    facts = {key: getattr(scores, key) for key in ("scores", "interval", "interval_method", "n")}
    items = dict(scores.per_item)
    fields = {
        "protocol": dataclasses.asdict(protocol),
        "task_card": task_digest(CATALOGUE.task(task)),
    }
    subsets = {name: dict(values) for name, values in scores.per_subset.items()}
    made = {
        **facts,
        **fields,
        "per_subset": subsets,
        "per_item": items,
        "items": digest_columns(items),
        **changes,
    }
    return make_result("a", task, scores.score, **made)


def of_sts(protocol: StsProtocol) -> Result:
    split = test_sts.make_split(None)
    scores = StsEvaluator(protocol=protocol)(
        {"test": split}, test_sts.Table(test_sts.make_rows(split, 0)), seed=0
    )
    return result_of("sts12", protocol, scores)


def of_probe(protocol: str, *, classes: int = 2, f1: bool = False) -> tuple[Result, LocalData]:
    split, embed = helpers.make_split(60, classes=classes)
    evaluator = ProbeEvaluator(PROBES[protocol], f1=f1, threads=1)
    task = "mrpc" if f1 else "trec"
    result = result_of(task, PROBES[protocol], evaluator({"all": split}, embed, seed=0))
    return result, LocalData(result.data, {"labels": split.labels})


def of_regressor() -> Result:
    splits, embed = test_relatedness.make_task(sizes=(60, 30, 40))
    scores = RelatednessEvaluator(test_relatedness.SMALL)(splits, embed, seed=0)
    return result_of("stsb-regression", test_relatedness.SMALL, scores)


def of_retrieval() -> Result:
    protocol = dataclasses.replace(RETRIEVALS["senteval"], folds=2, fold_images=20)
    rng = np.random.default_rng(1)
    ranks = np.column_stack([rng.integers(0, 30, 40), rng.integers(0, 15, (40, 5))])
    items = {"recall": recall_of_images(ranks), "i2t_rank": ranks[:, 0]}
    items |= {f"t2i_rank_{at}": ranks[:, at].copy() for at in range(1, 6)}
    return result_of("coco", protocol, RetrievalEvaluator(protocol).recompute(items))


@cache
def results() -> dict[str, tuple[Result, LocalData | None]]:
    """A Result of each kind of evaluation, and the data of probes, whose labels make the scores of classes."""
    return {
        **{name: (of_sts(protocol), None) for name, protocol in PROTOCOLS.items()},
        "probe": of_probe("logreg", f1=True),
        "three classes": of_probe("logreg", classes=3),
        "SentEval's probe": of_probe("senteval-fast"),
        "regressor": (of_regressor(), None),
        "retrieval": (of_retrieval(), None),
    }


NAMES = [*PROTOCOLS, "probe", "three classes", "SentEval's probe", "regressor", "retrieval"]


def problems_of(folder: Path, result: Result, known: LocalData | None) -> list[str]:
    """What ``verify`` finds wrong with a Result whose digest is right, and which is the only one of its folder."""
    shutil.rmtree(folder, ignore_errors=True)
    write(folder, result)
    (one,) = verify(folder, CATALOGUE, lambda _: known).files
    assert one.unverified_reasons == []
    return one.problems


@pytest.mark.parametrize("name", NAMES)
def test_what_an_evaluator_measures_is_made_again_and_every_number_is_looked_at(name, tmp_path):
    """The score moved by a thousandth (a probe's by two points) fails, and so does each other number.

    What training items or other splits decide is let be.
    """
    result, known = results()[name]
    assert problems_of(tmp_path, result, known) == []
    let_be = ("accuracy", "majority", score_name(result.protocol))
    moved = {
        key: value + 1e-3
        for key, value in result.scores.items()
        if key not in let_be and not key.startswith("dev_")
    }
    subsets = {
        name: {key: value + 1e-3 for key, value in of.items()}
        for name, of in result.per_subset.items()
    }
    for step in (2e-2, -2e-2) if known else (1e-3, -1e-3):
        score = result.score + step
        scores = {**result.scores, score_name(result.protocol): score}
        found = problems_of(tmp_path, replace(result, score=score, scores=scores), known)
        assert found[0].startswith(f"field 'score': {score:.6g}, the items make ")
    changed = replace(result, scores={**result.scores, **moved})
    found = problems_of(tmp_path, changed, known)
    assert [line.partition(" is ")[0] for line in found] == [
        f"field 'scores': '{key}'" for key in moved
    ]
    if subsets:
        found = problems_of(tmp_path, replace(result, per_subset=subsets), known)
        assert len(found) == sum(map(len, subsets.values())) and all(
            "field 'per_subset': " in line for line in found
        )
    if name in PROTOCOLS:
        # Columns that do not make a score: one of another correlation, and by distances.
        scores = {**result.scores, "kendall.other": 0.5, "euclidean_spearman.other": 0.5}
        found = problems_of(tmp_path, replace(result, scores=scores), known)
        assert len(found) == 2 and all(line.endswith("the items make none") for line in found)
    low, high = result.interval
    for interval in ((low - 1e-3, high), (low, high + 1e-3)):
        (line,) = problems_of(tmp_path, replace(result, interval=interval), known)
        assert line.startswith("field 'interval': ")


def test_of_two_classes_all_is_known_without_the_data(tmp_path):
    """What a wrong answer should have been is the other class: F1 and the scores of classes follow."""
    result, _ = results()["probe"]
    assert "f1" in result.scores and problems_of(tmp_path, result, None) == []
    (line,) = problems_of(tmp_path, replace(result, scores={**result.scores, "f1": 0.9}), None)
    assert line.startswith("field 'scores': 'f1' is 0.9, the items make ")
    better = {name: {**of, "recall": 1.0} for name, of in result.per_subset.items()}
    assert len(problems_of(tmp_path, replace(result, per_subset=better), None)) == 2
    three, _ = results()["three classes"]
    fewer = {name: three.per_subset[name] for name in list(three.per_subset)[:2]}
    (line,) = problems_of(tmp_path, replace(three, per_subset=fewer), None)
    assert line == "column 'prediction' holds other classes than the 2 of field 'per_subset'"


def test_a_label_beside_the_answers_and_a_subset_too_many_help_no_score(tmp_path):
    result, _ = results()["probe"]
    columns = {**result.per_item, "label": result.per_item["prediction"]}
    forged = {
        "per_item": columns,
        "items": digest_columns(columns),
        "scores": {**result.scores, "f1": 1.0},
    }
    (line,) = problems_of(tmp_path, replace(result, **forged), None)
    assert line.startswith("field 'scores': 'f1' is 1, the items make ")
    result, _ = results()["simcse"]
    subsets = {**result.per_subset, "best": {"spearman": 0.9}}
    (line,) = problems_of(tmp_path, replace(result, per_subset=subsets), None)
    assert line == "field 'per_subset': the items have no subset 'best'"


def test_a_mean_over_subsets_that_the_items_do_not_have_is_refused(tmp_path):
    result, _ = results()["simcse"]
    columns = {**result.per_item, "subset": [*result.per_item["subset"][:-1], "alone"]}
    scores = StsEvaluator(protocol=PROTOCOLS["simcse"]).recompute(columns)
    assert "spearman.mean" not in scores.scores
    facts = {"scores": {**scores.scores, "spearman.mean": 0.5}, "interval": scores.interval}
    made = replace(result, per_item=columns, items=digest_columns(columns), per_subset={}, **facts)
    (line,) = problems_of(tmp_path, made, None)
    assert line == "field 'scores': 'spearman.mean' is 0.5, the items make none"


HOSTILE: dict[str, tuple[str, dict[str, Any], str]] = {
    "a column less": ("simcse", {"gold": None}, "lacks the column 'gold'"),
    "texts": ("simcse", {"gold": ["x"] * 300}, "its columns are not those of its evaluator: "),
    "no numbers": ("simcse", {"similarity": np.full(300, np.nan)}, "field 'score': "),
    "endless": ("simcse", {"similarity": np.full(300, np.inf)}, ""),
    "one value": ("simcse", {"similarity": np.ones(300)}, "every pair of "),
    "a class of billions": (
        "three classes",
        {"prediction": np.full(60, 1 << 40)},
        "column 'prediction' holds other classes than the 3 of field 'per_subset'",
    ),
    "a class below": (
        "probe",
        {"prediction": np.full(60, -1)},
        "column 'prediction' holds other classes than the 2 of field 'per_subset'",
    ),
    "no answers": ("probe", {"correct": None}, "lacks the column 'correct'"),
    "ranks in words": ("retrieval", {"i2t_rank": ["x"] * 40}, "its columns are not those"),
}


@pytest.mark.parametrize(("name", "changes", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_columns_of_any_kind_are_one_line(name, changes, problem, tmp_path):
    result, _ = results()[name]
    merged = {**result.per_item, **changes}
    columns = {key: column[: result.n] for key, column in merged.items() if column is not None}
    write(tmp_path, replace(result, per_item=columns, items=digest_columns(columns)))
    (found,) = read_states(tmp_path).results
    believed = believe([found], CATALOGUE)
    (refused,) = believed.problems
    assert not believed.results and problem in refused.message and "\n" not in refused.message
    assert refused.message.startswith(f"{found.path}: ") and refused.message.endswith("again")


@pytest.mark.parametrize("error", [IndexError, AttributeError, ZeroDivisionError, TypeError])
def test_an_own_evaluator_that_fails_on_the_items_is_one_line(error, tmp_path):
    class Own:
        def recompute(self, items: Any) -> Scores:
            raise error("of its own")

    result, _ = results()["simcse"]
    file = VerifiedFile(path=tmp_path, result=result)
    own: Any = Own()
    file.compare_with_items(result, result.per_item, own)
    assert file.problems == ["its columns are not those of its evaluator: of its own"]


@pytest.mark.parametrize("prediction", [["yes", "no", "yes"], np.array([1.5, 7.0, 2.0])])
def test_an_own_evaluator_may_predict_no_classes_and_order_its_subsets_anew(prediction, tmp_path):
    class Own:
        def recompute(self, items: Any) -> Scores:
            score = float(np.mean(items["correct"]))
            in_other_order = dict(reversed(groups.items()))
            return Scores(score=score, per_subset=in_other_order, per_item=items, n=3, **facts)

    items = {"prediction": prediction, "correct": np.array([1, 1, 0])}
    groups = {"a": {"mean": 0.5}, "b": {"mean": 1.0}}
    facts: dict[str, Any] = {"scores": {}, "interval": (0, 1), "interval_method": "own"}
    result = make_result("a", "own", 2 / 3, per_subset=groups, **facts)
    file = VerifiedFile(path=tmp_path, result=result)
    own: Any = Own()
    file.compare_with_items(result, items, own)
    assert file.problems == [] and file.standing == "verified"


def test_a_protocol_without_a_name_is_one_line_beside_what_is_believed(tmp_path, monkeypatch):
    result, _ = results()["simcse"]
    write(tmp_path, result)
    monkeypatch.setattr("stsbench.results.folder.find_problems", lambda result: iter(()))
    nameless = {key: value for key, value in result.protocol.items() if key != "name"}
    write(tmp_path, replace(result, encoder="b", protocol=nameless))
    states = read_states(tmp_path)
    believed = believe(states.results, CATALOGUE)
    assert [one.encoder for one in believed.results] == ["a"]
    refused = [*believed.problems, *states.problems]
    assert len(refused) == 1 and "field 'protocol': has no 'name'" in refused[0].message


def test_what_could_not_be_compared_is_not_verified_the_second_time(tmp_path, monkeypatch):
    write(tmp_path, results()["simcse"][0])
    (found,) = read_states(tmp_path).results

    def missing(name: str) -> None:
        raise StsbenchError("its package is not installed")

    with monkeypatch.context() as patch:
        patch.setattr(EVALUATORS, "load", missing)
        for _ in range(2):
            (reason,) = believe([found], CATALOGUE).unverified
            assert reason.startswith("its evaluator is not here: ")
    assert not believe([found], CATALOGUE).unverified


def test_ranks_of_retrieval_are_needed_and_make_the_recalls(tmp_path):
    result, _ = results()["retrieval"]
    columns = {name: column for name, column in result.per_item.items() if name != "t2i_rank_5"}
    without = replace(result, per_item=columns, items=digest_columns(columns))
    assert problems_of(tmp_path, without, None) == ["lacks the column 't2i_rank_5'"]
    columns = {**result.per_item, "recall": result.per_item["recall"][::-1]}
    other = replace(result, per_item=columns, items=digest_columns(columns))
    assert problems_of(tmp_path, other, None) == ["column 'recall' is not what the ranks make"]


def test_an_interval_made_in_another_way_is_not_verified(tmp_path):
    write(
        tmp_path,
        replace(results()["simcse"][0], interval_method="bootstrap", interval=(0.1, 0.9)),
    )
    (one,) = verify(tmp_path, CATALOGUE, no_data).files
    assert (one.standing, one.unverified_reasons) == (
        "not verified",
        ["its interval was made in another way ('bootstrap')"],
    )


# Folders.


def no_data(result: Result) -> LocalData | None:
    return None


def verified(
    folder: Path, data: Callable[[Result], LocalData | None] = no_data
) -> VerificationReport:
    return verify(folder, Catalogue(), data)


def of(known: LocalData) -> Callable[[Result], LocalData | None]:
    return lambda result: known


def whole(encoder: str = "a", task: str = "own-task", noise: float = 0.0) -> Result:
    """A Result of 60 pairs whose every number is that of its items."""
    gold, similarity = drawn(1)
    bare = sts(encoder, task, gold, similarity + noise * drawn(2)[1])
    made = StsEvaluator(protocol=PROTOCOLS["simcse"]).recompute(bare.per_item)
    facts = {"interval": made.interval, "interval_method": made.interval_method}
    return replace(bare, scores={"spearman.all": bare.score}, **facts)


def reasons(found: VerificationReport) -> list[tuple[str, list[str]]]:
    return [(one.standing, [*one.problems, *one.unverified_reasons]) for one in found.files]


CARD = "no folder of cards holds the card of its task"


def test_what_cannot_be_verified_says_why(tmp_path):
    write(tmp_path, whole(), whole("b"))
    found = verified(tmp_path)
    assert reasons(found) == [("not verified", [CARD])] * 2 and found.exit_code == 2
    items_path(next(tmp_path.glob("b/*.json"))).unlink()
    assert reasons(verified(tmp_path))[1] == (
        "not verified",
        [CARD, "its per-item columns are not here"],
    )
    assert found.summary == "2 results: 2 not verified; data found for 0"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"task_card": "c" * 64}, "field 'task_card': cccccccccccc, the hash of the card is "),
        (
            {"protocol": {"name": "simsce"}},
            "field 'protocol': unknown protocol 'simsce'; did you mean 'simcse'?",
        ),
        ({"protocol": {"more": 1}}, "field 'protocol': protocol 'simcse' has no field 'more'"),
        (
            {"protocol": {"similarity": "dott"}},
            "field 'protocol': protocol 'simcse': similarity: 'dott' is not one of cosine",
        ),
    ],
)
def test_cards_and_protocols_are_looked_at(tmp_path, change, problem):
    made = whole("a", "quickstart-en")
    protocol = {**made.protocol, **change.pop("protocol", {})}
    write(
        tmp_path,
        replace(made, protocol=protocol, **{"task_card": "d" * 64, **change}),
    )
    (one,) = verified(tmp_path).files
    assert one.standing == "failed" and any(line.startswith(problem) for line in one.problems), (
        one.problems
    )


def test_data_at_hand_must_be_those_of_the_result(tmp_path):
    write(tmp_path, whole())
    gold, _ = drawn(1)
    fine = LocalData("d" * 64, {"gold": gold, "subset": [""] * 60})
    (one,) = verified(tmp_path, of(fine)).files
    assert one.data and one.problems == []
    for known, problem in (
        (
            LocalData("e" * 64, {}),
            "field 'data': dddddddddddd, the hash of the data found is eeeeeeeeeeee",
        ),
        (LocalData("d" * 64, {"gold": gold[::-1]}), "column 'gold' is not that of the data"),
        (LocalData("d" * 64, {"subset": ["x"] * 60}), "column 'subset' is not that of the data"),
    ):
        (one,) = verified(tmp_path, of(known)).files
        assert one.problems == [problem]

    def broken(_: Result) -> LocalData:
        raise DataError("file: is cut")

    (one,) = verified(tmp_path, broken).files
    assert (
        one.unverified_reasons == [CARD, "its data cannot be read: file: is cut"]
        and not one.problems
    )


def test_right_answers_are_those_of_the_labels(tmp_path):
    result, known = results()["three classes"]
    assert known is not None
    write(tmp_path, result)
    labels = np.asarray(known.columns["labels"])
    assert verified(tmp_path, of(known)).files[0].problems == []
    other = LocalData(result.data, {"labels": labels[::-1]})
    (one,) = verified(tmp_path, of(other)).files
    assert one.problems == [
        "column 'correct' is not what the data's labels make of the predictions"
    ]


def test_gold_scores_that_are_made_up_differ_from_the_others(tmp_path):
    write(tmp_path, whole("a"), whole("b", noise=0.1), whole("c"))
    _, similarity = drawn(1)
    path = next(tmp_path.glob("c/*.json"))
    columns: dict[str, Any] = {"subset": [""] * 60, "gold": similarity, "similarity": similarity}
    write_columns(path, columns)
    scores = {"spearman.all": 1.0, "pearson.all": 1.0}
    resealed(score=1.0, scores=scores, interval=[1.0, 1.0], items=digest_columns(columns))(path)
    found = {one.path.parent.name: one.problems for one in verified(tmp_path).files}
    assert found["a"] == found["b"] == []
    assert found["c"] == [
        "column 'gold' or 'subset' differs from that of other results of the same data"
    ]


def test_a_broken_or_lost_file_fails(tmp_path):
    write(tmp_path, whole("a"), whole("b"), whole("c"))
    next(tmp_path.glob("a/*.json")).write_text("{")
    next(tmp_path.glob("b/*.json")).unlink()
    path = next(tmp_path.glob("c/*.json"))
    items_path(path).write_bytes(items_path(path).read_bytes()[:99])
    found = verified(tmp_path)
    assert [one.standing for one in found.files] == ["failed"] * 3 and found.exit_code == 2
    with pytest.raises(OutputError, match="does not exist"):
        verified(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    assert verified(tmp_path / "empty").summary == "0 results: none; data found for 0"
    assert verified(tmp_path / "empty").exit_code == 2
