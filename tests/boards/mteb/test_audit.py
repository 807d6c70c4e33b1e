"""The page on what does not fit in MTEB's public results is what its command prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_the_command_prints():
    script = ROOT / "benchmarks" / "mteb_audit.py"
    printed = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    assert printed == (ROOT / "docs" / "public-results.md").read_text()
    assert "91.13 and 65.18 on the same 1,379 pairs" in printed
