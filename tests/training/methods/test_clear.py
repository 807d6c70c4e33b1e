"""CLEAR: views made by its operators, a token for what is deleted, and the sum of its two losses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.training.augmentation.masking import IGNORED
from stsbench.training.loop import loop
from stsbench.training.methods.clear import CLEAR
from tests.training.methods.runs import first_batch, literal_nt_xent, reopened_apart, values, whole_and_resumed
from tests.training.students import WORDS, run_facts, sentences, student

TEXTS = [
    " ".join(f"{text} {other}".split()[:12]) for text, other in zip(sentences(24), sentences(24, seed=3), strict=True)
]


def learner(folder: Path, **params: Any) -> CLEAR:
    made = CLEAR(student(folder, dropout=0.0, language_model=bool(params.get("mlm_weight", 1.0))), **params)
    made.prepare({"text": TEXTS})
    return made


@pytest.fixture(scope="module")
def synonyms(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("synonyms") / "table.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in zip(WORDS, [*WORDS[1:], WORDS[0]], strict=True)))
    return str(path)


def words_of(made: CLEAR, tokens: dict[str, torch.Tensor]) -> list[list[str]]:
    tokenizer = made.student.backbone.tokenizer
    unseen = {"[PAD]", "[CLS]", "[SEP]"}
    return [
        [w for w in tokenizer.convert_ids_to_tokens(row.tolist()) if w not in unseen] for row in tokens["input_ids"]
    ]


@pytest.mark.parametrize("first", ["delete_words", "delete_spans", "reorder", "substitute"])
@pytest.mark.parametrize("second", ["delete_words", "reorder"])
def test_each_view_is_made_by_its_operator(masked_lm, synonyms, first, second):
    made = learner(masked_lm, first=first, second=second, spans=2, span_rate=0.2, word_rate=0.5, synonyms=synonyms)
    views = words_of(made, first_batch(made)["views"])
    assert len(views) == 16
    for operator, found in ((first, views[:8]), (second, views[8:])):
        changed = 0
        for text, view in zip(TEXTS, found, strict=False):
            words = text.split()
            changed += view != words
            kept = [word for word in view if word != "[DEL]"]
            if operator.startswith("delete"):
                assert len(kept) < len(words) and "[DEL]" in view and set(kept) <= set(words)
            elif operator == "reorder":
                assert sorted(view) == sorted(words)
            else:
                moved = [WORDS[(WORDS.index(word) + 1) % len(WORDS)] for word in words]
                assert all(new in (old, other) for new, old, other in zip(view, words, moved, strict=True))
        assert changed > 4


def test_the_deleted_token_is_one_new_row_of_the_embeddings_and_is_saved(masked_lm, tmp_path):
    plain, made = student(masked_lm, language_model=True), learner(masked_lm)
    tokenizer = made.student.backbone.tokenizer
    before, after = (one.model.get_input_embeddings().weight for one in (plain, made.student))
    assert len(after) == len(before) + 1 and torch.equal(after[:-1], before)
    assert tokenizer("dog [DEL] cat")["input_ids"][2] == len(before)
    assert made.student.language_model is not None and made.student.language_model.config.vocab_size == len(after)
    made.save(tmp_path / "saved")
    again = CLEAR(student(tmp_path / "saved"), mlm_weight=0.0)
    assert again.student.backbone.tokenizer("[DEL]")["input_ids"][1] == len(before)
    assert torch.equal(again.student.model.get_input_embeddings().weight, after)
    spared = learner(masked_lm, first="reorder", second="reorder")
    assert len(spared.student.model.get_input_embeddings().weight) == len(before)


@pytest.mark.parametrize("projection", ["mlp", "none"])
def test_the_loss_is_the_sum_of_two_literal_ones(masked_lm, projection):
    made = learner(masked_lm, projection=projection, mlm_weight=0.5, mlm_rate=0.4).eval()
    batch = first_batch(made)
    found = values(made, batch)
    with torch.no_grad():
        states = made.student.model(**batch["views"]).last_hidden_state
        mask = batch["views"]["attention_mask"].unsqueeze(-1)
        pooled = (states * mask).sum(1) / mask.sum(1)
        if projection == "mlp":
            first, _, second = made.projection.children()
            pooled = second(torch.clamp(first(pooled), min=0))
        model: Any = made.student.language_model
        hidden = batch["hidden"]
        logits = model(input_ids=hidden["input_ids"], attention_mask=hidden["attention_mask"]).logits.double()
    a, b = pooled.chunk(2)
    assert found["contrastive"] == pytest.approx(literal_nt_xent(a, b, 0.1), abs=1e-4)
    guesses = [
        float(torch.logsumexp(logits[i, j], 0) - logits[i, j, hidden["labels"][i, j]])
        for i, j in (hidden["labels"] != -100).nonzero().tolist()
    ]
    assert found["mlm"] == pytest.approx(np.mean(guesses), abs=1e-5)
    assert found["loss"] == pytest.approx(found["contrastive"] + 0.5 * found["mlm"], abs=1e-5)


def test_without_language_modelling_no_head_is_needed(masked_lm):
    made = learner(masked_lm, mlm_weight=0.0)
    assert not CLEAR.wants_language_model({"mlm_weight": 0.0}) and CLEAR.wants_language_model({})
    assert values(made, first_batch(made)).keys() == {"loss"}


def test_the_language_model_sees_the_sentences_undamaged(masked_lm):
    made = learner(masked_lm)
    hidden = first_batch(made)["hidden"]
    guessed = hidden["labels"] != IGNORED
    assert guessed.any()
    shown = {**hidden, "input_ids": torch.where(guessed, hidden["labels"], hidden["input_ids"])}
    assert words_of(made, shown) == [text.split() for text in TEXTS[:8]]


def test_a_blank_sentence_stays_one(masked_lm):
    made = learner(masked_lm)
    made.prepare({"text": [" ", *TEXTS]})
    assert np.isfinite(values(made, made.collate(np.arange(4), np.random.default_rng(0)))["loss"])


def test_training_brings_the_loss_down(masked_lm, tmp_path):
    made = learner(masked_lm, word_rate=0.3)
    curve = loop.train_learner(made, run_facts(tmp_path, 24, training={"steps": 40}, selection={"every": 10})).curve
    assert curve[-1]["loss"] < curve[0]["loss"]


@pytest.mark.parametrize(
    "params",
    [{}, pytest.param({"mlm_weight": 0.0, "first": "delete_spans", "second": "delete_spans"}, marks=pytest.mark.slow)],
)
def test_a_resumed_run_is_the_undisturbed_one_and_its_folder_opens(masked_lm, tmp_path, params):
    whole, resumed = whole_and_resumed(lambda: learner(masked_lm, **params), tmp_path, 24)
    assert resumed.same_as(whole)
    assert reopened_apart(resumed.learner, tmp_path / "saved") < 1e-5
