"""``stsbench run --devices``: processes of this machine, stopped, killed and resumed; and what is refused."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from stsbench.encoders import accelerator
from tests.bench.processes import finish, programs_below, start_process
from tests.cli.commands import Command
from tests.own_tasks import outside_run

START = """
import signal, sys
from stsbench.bench import pools as pool
from stsbench.cli.main import main
from stsbench.encoders.engine import embed as engine, store
from tests.bench.test_devices import carry_out_small_jobs

signal.signal(signal.SIGINT, signal.default_int_handler)
store.BLOCK_BYTES, engine.TOKEN_BUDGET = 1000, 200
pool.carry_out_jobs = carry_out_small_jobs
sys.exit(main(sys.argv[1:]))
"""
"""The command with small blocks, so that a short run writes many."""
FAKE = [
    "tests.encoders.fakes:SLOW,tests.encoders.fakes:PLAIN",
    "--tasks",
    "quickstart-en,quickstart-es-en",
]
TWO = ["--devices", "cpu,cpu"]


def carry_out_small_jobs(connection: object, device: str) -> None:
    """Carry out jobs with small blocks: a process imports stsbench anew."""
    from stsbench.bench import pools
    from stsbench.encoders.engine import embed as engine, store

    store.BLOCK_BYTES, engine.TOKEN_BUDGET = 1000, 200
    pools.carry_out_jobs(connection, device)  # type: ignore[arg-type]


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return start_process(folder, START, [*FAKE, *arguments], OMP_NUM_THREADS="1")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What an undisturbed run in one process writes."""
    folder = tmp_path_factory.mktemp("local")
    code, _, err = finish(start(folder))
    assert (code, err) == (0, "")
    return outside_run(folder / "results")


def processes_of(driver: int) -> list[int]:
    """The processes of a run's devices: not the command itself, nor multiprocessing's tracker."""
    below = []
    for pid in programs_below(driver):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"spawn_main" in command:
            below.append(pid)
    return below


def wait_for_blocks(folder: Path, process: subprocess.Popen[bytes], n: int) -> None:
    while len(list(folder.rglob("*.npy"))) < n:
        assert process.poll() is None, finish(process)
        time.sleep(0.01)


@pytest.mark.parametrize("victim", ["a process", "the command"])
def test_killed_it_comes_to_the_same_results(tmp_path, expected, victim):
    process = start(tmp_path / "run", *TWO)
    wait_for_blocks(tmp_path, process, 3)
    below = processes_of(process.pid)
    assert len(below) == 2
    if victim == "a process":
        os.kill(random.choice(below), signal.SIGKILL)
        code, _, err = finish(process)
        assert code == 0
        assert err.count("its worker was killed or has crashed; tried again (2 of 3)") == 1
    else:
        process.kill()
        process.communicate(timeout=120)
        end = time.monotonic() + 240
        while any(Path(f"/proc/{pid}").exists() for pid in below):
            assert time.monotonic() < end, "its processes end with it"
            time.sleep(0.1)
        code, _, err = finish(start(tmp_path / "run", *TWO))
        assert (code, err) == (0, "")
    assert outside_run(tmp_path / "run" / "results") == expected


def test_ctrl_c_keeps_what_is_embedded(tmp_path, expected):
    process = start(tmp_path / "run", *TWO)
    wait_for_blocks(tmp_path, process, 2)
    # As a terminal does, which sends it to all processes.
    for pid in [*processes_of(process.pid), process.pid]:
        os.kill(pid, signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out) == (130, "")
    assert err == "stsbench: stopped; what is done is kept, run the same command to resume\n"
    code, _, err = finish(start(tmp_path / "run", *TWO))
    assert (code, err) == (0, "")
    assert outside_run(tmp_path / "run" / "results") == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "cpu,gpu"], "'gpu' is not a device; give auto, cpu, cuda"),
        (["--devices", "0"], "--devices 0: this machine has "),
        (["--devices", "cpu", "--on", "ray"], "--on has no effect beside --devices; leave it out"),
        (["--timeout", "9"], "--timeout has no effect without --devices or --on ray; leave it out"),
        (["--devices", "cpu,cpu", "--set", "device=cpu"], "leave out --set device=cpu"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(tmp_path, capsys, arguments, message):
    folders = ["--results", str(tmp_path / "results"), "--store", str(tmp_path / "store")]
    done = Command(capsys)("run", "minilm", "--tasks", "quickstart-en", *folders, *arguments)
    assert done.code == 2 and done.out == ""
    (line,) = [line for line in done.err.splitlines() if line.startswith("stsbench: ")]
    assert message in line


def test_a_number_stands_for_the_first_devices(monkeypatch):
    two = [accelerator.Accelerator(f"cuda:{number}", "a GPU") for number in range(2)]
    monkeypatch.setattr(accelerator, "list_accelerators", lambda: two)
    assert accelerator.resolve_devices("2") == ("cuda:0", "cuda:1")
    assert accelerator.resolve_devices("cuda:1, cpu") == ("cuda:1", "cpu")
    monkeypatch.setattr(accelerator, "list_accelerators", list)
    assert accelerator.resolve_devices("1") == ("cpu",)


def test_auto_is_the_device_of_the_process(monkeypatch):
    monkeypatch.setattr(accelerator, "device_of_process", "auto")
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda **kinds: torch.device("cuda")
    )
    assert accelerator.resolve_device_name("auto") == "cuda"
    accelerator.use_device("cpu")
    assert (
        accelerator.resolve_device_name("auto") == "cpu"
        and accelerator.resolve_device_name("cuda:1") == "cuda:1"
    )
