"""Signatures: which scores are comparable, and what is only shown."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

import pytest

from stsbench.boards.tables.request import TableRequest
from stsbench.core.cards import Suite
from stsbench.core.errors import ProtocolError
from stsbench.results.groups import select_comparable
from stsbench.results.record import Result
from stsbench.results.signature import (
    compared_part,
    describe_mismatch,
    format_compared,
    format_shown,
    format_signature,
    signature_id,
)
from stsbench.significance.items import match_tasks
from tests.made import CATALOGUE, SIMCSE, make_result

RUN = {
    "dtype": "float32",
    "prompt": "",
    "cut": 2,
    "versions": {"python": "3.11.7", "stsbench": "0.1.0"},
}
COMPARED_CHANGES: list[Mapping[str, Any]] = [
    {"task": "sts13"},
    {"split": "validation"},
    {"n": 4},
    {"data": "e" * 64},
    {"task_card": "f" * 64},
    *(
        {"protocol": {**SIMCSE, **field}}
        for field in (
            {"name": "own"},
            {"metric": "pearson"},
            {"aggregation": "mean"},
            {"similarity": "dot"},
            {"new_field": 1},
        )
    ),
]
SHOWN_CHANGES: list[Mapping[str, Any]] = [
    *({"run": {**RUN, **field}} for field in (
        {"prompt": "query: {}"},
        {"dtype": "bfloat16"},
        {"versions": {"python": "3.14.1", "stsbench": "0.9.0"}},
        {"cut": 7},
        {"device": "cuda"},
    )),
    {"encoder": "another"},
    {"fingerprint": "another"},
    {"train_seed": 3},
    {"eval_seed": 3},
    {"overlap": "gold"},
]  # fmt: skip


def made(**changes: Any) -> Result:
    return make_result(score=0.5, **{"run": RUN, **changes})


def compare(first: Result, second: Result) -> bool:
    """Whether 'stsbench compare' and a board take two scores of one task together."""
    try:
        match_tasks({"a": [first], "b": [second]})
    except ProtocolError:
        matches = False
    else:
        matches = True
    request = TableRequest(catalogue=CATALOGUE, results=[first, second])
    splits = {first.task: first.split, second.task: first.split}
    try:
        boards = request.make_suite_boards("", Suite(name="One", tasks=[first.task]), splits)
        is_kept = len(select_comparable([first, second], CATALOGUE).results) == 2
        shares = is_kept and any(len(board.rows()) == 2 for board in boards)
    except ProtocolError:
        shares = False
    assert shares == matches
    return matches


def test_two_scores_are_comparable_if_and_only_if_the_first_parts_of_their_signatures_agree():
    rng = random.Random(0)
    changes = [*COMPARED_CHANGES[1:2], *COMPARED_CHANGES[3:], *SHOWN_CHANGES]
    for _ in range(60):
        first, second = (
            made(**{key: value for change in rng.sample(changes, rng.randint(0, 2))
                    for key, value in change.items()})
            for _ in range(2)
        )  # fmt: skip
        second = make_result(**{**vars_of(second), "encoder": "second"})
        agree = compared_part(first) == compared_part(second)
        assert agree == (describe_mismatch(first, second) is None)
        assert agree == (format_compared([compared_part(first)]) == text(second))
        assert agree == compare(first, second)


def vars_of(result: Result) -> dict[str, Any]:
    return {name: getattr(result, name) for name in result.__struct_fields__}


def text(*results: Result) -> str:
    return format_compared(map(compared_part, results))


@pytest.mark.parametrize("change", COMPARED_CHANGES, ids=str)
def test_what_changes_a_task_or_a_protocol_changes_the_first_part(change):
    assert text(made(**change)) != text(made())
    assert describe_mismatch(made(), made(**change))


@pytest.mark.parametrize("change", SHOWN_CHANGES, ids=str)
def test_what_changes_an_encoder_or_a_run_does_not_change_the_first_part(change):
    assert text(made(**change)) == text(made())
    assert describe_mismatch(made(), made(**change)) is None


def test_every_change_has_a_first_part_of_its_own():
    texts = [text(made(**change)) for change in COMPARED_CHANGES]
    assert len({*texts, text(made())}) == len(COMPARED_CHANGES) + 1
    ids = {signature_id([compared_part(made(**change))]) for change in COMPARED_CHANGES}
    assert len(ids) == len(COMPARED_CHANGES)


def test_signatures_are_the_same_on_every_machine():
    assert format_signature([made(n=1379)]) == (
        "signature:25d8604a | tasks:sts12 | split:test | n:1379 | cards:cccccccccccc | "
        "data:dddddddddddd | protocol:simcse | metric:spearman | aggregation:all | "
        "similarity:cosine || prompt:none | dtype:float32 | version:0.1.0 | cut:2"
    )
    assert format_signature([made(n=1379)], short=True) == (
        "#:25d8604a | t:sts12 | p:simcse | m:spearman | a:all | s:cosine"
        " || pr:none | dt:float32 | v:0.1.0 | cut:2"
    )
    reordered = dict(reversed(SIMCSE.items()))
    assert text(made(protocol=reordered)) == text(made())


def test_a_mean_has_one_signature_whose_hash_does_not_depend_on_the_order_of_its_tasks():
    results = [made(task=task) for task in ("sts12", "sts13", "stsb")]
    ids = {signature_id(map(compared_part, order)) for order in itertools.permutations(results)}
    assert len(ids) == 1
    assert text(*results).startswith(f"signature:{ids.pop()} | tasks:sts12+sts13+stsb | ")
    assert " | t:sts12+2 | " in format_signature(results, short=True)
    assert text(*results[:2]) != text(*results)
    # The whole text is the same too: the tasks, and the hashes of their cards and data.
    stsb = made(task="stsb", data="e" * 64, task_card="f" * 64)
    assert text(stsb, results[0]) == text(results[0], stsb)
    assert "| tasks:sts12+stsb |" in text(stsb, results[0])
    # A second seed or encoder on the same tasks changes nothing.
    assert text(*results, made(task="sts12", eval_seed=1)) == text(*results)


def test_texts_that_are_cut_are_counted_once_a_task_and_what_is_not_recorded_is_a_question_mark():
    two = [made(), made(task="sts13"), made(task="sts13", eval_seed=1)]
    assert format_shown(two).endswith("cut:4")
    assert format_shown([made(), make_result("minilm", "sts13", 0.5)]) == (
        "prompt:none+? | dtype:float32+? | version:0.1.0+? | cut:?"
    )
    prompt = made(run={**RUN, "prompt": 'a "query": {}'})
    assert format_shown([prompt]).startswith(r'prompt:"a \"query\": {}" | ')
