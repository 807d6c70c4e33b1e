"""Files of word vectors (GloVe text, word2vec and fastText text, ``.npz``), converted once to arrays on disk.

Text has a word and its d values a line, parted by single blanks; word2vec's and fastText's begin with a line ``n d``.
GloVe 840B has words with blanks: of a line with more fields than d + 1 the last d are the vector, unless the field
before them is a number too. Nothing is skipped: a line with too few or too many values, with something else than finite
numbers, a NUL byte or bad UTF-8 ends the reading. A header may promise fewer vectors than follow, never more.

A converted folder holds the vectors (n, d) as they follow, in ``vectors.f32``, so that millions are never in memory,
and what finds a word: the hashes of 120 bits, sorted, in ``keys.npy`` (n,), and their rows in ``rows.npy`` (n,). Of a
doubled word the first is found.
"""

from __future__ import annotations

import hashlib
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core import settings
from stsbench.core.errors import DataError
from stsbench.core.files import MAX_RATIO, MAX_UNPACKED_BYTES, check_is_file
from stsbench.core.provenance import fingerprint
from stsbench.core.wording import join_lines
from stsbench.encoders.base import FloatArray
from stsbench.encoders.checkpoint import is_sealed, sealed_folder

LINES = 2048
"""Lines of a text that are in memory at once."""
LONGEST_LINE = 1 << 20
_BOM = b"\xef\xbb\xbf"
_PACKED = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
_ODD_BLANKS = (b"  ", b"\t", b"\r", b"\v", b"\f")


class VectorBlock(NamedTuple):
    """Some words (m,) and their vectors (m, d), as they follow in the file."""

    words: list[str]
    vectors: FloatArray


def read_blocks(path: Path, limit: int | None = None) -> Iterator[VectorBlock]:
    """Read a file of word vectors, or the first ``limit``, in blocks; raises DataError, which names the line or row."""
    check_is_file(path)
    if path.suffix == ".npz":
        words, vectors = _npz_arrays(path)
        yield VectorBlock(words[:limit], vectors[:limit])
        return
    lines = _lines(path)
    first = next(lines, b"")
    fields, number, promised = first.split(), 1, 0
    width = first.rstrip().count(b" ")
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        promised, width = map(int, fields)
        number = 2
    else:
        lines = chain([first], lines)
    if width < 1:
        raise DataError(
            f"{path}: line 1: expected a word and its values, got '{_shown(b' '.join(fields))}'"
        )
    lines, count = islice(lines, limit), 0
    while block := list(islice(lines, LINES)):
        yield _block(block, width, path, number + count)
        count += len(block)
    if count < (promised if limit is None else min(promised, limit)):
        raise DataError(
            f"{path}: line 1 promises {promised} vectors, {count} follow; fetch the file again"
        )
    if not count:
        raise DataError(f"{path}: holds no word vectors")


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        head = stream.peek(8)
        if head.startswith(_PACKED):
            raise DataError(f"{path}: is packed; unpack it and give the text file in it")
        if head.startswith(_BOM):
            stream.read(len(_BOM))
        while line := stream.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise DataError(f"{path}: has a line of over a million bytes; is it text?")
            yield line.removesuffix(b"\n")


def _block(lines: list[bytes], width: int, path: Path, number: int) -> VectorBlock:
    """Read lines, the first of which has this number in the file; raises DataError naming a bad one."""
    split = [line.rstrip().partition(b" ") for line in lines]
    words, values = _text([word for word, _, _ in split]), [rest for _, _, rest in split]
    vectors = (
        _numbers(values, width) if all(one.count(b" ") == width - 1 for one in values) else None
    )
    if vectors is not None and words is not None:
        return VectorBlock(words, vectors)
    # One of them is bad, oddly spaced, or has blanks in its word: each is read by itself.
    each = [_read_line(line, width, f"{path}: line {number + at}") for at, line in enumerate(lines)]
    return VectorBlock([word for word, _ in each], np.concatenate([vector for _, vector in each]))


def _read_line(line: bytes, width: int, where: str) -> tuple[str, FloatArray]:
    if b"\0" in line:
        raise DataError(
            f"{where}: has a NUL byte; is it a binary file? Give vectors as text or .npz"
        )
    if _text([line]) is None:
        raise DataError(f"{where}: is not UTF-8 ('{_shown(line)}')")
    word, *fields = line.rstrip().rsplit(b" ", width)
    vector = _numbers([b" ".join(fields)], width)
    # The last part of a word with blanks is no number.
    if vector is not None and (b" " not in word or _numbers([word.rpartition(b" ")[2]], 1) is None):
        return word.decode(), vector
    first, *fields = line.rstrip().split(b" ")
    bad = [field for field in fields[-width:] if _numbers([field], 1) is None]
    if bad and len(fields) >= width:
        raise DataError(
            f"{where}: '{_shown(bad[0])}' is not a finite number (the word is '{_shown(first)}')"
        )
    raise DataError(
        f"{where}: {len(fields)} values, expected {width} (the word is '{_shown(first)}')"
    )


def _numbers(lines: list[bytes], width: int) -> FloatArray | None:
    """Values of some lines as numbers (len(lines), width); None where they are anything else."""
    joined = b" ".join(lines)
    if len(lines) > 1 and any(blank in joined for blank in _ODD_BLANKS):
        return None
    with warnings.catch_warnings():
        # An older numpy warns of what is no number, and leaves it out with all that follows.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            # As float64 first, as Python's float() and both papers' code read them.
            values = np.fromstring(joined, sep=" ")
        except (ValueError, DeprecationWarning):
            return None
    if values.size != len(lines) * width:
        return None
    with np.errstate(over="ignore"):
        vectors: FloatArray = values.astype(np.float32).reshape(len(lines), width)
    return vectors if np.isfinite(vectors).all() else None


def _text(words: list[bytes]) -> list[str] | None:
    try:
        joined = b"\n".join(words).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in joined else joined.split("\n")


def _shown(line: bytes) -> str:
    return line[:40].decode("utf-8", "replace")


def _npz_arrays(path: Path) -> VectorBlock:
    # The arrays ``words`` (n,) and ``vectors`` (n, d), float, without a pickle.
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(one.file_size for one in archive.infolist())
            if unpacked > max(MAX_UNPACKED_BYTES, MAX_RATIO * path.stat().st_size):
                raise DataError(f"{path}: refused to read: it unpacks to {unpacked >> 20:,} MiB")
        with np.load(path, allow_pickle=False) as arrays:
            words, vectors = arrays["words"], arrays["vectors"]
    except KeyError as error:
        raise DataError(
            f"{path}: {error.args[0]}; save arrays 'words' and 'vectors' with numpy.savez"
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, MemoryError) as error:
        raise DataError(f"{path}: is not a complete .npz file ({join_lines(error)})") from error
    if (
        words.dtype.kind != "U"
        or vectors.dtype.kind != "f"
        or words.ndim != 1
        or vectors.shape[:-1] != words.shape
    ):
        found = f"{words.dtype} {words.shape} and {vectors.dtype} {vectors.shape}"
        raise DataError(
            f"{path}: 'words' must be text (n,) and 'vectors' float (n, d); they are {found}"
        )
    with np.errstate(over="ignore"):
        vectors = vectors.astype(np.float32, copy=False)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise DataError(f"{path}: the vector of row {int(np.argmin(finite))} is not finite")
    if not len(words):
        raise DataError(f"{path}: holds no word vectors")
    return VectorBlock(words.tolist(), vectors)


FORMAT = 2
"""Raise when a change here can change a converted folder."""


@dataclass(frozen=True)
class WordVectors:
    """A converted folder: the index memory-mapped, the vectors (n, d) read as they are asked for."""

    path: Path
    shape: tuple[int, int]
    keys: npt.NDArray[np.bytes_]
    rows: npt.NDArray[np.int32]

    def find(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return each word's row, (len(words),); -1 for a word without a vector."""
        keys = _keys(words)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.rows[places], -1).astype(np.int64)

    def known(self, words: Iterable[str]) -> dict[str, int]:
        """Return the rows of those words that have a vector."""
        listed = sorted(set(words))
        return {
            word: row
            for word, row in zip(listed, self.find(listed).tolist(), strict=True)
            if row >= 0
        }

    def tabled(self, sentences: Sequence[Sequence[str]]) -> tuple[list[list[int]], FloatArray]:
        """Return the rows of each sentence's known words in a table of their vectors (words + 1, d), the last of which is zero."""
        known = self.known(chain.from_iterable(sentences))
        places = {word: place for place, word in enumerate(known)}
        table = np.pad(self.take(np.array([*known.values()], np.int64)), ((0, 1), (0, 0)))
        return [
            [places[word] for word in sentence if word in places] for sentence in sentences
        ], table

    def take(self, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Return the vectors of these rows, (len(rows), d)."""
        vectors = np.empty((len(rows), self.shape[1]), dtype="<f4")
        # Read, not mapped: a map brings whole megabytes around each row into memory.
        with self.path.open("rb", buffering=0) as stream:
            for vector, row in zip(vectors, rows.tolist(), strict=True):
                stream.seek(row * vector.nbytes)
                stream.readinto(vector.data)
        return vectors


def open_vectors(path: Path, *, sha256: str, limit: int | None = None) -> WordVectors:
    """Open a text or ``.npz`` file's vectors, or its first ``limit`` ones, which are converted when they are first seen.

    ``sha256`` is the hash of its bytes. Raises DataError: it is broken; OutputError: the cache cannot be written.
    """
    folder = (
        settings.cache_folder()
        / "vectors"
        / fingerprint({"format": FORMAT, "file": sha256, "limit": limit})[:32]
    )
    if not is_sealed(folder):
        with sealed_folder(folder) as scratch:
            keys = []
            with (scratch / "vectors.f32").open("wb") as vectors:
                for block in read_blocks(path, limit):
                    vectors.write(np.ascontiguousarray(block.vectors, dtype="<f4").data)
                    keys.append(_keys(block.words))
            joined = np.concatenate(keys)
            order = np.argsort(joined, kind="stable")
            np.save(scratch / "keys.npy", joined[order])
            np.save(scratch / "rows.npy", order.astype(np.int32))
    mapped = (
        np.load(folder / name, mmap_mode="r", allow_pickle=False)
        for name in ("keys.npy", "rows.npy")
    )
    found, rows = map(np.asarray, mapped)
    path = folder / "vectors.f32"
    return WordVectors(path, (len(rows), path.stat().st_size // (4 * len(rows))), found, rows)


def _keys(words: Sequence[str]) -> npt.NDArray[np.bytes_]:
    """The hash of each word, (len(words),), of 15 bytes and one that is not zero, since numpy takes off zeros."""
    encoded = (word.encode("utf-8", "surrogatepass") for word in words)
    return np.array(
        [hashlib.blake2b(word, digest_size=15).digest() + b"." for word in encoded], dtype="S16"
    )
