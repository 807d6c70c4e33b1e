"""CoSENT: the literal loss, its author's value, exact resumption, and what scores may be."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.errors import CardError, DataError
from stsbench.training.loop import loop
from stsbench.training.methods.cosent import CoSENT
from stsbench.training.objectives import GivenEmbeddings, library_loss
from tests.training.methods.runs import first_batch, reopened_apart, values, whole_and_resumed
from tests.training.students import run_facts, sentences, student
from tests.training.tensors import made

FIRST, SECOND = sentences(24, seed=1), sentences(24, seed=2)
SCORES = np.random.default_rng(1).uniform(0, 5, 24).round(0).tolist()


def cosent(folder: Path, scores: Any = SCORES, **params: Any) -> CoSENT:
    learner = CoSENT(student(folder), **params)
    learner.prepare({"first": FIRST, "second": SECOND, "score": scores})
    return learner


def literal(folder: Path, scale: float) -> float:
    """Of the first eight pairs, pair of pairs by pair of pairs."""
    encode = student(folder).encoder().encode
    closeness = []
    for u, v in zip(encode(FIRST[:8]).tolist(), encode(SECOND[:8]).tolist(), strict=True):
        closeness.append(scale * sum(map(float.__mul__, u, v)) / math.hypot(*u) / math.hypot(*v))
    wrong = [closeness[i] - closeness[j] for i in range(8) for j in range(8) if SCORES[i] < SCORES[j]]
    assert 0 < len(wrong) < 28
    return math.log1p(sum(map(math.exp, wrong)))


@pytest.mark.parametrize("scale", [20.0, 3.0])
def test_the_loss_is_the_literal_one(masked_lm, scale):
    learner = cosent(masked_lm, scale=scale).eval()
    assert values(learner, first_batch(learner))["loss"] == pytest.approx(literal(masked_lm, scale), rel=1e-5)


def test_the_loss_is_the_author_s():
    from sentence_transformers.sentence_transformer.losses import CoSENTLoss

    found = library_loss(
        CoSENTLoss(GivenEmbeddings()),
        made(6, 8, key=1),
        made(6, 8, key=2),
        labels=torch.tensor([0.0, 2.2, 1.0, 5.0, 2.6, 0.4]),
    )
    # cosine_loss of SeanLee97/AnglE@5155458, made after bojone/CoSENT@124c368, run in torch 2.13.
    assert found.item() == pytest.approx(5.413982892536965, rel=1e-12)


def test_the_order_of_scores_alone_counts(masked_lm):
    plain, other = cosent(masked_lm).eval(), cosent(masked_lm, [score**3 - 40 for score in SCORES]).eval()
    assert values(other, first_batch(other)) == values(plain, first_batch(plain))


def test_a_resumed_run_is_the_undisturbed_one_and_its_folder_opens(masked_lm, tmp_path):
    whole, resumed = whole_and_resumed(lambda: cosent(masked_lm), tmp_path, 24)
    assert resumed.same_as(whole)
    assert reopened_apart(resumed.learner, tmp_path / "saved") < 1e-5


def test_training_lowers_the_loss(masked_lm, tmp_path):
    curve = loop.train_learner(
        cosent(masked_lm),
        run_facts(tmp_path, 24, training={"steps": 40, "learning_rate": 3e-3}, selection={"every": 10}),
    ).curve
    assert curve[-1]["loss"] < curve[0]["loss"]


def test_what_does_not_fit_is_one_line(masked_lm):
    with pytest.raises(CardError, match="scale 0"):
        cosent(masked_lm, scale=0.0)
    with pytest.raises(DataError, match="row 1: score nan is no number"):
        cosent(masked_lm, [math.nan, *SCORES[1:]])
