"""Scores without some sentences: those of the items that are left, and nothing where they tell nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from stsbench.compare.clean import clean_scores, score_without
from stsbench.errors import DataError
from stsbench.numbers.sharing import sentence_columns
from stsbench.results.record import CleanScore, Result
from tests.made import make_result

FIRST = [f"first {i}" for i in range(40)]
SECOND = [f"second {i}" for i in range(40)]
RNG = np.random.default_rng(0)
GOLD = RNG.integers(0, 6, 40).astype(np.float64)
SIMILARITY = GOLD / 10 + RNG.normal(0, 0.1, 40)


def correlated() -> Result:
    columns = {"subset": ["a"] * 40, "gold": GOLD, "similarity": SIMILARITY, **sentence_columns(FIRST, SECOND)}
    return make_result(per_item=columns, n=40, interval=(0.5, 1.0))


def test_a_correlation_is_that_of_the_items_left():
    found = score_without(correlated(), ["first 3", "second 7", "second 3", "never seen"])
    kept = [i for i in range(40) if i not in (3, 7)]
    assert found.n == 38
    assert found.score == pytest.approx(stats.spearmanr(SIMILARITY[kept], GOLD[kept]).statistic, abs=1e-12)
    assert found.score is not None and found.interval is not None
    assert found.interval[0] < found.score < found.interval[1]


def test_where_nothing_is_held_it_is_the_score_itself():
    result = correlated()
    assert score_without(result, ["of another task"]) == (40, result.score, result.interval)


def test_a_share_is_that_of_the_items_left():
    correct = np.arange(40) % 4 != 0
    columns = {"prediction": np.zeros(40, np.int64), "correct": correct, **sentence_columns(FIRST)}
    protocol = {"name": "senteval", "kfold": 10}
    result = make_result(task="mr", per_item=columns, n=40, score=0.75, protocol=protocol, items="0" * 64)
    found = score_without(result, ["first 1", "first 2"])
    assert found[:2] == (38, 28 / 38) and found.interval is not None


def test_too_few_items_or_one_gold_score_make_no_score():
    assert score_without(correlated(), FIRST[:37]) == (3, None, None)
    alike = [text for text, gold in zip(FIRST, GOLD, strict=True) if gold != 3]
    assert score_without(correlated(), alike)[1:] == (None, None)


def test_columns_that_tell_no_sentences_are_refused():
    with pytest.raises(DataError, match="no part of the items has a score: its per-item columns lack sentence1"):
        score_without(make_result(), ["a"])


def test_seeds_have_the_clean_scores_that_all_of_them_have():
    of: dict[str, Any] = {"text": "0" * 64, "n": 2, "score": 0.5, "interval": (0.4, 0.6)}
    one, near = CleanScore(corpora=["a", "b"], near=None, **of), CleanScore(corpora=["a"], near=0.8, **of)
    results = [make_result(clean=[one, near]), make_result(clean=[one])]
    assert clean_scores(results) == {"without a, b": [one, one]}
    assert list(clean_scores(results[:1])) == ["without a, b", "without a (near: 0.8)"]
