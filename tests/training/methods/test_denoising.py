"""Masked language modelling and TSDAE: the libraries' losses on one batch, what the decoder sees and shares, noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from stsbench.core.cards import BaseSection
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.training.methods.denoising import TSDAE, MaskedLanguageModel
from stsbench.training.saving import save_student
from stsbench.training.student import Student
from tests.training.methods.runs import first_batch, reopened_apart, values, whole_and_resumed
from tests.training.students import sentences, student

TEXTS = sentences(40)


def learner(
    folder: Any, *, dropout: float = 0.0, from_scratch: bool = False, **params: Any
) -> MaskedLanguageModel:
    made = student(folder, language_model=True, dropout=dropout, from_scratch=from_scratch)
    found = MaskedLanguageModel(made, **params)
    found.prepare({"text": TEXTS})
    return found


def test_from_scratch_has_weights_of_its_own(masked_lm):
    # The checkpoint itself was drawn from seed 0.
    torch.manual_seed(7)
    drawn = Student(
        find_checkpoint(str(masked_lm)),
        start=BaseSection(from_scratch=True),
        language_model=True,
        device="cpu",
    )
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
    assert values(again.eval(), batch)["loss"] == pytest.approx(
        values(made, batch)["loss"], rel=1e-6
    )
    library = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "saved").eval()
    assert type(library).__name__ == "BertForMaskedLM"
    found = library(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["labels"]
    ).loss
    assert float(found.detach()) == pytest.approx(values(made, batch)["loss"], rel=1e-5)


TSDAE_TEXTS = sentences(24)


def denoiser(
    folder: Path, *, dropout: float = 0.1, texts: list[str] = TSDAE_TEXTS, **params: Any
) -> TSDAE:
    pooling = params.pop("pooling", "cls_before_pooler")
    base = student(folder, pooling=pooling, dropout=dropout, language_model=True)
    learner = TSDAE(base, **{"words": "whitespace", **params})
    learner.prepare({"text": texts})
    return learner.train()


def test_the_loss_is_sentence_transformers(masked_lm, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss

    learner = denoiser(masked_lm).eval()
    save_student(learner.student, tmp_path, language_model=True)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    # It reads its decoder where the model says that it came from.
    theirs = DenoisingAutoEncoderLoss(model, tie_encoder_decoder=True).eval()
    state = {
        name: value
        for name, value in learner.speaker.state_dict().items()
        if "crossattention" in name
    }
    assert (
        len(state) == 3 * 10
        and not theirs.decoder.load_state_dict(state, strict=False).unexpected_keys
    )
    batch = first_batch(learner)
    wanted = theirs(
        [dict(batch["damaged"]), {"input_ids": batch["original"]["input_ids"]}], None
    ).item()
    assert values(learner, batch)["loss"] == pytest.approx(wanted, rel=1e-5)


def test_the_decoder_sees_the_embedding_and_what_was_said_so_far(masked_lm):
    learner = denoiser(masked_lm, texts=["dog cat bird fish"] * 24).eval()
    states: list[torch.Tensor] = []
    learner.speaker.base_model.register_forward_hook(
        lambda module, given, out: states.append(out.last_hidden_state)
    )
    batch = first_batch(learner, 2)
    learner(**batch)
    other = {name: value.clone() for name, value in batch["original"].items()}
    other["input_ids"][:, 4] = other["input_ids"][:, 1]
    learner(damaged=batch["damaged"], original=other)
    torch.testing.assert_close(states[0][:, :4], states[1][:, :4])
    assert not torch.allclose(states[0][:, 4], states[1][:, 4])
    learner(
        damaged={
            name: value.flip(0) for name, value in batch["original"].items() if name != "labels"
        },
        original=other,
    )
    assert not torch.allclose(states[1][:, :1], states[2][:, :1])


def test_a_label_is_the_token_that_follows(masked_lm):
    learner = denoiser(masked_lm)
    whole = first_batch(learner, 8)["original"]
    for ids, mask, labels in zip(
        whole["input_ids"], whole["attention_mask"], whole["labels"], strict=True
    ):
        length = int(mask.sum())
        assert labels[: length - 1].tolist() == ids[1:length].tolist()
        assert (labels[length - 1 :] == -100).all()


@pytest.mark.parametrize(("decoder", "own"), [("tied", "crossattention"), ("own", "")])
def test_what_the_decoder_has_of_its_own(masked_lm, decoder, own):
    learner = denoiser(masked_lm, decoder=decoder)
    names = [name for name, _ in learner.named_parameters() if name.startswith("speaker.")]
    assert names and all(own in name for name in names)
    learner(**first_batch(learner))["loss"].backward()
    without = [name for name, p in learner.named_parameters() if p.grad is None]
    # The head says the words where it is the decoder's too.
    assert all(name.startswith("student.language_model.cls") for name in without)
    assert (not without) == (decoder == "tied")
    body = learner.speaker.base_model.encoder.layer[0].output.dense.weight
    assert (body is learner.student.model.encoder.layer[0].output.dense.weight) == (
        decoder == "tied"
    )
    assert torch.equal(body, learner.student.model.encoder.layer[0].output.dense.weight)


def test_words_are_left_out_one_by_one(masked_lm):
    learner = denoiser(masked_lm)
    rng = np.random.default_rng(0)
    text = " ".join(f"w{i}" for i in range(10))
    damaged = [learner.damage(text, rng).split() for _ in range(2000)]
    assert np.mean([len(words) for words in damaged]) == pytest.approx(4.0, abs=0.12)
    assert {len(words) for words in damaged} >= {1, 2, 3, 5, 6, 7} and min(map(len, damaged)) == 1
    assert all(words == sorted(words, key=text.split().index) for words in damaged)
    assert {learner.damage("one two", rng) for _ in range(60)} == {"one", "two", "one two"}
    assert learner.damage("", rng) == ""
    everything = denoiser(masked_lm, deletion=1.0)
    assert {everything.damage("one two", rng) for _ in range(30)} == {"one", "two"}


def test_by_nltk_s_rules_punctuation_is_a_word(masked_lm):
    pytest.importorskip("nltk")
    learner = denoiser(masked_lm, words="ptb", deletion=0.0)
    assert learner.split("a dog, a cat.") == ["a", "dog", ",", "a", "cat", "."]
    assert learner.damage("a dog, a cat.", np.random.default_rng(0)) == "a dog, a cat."
