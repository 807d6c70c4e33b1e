"""Hashes of large files, remembered: a gigabyte takes more than a second, and is opened again and again."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from stsbench import settings
from stsbench.data.verify import file_digest
from stsbench.errors import SourceError
from stsbench.files.whole import write_whole


def remembered_digest(path: Path) -> str:
    """The sha256 of a file, not computed again while it is the same file of the same size and times.

    Among the times is the one that no program can set: an edit that keeps size and date is seen.
    Where a system has none (Windows), the file is hashed every time.

    Raises:
        SourceError: the file cannot be read.
    """
    memory = settings.cache_folder() / "digests.json"
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        known = {}
    known = known if isinstance(known, dict) else {}
    try:
        state = path.stat()
        place = str(path.resolve())
        stamp = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev]
        match known.get(place):
            case [*seen, str(digest)] if seen == stamp and os.name == "posix":
                return digest
        digest = file_digest(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    # A file changed this very moment may change again within the clock's grain.
    if time.time_ns() - max(state.st_mtime_ns, state.st_ctime_ns) > 2 * 10**9:
        write_whole(memory, json.dumps({**known, place: [*stamp, digest]}, indent=1).encode())
    return digest
