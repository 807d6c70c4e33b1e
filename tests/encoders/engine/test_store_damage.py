from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stsbench.core.errors import OutputError
from stsbench.encoders.engine.store import Shelf, text_keys
from tests.encoders.engine.test_store import blocks, fill, held, rows_of, texts


def one_line(error: BaseException) -> str:
    message = str(error)
    assert "\n" not in message
    return message


# --- damage ---


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x55
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "header": lambda path: flip(path, 9),
    "key": lambda path: flip(path, -3 * (16 + 20)),
    "embedding": lambda path: flip(path, -1),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "cut to the header": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"0"),
    "empty": lambda path: path.write_bytes(b""),
    "foreign": lambda path: path.write_bytes(b"no array at all"),
    "other array": lambda path: np.save(path, np.zeros((3, 5), dtype=np.float32)),
    "pickle": lambda path: np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_block_is_dropped_and_the_others_kept(tmp_path, how):
    fill(Shelf(tmp_path), 3, 6, 9)
    assert held(Shelf(tmp_path), 9) == [True] * 9
    victim = blocks(tmp_path)[1]
    DAMAGE[how](victim)
    shelf = Shelf(tmp_path)
    there = held(shelf, 9)
    assert sum(there) == 6
    assert shelf.dropped == 1
    assert not victim.exists()
    lost = [i for i in range(9) if not there[i]]
    shelf.add(text_keys([f"sentence {i}" for i in lost]), np.concatenate([rows_of(i, i + 1) for i in lost]))
    shelf.flush()
    for reader in (shelf, Shelf(tmp_path)):
        assert np.asarray(reader.view(text_keys(texts(0, 9)))).tobytes() == rows_of(0, 9).tobytes()
    assert Shelf(tmp_path).dropped == 0


def test_a_flipped_bit_anywhere_is_found(tmp_path):
    fill(Shelf(tmp_path), 2)
    (path,) = blocks(tmp_path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        content = bytearray(whole)
        content[at] ^= 1 << (at % 8)
        path.write_bytes(content)
        shelf = Shelf(tmp_path)
        assert held(shelf, 2) == [False, False], at
        path.write_bytes(whole)
    assert held(Shelf(tmp_path), 2) == [True, True]


def test_a_block_of_another_size_is_dropped(tmp_path):
    fill(Shelf(tmp_path / "a"), 3)
    other = Shelf(tmp_path / "b")
    other.add(text_keys(["x"]), rows_of(0, 1, d=7))
    other.flush()
    for path in blocks(tmp_path / "b"):
        path.rename(tmp_path / "a" / path.name)
    shelf = Shelf(tmp_path / "a")
    assert (shelf.dropped, len(blocks(tmp_path / "a"))) == (1, 1)


def test_a_store_that_is_removed_under_way_is_one_line(tmp_path):
    fill(Shelf(tmp_path / "s"), 3)
    view = Shelf(tmp_path / "s").view(text_keys(texts(0, 3)))
    blocks(tmp_path / "s")[0].unlink()
    with pytest.raises(OutputError, match="cannot be read again") as caught:
        np.asarray(view)
    one_line(caught.value)


def test_unreadable_is_not_damaged(tmp_path, monkeypatch):
    fill(Shelf(tmp_path), 3)

    def refuse(*args: object, **options: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(np, "load", refuse)
    with pytest.raises(OutputError, match="cannot be used: Too many open files; pass --store DIR"):
        Shelf(tmp_path)
    assert len(blocks(tmp_path)) == 1


# --- half-written files ---


def test_partial_files_are_ignored_and_stale_ones_removed(tmp_path):
    fill(Shelf(tmp_path), 3)
    fresh, stale = tmp_path / "a.npy.17.partial", tmp_path / "b.npy.18.partial"
    for path in (fresh, stale):
        path.write_bytes(blocks(tmp_path)[0].read_bytes())
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(stale, (long_ago, long_ago))
    shelf = Shelf(tmp_path)
    assert (shelf.dropped, held(shelf, 3)) == (0, [True] * 3)
    assert fresh.exists()
    assert not stale.exists()


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch, failure):
    shelf = Shelf(tmp_path)
    fill(shelf, 3)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    shelf.add(text_keys(texts(3, 5)), rows_of(3, 5))

    def fail(fd: int) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises((OutputError, KeyboardInterrupt)) as caught:
            shelf.flush()
    if isinstance(caught.value, OutputError):
        assert one_line(caught.value) == f"{tmp_path}: the disk is full; free some space and run again"
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    # Once there is room, what was embedded is written after all.
    shelf.flush()
    assert held(Shelf(tmp_path), 5) == [True] * 5
