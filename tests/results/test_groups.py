"""Rows of tables: what is one encoder, and what tells several of one name apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from stsbench.cli.wording import describe_remedy
from stsbench.core.cards import task_digest
from stsbench.core.errors import DataError, ProtocolError
from stsbench.results.folder import (
    ResultFolder,
    describe_missing_columns,
    has_columns,
    make_rescore_remedy,
    read_item_columns,
    read_result,
    without_columns,
    write_result,
)
from stsbench.results.groups import (
    EncoderDirectory,
    EncoderResults,
    group_by_encoder,
    matches_name,
    select_comparable,
)
from stsbench.results.record import Result, items_path
from tests.made import CATALOGUE, SIMCSE, make_result

WEIGHTS, OTHER = "a" * 64, "b" * 64
OLD, NEW = "tokenizers 0.22.1, transformers 5.3.0", "tokenizers 0.23.3, transformers 5.23.0"


def made(
    task: str = "sts12",
    score: float = 0.5,
    versions: str = NEW,
    *,
    weights: str = WEIGHTS,
    **changes: Any,
) -> Result:
    named = f"{weights} by {versions}" if versions else weights
    return make_result("mine", task, score, fingerprint=named, **changes)


def names(*results: Result) -> list[str]:
    return sorted(one.name for one in group_by_encoder(results))


def only(results: Sequence[Result]) -> EncoderResults:
    (runs,) = group_by_encoder(results)
    return runs


def test_results_by_several_versions_are_rows_of_their_own_with_a_short_mark() -> None:
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
    assert {
        one.state_tag for one in group_by_encoder([made(versions=other, score=0.4), made()])
    } == marks


def test_the_mark_names_all_that_differ_where_no_package_is_enough() -> None:
    versions = ("a 1, b 1", "a 1, b 2", "a 2, b 2")
    runs = group_by_encoder([made(versions=one, score=at / 10) for at, one in enumerate(versions)])
    assert {one.state_tag for one in runs} == set(versions)


def test_the_mark_names_the_one_package_that_is_enough() -> None:
    versions = ("a 1, b 1", "a 2, b 1", "a 3, b 2")
    runs = group_by_encoder([made(versions=one, score=at / 10) for at, one in enumerate(versions)])
    assert {one.state_tag for one in runs} == {"a 1", "a 2", "a 3"}


@pytest.mark.parametrize(
    ("spec", "is_meant"),
    [
        ("mine", True),
        ("mine [aaaa]", True),
        ("mine[aaaa]", True),
        ("mine [aaaa, transformers 5.23.0]", True),
        ("mine [aaaa, bbbb]", False),
        ("mine [aaaa, transformers 5.3.0]", False),
        ("mine [aaa]", False),
        ("mine [aaaa", False),
        ("yours [aaaa]", False),
    ],
)
def test_a_name_with_a_mark_is_of_results_that_have_all_of_it(spec: str, is_meant: bool) -> None:
    assert matches_name(spec, ["mine"], made().fingerprint) is is_meant


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
    seeds = [
        made(weights=str(seed) * 64, versions=OLD if seed == 1 else NEW, train_seed=seed)
        for seed in (1, 2, 3)
    ]
    assert len(only(seeds).results) == 3
    moved = [
        made("sts13", weights=str(seed) * 64, versions=OLD, train_seed=seed) for seed in (2, 3)
    ]
    assert names(*seeds, *moved) == ["mine [transformers 5.23.0]", "mine [transformers 5.3.0]"]


def test_a_result_of_no_training_seed_is_never_averaged_with_seeds_of_other_weights() -> None:
    results = [made(score=0.4), made(score=0.5, weights=OTHER, train_seed=1)]
    assert names(*results) == ["mine [aaaaaa]", "mine [bbbbbb]"]


def test_the_overlap_of_an_encoder_is_the_worst_of_its_results() -> None:
    results = [
        made(task, overlap=overlap) for task, overlap in (("sts12", "none"), ("sts13", "gold"))
    ]
    assert only(results).overlap == "gold"


def test_older_states_of_the_cells_that_are_shown_are_told_by_name() -> None:
    current, second = made(), made("sts13")
    older = [made(weights=OTHER), made("sts13", weights=OTHER), made("mr", weights=OTHER)]
    directory = EncoderDirectory(ResultFolder([current, second], [], older))
    assert [one.name for one in directory.current] == ["mine"]
    assert directory.resolve("mine [bbbbbb]") == older
    line = directory.describe_omitted([current])
    assert line.startswith("1 result of an older state left out: 'mine [bbbbbb]' (1);")
    line = directory.describe_omitted([current, second])
    assert line.startswith("2 results of older states left out: 'mine [bbbbbb]' (2);")
    assert directory.describe_omitted([]) == ""


def test_scores_by_another_version_of_a_tasks_card_share_no_column_with_those_by_the_card_here():
    here = task_digest(CATALOGUE.task("sts12"))
    by_it, before = made(task_card=here), make_result("other", score=0.5)
    (kept, lines) = select_comparable([before, by_it], CATALOGUE)
    assert kept == [by_it] and len(lines) == 1
    assert lines[0].startswith("sts12: other: task card's hash differs: cccccccccccc against ")
    difference = "task card's hash differs: cccccccccccc against eeeeeeeeeeee"
    with pytest.raises(ProtocolError, match=f"cannot stand in one column: {difference}"):
        select_comparable([before, made(task_card="e" * 64)], CATALOGUE)


def test_columns_are_in_the_result_or_beside_its_file(tmp_path):
    one, bare = make_result(), make_result(score=0.5)
    assert (has_columns(one), has_columns(bare)) == (True, False)
    path = write_result(one, tmp_path)
    assert has_columns(read_result(path))
    items_path(path).unlink()
    assert without_columns([read_result(path), one]) == [read_result(path)]
    with pytest.raises(DataError, match="the result of minilm on sts12 holds no per-item columns"):
        read_item_columns(bare)
    assert describe_missing_columns([bare]) == "no per-item columns of minilm on sts12"
    assert (
        describe_missing_columns([bare, bare, bare])
        == "no per-item columns of minilm on sts12 (and 2 more results)"
    )


def test_the_command_names_what_is_not_usual(tmp_path):
    two = [make_result("minilm", "sts12"), make_result("minilm+pooling=wk(2)", "sts13")]
    of_two = "stsbench run --fresh minilm 'minilm+pooling=wk(2)' --tasks sts12,sts13"
    assert describe_remedy(make_rescore_remedy(two)) == f"run: {of_two}"
    other = make_result(protocol={**SIMCSE, "name": "wmean"}, eval_seed=3, split="validation")
    assert describe_remedy(make_rescore_remedy([other])) == (
        "run: stsbench run --fresh minilm --tasks sts12 --protocol wmean --seeds 3 --split validation"
    )
    both = make_rescore_remedy([*two, make_result("minilm", "stsb", split="validation")])
    assert describe_remedy(both) == (
        f"run: {of_two} && stsbench run --fresh minilm --tasks stsb --split validation"
    )
    assert str(both) == (
        "score them again, and save the results of "
        "stsbench.evaluate(encoder='minilm,minilm+pooling=wk(2)', tasks='sts12,sts13'); "
        "score them again, and save the results of "
        "stsbench.evaluate(encoder='minilm', tasks='stsb', split='validation')"
    )
    kept = read_result(write_result(make_result(), tmp_path))
    assert describe_remedy(make_rescore_remedy([kept])) == (
        f"run: stsbench run --fresh minilm --tasks sts12 --results {tmp_path}"
    )
