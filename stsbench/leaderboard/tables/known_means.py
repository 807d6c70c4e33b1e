"""Intervals of means that tables had before: to read the items of ten thousand results takes many times as long as the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from stsbench import settings
from stsbench.errors import StsbenchError
from stsbench.files.whole import write_whole

MeansByHash = dict[str, tuple[float, float]]
MOST = 50_000
"""So many are kept, the newest."""


@contextmanager
def known_means() -> Iterator[MeansByHash]:
    """Intervals by a hash of what they were computed from; what is added is kept in the cache folder, if there is one."""
    try:
        file = settings.cache_folder() / "means.json"
    except StsbenchError:
        yield {}
        return
    known = _read(file)
    before = len(known)
    yield known
    if len(known) > before:
        # Another process may have written meanwhile.
        kept = list((_read(file) | known).items())[-MOST:]
        with suppress(StsbenchError):
            write_whole(file, msgspec.json.encode(dict(kept)))


def _read(file: Path) -> MeansByHash:
    try:
        return msgspec.json.decode(file.read_bytes(), type=MeansByHash)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
