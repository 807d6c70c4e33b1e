"""ConSERT's views inside the encoder and CLEAR's damaged words: what changes, literal losses, noise that misleads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.core.errors import CardError, TrainingError
from stsbench.training.methods.views import CLEAR, ConSERT
from stsbench.training.objectives import pair_features
from tests.encoders.tiny import make_roberta
from tests.training.methods.runs import (
    embedded,
    first_batch,
    literal_guessing,
    literal_nt_xent,
    values,
)
from tests.training.students import WORDS, sentences, student

TEXTS = sentences(40)
PAIRS = {
    "first": TEXTS,
    "second": sentences(40, seed=1),
    "label": [("neutral", "entailment", "contradiction")[i % 3] for i in range(40)],
}


def unsupervised(folder: Any, *, dropout: float = 0.0, **params: Any) -> ConSERT:
    made = ConSERT(student(folder, dropout=dropout), **params)
    made.prepare({"text": TEXTS})
    return made


def joint(folder: Any, *, dropout: float = 0.0, objective: str = "joint", **params: Any) -> ConSERT:
    torch.manual_seed(1)
    made = ConSERT(student(folder, dropout=dropout), objective=objective, **params)  # type: ignore[arg-type]
    made.prepare(PAIRS)
    return made


@pytest.mark.parametrize(("sides", "times"), [("sum", 2.0), ("mean", 1.0)])
def test_contrastive_loss_term_by_term(masked_lm, sides, times):
    made = unsupervised(masked_lm, views=("none", "shuffle"), sides=sides)
    batch = first_batch(made)
    a = made.student.embed(batch["text"])
    b = made.student.embed({**batch["text"], "position_ids": batch["positions"]["text 1"]})
    found = values(made, batch)
    assert found["contrastive"] == pytest.approx(literal_nt_xent(a, b, 0.1), rel=1e-5)
    assert found["loss"] == pytest.approx(0.15 * times * literal_nt_xent(a, b, 0.1), rel=1e-5)


@pytest.mark.parametrize(("dropout", "alike"), [(0.0, True), (0.3, False)])
def test_no_dropout_makes_two_clean_views_alike_and_dropout_does_not(masked_lm, dropout, alike):
    made = unsupervised(masked_lm, views=("none", "none"), dropout=dropout).train()
    first, second = embedded(made, first_batch(made), made.student)
    assert torch.equal(first, second) is alike


@pytest.mark.parametrize("kind", ["shuffle", "token_cutoff", "feature_cutoff", "dropout"])
def test_each_view_changes_what_it_should(masked_lm, kind):
    made = unsupervised(masked_lm, views=("none", kind), token_cutoff_rate=0.3)
    batch = first_batch(made, 16)
    outputs: list[torch.Tensor] = []
    assert not made.student.backbone.depends_on_padding  # asked before the model is listened to
    made.student.model.embeddings.register_forward_hook(
        lambda m, i, o: outputs.append(o), prepend=True
    )
    first, second = embedded(made, batch, made.student)
    assert not torch.allclose(first, second)
    assert torch.equal(
        batch["text"]["attention_mask"], made.inputs(["text"], np.arange(16))["attention_mask"]
    )
    same_embeddings = torch.equal(outputs[0], outputs[len(outputs) // 2])
    assert same_embeddings is (kind != "shuffle")


def test_as_released_roberta_s_shuffled_positions_count_from_0(masked_lm, tmp_path):
    roberta = make_roberta(tmp_path / "roberta")
    own, released = (
        unsupervised(roberta, views=("shuffle", "none"), positions_from_zero=chosen)
        for chosen in (False, True)
    )
    for made, start in ((own, 2), (released, 0)):
        batch = first_batch(made, 16)
        lengths = batch["text"]["attention_mask"].sum(dim=1)
        for row, n in zip(batch["positions"]["text 0"], lengths, strict=True):
            assert sorted(row[:n].tolist()) == list(range(start, start + int(n)))
    assert values(own, first_batch(own)) != values(released, first_batch(released))
    for folder, views in ((masked_lm, ("shuffle", "none")), (roberta, ("none", "token_cutoff"))):
        with pytest.raises(CardError, match="positions_from_zero.*nothing"):
            unsupervised(folder, views=views, positions_from_zero=True)


@pytest.mark.parametrize(
    ("features", "width"), [("sbert", 3), ("consert-scripts", 4), (("u", "v"), 2), ("infersent", 4)]
)
def test_classifier_term_by_term(masked_lm, features, width):
    made = joint(masked_lm, objective="classification", features=features)
    assert made.classifier.in_features == width * 16 and made.classifier.bias is not None
    batch = first_batch(made)
    u, v = made.student.embed(batch["first"]), made.student.embed(batch["second"])
    logits = made.classifier(pair_features(u, v, features)).double()
    numbers = [
        ["contradiction", "entailment", "neutral"].index(label) for label in PAIRS["label"][:8]
    ]
    expected = -torch.log_softmax(logits, dim=1)[torch.arange(8), numbers].mean()
    found = values(made, batch)
    assert found["loss"] == pytest.approx(float(expected.detach()), rel=1e-5)
    assert set(found) == {"loss", "classification"}


def test_joint_contrasts_premises_and_hypotheses_apart(masked_lm):
    made = joint(masked_lm, views=("none", "shuffle"))
    batch = first_batch(made)
    clean = {name: made.student.embed(batch[name]) for name in ("first", "second")}
    shuffled = {
        name: made.student.embed({**batch[name], "position_ids": batch["positions"][f"{name} 1"]})
        for name in clean
    }
    expected = sum(literal_nt_xent(clean[name], shuffled[name], 0.1) for name in clean)
    found = values(made, batch)
    assert found["contrastive"] == pytest.approx(expected, rel=1e-5)
    assert found["loss"] == pytest.approx(found["classification"] + 0.3 * expected, rel=1e-5)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("views", [("none", "adversarial"), ("adversarial", "shuffle")])
def test_adversarial_view_is_the_clean_one_moved_along_the_gradient(masked_lm, normalised, views):
    made = joint(masked_lm, views=views, noise_norm=0.5, noise_normalised=normalised)
    batch = first_batch(made)
    outputs: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Any:
        return lambda embeddings, mask: outputs.setdefault(name, embeddings)

    def whole(tokens: Any, transform: Any = None) -> torch.Tensor:
        # In one part, whatever the lengths.
        states = made.student.hidden_states(tokens, made.student.layers(), transform=transform)
        return made.student.pool_states(states, tokens["attention_mask"])

    u, v = (whole(batch[name], keep(name)) for name in ("first", "second"))
    logits = made.classifier(torch.cat([u, v, (u - v).abs()], dim=1))
    loss = torch.nn.functional.cross_entropy(logits, batch["labels"])
    expected = 0.0
    for name, clean in (("first", u), ("second", v)):
        gradient = torch.autograd.grad(loss, outputs[name], retain_graph=True)[0]
        if normalised:
            gradient = gradient / (gradient.norm(dim=-1, keepdim=True) + 1e-10)
        moved = outputs[name] + 0.5 * gradient
        adversarial = whole(batch[name], lambda e, m, moved=moved: moved)
        assert not torch.allclose(adversarial, clean)
        other = clean
        if "shuffle" in views:
            other = whole({**batch[name], "position_ids": batch["positions"][f"{name} 0"]})
        expected += literal_nt_xent(other, adversarial, 0.1)
    assert values(made, batch)["contrastive"] == pytest.approx(expected, rel=1e-4)


def test_a_batch_in_parts_moves_the_same_rows(masked_lm):
    texts = [*sentences(16, longest=4), *sentences(16, seed=2, longest=16)]
    made = ConSERT(
        student(masked_lm, dropout=0.0), objective="joint", views=("none", "adversarial")
    )
    made.prepare({"first": texts, "second": texts[::-1], "label": ["a", "b"] * 16})
    batch = first_batch(made, 32)
    whole = values(made, batch)["loss"]
    swapped = {**batch}
    order = torch.arange(32).flip(0)
    for name in ("first", "second"):
        swapped[name] = {key: value[order] for key, value in batch[name].items()}
    swapped["labels"] = batch["labels"][order]
    assert values(made, swapped)["loss"] == pytest.approx(whole, rel=1e-5)


def test_one_label_is_no_classification(masked_lm):
    made = ConSERT(student(masked_lm), objective="joint")
    with pytest.raises(TrainingError, match="the label 'x'"):
        made.prepare({"first": TEXTS, "second": TEXTS, "label": ["x"] * 40})


CLEAR_TEXTS = [
    " ".join(f"{text} {other}".split()[:12])
    for text, other in zip(sentences(24), sentences(24, seed=3), strict=True)
]


def learner(folder: Path, **params: Any) -> CLEAR:
    made = CLEAR(
        student(folder, dropout=0.0, language_model=bool(params.get("mlm_weight", 1.0))), **params
    )
    made.prepare({"text": CLEAR_TEXTS})
    return made


@pytest.fixture(scope="module")
def synonyms(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("synonyms") / "table.tsv"
    path.write_text(
        "".join(f"{a}\t{b}\n" for a, b in zip(WORDS, [*WORDS[1:], WORDS[0]], strict=True))
    )
    return str(path)


def words_of(made: CLEAR, tokens: dict[str, torch.Tensor]) -> list[list[str]]:
    tokenizer = made.student.backbone.tokenizer
    unseen = {"[PAD]", "[CLS]", "[SEP]"}
    return [
        [w for w in tokenizer.convert_ids_to_tokens(row.tolist()) if w not in unseen]
        for row in tokens["input_ids"]
    ]


@pytest.mark.parametrize("first", ["delete_words", "delete_spans", "reorder", "substitute"])
@pytest.mark.parametrize("second", ["delete_words", "reorder"])
def test_each_view_is_made_by_its_operator(masked_lm, synonyms, first, second):
    made = learner(
        masked_lm,
        first=first,
        second=second,
        spans=2,
        span_rate=0.2,
        word_rate=0.5,
        synonyms=synonyms,
    )
    views = words_of(made, first_batch(made)["views"])
    assert len(views) == 16
    for operator, found in ((first, views[:8]), (second, views[8:])):
        changed = 0
        for text, view in zip(CLEAR_TEXTS, found, strict=False):
            words = text.split()
            changed += view != words
            kept = [word for word in view if word != "[DEL]"]
            if operator.startswith("delete"):
                assert len(kept) < len(words) and "[DEL]" in view and set(kept) <= set(words)
            elif operator == "reorder":
                assert sorted(view) == sorted(words)
            else:
                moved = [WORDS[(WORDS.index(word) + 1) % len(WORDS)] for word in words]
                assert all(
                    new in (old, other) for new, old, other in zip(view, words, moved, strict=True)
                )
        assert changed > 4


def test_the_deleted_token_is_one_new_row_of_the_embeddings_and_is_saved(masked_lm, tmp_path):
    plain, made = student(masked_lm, language_model=True), learner(masked_lm)
    tokenizer = made.student.backbone.tokenizer
    before, after = (one.model.get_input_embeddings().weight for one in (plain, made.student))
    assert len(after) == len(before) + 1 and torch.equal(after[:-1], before)
    assert tokenizer("dog [DEL] cat")["input_ids"][2] == len(before)
    assert (
        made.student.language_model is not None
        and made.student.language_model.config.vocab_size == len(after)
    )
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
            first, _, second = made.projector.children()
            pooled = second(torch.clamp(first(pooled), min=0))
    a, b = pooled.chunk(2)
    assert found["contrastive"] == pytest.approx(literal_nt_xent(a, b, 0.1), abs=1e-4)
    assert found["mlm"] == pytest.approx(literal_guessing(made, batch["hidden"]), abs=1e-5)
    assert found["loss"] == pytest.approx(found["contrastive"] + 0.5 * found["mlm"], abs=1e-5)
