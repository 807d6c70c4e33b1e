"""``stsbench results pack`` and ``unpack``: per-item columns passed on without gold scores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from tests.cli.commands import HASHED, make_own

QUICKSTART = ("run", *HASHED, "--tasks", "quickstart", "--no-store", "--results", "results")


@pytest.fixture
def results(stsbench, own: Path) -> Path:
    stsbench.fine(*QUICKSTART)
    return Path("results")


def columns_of(folder: Path) -> dict[str, list[str]]:
    return {
        path.name.split(".")[0]: sorted(pyarrow.parquet.read_schema(path).names)
        for path in folder.glob("*/*.parquet")
    }


def remove_items(results: Path) -> None:
    for path in results.glob("*/*.items.parquet"):
        path.unlink()


def test_packed_columns_hold_no_gold_and_are_completed_by_the_data(stsbench, results):
    everything = columns_of(results)
    assert "gold" in everything["quickstart-en"] and "correct" in everything["quickstart-probe"]
    verified = stsbench.fine("verify", results)
    assert stsbench.fine("results", "pack", results, "--out", "packed") == (
        "3 results packed into packed\n"
    )
    packed = columns_of(Path("packed"))
    assert packed.keys() == everything.keys()
    assert not {"gold", "label", "correct"} & {name for names in packed.values() for name in names}
    # A stranger's clone: the results without their columns.
    remove_items(results)
    assert stsbench("verify", results)[0] == 2
    assert stsbench.fine("results", "unpack", "packed", "--results", results) == (
        "3 results completed in results\n"
    )
    assert columns_of(results) == everything
    assert stsbench.fine("verify", results) == verified
    again = json.loads(stsbench("results", "unpack", "packed", "--results", results, "--json")[1])
    assert (again["written"], again["skipped"], again["exit"]) == ([], 3, 2)


def test_columns_of_another_score_and_of_changed_values_are_refused(stsbench, results):
    stsbench.fine("results", "pack", results, "--out", "packed")
    remove_items(results)
    [path] = Path("packed").glob("*/quickstart-en.*")
    table = pyarrow.parquet.read_table(path)
    position = table.schema.get_field_index("similarity")
    similarity = table["similarity"].to_pylist()
    similarity[0] += 1e-12
    pyarrow.parquet.write_table(
        table.set_column(position, "similarity", pyarrow.array(similarity)), path
    )
    [other] = Path("packed").glob("*/quickstart-es-en.*")
    other.write_bytes(b"no parquet")
    code, out, err = stsbench("results", "unpack", "packed", "--results", results)
    assert code == 2 and out == "1 result completed in results\n"
    changed, broken = sorted(err.splitlines())
    assert f"{path}: is not what the result was made with" in changed
    assert f"{other}: cannot be read" in broken
    assert [path.name.split(".")[0] for path in results.glob("*/*.items.parquet")] == [
        "quickstart-probe"
    ]


def test_results_whose_data_are_missing_or_differ_stay_as_they_are(stsbench, tmp_path, monkeypatch):
    own = make_own(tmp_path)
    stsbench.fine(
        "run", *HASHED, "--tasks", "table", *own.options(), "--no-store", "--results", "results"
    )
    results = Path("results")
    stsbench.fine("results", "pack", results, "--out", "packed")
    remove_items(results)
    unpack = ("results", "unpack", "packed", "--results", results, *own.options())
    path = own.data / "mine" / "table.tsv"
    moved = path.rename(tmp_path / "moved.tsv")
    code, out, err = stsbench(*unpack)
    assert (code, err) == (2, "")
    assert out.endswith("packed columns or data are missing: table 1\n")
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    _, out, _ = stsbench(*unpack[:5], "--cards", own.cards)
    assert out.endswith("missing: 1 result; there is no data folder: give --data DIR\n")
    shutil.move(moved, path)
    assert "1 result completed" in stsbench.fine(*unpack)
    code, _, err = stsbench("results", "unpack", "nowhere", "--results", results)
    assert code == 2 and err == "stsbench: nowhere: is no folder\n"
