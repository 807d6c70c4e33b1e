"""Verifying: what every evaluator measures is made again from its items, and what was edited is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stsbench.cards.catalogue import Catalogue
from stsbench.check.intervals import Job, can_remake_interval, interval_problem
from stsbench.check.remade import remade_problems
from stsbench.check.verify import Known, Verification, verify
from stsbench.errors import DataError, OutputError
from stsbench.evaluators.probe import ProbeEvaluator
from stsbench.evaluators.probe.protocols import PROTOCOLS as PROBES
from stsbench.evaluators.relatedness import RelatednessEvaluator
from stsbench.evaluators.retrieval.evaluator import make_retrieval_scores
from stsbench.evaluators.retrieval.protocols import PROTOCOLS as RETRIEVALS
from stsbench.evaluators.retrieval.ranks import Ranks
from stsbench.evaluators.seams import Scores
from stsbench.evaluators.sts import PROTOCOLS, StsEvaluator, StsProtocol
from stsbench.numbers.intervals import CORRELATION_METHOD
from stsbench.results.items import as_arrays
from stsbench.results.record import Result, columns_digest, items_path
from tests.evaluators import test_relatedness, test_sts
from tests.evaluators.probe import helpers
from tests.forgeries import edited, write_columns
from tests.leaderboard.scored import drawn, sts, write
from tests.made import make_result


def result_of(scores: Scores, protocol: Any, *, seed: int = 0, **changes: Any) -> Result:
    facts = {key: getattr(scores, key) for key in ("scores", "interval", "interval_method", "n")}
    items = dict(scores.per_item)
    subsets = {name: dict(values) for name, values in scores.per_subset.items()}
    fields = {"protocol": dataclasses.asdict(protocol), "per_subset": subsets, "eval_seed": seed}
    made = {**facts, **fields, "per_item": items, "items": columns_digest(items), **changes}
    return make_result("a", "own-task", scores.score, **made)


def of_sts(protocol: StsProtocol, *, seed: int = 0, subsets: dict[str, int] | None = None) -> Result:
    split = test_sts.make_split(subsets)
    embed = test_sts.Table(test_sts.make_rows(split, seed))
    return result_of(StsEvaluator(protocol=protocol)({"test": split}, embed, seed=seed), protocol, seed=seed)


def of_probe(protocol: str = "logreg", *, classes: int = 2, f1: bool = False) -> Result:
    split, embed = helpers.make_split(60, classes=classes)
    evaluator = ProbeEvaluator(PROBES[protocol], f1=f1, threads=1)
    return result_of(evaluator({"all": split}, embed, seed=0), PROBES[protocol])


def of_regressor() -> Result:
    splits, embed = test_relatedness.make_task(sizes=(60, 30, 40))
    return result_of(RelatednessEvaluator(test_relatedness.SMALL)(splits, embed, seed=0), test_relatedness.SMALL)


def of_retrieval() -> Result:
    protocol = dataclasses.replace(RETRIEVALS["senteval"], folds=2, fold_images=20)
    rng = np.random.default_rng(1)
    folds = [Ranks(rng.integers(0, 30, 20), rng.integers(0, 15, (20, 5))) for _ in range(2)]
    return result_of(make_retrieval_scores(folds, dev_recall=0.2, looks=[]), protocol, seed=3)


@cache
def results() -> dict[str, Result]:
    return {
        **{name: of_sts(protocol) for name, protocol in PROTOCOLS.items()},
        "kendall": of_sts(StsProtocol(name="own", metric="kendall", aggregation="all"), subsets={"": 30}),
        "another seed": of_sts(PROTOCOLS["simcse"], seed=5),
        "probe": of_probe(f1=True),
        "three classes": of_probe(classes=3),
        "SentEval's probe": of_probe("senteval-fast"),
        "regressor": of_regressor(),
        "retrieval": of_retrieval(),
    }


NAMES = [*PROTOCOLS, "kendall", "another seed", "probe", "three classes", "SentEval's probe", "regressor", "retrieval"]


def job(result: Result) -> Job:
    return Job(result, as_arrays(result.per_item))


@pytest.mark.parametrize("name", NAMES)
def test_what_an_evaluator_measures_is_made_again(name):
    result = results()[name]
    assert remade_problems(*job(result)) == []
    assert can_remake_interval(result) and interval_problem(job(result)) is None


@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_looked_at(name):
    """Each score and each number of a subset, moved by a thousandth, is told; what items cannot make is let be."""
    result = results()[name]
    for key, value in result.scores.items():
        moved = msgspec.structs.replace(result, scores={**result.scores, key: value + 1e-3})
        untold = key in ("accuracy", "dev_accuracy", "dev_pearson", "dev_mean_recall")
        assert len(remade_problems(*job(moved)) or []) == (0 if untold else 1), key
    for subset, values in result.per_subset.items():
        for key, value in values.items():
            changed = {**result.per_subset, subset: {**values, key: value + 1e-3}}
            moved = msgspec.structs.replace(result, per_subset=changed)
            assert remade_problems(*job(moved)), (subset, key)
    low, high = result.interval
    for interval in ((low - 1e-3, high), (low, high + 1e-3), (low, low)):
        problem = interval_problem(job(msgspec.structs.replace(result, interval=interval)))
        assert str(problem).startswith("field 'interval': ")


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("simcse", {"scores": {"own.all": 0.5}}, "field 'scores': 'own.all' is not a score of pairs"),
        ("simcse", {"per_subset": {"news": {"n": 30}}}, "field 'per_subset': its 1 subsets are not the items' 3"),
        ("regressor", {"scores": {"own": 0.5}}, "field 'scores': 'own' is not a number that the items give"),
        (
            "probe",
            {"scores": {}, "per_subset": {"0": {"own": 0.5}}},
            "field 'per_subset': '0': 'own' is not a number that the items give",
        ),
    ],
)
def test_a_number_that_nothing_makes_is_told(name, change, problem):
    assert remade_problems(*job(msgspec.structs.replace(results()[name], **change))) == [problem]


def test_ranks_of_retrieval_are_needed_and_make_the_recalls():
    result = results()["retrieval"]
    columns = as_arrays(result.per_item)
    without = {name: column for name, column in columns.items() if name != "t2i_rank_5"}
    assert remade_problems(result, without) == ["lacks the column 't2i_rank_5'"]
    other = {**columns, "recall": columns["recall"][::-1]}
    assert remade_problems(result, other) == ["column 'recall' is not what the ranks make"]


def test_of_a_protocol_of_ones_own_nobody_knows():
    own = make_result("a", "own-task", 0.5, protocol={"name": "own"}, scores={"accuracy": 0.5}, interval_method="own")
    assert remade_problems(own, {}) is None and not can_remake_interval(own) and interval_problem(Job(own, {})) is None


# Folders.


def no_data(result: Result) -> Known | None:
    return None


def verified(folder: Path, data: Callable[[Result], Known | None] = no_data) -> Verification:
    return verify(folder, Catalogue(), data)


def of(known: Known) -> Callable[[Result], Known | None]:
    return lambda result: known


def whole(encoder: str = "a", task: str = "own-task", noise: float = 0.0) -> Result:
    """A Result of 60 pairs whose every number is that of its items."""
    gold, similarity = drawn(1)
    bare = sts(encoder, task, gold, similarity + noise * drawn(2)[1], interval_method=CORRELATION_METHOD)
    scores = {"spearman.all": bare.score}
    return msgspec.structs.replace(bare, interval=made_interval(bare), scores=scores)


def made_interval(result: Result) -> tuple[float, float]:
    problem = interval_problem(job(msgspec.structs.replace(result, interval=(-1.0, -1.0))))
    low, high = str(problem).rpartition(" make ")[2].split(" to ")
    return float(low), float(high)


def reasons(found: Verification) -> list[tuple[str, list[str]]]:
    return [(one.standing, [*one.problems, *one.unknown]) for one in found.files]


CARD = "the card of its task is not here; give --cards"


def test_what_cannot_be_verified_says_why(tmp_path):
    write(tmp_path, whole(), whole("b"))
    found = verified(tmp_path)
    assert reasons(found) == [("not verified", [CARD])] * 2 and found.exit_code == 2
    items_path(next(tmp_path.glob("b/*.json"))).unlink()
    assert reasons(verified(tmp_path))[1] == ("not verified", [CARD, "its per-item columns are not here"])
    assert found.summary == "2 results: 2 not verified; data found for 0"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"task_card": "c" * 64}, "field 'task_card': cccccccccccc, the hash of the card is "),
        ({"protocol": {"name": "simsce"}}, "field 'protocol': 'simsce' is not one of simcse, wmean"),
        ({"protocol": {"more": 1}}, "field 'protocol': 'more' is no field of it"),
        (
            {"protocol": {"similarity": "dott"}},
            "field 'protocol': protocol 'simcse': similarity: 'dott' is not one of cosine",
        ),
    ],
)
def test_cards_and_protocols_are_looked_at(tmp_path, change, problem):
    made = whole("a", "quickstart-en")
    protocol = {**made.protocol, **change.pop("protocol", {})}
    write(tmp_path, msgspec.structs.replace(made, protocol=protocol, **{"task_card": "d" * 64, **change}))
    (one,) = verified(tmp_path).files
    assert one.standing == "failed" and any(line.startswith(problem) for line in one.problems), one.problems


def test_data_at_hand_must_be_those_of_the_result(tmp_path):
    write(tmp_path, whole())
    gold, _ = drawn(1)
    fine = Known("d" * 64, {"gold": gold, "subset": [""] * 60})
    (one,) = verified(tmp_path, of(fine)).files
    assert one.data and one.problems == []
    for known, problem in (
        (Known("e" * 64, {}), "field 'data': dddddddddddd, the hash of the data found is eeeeeeeeeeee"),
        (Known("d" * 64, {"gold": gold[::-1]}), "column 'gold' is not that of the data"),
        (Known("d" * 64, {"subset": ["x"] * 60}), "column 'subset' is not that of the data"),
    ):
        (one,) = verified(tmp_path, of(known)).files
        assert one.problems == [problem]

    def broken(_: Result) -> Known:
        raise DataError("file: is cut")

    (one,) = verified(tmp_path, broken).files
    assert one.unknown == [CARD, "its data cannot be read: file: is cut"] and not one.problems


def test_right_answers_are_those_of_the_labels(tmp_path):
    result = results()["three classes"]
    write(tmp_path, result)
    split, _ = helpers.make_split(60, classes=3)
    known = Known(result.data, {"labels": split.labels})
    assert verified(tmp_path, of(known)).files[0].problems == []
    other = Known(result.data, {"labels": split.labels[::-1]})
    (one,) = verified(tmp_path, of(other)).files
    assert one.problems == ["column 'correct' is not what the data's labels make of the predictions"]


def test_gold_scores_that_are_made_up_differ_from_the_others(tmp_path):
    write(tmp_path, whole("a"), whole("b", noise=0.1), whole("c"))
    _, similarity = drawn(1)
    path = next(tmp_path.glob("c/*.json"))
    columns: dict[str, Any] = {"subset": [""] * 60, "gold": similarity, "similarity": similarity}
    write_columns(path, columns)
    edited(
        score=1.0, scores={"spearman.all": 1.0, "pearson.all": 1.0}, interval=[1.0, 1.0], items=columns_digest(columns)
    )(path)
    found = {one.path.parent.name: one.problems for one in verified(tmp_path).files}
    assert found["a"] == found["b"] == []
    assert found["c"] == ["column 'gold' or 'subset' differs from that of other results of the same data"]


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
