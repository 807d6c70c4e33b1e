"""The store: embeddings on disk, found again by what was embedded and by what.

One folder a fingerprint, and in it blocks: ``.npy`` files (never pickle) of rows
``(key, embedding)``, a key being 16 bytes of the text's hash. A block is written whole, then
renamed to the hash of its bytes, so that a killed run leaves whole blocks or none, several
processes can write at once, and a tampered or cut block is found, dropped and encoded again.
Blocks are memory-mapped: a million embeddings are not a million embeddings in memory.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stsbench.data.verify import file_digest
from stsbench.encoders.seams import FloatArray
from stsbench.errors import OutputError
from stsbench.files import remove, write_whole

KEY = np.dtype([("hi", "<u8"), ("lo", "<u8")])
BLOCK_BYTES = 16 << 20
STALE_SECONDS = 24 * 3600
Keys = npt.NDArray[Any]


def text_keys(texts: Sequence[str]) -> Keys:
    """The key of each text, a structured array (n,)."""
    raw = b"".join(hashlib.blake2b(t.encode("utf-8", "surrogatepass"), digest_size=16).digest() for t in texts)
    return np.frombuffer(raw, dtype=KEY)


class Shelf:
    """All stored embeddings of one encoder, by text; without a folder, kept in memory alone."""

    def __init__(self, folder: Path | None) -> None:
        """Open the shelf, making its folder if need be.

        Raises:
            OutputError: the folder cannot be made or read.
        """
        self.folder = folder
        self._files: list[Path | None] = []
        self._blocks: list[npt.NDArray[Any]] = []
        self._trusted: list[bool] = []
        self._pending: list[tuple[Keys, FloatArray]] = []
        self._pending_bytes = 0
        self.dropped = 0
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._open_blocks(folder)
            except OSError as error:
                raise OutputError(f"store '{folder}' cannot be used: {error.strerror}; pass --store DIR") from error
        self._reindex()

    def _open_blocks(self, folder: Path) -> None:
        for path in sorted(folder.glob("*.npy")):
            try:
                block = np.load(path, mmap_mode="r", allow_pickle=False)
                whole = block.dtype.names == ("key", "embedding")
            except (ValueError, OSError, EOFError):
                whole = False
            if whole:
                self._append(path, block, trusted=False)
            else:
                self._discard(path)
        for path in folder.glob("*.partial"):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                remove(path)

    def _append(self, path: Path | None, block: npt.NDArray[Any], *, trusted: bool) -> None:
        self._files.append(path)
        self._blocks.append(block)
        self._trusted.append(trusted)

    def _discard(self, path: Path) -> None:
        remove(path)
        self.dropped += 1

    def _reindex(self) -> None:
        """Sort all keys once; of a key stored twice the first block's row is taken."""
        keys = [np.asarray(block["key"]) for block in self._blocks]
        joined = np.concatenate(keys) if keys else np.empty(0, KEY)
        order = np.argsort(joined["hi"], kind="stable")
        self._hi, self._lo = joined["hi"][order], joined["lo"][order]
        sizes = [len(k) for k in keys]
        self._block_of = np.repeat(np.arange(len(keys), dtype=np.int32), sizes)[order]
        self._row_of = np.concatenate([np.arange(s, dtype=np.int32) for s in sizes] or [np.empty(0, np.int32)])[order]

    def find(self, keys: Keys) -> npt.NDArray[np.int64]:
        """Return where each key's row is, (n,); -1 for a key without one.

        Blocks are checked against their hash when first needed; a bad one is dropped.
        """
        while True:
            at = self._locate(keys)
            bad = [b for b in np.unique(self._block_of[at[at >= 0]]).tolist() if not self._is_sound(b)]
            if not bad:
                return at
            for block in bad:
                path = self._files[block]
                if path is not None:
                    self._discard(path)
            keep = [i for i in range(len(self._blocks)) if i not in bad]
            self._files = [self._files[i] for i in keep]
            self._blocks = [self._blocks[i] for i in keep]
            self._trusted = [self._trusted[i] for i in keep]
            self._reindex()

    def _locate(self, keys: Keys) -> npt.NDArray[np.int64]:
        if not len(self._hi):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.searchsorted(self._hi, keys["hi"])
        at = np.minimum(at, len(self._hi) - 1)
        same = (self._hi[at] == keys["hi"]) & (self._lo[at] == keys["lo"])
        return np.where(same, at, -1)

    def _is_sound(self, block: int) -> bool:
        path = self._files[block]
        if not self._trusted[block] and path is not None:
            self._trusted[block] = path.is_file() and file_digest(path)[:32] == path.stem
        return self._trusted[block]

    def add(self, keys: Keys, embeddings: FloatArray) -> None:
        """Add rows, (m,) keys and (m, d) embeddings; written when enough have come, or by :meth:`flush`."""
        self._pending.append((keys, embeddings))
        self._pending_bytes += embeddings.nbytes
        if self._pending_bytes >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what has been added since the last block.

        Raises:
            OutputError: the disk is full or the folder cannot be written.
        """
        if not self._pending:
            return
        width = self._pending[0][1].shape[1]
        block = np.empty(
            sum(len(keys) for keys, _ in self._pending), dtype=[("key", KEY), ("embedding", "<f4", (width,))]
        )
        block["key"] = np.concatenate([keys for keys, _ in self._pending])
        block["embedding"] = np.concatenate([rows for _, rows in self._pending])
        self._pending, self._pending_bytes = [], 0
        if self.folder is None:
            self._append(None, block, trusted=True)
        else:
            path = _write_block(self.folder, block)
            self._append(path, np.load(path, mmap_mode="r", allow_pickle=False), trusted=True)
        self._reindex()

    def view(self, keys: Keys) -> StoredEmbeddings:
        """Return a view of the rows of these keys, all of which must be there."""
        at = self.find(keys)
        if len(at) and at.min() < 0:
            raise KeyError("a key is not in the store")
        return StoredEmbeddings(tuple(self._blocks), self._block_of[at], self._row_of[at])


@dataclass(frozen=True)
class StoredEmbeddings:
    """A read-only (n, d) view of stored rows."""

    blocks: tuple[npt.NDArray[Any], ...]
    block_of: npt.NDArray[np.int32]
    row_of: npt.NDArray[np.int32]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.row_of)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and embedding size."""
        width = self.blocks[int(self.block_of[0])]["embedding"].shape[1] if len(self) else 0
        return len(self), width

    def take(self, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Return these rows, (len(indices), d)."""
        block_of, row_of = self.block_of[indices], self.row_of[indices]
        rows = np.empty((len(row_of), self.shape[1]), dtype=np.float32)
        for block in np.unique(block_of).tolist():
            here = np.flatnonzero(block_of == block)
            rows[here] = self.blocks[block]["embedding"][row_of[here]]
        return rows

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        """Return all rows, (n, d)."""
        rows = self.take(np.arange(len(self)))
        return rows if dtype is None else rows.astype(dtype, copy=False)


def _write_block(folder: Path, block: npt.NDArray[Any]) -> Path:
    """Write a block under its hash: whole, synced, then renamed."""
    stream = io.BytesIO()
    np.save(stream, block, allow_pickle=False)
    content = stream.getbuffer()
    path = folder / f"{hashlib.sha256(content).hexdigest()[:32]}.npy"
    return write_whole(path, content)
