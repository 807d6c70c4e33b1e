"""A name that is in no table is an error that offers the nearest; nothing stands for "all the others"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import stsbench
from stsbench.cards.recipe import TrainingFacts
from stsbench.data.splits import PairSplit
from stsbench.encoders.transformer.pooling import Pooling
from stsbench.encoders.words.gru_halves import Half
from stsbench.encoders.words.recurrent import pool_max
from stsbench.encoders.words.tokenisers import tokeniser
from stsbench.errors import StsbenchError
from stsbench.evaluators.probe.features import combine
from stsbench.leaderboard.render import render
from stsbench.recipes.prepare import validator
from stsbench.training.loop.optimisers import make_schedule
from stsbench.training.methods.clear import CLEAR
from stsbench.training.methods.consert import ConSERT
from stsbench.training.methods.is_bert import ISBERT
from stsbench.training.methods.sbert_triplets import SBERTTriplets
from stsbench.training.methods.self_guided import SelfGuided
from stsbench.training.methods.simcse import SimCSE
from stsbench.training.methods.simcse_positives import SimCSEPositives
from stsbench.training.objectives import info_nce
from stsbench.training.words.skip_thoughts import SkipThoughts
from tests.training.students import masked_lm, student

__all__ = ["masked_lm"]

ONES = torch.ones(2, 3)
SPLIT = PairSplit(sentences1=["a"], sentences2=["b"], gold=np.ones(1), subset=[""])
FACTS = TrainingFacts(batch_size=2, learning_rate=1.0, schedule="linearr", epochs=1)  # type: ignore[arg-type]

CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "pooling": (lambda: Pooling.parse("meen"), "unknown pooling 'meen'; did you mean 'mean'"),
    "padding": (lambda: pool_max(ONES[None], "zeroes"), "unknown padding 'zeroes'; did you mean 'zeros'"),  # type: ignore[arg-type]
    "tokens": (lambda: tokeniser("mose"), "unknown tokens 'mose'; did you mean 'moses'"),  # type: ignore[arg-type]
    "cell": (
        lambda: Half(word_size=2, hidden=2, cell="tensorflo").shapes(3),  # type: ignore[arg-type]
        "unknown cell 'tensorflo'; did you mean 'tensorflow'",
    ),
    "features": (lambda: combine(ONES, ONES, "abs_mull"), "unknown features 'abs_mull'; did you mean 'abs_mul'"),  # type: ignore[arg-type]
    "format": (lambda: render([], "markdwn"), "unknown format 'markdwn'; did you mean 'markdown'"),
    "format of a terminal": (lambda: render([], "terminal"), "unknown format 'terminal'"),
    "measure": (lambda: validator(SPLIT, measure="cosin"), "unknown measure 'cosin'; did you mean 'cosine'"),
    "similarity": (
        lambda: info_nce(ONES, ONES, temperature=1.0, similarity="cos"),  # type: ignore[arg-type]
        "unknown similarity 'cos'; did you mean 'cosine'",
    ),
    "schedule": (lambda: make_schedule(FACTS, 3), "unknown schedule 'linearr'; did you mean 'linear'"),
    "condition": (
        lambda: SkipThoughts(3, 2, 2, condition="step"),  # type: ignore[arg-type]
        "unknown condition 'step'; did you mean 'steps'",
    ),
    "on_error": (
        lambda: list(stsbench.evaluate("minilm", "quickstart-en", on_error="skipp")),  # type: ignore[arg-type]
        "unknown on_error 'skipp'; did you mean 'skip'",
    ),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_name_in_no_table_is_refused(kind: str) -> None:
    call, message = CALLS[kind]
    with pytest.raises(StsbenchError, match=f"^{message}"):
        call()


METHODS: list[tuple[Any, dict[str, Any], str]] = [
    (SimCSE, {"loss": "symetric"}, "unknown loss 'symetric'; did you mean 'symmetric'"),
    (SimCSE, {"views": "pair"}, "unknown views 'pair'; did you mean 'pairs'"),
    (SimCSEPositives, {"positive": "crob"}, "unknown positive 'crob'; did you mean 'crop'"),
    (SelfGuided, {"variant": "opt4"}, "unknown variant 'opt4'; did you mean 'opt"),
    (ISBERT, {"activation": "relo"}, "unknown activation 'relo'; did you mean 'relu'"),
    (ConSERT, {"objective": "joined"}, "unknown objective 'joined'; did you mean 'joint'"),
    (ConSERT, {"sides": "men"}, "unknown sides 'men'; did you mean 'mean'"),
    (SBERTTriplets, {"views": "triplet"}, "unknown views 'triplet'; did you mean 'triplets'"),
    (CLEAR, {"first": "reorder", "second": "reorder", "projection": "mlpp"}, "unknown projection 'mlpp'"),
]


@pytest.mark.parametrize(("method", "params", "message"), METHODS)
def test_a_method_takes_no_name_that_it_does_not_know(
    masked_lm: Any, method: Any, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(StsbenchError, match=f"^{message}"):
        method(student(masked_lm), **params)


def test_a_head_starts_as_one_of_two(masked_lm: Any) -> None:
    with pytest.raises(StsbenchError, match="^unknown head 'fresch'; did you mean 'fresh'"):
        student(masked_lm, pooling="cls", head="fresch")


@pytest.mark.parametrize("kind", ["cls", "cls_before_pooler", "last_token"])
def test_first_and_last_token_are_told_by_name(kind: Any) -> None:
    state = torch.arange(6.0).reshape(1, 3, 2)
    expected = state[0, 2] if kind == "last_token" else state[0, 0]
    torch.testing.assert_close(Pooling.parse(kind).pool([state], torch.ones(1, 3))[0], expected)
