from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

import stsbench
from stsbench.bench import Listener, Plan, run
from stsbench.cards import Catalogue
from stsbench.encoders import engine
from stsbench.encoders.seams import Encoder
from stsbench.errors import EncoderError, OutputError, SourceError, StsbenchError, UnknownName
from stsbench.results import Result, items_path, read_items, read_results, to_json
from tests.encoders.fakes import Neighbourly, Plain

CARD = """
name = "{task}"
evaluator = "sts"
languages = ["en"]
paper = "none"
license = "none"

[splits.test]
n = {n}

[splits.validation]
n = 4

[local]
reader = "pair_table"
params = {{sentence1 = 0, sentence2 = 1, gold = 2}}

[local.files]
test = [{{path = "{task}.tsv"}}]
validation = [{{path = "{task}-validation.tsv"}}]
"""
TASKS = {"pets": 30, "plants": 20, "stones": 12}
ENCODER: Encoder = Plain()
"""What ``tests.test_bench:ENCODER`` is; a test puts its own here."""


def write_data(folder: Path, task: str, n: int, *, shift: int = 0) -> None:
    # Every task has sentence 0 and its like: they are embedded once.
    lines = [f"{'word ' * (i % 5)}{i}\t{task} {'and ' * (i % 7)}{i}\t{(i * 7 + shift) % 11}\n" for i in range(n)]
    (folder / f"{task}.tsv").write_text("".join(lines))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cards, data and an empty cache of three small tasks of one's own."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    monkeypatch.setattr(engine, "TOKEN_BUDGET", 40)
    monkeypatch.setattr(engine, "CHUNK", 16)
    (tmp_path / "cards" / "tasks").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    for task, n in TASKS.items():
        (tmp_path / "cards" / "tasks" / f"{task}.toml").write_text(CARD.format(task=task, n=n))
        write_data(tmp_path / "data", task, n)
        write_data(tmp_path / "data", f"{task}-validation", 4)
    (tmp_path / "cards" / "tasks" / "suites.toml").write_text('[mine]\nname = "Mine"\ntasks = ["plants", "pets"]\n')
    return tmp_path


def evaluate(place: Path, encoder: Any, tasks: str | Sequence[str] = "pets,plants", **options: Any) -> list[Result]:
    options = {"data": place / "data", "catalogue": Catalogue([place / "cards"]), **options}
    return list(stsbench.evaluate(encoder, tasks, **options))


def plan_of(place: Path, encoder: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Plan:
    monkeypatch.setattr("tests.test_bench.ENCODER", encoder)
    fields: dict[str, Any] = {
        "encoders": ["tests.test_bench:ENCODER"],
        "tasks": "pets,plants,stones",
        "out": place / "results",
        "data": place / "data",
        "catalogue": Catalogue([place / "cards"]),
    }
    return Plan(**{**fields, **options})


def written(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files of a results folder: bytes, and when they were written."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def outside_run(folder: Path) -> dict[str, Any]:
    """All files of a results folder without what may differ between two runs."""
    contents: dict[str, Any] = {}
    for name, (content, _) in written(folder).items():
        if name.endswith(".json"):
            fields = json.loads(content)
            del fields["run"]
            contents[name] = json.dumps(fields)
        else:
            contents[name] = content
    return contents


# --- evaluate ---


def test_results_come_in_the_order_of_the_tasks(place):
    encoder = Plain()
    results = evaluate(place, encoder, ["stones", "mine", "pets"])
    assert [result.task for result in results] == ["stones", "plants", "pets"]
    assert [result.n for result in results] == [12, 20, 30]
    first = results[0]
    assert (first.encoder, first.fingerprint, first.split) == ("plain", "plain-1", "test")
    assert first.encoder_card is None
    assert first.protocol["name"] == "simcse"
    assert set(first.per_item) == {"subset", "gold", "similarity"}
    assert first.score == first.scores["spearman.all"]
    assert first.run["encoded"] == 24
    assert results[2].run["source"] == "local"
    # Sentences are embedded before the first score, and each once.
    texts = [text for call in encoder.calls for text in call]
    assert len(texts) == len(set(texts)) == 30 + 62


def test_the_score_is_the_evaluators(place):
    (result,) = evaluate(place, Plain(), "stones")
    task = stsbench.load_task("stones", data=place / "data", catalogue=Catalogue([place / "cards"]))
    split: Any = task.load("test")
    a, b = (Plain().encode(side).astype(np.float64) for side in (split.sentences1, split.sentences2))
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(result.per_item["similarity"], cosines, rtol=1e-12)
    assert result.score == pytest.approx(spearmanr(cosines, split.gold).statistic, abs=1e-12)


def test_another_split_and_protocol(place):
    (result,) = evaluate(place, Plain(), "pets", split="validation", protocol="semeval")
    assert (result.split, result.n, result.protocol["metric"]) == ("validation", 4, "pearson")


def test_tasks_and_protocols_that_do_not_exist(place):
    encoder = Plain()
    for wrong in ({"tasks": "pet"}, {"protocol": "simsce"}, {"split": "tset"}):
        with pytest.raises(UnknownName, match="did you mean"):
            evaluate(place, encoder, **wrong)
    assert encoder.calls == []


def test_missing_data_stops_or_is_told(place):
    (place / "data" / "pets.tsv").unlink()
    told: list[tuple[str, str]] = []
    listener = Listener(failed=lambda what, error: told.append((what, str(error))))
    encoder = Plain()
    with pytest.raises(SourceError, match="no data for pets"):
        evaluate(place, encoder)
    assert encoder.calls == []
    results = evaluate(place, encoder, on_error="skip", listener=listener)
    assert [result.task for result in results] == ["plants"]
    assert [what for what, _ in told] == ["pets"]
    assert "no data for pets (test)" in told[0][1]


class ConstantOn(Plain):
    """Gives every sentence of a task the same embedding, so that it cannot be scored."""

    def encode(self, sentences: Sequence[str]) -> Any:
        rows = super().encode(sentences)
        rows[[text.startswith("plants") or text.split()[-1] in map(str, range(20)) for text in sentences]] = 1
        return rows


def test_a_task_that_fails_stops_or_is_told(place):
    told: list[str] = []
    listener = Listener(failed=lambda what, error: told.append(f"{what}: {error}"))
    with pytest.raises(EncoderError, match="the same embedding"):
        evaluate(place, ConstantOn(), "plants,pets")
    results = evaluate(place, ConstantOn(), "plants,pets", on_error="skip", listener=listener)
    assert [result.task for result in results] == ["pets"]
    assert len(told) == 1
    assert told[0].startswith("plain on plants: the encoder gives every one of 40 sentences the same embedding")


def test_the_listener_is_told_how_it_goes(place):
    encoding: list[tuple[int, int]] = []
    scoring: list[str] = []
    listener = Listener(encoding=lambda done, total: encoding.append((done, total)), scoring=scoring.append)
    evaluate(place, Plain(), listener=listener)
    assert scoring == ["pets", "plants"]
    assert encoding[0][0] == 0
    assert encoding[-1][0] == encoding[-1][1]


# --- the store ---


def test_stored_embeddings_are_used_again(place):
    evaluate(place, Plain())
    encoder = Plain()
    results = evaluate(place, encoder, "pets,plants,stones")
    assert sum(map(len, encoder.calls)) == 12
    assert [(r.run["encoded"], r.run["from_store"]) for r in results] == [(0, 60), (0, 40), (12, 12)]
    evaluate(place, encoder, "stones", store=place / "elsewhere")
    assert sum(map(len, encoder.calls)) == 12 + 24
    assert any((place / "elsewhere").rglob("*.npy"))


def test_a_protocol_or_seed_encodes_nothing_again(place):
    evaluate(place, Plain())
    encoder = Plain()
    evaluate(place, encoder, protocol="semeval", seed=3)
    assert encoder.calls == []


def test_without_a_fingerprint_nothing_is_stored(place):
    encoder = Plain(fingerprint=None)
    for _ in range(2):
        (result,) = evaluate(place, encoder, "stones")
        assert (result.fingerprint, result.run["encoded"]) == (None, 24)
    assert sum(map(len, encoder.calls)) == 48
    assert not (place / "cache").exists()


def test_without_a_store_nothing_is_written(place):
    evaluate(place, Plain(), store=None)
    assert not (place / "cache").exists()


@pytest.mark.parametrize(
    "fingerprints", [("my-encoder-" * 5 + "1", "my-encoder-" * 5 + "2"), ("a/../b", "b"), ("", ".")]
)
def test_any_text_may_be_a_fingerprint(place, fingerprints):
    for fingerprint in fingerprints:
        encoder = Plain(fingerprint=fingerprint)
        evaluate(place, encoder, "stones")
        assert sum(map(len, encoder.calls)) == 24
    folders = [path for path in (place / "cache").rglob("*") if path.is_dir() and list(path.glob("*.npy"))]
    assert len(folders) == 2
    assert {path.parent for path in folders} == {place / "cache" / "store"}


# --- run: results are kept and not made again ---


def test_a_second_run_writes_and_encodes_nothing(place, monkeypatch):
    first = list(run(plan_of(place, Plain(), monkeypatch), Listener()))
    before = written(place / "results")
    assert len(before) == 6
    encoder = Plain()
    (place / "cache").rename(place / "gone")
    second = list(run(plan_of(place, encoder, monkeypatch), Listener()))
    assert written(place / "results") == before
    assert encoder.calls == []
    assert [to_json(result) for result in second] == [to_json(result) for result in first]


def test_items_are_read_back(place, monkeypatch):
    for result in run(plan_of(place, Plain(), monkeypatch), Listener()):
        path = result.path_in(place / "results")
        items = read_items(path)
        assert items_path(path).is_file()
        assert items["similarity"].tobytes() == result.per_item["similarity"].tobytes()


def test_fresh_scores_again(place, monkeypatch):
    list(run(plan_of(place, Plain(), monkeypatch), Listener()))
    before, times = outside_run(place / "results"), written(place / "results")
    list(run(plan_of(place, Plain(), monkeypatch, fresh=True), Listener()))
    assert outside_run(place / "results") == before
    assert all(times[name][1] != when for name, (_, when) in written(place / "results").items())


def scored_again(place: Path, monkeypatch: pytest.MonkeyPatch, encoder: Encoder | None = None) -> list[str]:
    """The tasks that a run scores, when the results folder holds some."""
    scored: list[str] = []
    plan = plan_of(place, encoder or Plain(), monkeypatch)
    assert len(list(run(plan, Listener(scoring=scored.append)))) == 3
    return scored


def test_changed_data_or_cards_are_scored_again(place, monkeypatch):
    assert scored_again(place, monkeypatch) == list(TASKS)
    assert scored_again(place, monkeypatch) == []
    write_data(place / "data", "plants", 20, shift=3)
    assert scored_again(place, monkeypatch) == ["plants"]
    with (place / "cards" / "tasks" / "pets.toml").open("a") as card:
        card.write("# a remark\n")
    assert scored_again(place, monkeypatch) == ["pets"]
    assert scored_again(place, monkeypatch) == []
    assert len(read_results(place / "results").results) == 3


def test_another_encoder_of_the_same_name_is_scored_again(place, monkeypatch):
    scored_again(place, monkeypatch)
    assert scored_again(place, monkeypatch, Plain(fingerprint="plain-2")) == list(TASKS)
    assert len(read_results(place / "results").results) == 6


def test_without_a_fingerprint_every_run_scores_again(place, monkeypatch):
    for _ in range(2):
        assert scored_again(place, monkeypatch, Plain(fingerprint=None)) == list(TASKS)
    assert len(read_results(place / "results").results) == 3


def test_a_broken_result_file_is_scored_again(place, monkeypatch):
    scored_again(place, monkeypatch)
    before = outside_run(place / "results")
    next((place / "results").rglob("stones.*.json")).write_text("{")
    assert scored_again(place, monkeypatch) == ["stones"]
    assert outside_run(place / "results") == before


def test_two_seeds(place, monkeypatch):
    encoder = Plain()
    results = list(run(plan_of(place, encoder, monkeypatch, seeds=(0, 1), tasks="pets"), Listener()))
    assert [result.eval_seed for result in results] == [0, 1]
    assert results[0].score == results[1].score
    assert results[0].interval != results[1].interval
    assert results[1].run["encoded"] == 0
    assert len(written(place / "results")) == 4


def test_other_encoders_go_on_where_one_fails(place, monkeypatch):
    told: list[str] = []
    listener = Listener(failed=lambda what, error: told.append(what))
    plan = plan_of(
        place, Plain(), monkeypatch, encoders=["no-such-encoder", "tests.test_bench:ENCODER"], tasks="pets,stones"
    )
    assert [result.task for result in run(plan, listener)] == ["pets", "stones"]
    assert told == ["no-such-encoder"]


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
    with pytest.raises(OutputError, match="cannot be written"):
        list(run(plan_of(place, encoder, monkeypatch), Listener()))
    assert encoder.calls == []


# --- interrupted and resumed ---


@pytest.mark.parametrize("store", ["default", None])
@pytest.mark.parametrize("stop", [0, 1, 4, "pets", "plants", "stones"])
def test_interrupted_and_resumed_gives_the_same_bytes(place, monkeypatch, stop, store):
    whole = plan_of(place, Neighbourly(), monkeypatch, out=place / "whole", store=place / "whole store")
    list(run(whole, Listener()))

    def interrupt(task: str) -> None:
        if task == stop:
            raise KeyboardInterrupt

    first = Neighbourly(stop_after=stop if isinstance(stop, int) else -1)
    with pytest.raises(KeyboardInterrupt):
        list(run(plan_of(place, first, monkeypatch, store=store), Listener(scoring=interrupt)))
    done = {"plants": 1, "stones": 2}.get(str(stop), 0)
    assert len(read_results(place / "results").results) == done
    second = Neighbourly()
    results = list(run(plan_of(place, second, monkeypatch, store=store), Listener()))
    assert [result.task for result in results] == list(TASKS)
    assert outside_run(place / "results") == outside_run(place / "whole")
    if store:
        assert not set(first.embedded) & set(second.embedded)


def test_a_failed_write_is_told_once_and_loses_nothing_else(place, monkeypatch):
    def full(path: Path, content: bytes) -> Path:
        if "plants" in path.name:
            raise OutputError(f"{path.parent}: the disk is full; free some space and run again")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    with monkeypatch.context() as patch:
        patch.setattr("stsbench.results.write_whole", full)
        with pytest.raises(StsbenchError, match="the disk is full"):
            list(run(plan_of(place, Plain(), monkeypatch), Listener()))
    assert [result.task for result in read_results(place / "results").results] == ["pets"]
    assert scored_again(place, monkeypatch) == ["plants", "stones"]
