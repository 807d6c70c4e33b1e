"""Masked language modelling: its loss, and a folder that is a base again and an encoder."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from stsbench.encoders.checkpoints.checkpoint import find_checkpoint
from stsbench.training.loop import loop
from stsbench.training.methods.mlm import MaskedLanguageModel
from stsbench.training.student import Student
from tests.training.methods.runs import first_batch, reopened_apart, values, whole_and_resumed
from tests.training.students import run_facts, sentences, student

TEXTS = sentences(40)


def learner(folder: Any, *, dropout: float = 0.0, from_scratch: bool = False, **params: Any) -> MaskedLanguageModel:
    made = student(folder, language_model=True, dropout=dropout, from_scratch=from_scratch)
    found = MaskedLanguageModel(made, **params)
    found.prepare({"text": TEXTS})
    return found


def test_loss_term_by_term(masked_lm):
    made = learner(masked_lm, rate=0.4)
    batch = first_batch(made)
    at = batch["labels"] != -100
    model = made.student.language_model
    assert model is not None and at.any()
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.detach().double()
    expected = -torch.log_softmax(logits[at], dim=1)[torch.arange(int(at.sum())), batch["labels"][at]].mean()
    assert values(made, batch)["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_from_scratch_has_weights_of_its_own(masked_lm):
    # The checkpoint itself was drawn from seed 0.
    torch.manual_seed(7)
    drawn = Student(find_checkpoint(str(masked_lm)), language_model=True, from_scratch=True, device="cpu")
    found = drawn.model.encoder.layer[0].output.dense.weight
    assert found.shape == (16, 32) and not torch.equal(
        found, student(masked_lm).model.encoder.layer[0].output.dense.weight
    )


def test_resumed_saved_and_a_base_again(masked_lm, tmp_path):
    whole, resumed = whole_and_resumed(lambda: learner(masked_lm, dropout=0.1), tmp_path, 40)
    assert resumed.same_as(whole)
    made = resumed.learner
    assert reopened_apart(made, tmp_path / "saved") < 1e-5
    again = learner(tmp_path / "saved")
    batch = first_batch(made.eval())
    assert values(again.eval(), batch)["loss"] == pytest.approx(values(made, batch)["loss"], rel=1e-6)
    library = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "saved").eval()
    assert type(library).__name__ == "BertForMaskedLM"
    found = library(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["labels"]).loss
    assert float(found.detach()) == pytest.approx(values(made, batch)["loss"], rel=1e-5)


def test_sentence_transformers_opens_it_with_mean_pooling(masked_lm, tmp_path):
    import sentence_transformers

    made = learner(masked_lm)
    made.save(tmp_path)
    opened = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_allclose(opened.encode(TEXTS[:5]), made.encoders()[0].encode(TEXTS[:5]), atol=1e-5)


def test_training_lowers_the_loss(masked_lm, tmp_path):
    made = learner(masked_lm, from_scratch=True)
    curve = loop.train_learner(made, run_facts(tmp_path, 40, training={"steps": 40, "learning_rate": 3e-3})).curve
    assert curve[-1]["loss"] < curve[0]["loss"] - 0.1
