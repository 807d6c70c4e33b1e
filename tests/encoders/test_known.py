"""What a known encoder is called, and what its results say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.known import KnownEncoder, known_as, variant_name
from stsbench.encoders.trained import RunRecord, TrainedRun
from tests.encoders.fakes import Plain


def test_a_changed_parameter_changes_the_name():
    assert variant_name("minilm", {"pooling": "max", "dtype": "bfloat16"}) == "minilm+dtype=bfloat16+pooling=max"
    assert variant_name("minilm", {"device": "cpu"}) == "minilm"
    assert variant_name("flow", {"seed": 3}, places=["seed"]) == "flow"
    # In which folder of this machine a file lies is no part of a name.
    places: list[object] = ["/home/me/x.txt", "~/x.txt", "C:\\\\me\\\\x.txt", "x.txt"]
    assert {variant_name("glove", {"file": place}) for place in places} == {"glove+file=x.txt"}
    assert variant_name("a", {"files": ["/tmp/b.txt", "c/d.txt"]}) == "a+files=['b.txt', 'c/d.txt']"


def test_an_encoder_with_a_cards_name_is_called_by_its_class():
    catalogue, encoder = Catalogue(), Plain()
    assert known_as(encoder, catalogue).name == "plain"
    encoder.name = "minilm"
    assert known_as(encoder, catalogue).name == "tests.encoders.fakes:Plain"


@pytest.mark.parametrize(
    ("recorded", "saw_task", "expected"),
    [("none", False, "none"), ("none", True, "text"), ("gold", True, "gold"), ("unknown", False, "unknown")],
)
def test_overlap_is_the_worst_of_training_and_fitting(recorded, saw_task, expected):
    record = RunRecord(recipe="mine", seed=0, overlap={"stsb": recorded})
    run = TrainedRun(folder=Path(), record=record, facts={})
    assert KnownEncoder(name="mine", encoder=Plain(), run=run, saw_task=saw_task).overlap_with("stsb") == expected


@pytest.mark.parametrize(("claimed", "expected"), [("none", "unknown"), ("text", "text"), ("gold", "gold")])
def test_a_record_beside_a_folder_is_believed_against_itself_alone(claimed, expected):
    record = RunRecord(recipe="mine", seed=0, overlap={"stsb": claimed})
    claims = TrainedRun(folder=Path(), record=record, facts={})
    assert KnownEncoder(name="mine", encoder=Plain(), claims=claims).overlap_with("stsb") == expected
