"""Runs of the command line in processes of their own, and the processes that they start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cli.commands import Outcome


def start_process(
    folder: Path, code: str, arguments: Sequence[str], **environment: str
) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    command = [
        sys.executable,
        "-c",
        code,
        "run",
        *arguments,
        "--store",
        "store",
        "--results",
        "results",
    ]
    own = {
        "STSBENCH_CACHE": str(folder / "cache"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        **environment,
    }
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, **own}, stdout=pipe, stderr=pipe
    )


def finish(process: subprocess.Popen[bytes]) -> Outcome:
    out, err = process.communicate(timeout=300)
    return Outcome.of(process.returncode, out.decode(), err.decode())


def programs_below(driver: int) -> dict[int, str]:
    """Return the programs that a driver has started, and those that they have, by process."""
    parents, titles = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int(
                (place / "stat").read_text().rpartition(")")[2].split()[1]
            )
            titles[int(place.name)] = (place / "cmdline").read_bytes()
        except OSError:
            continue

    def is_below(pid: int) -> bool:
        return pid == driver or (pid in parents and is_below(parents[pid]))

    return {
        pid: os.fsdecode(title.split(b"\0")[0]) for pid, title in titles.items() if is_below(pid)
    }


def workers_of(driver: int) -> list[int]:
    """The processes of Ray's workers that a driver has started, but for Ray's own agents."""
    programs = programs_below(driver).items()
    return [pid for pid, name in programs if name.startswith("ray::") and "Agent" not in name]
