"""Rows that papers print of frozen checkpoints, made again: what pins tokens, masks, layers and aggregation together.

They need real data (STSBENCH_DATA), a Hub cache that holds the checkpoint (STSBENCH_CHECKPOINTS: a folder such as
``~/.cache/huggingface/hub``) or the file of vectors (STSBENCH_VECTORS), and minutes a model: run by
``pytest -m slow tests/test_checkpoint_anchors.py``. What is not at hand is skipped and named.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stsbench import evaluate
from stsbench.boards.published.rows import look_up_published_row, read_misprints
from stsbench.core.catalogue import Catalogue
from stsbench.encoders.load import load_named

CATALOGUE = Catalogue()
CHECKPOINTS, VECTORS = (
    os.environ.get("STSBENCH_CHECKPOINTS", ""),
    os.environ.get("STSBENCH_VECTORS", ""),
)
pytestmark = [pytest.mark.data, pytest.mark.slow]

POINTS = 0.02
ANCHORS = {
    "bert-base-mean": ("sgopt/table-1/BERT-base Mean", POINTS),
    "bert-base-cls": ("sgopt/table-1/BERT-base CLS", POINTS),
    "bert-base-first-last": ("simcse/issue-285/BERT-base (first-last avg., layer 1)", POINTS),
    "bert-base-static-last": ("simcse/table-5/BERT-base (first-last avg.)", POINTS),
    "bert-base-cls-layer10": ("sgopt/figure-1/CLS layer 10", POINTS),
    "bert-base-max-layer2": ("sgopt/figure-1/Max layer 2", POINTS),
    "bert-base-prompt": ("promptbert/run-script/BERT-base (manual prompt)", POINTS),
    # Means over ten seeds, of which the checkpoint is one: three deviations of the task that varies most.
    "promptbert-bert-base": ("promptbert/readme/unsup-PromptBERT", 1.2),
    "promptbert-roberta-base": ("promptbert/readme/unsup-PromptRoBERTa", 2.7),
    "sbert-bert-base": ("simcse/table-b.2/SBERT (all)", POINTS),
    "sbert-bert-base-cls": ("sgopt/table-1/SBERT-base CLS", POINTS),
    # Its alignment divides by what may be near zero: float32 in the published run, float64 here.
    "sbert-bert-base-wk": ("sgopt/table-1/SBERT-base WK", 0.05),
    "simcse-bert-base": ("simcse/table-5/SimCSE-BERT-base", POINTS),
    "sup-simcse-bert-base": ("simcse/readme-evaluation/sup-simcse-bert-base-uncased", POINTS),
    "ct-bert-base": ("simcse/table-5/CT-BERT-base", POINTS),
    "esimcse-bert-base": ("esimcse/readme/ESimCSE-BERT-base", POINTS),
    "diffcse-bert-base": ("diffcse/leaderboard/DiffCSE-BERT-base", POINTS),
    # A user's run, not a paper's.
    "glove-840b": ("simcse/issue-87/GloVe 840B (bow.py)", 0.3),
}
"""For each card the row that it must give on the seven STS tests, and the points it may differ by on each."""
AGGREGATIONS = {
    "all": "simcse/table-b.2/SBERT (all)",
    "wmean": "simcse/table-b.2/SBERT (wmean)",
}


def at_hand(name: str) -> dict[str, Any]:
    """The parameters by which a card's encoder is found without the Hub; skips where it is not here."""
    params = CATALOGUE.encoder(name).params
    if "file" in params:
        if not VECTORS or not (Path(VECTORS) / params["file"]).is_file():
            pytest.skip(f"STSBENCH_VECTORS has no {params['file']}")
        return {"file": str(Path(VECTORS) / params["file"])}
    if not CHECKPOINTS:
        pytest.skip("STSBENCH_CHECKPOINTS names no Hub cache")
    from huggingface_hub import try_to_load_from_cache

    # The beginning of a commit is known to the Hub alone.
    revision = params["revision"] if len(params["revision"]) == 40 else None
    found = try_to_load_from_cache(
        params["model"], "config.json", cache_dir=CHECKPOINTS, revision=revision
    )
    if not isinstance(found, str):
        pytest.skip(f"{CHECKPOINTS} has no {params['model']} ({params['revision'][:12]})")
    return {"model": str(Path(found).parent)}


def distances(name: str, key: str, tasks: list[str]) -> dict[tuple[str, str], float]:
    """How far each score is from what is printed of it, in points."""
    encoder = load_named(name, params=at_hand(name), catalogue=CATALOGUE)
    row = look_up_published_row(key)
    results = {
        result.task: result for result in evaluate(encoder, tasks, data=os.environ["STSBENCH_DATA"])
    }
    return {
        (score.task, score.aggregation): 100
        * results[score.task].scores[f"{score.metric}.{score.aggregation}"]
        - score.value
        for score in row.scores
        if score.task in results and (key, score.task) not in read_misprints()
    }


def printed_tasks(key: str) -> list[str]:
    tasks = CATALOGUE.suites()["sts"].tasks
    return [score.task for score in look_up_published_row(key).scores if score.task in tasks]


@pytest.mark.parametrize("name", ANCHORS)
def test_the_row_is_made_again(name):
    key, points = ANCHORS[name]
    found = distances(name, key, printed_tasks(key))
    assert found and {at: round(d, 3) for at, d in found.items() if abs(d) > points} == {}


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_one_checkpoint_gives_the_rows_of_each_aggregation(aggregation):
    key = AGGREGATIONS[aggregation]
    found = distances("sbert-bert-base", key, printed_tasks(key))
    assert {which for _, which in found} == {aggregation}
    assert {at: round(d, 3) for at, d in found.items() if abs(d) > POINTS} == {}
