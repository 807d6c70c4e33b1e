"""DeCLUTR: spans of documents, both losses from one pass, and runs that resume."""

from typing import Any

import numpy as np
import pytest
import torch

from stsbench.core.errors import CardError, DataError
from stsbench.training.learner import IGNORED_LABEL
from stsbench.training.methods.declutr import DeCLUTR
from stsbench.training.spans import sample_spans
from tests.training.methods.runs import first_batch, literal_guessing, literal_nt_xent, values
from tests.training.students import WORDS, student

DOCUMENTS = [" ".join(np.random.default_rng(i).choice(WORDS, 60 + i)) for i in range(24)]
SPANS = {"min_span": 3, "max_span": 12}


def learner(
    folder: Any, *, dropout: float = 0.0, documents: list[str] = DOCUMENTS, **params: Any
) -> DeCLUTR:
    params = {**SPANS, **params}
    wanted = DeCLUTR.needs_language_model(params)
    made = DeCLUTR(
        student(folder, dropout=dropout, max_length=None, language_model=wanted), **params
    )
    made.prepare({"document": documents})
    return made


def test_batch_holds_the_sampled_spans_between_special_tokens(masked_lm):
    made = learner(masked_lm, mlm_weight=0.0)
    batch = first_batch(made, 4, seed=5)
    assert (
        batch["anchors"]["input_ids"].shape[0] == 8
        and batch["positives"]["input_ids"].shape[0] == 16
    )
    rng = np.random.default_rng(5)
    tokenizer = made.student.backbone.tokenizer
    anchors, positives = [], []
    for document in DOCUMENTS[:4]:
        words = document.split()
        found = sample_spans(len(words), anchors=2, positives=2, min_len=3, max_len=12, rng=rng)
        anchors += [words[a:b] for a, b in found.anchors]
        positives += [words[a:b] for each in found.positives for a, b in each]
    for name, spans in (("anchors", anchors), ("positives", positives)):
        for row, words in enumerate(spans):
            n = int(batch[name]["attention_mask"][row].sum())
            expected = tokenizer.convert_tokens_to_ids(["[CLS]", *words, "[SEP]"])
            assert batch[name]["input_ids"][row, :n].tolist() == expected
            assert not batch[name]["input_ids"][row, n:].any()


def test_spelling_spans_again_changes_nothing_where_words_are_whole(masked_lm):
    kept = first_batch(learner(masked_lm), 4)
    respelled = first_batch(learner(masked_lm, respell=True), 4)
    for name in ("anchors", "positives"):
        assert all(torch.equal(kept[name][key], respelled[name][key]) for key in kept[name])


def test_losses_term_by_term_with_hidden_tokens_in_the_contrast(masked_lm):
    made = learner(masked_lm, mlm_rate=0.3)
    batch = first_batch(made, 4)
    anchors, positives = batch["anchors"], batch["positives"]
    at = anchors["labels"] != IGNORED_LABEL
    assert (anchors["input_ids"][at] == made.student.backbone.mask_token).any()
    assert not (positives["input_ids"] == made.student.backbone.mask_token).any()
    special = torch.isin(anchors["input_ids"], torch.tensor([0, 2, 3]))
    assert not (at & special).any()

    def mean(tokens: Any) -> torch.Tensor:
        inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        states = made.student.model(**inputs).last_hidden_state.detach().double()
        return torch.stack(
            [states[i, :n].mean(dim=0) for i, n in enumerate(inputs["attention_mask"].sum(dim=1))]
        )

    averaged = (mean(positives)[0::2] + mean(positives)[1::2]) / 2
    found = values(made, batch)
    assert found["contrastive"] == pytest.approx(
        literal_nt_xent(mean(anchors), averaged, 0.05), rel=1e-4
    )
    assert found["mlm"] == pytest.approx(literal_guessing(made, anchors), rel=1e-5)
    assert found["loss"] == pytest.approx(found["contrastive"] + found["mlm"], rel=1e-6)


def test_one_loss_alone(masked_lm):
    contrastive = learner(masked_lm, mlm_weight=0.0)
    assert contrastive.student.language_model is None
    assert set(values(contrastive, first_batch(contrastive))) == {"loss", "contrastive"}
    assert not (first_batch(contrastive)["anchors"]["input_ids"] == 4).any()
    mlm = learner(masked_lm, contrastive_weight=0.0, positives=1)
    assert "positives" not in first_batch(mlm)
    assert set(values(mlm, first_batch(mlm))) == {"loss", "mlm"}


def test_a_document_too_short_is_named_and_spans_have_a_length(masked_lm):
    with pytest.raises(
        CardError, match="spans of 13 to 12 tokens: min_span must be at most max_span"
    ):
        learner(masked_lm, min_span=13)
    short = [*DOCUMENTS[:2], "a dog sleeps in the house", *DOCUMENTS]
    with pytest.raises(
        DataError, match=r"document 3 \('a dog sleeps in the house…'\): 6 tokens.* need 48"
    ):
        learner(masked_lm, documents=short)


def test_of_many_documents_the_shortest_are_checked_first_and_the_others_as_they_come(
    masked_lm, monkeypatch
):
    monkeypatch.setattr("stsbench.training.methods.declutr.N_CHECKED_DOCUMENTS", 2)
    # Long in letters, short in tokens.
    letters = " ".join(["antidisestablishmentarianism" * 30] * 20)
    made = learner(masked_lm, documents=[*DOCUMENTS[:4], letters])
    with pytest.raises(DataError, match="document 5 .*20 tokens.* 48"):
        first_batch(made, 5)
    with pytest.raises(DataError, match="document 3 .*6 tokens"):
        learner(masked_lm, documents=[*DOCUMENTS[:2], "a dog sleeps in the house", letters])
