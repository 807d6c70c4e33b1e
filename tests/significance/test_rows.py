"""Influences of results, computed once: the cache gives the same ranks, and is used for the same items alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stsbench.core import settings
from stsbench.core.errors import DataError
from stsbench.numbers.dependence import DOMINANT_COMPONENT_NOTE
from stsbench.numbers.statistics import spearman_influence
from stsbench.results.folder import read_folder, write_result
from stsbench.results.record import Result, digest_columns, items_path
from stsbench.significance import ranks, rows as module
from stsbench.significance.comparison import compare
from stsbench.significance.comparison_record import TestSettings
from stsbench.significance.ranks import rank_rows
from stsbench.significance.rows import InfluenceCache, ItemInfluences, compute_influences
from tests.boards.scored import sts

N = 80


def result(encoder: str, noise: float, *, seed: int = 0) -> Result:
    rng = np.random.default_rng(seed)
    gold = rng.normal(size=N)
    error = np.random.default_rng(sum(map(ord, encoder))).normal(size=N)
    made = sts(encoder, "sts12", gold, gold + noise * error)
    columns = {
        **made.per_item,
        "sentence1": np.arange(N, dtype=np.uint32) // 2,
        "sentence2": np.arange(N, 2 * N, dtype=np.uint32),
    }
    return msgspec.structs.replace(made, per_item=columns, items=digest_columns(columns))


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, list[list[Result]]]:
    for name, noise in (("a", 0.2), ("b", 0.5), ("c", 2.0)):
        write_result(result(name, noise), tmp_path)
    return {found.encoder: [[found]] for found in read_folder(tmp_path).results}


def cache_files() -> list[Path]:
    return list((settings.cache_folder() / "influences").glob("*.npy"))


def test_ranks_are_the_same_from_the_cache_and_no_item_is_read_again(stored, monkeypatch):
    before = set(cache_files())
    progress: list[tuple[int, int]] = []
    first = rank_rows(stored, progress=lambda done, total: progress.append((done, total)))
    assert progress == [(1, 3), (2, 3), (3, 3)]
    (new,) = set(cache_files()) - before
    records = np.load(new)
    assert sorted(records["items"].astype(str)) == sorted(r[0][0].items for r in stored.values())
    assert records["influences"].dtype == np.float32 and records["influences"].shape == (3, N)
    computed: list[tuple[Any, ...]] = []
    compute = module.compute_influences

    def record_and_compute(*arguments: Any) -> ItemInfluences:
        computed.append(arguments)
        return compute(*arguments)

    monkeypatch.setattr(module, "compute_influences", record_and_compute)
    assert rank_rows(stored) == first and not computed
    # A broken file is none: all are computed again, and written.
    new.write_bytes(b"no array")
    assert rank_rows(stored) == first and len(computed) == 3
    assert len(np.load(new)) == 3


def test_new_results_and_other_items_are_not_cached(stored):
    ((known,),) = stored["a"]
    cache = InfluenceCache(known)
    influences = compute_influences(known, result("a", 0.2).per_item)
    cache.add(known, influences)
    cache.save()
    again = InfluenceCache(known)
    found = again.get(known)
    assert found is not None
    np.testing.assert_array_equal(found.influences, influences.influences)
    assert (found.gold, found.has_sentences) == (influences.gold, True)
    # Nothing guarantees that the columns of a new result are those that its hash names.
    assert again.get(result("a", 0.2)) is None
    assert again.get(msgspec.structs.replace(known, items="0" * 64)) is None


def test_influences_are_those_of_the_correlation_in_float32(stored):
    ((known,),) = stored["b"]
    columns = result("b", 0.5).per_item
    found = compute_influences(known, columns)
    x, gold = columns["similarity"], columns["gold"]
    expected = spearman_influence(x, gold) / N
    np.testing.assert_allclose(found.influences, expected, rtol=1e-6, atol=1e-9)


def test_other_gold_scores_are_refused_from_the_cache_too(stored, tmp_path):
    other = tmp_path / "other"
    write_result(result("d", 0.3, seed=1), other)
    (found,) = read_folder(other).results
    for _ in range(2):
        with pytest.raises(DataError, match="sts12: the results' gold scores are not the same"):
            rank_rows({**stored, "d": [[found]]})
    ((known,),) = stored["a"]
    assert known.path is not None
    items_path(known.path).unlink()
    assert list(rank_rows(stored).rows) == ["b", "c"]


def test_tests_of_many_rows_are_kept_and_a_few_sets_of_them(stored, monkeypatch):
    monkeypatch.setattr(ranks, "MIN_CACHED_ROWS", 2)
    monkeypatch.setattr(ranks, "MAX_CACHED_TESTS", 2)
    first = rank_rows(stored)
    calls: list[Any] = []
    compare = ranks.compare_all_pairs

    def record_and_compare(*arguments: Any) -> ranks.PairTests:
        calls.append(arguments)
        return compare(*arguments)

    monkeypatch.setattr(ranks, "compare_all_pairs", record_and_compare)
    assert rank_rows(stored) == first and not calls
    # Other rows, and other assumptions, have other tests.
    independent = TestSettings(dependence="none")
    for _ in range(2):
        rank_rows(stored, settings=independent)
    assert len(calls) == 1
    rank_rows({key: stored[key] for key in ("a", "b")})
    assert len(calls) == 2
    kept = list((settings.cache_folder() / "influences").glob("tests-*.npy"))
    assert len(kept) == 2


@pytest.mark.parametrize("is_chain", [True, False])
def test_a_comparison_says_that_one_chain_links_most_items(is_chain):
    results = {}
    for name in ("a", "b"):
        made = result(name, 0.5)
        first = np.arange(N, dtype=np.uint32) * (1 if is_chain else 2)
        columns = {**made.per_item, "sentence1": first, "sentence2": first + np.uint32(1)}
        results[name] = [
            msgspec.structs.replace(made, per_item=columns, items=digest_columns(columns))
        ]
    notes = [note for note in compare(results).notes if "chains" in note]
    assert notes == ([f"sts12: {DOMINANT_COMPONENT_NOTE}"] if is_chain else [])


def test_a_chain_on_one_of_two_splits_is_named_in_any_order():
    def on_split(name: str, split: str, step: int) -> Any:
        made = result(name, 0.5)
        first = np.arange(N, dtype=np.uint32) * step
        columns = {**made.per_item, "sentence1": first, "sentence2": first + np.uint32(1)}
        return msgspec.structs.replace(
            made, split=split, per_item=columns, items=digest_columns(columns)
        )

    for splits in (("test", 2), ("dev", 1)), (("dev", 1), ("test", 2)):
        results = {
            name: [on_split(name, split, step) for split, step in splits] for name in ("a", "b")
        }
        notes = [note for note in compare(results).notes if "chains" in note]
        assert notes == [f"sts12: {DOMINANT_COMPONENT_NOTE}"]
