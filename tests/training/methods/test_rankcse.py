"""RankCSE: its parts and their sum, teachers' similarities, two ranks as one, exact resumption."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.errors import CardError
from stsbench.training.methods.rankcse import RankCSE
from stsbench.training.objectives import info_nce, list_mle, list_net, ranking_consistency
from tests.training.methods.runs import embedded, first_batch, reopened_apart, values, whole_and_resumed
from tests.training.students import sentences, student
from tests.training.tensors import cosine, made

TEXTS = sentences(24)
TEACHERS = {"wide": made(24, 9, key=1).numpy(), "narrow": made(24, 4, key=2).numpy()}
TAUGHT: list[Callable[..., Any]] = [lambda rows, of=of: of[rows].astype(np.float32) for of in TEACHERS.values()]


def ranked(folder: Path, **params: Any) -> RankCSE:
    learner = RankCSE(student(folder), **{"teachers": list(TEACHERS), **params})
    learner.take_taught(TAUGHT if learner.teachers else [])
    learner.prepare({"text": TEXTS})
    return learner.train()


def wanted(weights: tuple[float, float]) -> torch.Tensor:
    """The teachers' similarities of the first eight sentences, one by one."""
    teachers = [torch.from_numpy(one) for one in TEACHERS.values()]
    rows = [
        [sum(w * cosine(t[i], t[j]) for w, t in zip(weights, teachers, strict=True)) for j in range(8)]
        for i in range(8)
    ]
    return torch.tensor(rows)


@pytest.mark.parametrize("ranking", ["listmle", "listnet"])
def test_the_loss_is_the_sum_of_its_parts(masked_lm, ranking):
    learner = ranked(
        masked_lm, ranking=ranking, teacher_weights=[1.0, 3.0], ranking_temperature=0.1, consistency_weight=0.5,
        ranking_weight=2.0,
    ).eval()  # fmt: skip
    batch = first_batch(learner)
    a, b = embedded(learner, batch, learner.student)[0].detach().chunk(2)
    own = torch.tensor([[cosine(x, y) / 0.1 for y in b] for x in a])
    theirs = wanted((0.25, 0.75)) / 0.025
    distilled = (list_mle if ranking == "listmle" else list_net)(own, theirs).item()
    found = values(learner, batch)
    assert found["contrastive"] == pytest.approx(info_nce(a, b, temperature=0.05).item(), rel=1e-5)
    assert found["consistency"] == pytest.approx(ranking_consistency(a, b, temperature=0.05).item(), abs=1e-6)
    assert found["ranking"] == pytest.approx(distilled, rel=1e-3)
    total = found["contrastive"] + 0.5 * found["consistency"] + 2 * found["ranking"]
    assert found["loss"] == pytest.approx(total, rel=1e-6)


def test_similarities_are_no_rounder_under_autocast(masked_lm):
    learner = ranked(masked_lm).eval()
    batch = first_batch(learner)
    plain = learner.taught_rankings(batch["taught"])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(learner.taught_rankings(batch["taught"]), plain)


def test_views_differ_by_dropout_and_are_to_rank_alike(masked_lm):
    learner = ranked(masked_lm)
    assert values(learner, first_batch(learner))["consistency"] > 1e-4
    assert values(learner.eval(), first_batch(learner))["consistency"] == pytest.approx(0, abs=1e-6)


def test_without_its_own_losses_it_is_simcse(masked_lm):
    learner = ranked(masked_lm, teachers=None, consistency_weight=0.0, ranking_weight=0.0).eval()
    batch = first_batch(learner)
    a, b = embedded(learner, batch, learner.student)[0].chunk(2)
    assert "taught" not in batch
    assert values(learner, batch) == {
        name: pytest.approx(info_nce(a, b, temperature=0.05).item(), rel=1e-6) for name in ("loss", "contrastive")
    }


def test_a_resumed_run_is_the_undisturbed_one_and_its_folder_opens(masked_lm, tmp_path):
    whole, resumed = whole_and_resumed(lambda: ranked(masked_lm), tmp_path, 24)
    assert resumed.same_as(whole)
    assert "ranking" in whole.curve[-1]
    assert reopened_apart(resumed.learner, tmp_path / "saved") < 1e-5


@pytest.mark.parametrize("params", [{"teachers": None}, {"teacher_weights": [1.0]}, {"teacher_weights": [1.0, 0.0]}])
def test_teachers_without_weights_are_one_line(masked_lm, params):
    with pytest.raises(CardError, match="one weight above 0 for each; or ranking_weight 0"):
        ranked(masked_lm, **params)


def test_numbers_that_mean_nothing_are_one_line(masked_lm):
    with pytest.raises(CardError, match="temperatures more than 0"):
        ranked(masked_lm, teacher_temperature=0.0)
    with pytest.raises(CardError, match="batch_size 1"):
        first_batch(ranked(masked_lm), 1)
