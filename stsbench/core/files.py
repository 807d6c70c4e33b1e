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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeVar

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
    """Write a file so that other processes see it complete or not at all, and return its path.

    Missing folders are made; an existing file is replaced.

    Raises:
        OutputError: The disk is full, or the file cannot be written.
    """
    with open_atomically(path) as stream:
        stream.write(content)
    return path


@contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a binary stream to a new file, for a ``with`` block that writes it.

    The file is written under another name in the same folder. It is renamed to ``path`` when the
    block ends, and removed if the block raises. If ``path`` is a symbolic link, the file that it
    leads to is replaced. A device or pipe cannot be replaced, and is written to directly. Missing
    folders are made.

    Raises:
        OutputError: The disk is full, or the file cannot be written.
    """
    is_special = _is_device_or_pipe(path, OutputError)
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
            # Also on Ctrl-C. After the rename there is no such file, and nothing is removed.
            remove(scratch)


def _is_device_or_pipe(path: Path, error_type: type[StsbenchError]) -> bool:
    """Return whether a path is a device, pipe or socket, which may be endless or irreplaceable.

    An error of ``error_type`` is raised if it is no valid path.
    """
    # Python raises ValueError for a path with a null character.
    with translate_errors(f"{path}: is not a file name", error_type, ValueError):
        try:
            mode = path.stat().st_mode
        except OSError:
            return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def refuse_special_file(path: Path, error_type: type[StsbenchError] = DataError) -> None:
    """Check that a path is no device or pipe, which might be read without end.

    A missing file passes, and so does a folder. The null device passes because it is empty.

    Args:
        path: The path that is about to be read.
        error_type: The class of the error to raise if the path is a device or pipe, or if it is no
            valid path.
    """
    if _is_device_or_pipe(path, error_type) and str(path) != os.devnull:
        raise error_type(
            f"{path}: is a pipe or a device, not a file; "
            "save what it gives to a file, and name that"
        )


def expand_home(path: str) -> Path:
    """Return a path in which ``~`` is the user's home; ``~name`` of an unknown user stays."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - the method raises for an unknown user


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes; raises DataError for a pipe or a device."""
    refuse_special_file(path)
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
_WINDOWS_DEVICE_NAME = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


@lru_cache(maxsize=4096)
def safe_file_name(name: str, max_bytes: int) -> str:
    """Return a name as a file or folder name that is valid on any operating system.

    Slashes become ``--``. The name is otherwise unchanged if every system allows it. If some system
    forbids it (for a control character, a ``:``, a full stop at the end, the name of a device such
    as ``con``, or its length), its unusual characters become ``_``, and ``~`` and eight digits of
    the name's sha256 follow, which distinguish it from similar names.

    Args:
        name: Any text.
        max_bytes: The maximum length of the file name, in bytes.
    """
    file_name = name.replace("/", "--")
    # Lone surrogates, which UTF-8 does not have, are encoded rather than refused.
    n_bytes = len(file_name.encode("utf-8", "surrogatepass"))
    is_forbidden = (
        _FORBIDDEN_IN_NAMES.search(file_name)
        or _WINDOWS_DEVICE_NAME.fullmatch(file_name)
        or n_bytes > max_bytes
    )
    if not is_forbidden:
        return file_name
    # All but ASCII letters, digits and a few signs; 9 bytes are for the tilde and eight digits.
    safe_prefix = re.sub(r"[^\w+=(),-]", "_", file_name, flags=re.ASCII)[: max_bytes - 9]
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe_prefix}~{digest[:8]}"


_ABSOLUTE_PATH_START = re.compile(r"[/~\\]|[A-Za-z]:[/\\]")


def strip_folders(value: object) -> object:
    """Return a parameter's value with each absolute path shortened to its file name.

    Folders of one machine are of no use on another, and may be private. Paths inside lists and
    mappings are shortened too; a tuple becomes a list. Other values are unchanged. Absolute is a
    text that begins with a slash or backslash, with ``~``, or with a drive of Windows.
    """
    if isinstance(value, str):
        if not _ABSOLUTE_PATH_START.match(value):
            return value
        # The separator is a backslash on Windows.
        *_, last_part = re.split(r"[/\\]", value.rstrip("/\\"))
        return last_part
    if isinstance(value, Mapping):
        return {key: strip_folders(nested_value) for key, nested_value in value.items()}
    if isinstance(value, list | tuple):
        return [strip_folders(nested_value) for nested_value in value]
    return value


def read_bounded(path: Path, max_bytes: float = math.inf) -> bytes:
    """Return the content of a file that has at most ``max_bytes`` bytes.

    Raises:
        DataError: The file is larger than ``max_bytes``, is a pipe or a device, or cannot be read.
    """
    try:
        refuse_special_file(path)
        n_bytes = path.stat().st_size
        if n_bytes > max_bytes:
            raise DataError(
                f"{path}: has {n_bytes:,} bytes; nothing of more than {max_bytes:,} bytes is read "
                "here"
            )
        # One unbuffered read is the fastest for a whole file.
        with path.open("rb", buffering=0) as stream:
            return stream.readall()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


ValueT = TypeVar("ValueT")
MAX_CACHED_VALUES = 50_000
"""The maximum number of values in a file of the cache folder; the newest are stored."""


@contextmanager
def cached_values(name: str, kind: type[dict[str, ValueT]]) -> Iterator[dict[str, ValueT]]:
    """Lend a ``with`` block a cache of computed values, which a file keeps for later calls.

    The block gets a dict, from a hash of what a value was computed from to the value. It looks
    values up there, and adds those that it computes. If it has added any, the file is written when
    the block ends without error. At most ``MAX_CACHED_VALUES`` values, the newest, are kept. If the
    user has no cache folder, the dict is empty and not stored.

    Args:
        name: The name of the file in the user's cache folder.
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

        # Another process may have added values to the file in between: keep these too.
        all_values = _read_values(file, kind) | values
        newest = list(all_values.items())[-MAX_CACHED_VALUES:]
        # A cache that cannot be written is no error: the values are computed again.
        with suppress(StsbenchError):
            write_atomically(file, msgspec.json.encode(dict(newest)))


def _read_values(file: Path, kind: type[dict[str, ValueT]]) -> dict[str, ValueT]:
    """Return the cached values in a JSON file, by key.

    The dict is empty if the file is missing or broken, as the values can be computed again.

    Args:
        file: The path of the file.
        kind: The type of its content, ``dict[str, X]`` with the type X of a value.
    """
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
    """Remove half written files and folders that killed processes left in a folder.

    Only those without a change for a day (``STALE_SECONDS``) are removed, as a live process may be
    writing the others. A file that cannot be removed is left.

    Args:
        folder: The folder to search; its subfolders are not.
        patterns: Patterns of the names, such as ``*.partial``, which is the default.
    """
    paths: list[Path] = []
    for pattern in patterns or ("*.partial",):
        # Another process may remove or rename files in between.
        with suppress(OSError):
            paths += folder.glob(pattern)
    for path in paths:
        with suppress(OSError):
            # A folder has changed when a file in it has.
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


PartT = TypeVar("PartT")
MAX_UNPACKED_BYTES = 2 << 30
"""Any file may unpack to this size (SimCSE's archive of all SentEval is 90 MB)."""
MAX_RATIO = 100
"""A larger file may unpack to this many times its size: text is compressed 5 to 20 times."""
_CHUNK_BYTES = 1 << 20
_BATCH_ROWS = 1 << 15


def limit_bytes(
    parts: Iterable[PartT], path: Path, *, where: str, size: Callable[[Any], int] = len
) -> Iterator[PartT]:
    """Yield the parts of an unpacked file, and stop with an error if they are far too large.

    This protects from small compressed files that unpack to more than the memory or a disk holds.
    The limit is 2 GiB (``MAX_UNPACKED_BYTES``) or 100 times the size of the file (``MAX_RATIO``),
    whichever is larger.

    Args:
        parts: The unpacked parts, such as blocks of bytes.
        path: The packed file, whose size gives the limit.
        where: The name of the file in messages.
        size: A function that returns the number of bytes of a part.

    Raises:
        SourceError: The parts so far have more bytes than the limit.
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


def iter_chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a stream, in parts of 1 MiB."""
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def check_unpacked_size(path: Path, *, where: str) -> None:
    """Check that a parquet or compressed file does not unpack to far more than its own size.

    A small file can unpack to more than a disk holds. A damaged file passes, because whoever reads
    it afterwards reports what is wrong with it. A file of any other kind passes too.

    Args:
        path: The file; a compressed one is unpacked once, without keeping anything.
        where: The name of the file in messages.

    Raises:
        SourceError: The file unpacks to more than the limit of :func:`limit_bytes`.
    """
    import pyarrow as pa

    with path.open("rb") as stream:
        # The first bytes tell a file's kind: PAR1 is parquet, and gzip, bzip2 and xz, whose
        # openers the table below holds, have up to six such bytes.
        first_bytes = stream.read(6)
    with suppress(EOFError, zlib.error, lzma.LZMAError, OSError, pa.ArrowException):
        if first_bytes.startswith(b"PAR1"):
            check_parquet(path, path, where=where)
        for magic_bytes, open_compressed in _OPENERS_BY_MAGIC_BYTES.items():
            if first_bytes.startswith(magic_bytes):
                with open_compressed(path) as unpacked:
                    # limit_bytes raises when there are too many; the bytes are not needed.
                    for _ in limit_bytes(iter_chunks(unpacked), path, where=where):
                        pass


_OPENERS_BY_MAGIC_BYTES: Mapping[bytes, Callable[[Path], IO[bytes]]] = {
    b"\x1f\x8b": gzip.open,  # type: ignore[dict-item]
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}


def check_parquet(source: Path | IO[bytes], path: Path, *, where: str) -> None:
    """Check that the rows of a parquet file do not take far more memory than the file.

    Equal values are stored once in such a file, so a small one may have very many rows.

    Args:
        source: The parquet file, or a stream of its content if the file at ``path`` is compressed.
        path: The file whose size gives the limit; see :func:`limit_bytes`.
        where: The name of the file in messages.

    Raises:
        SourceError: The rows take more memory than the limit.
        pyarrow.ArrowException, OSError: The file is damaged.
    """
    # Reading checks the limit; the rows are not needed.
    for _ in parquet_batches(source, path, where=where):
        pass


def parquet_batches(
    source: Path | pa.NativeFile | IO[bytes],
    path: Path,
    *,
    where: str,
    metadata: FileMetaData | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a parquet file in batches, as long as they do not need too much memory.

    Columns of text are dictionary arrays, in which each distinct text is stored once.

    Args:
        source: The parquet file, or a stream of its content if the file at ``path`` is compressed.
        path: The file whose size gives the limit; see :func:`limit_bytes`.
        where: The name of the file in messages.
        metadata: The file's own description of its columns and rows; None if the caller has not
            read it.

    Raises:
        SourceError: The rows so far need more memory than the limit.
    """
    from pyarrow import parquet

    if metadata is None:
        with parquet.ParquetFile(source) as file:
            metadata = file.metadata
    schema = metadata.schema
    columns = [schema.column(index) for index in range(len(schema.names))]
    text_columns = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    # Read as dictionary arrays, texts take no more memory than in the file.
    with parquet.ParquetFile(source, metadata=metadata, read_dictionary=text_columns) as file:
        # For one batch, starting threads would take longer than they save.
        batches = file.iter_batches(_BATCH_ROWS, use_threads=metadata.num_rows > _BATCH_ROWS)
        # limit_bytes yields the batches, until their sizes together are above the limit.
        yield from limit_bytes(
            batches,
            path,
            where=where,
            size=lambda batch: sum(map(_memory_bytes, batch.columns)),
        )


def _memory_bytes(values: pa.Array) -> int:
    """Return how many bytes an array of pyarrow needs in memory once equal values are not shared.

    A text or list also counts 8 bytes, for the position where it begins.

    Args:
        values: A column of a batch of rows. A dictionary array holds the distinct texts, and the
            index of its text for each row. Structs and lists hold further arrays.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.DictionaryArray):
        lengths_of_texts = pc.binary_length(values.dictionary).cast(pa.int64())
        length_per_row = lengths_of_texts.take(values.indices)
        # The sum of no rows is None.
        return int(pc.sum(length_per_row).as_py() or 0) + 8 * len(values)
    if isinstance(values, pa.StructArray):
        return sum(map(_memory_bytes, values.flatten()))
    if isinstance(values, pa.ListArray | pa.LargeListArray):
        return _memory_bytes(values.flatten()) + 8 * len(values)
    return int(values.nbytes)
