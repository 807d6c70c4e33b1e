"""SBERT's two objectives: literal losses, sentence-transformers' own, resumed runs and saved folders."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.errors import CardError, DataError, UnknownName
from stsbench.training.loop import loop
from stsbench.training.loop.saving import save_student
from stsbench.training.methods.sbert import SBERT
from stsbench.training.methods.sbert_regression import SBERTRegression
from tests.training.methods.runs import first_batch, reopened_apart, values, whole_and_resumed
from tests.training.students import run_facts, sentences, student

FIRST, SECOND = sentences(24, seed=1), sentences(24, seed=2)
NAMES = ["contradiction", "entailment", "neutral"]
LABELS = [NAMES[i] for i in np.random.default_rng(0).integers(3, size=24)]
SCORES = np.random.default_rng(1).uniform(0, 5, 24).round(1).tolist()


def softmax(folder: Path, **params: Any) -> SBERT:
    made = SBERT(student(folder), **params)
    made.prepare({"first": FIRST, "second": SECOND, "label": LABELS})
    return made


def regression(folder: Path, **params: Any) -> SBERTRegression:
    made = SBERTRegression(student(folder), **params)
    made.prepare({"first": FIRST, "second": SECOND, "score": SCORES})
    return made


def pairs(made: Any, count: int = 8) -> list[tuple[list[float], list[float]]]:
    encode = made.student.encoder().encode
    return list(zip(encode(FIRST[:count]).tolist(), encode(SECOND[:count]).tolist(), strict=True))


FEATURES = {
    "u": lambda x, y: x,
    "v": lambda x, y: y,
    "|u-v|": lambda x, y: abs(x - y),
    "u*v": lambda x, y: x * y,
}


@pytest.mark.parametrize(
    ("params", "features"),
    [
        ({}, ["u", "v", "|u-v|"]),
        ({"features": "infersent", "bias": False}, ["u", "v", "|u-v|", "u*v"]),
        ({"features": ["u", "v"]}, ["u", "v"]),
        ({"features": ["|u-v|"]}, ["|u-v|"]),
        ({"features": ["u*v"]}, ["u*v"]),
    ],
)
def test_the_softmax_loss_is_the_literal_one_whatever_the_features(masked_lm, params, features):
    made = softmax(masked_lm, **params).eval()
    classifier = made.softmax.classifier
    weight = classifier.weight.tolist()
    bias = [0.0] * 3 if classifier.bias is None else classifier.bias.tolist()
    total, right = 0.0, 0
    for (u, v), label in zip(pairs(made), LABELS, strict=False):
        inputs = [FEATURES[name](x, y) for name in features for x, y in zip(u, v, strict=True)]
        logits = [sum(w * x for w, x in zip(row, inputs, strict=True)) + b for row, b in zip(weight, bias, strict=True)]
        total += math.log(sum(map(math.exp, logits))) - logits[NAMES.index(label)]
        right += max(range(3), key=logits.__getitem__) == NAMES.index(label)
    found = values(made, first_batch(made))
    assert found["loss"] == pytest.approx(total / 8, abs=1e-5) and found["accuracy"] == pytest.approx(right / 8)
    assert (classifier.bias is None) == (params.get("bias") is False)


def library(made: Any, folder: Path) -> tuple[Any, list[Any]]:
    from sentence_transformers import SentenceTransformer

    save_student(made.student, folder)
    model = SentenceTransformer(str(folder), device="cpu").eval()
    return model, [model.preprocess(texts[:8]) for texts in (FIRST, SECOND)]


def test_the_losses_are_sentence_transformers(masked_lm, tmp_path):
    from sentence_transformers.sentence_transformer import losses

    made = softmax(masked_lm).eval()
    model, texts = library(made, tmp_path / "softmax")
    theirs = losses.SoftmaxLoss(model, 16, 3)
    theirs.classifier.load_state_dict(made.softmax.classifier.state_dict())
    labels = torch.tensor([NAMES.index(label) for label in LABELS[:8]])
    assert values(made, first_batch(made))["loss"] == pytest.approx(theirs(texts, labels).item(), abs=1e-5)
    scored = regression(masked_lm).eval()
    model, texts = library(scored, tmp_path / "regression")
    wanted = losses.CosineSimilarityLoss(model)(texts, torch.tensor(SCORES[:8]) / 5).item()
    assert values(scored, first_batch(scored))["loss"] == pytest.approx(wanted, abs=1e-6)


def test_the_regression_loss_is_the_literal_one(masked_lm):
    made, total = regression(masked_lm, highest_score=10.0).eval(), 0.0
    for (u, v), score in zip(pairs(made), SCORES, strict=False):
        dot, lengths = sum(map(float.__mul__, u, v)), math.hypot(*u) * math.hypot(*v)
        total += (dot / lengths - score / 10) ** 2
    assert values(made, first_batch(made))["loss"] == pytest.approx(total / 8, abs=1e-5)


@pytest.mark.parametrize("make", [softmax, regression])
def test_training_lowers_the_loss_and_reaches_the_transformer(masked_lm, tmp_path, make):
    made = make(masked_lm)
    before = made.student.model.encoder.layer[0].output.dense.weight.detach().clone()
    training = {"steps": 40, "learning_rate": 3e-3}
    curve = loop.train_learner(
        made, run_facts(tmp_path, 24, training=training, selection={"every": 10, "keep": "last"})
    ).curve
    assert curve[-1]["loss"] < curve[0]["loss"]
    assert not torch.equal(before, made.student.model.encoder.layer[0].output.dense.weight)


@pytest.mark.parametrize("make", [softmax, pytest.param(regression, marks=pytest.mark.slow)])
def test_a_resumed_run_is_the_undisturbed_one_and_its_folder_opens(masked_lm, tmp_path, make):
    whole, resumed = whole_and_resumed(lambda: make(masked_lm), tmp_path, 24)
    assert resumed.same_as(whole)
    assert reopened_apart(resumed.learner, tmp_path / "saved") < 1e-5


def test_what_does_not_fit_is_one_line(masked_lm):
    made = softmax(masked_lm)
    with pytest.raises(DataError, match="label 'entailmet', did you mean 'entailment'|label 'entailmet'"):
        made.prepare({"first": FIRST, "second": SECOND, "label": ["entailmet", *LABELS[1:]]})
    with pytest.raises(DataError, match=r"row 2: score 6 is not from 0 to 5; set highest_score"):
        regression(masked_lm).prepare({"first": FIRST, "second": SECOND, "score": [1.0, 6.0, *SCORES[2:]]})
    with pytest.raises(DataError, match="row 1: score nan"):
        regression(masked_lm).prepare({"first": FIRST, "second": SECOND, "score": [math.nan, *SCORES[1:]]})
    with pytest.raises(CardError, match="highest_score 0"):
        regression(masked_lm, highest_score=0.0)
    with pytest.raises(UnknownName, match="u-v"):
        softmax(masked_lm, features=["u-v"])
    with pytest.raises(CardError, match="does not take v by itself"):
        softmax(masked_lm, features=["v", "|u-v|"])
    with pytest.raises(CardError, match=r"does not take max\(u,v\)\^2 by itself"):
        softmax(masked_lm, features="consert-scripts")
