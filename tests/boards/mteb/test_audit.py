"""Pages on MTEB's public results hold what their commands print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run_script(name: str) -> str:
    """Run a script of the folder ``benchmarks``, and return what it prints."""
    return subprocess.run(
        [sys.executable, ROOT / "benchmarks" / name],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout


def test_the_page_on_what_does_not_fit_is_what_the_command_prints():
    printed = run_script("mteb_audit.py")
    assert printed == (ROOT / "docs" / "public-results.md").read_text()
    assert "91.13 and 65.18 on the same 1,379 pairs" in printed


def test_the_table_of_neighbours_is_what_the_command_prints():
    printed = run_script("mteb_neighbours.py")
    assert printed.strip() in (ROOT / "docs" / "published.md").read_text()
    assert "| MTEB(eng, v2) | 9 | 204 | 0.07 |" in printed
