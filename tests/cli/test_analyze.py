"""``stsbench analyze``: numbers in the terminal and in files, pictures of the same bytes, and mistakes in one line."""

from __future__ import annotations

import csv
import json

import pytest

from stsbench.analysis.run import ANALYSES
from stsbench.cli.analyze import analyze_command
from tests.cli.commands import HASHED

QUICK = ("--tasks", "quickstart-en", "--no-store")


def test_the_help_names_every_analysis():
    assert [name for name in ANALYSES.table if name not in str(analyze_command.__doc__)] == []


def test_numbers_are_printed_and_written_alike(stsbench, tmp_path):
    files = [tmp_path / f"found.{ending}" for ending in ("json", "csv")]
    out = stsbench.fine("analyze", "spectrum", *HASHED, *QUICK, *(word for file in files for word in ("--out", file)))
    assert out.startswith("spectrum: quickstart-en (test), protocol simcse")
    found = json.loads(files[0].read_text())
    assert found == stsbench.json("analyze", "spectrum", *HASHED, *QUICK)
    (row,) = found["tables"]["encoders"]
    assert f"{row['isotropy']:.4f}" in out
    rows = list(csv.DictReader(files[1].read_text().splitlines()))
    assert [row["table"] for row in rows].count("values") == len(found["tables"]["values"])
    assert float(rows[0]["isotropy"]) == row["isotropy"]


def test_pictures_have_the_same_bytes_each_time(stsbench, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    for name in ("one.svg", "two.svg"):
        stsbench.fine("analyze", "similarity", *HASHED, *QUICK, "--set", "bins=3", "--out", tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
