"""``stsbench verify`` on results of a real run, and on those that are committed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import stsbench as package
from stsbench.results.record import items_path
from tests.cli.commands import HASHED, make_own
from tests.forgeries import resealed

ROOT = Path(package.__file__).parent.parent
PROJECT_RESULTS = ROOT / "results/project"


@pytest.fixture
def results(stsbench, own: Path) -> Path:
    stsbench.fine("run", *HASHED, "--tasks", "quickstart", "--no-store", "--results", "results")
    return Path("results")


def test_a_run_is_verified_and_what_was_edited_is_not(stsbench, results):
    assert stsbench.fine("verify") == "3 results: 3 verified; data found for 3\n"
    path = next(results.glob("hashed/quickstart-es-en*.json"))
    resealed(scores={"kendall.all": 0.5})(path)
    code, out, err = stsbench("verify", results / "hashed")
    assert code == 2 and out == "3 results: 2 verified, 1 failed; data found for 3\n"
    assert err.startswith("stsbench: failed: ") and str(path) in err and err.count("\n") == 1
    assert "'kendall.all' is 0.5, " in err
    code, out, _ = stsbench("verify", "--json")
    rows = json.loads(out)["results"]
    assert (
        code == json.loads(out)["exit"] == 2
        and [row["verdict"] for row in rows].count("failed") == 1
    )
    assert {row["task"] for row in rows} == {
        "quickstart-en",
        "quickstart-es-en",
        "quickstart-probe",
    }


def test_results_without_items_are_named_with_the_reason(stsbench, results):
    for path in results.glob("hashed/quickstart-e*.json"):
        items_path(path).unlink()
    out = stsbench.fine("verify", results)
    assert out.splitlines() == [
        "not verified: hashed 2: its per-item columns are not here",
        "3 results: 1 verified, 2 not verified; data found for 3",
    ]
    for path in results.glob("hashed/*.parquet"):
        path.unlink()
    code, out, _ = stsbench("verify", results)
    assert code == 2 and out.endswith("nothing could be verified\n")


def test_a_users_own_task_is_verified_with_its_card_and_data(stsbench, own, tmp_path):
    mine = make_own(tmp_path / "mine")
    stsbench.fine("run", *HASHED, "--tasks", "both", *mine.options(), "--no-store")
    assert "2 verified; data found for 2" in stsbench.fine("verify", *mine.options())
    assert "2 verified; data found for 0" in stsbench.fine("verify", "--cards", mine.cards)
    code, out, _ = stsbench("verify")
    assert (
        code == 2
        and "hashed 2: no folder of cards holds the card of its task; your own need --cards DIR"
        in out
    )
    (mine.data / "mine" / "gs.txt").write_text("5\n5\n2\n0.5\n")
    code, out, _ = stsbench("verify", *mine.options())
    assert code == 0 and "cannot be read: " in out and "1 verified" in out


def test_the_committed_results_are_verified(stsbench):
    found = stsbench.json("verify", PROJECT_RESULTS)
    rows = found["results"]
    assert found["exit"] == 0 and not [row for row in rows if row["problems"]]
    items = {
        str(path).replace(".items.parquet", ".json")
        for path in PROJECT_RESULTS.rglob("*.items.parquet")
    }
    assert {row["path"] for row in rows if row["verdict"] == "verified"} == items != set()
    reasons = {tuple(row["not_verified"]) for row in rows if row["verdict"] == "not verified"}
    assert reasons == {("its per-item columns are not here",)}


@pytest.mark.data
def test_the_committed_results_are_of_the_data_at_hand(stsbench):
    rows = stsbench.json("verify", PROJECT_RESULTS)["results"]
    assert {row["data_at_hand"] for row in rows} == {True} and not [
        row for row in rows if row["problems"]
    ]


def test_no_torch_is_needed(tmp_path):
    script = "import sys; from stsbench.cli.main import main; code = main(sys.argv[1:]); sys.exit(code or 9 * ('torch' in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script, "verify", str(PROJECT_RESULTS)], cwd=ROOT, check=False
    )
    assert done.returncode == 0
