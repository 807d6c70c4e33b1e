"""Files written whole or not at all."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import lzma
import math
import os
import re
import secrets
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, TypeVar

from stsbench.core.errors import (
    DataError,
    OutputError,
    SourceError,
    StsbenchError,
    translate_errors,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData


STALE_SECONDS = 24 * 3600


def write_atomically(path: Path, content: bytes | memoryview) -> Path:
    """Write a file so that it is there whole or not at all, making its folder if need be; raises OutputError."""
    with open_atomically(path) as stream:
        stream.write(content)
    return path


@contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """The same piece by piece: the file takes its name when all is written to the stream.

    Of a link the file that it leads to is written; a device or pipe, which nothing may replace, is written into. Raises
    OutputError: the disk is full or the folder cannot be written.
    """
    with translate_errors(f"{path}: is not a file name", OutputError, ValueError):
        special = _is_special(path)
    scratch = None
    try:
        if special:
            with path.open("wb") as stream:
                yield stream
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = scratch_beside(target)
        with scratch.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(target)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = (
            "the disk is full; free some space and run again"
            if full
            else f"cannot be written: {error.strerror}"
        )
        raise OutputError(f"{path.parent}: {why}") from error
    finally:
        if scratch is not None:
            # Also on Ctrl-C; after the rename it is not there.
            remove(scratch)


def _is_special(path: Path) -> bool:
    """Whether a device, pipe or socket is there: no end of what it gives is known, and nothing may take its place."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_is_file(path: Path, error: type[StsbenchError] = DataError) -> None:
    """Refuse, by an ``error``, to read a device or pipe, which may never end; what is not there is left to the reader."""
    with translate_errors(f"{path}: is not a file name", error, ValueError):
        special = _is_special(path)
    if special and str(path) != os.devnull:
        raise error(
            f"{path}: is a pipe or a device, not a file; save what it gives to a file, and name that"
        )


def file_digest(path: Path) -> str:
    """The sha256 of a file's bytes; raises DataError where it is a pipe or a device, which may have no end."""
    check_is_file(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def append_line(path: Path, line: str) -> None:
    """Add a line to the end of a text file, making the file and its folder if need be; raises OutputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(f"{line}\n")
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error


_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f-\x9f\ud800-\udfff<>:"|?*\\]|^\.*$|[. ]$')
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


@lru_cache(maxsize=4096)
def safe_file_name(name: str, max_bytes: int) -> str:
    """A name as a file or folder is called on any system: it stays one part of a path.

    Slashes become ``--``. What some system cannot hold (control characters, ``:``, a full stop at the end, a
    device's name, more than ``max_bytes`` bytes) is left out, and eight digits of the name's hash distinguish it from others.
    """
    part = name.replace("/", "--")
    content = part.encode("utf-8", "surrogatepass")
    if not (_FORBIDDEN.search(part) or _DEVICES.fullmatch(part) or len(content) > max_bytes):
        return part
    kept = re.sub(r"[^\w+=(),-]", "_", part, flags=re.ASCII)[: max_bytes - 9]
    return f"{kept}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


_ABSOLUTE = re.compile(r"[/~\\]|[A-Za-z]:[/\\]")


def strip_folders(value: object) -> object:
    """A parameter as names and notes have it: what lies at an absolute path is called by its last part alone."""
    if isinstance(value, str):
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1] if _ABSOLUTE.match(value) else value
    if isinstance(value, Mapping):
        return {key: strip_folders(one) for key, one in value.items()}
    return [strip_folders(one) for one in value] if isinstance(value, list | tuple) else value


def read_bounded(path: Path, max_bytes: float = math.inf) -> bytes:
    """The bytes of a file; raises DataError where it is larger, a pipe or a device, or cannot be read."""
    try:
        check_is_file(path)
        if (size := path.stat().st_size) > max_bytes:
            raise DataError(
                f"{path}: has {size:,} bytes; nothing of more than {max_bytes:,} bytes is read here"
            )
        with path.open("rb", buffering=0) as stream:
            return stream.readall()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def remove(path: Path) -> None:
    """Remove a file if it is there and may be removed."""
    # A read-only folder: what cannot be removed could not have been written either.
    with suppress(OSError, ValueError):
        path.unlink(missing_ok=True)


def remove_stale(folder: Path, *patterns: str) -> None:
    """Remove what killed runs left half written, files and folders: what is younger than a day may be a live run's."""
    found: list[Path] = []
    for pattern in patterns or ("*.partial",):
        # Another process may remove folders, or rename what it has written, in between.
        with suppress(OSError):
            found += folder.glob(pattern)
    for path in found:
        with suppress(OSError):
            inside = path.iterdir() if path.is_dir() else ()
            if time.time() - max(one.stat().st_mtime for one in (path, *inside)) > STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else remove(path)


def scratch_beside(path: Path) -> Path:
    """A place beside ``path``, which no other process has, for what takes its name once it is whole.

    What killed runs left beside it is removed, the first time that this process writes there.
    """
    _sweep_once(path.parent)
    return path.with_name(f"{path.name[:40]}.{secrets.token_hex(8)}.partial")


@lru_cache(maxsize=4096)
def _sweep_once(folder: Path) -> None:
    with suppress(OSError, ValueError):
        remove_stale(folder)


PartT = TypeVar("PartT", bound=Sized)
MAX_UNPACKED_BYTES = 2 << 30
"""So much any file may hold (SimCSE's archive of all SentEval is 90 MB)."""
MAX_RATIO = 100
"""A larger file may hold so many times its own size: text is compressed 5 to 20 times."""
_CHUNK, _ROWS = 1 << 20, 1 << 15


def limit_bytes(
    parts: Iterable[PartT], path: Path, *, where: str, size: Callable[[PartT], int] = len
) -> Iterator[PartT]:
    """Pass on the parts of what a file holds; raises SourceError once they are far more than the file."""
    most = left = max(MAX_UNPACKED_BYTES, MAX_RATIO * path.stat().st_size)
    for part in parts:
        left -= size(part)
        if left < 0:
            raise SourceError(
                f"{where}: refused to read: it unpacks to more than {most >> 20:,} MiB"
            )
        yield part


def chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """The bytes of a stream, in parts that take little memory."""
    while data := stream.read(_CHUNK):
        yield data


def check_unpacked_size(path: Path, *, where: str) -> None:
    """Refuse a parquet or compressed file that holds far more than its own size; raises SourceError.

    What is damaged passes: its reader says what is wrong with it.
    """
    import pyarrow as pa

    with path.open("rb") as stream:
        head = stream.read(6)
    with suppress(EOFError, zlib.error, lzma.LZMAError, OSError, pa.ArrowException):
        if head.startswith(b"PAR1"):
            check_parquet(path, path, where=where)
        if opened := next(
            (opened for magic, opened in _COMPRESSED.items() if head.startswith(magic)), None
        ):
            with opened(path) as expanded:
                for _ in limit_bytes(chunks(expanded), path, where=where):
                    pass


_COMPRESSED: Mapping[bytes, Callable[[Path], IO[bytes]]] = {
    b"\x1f\x8b": gzip.open,  # type: ignore[dict-item]
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}


def check_parquet(source: Path | IO[bytes], path: Path, *, where: str) -> None:
    """Refuse a parquet file whose rows take far more memory than the file, in which equal values stand once.

    ``source`` is the file, or what the file at ``path`` holds compressed. Raises SourceError: it holds more than a file
    may; pyarrow.ArrowException, OSError: it is damaged.
    """
    for _ in parquet_batches(source, path, where=where):
        pass


def parquet_batches(
    source: Path | pa.NativeFile | IO[bytes],
    path: Path,
    *,
    where: str,
    metadata: FileMetaData | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of such a file in parts, each text once and numbers in its places; see :func:`check_parquet`."""
    from pyarrow import parquet

    if metadata is None:
        with parquet.ParquetFile(source) as file:
            metadata = file.metadata
    columns = [metadata.schema.column(at) for at in range(len(metadata.schema.names))]
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    # So they take the memory that the file takes.
    with parquet.ParquetFile(source, metadata=metadata, read_dictionary=texts) as file:
        # Of one batch more time would go into starting threads than they save.
        batches = file.iter_batches(_ROWS, use_threads=metadata.num_rows > _ROWS)
        yield from limit_bytes(
            batches, path, where=where, size=lambda batch: sum(map(_size, batch.columns))
        )


def _size(values: pa.Array) -> int:
    """The bytes of an array's values, each counted as often as it stands there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.DictionaryArray):
        lengths = pc.binary_length(values.dictionary).cast(pa.int64())
        return int(pc.sum(lengths.take(values.indices)).as_py() or 0) + 8 * len(values)
    if isinstance(values, pa.StructArray):
        return sum(map(_size, values.flatten()))
    if isinstance(values, pa.ListArray | pa.LargeListArray):
        return _size(values.flatten()) + 8 * len(values)
    return int(values.nbytes)
