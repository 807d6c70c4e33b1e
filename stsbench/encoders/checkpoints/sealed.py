"""Folders of what can be made again: their files' hashes lie beside them, and one that has changed is made anew."""

from __future__ import annotations

import json
from pathlib import Path

from stsbench.data.verify import file_digest
from stsbench.encoders.checkpoints.digest_cache import remembered_digest
from stsbench.errors import SourceError
from stsbench.files.whole import write_whole

SEAL = "sha256.json"
LARGE = 64 << 20
"""Bytes from which a hash is remembered with the file's size and times; what is smaller is hashed each time."""


def seal(folder: Path) -> None:
    """Write the hashes of all files of a folder, the last of its files."""
    digests = {path.name: file_digest(path) for path in sorted(folder.iterdir()) if _counts(path)}
    write_whole(folder / SEAL, (json.dumps(digests, indent=1) + "\n").encode())


def is_sealed(folder: Path) -> bool:
    """Whether a folder was sealed and every file is as it was then."""
    try:
        digests = json.loads((folder / SEAL).read_text(encoding="utf-8"))
        return isinstance(digests, dict) and all(_digest(folder / name) == due for name, due in digests.items())
    except (OSError, ValueError, RecursionError, SourceError):
        return False


def _digest(path: Path) -> str:
    return remembered_digest(path) if path.stat().st_size >= LARGE else file_digest(path)


def _counts(path: Path) -> bool:
    return path.is_file() and path.name != SEAL and path.suffix != ".partial"
