"""SBERT's triplets: SimCSE's loss, sentence-transformers' own, and batches in which no text occurs twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.cards.recipe import TrainingFacts
from stsbench.errors import CardError
from stsbench.training.loop.batches import Batches, BatchPlan
from stsbench.training.loop.saving import save_student
from stsbench.training.methods.sbert_triplets import SBERTTriplets
from stsbench.training.methods.simcse import SimCSE
from tests.training.methods.runs import first_batch, reopened_apart, values, whole_and_resumed
from tests.training.students import sentences, student

TRIPLETS = {name: sentences(24, seed=seed) for seed, name in enumerate(("anchor", "positive", "negative"), 1)}
REPEATED = {
    "anchor": [f"dog {'big ' * (i // 3)}" for i in range(60)],
    "positive": [f"cat {'small ' * i}" for i in range(60)],
    "negative": [f"bird {'red ' * ((i * 7) % 20)}" for i in range(60)],
}
"""Each anchor and each negative occurs three times."""


def learner(folder: Path, columns: Any = None, **params: Any) -> SBERTTriplets:
    made = SBERTTriplets(student(folder, max_length=40), **params)
    made.prepare(columns or TRIPLETS)
    return made


def test_the_loss_is_supervised_simcses_at_the_inverse_of_the_scale(masked_lm):
    made, other = learner(masked_lm).eval(), SimCSE(student(masked_lm), views="triplets", temperature=0.05).eval()
    other.prepare(TRIPLETS)
    assert values(made, first_batch(made)) == pytest.approx(values(other, first_batch(other)), rel=1e-6)


@pytest.mark.parametrize("views", ["pairs", "triplets"])
def test_the_loss_is_sentence_transformers(masked_lm, tmp_path, views):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    made = learner(masked_lm, views=views, scale=10.0).eval()
    save_student(made.student, tmp_path)
    model = SentenceTransformer(str(tmp_path), device="cpu").eval()
    texts = [model.preprocess(TRIPLETS[name][:8]) for name in made.needs]
    wanted = MultipleNegativesRankingLoss(model, scale=10.0)(texts, None).item()
    assert values(made, first_batch(made))["loss"] == pytest.approx(wanted, abs=1e-5)


def rows_of(made: SBERTTriplets, size: int, *, ranks: int = 1) -> list[np.ndarray[Any, Any]]:
    order = made.order(60, np.random.default_rng(3), batch=size * ranks)
    assert sorted(order.tolist()) == list(range(60))
    return [order[start : start + size * ranks] for start in range(0, 60, size * ranks)]


@pytest.mark.parametrize("size", [2, 5, 12])
def test_no_text_occurs_twice_in_a_batch(masked_lm, size):
    made = learner(masked_lm, REPEATED)
    # What is left for the last batch may have no other place.
    for rows in rows_of(made, size)[:-1]:
        for name in made.needs:
            texts = [REPEATED[name][row] for row in rows]
            assert len(set(texts)) == len(texts)
    # By chance alone they would.
    chance = np.random.default_rng(3).permutation(60)[:12]
    assert len({REPEATED["anchor"][row] for row in chance} | {REPEATED["negative"][row] for row in chance}) < 24


def test_a_text_in_two_columns_is_the_same_text(masked_lm):
    columns = {**REPEATED, "positive": [REPEATED["anchor"][(i + 30) % 60] for i in range(60)]}
    made = learner(masked_lm, columns)
    for rows in rows_of(made, 6)[:5]:
        anchors, positives = ([columns[name][row] for row in rows] for name in ("anchor", "positive"))
        assert not set(anchors) & set(positives)


def test_ranks_together_make_the_batch(masked_lm, monkeypatch):
    made = learner(masked_lm, REPEATED)
    facts = TrainingFacts(batch_size=6, learning_rate=1e-3, epochs=1)
    monkeypatch.setattr(made, "collate", lambda rows, rng: rows)
    halves = [Batches(made, BatchPlan.make(facts, 60, seed=0, rank=rank, ranks=2)) for rank in (0, 1)]
    for number in range(4):
        rows: Any = [*halves[0][number], *halves[1][number]]
        assert len({REPEATED["anchor"][row] for row in rows}) == 12


def test_rows_that_cannot_be_parted_come_last(masked_lm):
    columns = {**REPEATED, "anchor": ["dog"] * 30 + [f"fish {'old ' * i}" for i in range(30)]}
    made = learner(masked_lm, columns)
    first, *others = rows_of(made, 10)
    assert sum(columns["anchor"][row] == "dog" for row in first) <= 1
    assert sum(columns["anchor"][row] == "dog" for row in others[-1]) > 1


def test_a_resumed_run_is_the_undisturbed_one_and_its_folder_opens(masked_lm, tmp_path):
    whole, resumed = whole_and_resumed(lambda: learner(masked_lm), tmp_path, 24)
    assert resumed.same_as(whole)
    assert reopened_apart(resumed.learner, tmp_path / "saved") < 1e-5


def test_a_scale_of_nothing_is_one_line(masked_lm):
    with pytest.raises(CardError, match="scale 0"):
        learner(masked_lm, scale=0.0)
