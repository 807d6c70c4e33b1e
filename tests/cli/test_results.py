"""``stsbench results update``; results by an earlier version's method stay verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stsbench.check.lock import lock_cells, read_lock, to_lock
from stsbench.check.verify import verify
from stsbench.evaluators.probe.evaluator import PROTOCOLS as PROBES, ProbeEvaluator
from stsbench.evaluators.sts import PROTOCOLS, StsEvaluator
from stsbench.numbers.dependence import ItemDependence
from stsbench.numbers.intervals import (
    AGREEMENT_INTERVAL_METHOD,
    CORRELATION_INTERVAL_METHOD,
    EARLIER_INTERVAL_METHODS,
    SHARE_INTERVAL_METHOD,
    agreement_interval,
    correlation_interval,
    share_interval,
)
from stsbench.numbers.statistics import weigh_subsets
from stsbench.results.folder import read_folder, read_result, write_result
from stsbench.results.record import CleanScore, Result, items_path
from tests.check.test_verify import no_data, result_of
from tests.forgeries import resealed
from tests.made import CATALOGUE

N_CHAINS, LENGTH = 30, 6


def sentence_pairs() -> np.ndarray:
    """Chains of pairs: each shares a sentence with the next."""
    starts = 100 * np.repeat(np.arange(N_CHAINS), LENGTH) + np.tile(np.arange(LENGTH), N_CHAINS)
    return np.stack([starts, starts + 1], axis=1)


def chained(task: str, *, seed: int = 0) -> Result:
    """A current Result on pairs of which whole chains are wrong together."""
    rng = np.random.default_rng(seed)
    sides = sentence_pairs().astype(np.uint32)
    chain = np.repeat(rng.normal(size=N_CHAINS), LENGTH)
    items: dict[str, Any] = {"sentence1": sides[:, 0].copy(), "sentence2": sides[:, 1].copy()}
    if task == "mrpc":
        probe = PROBES["logreg"]
        correct = chain + 0.3 * rng.normal(size=len(chain)) > -0.8
        items |= {"prediction": rng.integers(0, 2, len(chain)), "correct": correct}
        return result_of(task, probe, ProbeEvaluator(probe, threads=1).recompute(items))
    protocol = PROTOCOLS["simcse"]
    gold = rng.normal(size=len(chain))
    items |= {"subset": np.array([""] * len(chain), dtype=object)}
    items |= {"gold": gold, "similarity": gold + chain + 0.2 * rng.normal(size=len(chain))}
    return result_of(task, protocol, StsEvaluator(protocol=protocol).recompute(items))


def earlier(result: Result) -> Result:
    """The Result as the version before wrote it: by shared sentences alone."""
    dependence = ItemDependence(sentence_pairs())
    columns = result.per_item
    if "correct" in columns:
        interval = share_interval(columns["correct"].astype(float), dependence, has_chains=False)
    else:
        interval = correlation_interval(
            result.score,
            "spearman",
            columns["similarity"],
            columns["gold"],
            subset_weights=weigh_subsets([""] * result.n, "all"),
            dependence=dependence,
            has_chains=False,
        ).bounds
    method = EARLIER_INTERVAL_METHODS["correct" in columns]
    return replace(result, interval=interval, interval_method=method)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for task in ("sts12", "mrpc"):
        write_result(earlier(chained(task)), tmp_path / "results")
    return tmp_path / "results"


def width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]


def test_an_interval_by_the_earlier_method_is_verified_and_named(folder):
    report = verify(folder, CATALOGUE, no_data)
    assert [(file.standing, file.problems) for file in report.files] == [("verified", [])] * 2
    assert report.exit_code == 0
    assert report.earlier_methods == dict.fromkeys(EARLIER_INTERVAL_METHODS, 1)
    path = next(folder.glob("a/sts12*.json"))
    low, high = read_result(path).interval
    resealed(interval=[low + 0.02, high - 0.02])(path)
    (problem,) = verify(folder, CATALOGUE, no_data).files_with_standing("failed")
    assert problem.problems[0].startswith("field 'interval': ")


def test_a_folder_of_intervals_by_unknown_methods_does_not_fail(folder):
    for path in folder.glob("a/*.json"):
        resealed(interval_method="percentile bootstrap over pairs, 1000 resamples")(path)
    report = verify(folder, CATALOGUE, no_data)
    assert [file.standing for file in report.files] == ["not verified"] * 2
    assert report.exit_code == 0


def test_intervals_are_computed_anew_and_no_score_changes(stsbench, folder):
    before = {result.task: result for result in read_folder(folder).results}
    lock = folder.parent / "scores.lock.json"
    cells = lock_cells(before.values())
    other = replace(cells[0], encoder="elsewhere")
    lock.write_bytes(to_lock([*cells, other]))
    out = stsbench.fine("results", "update", folder, "--lock", lock)
    lines = out.splitlines()
    assert lines[-2:] == [
        "2 intervals computed anew, 0 up to date",
        f"{lock}: 2 of 3 rows have a new interval",
    ]
    after = {result.task: result for result in read_folder(folder).results}
    methods = {"sts12": CORRELATION_INTERVAL_METHOD, "mrpc": SHARE_INTERVAL_METHOD}
    for task, result in after.items():
        assert result.interval_method == methods[task]
        assert width(result.interval) > 1.2 * width(before[task].interval)
        low, high = (f"{100 * bound:.2f}" for bound in result.interval)
        assert f"{low}–{high}" in out
        expected = chained(task)
        assert result.interval == pytest.approx(expected.interval, abs=1e-12)
        unchanged = {"interval", "interval_method", "digest"}
        for field in set(Result.__struct_fields__) - unchanged:
            assert getattr(result, field) == getattr(before[task], field)
    intervals = {(cell.encoder, cell.task): cell.interval for cell in read_lock(lock)}
    assert intervals == {
        ("a", "sts12"): after["sts12"].interval,
        ("a", "mrpc"): after["mrpc"].interval,
        ("elsewhere", cells[0].task): cells[0].interval,
    }
    report = verify(folder, CATALOGUE, no_data)
    assert report.exit_code == 0 and not report.earlier_methods
    content = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert stsbench.fine("results", "update", folder) == "0 intervals computed anew, 2 up to date\n"
    assert content == {path: path.read_bytes() for path in content}


def test_a_correlation_of_1_without_an_interval_is_no_fault_and_gets_one(stsbench, tmp_path):
    protocol = PROTOCOLS["simcse"]
    sides = sentence_pairs().astype(np.uint32)
    gold = np.random.default_rng(0).normal(size=len(sides))
    items: dict[str, Any] = {"sentence1": sides[:, 0].copy(), "sentence2": sides[:, 1].copy()}
    items |= {"subset": np.array([""] * len(gold), dtype=object), "gold": gold, "similarity": gold}
    result = result_of("sts12", protocol, StsEvaluator(protocol=protocol).recompute(items))
    expected = agreement_interval(1.0, [1.0], N_CHAINS)
    assert result.interval == pytest.approx(expected) and result.interval[1] == 1.0
    folder = tmp_path / "results"
    for method in (CORRELATION_INTERVAL_METHOD, EARLIER_INTERVAL_METHODS[0]):
        before = replace(result, interval=(1.0, 1.0), interval_method=method)
        write_result(before, folder)
        assert verify(folder, CATALOGUE, no_data).exit_code == 0
        assert "1 interval computed anew" in stsbench.fine("results", "update", folder)
        (after,) = read_folder(folder).results
        assert after.interval == pytest.approx(expected)
        assert after.interval_method == AGREEMENT_INTERVAL_METHOD


def test_results_without_items_or_that_their_items_contradict_stay(stsbench, folder):
    forged, bare = next(folder.glob("a/sts12*.json")), next(folder.glob("a/mrpc*.json"))
    resealed(score=0.123, scores={"spearman.all": 0.123}, interval=[0.1, 0.2])(forged)
    items_path(bare).unlink()
    content = forged.read_bytes(), bare.read_bytes()
    code, out, err = stsbench("results", "update", folder)
    assert code == 2 and (forged.read_bytes(), bare.read_bytes()) == content
    assert err.startswith("stsbench: left as it is: ") and "'score': 0.123" in err
    assert "1 left as they are: its per-item columns are not here" in out
    code, out, _ = stsbench("results", "update", folder, "--json")
    found = json.loads(out)
    assert (code, found["exit"], found["updated"], found["unchanged"]) == (2, 2, [], 1)
    code, _, err = stsbench("results", "update", folder.parent / "nowhere")
    assert code == 2 and "does not exist" in err and err.count("\n") == 1


def test_json_holds_both_intervals_and_the_state_that_counts_stays_the_same(stsbench, folder):
    # Another state of the cell, made later: it is the current one, before and after.
    newer = earlier(replace(chained("sts12", seed=1), fingerprint="another"))
    write_result(newer, folder)
    (current,) = [r for r in read_folder(folder).results if r.task == "sts12"]
    assert current.fingerprint == "another"
    found = stsbench.json("results", "update", folder)
    assert (found["exit"], len(found["updated"]), found["current"]) == (0, 3, 0)
    for row in found["updated"]:
        assert row["earlier_method"] in EARLIER_INTERVAL_METHODS
        assert row["interval"] != row["earlier_interval"]
        assert read_result(Path(row["path"])).score == row["score"]
    (current,) = [r for r in read_folder(folder).results if r.task == "sts12"]
    assert current.fingerprint == "another"
    assert current.interval_method == CORRELATION_INTERVAL_METHOD


def test_clean_scores_keep_their_intervals_and_are_named(stsbench, folder):
    clean = CleanScore(
        corpora=["nli"], text="t" * 64, near=None, n=100, score=0.5, interval=(0.4, 0.6)
    )
    write_result(replace(earlier(chained("sts12")), clean=[clean]), folder)
    out = stsbench.fine("results", "update", folder)
    assert "1 of them has scores without training text, whose intervals stay" in " ".join(
        out.split()
    )
    assert read_result(next(folder.glob("a/sts12*.json"))).clean == [clean]
