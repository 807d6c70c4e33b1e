"""AnglE: its three losses term by term and as released, the code's positives by mistake, exact resumption."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.errors import CardError
from stsbench.training.methods.angle import AnglE
from stsbench.training.objectives import pairs_in_batch
from tests.training.methods.runs import first_batch, reopened_apart, values, whole_and_resumed
from tests.training.students import sentences, student
from tests.training.tensors import cosine, made

FIRST, SECOND = sentences(24, seed=1), sentences(24, seed=2)
SCORES = [row % 6 * 0.9 for row in range(24)]
PLAIN: dict[str, float] = {"angle_weight": 0.0, "cosine_weight": 0.0, "contrastive_weight": 0.0}


def angle(folder: Path, **params: Any) -> AnglE:
    learner = AnglE(student(folder), **params)
    learner.prepare({"first": FIRST, "second": SECOND, "score": SCORES})
    return learner


class Given:
    """In the place of a student: it embeds a batch as it is."""

    def embed(self, batch: torch.Tensor) -> torch.Tensor:
        return batch


def on_tensors(folder: Path, u: torch.Tensor, v: torch.Tensor, scores: torch.Tensor, **params: Any) -> dict[str, float]:
    """The method's losses of given embeddings."""
    learner = AnglE(student(folder), **params)
    del learner.student
    object.__setattr__(learner, "student", Given())
    return {name: loss.item() for name, loss in learner(views=torch.cat([u, v]), scores=scores).items()}


def by_angle(u: torch.Tensor, v: torch.Tensor) -> float:
    """The quotient of two vectors of complex numbers by their lengths' quotient: real and imaginary parts summed."""
    half = len(u) // 2
    z, w = ([complex(*parts) for parts in zip(x[:half], x[half:], strict=True)] for x in (u.tolist(), v.tolist()))
    length = sum(abs(one) ** 2 for one in w)
    quotient = [a * b.conjugate() / length for a, b in zip(z, w, strict=True)]
    turned = math.sqrt(sum(abs(one) ** 2 for one in z) / length)
    return abs(sum(one.real + one.imag for one in quotient) / turned)


def by_order(found: list[float], scores: list[float]) -> float:
    n = range(len(found))
    return math.log1p(sum(math.exp(found[i] - found[j]) for i in n for j in n if scores[i] < scores[j]))


def test_the_losses_are_the_literal_ones(masked_lm):
    u, v, scores = made(6, 8, key=1), made(6, 8, key=2), [0.0, 2.2, 1.0, 5.0, 2.6, 0.4]
    found = on_tensors(masked_lm, u, v, torch.tensor(scores), angle_scale=7.0, cosine_scale=3.0, temperature=0.2)
    pairs = list(zip(u, v, strict=True))
    assert found["angle"] == pytest.approx(by_order([7 * by_angle(*pair) for pair in pairs], scores), rel=1e-9)
    assert found["cosine"] == pytest.approx(by_order([3 * cosine(*pair) for pair in pairs], scores), rel=1e-9)
    all_, total = [*u, *v], 0.0
    for i, one in enumerate(all_):
        below = sum(math.exp(cosine(one, other) / 0.2) for j, other in enumerate(all_) if j != i)
        if scores[i % 6] >= 1:
            total -= math.log(math.exp(cosine(one, all_[(i + 6) % 12]) / 0.2) / below)
    assert found["contrastive"] == pytest.approx(total / 12, rel=1e-9)
    assert found["loss"] == pytest.approx(0.02 * found["angle"] + found["cosine"] + found["contrastive"], rel=1e-9)


@pytest.mark.parametrize(("positives", "contrast"), [("own", 1.4801743609785838), ("released", 2.0916870276961954)])
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
    own, released = (angle(masked_lm, positives=name).targets(scores) for name in ("own", "released"))
    # Sentences side by side are 0 to 5: the second of the second pair looks for 2 * 2, and 4 * 1 is as much.
    assert (released & ~own).nonzero().tolist() == [[4, 2], [5, 1]]
    assert own.nonzero().tolist() == [[1, 4], [2, 5], [4, 1], [5, 2]]
    assert (own & ~released).sum() == 0


def test_of_whole_pairs_the_contrast_is_nt_xent():
    from stsbench.training.objectives import nt_xent

    u, v = made(5, 7, key=1), made(5, 7, key=2)
    own = torch.arange(10).roll(5)[:, None] == torch.arange(10)
    assert pairs_in_batch(u, v, own, temperature=0.1).item() == pytest.approx(
        nt_xent(u, v, temperature=0.1).item(), rel=1e-12
    )


@pytest.mark.parametrize("name", ["angle", "cosine", "contrastive"])
def test_a_loss_alone_is_what_its_weight_says(masked_lm, name):
    learner = angle(masked_lm, **{**PLAIN, f"{name}_weight": 3.0}).eval()
    found = values(learner, first_batch(learner))
    assert set(found) == {"loss", name} and found["loss"] == pytest.approx(3 * found[name], rel=1e-6)
    assert found[name] > 0.1


def test_a_resumed_run_is_the_undisturbed_one_and_its_folder_opens(masked_lm, tmp_path):
    whole, resumed = whole_and_resumed(lambda: angle(masked_lm), tmp_path, 24)
    assert resumed.same_as(whole)
    assert np.isfinite(whole.curve[-1]["angle"])
    assert reopened_apart(resumed.learner, tmp_path / "saved") < 1e-5


def test_numbers_that_mean_nothing_are_one_line(masked_lm):
    with pytest.raises(CardError, match="one above 0"):
        angle(masked_lm, **PLAIN)
    with pytest.raises(CardError, match="20, 20 and 1 are usual"):
        angle(masked_lm, angle_scale=0.0)
