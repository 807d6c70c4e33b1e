"""What servers said of their models when they last gave embeddings: a run whose server is gone finds its embeddings by it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stsbench import settings
from stsbench.files.whole import write_whole

ServedModel = tuple[str, str, str]
"""A server's address, the way it is asked, and what it calls the model."""


def remember(place: ServedModel, said: Mapping[str, Any]) -> None:
    """Keep what the server at a place says, where that is new."""
    if recall(place) != said:
        path = _path(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"said": said}, sort_keys=True).encode())


def recall(place: ServedModel) -> dict[str, Any] | None:
    """What the server at a place said; None where it never gave embeddings, or that is lost."""
    try:
        return msgspec.json.decode(_path(place).read_bytes(), type=dict[str, dict[str, Any]])["said"]
    except (OSError, LookupError, msgspec.DecodeError, RecursionError):
        return None


def _path(place: ServedModel) -> Path:
    return settings.cache_folder() / "served" / f"{hashlib.sha256(json.dumps(place).encode()).hexdigest()[:32]}.json"
