"""Sweeps on Ray: the scores of one process, weak settings stopped early, and what is known trained no more."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from stsbench.core.errors import StsbenchError
from stsbench.encoders.runs import read_unfinished_runs
from stsbench.studies.carriers import CARRIERS
from stsbench.studies.sweep import Sweep, SweepRow, SweepState
from stsbench.studies.trials import Trial, TrialCallbacks
from tests.studies.conftest import scores

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::ResourceWarning")
"""Of Ray's own parts."""
needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs the extra ray: pip install 'stsbench[ray]'"
)


@pytest.fixture
def of_values(
    sweep: Callable[..., Sweep], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Sweep]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2}')
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return lambda values, **more: sweep(("[0.05, 0.5]", values), ("[1, 2]", "[0]"), **more)


def test_a_sweep_is_led_from_within_its_cluster(of_values):
    with pytest.raises(StsbenchError, match="RAY_ADDRESS and `on=ray`"):
        CARRIERS.load_at("ray://there:10001")(
            SweepState(of_values("[0.1]")), "ray://there:10001", 1, TrialCallbacks()
        )


@needs_ray
def test_side_by_side_are_the_scores_of_one_process(of_values, monkeypatch, capfd):
    told: list[tuple[SweepRow, Trial]] = []
    both = SweepState(of_values("[0.05, 0.5, 1e-40]"), lambda *done: told.append(done))
    CARRIERS.load_at("ray")(both, "ray", 1, TrialCallbacks())
    assert len(told) == 3 and {trial.encoder for _, trial in told} == scores(both).keys()
    assert [bool(one.failure) for one in scores(both).values()].count(True) == 1
    assert capfd.readouterr().out == ""
    assert sorted(path.name for path in (both.sweep.folder).iterdir()) == [
        "optuna.journal",
        "results",
    ]
    fine = {one.score for one in scores(both).values() if not one.failure}
    again = SweepState(of_values("[0.05, 0.5]"))
    CARRIERS.load_at("ray")(again, "ray", 1, TrialCallbacks())
    monkeypatch.setenv("STSBENCH_RUNS", "elsewhere")
    alone = SweepState(of_values("[0.05, 0.5]", folder="alone"))
    CARRIERS.load_at("local")(alone, "local", 1, TrialCallbacks())
    assert scores(again) == scores(alone) and fine == {one.score for one in scores(alone).values()}


@needs_ray
def test_halving_stops_the_weak_and_tells_their_last_score(of_values):
    book = SweepState(
        of_values("[6.0, 5.0, 0.05, 0.06, 0.07]", more="[halving]\nfirst_step = 4\nfactor = 2\n")
    )
    CARRIERS.load_at("ray")(book, "ray", 1, TrialCallbacks())
    early = [row for row in book.rows if any(one.stopped_early for one in row.scores.values())]
    assert 1 <= len(early) < 5 and all(
        row.seed_mean is not None and not row.is_complete for row in early
    )
    assert all(read_unfinished_runs(row.encoder) for row in early)
    (best,) = book.winners()
    assert best.is_complete


@needs_ray
def test_more_cores_than_there_are_is_refused(of_values):
    with pytest.raises(StsbenchError, match="cores '3': there are 2 cores; give at most as many"):
        CARRIERS.load_at("ray")(SweepState(of_values("[0.1]")), "ray", 3, TrialCallbacks())
