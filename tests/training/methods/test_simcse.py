"""SimCSE and its other positives: batches, losses beside literal ones, masked language modelling, two encoders."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stsbench.core.errors import CardError
from stsbench.training.learner import IGNORED_LABEL
from stsbench.training.methods.simcse import SimCSE, SimCSEPositives
from stsbench.training.objectives import info_nce, nt_xent
from tests.training.methods.runs import embedded, first_batch, literal_guessing, values
from tests.training.students import sentences, student

ANCHORS, POSITIVES, NEGATIVES = (sentences(20, seed=seed) for seed in (1, 2, 3))
TRIPLETS = {"anchor": ANCHORS, "positive": POSITIVES, "negative": NEGATIVES}
RNG = np.random.default_rng


def learner(folder: Any, *, mlm: bool = False, dropout: float = 0.0, **params: Any) -> SimCSE:
    made = SimCSE(student(folder, dropout=dropout, language_model=mlm), **params)
    made.prepare({"text": ANCHORS, **TRIPLETS})
    return made


HARD = {"temperature": 0.1, "hard_negative_weight": math.log(2)}


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.1},
        {"views": "triplets", **HARD},
        {"views": "two_negatives", **HARD},
        {"views": "pairs", "loss": "symmetric", "temperature": 0.1},
        {"views": "pairs", "similarity": "dot", "temperature": 2.0},
    ],
)
def test_the_loss_is_the_objective_of_what_is_embedded(masked_lm, params):
    made = learner(masked_lm, **params).eval()
    made.columns = {**made.columns, "second_negative": sentences(20, seed=4)}
    names = made.needs * 2 if len(made.needs) == 1 else made.needs
    encode = made.student.encoder().encode
    anchor, positive, *hard = (
        torch.from_numpy(encode(list(made.columns[name][:8]))).double() for name in names
    )
    options = {name: value for name, value in params.items() if name not in ("views", "loss")}
    wanted = info_nce(anchor, positive, torch.cat(hard) if hard else None, **options).item()
    if "loss" in params:
        wanted = nt_xent(anchor, positive, temperature=params["temperature"]).item()
    assert values(made, first_batch(made))["loss"] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(("dropout", "alike"), [(0.0, True), (0.1, False)])
def test_without_dropout_the_two_views_of_a_batch_are_one(masked_lm, dropout, alike):
    made = learner(masked_lm, dropout=dropout).train()
    first, second = made.student.embed(made.collate(np.arange(20), RNG(0))["views"]).chunk(2)
    assert torch.allclose(first, second, atol=1e-6) is alike
    # Though they are the same, the loss is not 0: the negatives stay.
    assert float(made(**made.collate(np.arange(20), RNG(0)))["loss"].detach()) > 1e-3


@pytest.mark.parametrize("views", ["dropout", "pairs", "triplets"])
def test_two_encoders_see_a_side_each_and_both_learn(masked_lm, views):
    alone, made = (
        learner(masked_lm, views=views, temperature=0.1, two_encoders=two) for two in (False, True)
    )
    batch = made.collate(np.arange(6), RNG(0))
    assert made.second is not None
    # As long as the second is as the first, it is one encoder's loss.
    loss = made(**batch)["loss"]
    assert float(loss.detach()) == pytest.approx(float(alone(**batch)["loss"].detach()), abs=1e-6)
    loss.backward()
    for one in (made.student, made.second):
        gradients = [p.grad for p in one.model.encoder.parameters()]
        assert all(g is not None for g in gradients) and any(
            g.any() for g in gradients if g is not None
        )
    with torch.no_grad():
        for weights in made.second.parameters():
            weights.mul_(1.1)
    assert float(made(**batch)["loss"].detach()) != pytest.approx(float(loss.detach()), abs=1e-4)
    assert len(made.encoders()) == 1


def test_masked_language_modelling_hides_nothing_from_the_contrast(masked_lm):
    made = learner(masked_lm, mlm=True, mlm_weight=0.1, mlm_rate=0.5)
    batch = made.collate(np.arange(8), RNG(0))
    plain = learner(masked_lm).collate(np.arange(8), RNG(0))["views"]["input_ids"]
    hidden, labels = batch["hidden"]["input_ids"], batch["hidden"]["labels"]
    assert torch.equal(batch["views"]["input_ids"], plain) and not torch.equal(hidden, plain)
    chosen = labels != IGNORED_LABEL
    assert torch.equal(labels[chosen], plain[chosen]) and torch.equal(
        hidden[~chosen], plain[~chosen]
    )
    special = torch.isin(plain, torch.tensor(made.student.backbone.tokenizer.all_special_ids))
    assert not (chosen & special).any()
    legacy = learner(masked_lm, mlm=True, mlm_weight=0.1, mlm_rate=0.5, legacy_masked_input=True)
    batch = legacy.collate(np.arange(8), RNG(0))
    assert torch.equal(batch["views"]["input_ids"], batch["hidden"]["input_ids"])


def test_the_losses_are_weighed_and_the_auxiliary_one_is_the_mean_cross_entropy_of_hidden_tokens(
    masked_lm,
):
    made = learner(
        masked_lm, mlm=True, mlm_weight=0.3, mlm_rate=0.5, contrastive_weight=0.25
    ).eval()
    batch = made.collate(np.arange(8), RNG(0))
    found = values(made, batch)
    assert found["mlm"] == pytest.approx(literal_guessing(made, batch["hidden"]), abs=1e-5)
    assert found["loss"] == pytest.approx(
        0.25 * found["contrastive"] + 0.3 * found["mlm"], rel=1e-6
    )
    alone = learner(masked_lm, contrastive_weight=0.25).eval()
    assert values(alone, first_batch(alone))["loss"] == pytest.approx(
        found["contrastive"] / 4, rel=1e-5
    )


def test_masking_shares_are_the_papers(masked_lm):
    ids = torch.full((400, 500), 7)
    batch = learner(masked_lm).hide_tokens(
        {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, RNG(0), rate=0.15
    )
    hidden, chosen = batch["input_ids"], batch["labels"] != IGNORED_LABEL
    assert float(chosen.float().mean()) == pytest.approx(0.15, abs=0.003)
    assert float((hidden[chosen] == 4).float().mean()) == pytest.approx(0.8, abs=0.01)
    assert float((hidden[chosen] == 7).float().mean()) == pytest.approx(0.1, abs=0.01)


def test_the_released_decoder_is_a_copy_trained_apart_from_the_word_embeddings(masked_lm, tmp_path):
    tied, copied = (
        learner(masked_lm, mlm=True, mlm_weight=0.5, mlm_decoder=kind)
        for kind in ("tied", "copied")
    )
    for made, alike in ((tied, True), (copied, False)):
        model: Any = made.student.language_model
        words, decoder = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        assert torch.equal(words, decoder) and (words is decoder) is alike
    batch = copied.eval().collate(np.arange(8), RNG(0))
    torch.testing.assert_close(copied(**batch)["loss"], tied.eval()(**batch)["loss"])
    # Tied, the words get both gradients; of the copy, what comes of naming the tokens.
    grads = {}
    for name, made in (("tied", tied), ("copied", copied)):
        made(**batch)["mlm"].backward()
        model = made.student.language_model
        grads[name] = [
            e.weight.grad for e in (model.get_input_embeddings(), model.get_output_embeddings())
        ]
    torch.testing.assert_close(grads["copied"][0] + grads["copied"][1], grads["tied"][0])
    copied.save(tmp_path)
    assert not any("decoder" in name for name in load_file(tmp_path / "model.safetensors"))


def test_a_batch_of_one_has_nothing_to_be_told_apart_from_but_a_hard_negative(masked_lm):
    assert [learner(masked_lm, views=views).batch_negatives for views in ("dropout", "pairs")] == [
        "joint",
        "joint",
    ]
    alone = learner(masked_lm, views="triplets").eval()
    assert values(alone, first_batch(alone, 1))["loss"] > 0


TEXTS = sentences(24, longest=14)
DOCUMENTS = np.repeat(np.arange(6), 4)
ROWS = np.arange(8)


def simcse_positives_learner(
    folder: Any, positive: str, *, dropout: float = 0.1, **params: Any
) -> SimCSEPositives:
    made = SimCSEPositives(student(folder, dropout=dropout), **{"positive": positive, **params})
    made.prepare({"text": TEXTS, "document_id": list(DOCUMENTS)})
    return made


def words(made: SimCSEPositives, batch: Any) -> list[list[list[str]]]:
    tokenizer: Any = made.student.backbone.tokenizer
    found = [
        tokenizer.decode(ids, skip_special_tokens=True).split()
        for ids in batch["views"]["input_ids"]
    ]
    return [found[: len(found) // 2], found[len(found) // 2 :]]


@pytest.mark.parametrize("positive", ["crop", "delete_words", "delete_one_word"])
def test_positives_of_words_are_shorter_and_in_order(masked_lm, positive):
    made = simcse_positives_learner(masked_lm, positive, rate=0.3)
    batch = made.collate(ROWS, np.random.default_rng(0))
    pairs = list(zip(*words(made, batch), strict=True))
    for whole, part in pairs:
        left = iter(whole)
        assert all(word in left for word in part)
        lost = len(whole) - len(part)
        assert lost == (int(0.3 * len(whole)) if positive != "delete_one_word" else 1)


def test_a_synonym_takes_one_words_place(masked_lm, tmp_path):
    (tmp_path / "synonyms.tsv").write_text("dog\thound\tpuppy\ncat\tkitten\n")
    made = simcse_positives_learner(masked_lm, "synonym", synonyms=str(tmp_path / "synonyms.tsv"))
    assert made.augment is not None
    assert made.augment(["a", "dog"], rng=np.random.default_rng(0))[1] in ("hound", "puppy")


def test_masked_words_are_others_of_the_vocabulary(masked_lm):
    made = simcse_positives_learner(masked_lm, "masked_word", rate=0.15)
    batch = made.collate(ROWS, np.random.default_rng(0))
    for whole, changed in zip(*words(made, batch), strict=True):
        assert len(whole) == len(changed)
        assert 1 <= sum(a != b for a, b in zip(whole, changed, strict=True)) <= 3


def test_next_sentences_stay_within_the_document(masked_lm):
    made = simcse_positives_learner(masked_lm, "next_sentence")
    order = made.order(len(TEXTS), np.random.default_rng(0), batch=8)
    assert len(order) == len(TEXTS) and not set(order.tolist()) & {3, 7, 11, 15, 19, 23}
    batch = made.collate(order[:6], np.random.default_rng(1))
    assert words(made, batch)[1] == [TEXTS[row + 1].split() for row in order[:6]]
    with pytest.raises(CardError, match="no document"):
        alone = SimCSEPositives(student(masked_lm), positive="next_sentence")
        alone.prepare({"text": TEXTS, "document_id": list(range(24))})


def test_a_fixed_mask_makes_both_views_one(masked_lm):
    made = simcse_positives_learner(masked_lm, "fixed_mask", dropout=0.3).train()
    batch = made.collate(ROWS, np.random.default_rng(0))
    one, two = embedded(made, batch, made.student)
    assert torch.equal(one, two)
    after = embedded(made, batch, made.student)[0]
    assert not torch.equal(one, after)
