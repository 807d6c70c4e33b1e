"""SBERT's objectives, triplets in batches, CoSENT and AnglE: literal losses, the libraries' and official codes' own values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.core.cards import TrainingSection
from stsbench.core.errors import CardError, DataError, UnknownName
from stsbench.training.loop.batches import Batches, BatchPlan
from stsbench.training.methods.sbert import SBERT, AnglE, SBERTRegression, SBERTTriplets
from stsbench.training.methods.simcse import SimCSE
from tests.training.methods.runs import first_batch, values
from tests.training.students import sentences, student
from tests.training.tensors import cosine, made

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
        ({"features": ["u*v", "u"]}, ["u*v", "u"]),
    ],
)
def test_the_softmax_loss_is_the_literal_one_whatever_the_features(masked_lm, params, features):
    made = softmax(masked_lm, **params).eval()
    classifier = made.classifier
    weight = classifier.weight.tolist()
    bias = [0.0] * 3 if classifier.bias is None else classifier.bias.tolist()
    total, right = 0.0, 0
    for (u, v), label in zip(pairs(made), LABELS, strict=False):
        inputs = [FEATURES[name](x, y) for name in features for x, y in zip(u, v, strict=True)]
        logits = [
            sum(w * x for w, x in zip(row, inputs, strict=True)) + b
            for row, b in zip(weight, bias, strict=True)
        ]
        total += math.log(sum(map(math.exp, logits))) - logits[NAMES.index(label)]
        right += max(range(3), key=logits.__getitem__) == NAMES.index(label)
    found = values(made, first_batch(made))
    assert found["loss"] == pytest.approx(total / 8, abs=1e-5) and found[
        "accuracy"
    ] == pytest.approx(right / 8)
    assert (classifier.bias is None) == (params.get("bias") is False)


def test_the_regression_loss_is_the_literal_one(masked_lm):
    made, total = regression(masked_lm, highest_score=10.0).eval(), 0.0
    for (u, v), score in zip(pairs(made), SCORES, strict=False):
        dot, lengths = sum(map(float.__mul__, u, v)), math.hypot(*u) * math.hypot(*v)
        total += (dot / lengths - score / 10) ** 2
    assert values(made, first_batch(made))["loss"] == pytest.approx(total / 8, abs=1e-5)


def test_an_unknown_label_is_one_line(masked_lm):
    labels = ["entailmet", *LABELS[1:]]
    with pytest.raises(UnknownName, match="label 'entailmet'; .* mean 'entailment'") as caught:
        softmax(masked_lm).prepare({"first": FIRST, "second": SECOND, "label": labels})
    assert "without one" in caught.value.hint


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1.0, 6.0, *SCORES[2:]], "row 2: score 6 is not from 0 to 5; set highest_score"),
        ([-1.0, *SCORES[1:]], "row 1: score -1 is not from 0 to 5; leave the pair out"),
        ([math.nan, *SCORES[1:]], "row 1: score nan"),
    ],
)
def test_a_score_out_of_range_is_one_line(masked_lm, scores, message):
    with pytest.raises(DataError, match=message):
        regression(masked_lm).prepare({"first": FIRST, "second": SECOND, "score": scores})


TRIPLETS = {
    name: sentences(24, seed=seed)
    for seed, name in enumerate(("anchor", "positive", "negative"), 1)
}
REPEATED = {
    "anchor": [f"dog {'big ' * (i // 3)}" for i in range(60)],
    "positive": [f"cat {'small ' * i}" for i in range(60)],
    "negative": [f"bird {'red ' * ((i * 7) % 20)}" for i in range(60)],
}
"""Each anchor and each negative occurs three times."""


def learner(folder: Path, columns: Any = None, **params: Any) -> SBERTTriplets:
    made = SBERTTriplets(student(folder, max_length=40), **params)
    made.prepare(columns or TRIPLETS)
    return made


def test_the_loss_is_supervised_simcses_at_the_inverse_of_the_scale(masked_lm):
    made, other = (
        learner(masked_lm).eval(),
        SimCSE(student(masked_lm), views="triplets", temperature=0.05).eval(),
    )
    other.prepare(TRIPLETS)
    assert values(made, first_batch(made)) == pytest.approx(
        values(other, first_batch(other)), rel=1e-6
    )


def rows_of(made: SBERTTriplets, size: int, *, ranks: int = 1) -> list[np.ndarray[Any, Any]]:
    order = made.order(60, np.random.default_rng(3), batch=size * ranks)
    assert sorted(order.tolist()) == list(range(60))
    return [order[start : start + size * ranks] for start in range(0, 60, size * ranks)]


@pytest.mark.parametrize("size", [2, 5, 12])
def test_no_text_occurs_twice_in_a_batch(masked_lm, size):
    made = learner(masked_lm, REPEATED)
    # What is left for the last batch may have no other place.
    for rows in rows_of(made, size)[:-1]:
        for name in made.needs:
            texts = [REPEATED[name][row] for row in rows]
            assert len(set(texts)) == len(texts)
    # By chance alone they would.
    chance = np.random.default_rng(3).permutation(60)[:12]
    assert (
        len(
            {REPEATED["anchor"][row] for row in chance}
            | {REPEATED["negative"][row] for row in chance}
        )
        < 24
    )


def test_a_text_in_two_columns_is_the_same_text(masked_lm):
    columns = {**REPEATED, "positive": [REPEATED["anchor"][(i + 30) % 60] for i in range(60)]}
    made = learner(masked_lm, columns)
    for rows in rows_of(made, 6)[:5]:
        anchors, positives = (
            [columns[name][row] for row in rows] for name in ("anchor", "positive")
        )
        assert not set(anchors) & set(positives)


def test_ranks_together_make_the_batch(masked_lm, monkeypatch):
    made = learner(masked_lm, REPEATED)
    facts = TrainingSection(batch_size=6, learning_rate=1e-3, epochs=1)
    monkeypatch.setattr(made, "collate", lambda rows, rng: rows)
    halves = [Batches(made, BatchPlan(facts, 60, seed=0, rank=rank, ranks=2)) for rank in (0, 1)]
    for number in range(4):
        rows: Any = [*halves[0][number], *halves[1][number]]
        assert len({REPEATED["anchor"][row] for row in rows}) == 12


ANGLE_SCORES = [row % 6 * 0.9 for row in range(24)]
PLAIN: dict[str, float] = {"angle_weight": 0.0, "cosine_weight": 0.0, "contrastive_weight": 0.0}


def angle(folder: Path, **params: Any) -> AnglE:
    learner = AnglE(student(folder), **params)
    learner.prepare({"first": FIRST, "second": SECOND, "score": ANGLE_SCORES})
    return learner


class Given:
    """In the place of a student: it embeds a batch as it is."""

    def embed(self, batch: torch.Tensor) -> torch.Tensor:
        return batch


def on_tensors(
    folder: Path, u: torch.Tensor, v: torch.Tensor, scores: torch.Tensor, **params: Any
) -> dict[str, float]:
    learner = AnglE(student(folder), **params)
    del learner.student
    object.__setattr__(learner, "student", Given())
    return {
        name: loss.item() for name, loss in learner(views=torch.cat([u, v]), scores=scores).items()
    }


def by_angle(u: torch.Tensor, v: torch.Tensor) -> float:
    """The quotient of two vectors of complex numbers by their lengths' quotient: real and imaginary parts summed."""
    half = len(u) // 2
    z, w = (
        [complex(*parts) for parts in zip(x[:half], x[half:], strict=True)]
        for x in (u.tolist(), v.tolist())
    )
    length = sum(abs(one) ** 2 for one in w)
    quotient = [a * b.conjugate() / length for a, b in zip(z, w, strict=True)]
    turned = math.sqrt(sum(abs(one) ** 2 for one in z) / length)
    return abs(sum(one.real + one.imag for one in quotient) / turned)


def by_order(found: list[float], scores: list[float]) -> float:
    n = range(len(found))
    return math.log1p(
        sum(math.exp(found[i] - found[j]) for i in n for j in n if scores[i] < scores[j])
    )


def test_the_losses_are_the_literal_ones(masked_lm):
    u, v, scores = made(6, 8, key=1), made(6, 8, key=2), [0.0, 2.2, 1.0, 5.0, 2.6, 0.4]
    found = on_tensors(
        masked_lm, u, v, torch.tensor(scores), angle_scale=7.0, cosine_scale=3.0, temperature=0.2
    )
    pairs = list(zip(u, v, strict=True))
    assert found["angle"] == pytest.approx(
        by_order([7 * by_angle(*pair) for pair in pairs], scores), rel=1e-9
    )
    assert found["cosine"] == pytest.approx(
        by_order([3 * cosine(*pair) for pair in pairs], scores), rel=1e-9
    )
    all_, total = [*u, *v], 0.0
    for i, one in enumerate(all_):
        below = sum(math.exp(cosine(one, other) / 0.2) for j, other in enumerate(all_) if j != i)
        if scores[i % 6] >= 1:
            total -= math.log(math.exp(cosine(one, all_[(i + 6) % 12]) / 0.2) / below)
    assert found["contrastive"] == pytest.approx(total / 12, rel=1e-9)
    assert found["loss"] == pytest.approx(
        0.02 * found["angle"] + found["cosine"] + found["contrastive"], rel=1e-9
    )


@pytest.mark.parametrize(
    ("positives", "contrast"), [("own", 1.4801743609785838), ("released", 2.0916870276961954)]
)
def test_the_losses_are_the_official_code_s(masked_lm, positives, contrast):
    # angle_loss, cosine_loss and in_batch_negative_loss of SeanLee97/AnglE@5155458, run in torch 2.13; `own` with
    # scores that are 0 and 1, as the code is made for.
    scores = torch.tensor([0.0, 2.2, 1.0, 5.0, 2.6, 0.4])
    found = on_tensors(masked_lm, made(6, 8, key=1), made(6, 8, key=2), scores, positives=positives)
    assert found["angle"] == pytest.approx(6.8788484256742395, rel=1e-12)
    assert found["cosine"] == pytest.approx(5.413982892536965, rel=1e-12)
    assert found["contrastive"] == pytest.approx(contrast, rel=1e-12)


def test_by_mistake_equal_products_meet(masked_lm):
    scores = torch.tensor([0.0, 2.2, 1.0])
    own, released = (
        angle(masked_lm, positives=name).positive_mask(scores) for name in ("own", "released")
    )
    # Sentences side by side are 0 to 5: the second of the second pair looks for 2 * 2, and 4 * 1 is as much.
    assert (released & ~own).nonzero().tolist() == [[4, 2], [5, 1]]
    assert own.nonzero().tolist() == [[1, 4], [2, 5], [4, 1], [5, 2]]
    assert (own & ~released).sum() == 0


def test_as_released_a_score_below_one_has_no_positives(masked_lm):
    # The code rounds scores down, and a 0 is nobody's positive: whatever the lowest score of a positive is.
    scores = torch.tensor([0.5, 0.9, 2.2, 0.0])
    low, usual = (
        angle(masked_lm, positives="released", lowest_positive=lowest).positive_mask(scores)
        for lowest in (0.5, 1.0)
    )
    assert low.nonzero().tolist() == usual.nonzero().tolist() == [[2, 6], [6, 2]]


def test_as_released_a_batch_lacks_pairs_of_which_it_has_a_text(masked_lm):
    columns: dict[str, Any] = {"first": ["a dog", "a cat", "a bird", "fish", "a man", "sings"],
               "second": ["dog", "a dog", "a bird", "a cat", "a bird", "swims"], "score": [0, 1, 2, 3, 4, 5]}  # fmt: skip
    kept, dropped = (AnglE(student(masked_lm), doubled_texts=way) for way in ("keep", "drop"))
    for learner in (kept, dropped):
        learner.prepare(columns)
    whole, batch = (first_batch(learner, 6) for learner in (kept, dropped))
    # 'a cat' is read although its pair is left out, and so is the pair of 'fish' with it.
    assert whole["scores"].tolist() == [0, 1, 2, 3, 4, 5] and batch["scores"].tolist() == [0, 5]
    assert torch.equal(batch["views"]["input_ids"], whole["views"]["input_ids"][[0, 5, 6, 11]])
    assert values(dropped, batch)["loss"] > 0
    with pytest.raises(CardError, match="no pair of two texts; use 'keep'"):
        dropped.collate(np.array([2]), np.random.default_rng(0))


@pytest.mark.parametrize("name", ["angle", "cosine", "contrastive"])
def test_a_loss_alone_is_what_its_weight_says(masked_lm, name):
    learner = angle(masked_lm, **{**PLAIN, f"{name}_weight": 3.0}).eval()
    found = values(learner, first_batch(learner))
    assert set(found) == {"loss", name} and found["loss"] == pytest.approx(
        3 * found[name], rel=1e-6
    )
    assert found[name] > 0.1
