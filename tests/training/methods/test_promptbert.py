"""PromptBERT: the official code's loss on one batch, templates in tokens, validation as tests or as released, saved folders."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.encoders.load import load_encoder
from stsbench.training.methods.own_encoders import PromptBERT
from tests.training.methods.runs import first_batch, reopened_apart, values
from tests.training.students import sentences, student
from tests.training.tensors import made

TEMPLATES = {"template": "today {} sleeps [MASK] never", "second_template": "always {} on [MASK]"}
TEXTS = sentences(24)


def prompted(
    folder: Path, *, dropout: float = 0.1, max_length: int = 20, **params: Any
) -> PromptBERT:
    learner = PromptBERT(
        student(folder, pooling="mask", max_length=max_length, dropout=dropout),
        **{**TEMPLATES, **params},
    )
    learner.prepare({"text": TEXTS})
    return learner.train()


def known_weights(learner: PromptBERT) -> PromptBERT:
    """The learner in float64 with weights that are the same everywhere."""
    learner.double()
    with torch.no_grad():
        for key, (name, weight) in enumerate(sorted(learner.named_parameters())):
            norm = "LayerNorm.weight" in name
            weight.copy_(0.3 * made(*weight.shape, key=key) + (1.0 if norm else 0.0))
    return learner


OFFICIAL = {True: 0.22640524981264515, False: 0.8249881317993474}


@pytest.mark.parametrize("denoise", [True, False])
def test_the_loss_is_the_official_code_s(masked_lm, denoise):
    learner = known_weights(prompted(masked_lm, dropout=0.0, denoise=denoise))
    # cl_forward of kongds/Prompt-BERT@690ba6e over the same model and batch, run in torch 2.13.
    assert values(learner, first_batch(learner))["loss"] == pytest.approx(
        OFFICIAL[denoise], rel=1e-7
    )


def test_a_batch_is_the_sentences_in_both_templates(masked_lm):
    learner = prompted(masked_lm)
    batch = first_batch(learner, 3)["views"]
    decode = learner.student.backbone.tokenizer.decode
    texts = [
        decode(ids[mask == 1])
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]
    for row in range(3):
        assert texts[row] == f"[CLS] today {TEXTS[row]} sleeps [MASK] never [SEP]"
        assert texts[3 + row] == f"[CLS] always {TEXTS[row]} on [MASK] [SEP]"


def test_a_long_sentence_is_cut_and_its_template_stays(masked_lm):
    learner = prompted(masked_lm, max_length=9)
    learner.prepare({"text": ["dog cat bird fish man"] * 4})
    ids = first_batch(learner, 2)["views"]["input_ids"]
    decode = learner.student.backbone.tokenizer.decode
    assert decode(ids[0]) == "[CLS] today dog cat bird sleeps [MASK] never [SEP]"
    assert decode(ids[2]) == "[CLS] always dog cat bird fish on [MASK] [SEP]"


def test_a_template_alone_stands_where_it_stands_around_a_sentence(masked_lm):
    learner = prompted(masked_lm, dropout=0.0)
    first = learner.templates[0]
    alone = first.without_sentence(torch.tensor([0, 3]))
    assert first.size == 6 and alone["position_ids"].tolist() == [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 5, 6, 7, 8],
    ]
    plain = {name: alone[name][:1] for name in ("input_ids", "attention_mask")}
    torch.testing.assert_close(learner.mask_states(alone)[0], learner.mask_states(plain)[0])
    assert not torch.allclose(*learner.mask_states(alone))
    # What is taken off a sentence of three tokens is the template for three.
    tokens = {
        "input_ids": torch.zeros(1, 9, dtype=torch.long),
        "attention_mask": torch.ones(1, 9, dtype=torch.long),
    }
    off = learner.subtract_template(torch.zeros(1, 16), tokens["attention_mask"], first)
    torch.testing.assert_close(-off[0], learner.mask_states(alone)[1])


def test_what_is_validated_is_what_is_saved(masked_lm, tmp_path):
    learner = prompted(masked_lm)
    assert reopened_apart(learner, tmp_path / "saved") < 1e-6
    saved = load_encoder(str(tmp_path / "saved"))
    texts = ["dog cat", "dog cat.", "dog cat?"]
    plain = load_encoder(str(tmp_path / "saved"), params={"add_full_stop": False})
    # The full stop is the saved encoder's own: with it the first two are one sentence.
    with_stop, without = saved.encode(texts), plain.encode(texts)
    assert np.allclose(with_stop[0], with_stop[1]) and not np.allclose(without[0], without[1])
    bare = prompted(masked_lm, add_full_stop=False)
    bare.save(tmp_path / "bare")
    assert np.allclose(load_encoder(str(tmp_path / "bare")).encode(texts), without, atol=1e-6)


def test_as_released_weights_are_chosen_denoised_and_without_the_full_stop(masked_lm):
    learner = prompted(masked_lm, validation="released").eval()
    tokens = learner.student.tokenize(learner.templates[0].prompt.wrap(TEXTS))
    batch = learner.student.collate(tokens, np.arange(24))
    found = learner.subtract_template(
        learner.mask_states(batch), batch["attention_mask"], learner.templates[0]
    )
    np.testing.assert_allclose(
        learner.encoders()[0].encode(TEXTS), found.detach().numpy(), atol=1e-5
    )
    assert not np.allclose(
        prompted(masked_lm).encoders()[0].encode(TEXTS), found.detach().numpy(), atol=1e-3
    )


def test_sentence_transformers_opens_the_folder_for_sentences_in_the_template(masked_lm, tmp_path):
    from sentence_transformers import SentenceTransformer

    learner = prompted(masked_lm)
    learner.save(tmp_path)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_allclose(
        model.encode(list(learner.test_prompt.wrap(TEXTS))),
        learner.encoders()[0].encode(TEXTS),
        atol=1e-5,
    )
    assert not model.encode(["dog cat"]).any()
