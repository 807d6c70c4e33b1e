"""Sweeps: what is tried, once each; what decides is never a test; the winners are recipes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from stsbench.core.cards import RecipeCard
from stsbench.core.errors import CardError, OutputError, StsbenchError, TrainingError, UnknownName
from stsbench.core.toml import convert, toml_tables
from stsbench.encoders.runs import read_unfinished_runs
from stsbench.recipes.train import run_training
from stsbench.recipes.train_plan import TrainPlan, read_recipe
from stsbench.studies.carriers import CARRIERS
from stsbench.studies.search import SweepSetting
from stsbench.studies.sweep import JOURNAL_FILE, SweepScore, SweepState, winner_card
from stsbench.studies.trials import TrialCallbacks, carry_out_trial, plan_trials
from tests.studies.conftest import scores


def test_without_optuna_a_sweep_says_what_to_install(sweep, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(StsbenchError, match=r"need Optuna; run: pip install 'stsbench\[sweep\]'"):
        sweep()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            [('task = "dev"', 'task = "dev"\nsplit = "test"')],
            "'test' of dev is a test: .*; dev has 'validation'",
        ),
        (
            [('task = "dev"', 'task = "mr"\nsplit = "all"')],
            "'all' of mr is a test: .*; mr has none; choose others",
        ),
        (
            [('"little"', '"tested"')],
            "tested.*: selection.task and selection.split: 'test' of quickstart-en is a test",
        ),
        ([("[0.05, 0.5]", '[0.05, 0.5]\n"selection.split" = ["test"]')], "'test' of dev is a test"),
        ([("[0.05, 0.5]", "[0.5, 0.05, 0.5]")], "temperature: a value stands there twice"),
    ],
)
def test_a_sweep_that_chooses_by_a_test_or_says_a_thing_twice_is_refused(sweep, changes, says):
    with pytest.raises(CardError, match=says):
        SweepState(sweep(*changes)).next_trial()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("[0.05]\nbatch_size = [8, 0]", "batch_size"),
        ("[0.05]\ntemprature = [0.1]", "'temprature'; did you mean 'temperature'"),
        (
            "[0.05]\nloss = ['one_direction', 'symetric']",
            "'symetric' is not one of .*; did you mean 'symmetric'",
        ),
        ("[0.05, 'warm']", "temperature.*'warm'"),
        ("[0.05]\noptimiser = ['adamx']", "adamx"),
    ],
)
def test_a_value_that_the_method_does_not_take_is_told_before_any_training(
    sweep, trained, values, says
):
    with pytest.raises(StsbenchError, match=says):
        sweep(("[0.05, 0.5]", values))
    assert trained() == []


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('"little"', '"litle"', "did you mean 'little'"),
        ("[decide]", "[set]\nbatch_size = 0\n[decide]", "batch_size"),
    ],
)
def test_a_sweep_over_recipes_alone_is_checked_as_it_is_read(sweep, before, after, says):
    with pytest.raises(StsbenchError, match=says):
        sweep(("temperature = [0.05, 0.5]", ""), (before, after))


def test_a_run_of_another_base_is_left_alone(sweep, developing, bert, masked_lm):
    (others,) = plan_trials([developing.plan("little", seed=1, base=str(masked_lm))])
    carry_out_trial(others, developing, [], TrialCallbacks())
    found = sweep()
    card = msgspec.structs.replace(found.card, base=str(bert))
    setting = SweepSetting("little", {"temperature": 0.05})
    anew = replace(found, card=card).plan_trials_of(setting)
    assert [trial.encoder for trial in anew] == ["little+temperature=0.05@1", "little@2"]
    assert [trial.encoder for trial in found.plan_trials_of(setting)] == ["little@1", "little@2"]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('"little"', '"litle"', "did you mean 'little'"),
        ('"little"]', '"little"]\nsearch = "gird"', "unknown search 'gird'; did you mean 'grid'"),
        (
            '"dev"',
            '"dev"\nsplit = "validaton"',
            "unknown split of dev 'validaton'; did you mean 'validation'",
        ),
        ('"dev"', '"dve"', "unknown task 'dve'; did you mean 'dev'"),
    ],
)
def test_names_that_are_in_no_table_get_the_nearest(sweep, before, after, says):
    with pytest.raises(UnknownName, match=says):
        SweepState(sweep((before, after))).next_trial()


def drawn(
    book: SweepState, score: Callable[[dict[str, Any], int], SweepScore]
) -> list[tuple[Any, int]]:
    """Hand out all trials and note made-up scores."""
    found = []
    while (trial := book.next_trial()) is not None:
        values, seed = trial.plan.card.params, trial.plan.seed
        found.append((values["temperature"], seed))
        book.store_outcome(trial, score(values, seed))
    return found


def test_each_trial_is_handed_out_once_and_a_new_book_goes_on(sweep):
    one = SweepState(sweep())
    first = one.next_trial()
    assert first is not None and (first.encoder, one.total) == ("little@1", 4)
    optuna.logging.set_verbosity(optuna.logging.INFO)
    again = SweepState(sweep(more="[budget]\nhours = 3\n"))
    assert optuna.logging.get_verbosity() == optuna.logging.ERROR
    assert [row.setting.values for row in again.rows] == [{"temperature": 0.05}]
    assert drawn(again, lambda values, seed: SweepScore(0.5)) == [
        (0.05, 1),
        (0.05, 2),
        (0.5, 1),
        (0.5, 2),
    ]
    other = SweepState(sweep(("[0.05, 0.5]", "[0.2, 0.5]")))
    assert not other.rows and len(other.known_trials()) == 4
    (other.sweep.folder / JOURNAL_FILE).write_text("{\n{")
    with pytest.raises(OutputError, match="is not what a sweep has tried"):
        SweepState(sweep())


def test_the_best_mean_of_whole_settings_wins(sweep):
    scores = {
        (0.1, 1): SweepScore(0.9), (0.1, 2): SweepScore(None, "lost"), (0.2, 1): SweepScore(0.8), (0.2, 2): SweepScore(0.9, stopped_early=True),
        (0.3, 1): SweepScore(0.6), (0.3, 2): SweepScore(0.7), (0.4, 1): SweepScore(0.5), (0.4, 2): SweepScore(0.7),
    }  # fmt: skip
    told: list[int] = []
    book = SweepState(
        sweep(("[0.05, 0.5]", "[0.1, 0.2, 0.3, 0.4]")),
        lambda row, trial: told.append(trial.plan.seed),
    )
    drawn(book, lambda values, seed: scores[values["temperature"], seed])
    assert [row.setting.values["temperature"] for row in book.ranked()] == [0.3, 0.4, 0.1, 0.2]
    (best,) = book.winners()
    assert best.seed_mean is not None and best.seed_mean == pytest.approx(
        (0.65, 0.1 / math.sqrt(2))
    )
    assert (best.encoder, len(told)) == ("little+temperature=0.3", 8)


def test_a_winner_is_a_recipe_that_trains_the_same(sweep, developing, tmp_path):
    book = SweepState(sweep(more='[set]\nsteps = 7\n"data.max_words" = 8\n'))
    drawn(book, lambda values, seed: SweepScore(values["temperature"]))
    (best,) = book.winners()
    name, card = winner_card(book.sweep, best)
    assert (
        name == "little-heat"
        and "chosen by 50.00 ± 0.00 on dev validation over seeds 1, 2" in card["preset"]
    )
    assert card["preset"].endswith(f", started from {book.sweep.card.base}")
    path = tmp_path / f"{name}.toml"
    path.write_text(toml_tables(card))
    found = read_recipe(str(path), developing.catalogue)[1]
    assert found == convert(card, RecipeCard, where="winner")
    asked = {"temperature": 0.5, "steps": 7, "data.max_words": 8}
    wanted = read_recipe("little", developing.catalogue, params=asked)[1]
    assert (found.training, found.data, found.params) == (
        wanted.training,
        wanted.data,
        wanted.params,
    )


def test_a_sweep_trains_each_setting_once_and_finds_runs_of_before(sweep, trained):
    local = CARRIERS.load_at("local")
    book = SweepState(sweep())
    local(book, "local", 1, TrialCallbacks())
    ran = trained()
    assert ran == [
        f"little{value}/seed{seed}" for value in ("", "+temperature=0.5") for seed in (1, 2)
    ]
    assert all(row.is_complete for row in book.rows)
    again = SweepState(sweep(("[0.05, 0.5]", "[0.5, 0.05]")))
    local(again, "local", 1, TrialCallbacks())
    assert trained() == ran and scores(again) == scores(book)
    measured = SweepState(sweep(more='metric = "pearson.all"'))
    local(measured, "local", 1, TrialCallbacks())
    assert trained() == ran and scores(measured) != scores(book)
    with pytest.raises(UnknownName, match="mean 'pearson.all'") as caught:
        local(SweepState(sweep(more='metric = "pearson"')), "local", 1, TrialCallbacks())
    assert (caught.value.kind, caught.value.name) == ("metric", "pearson")


def test_what_fails_is_noted_and_the_others_go_on(sweep, monkeypatch):
    def carried_out(plan: TrainPlan, **options: Any) -> Any:
        if plan.card.params["temperature"] == 0.5:
            raise TrainingError("temperature 0.5 is too warm")
        return run_training(plan, **options)

    monkeypatch.setattr("stsbench.studies.trials.run_training", carried_out)
    book = SweepState(sweep(("[0.05, 0.5]", "[0.5, 0.05]")))
    CARRIERS.load_at("local")(book, "local", 1, TrialCallbacks())
    failed, fine = book.rows
    assert all("too warm" in one.failure for one in failed.scores.values()) and fine.is_complete
    assert book.winners() == [fine]


def test_nothing_is_begun_after_the_time(sweep):
    book = SweepState(sweep(more="[budget]\nhours = 1e-12\n"))
    CARRIERS.load_at("local")(book, "local", 1, TrialCallbacks())
    assert book.rows == [] and not (book.sweep.folder / JOURNAL_FILE).exists()


def test_halving_stops_the_weak_and_tells_their_last_score(sweep):
    halving = "[halving]\nfirst_step = 4\nfactor = 2\n"
    book = SweepState(sweep(("[0.05, 0.5]", "[6.0, 0.05, 5.0]"), ("[1, 2]", "[1]"), more=halving))
    CARRIERS.load_at("local")(book, "local", 1, TrialCallbacks())
    early = [row for row in book.rows if any(one.stopped_early for one in row.scores.values())]
    assert 1 <= len(early) < 3 and all(
        row.seed_mean is not None and not row.is_complete for row in early
    )
    assert all(read_unfinished_runs(row.encoder) for row in early) and len(book.winners()) == 1


def test_what_was_tried_is_a_study_of_optuna_s(sweep):
    book = SweepState(sweep())
    drawn(
        book,
        lambda values, seed: SweepScore(
            values["temperature"] if values["temperature"] < 0.5 else None
        ),
    )
    storage = JournalStorage(JournalFileBackend(str(book.sweep.folder / JOURNAL_FILE)))
    (study,) = optuna.get_all_study_summaries(storage)
    trials = optuna.load_study(study_name=study.study_name, storage=storage).trials
    assert [(one.params["temperature"], one.value) for one in trials] == [(0, 0.05), (1, None)]
