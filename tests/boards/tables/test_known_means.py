"""Intervals kept in the cache folder from one table to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from stsbench.boards.tables import intervals as module
from stsbench.boards.tables.intervals import known_means


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path))
    return tmp_path / "means.json"


def keep(**intervals: tuple[float, float]) -> None:
    with known_means() as known:
        known |= intervals


def test_what_is_added_is_there_the_next_time(file: Path):
    keep(a=(0.25, 1 / 3))
    keep(b=(0.5, 0.75))
    with known_means() as known:
        assert known == {"a": (0.25, 1 / 3), "b": (0.5, 0.75)}


def test_what_another_process_adds_meanwhile_is_not_lost(file: Path):
    with known_means() as known:
        known["a"] = (0.0, 1.0)
        keep(b=(0.0, 0.5))
    with known_means() as known:
        assert set(known) == {"a", "b"}


def test_the_oldest_go_first(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST", 2)
    for name in "abc":
        keep(**{name: (0.0, 1.0)})
    with known_means() as known:
        assert list(known) == ["b", "c"]


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"a": [1]}', b'{"a": "b"}', b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_as_none(file: Path, content: bytes):
    file.write_bytes(content)
    with known_means() as known:
        assert known == {}
    keep(a=(0.0, 1.0))
    with known_means() as known:
        assert known == {"a": (0.0, 1.0)}


def test_without_a_folder_to_keep_them_in_nothing_fails(file: Path, monkeypatch: pytest.MonkeyPatch):
    (file.parent / "taken").write_text("a file")
    monkeypatch.setenv("STSBENCH_CACHE", str(file.parent / "taken"))
    keep(a=(0.0, 1.0))
    monkeypatch.delenv("STSBENCH_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    with known_means() as known:
        assert known == {}
