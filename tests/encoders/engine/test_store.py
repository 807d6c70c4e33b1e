from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.core.errors import OutputError
from stsbench.encoders.engine import store
from stsbench.encoders.engine.store import KEY, EmbeddingStore, text_keys

Array = np.ndarray[Any, np.dtype[np.float32]]


def texts(start: int, stop: int) -> list[str]:
    return [f"sentence {i}" for i in range(start, stop)]


def rows_of(start: int, stop: int, d: int = 5) -> Array:
    rows: Array = (np.arange(start, stop)[:, None] + np.arange(d) / 8).astype(np.float32)
    return rows


def fill(shelf: EmbeddingStore, *ends: int) -> None:
    """Add sentences from 0 up to each end in turn, a block each."""
    for start, stop in zip((0, *ends), ends, strict=False):
        shelf.add(text_keys(texts(start, stop)), rows_of(start, stop))
        shelf.flush()


def held(shelf: EmbeddingStore, n: int) -> list[bool]:
    return [bool(at >= 0) for at in shelf.find(text_keys(texts(0, n)))]


def blocks(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.npy"))


# --- what is put in comes out ---


@pytest.mark.parametrize("on_disk", [True, False])
def test_round_trip(tmp_path, on_disk):
    shelf = EmbeddingStore(tmp_path / "store" if on_disk else None)
    assert shelf.find(text_keys(["sentence 0"])).tolist() == [-1]
    fill(shelf, 3, 10, 11)
    view = shelf.view(text_keys(texts(0, 11)))
    assert view.shape == (11, 5)
    assert np.asarray(view).tobytes() == rows_of(0, 11).tobytes()
    assert np.asarray(view).dtype == np.float32
    assert np.asarray(view, dtype=np.float64).dtype == np.float64
    assert shelf.find(text_keys(["sentence 11", "sentence 10"])).min() == -1


def test_take_keeps_the_order_asked_for(tmp_path):
    shelf = EmbeddingStore(tmp_path)
    fill(shelf, 4, 9, 20)
    view = shelf.view(text_keys(["sentence 7", "sentence 0", "sentence 19", "sentence 7"]))
    assert view.take(np.array([3, 2, 0, 1, 1]))[:, 0].tolist() == [7, 19, 7, 0, 0]
    assert view.take(np.array([], dtype=np.int64)).shape == (0, 5)
    order = np.random.default_rng(0).permutation(20)
    view = shelf.view(text_keys([f"sentence {i}" for i in order]))
    assert np.asarray(view).tobytes() == rows_of(0, 20)[order].tobytes()


def test_any_text_has_its_own_key():
    odd = ["", " ", "a", "A", "a\n", "\ud83d", "\ud83d\ude00", "\U0001f600", "\x00", "é", "e\u0301"]
    keys = text_keys(odd)
    assert keys.dtype == KEY
    assert len(np.unique(keys)) == len(odd)
    assert text_keys(["é"]).tobytes() == hashlib.blake2b("é".encode(), digest_size=16).digest()


def test_a_text_stored_twice_has_one_row(tmp_path):
    shelf = EmbeddingStore(tmp_path)
    shelf.add(text_keys(["a"]), rows_of(1, 2))
    shelf.flush()
    shelf.add(text_keys(["a"]), rows_of(2, 3))
    shelf.flush()
    assert np.asarray(shelf.view(text_keys(["a", "a"])))[:, 0].tolist() == [1, 1]


def test_blocks_are_written_by_size_and_by_time(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "BLOCK_BYTES", 100)
    shelf = EmbeddingStore(tmp_path)
    shelf.add(text_keys(texts(0, 4)), rows_of(0, 4))
    assert blocks(tmp_path) == []
    assert shelf.width == 5
    shelf.add(text_keys(texts(4, 5)), rows_of(4, 5))
    assert len(blocks(tmp_path)) == 1
    monkeypatch.setattr(store, "FLUSH_SECONDS", -1.0)
    shelf.add(text_keys(texts(5, 6)), rows_of(5, 6))
    assert len(blocks(tmp_path)) == 2
    assert held(EmbeddingStore(tmp_path), 6) == [True] * 6


# --- several at once ---


def write_many(folder: Path, first: int) -> None:
    for start in range(first, first + 300, 10):
        shelf = EmbeddingStore(folder)
        shelf.add(text_keys(texts(start, start + 10)), rows_of(start, start + 10))
        shelf.flush()


def test_two_processes_write_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    # The second half of the first is the first half of the second.
    writers = [context.Process(target=write_many, args=(tmp_path, first)) for first in (0, 150)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    shelf = EmbeddingStore(tmp_path)
    assert np.asarray(shelf.view(text_keys(texts(0, 450)))).tobytes() == rows_of(0, 450).tobytes()
    assert not list(tmp_path.glob("*.partial"))


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
    fill(EmbeddingStore(tmp_path), 3, 6, 9)
    assert held(EmbeddingStore(tmp_path), 9) == [True] * 9
    victim = blocks(tmp_path)[1]
    DAMAGE[how](victim)
    shelf = EmbeddingStore(tmp_path)
    there = held(shelf, 9)
    assert sum(there) == 6
    assert not victim.exists()
    lost = [i for i in range(9) if not there[i]]
    shelf.add(
        text_keys([f"sentence {i}" for i in lost]),
        np.concatenate([rows_of(i, i + 1) for i in lost]),
    )
    shelf.flush()
    for reader in (shelf, EmbeddingStore(tmp_path)):
        assert np.asarray(reader.view(text_keys(texts(0, 9)))).tobytes() == rows_of(0, 9).tobytes()


def test_a_block_of_another_size_is_dropped(tmp_path):
    fill(EmbeddingStore(tmp_path / "a"), 3)
    other = EmbeddingStore(tmp_path / "b")
    other.add(text_keys(["x"]), rows_of(0, 1, d=7))
    other.flush()
    for path in blocks(tmp_path / "b"):
        path.rename(tmp_path / "a" / path.name)
    EmbeddingStore(tmp_path / "a")
    assert len(blocks(tmp_path / "a")) == 1


def test_a_store_that_is_removed_under_way_is_one_line(tmp_path):
    fill(EmbeddingStore(tmp_path / "s"), 3)
    view = EmbeddingStore(tmp_path / "s").view(text_keys(texts(0, 3)))
    (block,) = blocks(tmp_path / "s")
    block.unlink()
    with pytest.raises(OutputError, match=f"{block.name}: .* read again") as caught:
        np.asarray(view)
    one_line(caught.value)


def test_unreadable_is_not_damaged(tmp_path, monkeypatch):
    fill(EmbeddingStore(tmp_path), 3)

    def refuse(*args: object, **options: object) -> None:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(np, "load", refuse)
    with pytest.raises(OutputError, match="too many; .*`store=DIR`"):
        EmbeddingStore(tmp_path)
    assert len(blocks(tmp_path)) == 1


# --- half-written files ---


def test_partial_files_are_ignored_and_stale_ones_removed(tmp_path):
    fill(EmbeddingStore(tmp_path), 3)
    fresh, stale = tmp_path / "a.npy.17.partial", tmp_path / "b.npy.18.partial"
    for path in (fresh, stale):
        path.write_bytes(blocks(tmp_path)[0].read_bytes())
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(stale, (long_ago, long_ago))
    assert held(EmbeddingStore(tmp_path), 3) == [True] * 3
    assert fresh.exists()
    assert not stale.exists()


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch, failure):
    shelf = EmbeddingStore(tmp_path)
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
        message = one_line(caught.value)
        assert message.startswith(str(tmp_path))
        assert message.endswith(": the disk is full; free some space and run again")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    # Once there is room, what was embedded is written after all.
    shelf.flush()
    assert held(EmbeddingStore(tmp_path), 5) == [True] * 5
