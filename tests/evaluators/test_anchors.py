"""The published scores of all-MiniLM-L6-v2, made again on the real data.

Source: MTEB's own results (embeddings-benchmark/mtebpaper and /results), cosine Spearman,
one correlation a year; SICK-R over all 9,927 pairs.
"""

import os
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from stsbench import Result, evaluate

PUBLISHED = {
    "sts12": 0.72369007,
    "sts13": 0.80603167,
    "sts14": 0.75589128,
    "sts15": 0.85389661,
    "sts16": 0.78989453,
    "stsb": 0.82032467,
    "sickr-mteb": 0.77582451,
}
pytestmark = pytest.mark.data
QUICK = ("sts13",)
"""The smallest of several subsets; all seven are 27,000 pairs, a minute and a half of encoding."""
Measure = Callable[[str], Result]


def tasks(*names: str) -> pytest.MarkDecorator:
    marked = [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names
    ]
    return pytest.mark.parametrize("task", marked)


@pytest.fixture(scope="module")
def measured() -> Measure:
    """A task's Result, made when a test first asks for it."""

    @cache
    def measure(task: str) -> Result:
        (result,) = evaluate("minilm", task, data=os.environ["STSBENCH_DATA"], store=None)
        return result

    return measure


@tasks(*PUBLISHED)
def test_score_is_the_published_one(measured, task):
    assert measured(task).score == pytest.approx(PUBLISHED[task], abs=0.0005)


@tasks(*PUBLISHED)
def test_an_interval_holds_the_score_and_is_as_wide_as_theory_says(measured, task):
    result = measured(task)
    low, high = result.interval
    assert low < result.score < high
    # Fisher's z with variance 1.06 / (n - 3), protocols of the field's sampling error.
    z, width = np.arctanh(result.score), 1.96 * np.sqrt(1.06 / (result.n - 3))
    theory = np.tanh(z + width) - np.tanh(z - width)
    # Pairs share sentences, so they hold less than as many independent ones: most so in STS13, whose
    # pairs form long chains.
    assert 0.65 < (high - low) / theory < 2
