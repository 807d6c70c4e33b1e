"""What workers do, one after the other in this process: shares of an encoder's batches, and scores on them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.bench.progress import RunCallbacks
from stsbench.bench.ray_cluster import VersionMismatch, call_or_return_error, check_versions
from stsbench.bench.run import RunContext, run
from stsbench.bench.workers import (
    JobResult,
    ProgressReporter,
    Report,
    embed_share,
    score_tasks_of_job,
    tokenize_share,
)
from stsbench.core.errors import EncoderError
from stsbench.core.provenance import scoring_versions
from stsbench.encoders.engine import embed as engine
from stsbench.encoders.engine.drift import METADATA_FILE
from stsbench.encoders.engine.embed import BatchShare
from stsbench.encoders.engine.store import Keys
from stsbench.results.folder import write_result
from tests.encoders.fakes import Neighbourly, Plain
from tests.own_tasks import outside_run, place, plan_of

__all__ = ["place"]


def tell(reports: list[Report] | None = None) -> ProgressReporter:
    return ProgressReporter(1, (reports if reports is not None else []).append)


def scored(work: RunContext, store: Path | None, embedded: JobResult | None) -> JobResult:
    (part,) = work.encoder_plans()
    settings, tasks = replace(work.plan, store=store), list(work.tasks.values())
    return score_tasks_of_job(
        tell(), work.load_encoder(part), settings, [[0]] * len(tasks), embedded, *tasks
    )


@pytest.mark.parametrize("of", [1, 2, 5])
def test_shares_together_make_the_bytes_of_one_run(place, monkeypatch, of):
    encoder = Neighbourly()
    settings = plan_of(place, encoder, monkeypatch)
    list(run(settings, RunCallbacks()))
    work = RunContext(settings, RunCallbacks())
    (part,) = work.encoder_plans()
    known, tasks = work.load_encoder(part), list(work.tasks.values())
    texts = sorted({text for task in tasks for text in task.texts()})
    store, encoded = place / "store", list[Keys]()
    tokens = [tokenize_share(tell(), known, texts, BatchShare(number, of)) for number in range(of)]
    encoder.tokenized.clear()
    for number in reversed(range(of)):
        handed = embed_share(tell(), known, texts, BatchShare(number, of), store, True, *tokens)
        assert handed.store_files == {}
        encoded += handed.encoded_keys
    assert texts[0] not in encoder.tokenized, "the others have done it"
    assert sum(map(len, encoded)) == len(texts)
    for result in scored(
        work, store, JobResult(encoded_keys=encoded, drift_message="was set aside")
    ).results:
        assert result.run["set_aside"] == "was set aside" and result.run["encoded"] > 0
        write_result(result, place / "shared")
    expected = outside_run(place / "results")
    assert outside_run(place / "shared") == expected


COMPARED = [
    "torch",
    "tokenizers",
    "sentence-transformers",
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "onnxruntime",
]


@pytest.mark.parametrize("library", COMPARED)
def test_a_machine_with_another_version_of_what_computes_is_refused(place, monkeypatch, library):
    class Named(Plain):
        """Names a runtime that computes its embeddings, as our own kinds do."""

    monkeypatch.setattr("stsbench.core.provenance.is_own_class", lambda made: True)
    encoder = Named("named", "abc by onnxruntime 1.0, tokenizers 0.1")
    (part,) = RunContext(plan_of(place, encoder, monkeypatch), RunCallbacks()).encoder_plans()
    versions = scoring_versions(part.libraries)
    check_versions(versions)
    installed = versions[library]
    with pytest.raises(
        VersionMismatch,
        match=re.escape(f"{library} {installed} (not 0.0.1); its scores could differ"),
    ):
        check_versions({**versions, library: "0.0.1"})


def test_packages_that_no_encoder_names_are_not_compared(place, monkeypatch):
    (part,) = RunContext(plan_of(place, Plain(), monkeypatch), RunCallbacks()).encoder_plans()
    assert not part.libraries and "onnxruntime" not in scoring_versions(part.libraries)


def test_a_store_that_is_not_shared_is_carried(place, monkeypatch):
    settings = plan_of(place, Plain(), monkeypatch)
    list(run(settings, RunCallbacks()))
    work = RunContext(settings, RunCallbacks())
    (part,) = work.encoder_plans()
    known, tasks = work.load_encoder(part), list(work.tasks.values())
    texts = sorted({text for task in tasks for text in task.texts()})
    blocks: dict[str, bytes] = {}
    for number in (0, 1):
        handed = embed_share(
            tell(), known, texts, BatchShare(number, 2), place / f"of-{number}", False
        )
        assert METADATA_FILE in handed.store_files and len(handed.store_files) == 2
        blocks.update(handed.store_files)
    lacking = f"{len(texts)} embeddings that were stored are not in the store"
    with pytest.raises(EncoderError, match=lacking):
        scored(work, place / "third", JobResult())
    handed = scored(work, place / "third", JobResult(store_files=blocks))
    assert [one.task for one in handed.results] == [task.name for task in tasks]
    for result in handed.results:
        write_result(result, place / "shared")
    assert outside_run(place / "shared") == outside_run(place / "results")
    assert len(list((place / "third").rglob(METADATA_FILE))) == 1


def test_what_a_worker_raises_comes_back_as_words():
    def mistake() -> Any:
        raise EncoderError("no number", hint="take another")

    def bug() -> Any:
        raise ZeroDivisionError("no quotient")

    user_error, exception = call_or_return_error(mistake), call_or_return_error(bug)
    assert isinstance(user_error, EncoderError) and user_error.hint == "take another"
    assert isinstance(exception, RuntimeError) and str(exception) == "no quotient"
    assert "ZeroDivisionError" in exception.__notes__[0]


def test_one_task_that_fails_leaves_the_others_their_scores(place, monkeypatch):
    class Same(Plain):
        def encode(self, sentences: Any) -> Any:
            rows = super().encode(sentences)
            return rows if "pets" in str(sentences) else np.ones_like(rows)

    encoder = Same()
    monkeypatch.setattr(engine, "TEXTS_PER_BATCH", 1)
    settings = plan_of(place, encoder, monkeypatch, store=None)
    work = RunContext(settings, RunCallbacks())
    (part,) = work.encoder_plans()
    handed = scored(work, None, None)
    assert [one.task for one in handed.results] == ["pets"]
    assert [what for what, _ in handed.failures] == ["plain on plants", "plain on stones"]
    assert all(isinstance(error, EncoderError) for _, error in handed.failures)
