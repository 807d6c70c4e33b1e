"""Files written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from stsbench.errors import DataError, OutputError, one_line

STALE_SECONDS = 24 * 3600


def write_whole(path: Path, content: bytes | memoryview) -> Path:
    """Write a file so that it is there whole or not at all, making its folder if need be.

    Raises:
        OutputError: the disk is full or the folder cannot be written.
    """
    with writing_whole(path) as stream:
        stream.write(content)
    return path


@contextmanager
def writing_whole(path: Path) -> Iterator[BinaryIO]:
    """The same piece by piece: the file takes its name when all is written to the stream.

    Raises:
        OutputError: the disk is full or the folder cannot be written.
    """
    scratch = scratch_beside(path)
    try:
        with _opened(scratch) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full; free some space and run again" if full else f"cannot be written: {error.strerror}"
        raise OutputError(f"{path.parent}: {why}") from error
    finally:
        # Also on Ctrl-C; after the rename it is not there.
        remove(scratch)


def _opened(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")
    except ValueError as error:
        raise OutputError(f"{path}: is not a file name: {one_line(error)}") from error


def append_line(path: Path, line: str) -> None:
    """Add a line to the end of a text file, making the file and its folder if need be.

    Raises:
        OutputError: the disk is full or the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(f"{line}\n")
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error


_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f-\x9f\ud800-\udfff<>:"|?*\\]|^\.*$|[. ]$')
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


@lru_cache(maxsize=4096)
def file_part(name: str, longest: int) -> str:
    """A name as a file or folder is called on any system: it stays one part of a path.

    Slashes become ``--``. What some system cannot hold (control characters, ``:``, a full stop at the end, a
    device's name, more than ``longest`` bytes) is left out, and eight digits of the name's hash tell it from others.
    """
    part = name.replace("/", "--")
    content = part.encode("utf-8", "surrogatepass")
    if not (_FORBIDDEN.search(part) or _DEVICES.fullmatch(part) or len(content) > longest):
        return part
    told = re.sub(r"[^\w+=(),-]", "_", part, flags=re.ASCII)[: longest - 9]
    return f"{told}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


_ABSOLUTE = re.compile(r"[/~\\]|[A-Za-z]:[/\\]")


def without_folders(value: object) -> object:
    """A parameter as names and notes tell it: what lies at an absolute path is called by its last part alone."""
    if isinstance(value, str):
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1] if _ABSOLUTE.match(value) else value
    if isinstance(value, Mapping):
        return {key: without_folders(one) for key, one in value.items()}
    return [without_folders(one) for one in value] if isinstance(value, list | tuple) else value


def read_bounded(path: Path, largest: int) -> bytes:
    """The bytes of a file of at most ``largest`` bytes.

    Raises:
        DataError: it is larger, no file (a folder, a pipe, a device), or cannot be read.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > largest:
            what = f"has {found.st_size:,} bytes" if stat.S_ISREG(found.st_mode) else "is not a file"
            raise DataError(f"{path}: {what}; nothing of more than {largest:,} bytes is read here")
        with path.open("rb", buffering=0) as stream:
            return stream.readall()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def remove(path: Path) -> None:
    """Remove a file if it is there and may be removed."""
    try:
        path.unlink(missing_ok=True)
    except (OSError, ValueError):
        # A read-only folder: what cannot be removed could not have been written either.
        return


def remove_stale(folder: Path, *patterns: str) -> None:
    """Remove what killed runs left half written, files and folders.

    What a process of this machine wrote goes as soon as that process has ended; of others, what is younger than a
    day may be a live run's.
    """
    for pattern in patterns or ("*.partial",):
        for path in folder.glob(pattern):
            try:
                stale = _is_orphan(path.name) or time.time() - _last_written(path) > STALE_SECONDS
            except OSError:
                # A live run has renamed it in between.
                continue
            if stale and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif stale:
                remove(path)


def _last_written(path: Path) -> float:
    """When a file was written last, or the newest of what a folder holds directly."""
    inside = path.iterdir() if path.is_dir() else ()
    newest: float = max(one.stat().st_mtime for one in (path, *inside))
    return newest


def scratch_beside(path: Path) -> Path:
    """A place beside ``path`` for what takes its name once it is whole.

    No other process has it, on whatever machine that shares the folder. What killed runs left beside it is removed,
    the first time that this process writes there.
    """
    _sweep_once(path.parent)
    return path.with_name(f"{path.name[:40]}.{_machine()}-{os.getpid()}-{secrets.token_hex(8)}.partial")


_SCRATCH = re.compile(r"\.([0-9a-f]{8})-(\d{1,9})-[0-9a-f]{16}\.partial")


@lru_cache(maxsize=1)
def _machine() -> str:
    """What this process shares with those whose numbers mean the same: the machine since its start, and the container."""
    try:
        known = Path("/proc/sys/kernel/random/boot_id").read_text() + str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        # Elsewhere nothing tells: no name is then ever known again.
        known = secrets.token_hex(16)
    return hashlib.sha256(known.encode()).hexdigest()[:8]


def _is_orphan(name: str) -> bool:
    """Whether a half-written file is of a process of this machine that has ended."""
    found = _SCRATCH.search(name)
    if found is None or found[1] != _machine() or int(found[2]) == os.getpid():
        return False
    try:
        os.kill(int(found[2]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


@lru_cache(maxsize=4096)
def _sweep_once(folder: Path) -> None:
    with suppress(OSError, ValueError):
        remove_stale(folder)
