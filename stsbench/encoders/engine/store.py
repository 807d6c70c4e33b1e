"""The store: embeddings on disk, found again by what was embedded and by what.

One folder a fingerprint, and in it blocks: ``.npy`` files (never pickle) of one record, the keys
of some texts and then their embeddings, a key being 16 bytes of the text's hash. A block is
written whole, then renamed to the hash of its bytes, so that a killed run leaves whole blocks
or none, several processes can write at once, and a tampered or cut block is found, dropped and
encoded again. Of a block only the keys are kept in memory; its embeddings are memory-mapped
while rows of it are copied, so that a million embeddings are neither in memory nor a thousand
open files.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import OutputError
from stsbench.core.files import file_digest, remove, remove_stale, write_whole
from stsbench.encoders.base import FloatArray

KEY = np.dtype([("hi", "<u8"), ("lo", "<u8")])
BLOCK_BYTES = 16 << 20
FLUSH_SECONDS = 30.0
"""A killed run loses no more than this."""
Keys = npt.NDArray[Any]


def text_keys(texts: Sequence[str]) -> Keys:
    """The key of each text, a structured array (n,)."""
    raw = b"".join(hashlib.blake2b(t.encode("utf-8", "surrogatepass"), digest_size=16).digest() for t in texts)
    return np.frombuffer(raw, dtype=KEY)


@dataclass(eq=False)
class StoredBlock:
    """Rows written together: their keys (n,), and their embeddings in a file or, without one, in memory."""

    keys: Keys
    width: int
    path: Path | None = None
    rows: FloatArray | None = None
    checked: bool = True

    def embeddings(self) -> FloatArray:
        """All rows, (n, d); of a file, memory-mapped for as long as the array is kept.

        Raises OutputError: the file is gone or cannot be read.
        """
        if self.path is None:
            return np.asarray(self.rows)
        try:
            rows: FloatArray = _map(self.path)["embedding"][0]
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is damaged"
            raise OutputError(f"{self.path}: cannot be read again: {why}; run the same command to resume") from error
        return rows

    def is_sound(self) -> bool:
        """Whether the file's bytes have the hash that it is named by; looked at once."""
        if not self.checked and self.path is not None:
            try:
                there = self.path.stat()
            except FileNotFoundError:
                return False
            self.checked = _is_whole(self.path, there.st_mtime_ns, there.st_size)
        return self.checked


@lru_cache(maxsize=4096)
def _is_whole(path: Path, changed: int, size: int) -> bool:
    """Whether a block's bytes have the hash that it is named by; of one as it was, looked at once."""
    return file_digest(path)[:32] == path.stem


class _Index(NamedTuple):
    """All keys of all blocks in the order of their first half, and where the row of each is."""

    hi: npt.NDArray[np.uint64]
    lo: npt.NDArray[np.uint64]
    block_of: npt.NDArray[np.int32]
    row_of: npt.NDArray[np.int32]


class Watched(Protocol):
    """Who watches over stored embeddings: :class:`stsbench.encoders.engine.drift.Watch`."""

    said: str
    """What became of embeddings that were stored before; nothing where they are as they were."""

    @property
    def since(self) -> str:
        """When embeddings began anew; nothing where none were set aside."""

    def begin(self) -> None:
        """Embeddings are about to be written."""

    def complete(self) -> None:
        """What was wanted is embedded."""


class Shelf:
    """All stored embeddings of one encoder, by text; without a folder, kept in memory alone."""

    def __init__(self, folder: Path | None, watch: Watched | None = None, *, only_look: bool = False) -> None:
        """Open the shelf, making its folder if need be; with ``only_look`` nothing on disk is changed.

        Raises OutputError: the folder cannot be made or read.
        """
        self.folder, self.watch, self.only_look = folder, watch, only_look
        self.dropped = 0
        self._blocks: list[StoredBlock] = []
        self._index: _Index | None = None
        self._pending: list[tuple[Keys, FloatArray]] = []
        self._pending_bytes = 0
        self._flushed = time.monotonic()
        if folder is not None:
            try:
                if not only_look:
                    folder.mkdir(parents=True, exist_ok=True)
                    remove_stale(folder)
                self._open_blocks(folder)
            except OSError as error:
                raise OutputError(f"store '{folder}' cannot be used: {error.strerror}; pass --store DIR") from error

    @property
    def width(self) -> int | None:
        """The size of the embeddings, None as long as there are none."""
        if self._pending:
            return int(self._pending[0][1].shape[1])
        return self._blocks[0].width if self._blocks else None

    def _open_blocks(self, folder: Path) -> None:
        for path in sorted(folder.glob("*.npy")):
            block = _open_block(path)
            if block is not None and self.width in (None, block.width):
                self._blocks.append(block)
            else:
                self._discard(path)

    def _discard(self, path: Path | None) -> None:
        if path is not None and not self.only_look:
            remove(path)
        self.dropped += 1

    def find(self, keys: Keys) -> npt.NDArray[np.int64]:
        """Return where each key's row is in the index, (n,); -1 for a key without one.

        Blocks are checked against their hash when first needed; a bad one is dropped.
        """
        while True:
            index = self._indexed()
            at = _locate(index, keys)
            bad = [block for i in np.unique(index.block_of[at[at >= 0]]) if not (block := self._blocks[i]).is_sound()]
            if not bad:
                return at
            for block in bad:
                self._discard(block.path)
            self._blocks = [block for block in self._blocks if block not in bad]
            self._index = None

    def _indexed(self) -> _Index:
        """The index; of a key stored twice the first block's row comes first."""
        if self._index is None:
            keys = np.concatenate([np.empty(0, KEY), *(block.keys for block in self._blocks)])
            sizes = [len(block.keys) for block in self._blocks]
            block_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
            row_of = np.concatenate([np.empty(0, np.int32), *(np.arange(size, dtype=np.int32) for size in sizes)])
            order = np.argsort(keys["hi"], kind="stable")
            self._index = _Index(keys["hi"][order], keys["lo"][order], block_of[order], row_of[order])
        return self._index

    def add(self, keys: Keys, embeddings: FloatArray) -> None:
        """Add rows, (m,) keys and (m, d) embeddings; written when enough have come, or by :meth:`flush`."""
        self._pending.append((keys, embeddings))
        self._pending_bytes += embeddings.nbytes
        late = self.folder is not None and time.monotonic() - self._flushed > FLUSH_SECONDS
        if self._pending_bytes >= BLOCK_BYTES or late:
            self.flush()

    def flush(self) -> None:
        """Write what has been added since the last block.

        Raises OutputError: the disk is full or the folder cannot be written.
        """
        if self._pending:
            keys = np.concatenate([keys for keys, _ in self._pending])
            rows = np.concatenate([rows for _, rows in self._pending])
            if self.folder is None:
                block = StoredBlock(keys, rows.shape[1], rows=rows)
            else:
                if self.watch is not None:
                    self.watch.begin()
                block = StoredBlock(keys, rows.shape[1], path=_write_block(self.folder, keys, rows))
            self._blocks.append(block)
            self._index, self._pending, self._pending_bytes = None, [], 0
        self._flushed = time.monotonic()

    def view(self, keys: Keys) -> StoredEmbeddings:
        """Return a view of the rows of these keys, all of which must be there."""
        at = self.find(keys)
        if len(at) and at.min() < 0:
            raise KeyError("a key is not in the store")
        index = self._indexed()
        return StoredEmbeddings(tuple(self._blocks), index.block_of[at], index.row_of[at])


@dataclass(frozen=True)
class StoredEmbeddings:
    """A read-only (n, d) view of stored rows."""

    blocks: tuple[StoredBlock, ...]
    block_of: npt.NDArray[np.int32]
    row_of: npt.NDArray[np.int32]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.row_of)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and embedding size."""
        return len(self), self.blocks[0].width if self.blocks else 0

    def take(self, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Return these rows, (len(indices), d)."""
        block_of, row_of = self.block_of[indices], self.row_of[indices]
        rows = np.empty((len(row_of), self.shape[1]), dtype=np.float32)
        by_block = np.argsort(block_of, kind="stable")
        for here in np.split(by_block, np.flatnonzero(np.diff(block_of[by_block])) + 1):
            if len(here):
                rows[here] = self.blocks[block_of[here[0]]].embeddings()[row_of[here]]
        return rows

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        """Return all rows, (n, d)."""
        rows = self.take(np.arange(len(self)))
        return rows if dtype is None else rows.astype(dtype, copy=False)


def _locate(index: _Index, keys: Keys) -> npt.NDArray[np.int64]:
    if not len(index.hi):
        return np.full(len(keys), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(index.hi, keys["hi"]), len(index.hi) - 1)
    same = (index.hi[at] == keys["hi"]) & (index.lo[at] == keys["lo"])
    return np.where(same, at, -1)


def _write_block(folder: Path, keys: Keys, rows: FloatArray) -> Path:
    """Write a block under its hash: whole, synced, then renamed."""
    n, width = rows.shape
    record = np.empty(1, dtype=[("key", KEY, (n,)), ("embedding", "<f4", (n, width))])
    record["key"][0], record["embedding"][0] = keys, rows
    stream = io.BytesIO()
    np.save(stream, record, allow_pickle=False)
    content = stream.getbuffer()
    return write_whole(folder / f"{hashlib.sha256(content).hexdigest()[:32]}.npy", content)


def _map(path: Path) -> npt.NDArray[Any]:
    mapped: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def _open_block(path: Path) -> StoredBlock | None:
    """Read a block's keys; None for a file that is no block, cut short, or gone by now.

    Raises OSError: the file may be a block and cannot be read.
    """
    try:
        (record,) = _map(path)
        keys, (n, width) = np.array(record["key"]), record["embedding"].shape
        return StoredBlock(keys, width, path=path, checked=False) if keys.dtype == KEY and keys.shape == (n,) else None
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            return None
        raise
    except Exception:
        # A damaged header makes numpy's parser raise many kinds, tokenize.TokenError among them.
        return None
