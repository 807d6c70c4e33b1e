"""Trials: named as train names runs, none trained twice, and none lost by another's failure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stsbench.bench.plan import RunPlan
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import run
from stsbench.cli.app import make_app
from stsbench.core.errors import CardError, Interrupted, OutputError, TrainingError, UnknownName
from stsbench.encoders.load import load_encoder
from stsbench.recipes.train_plan import TrainPlan
from stsbench.results.record import Result
from stsbench.studies.trials import (
    Trial,
    TrialCallbacks,
    TrialEnvironment,
    TrialOutcome,
    carry_out_trial,
    plan_trials,
)
from stsbench.training.learner import OnProgress, TrainingProgress

QUICK = [RunPlan(tasks="quickstart-en")]


def plan(workshop: TrialEnvironment, base: Path, seed: int = 0, **replaced: object) -> TrainPlan:
    """A training of the little recipe."""
    return workshop.plan("little", replaced, seed=seed, base=str(base))


def carry_out_trials(
    trials: Sequence[Trial],
    workshop: TrialEnvironment,
    scorings: Sequence[RunPlan],
    watcher: TrialCallbacks = TrialCallbacks(),  # noqa: B008 - a value
) -> list[TrialOutcome]:
    """One after the other."""
    return [carry_out_trial(one, workshop, scorings, watcher) for one in trials]


def test_a_trial_is_called_as_train_calls_its_run(workshop, masked_lm, tmp_path):
    shop = replace(workshop, options=["--device", "cpu"])
    one = shop.plan(
        "little", {"temperature": 0.1, "steps": 3}, seed=2, base=str(masked_lm), text="b.txt"
    )
    (planned,) = plan_trials([one])
    assert planned.encoder == "little+data.corpus=b.txt+steps=3+temperature=0.1@2"
    assert planned.plan.folder == tmp_path / "runs" / planned.plan.name / "seed2"
    words = shlex.split(planned.plan.command)
    assert words[:7] == [
        "stsbench",
        "train",
        "little",
        "--set",
        "temperature=0.1",
        "--set",
        "steps=3",
    ]
    assert words[7:] == [
        "--base",
        str(masked_lm),
        "--text",
        "b.txt",
        "--device",
        "cpu",
        "--seeds",
        "2",
    ]
    train: Any = make_app().commands["train"]
    assert {"--base", "--text", "--device", "--seeds"} <= {
        flag for one in train.load().params for flag in one.opts
    }


def test_what_leaves_the_same_encoder_is_one_run(workshop, masked_lm):
    as_it_says: list[dict[str, Any]] = [{}, {"temperature": 0.05}, {"learning_rate": 0.001}]
    same = [plan(workshop, masked_lm, **values) for values in as_it_says]
    other = [plan(workshop, masked_lm, temperature=0.1), plan(workshop, masked_lm, seed=1)]
    planned = plan_trials([*same, *other, same[0]])
    assert [one.encoder for one in planned] == ["little@0", "little+temperature=0.1@0", "little@1"]
    assert planned[0].plans == [*same, same[0]]


def test_trials_of_one_name_and_other_bases_are_refused(workshop, masked_lm, bert):
    with pytest.raises(TrainingError, match="little, seed 0: .* twice"):
        plan_trials([plan(workshop, masked_lm), plan(workshop, bert)])


def test_wrong_recipes_and_values_are_told_before_any_training(workshop, masked_lm):
    with pytest.raises(UnknownName, match="mean 'little'"):
        workshop.plan("litle")
    with pytest.raises(CardError, match="batch_size"):
        plan(workshop, masked_lm, batch_size=0)


def test_trials_are_trained_once_and_scored(workshop, masked_lm, trained: Callable[[], list[str]]):
    temperatures: list[dict[str, Any]] = [{}, {"temperature": 0.1}, {"temperature": 0.05}]
    trials = [plan(workshop, masked_lm, **values) for values in temperatures]
    planned = plan_trials(trials)
    assert [one.state for one in planned] == ["missing", "missing"]
    outcomes = carry_out_trials(planned, workshop, QUICK)
    assert trained() == ["little/seed0", "little+temperature=0.1/seed0"]
    assert [(r.encoder, r.task, r.train_seed) for one in outcomes for r in one.results] == [
        ("little", "quickstart-en", 0), ("little+temperature=0.1", "quickstart-en", 0),
    ]  # fmt: skip
    assert [one.run and one.run.recipe for one in outcomes] == ["little", "little+temperature=0.1"]
    again = plan_trials(trials)
    assert [one.state for one in again] == ["complete", "complete"]
    scored: list[object] = []
    watcher = TrialCallbacks(scoring=RunCallbacks(on_result=scored.append))
    same = carry_out_trials(again, workshop, QUICK, watcher)
    assert trained() == ["little/seed0", "little+temperature=0.1/seed0"] and scored == []
    assert [r.score for one in same for r in one.results] == [
        r.score for one in outcomes for r in one.results
    ]
    assert load_encoder(again[1].encoder, catalogue=workshop.catalogue).encode(["a"]).shape == (
        1,
        16,
    )


def test_a_name_whose_run_is_there_is_taken(workshop, masked_lm, trained: Callable[[], list[str]]):
    named = plan(workshop, masked_lm, temperature=0.05)
    carry_out_trials(plan_trials([named]), workshop, [])
    (planned,) = plan_trials([plan(workshop, masked_lm), named])
    assert (planned.encoder, planned.state) == ("little+temperature=0.05@0", "complete")
    assert trained() == ["little+temperature=0.05/seed0"]


@contextmanager
def stopping(trial: Trial) -> Iterator[OnProgress]:
    """Stop at the sixth step of the trial with the other temperature."""

    def on_progress(progress: TrainingProgress) -> None:
        if trial.plan.card.params["temperature"] == 0.1 and progress.step == 6:
            raise KeyboardInterrupt

    yield on_progress


def test_a_stopped_trial_goes_on(workshop: TrialEnvironment, masked_lm):
    place = replace(workshop, checkpoint_seconds=0.0)
    trials = [plan(place, masked_lm), plan(place, masked_lm, temperature=0.1)]
    with pytest.raises((Interrupted, KeyboardInterrupt)):
        carry_out_trials(plan_trials(trials), place, QUICK, TrialCallbacks(training=stopping))
    planned = plan_trials(trials)
    assert [one.state for one in planned] == ["complete", "unfinished"]
    first: list[int] = []

    @contextmanager
    def counting(trial: Trial) -> Iterator[OnProgress]:
        yield lambda progress: first.append(progress.step)

    done = carry_out_trials(planned, place, QUICK, TrialCallbacks(training=counting))
    assert (
        first[0] > 1 and first[-1] == 12 and all(one.results and not one.failures for one in done)
    )


def test_one_that_fails_takes_no_other_with_it(workshop, masked_lm, monkeypatch):
    wrong, *fine = (
        plan(workshop, masked_lm, similarity="dott"),
        plan(workshop, masked_lm),
        plan(workshop, masked_lm, 3),
    )
    planned = plan_trials([wrong, *fine])

    def scoring(asked: RunPlan, told: RunCallbacks) -> Iterator[Result]:
        if "@3" in asked.encoders[0]:
            raise RuntimeError("a bug")
        return run(asked, told)

    monkeypatch.setattr("stsbench.studies.trials.run", scoring)
    outcomes = carry_out_trials(planned, workshop, QUICK)
    assert [len(one.results) for one in outcomes] == [0, 1, 0]
    (what, error), _, (other, bug) = (
        one.failures[0] if one.failures else ("", None) for one in outcomes
    )
    assert (
        what == "little+similarity=dott@0"
        and "similarity" in str(error)
        and isinstance(error, CardError)
    )
    assert other == "little@3" and isinstance(bug, RuntimeError)


def test_a_task_that_fails_is_told_and_the_trial_is_trained(workshop, masked_lm):
    planned = plan_trials([plan(workshop, masked_lm)])
    (outcome,) = carry_out_trials(
        planned, workshop, [RunPlan(tasks="gone"), *QUICK, RunPlan(tasks="quickstrat")]
    )
    tasks = [result.task for result in outcome.results]
    assert outcome.run is not None and tasks == ["quickstart-en"]
    assert [subject for subject, _ in outcome.failures] == ["gone", "little@0"]
    error = outcome.failures[1][1]
    assert isinstance(error, UnknownName) and error.name == "quickstrat"


def test_a_run_with_another_base_in_the_folder_is_refused_before_any_training(
    workshop, masked_lm, bert
):
    carry_out_trials(plan_trials([plan(workshop, masked_lm)]), workshop, [])
    with pytest.raises(OutputError, match="run with another base"):
        plan_trials([plan(workshop, bert)])
    with pytest.raises(OutputError, match=r"another base \(.+, now the recipe's\)"):
        plan_trials([replace(plan(workshop, masked_lm), base="")])
