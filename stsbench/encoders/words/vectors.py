"""Files of word vectors (GloVe, word2vec and fastText text, ``.npz``), converted once to arrays.

A line of a text has a word and its d values, with single blanks between them; word2vec's and
fastText's text begins with a line ``n d``. GloVe 840B has words with blanks: of a line with more
than d + 1 fields the last d are the vector, unless the field before them is a number too. Nothing
is skipped: a line with too few or too many values, with a value that is no finite number, a NUL
byte or bad UTF-8 ends the reading. A header may promise fewer vectors than follow, never more.

A converted folder holds the vectors (n, d) in their order, in ``vectors.f32``, so that millions are
never in memory, and an index of the words: their hashes of 120 bits, sorted, in ``keys.npy`` (n,),
and their rows in ``rows.npy`` (n,). Of a word that is there twice, the first is found.
"""

from __future__ import annotations

import hashlib
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core import settings
from stsbench.core.errors import DataError, translate_errors
from stsbench.core.files import limit_bytes, refuse_special_file
from stsbench.core.provenance import fingerprint
from stsbench.core.wording import format_repr
from stsbench.encoders.base import FloatArray
from stsbench.encoders.cached_files import is_sealed, sealed_folder

READ_ROWS = 2048
"""The number of lines of a text that are in memory at once."""
MAX_LINE_BYTES = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_COMPRESSED_FILE_PREFIXES = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
_BLANKS_OTHER_THAN_A_SPACE = (b"  ", b"\t", b"\r", b"\v", b"\f")


class VectorBlock(NamedTuple):
    """Some words (m,) and their vectors (m, d), in the order of the file."""

    words: list[str]
    vectors: FloatArray


def read_blocks(path: Path, limit: int | None) -> Iterator[VectorBlock]:
    """Yield the words and vectors of a file in blocks, in the order of the file.

    A text file has one word and its values per line. That of word2vec and fastText begins with a
    line of two numbers, the number of words and of values. If more words follow than it promises,
    all are read. A ``.npz`` file is one block.

    Args:
        path: A text or ``.npz`` file.
        limit: The number of vectors to read, from the file's start; None for all.

    Raises:
        DataError: The file is broken, has no vectors, or has fewer than its first line promises.
    """
    refuse_special_file(path)
    if path.suffix == ".npz":
        problem = (
            f"{path}: is not a complete .npz file of plain arrays "
            "(save words as numpy.array(words, dtype=str))"
        )
        # Numpy and zipfile raise errors of many kinds for a damaged file.
        with translate_errors(problem, DataError):
            words, vectors = _read_npz(path)
        yield VectorBlock(words[:limit], vectors[:limit])
        return
    lines = _iter_lines(path)
    first_line = next(lines, b"")
    fields = first_line.split()
    # The number of values: a line has as many single blanks, one before each value.
    width = first_line.rstrip().count(b" ")
    # The number of the first line with a vector.
    first_number = 1
    # A file without a header promises nothing.
    n_promised = 0
    # Without a header the first line has a vector too, and is put back before the others.
    has_header = len(fields) == 2 and all(field.isdigit() for field in fields)
    if has_header:
        # Python reads no number of thousands of digits; the first 20 are too large a number too.
        n_promised, width = (int(field[:20]) for field in fields)
        first_number = 2
    else:
        lines = chain([first_line], lines)
    if not 1 <= width <= MAX_LINE_BYTES:
        raise DataError(
            f"{path}: line 1: expected a word and its values, with single blanks between them, "
            f"got {format_repr(_format_bytes(first_line))}"
        )
    lines = islice(lines, limit)
    n_read = 0
    while block_lines := list(islice(lines, READ_ROWS)):
        yield _parse_block(block_lines, width, path, first_number=first_number + n_read)
        n_read += len(block_lines)
    n_expected = n_promised if limit is None else min(n_promised, limit)
    if n_read < n_expected:
        raise DataError(
            f"{path}: line 1 promises {_format_bytes(fields[0])} vectors, {n_read} follow; "
            "fetch the file again"
        )
    if not n_read:
        raise DataError(f"{path}: holds no word vectors")


def _iter_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a text file, without line ends and without a byte order mark.

    Raises:
        DataError: The file is compressed, or has a line too long for text.
    """
    with path.open("rb") as stream:
        prefix = stream.peek(8)
        if prefix.startswith(_COMPRESSED_FILE_PREFIXES):
            raise DataError(f"{path}: is packed; unpack it and give the text file in it")
        if prefix.startswith(_BYTE_ORDER_MARK):
            stream.read(len(_BYTE_ORDER_MARK))
        while line := stream.readline(MAX_LINE_BYTES):
            if len(line) == MAX_LINE_BYTES:
                raise DataError(f"{path}: has a line of over a million bytes; is it text?")
            yield line.removesuffix(b"\n")


def _parse_block(lines: list[bytes], width: int, path: Path, first_number: int) -> VectorBlock:
    """Return the words and vectors of some lines, each a word and its values.

    All lines are parsed together, which is fast. If that fails, each is parsed by itself, to find
    the one that is not valid, or because a word has blanks in it.

    Args:
        lines: Lines of the file, without their ends.
        width: The number of values of a vector.
        path: The file, for messages.
        first_number: The number of the first line in the file.

    Raises:
        DataError: A line is not valid; the message names it.
    """
    splits = [line.rstrip().partition(b" ") for line in lines]
    # None if a word is not UTF-8 or has a NUL byte.
    words = _decode_words([word for word, _, _ in splits])
    values = [rest for _, _, rest in splits]
    vectors = None
    if all(text.count(b" ") == width - 1 for text in values):
        # None if the values are not finite numbers with single spaces between them.
        vectors = _parse_numbers(values, width)
    if vectors is not None and words is not None:
        return VectorBlock(words, vectors)
    words = []
    rows = []
    for number, line in enumerate(lines, first_number):
        # Raises for a line that is not valid; ``row`` is (1, width).
        word, row = _parse_line(line, width, f"{path}: line {number}")
        words.append(word)
        rows.append(row)
    return VectorBlock(words, np.concatenate(rows))


def _parse_line(line: bytes, width: int, position: str) -> tuple[str, FloatArray]:
    """Return the word of a line, which may have blanks in it, and its vector (1, width).

    Args:
        line: The line, without its end.
        width: The number of values that it must have.
        position: The file and the number of the line, for messages.

    Raises:
        DataError: The line has a NUL byte, is not UTF-8, has a value that is no finite number, or
            has fewer or more values than ``width``. The message names the first of these.
    """
    if b"\0" in line:
        raise DataError(
            f"{position}: has a NUL byte; is it a binary file? Give vectors as text or .npz"
        )
    if _decode_words([line]) is None:
        raise DataError(f"{position}: is not UTF-8 ('{_format_bytes(line)}')")
    # Split from the right, because GloVe has a few words with blanks in them.
    word, *values = line.rstrip().rsplit(b" ", width)
    # None if there are not ``width`` finite numbers.
    vector = _parse_numbers([b" ".join(values)], width)
    # If the word has blanks and ends with a number, the line rather has one value too many.
    word_end = word.rpartition(b" ")[2]
    has_too_many_values = b" " in word and _parse_numbers([word_end], width=1) is not None
    if vector is not None and not has_too_many_values:
        return word.decode(), vector
    # The line is not valid. For the message, its first field is taken as the word.
    first_field, *fields = line.rstrip().split(b" ")
    label = f"the word is '{_format_bytes(first_field)}'"
    bad_fields = [field for field in fields[-width:] if _parse_numbers([field], width=1) is None]
    # If there are too few fields, one that is no number may be part of the word: then only the
    # number of fields is reported, below.
    if bad_fields and len(fields) >= width:
        raise DataError(
            f"{position}: '{_format_bytes(bad_fields[0])}' is not a finite number ({label})"
        )
    raise DataError(f"{position}: {len(fields)} values, expected {width} ({label})")


def _parse_numbers(lines: list[bytes], width: int) -> FloatArray | None:
    """Return the values of some lines as float32, (n, width).

    Args:
        lines: n lines without their words: values with single blanks between them.
        width: The number of values that each line must have.

    Returns:
        None if a value is no finite number, if there are other blanks than single spaces between
        several lines' values, or if the number of values is wrong.
    """
    # All are parsed at once, as one line.
    joined = b" ".join(lines)
    if len(lines) > 1 and any(blank in joined for blank in _BLANKS_OTHER_THAN_A_SPACE):
        return None
    with warnings.catch_warnings():
        # For a text that is no number, an older numpy only warns, and ignores it and all that
        # follows. The warning becomes an error.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            # Read as float64 first, as Python's float() and the code of GloVe and word2vec do.
            values = np.fromstring(joined, sep=" ")
        except (ValueError, DeprecationWarning):
            return None
    if values.size != len(lines) * width:
        return None
    with np.errstate(over="ignore"):
        vectors: FloatArray = values.astype(np.float32).reshape(len(lines), width)
    return vectors if np.isfinite(vectors).all() else None


def _decode_words(words: list[bytes]) -> list[str] | None:
    """Return words as text; None if one is not UTF-8 or has a NUL byte."""
    try:
        joined = b"\n".join(words).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in joined else joined.split("\n")


def _format_bytes(line: bytes) -> str:
    return line[:40].decode("utf-8", "replace")


def _read_npz(path: Path) -> VectorBlock:
    """Read the words (n,) and the vectors (n, d) of a ``.npz`` file, after checks.

    They are its arrays ``words`` and ``vectors``. No code in the file is run.

    Raises:
        DataError: The file unpacks to too many bytes, or has other arrays.
        Exception: Whatever numpy and zipfile raise for a damaged file.
    """
    with zipfile.ZipFile(path) as archive:
        # Raises if the archive unpacks to more than the memory may hold; the members are not used.
        members = archive.infolist()
        list(limit_bytes(members, path, where=str(path), size=lambda member: member.file_size))
    with np.load(path, allow_pickle=False) as arrays:
        for name in ("words", "vectors"):
            if name not in arrays:
                raise DataError(
                    f"{path}: {name} is not a file in the archive; "
                    "save arrays 'words' and 'vectors' with numpy.savez"
                )
        words, vectors = arrays["words"], arrays["vectors"]
    has_types = words.dtype.kind == "U" and vectors.dtype.kind == "f"
    if not has_types or words.ndim != 1 or vectors.shape[:-1] != words.shape:
        raise DataError(
            f"{path}: 'words' must be text (n,) and 'vectors' float (n, d); they are "
            f"{words.dtype} {words.shape} and {vectors.dtype} {vectors.shape}"
        )
    with np.errstate(over="ignore"):
        vectors = vectors.astype(np.float32, copy=False)
    is_finite = np.isfinite(vectors).all(axis=1)
    if not is_finite.all():
        raise DataError(f"{path}: the vector of row {int(np.argmin(is_finite))} is not finite")
    if not vectors.size:
        raise DataError(f"{path}: holds no word vectors")
    return VectorBlock(words.tolist(), vectors)


CONVERTED_FORMAT = 2
"""To be raised with a change here that can change a converted folder."""


class WordTable(NamedTuple):
    """The vectors of the words of some sentences, and their rows."""

    rows: list[list[int]]
    """The rows of each sentence's known words."""
    vectors: FloatArray
    """The vectors of all known words, (words + 1, d), of which the last is zero."""


@dataclass(frozen=True)
class WordVectors:
    """A converted folder: the index is memory-mapped, vectors are read from the file when taken.

    Attributes:
        path: The file of the vectors.
        shape: The number of words and the size of a vector.
        keys: The hashes of the words, sorted, (n,).
        rows: The row of each hash, (n,).
    """

    path: Path
    shape: tuple[int, int]
    keys: npt.NDArray[np.bytes_]
    rows: npt.NDArray[np.int32]

    def find(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the row of each word, (len(words),); -1 for a word without a vector."""
        keys = _hash_words(words)
        positions = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        is_known = self.keys[positions] == keys
        return np.where(is_known, self.rows[positions], -1).astype(np.int64)

    def find_known(self, words: Iterable[str]) -> dict[str, int]:
        """Return the rows of those words that have a vector, by word."""
        distinct_words = sorted(set(words))
        rows = self.find(distinct_words).tolist()
        return {word: row for word, row in zip(distinct_words, rows, strict=True) if row >= 0}

    def make_table(self, sentences: Sequence[Sequence[str]]) -> WordTable:
        """Read the vectors of all words of some sentences into one table.

        Args:
            sentences: The words of each sentence.

        Returns:
            For each sentence the rows of its words in the table, without the words that have no
            vector; and the table, (words + 1, d), whose last row is zero, for padding.
        """
        # By word the row in the file of vectors, for each distinct word that has one.
        file_rows = self.find_known(chain.from_iterable(sentences))
        vectors = self.take(np.array([*file_rows.values()], np.int64))
        table_rows = {word: row for row, word in enumerate(file_rows)}
        rows_of_sentences = [
            [table_rows[word] for word in sentence if word in table_rows] for sentence in sentences
        ]
        # One row of zeros is added at the end.
        return WordTable(rows_of_sentences, np.pad(vectors, ((0, 1), (0, 0))))

    def take(self, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Return the vectors of these rows of the file, (len(rows), d).

        ``self.path`` is a file without a header: one vector after the other, as float32.
        ``self.shape`` is (number of words, d).
        """
        vectors = np.empty((len(rows), self.shape[1]), dtype="<f4")
        # Read and not memory-mapped: mapping would load megabytes around each row into memory.
        with self.path.open("rb", buffering=0) as stream:
            for vector, row in zip(vectors, rows.tolist(), strict=True):
                stream.seek(row * vector.nbytes)
                stream.readinto(vector.data)
        return vectors


def open_vectors(path: Path, *, sha256: str, limit: int | None = None) -> WordVectors:
    """Open the vectors of a file for look-ups by word.

    The first time, the file is converted into arrays in the cache folder.

    Args:
        path: A text or ``.npz`` file.
        sha256: The hash of its bytes.
        limit: The number of vectors, from the file's start; None for all.

    Raises:
        DataError: The file is broken.
        OutputError: The cache folder cannot be written.
    """
    folder_name = fingerprint({"format": CONVERTED_FORMAT, "file": sha256, "limit": limit})[:32]
    folder = settings.cache_folder() / "vectors" / folder_name
    # A sealed folder is complete, and its files have not changed since. The scratch folder gets the
    # name ``folder`` when all files are written.
    if not is_sealed(folder):
        with sealed_folder(folder) as scratch:
            _write_converted_folder(path, limit, scratch)
    word_hashes = np.asarray(np.load(folder / "keys.npy", mmap_mode="r", allow_pickle=False))
    rows_of_hashes = np.asarray(np.load(folder / "rows.npy", mmap_mode="r", allow_pickle=False))
    n_words = len(rows_of_hashes)
    vectors_path = folder / "vectors.f32"
    # The file has no header, only float32 of 4 bytes, one row per word.
    size = vectors_path.stat().st_size // (4 * n_words)
    return WordVectors(vectors_path, (n_words, size), keys=word_hashes, rows=rows_of_hashes)


def _write_converted_folder(path: Path, limit: int | None, folder: Path) -> None:
    """Write the vectors of a file as an array, and an index of its words, into a folder.

    The files are ``vectors.f32``, the vectors (n, d) in their order; ``keys.npy``, the hashes of
    the words (n,), sorted; and ``rows.npy``, the row of the vector for each hash (n,).

    Args:
        path: A text or ``.npz`` file of word vectors.
        limit: The number of vectors to read, from the file's start; None for all.
        folder: The folder to write into.
    """
    keys_of_blocks = []
    with (folder / "vectors.f32").open("wb") as stream:
        for block in read_blocks(path, limit):
            stream.write(np.ascontiguousarray(block.vectors, dtype="<f4").data)
            keys_of_blocks.append(_hash_words(block.words))
    keys = np.concatenate(keys_of_blocks)
    # A stable sort, so that for a word that occurs twice the first row is found.
    order = np.argsort(keys, kind="stable")
    np.save(folder / "keys.npy", keys[order])
    np.save(folder / "rows.npy", order.astype(np.int32))


def _hash_words(words: Sequence[str]) -> npt.NDArray[np.bytes_]:
    """Return the hash of each word, (len(words),), 16 bytes each.

    The last byte is always a full stop, because numpy would strip zeros at the end.
    """
    encoded_words = (word.encode("utf-8", "surrogatepass") for word in words)
    hashes = [hashlib.blake2b(word, digest_size=15).digest() + b"." for word in encoded_words]
    return np.array(hashes, dtype="S16")
