"""Names of tasks and protocols; every wrong one is one line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from stsbench.bench.plan import RunPlan
from stsbench.bench.protocols import PlannedTask
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, EncoderError, ProtocolError, StsbenchError, UnknownName
from stsbench.encoders import load as loading
from stsbench.encoders.load import expand_recipe
from stsbench.encoders.runs import TrainedRun
from stsbench.results.record import digest_columns
from tests.core.cards import TASK, write

CATALOGUE = Catalogue()


def planned(
    tasks: str | list[str], catalogue: Catalogue = CATALOGUE, **given: Any
) -> list[PlannedTask]:
    return RunPlan(tasks=tasks, catalogue=catalogue, **given).planned_tasks


def protocols(tasks: str, protocol: str | list[str] | None = None) -> list[dict[str, object]]:
    return [dict(task.protocol) for task in planned(tasks, protocol=protocol)]


def test_the_first_protocol_of_each_evaluator_is_the_default():
    tasks = planned("sts12,mr")
    assert [(task.name, task.protocol["name"]) for task in tasks] == [
        ("sts12", "simcse"),
        ("mr", "senteval"),
    ]
    assert [(task.split, list(task.required_splits)) for task in tasks] == [
        ("test", ["test"]),
        ("all", ["all"]),
    ]


def test_each_evaluator_takes_the_protocol_it_knows():
    names = [p["name"] for p in protocols("sts12,mr,stsb", "wmean,logreg")]
    assert names == ["wmean", "logreg", "wmean"]
    assert protocols("sts12,mr", ["wmean", "logreg"]) == protocols("sts12,mr", " wmean , logreg ")
    assert protocols("sts12", "") == protocols("sts12", None) == protocols("sts12", "simcse")


def test_fields_of_a_protocol_can_be_replaced():
    (plain,), (changed,) = protocols("mr"), protocols("mr", "senteval(kfold=5)")
    assert plain["kfold"] == 10
    assert changed == {**plain, "kfold": 5}
    assert protocols("mr", "senteval( kfold = 5 , nhid=50)")[0] == {**plain, "kfold": 5, "nhid": 50}
    assert protocols("mr", "senteval(dropout=0)")[0]["dropout"] == 0.0
    assert protocols("mr", "senteval(weight_decays=[0.1, 0.2])")[0]["weight_decays"] == [0.1, 0.2]
    assert protocols("mr", "senteval(optimiser=rmsprop)")[0]["optimiser"] == "rmsprop"
    both = protocols("sts12,mr", "simcse(metric=pearson),senteval(kfold=5,nhid=50)")
    assert [p.get("metric", p.get("nhid")) for p in both] == ["pearson", 50]


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        (
            "simcs",
            r"unknown protocol 'simcs'; did you mean 'simcse'\?; these tasks have simcse, wmean, mean, semeval",
        ),
        (
            "senteval",
            "unknown protocol 'senteval'; .*these tasks have simcse, wmean, mean, semeval",
        ),
        ("simcse,nope", "unknown protocol 'nope'; these tasks have simcse"),
        ("simcse(metrc=pearson)", "protocol 'simcse' has no field 'metrc'; did you mean 'metric'?"),
        ("simcse(name=mine)", "protocol 'simcse' has no field 'name'"),
        (
            "simcse(metric=pearsn)",
            "protocol 'simcse': metric: 'pearsn' is not one of spearman, pearson, kendall; did",
        ),
        ("simcse(metric=3)", "protocol 'simcse': metric: expected text, not 3"),
        (
            "simcse(aggregation=meen)",
            "protocol 'simcse': aggregation: 'meen' is not one of all, mean, wmean; did you mean",
        ),
        ("simcse(aggregation=1)", "protocol 'simcse': aggregation: expected text, not 1"),
        ("simcse(metric)", r"protocol 'simcse\(metric\)': cannot be read"),
        ("simcse(metric=pearson,metric=spearman)", "protocol 'simcse.*': cannot be read"),
        ("simcse(metric=pearson", "protocol 'simcse.*': give a name, or name"),
        ("sim cse", "protocol 'sim cse': give a name, or name"),
        (
            "simcse,wmean",
            "sts12 is scored by one protocol at a time, not by simcse and wmean; run once for each",
        ),
        ("simcse,simcse(metric=pearson)", "protocol 'simcse': is named twice; run once for each"),
        ("simcse(x=" + "9" * 5000 + ")", "protocol 'simcse.*': cannot be read"),
        ("senteval(kfold=five)", "protocol 'senteval': kfold: expected a whole number, not 'five'"),
        ("senteval(kfold=5.0)", "protocol 'senteval': kfold: expected a whole number, not 5.0"),
        ("senteval(kfold=true)", "protocol 'senteval': kfold: expected a whole number, not True"),
        ("senteval(kfold=1)", "protocol 'senteval': kfold: expected a whole number >= 2, not 1"),
        (
            "senteval(loss=sun)",
            "protocol 'senteval': loss: 'sun' is not one of mean, sum; did you mean 'sum'?",
        ),
        (
            "senteval(weight_decays=0.1)",
            "protocol 'senteval': weight_decays: expected a list, not 0.1",
        ),
    ],
)
def test_a_wrong_protocol_is_one_line(protocol, message):
    with pytest.raises(StsbenchError, match=f"^{message}") as caught:
        planned("mr" if protocol.startswith("senteval(") else "sts12", protocol=protocol)
    assert "\n" not in str(caught.value)


def test_names_of_tasks_and_suites_each_once_in_order():
    tasks = planned(["stsb", "sts,mr"])
    assert [task.name for task in tasks] == [
        "stsb",
        "sts12",
        "sts13",
        "sts14",
        "sts15",
        "sts16",
        "sickr",
        "mr",
    ]


@pytest.mark.parametrize("tasks", ["", " , ", []])
def test_no_task_at_all_is_refused(tasks):
    with pytest.raises(StsbenchError, match="^no task is named"):
        planned(tasks)


@pytest.mark.parametrize(
    ("tasks", "error", "message"),
    [
        (
            "stsb,sts122",
            UnknownName,
            "unknown task or suite 'sts122'; did you mean 'sts12'",
        ),
        ("mine", UnknownName, "unknown task in suite mine: 'sts122'; did you mean 'sts12'"),
        ("folded", CardError, r"task folded: \[options\]: unknown key 'folds'"),
        ("odd", CardError, "task odd: unknown evaluator 'stss'; did you mean 'sts'"),
    ],
)
def test_wrong_names_of_tasks_and_on_their_cards_are_told(tmp_path, tasks, error, message):
    write(tmp_path / "tasks/suites.toml", '[mine]\nname = "Mine"\ntasks = ["stsb", "sts122"]')
    write(tmp_path / "tasks/folded.toml", TASK + "[options]\nfolds = 3\n")
    write(tmp_path / "tasks/odd.toml", TASK.replace('"sts"', '"stss"'))
    with pytest.raises(error, match=f"^{message}"):
        planned(tasks, Catalogue([tmp_path]))


def test_several_protocols_are_no_protocol():
    with pytest.raises(ProtocolError):
        planned("stsb", protocol="simcse,mean")


def test_a_job_loads_the_splits_it_needs_and_knows_their_hash():
    sts, probe = planned("quickstart-en,quickstart-probe")
    sts.load()
    probe.load()
    assert list(sts.splits) == ["test"] and sts.digest == sts.splits["test"].digest
    assert len(sts.texts()) == 600
    digests = [split.digest for split in probe.splits.values()]
    assert len(digests) == 2 and probe.digest == digest_columns({"splits": digests})


def test_another_split_is_for_tasks_that_are_scored_on_one():
    assert [task.split for task in planned("stsb", split="validation")] == ["validation"]
    assert [task.split for task in planned("trec,mr")] == ["test", "all"]
    for task in ("trec", "mr"):
        # Its score would be that of the usual split, under a wrong name.
        with pytest.raises(
            ProtocolError,
            match=f"^split .train.: {task} is trained and scored on splits of its own",
        ):
            planned(task, split="train")


SETTINGS = RunPlan(
    encoders=["minilm", "no-such"], tasks="mr,stsb", results_folder=Path("results"), seeds=(3, 1, 3)
)


def test_cells_are_ordered_by_encoder_task_and_seed():
    found = [(cell.encoder, cell.task, cell.protocol, cell.seed) for cell in SETTINGS.cells]
    assert found == [
        (encoder, task, protocol, seed)
        for encoder in ("minilm", "no-such")
        for task, protocol in (("mr", "senteval"), ("stsb", "simcse"))
        for seed in (3, 1)
    ]
    # A cell names its protocol with the fields that were replaced.
    settings = dataclasses.replace(SETTINGS, protocol="senteval(kfold=5,nhid=50),wmean")
    first, *_, last = settings.cells
    assert (first.protocol, last.protocol) == ("senteval(kfold=5,nhid=50)", "wmean")
    assert settings.planned_tasks[0].protocol["kfold"] == 5


def test_a_trained_recipe_is_an_encoder_a_seed(monkeypatch):
    runs = {"mine": [0, 4], "mine@4": [4], "broken": []}

    def trained(name: str) -> list[TrainedRun]:
        if name == "broken":
            raise EncoderError("a record is broken")
        return [TrainedRun(folder=Path(), recipe=name, seed=seed) for seed in runs.get(name, [])]

    monkeypatch.setattr(loading, "read_trained_runs", trained)
    assert expand_recipe("mine", Catalogue()) == ["mine@0", "mine@4"]
    assert expand_recipe("mine+pooling=cls", Catalogue()) == [
        "mine@0+pooling=cls",
        "mine@4+pooling=cls",
    ]
    assert expand_recipe("mine@4", Catalogue()) == ["mine@4"]
    assert expand_recipe("minilm", Catalogue()) == ["minilm"]
    # What cannot be read fails when it is loaded, and alone.
    settings = dataclasses.replace(SETTINGS, encoders=["broken", "mine"], tasks="stsb", seeds=(0,))
    assert [cell.encoder for cell in settings.cells] == ["broken", "mine@0", "mine@4"]
