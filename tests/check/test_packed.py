"""Per-item values packed into text: what comes back, how much it is, what a paired test then finds, what is refused."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import numpy as np
import pytest

from stsbench.check.lock import PackedColumn, pack_tested_column, unpack_column
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.results.record import Result
from stsbench.significance.comparison import compare
from stsbench.significance.comparison_record import TestSettings
from tests.boards.scored import SENTEVAL, drawn, sts
from tests.made import SIMCSE

SEMEVAL = {**SIMCSE, "name": "semeval", "metric": "pearson", "aggregation": "wmean"}
SEVEN = {
    "sts12": 3108,
    "sts13": 1500,
    "sts14": 3750,
    "sts15": 3000,
    "sts16": 1186,
    "stsb": 1379,
    "sickr": 4927,
}
MANY = np.random.default_rng(7)


def columns(values: Any, gold: Any = None) -> dict[str, Any]:
    return {
        "gold": np.arange(len(values)) if gold is None else gold,
        "similarity": np.asarray(values),
    }


def packed(found: PackedColumn | None) -> PackedColumn:
    assert found is not None
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 7, 255, 256, 257, 4927, 70_000])
def test_ranks_come_back_as_they_were(n):
    values = np.round(MANY.normal(size=n), 2 if n > 300 else 9)
    found = packed(pack_tested_column(columns(values), SIMCSE))
    np.testing.assert_array_equal(
        unpack_column(found, n), np.unique(values, return_inverse=True)[1]
    )
    assert found.kind == "ranks" and len(base64.b64decode(found.text)) == -(-n * found.bits // 8)


def test_spearman_and_its_test_are_those_of_the_similarities():
    gold, one = drawn(1, 900)
    other = one + 0.05 * MANY.normal(size=900)
    facts: dict[str, Any] = {"fingerprint": "x"}
    whole = [sts("a", "stsb", gold, one, **facts), sts("b", "stsb", gold, other, **facts)]
    ranks = unpack_column(packed(pack_tested_column(whole[0].per_item, SIMCSE)), 900)
    assert CORRELATIONS["spearman"](np.asarray(ranks, dtype=np.float64), gold) == whole[0].score
    assert differences(whole, ranks) == differences(whole, one)


def differences(results: list[Result], similarity: Any) -> tuple[float | None, ...]:
    """What a comparison finds where the first encoder's similarities are these."""
    first = msgspec.structs.replace(
        results[0], per_item={**results[0].per_item, "similarity": similarity}
    )
    (found,) = compare(
        {"a": [first], "b": [results[1]]}, settings=TestSettings(n_permutations=999)
    ).differences
    return found.p, *(found.interval or ())


def test_levels_move_pearsons_test_by_two_permutations_in_a_thousand_at_most():
    gold, one = drawn(1, 900)
    for noise in (0.01, 0.05, 0.2):
        other = one + noise * MANY.normal(size=900)
        whole = [
            sts(name, "stsb", gold, x, protocol=SEMEVAL) for name, x in (("a", one), ("b", other))
        ]
        found = packed(pack_tested_column(whole[0].per_item, SEMEVAL))
        levels = unpack_column(found, 900)
        assert found.kind == "levels"
        assert np.abs(levels - one).max() <= np.ptp(one) / 2**16
        assert differences(whole, levels) == pytest.approx(differences(whole, one), abs=2e-3)


def test_right_or_wrong_is_one_bit_and_recalls_are_levels():
    right = MANY.random(1821) < 0.8
    found = packed(
        pack_tested_column({"prediction": right.astype(int), "correct": right}, SENTEVAL)
    )
    assert (found.kind, found.bits, found.column, len(found.text)) == ("right", 1, "correct", 304)
    restored = unpack_column(found, 1821)
    assert restored.dtype == np.bool_ and (restored == right).all()
    recall = MANY.integers(0, 7, size=90) / 6
    found = packed(pack_tested_column({"recall": recall}, {"name": "senteval", "fold_images": 10}))
    np.testing.assert_allclose(unpack_column(found, 90), recall, atol=2**-16)
    same = packed(pack_tested_column({"recall": np.full(5, 0.25)}, {}))
    assert unpack_column(same, 5).tolist() == [0.25] * 5


def test_only_levels_have_ends():
    values = np.array([0.3, 0.7, 0.5])
    right = {"prediction": np.arange(3), "correct": values > 0.4}
    levels = packed(pack_tested_column(columns(values), SEMEVAL))
    assert (levels.low, levels.high) == (0.3, 0.7)
    for column in (
        pack_tested_column(columns(values), SIMCSE),
        pack_tested_column(right, SENTEVAL),
    ):
        assert msgspec.to_builtins(packed(column)).keys() == {"column", "kind", "bits", "text"}


def test_what_no_paired_test_is_known_of_is_not_packed():
    unknown = {**SIMCSE, "metric": "mine"}
    assert pack_tested_column(columns([0.1, 0.2]), unknown) is None
    assert pack_tested_column({"own": np.arange(3)}, {"name": "own"}) is None
