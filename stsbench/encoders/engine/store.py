"""The store: embeddings on disk, looked up by the text and by the encoder.

There is one folder per fingerprint. It holds blocks: ``.npy`` files (never pickle) of one record,
which has the keys of some texts and then their embeddings. A key is 16 bytes of the text's hash. A
block is written completely, then renamed to the hash of its bytes. So a killed run leaves complete
blocks or none, several processes can write at the same time, and a damaged block is detected,
dropped and encoded again. Only keys are kept in memory; embeddings are memory-mapped while rows are
copied.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import OutputError
from stsbench.core.files import file_sha256, remove, remove_stale, write_atomically
from stsbench.encoders.base import Embeddings, FloatArray
from stsbench.encoders.engine.drift import DriftMonitor, archive_folder

KEY = np.dtype([("hi", "<u8"), ("lo", "<u8")])
"""The first and the second half of a text's hash, as two numbers."""
BLOCK_BYTES = 16 << 20
"""The size of the rows, in bytes, at which a block is written."""
FLUSH_SECONDS = 30.0
"""The maximum time between two blocks: a killed run loses no more than this."""
Keys = npt.NDArray[Any]
"""Keys of texts (n,), of the type ``KEY``."""


def text_keys(texts: Sequence[str]) -> Keys:
    """Return the key of each text, its 128-bit hash: an array (n,) with the fields of ``KEY``."""
    digests = [
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for text in texts
    ]
    return np.frombuffer(b"".join(digests), dtype=KEY)


@dataclass(eq=False)
class StoredBlock:
    """Rows that were written together, with their embeddings in a file or in memory."""

    keys: Keys
    """The keys of the rows, (n,)."""
    width: int
    """The size of an embedding."""
    path: Path | None = None
    """The file of the block; None if it is in memory."""
    rows: FloatArray | None = None
    """The embeddings (n, d) of a block in memory; None if it is in a file."""
    checked: bool = True
    """False for a block that was opened and whose bytes have not been hashed yet."""

    def embeddings(self) -> FloatArray:
        """Return the embeddings of all rows, (n, d).

        Those of a file are memory-mapped: they are read from disk when they are used.

        Raises:
            OutputError: The file was removed, or cannot be read.
        """
        if self.path is None:
            return np.asarray(self.rows)
        try:
            # The file is an array of one record, with the fields "key" and "embedding".
            return _memory_map(self.path)["embedding"][0]  # type: ignore[no-any-return]
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is damaged"
            raise OutputError(
                f"{self.path}: cannot be read again: {reason}; run the same command to resume"
            ) from error

    def is_sound(self) -> bool:
        """Return whether the bytes of the block's file have the hash by which the file is named.

        A file that passes is not hashed again. A block in memory always passes.
        """
        if not self.checked and self.path is not None:
            try:
                file_stat = self.path.stat()
            except FileNotFoundError:
                return False
            # Cached: a file of the same time and size is hashed once per process.
            self.checked = _has_hash_of_name(self.path, file_stat.st_mtime_ns, file_stat.st_size)
        return self.checked


@lru_cache(maxsize=4096)
def _has_hash_of_name(path: Path, modified_ns: int, size: int) -> bool:
    """Return whether a file is named by the hash of its bytes.

    The time of its last change and its size are keys of the cache: a changed file is hashed again.
    """
    return file_sha256(path)[:32] == path.stem


class _Index(NamedTuple):
    """All keys of all blocks, sorted by their first half, and the location of each row."""

    high: npt.NDArray[np.uint64]
    """The first halves of the keys, (n,)."""
    low: npt.NDArray[np.uint64]
    """Their second halves, (n,)."""
    block_indices: npt.NDArray[np.int32]
    """The index of each key's block, (n,)."""
    row_indices: npt.NDArray[np.int32]
    """The index of each key's row in its block, (n,)."""


class EmbeddingStore:
    """All stored embeddings of one encoder, by text; without a folder, in memory only."""

    def __init__(
        self, folder: Path | None, monitor: DriftMonitor | None = None, *, read_only: bool = False
    ) -> None:
        """Open the store of one encoder and find its blocks: files of embeddings, ``*.npy``.

        Blocks that are not valid are removed, and so are those whose embeddings have another size
        than those of the first block. Other files are left, except for files that killed processes
        left half written.

        Args:
            folder: The folder of the encoder; None keeps the embeddings in memory only.
            monitor: Checks whether the encoder still embeds as it did when these embeddings were
                stored; None if nothing checks it.
            read_only: Change nothing on disk: neither make the folder nor remove files.

        Raises:
            OutputError: The folder cannot be made or read.
        """
        self.folder = folder
        self.monitor = monitor
        self.read_only = read_only
        self._blocks: list[StoredBlock] = []
        # All keys, sorted; None until a key is searched, and after blocks have changed.
        self._index: _Index | None = None
        # The embeddings that are not yet written as a block, with the keys of their texts.
        self._pending: list[tuple[Keys, FloatArray]] = []
        # The time at which pending rows were last written.
        self._flush_time = time.monotonic()
        if folder is None:
            return
        try:
            if not read_only:
                folder.mkdir(parents=True, exist_ok=True)
                remove_stale(folder)
            for path in sorted(folder.glob("*.npy")):
                # None if the file is no valid block.
                block = _open_block(path)
                # Embeddings of another size are of another state of the encoder. The property
                # `width` is the size of those in the first block; None while there is no block.
                if block is not None and self.width in (None, block.width):
                    self._blocks.append(block)
                else:
                    self._remove_unless_read_only(path)
        except OSError as error:
            raise OutputError(
                f"store '{folder}' cannot be used: {error.strerror}", hint="pass `store=DIR`"
            ) from error

    @property
    def width(self) -> int | None:
        """The size of the embeddings; None if there are none yet."""
        if self._pending:
            _, first_rows = self._pending[0]
            return int(first_rows.shape[1])
        return self._blocks[0].width if self._blocks else None

    def _remove_unless_read_only(self, path: Path | None) -> None:
        """Remove the file of a block, unless the store is read-only or the block has no file."""
        if path is not None and not self.read_only:
            remove(path)

    def find(self, keys: Keys) -> npt.NDArray[np.int64]:
        """Return where each text is in the index of stored embeddings, (n,); -1 if it is not.

        The index is sorted by key, and a key is the 128-bit hash of a text. Embeddings are stored
        in blocks, which are files named by the hash of their bytes. A block is hashed when it is
        first needed. If its bytes have another hash than its name, it is damaged: it is dropped,
        and the search is repeated.

        Args:
            keys: The keys of the texts, (n,), from :func:`text_keys`: records of two numbers, the
                halves ``hi`` and ``lo`` of a hash.
        """
        while True:
            index = self._current_index()
            n_stored = len(index.high)
            if not n_stored:
                return np.full(len(keys), -1, dtype=np.int64)
            # The index is sorted by the first halves of the keys only. Two texts hardly ever share
            # a first half, so the second half at this position is compared and not searched.
            positions = np.minimum(np.searchsorted(index.high, keys["hi"]), n_stored - 1)
            is_found = (index.high[positions] == keys["hi"]) & (index.low[positions] == keys["lo"])
            positions = np.where(is_found, positions, -1)
            # The blocks that hold a key that was found, each once.
            block_numbers = np.unique(index.block_indices[positions[positions >= 0]])
            blocks = [self._blocks[number] for number in block_numbers]
            damaged_blocks = [block for block in blocks if not block.is_sound()]
            if not damaged_blocks:
                return positions
            for block in damaged_blocks:
                self._remove_unless_read_only(block.path)
            self._blocks = [block for block in self._blocks if block not in damaged_blocks]
            # Makes _current_index compute it anew.
            self._index = None

    def _current_index(self) -> _Index:
        """Return the index of all stored rows, which is computed anew if blocks have changed.

        It has the two halves of each key (the hash of a text), sorted by the first half, and for
        each key the number of its block and of its row in this block. If a key is stored twice,
        the row of the first block comes first.
        """
        if self._index is None:
            keys = np.concatenate([np.empty(0, KEY), *(block.keys for block in self._blocks)])
            sizes = [len(block.keys) for block in self._blocks]
            block_indices = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
            rows_of_blocks = [np.arange(size, dtype=np.int32) for size in sizes]
            row_indices = np.concatenate([np.empty(0, np.int32), *rows_of_blocks])
            order = np.argsort(keys["hi"], kind="stable")
            self._index = _Index(
                high=keys["hi"][order],
                low=keys["lo"][order],
                block_indices=block_indices[order],
                row_indices=row_indices[order],
            )
        return self._index

    def add(self, keys: Keys, embeddings: FloatArray) -> None:
        """Add embeddings to those that wait in memory.

        All that wait become one block if they are large enough, or if the last block was written
        some time ago. With a folder a block is a file; a store without one keeps blocks in memory.

        Args:
            keys: The keys of the texts, (m,): their hashes.
            embeddings: The embeddings of these texts, (m, d).
        """
        self._pending.append((keys, embeddings))
        is_due = self.folder is not None and time.monotonic() - self._flush_time > FLUSH_SECONDS
        if is_due or sum(rows.nbytes for _, rows in self._pending) >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the embeddings that wait in memory to disk, as one file, a block.

        A store without a folder keeps the block in memory. Nothing happens if none wait.

        Raises:
            OutputError: The block cannot be written.
        """
        if self._pending:
            keys = np.concatenate([keys for keys, _ in self._pending])
            rows = np.concatenate([rows for _, rows in self._pending])
            if self.folder is None:
                block = StoredBlock(keys, rows.shape[1], rows=rows)
            else:
                block = _write_block(self.folder, keys, rows)
            self._blocks.append(block)
            # The index of all rows is computed anew when it is next needed.
            self._index = None
            self._pending = []
        self._flush_time = time.monotonic()

    def archive(self) -> None:
        """Rename the folder, so that its embeddings are not used again, and be empty from now on.

        The embeddings that wait in memory to be written are dropped.

        Raises:
            OutputError: The folder cannot be renamed.
        """
        self._blocks = []
        self._index = None
        self._pending = []
        if self.folder is not None:
            archive_folder(self.folder)

    def view(self, keys: Keys) -> StoredEmbeddings:
        """Return a view of the embeddings of some texts, all of which must be stored.

        Args:
            keys: The keys of the texts, (n,): their hashes.

        Raises:
            KeyError: A text is not stored.
        """
        # The position of each key in the index; -1 if it is not stored.
        positions = self.find(keys)
        if len(positions) and positions.min() < 0:
            raise KeyError("a key is not in the store")
        index = self._current_index()
        return StoredEmbeddings(
            tuple(self._blocks), index.block_indices[positions], index.row_indices[positions]
        )


@dataclass(frozen=True)
class StoredEmbeddings(Embeddings):
    """A read-only (n, d) view of stored rows.

    Attributes:
        blocks: All blocks of the store.
        block_indices: The index of each row's block, (n,).
        row_indices: The index of each row in its block, (n,).
    """

    blocks: tuple[StoredBlock, ...]
    block_indices: npt.NDArray[np.int32]
    row_indices: npt.NDArray[np.int32]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and the size of an embedding."""
        return len(self.row_indices), self.blocks[0].width if self.blocks else 0

    def take(self, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Return some embeddings of the view, (m, d), in the order of the indices.

        Args:
            indices: The numbers of the embeddings in the view, (m,).
        """
        # For each embedding the file (block) that holds it, and its row there. Each block is
        # opened once, and all its rows are read together.
        block_indices = self.block_indices[indices]
        row_indices = self.row_indices[indices]
        rows = np.empty((len(row_indices), self.shape[1]), dtype=np.float32)
        order_by_block = np.argsort(block_indices, kind="stable")
        block_starts = np.flatnonzero(np.diff(block_indices[order_by_block])) + 1
        # The positions among the requested embeddings, split where another block begins.
        for positions in np.split(order_by_block, block_starts):
            if len(positions):
                block = self.blocks[block_indices[positions[0]]]
                rows[positions] = block.embeddings()[row_indices[positions]]
        return rows


def _memory_map(path: Path) -> npt.NDArray[Any]:
    """Return the array of a file, of which only what is used is read."""
    return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]


def _write_block(folder: Path, keys: Keys, rows: FloatArray) -> StoredBlock:
    """Write embeddings and the keys of their texts to a file, a block of the store.

    The file is named by the hash of its bytes.

    Args:
        folder: The folder of the store.
        keys: The keys of the texts, (n,): their 128-bit hashes, of the type ``KEY``, which is a
            record of two numbers of 64 bits.
        rows: The embeddings of these texts, (n, d).

    Returns:
        The block: its keys, the size of its embeddings and the path of its file.

    Raises:
        OutputError: The file cannot be written.
    """
    n, width = rows.shape
    # One record holds both arrays, so that one memory-mapped file has all.
    record = np.empty(1, dtype=[("key", KEY, (n,)), ("embedding", "<f4", (n, width))])
    record["key"][0] = keys
    record["embedding"][0] = rows
    stream = io.BytesIO()
    np.save(stream, record, allow_pickle=False)
    content = stream.getbuffer()
    path = folder / f"{hashlib.sha256(content).hexdigest()[:32]}.npy"
    return StoredBlock(keys, width, path=write_atomically(path, content))


def _open_block(path: Path) -> StoredBlock | None:
    """Open a file of stored embeddings, a block, and read only the keys of its texts.

    Its embeddings are read when they are used. Whether its bytes are undamaged is checked later.

    Returns:
        None if the file is no block, was cut short, or does not exist any more.

    Raises:
        OSError: The file may be a block and cannot be read.
    """
    try:
        # The file is an array of one record, with the fields "key" and "embedding".
        (record,) = _memory_map(path)
        keys = np.array(record["key"])
        n, width = record["embedding"].shape
        is_block = keys.dtype == KEY and keys.shape == (n,)
        if not is_block:
            return None
        return StoredBlock(keys, width, path=path, checked=False)
    except FileNotFoundError:
        return None
    except OSError:
        raise
    except Exception:
        # If the beginning of the file is damaged, numpy raises errors of many types, for example
        # tokenize.TokenError.
        return None
