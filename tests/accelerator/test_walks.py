"""Code for accelerators, walked without one: each file of walks in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import stsbench

WALKS = sorted(Path(__file__).parent.glob("walk_*.py"))


@pytest.mark.skipif(torch.accelerator.is_available(), reason="torch knows one accelerator only")
@pytest.mark.parametrize("path", WALKS, ids=lambda path: path.stem)
def test_everything_comes_out_on_an_accelerator_as_on_the_cpu(path):
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-n", "0", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    # Shown by ``pytest -s -n 0 tests/accelerator``.
    sys.stdout.write("\n".join(["", *re.findall(r"::(\S.*) PASSED", done.stdout), ""]))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout


def test_only_one_module_names_a_kind_of_accelerator():
    named = re.compile(r"""["'](cuda|xpu|mps)["':]|torch\.(cuda|xpu|mps|backends\.mps)\b""")
    package = Path(stsbench.__file__).parent
    places = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(named.search(line) for line in path.read_text(encoding="utf-8").splitlines())
    }
    assert places == {"encoders/accelerator.py"}
