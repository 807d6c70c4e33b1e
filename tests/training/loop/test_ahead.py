"""Batches made ahead are those made in the step: same bytes, same errors, and nothing made where it cannot be."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.core.errors import CardError, DataError, StsbenchError
from stsbench.training.learner import Batch, Columns, Learner
from stsbench.training.loop import loop
from stsbench.training.loop.batches import (
    Batches,
    BatchPlan,
    check_workers,
    load_batches,
    receive_batch,
)
from stsbench.training.methods.declutr import DeCLUTR
from stsbench.training.methods.simcse import SimCSE, SimCSEPositives
from tests.training.methods.runs import Killed
from tests.training.students import run_facts, sentences, student, weights

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
CPU = torch.device("cpu")


class Marking(SimCSE):
    """Says in each batch which process made it."""

    def collate(self, rows: Any, rng: np.random.Generator) -> Batch:
        return {**super().collate(rows, rng), "maker": os.getpid()}


class Failing(SimCSE):
    """Finds what is wrong with its corpus at its third batch."""

    def collate(self, rows: Any, rng: np.random.Generator) -> Batch:
        if 30 in rows:
            raise DataError("row 31: is not text", hint="leave it out")
        return super().collate(rows, rng)


class Rowed(SimCSE):
    """Makes of rows a batch that tells which they are."""

    def collate(self, rows: Any, rng: np.random.Generator) -> Batch:
        return {"rows": rows}


def made(folder: Path, method: type[Learner] = SimCSE, **params: Any) -> Learner:
    learner = method(student(folder, language_model=method.needs_language_model(params)), **params)
    columns: Columns = {
        "text": sentences(50),
        "document": [" ".join(sentences(30, seed=row)) for row in range(50)],
    }
    learner.prepare({name: columns[name] for name in learner.needs})
    return learner


def plan() -> BatchPlan:
    return run_facts(Path(), 50).batches


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_order_and_from_other_processes(masked_lm, workers):
    learner = made(masked_lm, Marking)
    found = [
        receive_batch(batch, CPU)
        for batch in load_batches(Batches(learner, plan()), workers=workers, pin=False)
    ]
    makers = {batch["maker"] for batch in found}
    assert len(makers) == max(workers, 1) and (os.getpid() in makers) == (workers == 0)
    for number, batch in enumerate(found):
        expected = Batches(learner, plan())[number]
        assert all(
            torch.equal(batch["views"][name], tensor) for name, tensor in expected["views"].items()
        )


@pytest.mark.parametrize(
    ("method", "params"),
    [(SimCSE, {"mlm_weight": 0.1}), (DeCLUTR, {"min_span": 4, "max_span": 12})],
)
def test_any_number_of_workers_leaves_the_same_bytes_also_of_a_run_that_was_killed(
    masked_lm, tmp_path, method, params
):
    options: dict[str, Any] = {"training": {"steps": 9, "accumulate": 2}, "checkpoint_seconds": 0.0}
    whole, cut = made(masked_lm, method, **params), made(masked_lm, method, **params)
    curve = loop.train_learner(whole, run_facts(tmp_path / "whole", 50, **options)).curve

    def killer(progress: Any) -> None:
        if progress.step == 4:
            raise Killed

    with pytest.raises(Killed):
        loop.train_learner(
            cut, run_facts(tmp_path / "cut", 50, workers=2, on_progress=killer, **options)
        )
    resumed = made(masked_lm, method, **params)
    outcome = loop.train_learner(
        resumed, run_facts(tmp_path / "cut", 50, workers=1, **options), resume=True
    )
    assert outcome.curve == curve
    assert all((weights(resumed)[name] == value).all() for name, value in weights(whole).items())


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_wrong_with_a_batch_is_reported_when_its_turn_comes_and_as_it_is(
    masked_lm, tmp_path, workers
):
    heard: list[Any] = []
    with pytest.raises(DataError) as caught:
        loop.train_learner(
            made(masked_lm, Failing),
            run_facts(tmp_path, 50, workers=workers, on_progress=heard.append),
        )
    assert (str(caught.value), caught.value.hint) == (
        "row 31: is not text; leave it out",
        "leave it out",
    )
    batches = Batches(made(masked_lm, Rowed), plan())
    first = next(number for number in range(len(batches)) if 30 in batches[number]["rows"])
    assert heard[-1].step == first > 0


def test_a_gpu_has_some_workers_and_a_cpu_those_asked_for(masked_lm, monkeypatch):
    learner = made(masked_lm)
    assert [check_workers(asked, learner, ranks=1) for asked in (None, 0, 3)] == [0, 0, 3]
    monkeypatch.setattr(type(learner.student), "device", torch.device("cuda"))
    for cores, ranks, usual in ((16, 1, 4), (8, 4, 1), (2, 1, 1), (1, 1, 0), (4, 8, 0)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, cores=cores: set(range(cores)))
        assert check_workers(None, learner, ranks=ranks) == usual
    assert check_workers(0, learner, ranks=1) == 0


def test_what_cannot_be_shared_out_is_made_in_the_step(masked_lm, tmp_path, monkeypatch):
    table = tmp_path / "synonyms.tsv"
    table.write_text("dog\thound\n")
    learner = made(masked_lm, SimCSEPositives, positive="synonym", synonyms=str(table))
    assert check_workers(None, learner, ranks=1) == check_workers(0, learner, ranks=1) == 0
    with pytest.raises(CardError, match="SimCSEPositives makes batches with cannot be shared out"):
        check_workers(2, learner, ranks=1)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(StsbenchError, match="`workers=2`: they need Linux; leave it out"):
        check_workers(2, made(masked_lm), ranks=1)
