"""Teachers: found by name, embedded into the store once, told in records, and part of what a run has seen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.core import settings
from stsbench.core.cards import CorpusSection, SelectionSection
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError
from stsbench.data.task import load_task
from stsbench.encoders.load import load_encoder
from stsbench.encoders.runs import TrainingStart
from stsbench.recipes.train import run_training
from stsbench.recipes.train_plan import TrainPlan
from stsbench.recipes.trainer import TeacherEncoders, load_trainer
from stsbench.training.loop.gather import ProcessGroup
from tests.encoders.made_checkpoints import save_bert
from tests.recipes.little import little_recipe
from tests.training.students import WORDS, sentences

TEXTS = [*sentences(20), sentences(20)[3]]


def plan(folder: Path, base: Path, *teachers: str) -> TrainPlan:
    (folder / "text.txt").write_text("\n".join(TEXTS) + "\n")
    card = little_recipe(
        "rankcse",
        data=CorpusSection(corpus=str(folder / "text.txt")),
        selection=SelectionSection(task="quickstart-en", split="test"),
        params={"teachers": list(teachers)},
    )
    return TrainPlan(name="little", card=card, seed=0, out=folder, base=str(base), device="cpu")


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    return save_bert(tmp_path / "teacher", words=WORDS, layers=1)


def test_a_teacher_gives_its_embeddings_of_rows_from_the_store(teacher, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    encoder = load_encoder(str(teacher))
    (taught,) = TeacherEncoders.find([str(teacher)], Catalogue()).embed(
        TEXTS, ProcessGroup.find("cpu")
    )
    np.testing.assert_allclose(
        taught(np.array([20, 0, 3])), encoder.encode([TEXTS[3], TEXTS[0], TEXTS[3]]), atol=1e-6
    )
    blocks = list(settings.store_folder().rglob("*.npy"))
    assert blocks
    (again,) = TeacherEncoders.find([str(teacher)], Catalogue()).embed(
        TEXTS, ProcessGroup.find("cpu")
    )
    assert (again(np.arange(21)) == taught(np.arange(21))).all()
    assert list(settings.store_folder().rglob("*.npy")) == blocks


def test_a_recipe_s_teacher_reaches_its_batches_and_its_records(masked_lm, teacher, tmp_path):
    trainer: Any = load_trainer(plan(tmp_path, masked_lm, str(teacher)))
    assert not hasattr(trainer.learner, "teacher_embeddings")
    trainer.embed_by_teachers()
    batch = trainer.learner.collate(np.array([2, 0]), np.random.default_rng(0))
    wanted = load_encoder(str(teacher)).encode([TEXTS[2], TEXTS[0]])
    np.testing.assert_allclose(batch["teacher_embeddings"][str(teacher)], wanted, atol=1e-6)
    run = run_training(plan(tmp_path, masked_lm, str(teacher)))
    assert run.record["teachers"] == trainer.teachers.fingerprints() != {}


def test_what_a_teacher_has_seen_its_student_has(masked_lm, teacher, tmp_path):
    from stsbench.data.corpora.corpus import load_corpus
    from stsbench.recipes.overlaps import find_overlaps

    made = plan(tmp_path, masked_lm, str(teacher))
    corpus = load_corpus(tmp_path / "text.txt")
    assert find_overlaps(made, corpus)["quickstart-en"] == "none"
    known = TeacherEncoders.find([str(teacher)], Catalogue()).encoders
    assert find_overlaps(made, corpus, None, known)["quickstart-en"] == "unknown"
    assert load_task("quickstart-en").texts()[0] not in TEXTS


def test_checkpoints_of_another_teacher_are_not_resumed():
    start: Any = {"recipe": {}, "seed": 0, "base": {}, "corpus": "a"}
    before, now = (TrainingStart(**start, teachers={"wise": digest}) for digest in "xy")
    assert now.describe_difference(before) == "teacher" and not now.describe_difference(now)


def test_what_is_no_teacher_is_one_line(masked_lm, tmp_path):
    with pytest.raises(CardError, match="teacher 'minilm-whitening' "):
        TeacherEncoders.find(["minilm-whitening"], Catalogue())
    with pytest.raises(CardError, match="encoders to learn from"):
        load_trainer(plan(tmp_path, masked_lm))
