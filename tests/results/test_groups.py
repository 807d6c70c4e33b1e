"""Rows of tables: what is one encoder, and what tells several of one name apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from stsbench.results.groups import Runs, called, gather_runs
from stsbench.results.record import Result
from tests.made import make_result

WEIGHTS, OTHER = "a" * 64, "b" * 64
OLD, NEW = "tokenizers 0.22.1, transformers 5.3.0", "tokenizers 0.23.3, transformers 5.23.0"


def made(
    task: str = "sts12", score: float = 0.5, versions: str = NEW, *, weights: str = WEIGHTS, **changes: Any
) -> Result:
    """A result of ``mine``; what newer packages made is newer."""
    created = f"2026-01-0{1 + (versions == NEW)}T00:00:00+00:00"
    named = f"{weights} by {versions}" if versions else weights
    return make_result("mine", task, score, fingerprint=named, run={"created": created}, **changes)


def names(*results: Result) -> list[str]:
    return sorted(one.name for one in gather_runs(results))


def only(results: Sequence[Result]) -> Runs:
    (runs,) = gather_runs(results)
    return runs


@pytest.mark.parametrize("turned", [False, True])
def test_another_version_with_the_same_printed_scores_is_one_row_and_the_newest_counts(turned: bool) -> None:
    old = [made(task, score, OLD) for task, score in (("sts12", 0.50000), ("sts13", 0.6))]
    new = [made("sts12", 0.50001)]
    runs = only([*new, *old] if turned else [*old, *new])
    assert runs.name == "mine"
    assert {(one.task, one.score) for one in runs.results} == {("sts12", 0.50001), ("sts13", 0.6)}


def test_a_score_that_prints_otherwise_is_another_row_with_a_short_mark() -> None:
    results = [made("sts12", 0.5, OLD), made("sts12", 0.5001), made("sts13", 0.6, OLD), made("sts13", 0.6)]
    assert names(*results) == ["mine [transformers 5.23.0]", "mine [transformers 5.3.0]"]
    assert [len(one.results) for one in gather_runs(results)] == [2, 2]


def test_another_metric_that_prints_otherwise_counts_too() -> None:
    results = [made(versions=v, scores={"spearman.all": 0.5, "pearson.all": p}) for v, p in ((OLD, 0.3), (NEW, 0.4))]
    assert len(names(*results)) == 2


def test_versions_that_share_no_score_are_not_taken_for_the_same() -> None:
    assert names(made("sts12", versions=OLD), made("sts13")) == [
        "mine [transformers 5.23.0]",
        "mine [transformers 5.3.0]",
    ]


@pytest.mark.parametrize(
    ("other", "marks"),
    [
        # One that tells all apart is enough; else all that differ are told.
        ("tokenizers 0.22.1, transformers 5.23.0", {"tokenizers 0.22.1", "tokenizers 0.23.3"}),
        ("", {"transformers unknown", "transformers 5.23.0"}),
    ],
)
def test_the_mark_names_what_differs(other: str, marks: set[str]) -> None:
    assert {one.mark for one in gather_runs([made(versions=other, score=0.4), made()])} == marks


def test_the_mark_names_all_that_differ_where_no_package_is_enough() -> None:
    versions = ("a 1, b 1", "a 1, b 2", "a 2, b 2")
    runs = gather_runs([made(versions=one, score=at / 10) for at, one in enumerate(versions)])
    assert {one.mark for one in runs} == set(versions)


def test_weights_and_versions_are_both_told_where_both_differ() -> None:
    results = [made(score=0.4, versions=OLD), made(score=0.5), made(weights=OTHER)]
    assert names(*results) == [
        "mine [aaaaaa, transformers 5.23.0]",
        "mine [aaaaaa, transformers 5.3.0]",
        "mine [bbbbbb]",
    ]


def test_cards_of_the_same_fingerprint_are_told_apart() -> None:
    results = [made(encoder_card=card) for card in ("1" * 64, "2" * 64)]
    assert names(*results) == ["mine [card 111111]", "mine [card 222222]"]


def test_training_seeds_are_one_encoder_whatever_versions_ran_each() -> None:
    seeds = [made(weights=str(seed) * 64, versions=OLD if seed == 1 else NEW, train_seed=seed) for seed in (1, 2, 3)]
    assert len(only(seeds).results) == 3
    # Scored again by another version: the same numbers are no more seeds than before.
    again = [made(weights=str(seed) * 64, versions=NEW if seed == 1 else OLD, train_seed=seed) for seed in (1, 2, 3)]
    assert sorted(one.train_seed or 0 for one in only([*seeds, *again]).results) == [1, 2, 3]
    moved = [made(score=0.7, weights=str(seed) * 64, versions=OLD, train_seed=seed) for seed in (2, 3)]
    assert names(*seeds, *moved) == ["mine [transformers 5.23.0]", "mine [transformers 5.3.0]"]


def test_a_name_with_a_version_is_read_back() -> None:
    results = [made(score=0.4, versions=OLD), made(score=0.5), made(weights=OTHER)]
    runs = gather_runs(results)
    for one in runs:
        assert called(one.name, runs) == [one]
    assert len(called("mine[transformers 5.23.0]", runs)) == 2
    assert not called("mine [transformers 5.2]", runs) and len(called("mine [aaaaaa]", runs)) == 2
