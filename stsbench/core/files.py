"""Files that are written atomically and read within limits."""

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

from stsbench.core import settings
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
"""The age at which a partial file belongs to no live process."""


def write_atomically(path: Path, content: bytes | memoryview) -> Path:
    """Write a file atomically, and return its path: other processes see it complete or not at all.

    Missing folders are made.

    Raises:
        OutputError: The disk is full, or the file cannot be written.
    """
    with open_atomically(path) as stream:
        stream.write(content)
    return path


@contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a stream to a new file, which appears at its path if the block ends without error.

    Until then it has another name beside that path. A link is followed, and a device or pipe, which
    cannot be replaced, is written to directly. Missing folders are made.

    Raises:
        OutputError: The disk is full, or the file cannot be written.
    """
    with translate_errors(f"{path}: is not a file name", OutputError, ValueError):
        is_special = _is_special(path)
    scratch = None
    try:
        if is_special:
            with path.open("wb") as stream:
                yield stream
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = make_scratch_path(target)
        with scratch.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(target)
    except OSError as error:
        is_disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = (
            "the disk is full; free some space and run again"
            if is_disk_full
            else f"cannot be written: {error.strerror}"
        )
        raise OutputError(f"{path}: {reason}") from error
    finally:
        if scratch is not None:
            # Also on Ctrl-C; after the rename there is no such file.
            remove(scratch)


def _is_special(path: Path) -> bool:
    """Return whether a path is a device, pipe or socket, which may be endless or irreplaceable."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_is_file(path: Path, error_type: type[StsbenchError] = DataError) -> None:
    """Check that a path is no device or pipe, which may never end.

    A missing file passes, and so does the null device, which ends at once.

    Args:
        path: The path that is about to be read.
        error_type: The class of the error to raise if it is one, or if it is no valid path.
    """
    with translate_errors(f"{path}: is not a file name", error_type, ValueError):
        is_special = _is_special(path)
    if is_special and str(path) != os.devnull:
        raise error_type(
            f"{path}: is a pipe or a device, not a file; "
            "save what it gives to a file, and name that"
        )


def file_digest(path: Path) -> str:
    """Return the sha256 of a file's bytes; raises DataError for a pipe or a device."""
    check_is_file(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def append_line(path: Path, line: str) -> None:
    """Add a line to the end of a text file, and make the file and its folder if they are missing.

    Raises:
        OutputError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(f"{line}\n")
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error


_FORBIDDEN_IN_NAMES = re.compile(r'[\x00-\x1f\x7f-\x9f\ud800-\udfff<>:"|?*\\]|^\.*$|[. ]$')
_WINDOWS_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


@lru_cache(maxsize=4096)
def safe_file_name(name: str, max_bytes: int) -> str:
    """Return a name as a file or folder name that is valid on any system.

    Slashes become ``--``. Characters and names that some system forbids (control characters, ``:``,
    a full stop at the end, the name of a device, more than ``max_bytes`` bytes) are replaced, and
    eight digits of the name's hash then distinguish it from others.

    Args:
        name: Any text.
        max_bytes: The maximum length of the file name, in bytes.
    """
    file_name = name.replace("/", "--")
    encoded = file_name.encode("utf-8", "surrogatepass")
    if not (
        _FORBIDDEN_IN_NAMES.search(file_name)
        or _WINDOWS_DEVICE.fullmatch(file_name)
        or len(encoded) > max_bytes
    ):
        return file_name
    # 9 bytes are for the tilde and the eight digits.
    safe_prefix = re.sub(r"[^\w+=(),-]", "_", file_name, flags=re.ASCII)[: max_bytes - 9]
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe_prefix}~{digest[:8]}"


_ABSOLUTE_PATH_START = re.compile(r"[/~\\]|[A-Za-z]:[/\\]")


def strip_folders(value: object) -> object:
    """Return a parameter's value with each absolute path shortened to its last part.

    Lists and mappings are searched too; other values are unchanged.
    """
    if isinstance(value, str):
        is_absolute_path = _ABSOLUTE_PATH_START.match(value)
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1] if is_absolute_path else value
    if isinstance(value, Mapping):
        return {key: strip_folders(nested_value) for key, nested_value in value.items()}
    if isinstance(value, list | tuple):
        return [strip_folders(nested_value) for nested_value in value]
    return value


def read_bounded(path: Path, max_bytes: float = math.inf) -> bytes:
    """Return the bytes of a file.

    Raises:
        DataError: The file is larger than ``max_bytes``, is a pipe or a device, or cannot be read.
    """
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


ValueT = TypeVar("ValueT")
MAX_CACHED = 50_000
"""The maximum number of values in a file of the cache folder; the newest are stored."""


@contextmanager
def cached_values(name: str, kind: type[dict[str, ValueT]]) -> Iterator[dict[str, ValueT]]:
    """Yield values by a hash of what they were computed from; values that are added are stored.

    They are stored in a file of the user's cache folder. Without one they are computed each time.

    Args:
        name: The name of the file.
        kind: The type of its content, ``dict[str, X]`` with the type X of a value.
    """
    try:
        file = settings.cache_folder() / name
    except StsbenchError:
        yield {}
        return
    values = _read_values(file, kind)
    n_before = len(values)
    yield values
    if len(values) > n_before:
        import msgspec

        # Another process may have written in between. The oldest values are dropped.
        newest = list((_read_values(file, kind) | values).items())[-MAX_CACHED:]
        with suppress(StsbenchError):
            write_atomically(file, msgspec.json.encode(dict(newest)))


def _read_values(file: Path, kind: type[dict[str, ValueT]]) -> dict[str, ValueT]:
    """Read cached values; none if the file is missing or broken, as they can be computed again."""
    import msgspec

    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def remove(path: Path) -> None:
    """Remove a file if it exists and may be removed."""
    # In a read-only folder no file of ours can be: it could not have been written either.
    with suppress(OSError, ValueError):
        path.unlink(missing_ok=True)


def remove_stale(folder: Path, *patterns: str) -> None:
    """Remove files and folders that killed processes left half written.

    Those younger than a day are left, as a live process may be writing them.

    Args:
        folder: The folder to search.
        patterns: Glob patterns of the names; by default ``*.partial``.
    """
    paths: list[Path] = []
    for pattern in patterns or ("*.partial",):
        # Another process may remove or rename files in between.
        with suppress(OSError):
            paths += folder.glob(pattern)
    for path in paths:
        with suppress(OSError):
            children = path.iterdir() if path.is_dir() else ()
            last_change = max(changed.stat().st_mtime for changed in (path, *children))
            if time.time() - last_change <= STALE_SECONDS:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                remove(path)


def make_scratch_path(path: Path) -> Path:
    """Return a new path in the same folder, to be written and then renamed to ``path``.

    No other process has this path. The first call for a folder also removes stale files from it.
    """
    _sweep_once(path.parent)
    return path.with_name(f"{path.name[:40]}.{secrets.token_hex(8)}.partial")


@lru_cache(maxsize=4096)
def _sweep_once(folder: Path) -> None:
    with suppress(OSError, ValueError):
        remove_stale(folder)


PartT = TypeVar("PartT", bound=Sized)
MAX_UNPACKED_BYTES = 2 << 30
"""Any file may unpack to this size (SimCSE's archive of all SentEval is 90 MB)."""
MAX_RATIO = 100
"""A larger file may unpack to this many times its size: text is compressed 5 to 20 times."""
_CHUNK_BYTES = 1 << 20
_BATCH_ROWS = 1 << 15


def limit_bytes(
    parts: Iterable[PartT], path: Path, *, where: str, size: Callable[[PartT], int] = len
) -> Iterator[PartT]:
    """Yield the parts of an unpacked file until they are far larger than the file.

    Args:
        parts: The unpacked parts.
        path: The file, whose size gives the limit.
        where: The name of the file in messages.
        size: Return the number of bytes of a part.

    Raises:
        SourceError: The parts have more bytes than any such file may hold.
    """
    max_bytes = max(MAX_UNPACKED_BYTES, MAX_RATIO * path.stat().st_size)
    n_bytes = 0
    for part in parts:
        n_bytes += size(part)
        if n_bytes > max_bytes:
            raise SourceError(
                f"{where}: refused to read: it unpacks to more than {max_bytes >> 20:,} MiB"
            )
        yield part


def chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a stream, in parts of 1 MiB."""
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def check_unpacked_size(path: Path, *, where: str) -> None:
    """Check that a parquet or compressed file does not unpack to far more than its own size.

    A small file can unpack to more than a disk holds. A damaged file passes: its reader reports
    what is wrong with it. So does any other kind of file.

    Args:
        path: The file; a compressed one is unpacked once, without keeping anything.
        where: The name of the file in messages.

    Raises:
        SourceError: The file unpacks to more than it may.
    """
    import pyarrow as pa

    with path.open("rb") as stream:
        # The marks of the kinds of files below have up to six bytes.
        first_bytes = stream.read(6)
    with suppress(EOFError, zlib.error, lzma.LZMAError, OSError, pa.ArrowException):
        if first_bytes.startswith(b"PAR1"):
            check_parquet(path, path, where=where)
        for magic_bytes, open_compressed in _OPEN_COMPRESSED.items():
            if first_bytes.startswith(magic_bytes):
                with open_compressed(path) as unpacked:
                    for _ in limit_bytes(chunks(unpacked), path, where=where):
                        pass


_OPEN_COMPRESSED: Mapping[bytes, Callable[[Path], IO[bytes]]] = {
    b"\x1f\x8b": gzip.open,  # type: ignore[dict-item]
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}


def check_parquet(source: Path | IO[bytes], path: Path, *, where: str) -> None:
    """Check that the rows of a parquet file do not take far more memory than the file.

    Equal values are stored once in such a file, so a small one may have very many rows.

    Args:
        source: The file, or a stream of its content if the file at ``path`` is compressed.
        path: The file whose size gives the limit.
        where: The name of the file in messages.

    Raises:
        SourceError: The rows take more memory than they may.
        pyarrow.ArrowException, OSError: The file is damaged.
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
    """Yield the rows of a parquet file in batches, with limited memory; see :func:`check_parquet`.

    Columns of text are dictionary arrays, in which each distinct text is stored once.

    Args:
        source: The file, or a stream of its content.
        path: The file whose size gives the limit.
        where: The name of the file in messages.
        metadata: The metadata of the file, if the caller has read them.

    Raises:
        SourceError: The rows take more memory than they may.
    """
    from pyarrow import parquet

    if metadata is None:
        with parquet.ParquetFile(source) as file:
            metadata = file.metadata
    schema = metadata.schema
    columns = [schema.column(index) for index in range(len(schema.names))]
    text_columns = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    # Dictionary arrays take no more memory than the file.
    with parquet.ParquetFile(source, metadata=metadata, read_dictionary=text_columns) as file:
        # For one batch, starting threads would take longer than they save.
        batches = file.iter_batches(_BATCH_ROWS, use_threads=metadata.num_rows > _BATCH_ROWS)
        yield from limit_bytes(batches, path, where=where, size=_batch_size)


def _batch_size(batch: pa.RecordBatch) -> int:
    return sum(map(_size, batch.columns))


def _size(values: pa.Array) -> int:
    """Return the bytes that an array's values need in memory, without sharing equal values.

    A text or list also counts 8 bytes, for where it begins.
    """
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
