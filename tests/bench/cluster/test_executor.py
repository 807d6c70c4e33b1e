"""Runs on Ray and on processes of this machine: the same Results as those of one process, and of what fails no more than its own cells."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stsbench.bench.job_run import JobRun
from stsbench.bench.plan import RunPlan
from stsbench.bench.pools import ProcessPool, RayPool, run_on_ray
from stsbench.bench.progress import ProgressTracker, RunCallbacks
from stsbench.bench.ray_cluster import check_cluster_versions, connect_ray, starts_own_ray
from stsbench.bench.run import RunContext, run
from stsbench.bench.workers import EncoderJobs, JobResult
from stsbench.core.errors import EncoderError, StsbenchError
from stsbench.core.provenance import scoring_versions
from stsbench.encoders.engine.drift import METADATA_FILE
from stsbench.encoders.fitted import PostProcessed
from stsbench.encoders.whitening import WhiteningMethod
from stsbench.results.folder import read_states, write_result
from stsbench.results.record import Result, digest_columns
from tests.encoders.fakes import Neighbourly, Plain, Shifted, Unsteady
from tests.own_tasks import TASKS, outside_run, place, plan_of

__all__ = ["place"]

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs the extra ray: pip install 'stsbench[ray]'"
)
WHITENED = PostProcessed(
    Plain("base"), WhiteningMethod(3, normalise=True), name="whitened", fit="target"
)
ENCODERS = {
    "NEIGHBOURLY": Neighbourly(),
    "NAMELESS": Plain("nameless", None),
    "WHITENED": WHITENED,
    "STEADY": Plain("steady", "steady-1"),
}
NEIGHBOURLY, NAMELESS, WHITENED, STEADY = ENCODERS.values()  # type: ignore[assignment]
UNSTEADY: Any = None
ALL = [f"tests.bench.cluster.test_executor:{name}" for name in ENCODERS]


class Heard:
    """What a run tells."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.noticed: list[str] = []
        self.pace = ProgressTracker()

    def listener(self) -> RunCallbacks:
        return RunCallbacks(
            on_failure=lambda what, error: self.failed.append(f"{what}: {error}"),
            on_notice=self.noticed.append,
            on_progress=lambda pace: setattr(self, "pace", pace),
        )


@pytest.fixture(params=["ray", "devices"])
def workers(request: pytest.FixtureRequest) -> Any:
    """Ray, or None for processes of this machine."""
    if request.param == "devices":
        return None
    if find_spec("ray") is None:
        pytest.skip("needs the extra ray: pip install 'stsbench[ray]'")
    return request.getfixturevalue("ray")


def spread(ray: Any, settings: RunPlan, heard: Heard, **facts: Any) -> list[Result]:
    def executor(work: RunContext, parts: Any) -> Iterator[Result]:
        pool: Any
        if ray is None:
            pool = ProcessPool(["cpu", "cpu"])
        else:
            pool = RayPool(ray, is_own_ray=starts_own_ray(settings.executor))
        cluster = JobRun(work, pool)
        for part in (pool, cluster):
            part.__dict__.update(facts)
        yield from cluster.results(parts)

    return list(run(settings, heard.listener(), executor=executor))


def test_every_kind_of_encoder_has_the_results_of_a_local_run(place, monkeypatch, workers):
    options = {"encoders": ALL, "seeds": (0, 1)}
    # Workers know nothing of batches made smaller here.
    monkeypatch.undo()
    monkeypatch.setenv("STSBENCH_CACHE", str(place / "cache"))
    local = list(
        run(
            plan_of(place, None, monkeypatch, **options, results_folder=place / "local"),
            RunCallbacks(),
        )
    )
    heard = Heard()
    settings = plan_of(
        place,
        None,
        monkeypatch,
        **options,
        store=place / "store",
        executor="ray",
        gpus_per_encoder=3,
    )
    found = spread(workers, settings, heard)
    assert (heard.failed, heard.noticed) == ([], [])
    assert [(one.encoder, one.task, one.eval_seed) for one in found] == [
        (one.encoder, one.task, one.eval_seed) for one in local
    ]
    assert outside_run(place / "results") == outside_run(place / "local")
    stores = [
        {path.parent.name for path in place.joinpath(where).rglob("*.npy")}
        for where in ("store", "cache/store")
    ]
    assert stores[0] == stores[1]
    facts = {one.encoder: one.run for one in found if (one.task, one.eval_seed) == ("pets", 0)}
    where = "ray" if workers else "devices"
    assert all(one["on"] == where and one["tries"] == 1 for one in facts.values())
    assert facts["neighbourly"]["embedding_workers"] == 3 and facts["neighbourly"]["encoded"] == 60
    assert "embedding_workers" not in facts["nameless"] and facts["nameless"]["encoded"] == 60
    assert (heard.pace.total_cells, heard.pace.scored_cells, heard.pace.failed_cells) == (24, 24, 0)
    # Again: all is known but what has no fingerprint.
    again = spread(workers, settings, heard)
    assert [one.task for one in again] == [
        one.task for one in found
    ] and heard.pace.scored_cells == 6


@pytest.mark.parametrize("how", ["dies", "raises"])
@pytest.mark.parametrize(("times", "survives"), [(1, True), (3, False)])
def test_what_fails_is_tried_again_up_to_a_limit(place, monkeypatch, workers, how, times, survives):
    unsteady = Unsteady(str(place / "marks"), times=times, how=how)
    monkeypatch.setattr("tests.bench.cluster.test_executor.UNSTEADY", unsteady)
    encoders = ["tests.bench.cluster.test_executor:UNSTEADY", ALL[-1]]
    heard = Heard()
    found = spread(
        workers,
        plan_of(place, None, monkeypatch, encoders=encoders, executor="ray", gpus_per_encoder=1),
        heard,
    )
    why = "its worker was killed or has crashed" if how == "dies" else "a bug of the user's"
    tried = [f"unsteady: embedding: {why}; tried again ({number} of 3)" for number in (2, 3)]
    assert heard.noticed == tried[: min(times, 2)]
    assert [one.encoder for one in found] == ["unsteady"] * (3 * survives) + ["steady"] * 3
    assert heard.failed == ([] if survives else [f"unsteady: {why}"])
    if survives:
        assert {one.run["embedding_tries"] for one in found if one.encoder == "unsteady"} == {2}
    assert heard.pace.failed_cells == (0 if survives else 3)


def test_a_task_that_cannot_be_scored_costs_its_own_cells(place, monkeypatch, workers):
    lines = [f"a {i}\tb {i}\t{i}\n" for i in range(TASKS["pets"])]
    (place / "data" / "pets.tsv").write_text("".join(lines[:1] * TASKS["pets"]))
    heard = Heard()
    found = spread(
        workers, plan_of(place, Plain(), monkeypatch, executor="ray", seeds=(0, 1)), heard
    )
    assert {one.task for one in found} == {"plants", "stones"}
    assert len(heard.failed) == 2 and all(one.startswith("plain on pets: ") for one in heard.failed)
    assert not any("tried again" in line for line in heard.noticed), "it would fail again"
    assert heard.pace.failed_cells == 2


def test_an_encoder_that_cannot_be_sent_to_workers_costs_all_its_cells(place, monkeypatch, workers):
    locked = Plain("locked", "locked-1")
    vars(locked)["lock"] = Lock()
    monkeypatch.setattr("tests.bench.cluster.test_executor.UNSTEADY", locked)
    encoders = ["tests.bench.cluster.test_executor:UNSTEADY", ALL[-1]]
    heard = Heard()
    found = spread(workers, plan_of(place, None, monkeypatch, encoders=encoders), heard)
    assert [one.encoder for one in found] == ["steady"] * 3
    assert len(heard.failed) == 1 and "locked: cannot be sent to another process" in heard.failed[0]
    assert (heard.pace.scored_cells, heard.pace.failed_cells) == (3, 3)


@needs_ray
def test_stores_that_are_not_shared_are_gathered(place, monkeypatch, ray):
    local = plan_of(
        place, Plain(), monkeypatch, results_folder=place / "local", store=place / "kept"
    )
    list(run(local, RunCallbacks()))
    heard = Heard()
    settings = plan_of(
        place, Plain(), monkeypatch, store=place / "ours", executor="ray", gpus_per_encoder=2
    )
    theirs = {"is_store_shared": False, "worker_plan": replace(settings, store=place / "theirs")}
    assert len(spread(ray, settings, heard, **theirs)) == 3
    assert outside_run(place / "results") == outside_run(place / "local")
    assert [len(list((place / where).rglob(METADATA_FILE))) for where in ("ours", "theirs")] == [
        1,
        1,
    ]
    # What was gathered is a store as any other: nothing is embedded again.
    encoder = Plain()
    list(
        run(
            plan_of(
                place, encoder, monkeypatch, results_folder=place / "third", store=place / "ours"
            ),
            RunCallbacks(),
        )
    )
    assert encoder.calls == [] and heard.failed == []


@needs_ray
@pytest.mark.parametrize("variant", ["", "+dimensions=2"])
def test_an_encoder_that_embeds_otherwise_is_scored_again(place, monkeypatch, ray, variant):
    encoders = [f"tests.own_tasks:ENCODER{variant}"]
    with monkeypatch.context() as first:
        # Undone at once: variants share a base that something still holds.
        list(run(plan_of(place, Shifted(0), first, encoders=encoders), RunCallbacks()))
    before = outside_run(place / "results")
    (record,) = (place / "cache").rglob(METADATA_FILE)
    record.write_text(json.dumps({**json.loads(record.read_text()), "places": []}))
    heard = Heard()
    settings = plan_of(
        place, Shifted(0.5), monkeypatch, encoders=encoders, seeds=(0, 1), executor="ray"
    )
    found = spread(ray, settings, heard)
    assert heard.failed == []
    said = heard.noticed[0]
    assert heard.noticed == [said]
    assert said.startswith(
        "stored embeddings of 'shifted' are archived, and everything is embedded and scored again: samples moved by"
    )
    assert len(found) == heard.pace.scored_cells == 6 and {
        one.run["set_aside"] for one in found
    } == {said}
    after = outside_run(place / "results")
    assert set(before) < set(after) and all(
        after[name] != before[name] for name in before if name.endswith("json")
    )


@needs_ray
@pytest.mark.parametrize("store", [None, "store"])
@pytest.mark.parametrize(("shift", "scored"), [(0, 3), (0.5, 6)])
def test_results_of_another_machine_count_if_a_worker_embeds_alike(
    place, monkeypatch, ray, store, shift, scored
):
    def make(shift: float) -> Shifted:
        encoder = Shifted(shift)
        # A worker keeps the encoder of this fingerprint that it embedded with last.
        encoder.fingerprint = f"shifted {store} {scored}"
        return encoder

    with monkeypatch.context() as first:
        list(run(plan_of(place, make(0), first, store=None), RunCallbacks()))
    for result in read_states(place / "results").results:
        result.run["origin"]["environment"] = "of another machine"
        write_result(result, place / "results")
    # Of the first encoder all is known, of the second nothing.
    encoders, heard = ["tests.own_tasks:ENCODER", ALL[-1]], Heard()
    settings = plan_of(
        place,
        make(shift),
        monkeypatch,
        encoders=encoders,
        store=store and place / store,
        executor="ray",
    )
    found = spread(ray, settings, heard)
    moved = ["'shifted' now embeds otherwise than for earlier results: they are scored again"]
    assert (heard.failed, heard.noticed, len(found)) == ([], moved if shift else [], 6)
    assert (heard.pace.total_cells, heard.pace.scored_cells) == (scored, scored)


class Endless(Neighbourly):
    """Never has its tokens."""

    def tokenize(self, sentences: Any) -> Any:
        time.sleep(600)


@pytest.mark.parametrize("what", ["embedding", "tokenising"])
def test_a_piece_that_hangs_is_given_up(place, monkeypatch, workers, what):
    unsteady = Unsteady(str(place / "marks"), times=9, how="hangs")
    hanging = unsteady if what == "embedding" else Endless("unsteady", "endless-1")
    monkeypatch.setattr("tests.bench.cluster.test_executor.UNSTEADY", hanging)
    monkeypatch.setattr("stsbench.bench.progress.STALL_SECONDS", 0.1)
    encoders = ["tests.bench.cluster.test_executor:UNSTEADY", ALL[-1]]
    heard = Heard()
    n_workers = 1 if what == "embedding" else 2
    settings = plan_of(
        place,
        None,
        monkeypatch,
        encoders=encoders,
        executor="ray",
        gpus_per_encoder=n_workers,
        # A process of a device imports torch first.
        timeout=10.0,
    )
    assert [one.encoder for one in spread(workers, settings, heard)] == ["steady"] * 3
    assert heard.failed == ["unsteady: not done within 10 s (`timeout`)"]
    assert any(
        re.match(f"no progress for 0 minutes: .*unsteady: {what}", line) for line in heard.noticed
    )


@needs_ray
def test_workers_of_other_versions_are_refused(place, monkeypatch, ray):
    heard = Heard()
    settings = plan_of(
        place, None, monkeypatch, encoders=ALL[-1:], executor="ray", gpus_per_encoder=1
    )
    wanted = {**scoring_versions(), "torch": "0.1"}
    assert spread(ray, settings, heard, versions=wanted) == []
    (failed,) = heard.failed
    assert re.fullmatch(
        r"steady: the worker \S+ has other versions than .*: torch [\d.+a-z]+ \(not 0.1\); .*: install the same .*",
        failed,
    )
    with pytest.raises(StsbenchError, match=r"torch .* \(not 0.1\); "):
        check_cluster_versions(ray, wanted)
    check_cluster_versions(ray, {**scoring_versions(), "commit of stsbench": ""})


def start_slowly(*_: Any, **__: Any) -> None:
    raise Exception("The current node timed out.")  # noqa: TRY002 - as Ray does


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        (True, "^Ray does not start: The current node timed out.$"),
        (None, "needs Ray, which is not installed; run: pip install 'stsbench.ray.'"),
    ],
)
def test_ray_that_is_missing_or_starts_too_slowly_is_a_mistake_of_one_line(
    monkeypatch, installed, message
):
    monkeypatch.setattr("stsbench.bench.ray_cluster.find_spec", lambda name: installed)
    monkeypatch.setattr(
        "stsbench.bench.ray_cluster.import_module", lambda name: SimpleNamespace(init=start_slowly)
    )
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(StsbenchError, match=message):
        connect_ray("ray").__enter__()


def test_ray_is_its_own_where_no_cluster_is_named(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert not starts_own_ray("ray") and not starts_own_ray("ray://127.0.0.1:2")
    monkeypatch.delenv("RAY_ADDRESS")
    assert starts_own_ray("ray")


@needs_ray
def test_a_cluster_that_does_not_answer_is_a_mistake_of_one_line():
    # In a process of its own: Ray's client takes over the one that it is tried in.
    address = "ray://127.0.0.1:1"
    code = f"from stsbench.bench.ray_cluster import connect_ray as c; c('{address}').__enter__()"
    tried = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "StsbenchError: no Ray cluster" in tried.stderr and f"'{address}'" in tried.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("No module named 'stsbench'"),
            "cannot read it: No module named 'stsbench' there; install on",
        ),
        (TypeError("cannot pickle '_thread.lock' object"), "cannot be sent to another process"),
    ],
)
def test_what_a_cluster_does_not_take_is_a_mistake_of_one_line(place, monkeypatch, error, message):
    class Refusing(RayPool):
        def put(self, thing: object) -> object:
            raise error

    context = RunContext(plan_of(place, Plain(), monkeypatch), RunCallbacks())
    cluster = JobRun(context, Refusing(None, is_own_ray=True))
    with pytest.raises(EncoderError, match=message):
        cluster.put(Plain())


def test_a_result_without_per_item_columns_is_written_too(place, monkeypatch):
    settings = plan_of(place, Plain(), monkeypatch)
    first, *_ = run(settings, RunCallbacks())
    bare = msgspec.structs.replace(first, per_item={}, items=digest_columns({}))
    others = replace(settings, results_folder=place / "others")
    context = RunContext(others, RunCallbacks())
    (encoder_plan,) = context.encoder_plans()
    cells = [cell for cell in encoder_plan.cells if cell.task == bare.task]
    jobs = EncoderJobs(encoder_plan=encoder_plan, cells_to_score=cells)
    job = jobs.make_job("scoring", lambda: JobResult(), cells=cells)
    JobRun(context, RayPool(None, is_own_ray=True)).accept_result(job, JobResult(results=[bare]))
    assert [result.task for result in read_states(place / "others").results] == [bare.task]


def test_where_all_is_known_ray_is_not_started(place, monkeypatch):
    list(run(plan_of(place, Plain(), monkeypatch), RunCallbacks()))
    monkeypatch.setattr(
        "stsbench.bench.ray_cluster.connect_ray", lambda on: pytest.fail("it is started")
    )
    settings = plan_of(place, Plain(), monkeypatch, executor="ray")
    work = RunContext(settings, RunCallbacks())
    assert len(list(run_on_ray(work, list(work.encoder_plans())))) == 3
    assert Path(settings.results_folder).is_dir()
