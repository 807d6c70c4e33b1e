"""Files of word vectors, read as a stream of blocks: GloVe text, word2vec and fastText text, ``.npz``.

Text has a word and its d values a line, parted by single blanks; word2vec's and fastText's begin
with a line ``n d``. GloVe 840B has words with blanks in them: of a line with more fields than
d + 1 the last d are the vector, unless the field before them is a number too. Nothing is skipped:
a line with too few or too many values, with something else than finite numbers, with a NUL byte
or bad UTF-8 ends the reading. A header may promise fewer vectors than follow, never more.
"""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.encoders.seams import FloatArray
from stsbench.errors import DataError

PIECE_BYTES = 8 << 20
LONGEST_LINE = 1 << 20
_BOM = b"\xef\xbb\xbf"
_PACKED = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
_ODD_BLANKS = (b"  ", b"\t", b"\r", b"\v", b"\f")


class VectorBlock(NamedTuple):
    """Some words (m,) and their vectors (m, d), as they follow in the file."""

    words: list[bytes]
    vectors: FloatArray


def read_blocks(path: Path, limit: int | None = None) -> Iterator[VectorBlock]:
    """Read a file of word vectors, or its first ``limit`` ones, in blocks of some megabytes.

    Raises:
        DataError: the file is not as it must be; names the line, or the row of an ``.npz``.
    """
    count = 0
    for block in _npz_blocks(path) if path.suffix == ".npz" else _text_blocks(path, limit):
        count += len(block.words)
        cut = None if limit is None else len(block.words) - max(count - limit, 0)
        yield VectorBlock(block.words[:cut], block.vectors[:cut])
        if limit is not None and count >= limit:
            return
    if not count:
        raise DataError(f"{path}: holds no word vectors")


def _text_blocks(path: Path, limit: int | None) -> Iterator[VectorBlock]:
    pieces = _lines(path)
    first = next(pieces, [b""])
    promised, width = _header(first[0])
    if width < 1:
        raise DataError(f"{path}: line 1: expected a word and its values, got '{_shown(first[0])}'")
    number, count = 1, 0
    if promised is not None:
        first, number = first[1:], 2
    for lines in chain([first], pieces):
        if limit is not None:
            lines = lines[: limit - count]
        if lines:
            yield _block(lines, width, path, number + count)
        count += len(lines)
        if count == limit:
            return
    if promised is not None and count < promised:
        raise DataError(f"{path}: line 1 promises {promised} vectors, {count} follow; fetch the file again")


def _lines(path: Path) -> Iterator[list[bytes]]:
    """The lines of a file, some megabytes at a time."""
    rest = b""
    with path.open("rb") as stream:
        if stream.read(8).startswith(_PACKED):
            raise DataError(f"{path}: is packed; unpack it and give the text file in it")
        stream.seek(0)
        if stream.read(len(_BOM)) != _BOM:
            stream.seek(0)
        while piece := stream.read(PIECE_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > LONGEST_LINE:
                raise DataError(f"{path}: has a line of over a million bytes; is it text?")
            if lines:
                yield lines
    if rest:
        yield [rest]


def _header(line: bytes) -> tuple[int | None, int]:
    """How many vectors the first line promises, None where it is a vector itself, and their size."""
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        return int(fields[0]), int(fields[1])
    return None, line.rstrip().count(b" ")


def _block(lines: list[bytes], width: int, path: Path, number: int) -> VectorBlock:
    """Read lines, the first of which has this number in the file; raises DataError naming a bad one."""
    split = [_split(line, width) for line in lines]
    good = [pair for pair in split if pair is not None]
    vectors = _numbers([values for _, values in good], width) if len(good) == len(lines) else None
    words = [word for word, _ in good]
    if vectors is not None and _is_text(words):
        return VectorBlock(words, vectors)
    if len(lines) == 1:
        raise DataError(f"{path}: line {number}: {_fault(lines[0], width)}")
    # Halving finds the bad line; lines that are only oddly spaced are read one by one.
    half = len(lines) // 2
    left, right = _block(lines[:half], width, path, number), _block(lines[half:], width, path, number + half)
    return VectorBlock(left.words + right.words, np.concatenate([left.vectors, right.vectors]))


def _split(line: bytes, width: int) -> tuple[bytes, bytes] | None:
    """A line's word and its values; None where it has not this many."""
    line = line.rstrip()
    extra = line.count(b" ") - width
    if extra == 0:
        word, _, values = line.partition(b" ")
        return word, values
    if extra < 0:
        return None
    word, *fields = line.rsplit(b" ", width)
    if _numbers([word.rpartition(b" ")[2]], 1) is not None:
        return None
    return word, b" ".join(fields)


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


def _is_text(words: list[bytes]) -> bool:
    joined = b"\n".join(words)
    try:
        joined.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in joined


def _fault(line: bytes, width: int) -> str:
    """What is wrong with a line that cannot be read."""
    if b"\0" in line:
        return "has a NUL byte; is it a binary file? Give vectors as text or .npz"
    if not _is_text([line]):
        return f"is not UTF-8 ('{_shown(line)}')"
    word, *fields = line.rstrip().split(b" ")
    bad = [field for field in fields[-width:] if _numbers([field], 1) is None]
    if bad and len(fields) >= width:
        return f"'{_shown(bad[0])}' is not a finite number (the word is '{_shown(word)}')"
    return f"{len(fields)} values, expected {width} (the word is '{_shown(word)}')"


def _shown(line: bytes) -> str:
    return line[:40].decode("utf-8", "replace")


def _npz_blocks(path: Path) -> Iterator[VectorBlock]:
    """Read the arrays ``words`` (n,) and ``vectors`` (n, d), float, without a pickle."""
    try:
        with (
            zipfile.ZipFile(path) as archive,
            archive.open("words.npy") as words,
            archive.open("vectors.npy") as vectors,
        ):
            names, kind = _npy_header(words, path)
            shape, values = _npy_header(vectors, path)
            if kind.kind != "U" or values.kind != "f" or len(names) != 1 or len(shape) != 2 or names[0] != shape[0]:
                raise DataError(
                    f"{path}: 'words' must be text (n,) and 'vectors' float (n, d); they are {kind} {names} and {values} {shape}"
                )
            step = max(PIECE_BYTES // max(kind.itemsize, values.itemsize * shape[1], 1), 1)
            for start in range(0, shape[0], step):
                m = min(step, shape[0] - start)
                yield _npz_block(_exactly(words, m, kind), _exactly(vectors, m * shape[1], values), path, start)
    except KeyError as error:
        raise DataError(f"{path}: {error.args[0]}; save arrays 'words' and 'vectors' with numpy.savez") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise DataError(f"{path}: is not a complete .npz file ({error})") from error


def _npy_header(stream: IO[bytes], path: Path) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_column, kind = read(stream)
    if by_column and len(shape) > 1:
        raise DataError(f"{path}: 'vectors' lie column by column; save numpy.ascontiguousarray(vectors)")
    return shape, kind


def _exactly(stream: IO[bytes], count: int, kind: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    content = stream.read(count * kind.itemsize)
    if len(content) < count * kind.itemsize:
        raise EOFError("it is cut short")
    return np.frombuffer(content, dtype=kind)


def _npz_block(words: npt.NDArray[np.generic], values: npt.NDArray[np.generic], path: Path, start: int) -> VectorBlock:
    with np.errstate(over="ignore"):
        vectors: FloatArray = values.astype(np.float32).reshape(len(words), -1)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise DataError(f"{path}: the vector of row {start + int(np.argmin(finite))} is not finite")
    return VectorBlock([str(word).encode("utf-8") for word in words.tolist()], vectors)
