"""Pages on MTEB's public results hold what their commands print."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run_script(name: str, *words: object) -> str:
    """Run a script of the folder ``benchmarks``, and return what it prints."""
    return subprocess.run(
        [sys.executable, ROOT / "benchmarks" / name, *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout


def test_the_page_on_what_does_not_fit_is_what_the_command_prints():
    printed = run_script("mteb_audit.py")
    page, _, main_scores = (
        (ROOT / "docs" / "public-results.md").read_text().partition("\n## Main scores\n")
    )
    # The last section needs the files, which are not here.
    assert printed == page and "people have not" in main_scores
    assert "91.13 and 65.18 on the same 1,379 pairs" in printed
    assert "51.83 and 58.88 on the same 514 pairs" in printed


def test_main_scores_are_held_to_the_correlation_of_cosines(tmp_path):
    fields_by_file = {
        "fits": {"cosine_spearman": 0.51234, "main_score": 0.5123},
        "other": {"cosine_spearman": 0.5, "main_score": 0.6},
        "points": {"cosine_spearman": 0.5, "main_score": 50.0},
        "people": {"spearman": 0.5, "main_score": 0.5},
        "nan": {"cosine_spearman": 0.5, "main_score": math.nan},
        "old": {"cosine_spearman": 0.5},
    }
    for name, fields in fields_by_file.items():
        path = tmp_path / "results" / f"org__{name}" / "rev" / "STS12.json"
        path.parent.mkdir(parents=True)
        cell = {"hf_subset": "default", **fields}
        path.write_text(json.dumps({"task_name": "STS12", "scores": {"test": [cell]}}))
    (tmp_path / "results" / "org__fits" / "rev" / "STS13.json").write_text("{")
    findings = tmp_path / "findings.csv"
    assert run_script("mteb_audit.py", "--clone", tmp_path, "--csv", findings) == ""
    with findings.open() as stream:
        lines = [line for line in csv.DictReader(stream) if line["kind"] == "Main scores"]
    facts = {line["file"].split("/")[1]: line["what"] for line in lines}
    assert facts.pop("org__fits").startswith("is not valid JSON")
    assert facts == {
        "org__other": "test, default: main score 0.6000, cosine_spearman 0.5000",
        "org__points": "test, default: main score 50.0000 is no correlation",
        "org__people": "test, default: main score 0.5000, without cosine_spearman",
        "org__nan": "test, default: main score is no number",
    }


def test_the_table_of_neighbours_is_what_the_command_prints():
    printed = run_script("mteb_neighbours.py")
    assert printed.strip() in (ROOT / "docs" / "published.md").read_text()
    assert "| MTEB(eng, v2) | 9 | 204 | 0.07 |" in printed
