"""Read JSON files, cache the hashes of large files, and seal folders with the hashes of theirs."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stsbench.core import settings
from stsbench.core.errors import (
    EncoderError,
    OutputError,
    SourceError,
    StsbenchError,
    translate_errors,
)
from stsbench.core.files import file_sha256, make_scratch_path, write_atomically

T = TypeVar("T")
BROKEN_JSON = (ValueError, RecursionError, msgspec.DecodeError)
"""The exceptions for JSON that is broken, too deep, or of another type than expected."""


def decode_json_file(
    path: Path, kind: type[T], problem: str, error: type[StsbenchError] = EncoderError
) -> T:
    """Read a JSON file as a value of a type.

    Args:
        path: The file.
        kind: The type, for example a class of msgspec; other content is an error.
        problem: The message if the file cannot be read so, for example "cannot be used".
        error: The class of the error to raise.

    Raises:
        StsbenchError: Of the class ``error``: the file cannot be read, or is not of the type.
    """
    # BROKEN_JSON: the exceptions for JSON that is broken, too deep or of another type.
    with translate_errors(f"{path}: {problem}", error, OSError, *BROKEN_JSON):
        return msgspec.convert(json.loads(path.read_bytes()), kind)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raises EncoderError."""
    return decode_json_file(path, dict[str, Any], problem="cannot be read as JSON")


def read_optional_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if there is no such file. Raises EncoderError."""
    return read_json(path) if path.is_file() else {}


def read_json_record(path: Path, kind: type[T]) -> T | None:
    """Read a record that an earlier run has written; None if there is none, or it is not valid."""
    with suppress(EncoderError):
        return decode_json_file(path, kind, problem="no record")
    return None


MIN_CACHED_BYTES = 64 << 20
"""The size in bytes from which a file's hash is cached."""
MIN_CACHED_AGE_NS = 2 * 10**9
"""The time since its last change, in nanoseconds, from which a file's hash is cached."""


def cached_file_sha256(path: Path) -> str:
    """Return the SHA-256 hash of a file in hexadecimal digits.

    The hash of a large file (``MIN_CACHED_BYTES``) is cached until the size or a time of the file
    changes. One of these times is that of the last change of the file's metadata, which no program
    can set. Windows has no such time, so there files are hashed each time.

    Raises:
        SourceError: The file cannot be read.
    """
    # The file with all cached hashes: by the path of a file, its stamp and then its hash. A stamp
    # is a list of numbers, such as size and times, of which one changes if the file does.
    cache_path = settings.cache_folder() / "digests.json"
    cached: dict[str, Any] = {}
    try:
        file_stat = path.stat()
        if file_stat.st_size < MIN_CACHED_BYTES or os.name != "posix":
            return file_sha256(path)
        cache_key = str(path.resolve())
        stamp = _file_stamp(file_stat)
        # A cache that cannot be read is as good as none.
        with suppress(EncoderError):
            cached = read_optional_json(cache_path)
        match cached.get(cache_key):
            case [*cached_stamp, str(digest)] if cached_stamp == stamp:
                return digest
        digest = file_sha256(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    # A file that has just changed may change again within the same tick of the clock, and so keep
    # its times: its hash is not cached yet.
    last_change_ns = max(file_stat.st_mtime_ns, file_stat.st_ctime_ns)
    if time.time_ns() - last_change_ns > MIN_CACHED_AGE_NS:
        # If the cache cannot be written, the file is hashed again next time.
        with suppress(OutputError):
            content = json.dumps({**cached, cache_key: [*stamp, digest]}, indent=1)
            write_atomically(cache_path, content.encode())
    return digest


def _file_stamp(file_stat: os.stat_result) -> list[int]:
    """Return numbers of a file, one of which changes if the file is changed or replaced.

    They are its size, the times of its last changes in nanoseconds, and its number and device.
    """
    return [
        file_stat.st_size,
        file_stat.st_mtime_ns,
        file_stat.st_ctime_ns,
        file_stat.st_ino,
        file_stat.st_dev,
    ]


def iter_files_below(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder, also in folders that are links.

    A link to a folder that was visited is not followed: one to a folder above would be followed
    forever. Links in one folder that lead to the same folder are all followed.
    """
    visited = {os.path.realpath(folder)}
    for parent, folder_names, file_names in os.walk(folder, followlinks=True):
        real_paths = {name: os.path.realpath(Path(parent, name)) for name in sorted(folder_names)}
        # os.walk goes on into the folders that remain in its list, so the list itself is changed.
        folder_names[:] = [name for name, real in real_paths.items() if real not in visited]
        visited.update(real_paths.values())
        yield from (Path(parent, name) for name in file_names)


SEAL_FILE = "sha256.json"
"""The file with the hashes of all others in a sealed folder."""


def is_sealed(folder: Path) -> bool:
    """Return whether a folder is sealed, and no file has changed since."""
    try:
        digests = read_json(folder / SEAL_FILE)
        return all(cached_file_sha256(folder / name) == digest for name, digest in digests.items())
    except (EncoderError, SourceError):
        return False


@contextmanager
def sealed_folder(folder: Path) -> Iterator[Path]:
    """Write a folder so that other processes see it complete, or not at all.

    The block writes files into a scratch folder. At its end a file with their hashes is added,
    which seals the folder: later reads can tell whether a file has changed. Then the scratch
    folder is renamed. If a sealed folder of this name exists by then, it is left as it is.

    Args:
        folder: The path of the folder.

    Yields:
        The scratch folder.

    Raises:
        OutputError: The folder cannot be written.
    """
    scratch = make_scratch_path(folder)
    try:
        scratch.mkdir(parents=True)
        yield scratch
        digests = {path.name: file_sha256(path) for path in sorted(scratch.iterdir())}
        (scratch / SEAL_FILE).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
        # True if the folder has the file of hashes, and no file has changed since. If another
        # process was faster, its folder is as good as this one and may be in use.
        if not is_sealed(folder):
            shutil.rmtree(folder, ignore_errors=True)
            scratch.rename(folder)
    except OSError as error:
        if not is_sealed(folder):
            path = error.filename or folder
            raise OutputError(
                f"{path}: {error.strerror}; free some space or set STSBENCH_CACHE elsewhere"
            ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
