"""A sealed folder: what changed is seen, and what is large is not hashed at each opening."""

import os
import time
from pathlib import Path

import pytest

from stsbench.data.verify import file_digest
from stsbench.encoders.checkpoints import digest_cache, sealed
from stsbench.encoders.checkpoints.sealed import is_sealed, seal


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sealed folder of an old file that counts as large."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sealed, "LARGE", 4)
    # What is younger than two seconds is not remembered: here nothing is young.
    monkeypatch.setattr(time, "time_ns", lambda: 2**62)
    made = tmp_path / "made"
    made.mkdir()
    (made / "vectors.npy").write_bytes(b"12345")
    seal(made)
    assert is_sealed(made)
    return made


def count_hashes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    hashed: list[Path] = []

    def counted(path: Path) -> str:
        hashed.append(path)
        return file_digest(path)

    monkeypatch.setattr(digest_cache, "file_digest", counted)
    return hashed


@pytest.mark.skipif(os.name != "posix", reason="no time there that programs cannot set")
def test_a_large_file_is_hashed_once(folder, monkeypatch):
    hashed = count_hashes(monkeypatch)
    assert is_sealed(folder) and is_sealed(folder) and hashed == []


def test_an_edit_that_keeps_size_and_date_is_seen(folder):
    path = folder / "vectors.npy"
    before = path.stat()
    path.write_bytes(b"54321")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not is_sealed(folder)


def test_a_file_in_its_place_is_seen(folder):
    other = folder / "other"
    other.write_bytes(b"54321")
    other.replace(folder / "vectors.npy")
    assert not is_sealed(folder)


def test_a_file_that_is_gone_is_seen(folder):
    (folder / "vectors.npy").unlink()
    assert not is_sealed(folder)
