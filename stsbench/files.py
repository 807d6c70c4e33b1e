"""Files written whole or not at all."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from stsbench.errors import OutputError

STALE_SECONDS = 24 * 3600


def write_whole(path: Path, content: bytes | memoryview) -> Path:
    """Write a file so that it is there whole or not at all, making its folder if need be.

    Raises:
        OutputError: the disk is full or the folder cannot be written.
    """
    scratch = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch.open("wb") as stream:
            stream.write(content)
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
    return path


def remove(path: Path) -> None:
    """Remove a file if it is there and may be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        # A read-only folder: what cannot be removed could not have been written either.
        return


def remove_stale(folder: Path, pattern: str = "*.partial") -> None:
    """Remove what killed runs left half written; what is younger than a day may be a live run's."""
    for path in folder.glob(pattern):
        try:
            stale = time.time() - path.stat().st_mtime > STALE_SECONDS
        except OSError:
            # A live run has renamed it in between.
            continue
        if stale:
            remove(path)
