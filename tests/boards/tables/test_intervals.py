"""The interval of an average that mixes accuracies, F1, correlations and recalls: DeCLUTR's seventeen tasks."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from stsbench.boards.published.rows import read_published_protocols
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.table import AVERAGE, Row
from stsbench.boards.tables.uncertainty import rank_table
from stsbench.core.errors import DataError
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.results.record import Result
from tests.boards.scored import drawn, probe, sts
from tests.made import CATALOGUE, make_result
from tests.significance.pairs import told

PROBES = ("cr", "mr", "mpqa", "subj", "sst2", "sst5", "trec", "mrpc", "sicke")
STS = ("sts12", "sts13", "sts14", "sts15", "sts16")
N = 60


def probed(task: str, seed: int) -> Result:
    rng = np.random.default_rng(seed)
    predicted, truth = rng.integers(0, 2, N), rng.integers(0, 2, N)
    facts = {**read_published_protocols()["senteval"].fields["probe"], "name": "senteval"}
    f1 = {"f1": f1_score(truth, predicted)} if task == "mrpc" else {}
    split = CATALOGUE.task(task).score_split
    made = probe("declutr-base", task, predicted == truth, protocol=facts, split=split)
    made.per_item["prediction"] = predicted
    return msgspec.structs.replace(made, scores={"accuracy": made.score, **f1})


def regressed(task: str, seed: int) -> Result:
    gold, predicted = drawn(seed, N)
    facts = {
        **read_published_protocols()["senteval"].fields["relatedness"],
        "name": "senteval",
        "metric": "pearson",
    }
    scores = {name: CORRELATIONS[name](predicted, gold) for name in ("pearson", "spearman")}
    return make_result(
        "declutr-base", task, scores["pearson"], protocol=facts, scores=scores, n=N,
        per_item={"gold": gold, "prediction": predicted},
    )  # fmt: skip


def recalled(seed: int) -> Result:
    recall = np.random.default_rng(seed).random(N)
    facts = {**read_published_protocols()["senteval"].fields["retrieval"], "name": "senteval"}
    score = float(recall.mean())
    return make_result(
        "declutr-base",
        "coco",
        score,
        protocol=facts,
        scores={"mean_recall": score},
        n=N,
        per_item={"recall": recall},
    )


def similar(task: str, seed: int) -> Result:
    gold, similarity = drawn(seed, N)
    return sts("declutr-base", task, gold, similarity, protocol=sts_protocol())


def sts_protocol() -> dict[str, Any]:
    return {"name": "mean", "metric": "spearman", "aggregation": "mean", "similarity": "cosine"}


def results() -> list[Result]:
    made = [probed(task, seed) for seed, task in enumerate(PROBES)]
    made += [
        regressed(task, 20 + seed)
        for seed, task in enumerate(("sickr-regression", "stsb-regression"))
    ]
    made += [recalled(30), *(similar(task, 40 + seed) for seed, task in enumerate(STS))]
    # No two tasks have a sentence in common.
    return [one if one.task == "coco" else told(one, 1000 * at) for at, one in enumerate(made)]


def measured_row(made: list[Result]) -> Row:
    return next(row for row in build_table("declutr-2", made).rows() if row.is_measured)


def shares_of(one: Result) -> Any:
    """What each item moves of the average, by the definition of each score."""
    columns = one.per_item
    if one.task == "coco":
        return (columns["recall"] - one.score) / N
    if "gold" in columns:
        value = columns["similarity" if "similarity" in columns else "prediction"]
        return CORRELATIONS["spearman"].influence(value, columns["gold"]) / N
    right = (columns["correct"] - one.score) / N
    if one.task != "mrpc":
        return right
    predicted = columns["prediction"] == 1
    truth = np.where(columns["correct"], predicted, ~predicted)
    marked = predicted.astype(float) + truth
    f1 = (2.0 * (predicted & truth) - one.scores["f1"] * marked) / marked.sum()
    return (right + f1) / 2


def test_the_average_of_seventeen_tasks_has_the_interval_of_its_items():
    made = results()
    average = measured_row(made).cell(AVERAGE).measured
    assert average is not None and average.interval is not None
    scores = [one.scores.get("spearman", one.score) for one in made]
    scores[PROBES.index("mrpc")] = (
        made[PROBES.index("mrpc")].score + made[PROBES.index("mrpc")].scores["f1"]
    ) / 2
    assert sum(average.interval) / 2 == pytest.approx(100 * np.mean(scores), abs=1e-6)
    shares = np.concatenate([shares_of(one) for one in made]) / 17
    # MRPC's pairs count once as accuracy and once as F1: twice half a share each, of the same sentences.
    reach = 100 * stats.norm.ppf(0.975) * np.sqrt((shares**2).sum())
    assert np.ptp(average.interval) / 2 == pytest.approx(reach, rel=0.01)


def test_without_one_task_or_its_items_the_average_has_no_interval():
    made = results()
    assert measured_row(made[1:]).cell(AVERAGE).measured is None
    bare = [msgspec.structs.replace(made[0], per_item={}), *made[1:]]
    average = measured_row(bare).cell(AVERAGE).measured
    assert average is not None and average.interval is None


def test_a_row_of_another_protocol_has_its_own_signature_and_interval_and_no_rank():
    """``BERT-base-flow`` stands in the table by the weighted mean over subsets."""
    wmean = {**sts_protocol(), "name": "wmean", "aggregation": "wmean"}
    half = N // 2
    subset = ["news"] * half + ["forum"] * (N - half)
    made = []
    for encoder in ("bert-base-flow", "consert-bert-base"):
        for at, task in enumerate((*STS, "stsb", "sickr")):
            gold, similarity = drawn(40 + at, N)
            # Within each subset the similarity follows the gold scores; over both it does not.
            values = similarity + 9.0 * (np.arange(N) < half)
            whole = sts(encoder, task, gold, values, subset=subset)
            parts = sts(encoder, task, gold, values, subset=subset, protocol=wmean)
            scores = {**parts.scores, **whole.scores}
            made.append(told(msgspec.structs.replace(whole, scores=scores), 1000 * at))
    table = build_table("consert-2", made)
    flow, consert = [one for one in table.rows() if one.is_measured]
    assert "aggregation:wmean" in flow.signature and "aggregation:all" in consert.signature
    assert [column.signature.count("wmean") for column in table.columns] == [0] * len(table.columns)
    assert len(table.signatures) == 2
    for one in (flow, consert):
        mean = one.cell(AVERAGE).measured
        assert mean and mean.interval and mean.interval[0] < mean.value < mean.interval[1]
    with pytest.raises(DataError, match="no measured row to rank"):
        rank_table(build_table("consert-2", [one for one in made if "flow" in one.encoder]))
