"""The loop: the same batches whoever asks, resumed runs that end where undisturbed ones do, and errors in one line."""

import errno
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file, save_model

from stsbench.core.cards import TrainingSection
from stsbench.core.errors import CardError, OutputError, TrainingError
from stsbench.encoders import runs as unfinished
from stsbench.training.loop import loop
from stsbench.training.loop.batches import Batches, BatchPlan
from stsbench.training.methods.simcse import SimCSE
from stsbench.training.student import Student
from tests.training.methods.runs import whole_and_resumed
from tests.training.students import run_facts, sentences, student, weights

NAN = math.nan
TEXTS = sentences(50)


def learner(folder: Path, **params: Any) -> SimCSE:
    made = SimCSE(student(folder), **params)
    made.prepare({"text": TEXTS})
    return made


def facts(**options: Any) -> TrainingSection:
    return TrainingSection(**{"batch_size": 8, "learning_rate": 1e-3, **options})


def test_ranks_share_out_each_batch(masked_lm, monkeypatch):
    whole = Batches(learner(masked_lm), BatchPlan(facts(epochs=2, batch_size=16), 50, seed=3))
    halves = [
        Batches(learner(masked_lm), BatchPlan(facts(epochs=1), 50, seed=3, rank=rank, ranks=2))
        for rank in (0, 1)
    ]
    joined = torch.cat([half[1]["views"]["input_ids"][:8, :6] for half in halves])
    assert torch.equal(joined, whole[1]["views"]["input_ids"][:16, :6])
    for batches in (whole, *halves):
        monkeypatch.setattr(batches.learner, "collate", lambda rows, rng: rows)
    for number in range(3):
        assert [*halves[0][number], *halves[1][number]] == [*whole[number]]
    epochs: list[Any] = [
        [row for number in range(4) for row in whole[start + number]] for start in (0, 4)
    ]
    assert [sorted(rows) for rows in epochs] == [list(range(50))] * 2 and epochs[0] != epochs[1]


@pytest.mark.parametrize(
    ("options", "count", "error", "says"),
    [
        ({}, 50, CardError, "'epochs' or 'steps'"),
        ({"epochs": 1, "steps": 2}, 50, CardError, "'epochs' or 'steps'"),
        ({"epochs": 0}, 50, CardError, "no step"),
        ({"epochs": 1, "drop_last": True}, 5, TrainingError, "lower batch_size"),
        ({"epochs": 1}, 1, TrainingError, "1 rows"),
    ],
)
def test_what_cannot_be_planned_is_one_line_and_no_batch_has_one_row(options, count, error, says):
    with pytest.raises(error, match=says):
        BatchPlan(facts(**options), count, seed=0)
    assert [BatchPlan(facts(epochs=1), rows, seed=0).n_batches for rows in (17, 18)] == [2, 3]


def test_best_weights_are_those_of_the_best_score(masked_lm, tmp_path):
    scores = iter([0.1, 0.9, 0.3])
    seen: list[dict[str, Any]] = []
    made = learner(masked_lm)

    def validate(encoder: Any) -> float:
        seen.append(weights(made))
        return next(scores)

    outcome = loop.train_learner(
        made, run_facts(tmp_path, 50, validate=validate, training={"steps": 15})
    )
    assert outcome.selected_point is not None and outcome.selected_point["step"] == 10
    assert all((seen[1][name] == value).all() for name, value in weights(made).items())
    scores = iter([0.1, 0.9, 0.3])
    run = run_facts(
        tmp_path, 50, validate=validate, training={"steps": 15}, selection={"keep": "last"}
    )
    outcome = loop.train_learner(made, run)
    assert all((seen[-1][name] == value).all() for name, value in weights(made).items())
    # The score on record is that of the weights that are kept.
    assert outcome.selected_point is not None and (
        outcome.selected_point["step"],
        outcome.selected_point["score"],
    ) == (
        15,
        0.3,
    )


@pytest.mark.parametrize(
    ("selection", "steps", "seen"),
    [
        ({}, 12, [5, 10, 12]),
        ({"at_end": False}, 12, [5, 10]),
        ({"at_end": False, "at_start": True}, 12, [0, 5, 10]),
        # The score on record is of the weights that are kept, and a run has one score at least.
        ({"at_end": False, "keep": "last"}, 12, [5, 10, 12]),
        ({"at_end": False}, 4, [4]),
    ],
)
def test_there_may_be_no_validation_at_the_end(masked_lm, tmp_path, selection, steps, seen):
    run = run_facts(tmp_path, 50, training={"steps": steps}, selection=selection)
    outcome = loop.train_learner(learner(masked_lm), run)
    assert outcome.steps == steps and [point["step"] for point in outcome.curve] == seen


@pytest.mark.parametrize(
    ("counts", "series", "stops"),
    [("since_best", [1, 3, 2, 2.5, 4, 9], 20), ("declines", [1, 3, 2, 2.5, 1, 9], 25)],
)
def test_patience(masked_lm, tmp_path, counts, series, stops):
    scores = iter(series)
    options = {"patience": 2, "patience_counts": counts}
    run = run_facts(
        tmp_path, 50, validate=lambda _: next(scores), training={"steps": 60}, selection=options
    )
    assert loop.train_learner(learner(masked_lm), run).steps == stops


@pytest.mark.parametrize(
    ("series", "step", "stops"), [([NAN, 1, 2, 1.5, 1.4], 15, 25), ([NAN] * 5, 5, 15)]
)
def test_scores_that_are_no_numbers_are_below_all_others(masked_lm, tmp_path, series, step, stops):
    scores = iter(series)
    run = run_facts(
        tmp_path,
        50,
        validate=lambda _: next(scores),
        training={"steps": 60},
        selection={"patience": 2},
    )
    outcome = loop.train_learner(learner(masked_lm), run)
    assert (
        outcome.selected_point is not None
        and outcome.selected_point["step"] == step
        and outcome.steps == stops
    )


@pytest.mark.parametrize(("at", "params"), [(1, {"mlm_weight": 0.1}), (11, {})])
def test_a_resumed_run_ends_where_an_undisturbed_one_does(masked_lm, tmp_path, params, at):
    def fresh() -> SimCSE:
        made = SimCSE(student(masked_lm, language_model=bool(params)), **params)
        made.prepare({"text": TEXTS})
        return made

    whole, resumed = whole_and_resumed(fresh, tmp_path, 50, at=at, steps=14, accumulate=2)
    assert resumed.same_as(whole)


def test_a_half_written_checkpoint_is_passed_over_and_one_of_other_weights_refused(
    masked_lm, tmp_path
):
    options: dict[str, Any] = {"training": {"steps": 6}, "checkpoint_seconds": 0.0}
    whole = learner(masked_lm)
    loop.train_learner(whole, run_facts(tmp_path, 50, **options))
    last = unfinished.find_last_checkpoint(tmp_path)
    assert last is not None and last.name == "checkpoint-5"
    file = last / "learner.safetensors"
    save_file({f"{name}.old": one for name, one in load_file(file).items()}, file)
    with pytest.raises(TrainingError, match="Missing key.*`fresh`"):
        loop.train_learner(learner(masked_lm), run_facts(tmp_path, 50, **options), resume=True)
    (last / unfinished.COMPLETE_FILE).unlink()
    file.write_bytes(b"half")
    again = learner(masked_lm)
    loop.train_learner(again, run_facts(tmp_path, 50, **options), resume=True)
    assert all((weights(again)[name] == value).all() for name, value in weights(whole).items())


def test_a_full_disk_is_one_line_and_the_last_good_checkpoint_stays(
    masked_lm, tmp_path, monkeypatch
):
    calls: list[str] = []

    def full(model: Any, path: str) -> None:
        calls.append(path)
        if len(calls) == 3:
            Path(path).write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save_model(model, path)

    monkeypatch.setattr(loop, "save_model", full)
    with pytest.raises(OutputError, match=r"full \(checkpoint-2 .*`fresh`"):
        loop.train_learner(learner(masked_lm), run_facts(tmp_path, 50, checkpoint_seconds=0.0))
    monkeypatch.undo()
    whole, resumed = learner(masked_lm), learner(masked_lm)
    loop.train_learner(resumed, run_facts(tmp_path, 50), resume=True)
    loop.train_learner(whole, run_facts(tmp_path / "whole", 50))
    assert all((weights(resumed)[name] == value).all() for name, value in weights(whole).items())


def test_only_what_a_run_reads_is_tokenised(masked_lm, tmp_path, monkeypatch):
    read: list[str] = []
    tokenize = Student.tokenize

    def watched(self: Student, texts: Any, **options: Any) -> Any:
        read.extend(texts)
        return tokenize(self, texts, **options)

    monkeypatch.setattr(Student, "tokenize", watched)
    made = SimCSE(student(masked_lm))
    made.prepare({"text": sentences(500)})
    loop.train_learner(made, run_facts(tmp_path, 500, validate=None, training={"steps": 3}))
    assert len(read) == 3 * 8


def test_a_batch_is_not_spread_over_all_gpus_that_are_seen(tmp_path):
    import transformers

    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    for seen, taken in ((4, 1), (1, 1), (0, 0)):
        arguments._n_gpu = (
            seen  # what the library counts: it has no other place, and this machine no GPU
        )
        loop.use_single_device(arguments)
        assert arguments.n_gpu == taken


def test_progress_is_reported_at_every_step(masked_lm, tmp_path):
    heard: list[Any] = []
    loop.train_learner(learner(masked_lm), run_facts(tmp_path, 50, on_progress=heard.append))
    assert [one.step for one in heard] == list(range(11))
    assert {one.steps for one in heard} == {10}
    assert heard[4].score is None and heard[5].score == heard[5].best
    assert isinstance(heard[0].loss, float) and np.isfinite(heard[-1].loss)
