"""Contrastive tension: whom pairs are made of, both copies at work, and the one that validation keeps."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.core.errors import TrainingError
from stsbench.encoders.load import load_encoder
from stsbench.training.loop import loop
from stsbench.training.methods.two_models import ContrastiveTension, ContrastiveTensionInBatch
from tests.training.methods.runs import first_batch, values
from tests.training.students import run_facts, sentences, student

TEXTS = list(dict.fromkeys(sentences(40, seed=1)))[:24]
RNG = np.random.default_rng


def pairs(folder: Path, texts: list[str] = TEXTS, **params: Any) -> ContrastiveTension:
    made = ContrastiveTension(student(folder), **params)
    made.prepare({"text": texts})
    return made


def in_batch(folder: Path, **params: Any) -> ContrastiveTensionInBatch:
    made = ContrastiveTensionInBatch(student(folder), **params)
    made.prepare({"text": TEXTS})
    return made


def part(made: Any, factor: float = 1.3) -> None:
    """Make the copies different."""
    with torch.no_grad():
        for parameter in made.second.parameters():
            parameter.mul_(factor)


def texts_of(made: Any, tokens: dict[str, torch.Tensor]) -> list[str]:
    decoded = made.student.backbone.tokenizer.batch_decode(
        tokens["input_ids"], skip_special_tokens=True
    )
    return [str(text) for text in decoded]


def test_a_sentence_with_itself_is_followed_by_seven_pairs_of_two_others(masked_lm):
    made = pairs(masked_lm)
    batch = made.collate(np.array([4, 9]), RNG(0))
    first, second = texts_of(made, batch["first"]), texts_of(made, batch["second"])
    assert batch["labels"].tolist() == [1.0, *[0.0] * 7] * 2
    assert first[0] == second[0] == TEXTS[4] and first[8] == second[8] == TEXTS[9]
    others = [*zip(first[1:8], second[1:8], [TEXTS[4]] * 7, strict=True)]
    others += [*zip(first[9:], second[9:], [TEXTS[9]] * 7, strict=True)]
    assert all(len(set(three)) == 3 for three in others)
    assert len({*first, *second}) > 10


def test_negatives_never_are_the_anchor_even_where_it_occurs_twice(masked_lm):
    texts = ["dog", "dog", "cat", "bird"]
    made = pairs(masked_lm, texts, negatives=3)
    for seed in range(40):
        batch = made.collate(np.array([0, 1]), RNG(seed))
        first, second = texts_of(made, batch["first"]), texts_of(made, batch["second"])
        for a, b, same in zip(first, second, batch["labels"].tolist(), strict=True):
            assert {a, b} == ({"dog"} if same else {"cat", "bird"})
    with pytest.raises(TrainingError, match="2 distinct texts"):
        pairs(masked_lm, ["dog", "cat", "dog"])


def test_the_loss_is_the_literal_cross_entropy_of_both_copies(masked_lm):
    made = pairs(masked_lm, negatives=3)
    part(made)
    batch = made.collate(np.array([0, 5]), RNG(1))
    one, other = (encoder.encode for encoder in made.encoders())
    a, b = (
        one(texts_of(made, batch["first"])).tolist(),
        other(texts_of(made, batch["second"])).tolist(),
    )
    total, dots = 0.0, dict[float, list[float]]()
    for x, y, label in zip(a, b, batch["labels"].tolist(), strict=True):
        dots.setdefault(label, []).append(sum(map(float.__mul__, x, y)))
        same = 1 / (1 + math.exp(-dots[label][-1]))
        total -= math.log(same if label else 1 - same)
    found = values(made, batch)
    assert found["loss"] == pytest.approx(total / 8, rel=1e-4)
    assert found["same"] == pytest.approx(sum(dots[1.0]) / 2, rel=1e-4)
    assert found["others"] == pytest.approx(sum(dots[0.0]) / 6, rel=1e-4)


def test_dropout_is_off_while_training_unless_asked_for(masked_lm, tmp_path):
    still, noisy = pairs(masked_lm), pairs(masked_lm, dropout_in_training=True)
    for made, same in ((still, True), (noisy, False)):
        made.train()
        batch = first_batch(made)
        assert (values(made, batch) == values(made, batch)) is same
        assert made.training
    modes: list[bool] = []

    def validate(encoder: Any) -> float:
        modes.append(still.student.model.training or still.second.model.training)
        return 0.0

    loop.train_learner(still, run_facts(tmp_path, 24, validate=validate))
    assert modes and not any(modes)


def test_the_better_copy_is_kept(masked_lm, tmp_path):
    scores = iter([0.1, 0.2, 0.3, 0.9, 0.5, 0.4])
    seen: list[Any] = []

    def validate(encoder: Any) -> float:
        seen.append(encoder.encode(TEXTS))
        return next(scores)

    made = pairs(masked_lm)
    outcome = loop.train_learner(
        made, run_facts(tmp_path / "run", 24, validate=validate, training={"steps": 15})
    )
    assert outcome.selected_point is not None and (
        outcome.selected_point["step"],
        outcome.selected_point["candidate"],
    ) == (
        10,
        1,
    )
    made.save(tmp_path / "saved", chosen=1)
    np.testing.assert_allclose(load_encoder(tmp_path / "saved").encode(TEXTS), seen[3], atol=1e-5)
    assert not np.allclose(seen[3], seen[2], atol=1e-5)
