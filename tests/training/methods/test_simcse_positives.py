"""SimCSE's other positives: each view is what the paper says it is."""

from typing import Any

import numpy as np
import pytest
import torch

from stsbench.errors import CardError
from stsbench.training.loop import loop
from stsbench.training.methods.simcse_positives import SimCSEPositives
from tests.training.methods.runs import embedded
from tests.training.students import run_facts, sentences, student

TEXTS = sentences(24, longest=14)
DOCUMENTS = np.repeat(np.arange(6), 4)
TABLE = "dog\thound\tpuppy\ncat\tkitten\n"
ROWS = np.arange(8)


@pytest.fixture
def synonyms(tmp_path: Any) -> str:
    path = tmp_path / "synonyms.tsv"
    path.write_text(TABLE)
    return str(path)


def learner(folder: Any, positive: str, *, dropout: float = 0.1, **params: Any) -> SimCSEPositives:
    made = SimCSEPositives(student(folder, dropout=dropout), positive=positive, **params)
    made.prepare({"text": TEXTS, "document_id": list(DOCUMENTS)})
    return made


def words(made: SimCSEPositives, view: Any) -> list[list[str]]:
    tokenizer: Any = made.student.backbone.tokenizer
    return [tokenizer.decode(ids, skip_special_tokens=True).split() for ids in view["input_ids"]]


@pytest.mark.parametrize("positive", ["crop", "delete_words", "delete_one_word"])
def test_positives_of_words_are_shorter_and_in_order(masked_lm, positive):
    made = learner(masked_lm, positive, rate=0.3) if positive != "delete_one_word" else learner(masked_lm, positive)
    batch = made.collate(ROWS, np.random.default_rng(0))
    pairs = list(zip(words(made, batch["first"]), words(made, batch["second"]), strict=True))
    for whole, part in pairs:
        left = iter(whole)
        assert all(word in left for word in part)
        lost = len(whole) - len(part)
        assert lost == (int(0.3 * len(whole)) if positive != "delete_one_word" else 1)


def test_a_synonym_takes_one_words_place(masked_lm, synonyms):
    made = learner(masked_lm, "synonym", synonyms=synonyms)
    assert made.augment is not None
    assert made.augment(["a", "dog"], rng=np.random.default_rng(0))[1] in ("hound", "puppy")


def test_masked_words_are_others_of_the_vocabulary(masked_lm):
    made = learner(masked_lm, "masked_word", rate=0.15)
    batch = made.collate(ROWS, np.random.default_rng(0))
    for whole, changed in zip(words(made, batch["first"]), words(made, batch["second"]), strict=True):
        assert len(whole) == len(changed)
        assert 1 <= sum(a != b for a, b in zip(whole, changed, strict=True)) <= 3


def test_next_sentences_stay_within_the_document(masked_lm):
    made = learner(masked_lm, "next_sentence")
    order = made.order(len(TEXTS), np.random.default_rng(0), batch=8)
    assert len(order) == len(TEXTS) and not set(order.tolist()) & {3, 7, 11, 15, 19, 23}
    batch = made.collate(order[:6], np.random.default_rng(1))
    assert words(made, batch["second"]) == [TEXTS[row + 1].split() for row in order[:6]]
    with pytest.raises(CardError, match="no document"):
        alone = SimCSEPositives(student(masked_lm), positive="next_sentence")
        alone.prepare({"text": TEXTS, "document_id": list(range(24))})


def test_a_fixed_mask_makes_both_views_one(masked_lm):
    made = learner(masked_lm, "fixed_mask", dropout=0.3).train()
    batch = made.collate(ROWS, np.random.default_rng(0))
    one, two = embedded(made, batch, made.student)
    assert torch.equal(one, two)
    after = embedded(made, batch, made.student)[0]
    assert not torch.equal(one, after)


def test_two_encoders_start_alike_and_drift_apart(masked_lm, tmp_path):
    made = learner(masked_lm, "two_encoders")
    assert made.second is not None
    loop.train_learner(made, run_facts(tmp_path, len(TEXTS)))
    name = "encoder.layer.0.output.dense.weight"
    assert not torch.equal(made.student.model.state_dict()[name], made.second.model.state_dict()[name])


@pytest.mark.parametrize("positive", ["delete_one_word", "next_sentence"])
def test_two_encoders_see_a_changed_or_following_sentence(masked_lm, tmp_path, positive):
    made = learner(masked_lm, positive, two_encoders=True)
    assert made.second is not None
    loop.train_learner(made, run_facts(tmp_path, len(TEXTS)))
    batch = made.eval().collate(made.anchors[:4], np.random.default_rng(0))
    first, second = embedded(made, batch, made.student, made.second)
    assert torch.equal(first, made.student.embed(batch["first"]))
    assert torch.equal(second, made.second.embed(batch["second"]))
    assert not torch.allclose(second, made.student.embed(batch["second"]))


def test_two_encoders_have_no_mask_in_common(masked_lm):
    with pytest.raises(CardError, match="two encoders share no dropout mask"):
        learner(masked_lm, "fixed_mask", two_encoders=True)


@pytest.mark.parametrize("positive", ["crop", "delete_words", "masked_word", "next_sentence", "fixed_mask"])
def test_each_trains_and_repeats(masked_lm, tmp_path, positive):
    curves, few = [], {"training": {"steps": 4}, "selection": {"every": 2}}
    for number in range(2):
        facts = run_facts(tmp_path / str(number), len(TEXTS), **few)
        curves.append(loop.train_learner(learner(masked_lm, positive), facts).curve)
    assert curves[0] == curves[1] and all(np.isfinite(point["loss"]) for point in curves[0])
