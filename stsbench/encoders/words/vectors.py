"""Word vector files, converted once to arrays on disk: millions of vectors are never in memory.

A converted folder holds ``vectors.npy`` (n, d) and ``words.txt``, one word a line in the file's
order. Three arrays find a word: its 64-bit hash in ``hashes.npy`` (n,), which is sorted, the row
at the same place of ``rows.npy`` (n,), and the word itself, at ``offsets.npy`` (n + 1,) of
``words.txt``: two words of one hash are told apart. Of a doubled word the first is found.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from stsbench import settings
from stsbench.encoders.checkpoints.sealed import is_sealed, seal
from stsbench.encoders.seams import FloatArray
from stsbench.encoders.words.vector_files import VectorBlock, read_blocks
from stsbench.errors import DataError, OutputError
from stsbench.files.whole import remove_stale, scratch_beside
from stsbench.provenance.identity import fingerprint

FORMAT = 1
"""Raise when a change here can change a converted folder."""


@dataclass(frozen=True, kw_only=True)
class WordVectors:
    """A converted folder: the index memory-mapped, the vectors (n, d) read as they are asked for."""

    path: Path
    shape: tuple[int, int]
    start: int
    """Where the first vector begins in the file."""
    hashes: npt.NDArray[np.uint64]
    rows: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    words: npt.NDArray[np.uint8]

    @classmethod
    def open(cls, folder: Path) -> WordVectors:
        """Map a converted folder; raises OSError or ValueError where it is missing or not whole."""
        hashes, rows, offsets = (_map(folder / name) for name in ("hashes.npy", "rows.npy", "offsets.npy"))
        words = np.asarray(np.memmap(folder / "words.txt", dtype=np.uint8, mode="r"))
        vectors = np.lib.format.open_memmap(folder / "vectors.npy", mode="r")
        n, d = vectors.shape
        if not len(hashes) == len(rows) == len(offsets) - 1 == n or offsets[-1] != len(words):
            raise ValueError(f"{folder} is not whole")
        return cls(
            path=folder / "vectors.npy",
            shape=(n, d),
            start=vectors.offset,
            hashes=hashes,
            rows=rows,
            offsets=offsets,
            words=words,
        )

    def find(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return each word's row, (len(words),); -1 for a word without a vector."""
        raw = [word.encode("utf-8", "surrogatepass") for word in words]
        hashes = _hashes(raw)
        places = np.searchsorted(self.hashes, hashes).tolist()
        found = map(self._match, raw, hashes.tolist(), places)
        return np.fromiter(found, dtype=np.int64, count=len(raw))

    def _match(self, word: bytes, wanted: int, place: int) -> int:
        """The first row of this word among those of its hash, which start at ``place``."""
        while place < len(self.hashes) and int(self.hashes[place]) == wanted:
            row = int(self.rows[place])
            # A line end is after every word.
            if self.words[self.offsets[row] : self.offsets[row + 1] - 1].tobytes() == word:
                return row
            place += 1
        return -1

    def take(self, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Return the vectors of these rows, (len(rows), d)."""
        vectors = np.empty((len(rows), self.shape[1]), dtype="<f4")
        # Read, not mapped: a map brings whole megabytes around each row into memory.
        with self.path.open("rb", buffering=0) as stream:
            for vector, row in zip(vectors, rows.tolist(), strict=True):
                stream.seek(self.start + row * vector.nbytes)
                if stream.readinto(vector.data) != vector.nbytes:
                    raise DataError(f"{self.path}: is cut short; remove its folder to have it made again")
        return vectors


def open_vectors(path: Path, *, sha256: str, limit: int | None = None) -> WordVectors:
    """Open a file's vectors, which is converted when it is first seen.

    Args:
        path: a text or ``.npz`` file.
        sha256: the hash of its bytes, by which the converted folder is found again.
        limit: how many vectors to take, from the file's start.

    Raises:
        DataError: the file is not as it must be; names the line.
        OutputError: the cache folder cannot be written.
    """
    key = fingerprint({"format": FORMAT, "file": sha256, "limit": limit})[:32]
    folder = settings.cache_folder() / "vectors" / key
    opened = _opened(folder)
    if opened is None:
        _convert(path, folder, limit)
    return opened or WordVectors.open(folder)


def _opened(folder: Path) -> WordVectors | None:
    try:
        # Not there, or damaged: a converted folder can always be made again.
        return WordVectors.open(folder) if is_sealed(folder) else None
    except (OSError, ValueError):
        return None


def _map(path: Path) -> npt.NDArray[Any]:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def word_hash(word: bytes) -> int:
    """The 64-bit hash of a word, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little")


def _hashes(words: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    return np.fromiter(map(word_hash, words), dtype=np.uint64, count=len(words))


def _convert(path: Path, folder: Path, limit: int | None) -> None:
    """Convert a file into a folder that is there whole or not at all; the file is read as a stream."""
    scratch = scratch_beside(folder)
    try:
        scratch.mkdir(parents=True)
        remove_stale(folder.parent)
        _write(scratch, read_blocks(path, limit))
        # Where another process was faster, its folder is as good as ours and may be in use.
        if _opened(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            scratch.rename(folder)
    except OSError as error:
        if _opened(folder) is None:
            where = error.filename or folder
            raise OutputError(f"{where}: {error.strerror}; free some space or set STSBENCH_CACHE elsewhere") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write(folder: Path, blocks: Iterable[VectorBlock]) -> None:
    hashes: list[npt.NDArray[np.uint64]] = []
    lengths: list[npt.NDArray[np.int64]] = []
    shape = (0, 0)
    with (folder / "vectors.npy").open("wb") as vectors, (folder / "words.txt").open("wb") as words:
        for block in blocks:
            if not hashes:
                _write_header(vectors, block.vectors.shape)
            vectors.write(np.ascontiguousarray(block.vectors, dtype="<f4").data)
            words.write(b"".join(word + b"\n" for word in block.words))
            hashes.append(_hashes(block.words))
            lengths.append(np.fromiter(map(len, block.words), dtype=np.int64, count=len(block.words)) + 1)
            shape = (shape[0] + len(block.words), block.vectors.shape[1])
        # How many there are is known at the end only; the header's length does not depend on it.
        vectors.seek(0)
        _write_header(vectors, shape)
    joined = np.concatenate(hashes)
    order = np.argsort(joined, kind="stable")
    np.save(folder / "hashes.npy", joined[order])
    np.save(folder / "rows.npy", order.astype(np.int32))
    np.save(folder / "offsets.npy", np.concatenate([[0], np.cumsum(np.concatenate(lengths))]))
    seal(folder)
    for written in folder.iterdir():
        with written.open("rb") as stream:
            os.fsync(stream.fileno())


def _write_header(stream: BinaryIO, shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
