"""The hash of a card is over what decides; what describes may be edited."""

import msgspec
import pytest

from stsbench.core.cards import task_digest
from stsbench.core.catalogue import Catalogue

CARD = Catalogue().task("sts12")


@pytest.mark.parametrize(
    "key, value", [("note", "another"), ("name", "STS of 2012"), ("hub", None), ("paper", "print")]
)
def test_what_describes_a_task_may_be_edited(key, value):
    assert task_digest(msgspec.structs.replace(CARD, **{key: value})) == task_digest(CARD)


@pytest.mark.parametrize(
    "key, value", [("evaluator", "relatedness"), ("options", {"protocol": "x"}), ("score_split", "train")]
)
def test_what_decides_a_score_makes_another_hash(key, value):
    splits = {**CARD.splits, "train": CARD.splits["test"]}
    assert task_digest(msgspec.structs.replace(CARD, splits=splits, **{key: value})) != task_digest(CARD)
