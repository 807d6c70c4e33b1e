"""Commands with work for Ray: this process outlives one that Ray has ended, and says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.commands import write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Python waits for signals there")
ENDS = {
    "exit code 1": "import os; os._exit(1)",
    "SIGABRT": "import os; os.abort()",
}
"""What a package named ``ray`` does when it is imported: end the process, as Ray itself does."""
ENDS_AT_CTRL_C = """
import os, pathlib, signal, time
signal.signal(signal.SIGINT, lambda *_: os._exit(1))
pathlib.Path('imported').touch()
time.sleep(60)
"""
WAITS = "import pathlib, time; pathlib.Path('imported').touch(); time.sleep(60)"


def start(tmp_path: Path, ray: str, *options: str) -> subprocess.Popen[str]:
    write(tmp_path / "packages" / "ray" / "__init__.py", ray)
    path = os.pathsep.join([str(tmp_path / "packages"), str(Path(__file__).parents[2])])
    words = [sys.executable, "-m", "stsbench", "run", "minilm", "--tasks", "quickstart-en"]
    return subprocess.Popen(
        [*words, "--on", "ray", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "STSBENCH_CACHE": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores SIGINT, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("reason", ENDS)
def test_the_end_of_ray_is_no_regression(tmp_path, reason):
    process = start(tmp_path, ENDS[reason])
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.splitlines()[-1] == (
        f"stsbench: Ray has ended this command ({reason}): a process of Ray's own has died; what is"
        " done is kept; run the same command to resume"
    )


def test_the_child_says_how_the_command_went(tmp_path):
    process = start(tmp_path, "raise SystemExit(0)")
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.count("Ray has ended this command")) == (3, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_reaches_the_child(tmp_path, number):
    process = start(tmp_path, WAITS)
    end = time.monotonic() + 60
    while not (tmp_path / "imported").exists():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    (child,) = map(
        int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    )
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number is signal.SIGINT else -number)
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_ctrl_c_is_no_death_of_ray(tmp_path):
    process = start(tmp_path, ENDS_AT_CTRL_C)
    end = time.monotonic() + 60
    while not (tmp_path / "imported").exists():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1]) == (
        130,
        "stsbench: stopped; what is done is kept, run the same command to resume",
    )
