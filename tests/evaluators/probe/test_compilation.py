"""A compiled function is taken from the cache until its own source or that of a helper changes."""

import os
import subprocess
import sys
from pathlib import Path

HELPER = """
from stsbench.evaluators.probe.compilation import helper
@helper
def grown(x):
    return {} * x
"""
ENTRY = """
from numba import types
from stsbench.evaluators.probe.compilation import entry
from helper_of_mine import grown
@entry(types.float64(types.float64))
def again(x):
    return grown(x) + 1
print(again(1.0), sum(again.stats.cache_hits.values()))
"""


def run(folder: Path) -> list[str]:
    # Of the test's own modules a stale .pyc is none of ours to renew.
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
    }
    command = [sys.executable, "-c", "import entry_of_mine"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_a_change_of_a_helper_alone_compiles_anew(tmp_path):
    (tmp_path / "entry_of_mine.py").write_text(ENTRY)
    (tmp_path / "helper_of_mine.py").write_text(HELPER.format(2))
    assert run(tmp_path) == ["3.0", "0"]
    assert run(tmp_path) == ["3.0", "1"]
    (tmp_path / "helper_of_mine.py").write_text(HELPER.format(5))
    assert run(tmp_path) == ["6.0", "0"]
