"""One kind of trainer: chosen by a method's row, prepared when it is handed on, and one record of what it did."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from stsbench.core.cards import CorpusSection, SelectionSection, TrainingSection
from stsbench.core.errors import CardError, StsbenchError
from stsbench.recipes.train import run_training
from stsbench.recipes.train_plan import TrainPlan, find_start
from stsbench.recipes.trainer import TRAINERS, load_trainer
from stsbench.recipes.trainers import LoopTrainer, RoundsTrainer
from stsbench.training.loop.gather import ProcessGroup
from stsbench.training.methods.registry import METHODS, METHODS_BY_TRAINER
from stsbench.training.methods.simcse import SimCSE
from stsbench.training.words.fastsent import FastSentTraining
from tests.recipes.little import little_recipe
from tests.training.students import sentences

HERE = "tests.recipes.test_trainer"


@dataclass(frozen=True, kw_only=True)
class MyRounds(FastSentTraining):
    """A user's own training."""


class MyLearner(SimCSE):
    """A user's own learner."""


class MyOddity(SimCSE):
    """A class that asks for a trainer which is not there."""

    trainer: ClassVar[str] = "lop"


def plan(folder: Path, method: str, *, base: Path | None = None, **selection: Any) -> TrainPlan:
    (folder / "text.txt").write_text("\n".join(sentences(50)) + "\n")
    own = method in ("fastsent", f"{HERE}:MyRounds")
    card = little_recipe(
        method,
        data=CorpusSection(corpus=str(folder / "text.txt")),
        params={"size": 4, "min_count": 1} if own else {},
        training=TrainingSection(batch_size=8, learning_rate=1e-3, epochs=2.0),
        selection=SelectionSection(task="quickstart-en", split="test", **selection),
    )
    return TrainPlan(
        name="little",
        card=card,
        seed=0,
        out=folder,
        base=str(base or ""),
        device="cpu",
        data=folder,
    )


def test_a_row_says_the_trainer_that_its_class_names():
    assert set(METHODS_BY_TRAINER) == set(TRAINERS.table)
    for trainer, rows in METHODS_BY_TRAINER.items():
        assert {METHODS.load(name).trainer for name in rows} == {trainer}


@pytest.mark.parametrize("method", ["fastsent", f"{HERE}:MyRounds", "simcse", f"{HERE}:MyLearner"])
def test_each_method_gets_its_trainer_ready_to_train(masked_lm, tmp_path, method):
    own = method in ("fastsent", f"{HERE}:MyRounds")
    trainer = load_trainer(plan(tmp_path, method, base=None if own else masked_lm))
    assert isinstance(trainer, RoundsTrainer if own else LoopTrainer)
    columns = trainer.columns if isinstance(trainer, RoundsTrainer) else trainer.learner.columns
    assert list(columns["text"]) == list(trainer.corpus.column("text")) == sentences(50)
    assert (trainer.base is None) == own and trainer.device == "cpu"


def test_that_no_start_is_named_is_told_to_a_trainer_of_any_kind_that_asks_for_one(tmp_path):
    for method in ("simcse", "fastsent"):
        with pytest.raises(CardError, match="little: .*`base=FOLDER`"):
            find_start(plan(tmp_path, method))


def test_a_start_that_is_not_there_is_told_before_any_text_is_read(
    masked_lm, tmp_path, monkeypatch
):
    asked = plan(tmp_path, "simcse", base=tmp_path / "nowhere")
    (tmp_path / "text.txt").unlink()
    with pytest.raises(StsbenchError, match="nowhere"):
        load_trainer(asked)
    with pytest.raises(StsbenchError, match=r"text\.txt"):
        load_trainer(replace(asked, base=str(masked_lm)))


@pytest.mark.parametrize("method", ["simcse", "simcse_plus_plus", "mixcse"])
def test_views_that_nothing_tells_apart_are_refused_unless_asked_for(masked_lm, tmp_path, method):
    base = tmp_path / "start"
    shutil.copytree(masked_lm, base)
    config = json.loads((base / "config.json").read_text())
    config |= {name: 0.0 for name in config if name.endswith("dropout_prob")}
    (base / "config.json").write_text(json.dumps(config))
    asked = plan(tmp_path, method, base=base)
    with pytest.raises(CardError, match=r"start has no dropout.*`params=dropout=0\.1`"):
        load_trainer(asked)
    for dropout in (0.0, 0.1):
        student = msgspec.structs.replace(asked.card.student, dropout=dropout)
        load_trainer(replace(asked, card=msgspec.structs.replace(asked.card, student=student)))
    load_trainer(plan(tmp_path, "contrastive_tension", base=base))


def test_a_trainer_that_is_not_there_is_one_line(masked_lm, tmp_path):
    with pytest.raises(StsbenchError, match="'lop'.* mean 'loop'"):
        load_trainer(plan(tmp_path, f"{HERE}:MyOddity", base=masked_lm))


def test_what_starts_from_nothing_takes_no_base(masked_lm, tmp_path):
    with pytest.raises(CardError, match="'fastsent' .* nothing; .*`base`"):
        load_trainer(plan(tmp_path, "fastsent", base=masked_lm))


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[str]:
    """What a function of one argument is called with from now on."""
    work, given = getattr(owner, name), list[str]()

    def counting(one: str) -> Any:
        given.append(one)
        return work(one)

    monkeypatch.setattr(owner, name, counting)
    return given


def test_a_run_of_each_kind_leaves_one_kind_of_record(masked_lm, tmp_path, monkeypatch):
    loaded, placed = (
        counted(monkeypatch, METHODS, "load"),
        counted(monkeypatch, ProcessGroup, "find"),
    )
    keys = {}
    for method in ("simcse", "fastsent"):
        (tmp_path / method).mkdir()
        run = run_training(
            plan(tmp_path / method, method, base=masked_lm if method == "simcse" else None)
        )
        keys[method] = list(json.loads((run.folder / "run.json").read_text()))
        assert (
            not (run.folder / "checkpoints").exists() and not (run.folder / "started.json").exists()
        )
    assert loaded == ["simcse", "fastsent"] and placed == ["cpu", "cpu"]
    assert keys["simcse"] == [*keys["fastsent"][:4], "base_files", *keys["fastsent"][4:]]
    assert (
        keys["fastsent"][:4] == ["recipe", "seed", "card", "given_base"]
        and keys["fastsent"][-1] == "run"
    )


@pytest.mark.parametrize(
    "selection",
    [
        {"every": 4, "at_start": True},
        {"every": 4, "at_epoch_end": True},
        {"every": 3, "at_epoch_end": True, "restart_each_epoch": True},
    ],
)
def test_a_forecast_counts_the_validations_that_a_run_makes(masked_lm, tmp_path, selection):
    trainer = load_trainer(plan(tmp_path, "simcse", base=masked_lm, **selection))
    assert isinstance(trainer, LoopTrainer)
    forecast = trainer.forecast()
    assert not trainer.plan.folder.exists()
    run = run_training(trainer.plan)
    assert (
        forecast.validations == len(run.record["curve"]) and forecast.steps == run.record["steps"]
    )
