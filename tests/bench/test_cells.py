"""The work of a run as plain cells: their order, and that each can be carried out apart from the others."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from stsbench.bench.cells import Cell, RunSettings, plan_cells, task_of
from stsbench.cards.catalogue import Catalogue
from stsbench.encoders import loading
from stsbench.encoders.loading import each_seed
from stsbench.encoders.trained import TrainedRun
from stsbench.errors import EncoderError, UnknownName

SETTINGS = RunSettings(encoders=["minilm", "no-such"], tasks="mr,stsb", out=Path("results"), seeds=(3, 1, 3))


def test_cells_are_ordered_by_encoder_task_and_seed():
    found = [(cell.encoder, cell.task, cell.protocol, cell.seed) for cell in plan_cells(SETTINGS)]
    assert found == [
        (encoder, task, protocol, seed)
        for encoder in ("minilm", "no-such")
        for task, protocol in (("mr", "senteval"), ("stsb", "simcse"))
        for seed in (3, 1)
    ]


def test_a_cell_names_its_protocol_with_the_fields_that_were_replaced():
    settings = dataclasses.replace(SETTINGS, protocol="senteval(kfold=5,nhid=50),wmean")
    first, *_, last = plan_cells(settings)
    assert (first.protocol, last.protocol) == ("senteval(kfold=5,nhid=50)", "wmean")
    task = task_of(first, SETTINGS)
    assert (task.name, task.protocol["kfold"], task.protocol["nhid"]) == ("mr", 5, 50)


def test_cells_and_settings_can_be_sent_to_another_process():
    cells = plan_cells(SETTINGS)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        assert other.submit(plan_cells, SETTINGS).result() == cells
        task = other.submit(task_of, cells[0], SETTINGS).result()
    assert (task.name, task.asked) == (cells[0].task, cells[0].protocol)


def test_a_cell_is_plain_data():
    cell = plan_cells(SETTINGS)[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        cell.seed = 4  # type: ignore[misc]
    assert Cell(**json.loads(json.dumps(dataclasses.asdict(cell)))) == cell


def test_a_task_that_does_not_exist_is_no_cell():
    with pytest.raises(UnknownName, match="did you mean 'sts12'"):
        plan_cells(dataclasses.replace(SETTINGS, tasks="sts122"))


def test_a_trained_recipe_is_an_encoder_a_seed(monkeypatch):
    runs = {"mine": [0, 4], "mine@4": [4], "broken": []}

    def trained(name: str) -> list[TrainedRun]:
        if name == "broken":
            raise EncoderError("a record is broken")
        return [TrainedRun(folder=Path(), record=Record(seed), facts={}) for seed in runs.get(name, [])]  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "trained_runs", trained)
    assert each_seed("mine", Catalogue()) == ["mine@0", "mine@4"]
    assert each_seed("mine+pooling=cls", Catalogue()) == ["mine@0+pooling=cls", "mine@4+pooling=cls"]
    assert each_seed("mine@4", Catalogue()) == ["mine@4"]
    assert each_seed("minilm", Catalogue()) == ["minilm"]
    # What cannot be read fails when it is loaded, and alone.
    settings = dataclasses.replace(SETTINGS, encoders=["broken", "mine"], tasks="stsb", seeds=(0,))
    assert [cell.encoder for cell in plan_cells(settings)] == ["broken", "mine@0", "mine@4"]


@dataclasses.dataclass
class Record:
    seed: int
