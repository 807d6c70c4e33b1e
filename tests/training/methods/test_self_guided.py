"""Self-guided learning: its losses term by term, what is frozen, and runs that resume."""

from typing import Any

import numpy as np
import pytest
import torch

from stsbench.training.learner import Batch
from stsbench.training.methods.two_models import SelfGuided
from stsbench.training.objectives import self_guided
from tests.training.methods.runs import first_batch, literal_nt_xent, values
from tests.training.students import sentences, student

TEXTS = sentences(40)
GUIDED = ["base", "opt1", "opt2", "opt3", "opt2-released"]


def learner(
    folder: Any, *, dropout: float = 0.0, texts: list[str] = TEXTS, **params: Any
) -> SelfGuided:
    made = SelfGuided(
        student(folder, pooling="cls_before_pooler", dropout=dropout),
        **{"head_width": 24, "temperature": 0.1, **params},
    )
    made.prepare({"text": texts, "anchor": texts, "positive": texts[::-1]})
    return made.train()


def projected(made: SelfGuided, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """[CLS] (b, d) and all layers (b, k, d) after the head, from the plain models."""
    states = made.fixed(**batch["views"], output_hidden_states=True).hidden_states
    mask = batch["views"]["attention_mask"][:, :, None] == 0
    layers = torch.stack([state.masked_fill(mask, -1e9).amax(dim=1) for state in states], dim=1)
    cls = made.student.model(**batch["views"]).last_hidden_state[:, 0]
    return made.projector(cls).detach().double(), made.projector(layers).detach().double()


def expected(c: torch.Tensor, h: torch.Tensor, variant: str) -> float:
    return self_guided(c, h, temperature=0.1, variant=variant).item()


@pytest.mark.parametrize("variant", GUIDED)
def test_loss_term_by_term(masked_lm, variant):
    made = learner(masked_lm, variant=variant)
    batch = first_batch(made, 6)
    with torch.no_grad():
        for parameter in made.student.model.encoder.parameters():
            parameter.add_(0.01)
    c, h = projected(made, batch)
    assert h.shape == (6, 4, 24)
    if variant != "opt3":
        h = h[torch.arange(6), batch["layers"]][:, None]
    found = values(made, batch)
    assert found["contrastive"] == pytest.approx(expected(c, h, variant), rel=1e-4)
    count = sum(p.numel() for p in made.student.model.encoder.parameters())
    assert found["distance"] == pytest.approx(1e-4 * count, rel=1e-3)
    assert found["loss"] == pytest.approx(found["contrastive"] + 0.1 * found["distance"], rel=1e-6)


def test_a_layer_is_drawn_for_each_sentence_anew(masked_lm):
    made = learner(masked_lm, variant="base")
    draws = np.concatenate([first_batch(made, 40, seed=seed)["layers"] for seed in range(10)])
    assert set(draws[:40]) == {0, 1, 2, 3}
    assert np.bincount(draws).min() > 60


def test_back_translations_go_through_the_tuned_encoder(masked_lm):
    made = learner(masked_lm, variant="translation")
    batch = first_batch(made, 6)
    cls = made.projector(made.student.model(**batch["views"]).last_hidden_state[:, 0])
    assert len(cls) == 12
    assert values(made, batch)["contrastive"] == pytest.approx(
        literal_nt_xent(cls[:6], cls[6:], 0.1), rel=1e-4
    )


@pytest.mark.parametrize("variant", ["opt3", "translation"])
def test_regulariser_starts_at_zero_with_no_gradient(masked_lm, variant):
    made = learner(masked_lm, variant=variant)
    distance = made.distance()
    torch.autograd.backward(distance)
    assert float(distance.detach()) == 0
    gradients = [p.grad for p in made.student.model.parameters() if p.requires_grad]
    assert gradients and all(g is not None and not g.any() for g in gradients)


@pytest.mark.parametrize("variant", ["base", "opt3"])
def test_what_is_fixed_gets_no_gradient_and_the_rest_does(masked_lm, variant):
    made = learner(masked_lm, variant=variant)
    made(**first_batch(made))["loss"].backward()
    assert all(p.grad is None for p in made.fixed.parameters())
    assert all(p.grad is None for p in made.student.model.embeddings.parameters())
    assert all(p.grad is not None and p.grad.any() for p in made.projector.parameters())
    # Keys get no gradient from their biases, queries and values do.
    reached = [
        n
        for n, p in made.student.model.encoder.named_parameters()
        if p.grad is not None and p.grad.any()
    ]
    assert len(reached) >= len(list(made.student.model.encoder.parameters())) - 3


@pytest.mark.parametrize("fixed_dropout", [False, True])
def test_the_fixed_copy_has_dropout_only_as_released(masked_lm, fixed_dropout):
    made = learner(masked_lm, dropout=0.3, fixed_dropout=fixed_dropout)
    tokens = first_batch(made)["views"]
    made.eval()
    made.train()
    assert made.fixed.training is fixed_dropout and made.student.model.training
    assert (
        torch.equal(made.pool_fixed_layers(tokens), made.pool_fixed_layers(tokens))
        is not fixed_dropout
    )
    assert not made.eval().fixed.training


def test_mean_pooling_of_the_layers(masked_lm):
    made = learner(masked_lm, layer_pooling="mean")
    tokens = first_batch(made, 3)["views"]
    states = made.fixed(**tokens, output_hidden_states=True).hidden_states
    n = int(tokens["attention_mask"][1].sum())
    torch.testing.assert_close(made.pool_fixed_layers(tokens)[1, 2], states[2][1, :n].mean(dim=0))


def test_head_is_as_in_the_paper_and_no_part_of_the_encoder(masked_lm):
    made = SelfGuided(student(masked_lm, pooling="cls_before_pooler"))
    head: Any = made.projector
    assert [type(part).__name__ for part in head] == ["Linear", "GELU", "Linear", "GELU"]
    first, last = head[0], head[2]
    assert tuple(first.weight.shape) == (4096, 16) and tuple(last.weight.shape) == (4096, 4096)
    assert float(last.weight.detach().std()) == pytest.approx(
        0.2, rel=0.01
    )  # the tiny model's initializer_range
    assert not first.bias.any() and not last.bias.any()
    before = made.encoders()[0].encode(TEXTS)
    with torch.no_grad():
        first.weight.zero_()
    assert (made.encoders()[0].encode(TEXTS) == before).all()
    bare = learner(masked_lm, head=False)
    assert not list(bare.projector.parameters())
    assert np.isfinite(values(bare, first_batch(bare))["loss"])


def test_without_lambda_the_weights_are_free(masked_lm):
    made = learner(masked_lm, variant="opt3", regulariser=0.0)
    with torch.no_grad():
        for parameter in made.student.model.encoder.parameters():
            parameter.add_(0.01)
    found = values(made, first_batch(made, 6))
    c, h = projected(made, first_batch(made, 6))
    assert set(found) == {"loss"} and found["loss"] == pytest.approx(
        expected(c, h, "opt3"), rel=1e-4
    )
