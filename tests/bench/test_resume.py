from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import run
from stsbench.core.errors import OutputError
from stsbench.encoders.base import Encoder
from stsbench.results.folder import read_states, result_to_json
from tests.encoders.fakes import Neighbourly, Plain
from tests.own_tasks import TASKS, outside_run, place, plan_of, write_data, written

__all__ = ["place"]

# --- run: results are kept and not made again ---


def test_a_second_run_writes_and_encodes_nothing(place, monkeypatch):
    first = list(run(plan_of(place, Plain(), monkeypatch), RunCallbacks()))
    before = written(place / "results")
    assert len(before) == 6
    encoder = Plain()
    (place / "cache").rename(place / "gone")
    second = list(run(plan_of(place, encoder, monkeypatch), RunCallbacks()))
    assert written(place / "results") == before
    assert encoder.calls == []
    assert [result_to_json(result) for result in second] == [
        result_to_json(result) for result in first
    ]


def test_fresh_scores_again(place, monkeypatch):
    list(run(plan_of(place, Plain(), monkeypatch), RunCallbacks()))
    before, times = outside_run(place / "results"), written(place / "results")
    list(run(plan_of(place, Plain(), monkeypatch, fresh=True), RunCallbacks()))
    assert outside_run(place / "results") == before
    assert all(times[name][1] != when for name, (_, when) in written(place / "results").items())


def scored_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, encoder: Encoder | None = None
) -> list[str]:
    """The tasks that a run scores, when the results folder holds some."""
    scored: list[str] = []
    plan = plan_of(place, encoder or Plain(), monkeypatch)
    assert len(list(run(plan, RunCallbacks(on_scoring=scored.append)))) == 3
    return scored


def test_what_changed_is_scored_again_and_nothing_else(place, monkeypatch):
    assert scored_again(place, monkeypatch) == list(TASKS)
    assert scored_again(place, monkeypatch) == []
    write_data(place / "data", "plants", 20, shift=3)
    assert scored_again(place, monkeypatch) == ["plants"]
    with (place / "cards" / "tasks" / "pets.toml").open("a") as card:
        card.write("# a remark\n")
    assert scored_again(place, monkeypatch) == []
    before = outside_run(place / "results")
    next((place / "results").rglob("stones.*.json")).write_text("{")
    assert scored_again(place, monkeypatch) == ["stones"]
    assert outside_run(place / "results") == before
    assert len(read_states(place / "results").results) == 3
    # Another encoder of the same name; and one without a fingerprint, every time.
    for fingerprint in ("plain-2", None, None):
        assert scored_again(place, monkeypatch, Plain(fingerprint=fingerprint)) == list(TASKS)
    assert len(read_states(place / "results").results) == 9


def test_what_a_killed_run_left_half_written_is_swept(place, monkeypatch):
    folder = place / "results" / "plain"
    folder.mkdir(parents=True)
    for name, age in (("old.json.1.partial", 2 * 24 * 3600), ("new.json.2.partial", 0)):
        (folder / name).write_text("{")
        os.utime(folder / name, (time.time() - age,) * 2)
    scored_again(place, monkeypatch)
    assert [path.name for path in folder.glob("*.partial")] == ["new.json.2.partial"]


def test_results_that_cannot_be_written_stop_before_the_work(place, monkeypatch):
    (place / "results").write_text("in the way")
    encoder = Plain()
    with pytest.raises(OutputError, match="results: cannot be written: .*; pass `results=DIR`"):
        list(run(plan_of(place, encoder, monkeypatch), RunCallbacks()))
    assert encoder.calls == []


# --- interrupted and resumed ---


@pytest.mark.parametrize("store", ["default", None])
@pytest.mark.parametrize("stop", [0, 1, 4, "pets", "plants", "stones"])
def test_interrupted_and_resumed_gives_the_same_bytes(place, monkeypatch, stop, store):
    whole = plan_of(
        place,
        Neighbourly(),
        monkeypatch,
        results_folder=place / "whole",
        store=place / "whole store",
    )
    list(run(whole, RunCallbacks()))

    def interrupt(task: str) -> None:
        if task == stop:
            raise KeyboardInterrupt

    first = Neighbourly(stop_after=stop if isinstance(stop, int) else -1)
    with pytest.raises(KeyboardInterrupt):
        list(
            run(plan_of(place, first, monkeypatch, store=store), RunCallbacks(on_scoring=interrupt))
        )
    done = {"plants": 1, "stones": 2}.get(str(stop), 0)
    assert len(read_states(place / "results").results) == done
    second = Neighbourly()
    results = list(run(plan_of(place, second, monkeypatch, store=store), RunCallbacks()))
    assert [result.task for result in results] == list(TASKS)
    assert outside_run(place / "results") == outside_run(place / "whole")
    if store:
        assert not set(first.embedded) & set(second.embedded)


def test_a_failed_write_is_told_once_and_loses_nothing_else(place, monkeypatch):
    def full(path: Path, content: bytes) -> Path:
        if "plants" in path.name:
            raise OutputError("full")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    with monkeypatch.context() as patch:
        patch.setattr("stsbench.results.folder.write_atomically", full)
        with pytest.raises(OutputError, match="^full$"):
            list(run(plan_of(place, Plain(), monkeypatch), RunCallbacks()))
    assert [result.task for result in read_states(place / "results").results] == ["pets"]
    assert scored_again(place, monkeypatch) == ["plants", "stones"]
