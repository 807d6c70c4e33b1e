"""What workers do, one after the other in this process: shares of an encoder's batches, and scores on them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.bench.cells import RunSettings
from stsbench.bench.cluster.worker import TELL_SECONDS, Cause, Report, Scoring, Tell, caught, embed, score
from stsbench.bench.listener import Listener
from stsbench.bench.run import cells_to_do, run
from stsbench.bench.work import Work
from stsbench.encoders.engine import embed as engine
from stsbench.encoders.engine.drift import FILE
from stsbench.encoders.engine.embed import BatchShare
from stsbench.encoders.engine.store import Keys
from stsbench.errors import EncoderError
from stsbench.results.folder import write_result
from tests.encoders.fakes import Neighbourly, Plain
from tests.own_tasks import outside_run, place, plan_of

__all__ = ["place"]


def tell(reports: list[Report] | None = None) -> Tell:
    return Tell(1, (reports if reports is not None else []).append)


def scoring(settings: RunSettings, store: Path, work: Work, **fields: Any) -> Scoring:
    seeds = {(task.name, task.asked): [0] for task in work.tasks.values()}
    return Scoring(seeds=seeds, embedded=True, store=store, catalogue=settings.catalogue, data=settings.data, **fields)


@pytest.mark.parametrize("of", [1, 2, 5])
def test_shares_together_make_the_bytes_of_one_run(place, monkeypatch, of):
    encoder = Neighbourly()
    settings = plan_of(place, encoder, monkeypatch)
    list(run(settings, Listener()))
    work = Work(cells_to_do(settings), settings, Listener())
    (part,) = work.parts()
    known, tasks = work.encoder(part), list(work.tasks.values())
    texts = [text for task in tasks for text in task.texts()]
    store, encoded = place / "store", list[Keys]()
    for number in reversed(range(of)):
        share = BatchShare(number, of)
        handed = embed(known.encoder, texts, share, store=store, shared=True, tell=tell())
        assert handed.failure is None and handed.rows is None
        encoded += handed.encoded
    assert sum(map(len, encoded)) == len(set(texts))
    plan = scoring(settings, store, work, encoded=encoded, said="was set aside")
    for task in tasks:
        handed = score(known, plan, None, [task], tell=tell())
        (result,) = handed.results
        assert result.run["encoded"] == len(set(task.texts())) and result.run["set_aside"] == "was set aside"
        write_result(result, place / "shared")
    expected = outside_run(place / "results")
    assert outside_run(place / "shared") == expected


def test_a_store_that_is_not_shared_is_carried(place, monkeypatch):
    settings = plan_of(place, Plain(), monkeypatch)
    list(run(settings, Listener()))
    work = Work(cells_to_do(settings), settings, Listener())
    (part,) = work.parts()
    known, tasks = work.encoder(part), list(work.tasks.values())
    texts = [text for task in tasks for text in task.texts()]
    rows = [
        embed(known.encoder, texts, BatchShare(number, 2), store=place / f"of-{number}", shared=False, tell=tell()).rows
        for number in (0, 1)
    ]
    assert [one.made != b"" for one in rows if one is not None] == [True, True]
    plan = scoring(settings, place / "third", work)
    with pytest.raises(EncoderError, match="92 embeddings that were stored are not in the store"):
        score(known, plan, None, tasks, tell=tell())
    assert rows[0] is not None and rows[1] is not None
    for one in rows:
        handed = caught(partial(score, known, plan, one, tasks, tell=tell()))
    assert [one.task for one in handed.results] == [task.name for task in tasks]
    for result in handed.results:
        write_result(result, place / "shared")
    assert outside_run(place / "shared") == outside_run(place / "results")
    assert len(list((place / "third").rglob(FILE))) == 1


def test_what_a_worker_raises_comes_back_as_words():
    def mistake() -> Any:
        raise EncoderError("no number", hint="take another")

    def bug() -> Any:
        raise ZeroDivisionError("a bug of the user's")

    told, found = caught(mistake).failure, caught(bug).failure
    assert told is not None and isinstance(told.error(), EncoderError)
    assert found is not None and found.line == "a bug of the user's"
    assert not isinstance(found.error(), EncoderError) and "ZeroDivisionError" in found.error().__notes__[0]
    assert str(Cause(line="lost").error()) == "lost"


def test_one_task_that_fails_leaves_the_others_their_scores(place, monkeypatch):
    class Same(Plain):
        def encode(self, sentences: Any) -> Any:
            rows = super().encode(sentences)
            return rows if "pets" in str(sentences) else np.ones_like(rows)

    encoder = Same()
    monkeypatch.setattr(engine, "CHUNK", 1)
    settings = plan_of(place, encoder, monkeypatch, store=None)
    work = Work(cells_to_do(settings), settings, Listener())
    (part,) = work.parts()
    tasks = list(work.tasks.values())
    plan = Scoring(
        seeds={(task.name, task.asked): [0] for task in tasks}, embedded=False, store=None,
        catalogue=settings.catalogue, data=settings.data,
    )  # fmt: skip
    handed = score(work.encoder(part), plan, None, tasks, tell=tell())
    assert handed.failure is None
    assert [one.task for one in handed.results] == ["pets"]
    assert list(handed.failed) == ["plain on plants", "plain on stones"]
    assert all(isinstance(one.error(), EncoderError) for one in handed.failed.values())


def test_a_worker_tells_how_far_it_is_not_too_often(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("stsbench.bench.cluster.worker.time.monotonic", lambda: now[0])
    reports: list[Report] = []
    report = tell(reports)
    report(0, 0)
    report(1, 4)
    now[0] += TELL_SECONDS
    report(3, 4)
    assert [one.done for one in reports] == [0.0, 0.75]
