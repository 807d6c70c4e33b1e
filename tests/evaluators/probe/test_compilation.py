"""What the loops are compiled with; a compiled function is taken from the cache until its source or a helper's changes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from stsbench.evaluators.probe.compilation import entry, exp, helper

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


def test_exp_is_good_to_a_few_units_in_the_last_place():
    @helper
    def all_of(x: npt.NDArray[np.float32]) -> None:
        for i in range(len(x)):
            x[i] = exp(x[i])

    x = np.linspace(-87, 88, 100_001, dtype=np.float32)
    found = x.copy()
    all_of(found)
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=3e-7)


def test_a_function_that_cannot_be_cached_is_compiled_all_the_same():
    made: dict[str, Any] = {}
    exec("def double(x):\n    return 2 * x", made)
    assert entry(types.float64(types.float64))(made["double"])(4.0) == 8.0
