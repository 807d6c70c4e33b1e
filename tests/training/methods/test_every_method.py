"""What every method does: it learns, a run that was cut off ends as an undisturbed one, its folder opens as it was trained."""

from __future__ import annotations

from typing import Any

import pytest

from stsbench.core.cards import TrainingSection
from stsbench.core.errors import StsbenchError
from stsbench.core.parameters import call_with_params
from stsbench.training.loop import loop
from stsbench.training.methods.registry import METHODS
from tests.training.methods.every_method import CASES, WHOLE, made
from tests.training.methods.runs import reopened_apart, whole_and_resumed
from tests.training.students import run_facts, student


@pytest.mark.parametrize("case", [*CASES, *WHOLE])
def test_a_resumed_run_is_the_undisturbed_one_and_its_folder_opens(masked_lm, tmp_path, case):
    whole, resumed = whole_and_resumed(lambda: made(masked_lm, case, dropout=0.1), tmp_path, 20)
    assert resumed.same_as(whole)
    assert reopened_apart(resumed.learner, tmp_path / "saved") < 1e-5


@pytest.mark.parametrize(
    "case",
    ["clear", "consert, joint", "cosent", "declutr", "esimcse", "is_bert", "mixcse", "mlm", "promptbert", "regression",
     "sbert", "self-guided", "simcse", "simcse++", "tension", "tension in batch", "tsdae"],
)  # fmt: skip
def test_training_lowers_the_loss(masked_lm, tmp_path, case):
    training = {"steps": 40, "learning_rate": 3e-3}
    run = run_facts(tmp_path, 20, training=training, selection={"every": 10})
    curve = loop.train_learner(made(masked_lm, case), run).curve
    assert curve[-1]["loss"] < curve[0]["loss"] - 0.01


OF_NUMBERS: list[tuple[str, dict[str, Any], str]] = [
    ("mixcse", {"mixing": 2.0}, "key 'mixing': expected a number <= 1"),
    ("mixcse", {"temperature": 0.0}, "key 'temperature': expected a number > 0"),
    ("simcse", {"mlm_weight": -1.0}, "key 'mlm_weight': expected a number >= 0"),
    ("mlm", {"rate": 0.0}, "key 'rate': expected a number > 0"),
    ("mlm", {"rate": 1.5}, "key 'rate': expected a number <= 1"),
    ("consert", {"dropout_rate": 1.0}, "key 'dropout_rate': expected a number < 1"),
    ("esimcse", {"queue_size": -1}, "key 'queue_size': expected a whole number >= 0"),
    ("contrastive_tension", {"negatives": 0}, "key 'negatives': expected a whole number >= 1"),
    (
        "rankcse",
        {"teachers": ["a", "b"], "teacher_weights": [1.0, 0.0]},
        "'teacher_weights': expected a number > 0",
    ),
]
OF_TWO: list[tuple[str, dict[str, Any], str]] = [
    (
        "angle",
        dict.fromkeys(("angle_weight", "cosine_weight", "contrastive_weight"), 0.0),
        "give one above 0",
    ),
    ("consert", {"views": ["none", "shufle"]}, "did you mean 'shuffle'"),
    ("consert", {"views": ["none", "adversarial"]}, "adversarial views need labelled pairs"),
    ("consert", {"features": "sbertt"}, "did you mean 'sbert'"),
    ("declutr", {"contrastive_weight": 0.0, "mlm_weight": 0.0}, "one must be above 0"),
    ("is_bert", {"widths": [1, 2]}, "widths [1, 2]: a state for each token needs odd widths"),
    ("is_bert", {"widths": []}, "widths []: a state for each token needs odd widths, at least one"),
    ("is_bert", {"channels": -1}, "channels"),
    ("promptbert", {}, "each pooling must be 'mask'"),
    ("rankcse", {}, "one weight above 0 for each; or ranking_weight 0"),
    (
        "rankcse",
        {"teachers": ["a", "b"], "teacher_weights": [1.0]},
        "one weight above 0 for each; or ranking_weight 0",
    ),
    ("sbert", {"features": ["u-v"]}, "unknown pair feature 'u-v'"),
    ("simcse", {"loss": "symmetric", "views": "triplets"}, "takes no hard negatives"),
    ("simcse", {"loss": "symmetric", "similarity": "dot"}, "use loss = 'one_direction'"),
    (
        "simcse",
        {"two_encoders": True, "mlm_weight": 0.1},
        "two encoders have no masked language modelling",
    ),
    (
        "simcse_plus_plus",
        {"off_dropout": False, "positive_share": 0.9},
        "leave it out, or off_dropout = false",
    ),
    (
        "simcse_positives",
        {"positive": "fixed_mask", "two_encoders": True},
        "two encoders share no dropout mask",
    ),
]


@pytest.mark.parametrize(("method", "params", "says"), OF_NUMBERS + OF_TWO)
def test_values_that_make_no_sense_are_one_line(masked_lm, method, params, says):
    with pytest.raises(StsbenchError) as caught:
        call_with_params(
            METHODS.load(method), {"student": student(masked_lm), **params}, where="[params]"
        )
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "case",
    [
        "clear",
        "consert",
        "esimcse",
        "is_bert",
        "mixcse",
        "promptbert",
        "rankcse",
        "self-guided",
        "simcse",
    ],
)
def test_a_sentence_alone_has_no_negatives(masked_lm, case):
    with pytest.raises(StsbenchError, match="batch_size 1: a sentence's negatives"):
        loop.check_training_settings(
            made(masked_lm, case), TrainingSection(batch_size=1, learning_rate=1.0)
        )
