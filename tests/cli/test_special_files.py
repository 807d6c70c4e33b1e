"""Links are followed when a command writes; devices and pipes are written into, and never read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cli.commands import Command

BOARD = ("leaderboard", "--table", "simcse-5", "--format", "csv", "--out")


@pytest.mark.parametrize("old", ["old", None], ids=["file", "nothing"])
def test_a_link_stays_a_link_and_what_it_leads_to_is_written(stsbench: Command, tmp_path: Path, old: str | None):
    folder = tmp_path / "elsewhere"
    link, target = tmp_path / "link.csv", folder / "board.csv"
    link.symlink_to(Path("elsewhere", "board.csv"))
    if old:
        folder.mkdir()
        target.write_text(old)
    stsbench.fine(*BOARD, link)
    assert link.is_symlink() and target.read_text().startswith("table,")
    assert [one.name for one in folder.iterdir()] == ["board.csv"]


def test_a_pipe_is_written_into(stsbench: Command, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    stsbench.fine(*BOARD, pipe)
    assert os.read(reader, 6) == b"table,"
    assert stat.S_ISFIFO(pipe.stat().st_mode) and [one.name for one in tmp_path.iterdir()] == ["pipe"]
    os.close(reader)


def test_a_device_stays_a_device(stsbench: Command):
    stsbench.fine(*BOARD, os.devnull)
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


@pytest.mark.parametrize(
    "command",
    [
        ("new", "task", "here.csv", "--out", "cards"),
        ("new", "encoder", "here.csv", "--out", "cards"),
        ("data", "overlap", "here.csv"),
        ("run", "-e", "minilm", "-t", "quickstart-en", "--config", "here.csv"),
        ("run", "-e", "glove-840b-sbert", "-t", "quickstart-en", "--set", "file=here.csv"),
        ("run", "-e", "mine", "-t", "quickstart-en", "--cards", "own"),
        ("check", "results", "--against", "here.csv"),
    ],
    ids=lambda command: " ".join(command[:3]),
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_may_never_end_is_not_read(
    stsbench: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], kind: str
):
    monkeypatch.chdir(tmp_path)
    for place in (tmp_path / "here.csv", tmp_path / "own" / "baselines" / "mine.toml"):
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "pipe":
            os.mkfifo(place)
        else:
            place.symlink_to("/dev/zero")
    (tmp_path / "results").mkdir()
    assert "is a pipe or a device, not a file" in stsbench.refused(*command)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="only Linux shows its kernel so")
@pytest.mark.parametrize("command", [("run", "-e", "minilm", "-t", "quickstart-en", "--no-store"), ("doctor",)])
def test_the_kernels_folder_is_no_cache(stsbench: Command, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]):
    monkeypatch.setenv("STSBENCH_CACHE", "/proc")
    assert "STSBENCH_CACHE='/proc' names no folder (it is the kernel's" in stsbench.refused(*command)
