"""How a run's work is done: each task read once, each encoder's sentences embedded once, cells in their order."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stsbench.bench.cells import RunPart, RunSettings, plan_cells
from stsbench.bench.executor import local
from stsbench.bench.listener import Listener
from stsbench.bench.run import run
from stsbench.bench.work import Work
from stsbench.data.sources import load_split
from stsbench.results.record import Result
from tests.encoders.fakes import Plain
from tests.own_tasks import TASKS, outside_run, place, plan_of

__all__ = ["place"]

FIRST, SECOND = Plain("first", "first-1"), Plain("second", None)
BOTH = ("tests.bench.test_executor:FIRST", "tests.bench.test_executor:SECOND")
SEEDS = (0, 1, 2)


def settings_of(place: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> RunSettings:
    monkeypatch.setattr("tests.bench.test_executor.FIRST", Plain("first", "first-1"))
    monkeypatch.setattr("tests.bench.test_executor.SECOND", Plain("second", None))
    return plan_of(place, Plain(), monkeypatch, **{"encoders": BOTH, "seeds": SEEDS, **options})


@pytest.mark.parametrize("store", ["default", None])
def test_tasks_are_read_once_and_sentences_embedded_once(place, monkeypatch, store):
    reads: Counter[tuple[str, str]] = Counter()

    def counted(name: str, card: Any, split: str, **options: Any) -> Any:
        reads[name, split] += 1
        return load_split(name, card, split, **options)

    monkeypatch.setattr("stsbench.data.task.load_split", counted)
    scored: list[str] = []
    settings = settings_of(place, monkeypatch, store=store)
    results = list(run(settings, Listener(scoring=scored.append)))
    order = [(encoder, task, seed) for encoder in ("first", "second") for task in TASKS for seed in SEEDS]
    assert [(one.encoder, one.task, one.eval_seed) for one in results] == order
    assert scored == [task for _, task, _ in order]
    assert reads == {(task, "test"): 1 for task in TASKS}
    for encoder in (FIRST, SECOND):
        embedded = Counter(text for call in encoder.calls for text in call)
        assert len(embedded) == 92 and set(embedded.values()) == {1}
    # Only the first seed of a task embedded something.
    pets = [one for one in results if one.task == "pets" and one.encoder == "second"]
    assert [(one.run["encoded"], one.run["from_store"]) for one in pets] == [(60, 0), (0, 60), (0, 60)]


def test_what_a_seed_lacks_is_made_alone(place, monkeypatch):
    list(run(settings_of(place, monkeypatch, seeds=(0, 2)), Listener()))
    scored: list[str] = []
    settings = settings_of(place, monkeypatch, encoders=BOTH[:1])
    results = list(run(settings, Listener(scoring=scored.append)))
    assert scored == list(TASKS)
    assert [one.eval_seed for one in results] == [0, 1, 2] * 3
    assert FIRST.calls == []


def test_cells_carried_out_apart_make_the_same_results(place, monkeypatch):
    list(run(settings_of(place, monkeypatch, out=place / "whole"), Listener()))

    def scattered(work: Work, parts: Sequence[RunPart]) -> Iterator[Result]:
        for part in reversed(parts):
            for cell in reversed(part.cells):
                yield from local(work, [dataclasses.replace(part, cells=[cell])])

    settings = settings_of(place, monkeypatch, store=place / "another")
    assert len(list(run(settings, Listener(), executor=scattered))) == len(plan_cells(settings)) == 18
    assert outside_run(place / "results") == outside_run(place / "whole")


def test_a_bug_in_one_encoder_leaves_the_others_their_scores(place, monkeypatch):
    settings = settings_of(place, monkeypatch)

    def bug(sentences: Sequence[str]) -> Any:
        raise ZeroDivisionError("a bug of the user's")

    monkeypatch.setattr(FIRST, "encode", bug)
    told: list[str] = []
    listener = Listener(failed=lambda what, error: told.append(f"{what}: {error}"))
    assert {one.encoder for one in run(settings, listener)} == {"second"}
    assert told == ["first: a bug of the user's"]
    with pytest.raises(ZeroDivisionError):
        list(run(dataclasses.replace(settings, encoders=BOTH[:1]), Listener()))
