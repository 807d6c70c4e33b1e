"""Clean scores in a run: beside scores that stay as they are, of cells that are known too, and nothing embedded again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stsbench.bench.cells import TextLeftOut
from stsbench.bench.listener import Listener
from stsbench.bench.run import run
from stsbench.data.corpora.corpus import Corpus
from stsbench.data.corpora.load import load_corpus
from stsbench.errors import StsbenchError
from stsbench.results.record import items_path
from tests.encoders.fakes import Plain
from tests.own_tasks import outside_run, place, plan_of, written

__all__ = ["place"]


@pytest.fixture
def text(place):
    """Training text that holds the first five sentences of the pets' pairs, in capitals, and all of the stones'."""
    rows = [(place / "data" / f"{task}.tsv").read_text().splitlines()[:n] for task, n in (("pets", 5), ("stones", 12))]
    sentences = [line.split("\t")[1].upper() for one in rows for line in one]
    (place / "seen.txt").write_text("\n".join(sentences) + "\n")
    return str(place / "seen.txt")


def test_known_cells_get_it_and_nothing_else_changes(place, monkeypatch, text):
    plain = list(run(plan_of(place, Plain(), monkeypatch), Listener()))
    before, encoder = outside_run(place / "results"), Plain()
    results = list(run(plan_of(place, encoder, monkeypatch, clean=TextLeftOut([text])), Listener()))
    assert encoder.calls == [] and [one.score for one in results] == [one.score for one in plain]
    assert {one.task: one.clean[0].n for one in results} == {"pets": 25, "plants": 20, "stones": 0}
    pets, plants, stones = (one.clean[0] for one in results)
    assert pets.corpora == ["seen.txt"] and pets.score != results[0].score
    assert (plants.score, plants.interval) == (results[1].score, results[1].interval)
    assert stones.score is None and stones.interval is None
    after = outside_run(place / "results")
    for name, content in before.items():
        fields = after[name]
        if name.endswith(".json"):
            fields = json.loads(fields)
            assert fields.pop("clean")
            fields = json.dumps(fields)
        assert fields == content
    # The same again writes nothing, and without --clean it stays.
    last = written(place / "results")
    list(run(plan_of(place, Plain(), monkeypatch, clean=TextLeftOut([text])), Listener()))
    list(run(plan_of(place, Plain(), monkeypatch), Listener()))
    assert written(place / "results") == last


def test_a_first_run_makes_both(place, monkeypatch, text):
    settings = plan_of(place, Plain(), monkeypatch, tasks="pets", clean=TextLeftOut([text]))
    (result,) = run(settings, Listener())
    kept = np.arange(30) >= 5
    assert result.clean[0].n == kept.sum() and items_path(result.path_in(settings.out)).is_file()


def test_what_cannot_be_had_is_told_and_the_score_stays(place, monkeypatch, text):
    with pytest.raises(StsbenchError, match="'tests.own_tasks:ENCODER' is of no recipe|'plain' is of no recipe"):
        list(run(plan_of(place, Plain(), monkeypatch, clean=TextLeftOut(["own"])), Listener()))
    list(run(plan_of(place, Plain(), monkeypatch, tasks="pets"), Listener()))
    for path in (place / "results").rglob("*.parquet"):
        path.unlink()
    failed: list[str] = []
    listener = Listener(failed=lambda what, error: failed.append(f"{what}: {error}"))
    (result,) = run(plan_of(place, Plain(), monkeypatch, tasks="pets", clean=TextLeftOut([text])), listener)
    assert result.clean == []
    assert "run: stsbench run --fresh" in failed[0]


def test_own_is_the_text_that_the_recipe_of_the_name_has(place, monkeypatch, text):
    asked: list[str] = []

    def loaded(name: str, **options: Any) -> Corpus:
        asked.append(name)
        return load_corpus(text)

    monkeypatch.setattr("stsbench.bench.clean.load_corpus", loaded)
    called = {"tests.own_tasks:ENCODER": "sup-simcse-bert-base"}
    left_out = TextLeftOut(["own"])
    (result,) = run(plan_of(place, Plain(), monkeypatch, tasks="pets", called=called, clean=left_out), Listener())
    assert asked == ["nli_triplets"] and result.clean[0].corpora == ["nli_triplets"] and result.clean[0].n == 25
