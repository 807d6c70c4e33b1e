"""Methods that learn from a sentence and itself: MixCSE and SimCSE++, their losses from the student's own embeddings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.errors import CardError, StsbenchError
from stsbench.training.loop import loop
from stsbench.training.methods.mixcse import MixCSE
from stsbench.training.methods.simcse_plus_plus import SimCSEPlusPlus
from stsbench.training.objectives import dimension_contrast, info_nce, mixed_info_nce, off_dropout_info_nce
from tests.training.methods.runs import embedded, first_batch, reopened_apart, values, whole_and_resumed
from tests.training.students import run_facts, sentences, student

TEXTS = sentences(24, seed=1)


def learner(method: Any, folder: Path, *, dropout: float = 0.2, **params: Any) -> Any:
    made = method(student(folder, dropout=dropout), **params)
    made.prepare({"text": TEXTS})
    return made


@pytest.mark.parametrize("method", [MixCSE, SimCSEPlusPlus])
def test_a_batch_has_each_sentence_twice_and_more_than_one(masked_lm, method):
    made = learner(method, masked_lm)
    ids = first_batch(made, 3)["views"]["input_ids"]
    assert len(ids) == 6 and torch.equal(ids[:3], ids[3:])
    with pytest.raises(CardError, match="batch_size 1"):
        first_batch(made, 1)


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_mixcse_mixes_what_the_student_embeds(masked_lm, variant):
    made = learner(MixCSE, masked_lm, variant=variant, mixing=0.3, temperature=0.1).train()
    batch = first_batch(made)
    torch.manual_seed(5)
    found = values(made, batch)["loss"]
    torch.manual_seed(5)
    (both,) = embedded(made, batch, made.student)
    wanted = mixed_info_nce(*both.double().chunk(2), temperature=0.1, mixing=0.3, variant=variant)
    assert found == pytest.approx(wanted.item(), rel=1e-5)
    assert found > info_nce(*both.double().chunk(2), temperature=0.1).item()


def test_simcse_plus_plus_has_negatives_without_dropout(masked_lm):
    made = learner(SimCSEPlusPlus, masked_lm, positive_share=0.9, dimension_weight=0.5, temperature=0.1).train()
    batch = first_batch(made)
    torch.manual_seed(5)
    found = values(made, batch)
    torch.manual_seed(5)
    both, still = embedded(made, batch, made.student)
    np.testing.assert_allclose(still.detach(), made.student.encoder().encode(TEXTS[:8]), atol=1e-5)
    assert not torch.allclose(both[:8], still, atol=1e-2)
    # The third pass leaves dropout on for the next batch.
    assert all(module.training for module in made.student.modules())
    first, second = both.double().chunk(2)
    sentence = off_dropout_info_nce(first, second, still.double(), temperature=0.1, positive_share=0.9).item()
    dimension = dimension_contrast(first, second, temperature=5.0).item()
    assert found["sentences"] == pytest.approx(sentence, rel=1e-5)
    assert found["dimensions"] == pytest.approx(dimension, rel=1e-5)
    assert found["loss"] == pytest.approx(sentence + 0.5 * dimension, rel=1e-5)


def test_simcse_plus_plus_without_its_parts_is_simcse(masked_lm):
    made = learner(SimCSEPlusPlus, masked_lm, off_dropout=False, dimension_weight=0.0).train()
    batch = first_batch(made)
    torch.manual_seed(5)
    found = values(made, batch)
    torch.manual_seed(5)
    (both,) = embedded(made, batch, made.student)
    assert found == {"loss": pytest.approx(info_nce(*both.chunk(2), temperature=0.05).item(), rel=1e-6)}


@pytest.mark.parametrize("method", [MixCSE, SimCSEPlusPlus])
def test_a_killed_run_ends_where_an_undisturbed_one_does(masked_lm, tmp_path, method):
    whole, resumed = whole_and_resumed(lambda: learner(method, masked_lm), tmp_path, 24)
    assert resumed.same_as(whole)


@pytest.mark.parametrize("method", [MixCSE, SimCSEPlusPlus])
def test_training_brings_the_loss_down_and_saves_the_student(masked_lm, tmp_path, method):
    made = learner(method, masked_lm, dropout=0.1)
    facts = run_facts(tmp_path / "run", 24, training={"steps": 30, "learning_rate": 3e-3}, selection={"every": 10})
    curve = loop.train_learner(made, facts).curve
    assert curve[-1]["loss"] < curve[0]["loss"]
    assert reopened_apart(made, tmp_path / "saved") < 1e-5


@pytest.mark.parametrize(
    ("method", "params", "says"),
    [
        (MixCSE, {"mixing": 2.0}, "mixing 2.0: it is a share"),
        (MixCSE, {"temperature": 0.0}, "temperature 0.0"),
        (SimCSEPlusPlus, {"dimension_weight": -1.0}, "dimension_weight -1: give 0 for none"),
        (SimCSEPlusPlus, {"off_dropout": False, "positive_share": 0.9}, "leave it out, or off_dropout = false"),
    ],
)
def test_numbers_that_make_no_sense_are_one_line(masked_lm, method, params, says):
    with pytest.raises(StsbenchError, match=says):
        learner(method, masked_lm, **params)
