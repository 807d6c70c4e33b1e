"""Runs on Ray whose workers, or whose driver, are killed at any moment: the same bytes as an undisturbed local run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.bench.processes import finish, programs_below, start_process, workers_of
from tests.own_tasks import outside_run

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs the extra ray: pip install 'stsbench[ray]'"
)

START = """
import signal, sys
from stsbench.bench import ray_run as hands
from stsbench.cli.main import main
from stsbench.encoders.engine import embed as engine, store

def small():
    store.BLOCK_BYTES, engine.TOKEN_BUDGET = 1000, 200

def smaller(work):
    def in_worker(*given):
        # Sent by its value: a worker imports stsbench anew, with large blocks.
        from stsbench.encoders.engine import embed as engine, store
        store.BLOCK_BYTES, engine.TOKEN_BUDGET = 1000, 200
        return work(*given)
    return in_worker

signal.signal(signal.SIGINT, signal.default_int_handler)
small()
hands.run_job_on_ray = smaller(hands.run_job_on_ray)
sys.exit(main(sys.argv[1:]))
"""
"""The command with small blocks, so that a short run writes many."""
FAKE = [
    "tests.encoders.fakes:SLOW,tests.encoders.fakes:PLAIN",
    "--tasks",
    "quickstart-en,quickstart-es-en",
]


def start(folder: Path, *arguments: str, workers: int = 2) -> subprocess.Popen[bytes]:
    own = {"RAY_OVERRIDE_RESOURCES": f'{{"CPU": {workers}}}', "OMP_NUM_THREADS": "1"}
    return start_process(folder, START, [*FAKE, *arguments], **own)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What an undisturbed local run writes."""
    folder = tmp_path_factory.mktemp("local")
    code, _, err = finish(start(folder))
    assert (code, err) == (0, "")
    return outside_run(folder / "results")


def kill_one(process: subprocess.Popen[bytes], moments: random.Random, *, within: float) -> bool:
    """Kill a worker at a random moment after the first was there; False where the run was over by then."""
    while process.poll() is None and not workers_of(process.pid):
        time.sleep(0.05)
    time.sleep(moments.uniform(0, within))
    there = workers_of(process.pid)
    if process.poll() is not None or not there:
        return False
    os.kill(moments.choice(there), signal.SIGKILL)
    return True


@pytest.mark.parametrize(
    ("workers", "rounds"),
    [
        (2, 2),
        pytest.param(2, 10, marks=pytest.mark.slow),
        pytest.param(4, 10, marks=pytest.mark.slow),
    ],
)
def test_a_worker_is_killed_at_any_moment(tmp_path, expected, workers, rounds):
    seed = random.randrange(10**6)
    moments, killed, lost = random.Random(seed), 0, 0
    # A run may be over before its moment has come: such a round is another one's.
    for turn in range(3 * rounds):
        if killed == rounds:
            break
        folder = tmp_path / f"round {turn}"
        process = start(folder, "--on", "ray", workers=workers)
        killed += kill_one(process, moments, within=5)
        code, out, err = finish(process)
        assert code == 0, (seed, err)
        assert out.startswith("Scores, ") and "raylet" not in out
        lost_one = "its worker was killed or has crashed; tried again (2 of 3)"
        assert [line for line in err.splitlines() if lost_one not in line] == [], seed
        lost += bool(err)
        assert outside_run(folder / "results") == expected, seed
    assert killed == rounds and (lost or rounds < 10), "some were killed at work"


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_the_driver_is_killed_at_any_moment(tmp_path, expected, rounds):
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    for turn in range(rounds):
        folder = tmp_path / f"round {turn}"
        process = start(folder, "--on", "ray")
        while not (workers := workers_of(process.pid)):
            assert process.poll() is None, finish(process)
            time.sleep(0.05)
        time.sleep(moments.uniform(0, 5))
        process.kill()
        process.communicate(timeout=60)
        end = time.monotonic() + 60
        while any(Path(f"/proc/{pid}").exists() for pid in workers):
            assert time.monotonic() < end, "its workers end with it"
            time.sleep(0.1)
        code, _, err = finish(start(folder, "--on", "ray"))
        assert (code, err) == (0, ""), seed
        assert outside_run(folder / "results") == expected, seed


def test_ctrl_c_keeps_what_is_embedded(tmp_path, expected):
    process = start(tmp_path / "run", "--on", "ray")
    while not list(tmp_path.rglob("*.npy")):
        assert process.poll() is None, finish(process)
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out) == (130, "")
    assert err.startswith("stsbench: stopped; ")
    code, _, err = finish(start(tmp_path / "run", "--on", "ray"))
    assert (code, err) == (0, "")
    assert outside_run(tmp_path / "run" / "results") == expected


@pytest.mark.slow
@pytest.mark.parametrize("program", ["raylet", "gcs_server"])
def test_the_death_of_ray_itself_is_no_regression(tmp_path, expected, program):
    process = start(tmp_path / "run", "--on", "ray")
    while not workers_of(process.pid):
        assert process.poll() is None, finish(process)
        time.sleep(0.05)
    programs = programs_below(process.pid).items()
    (killed,) = [pid for pid, name in programs if name.endswith(f"/{program}")]
    os.kill(killed, signal.SIGKILL)
    code, _, err = finish(process)
    assert code == 2, err
    assert err.splitlines()[-1].startswith("stsbench: Ray has ended this command (exit code 1): ")
    code, _, err = finish(start(tmp_path / "run", "--on", "ray"))
    assert (code, err) == (0, "")
    assert outside_run(tmp_path / "run" / "results") == expected
