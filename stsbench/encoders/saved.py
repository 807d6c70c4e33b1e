"""``stsbench.json``: what a saved encoder's folder says of how it is to be run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stsbench.errors import EncoderError, one_line
from stsbench.files import write_whole

FILE = "stsbench.json"


class SavedEncoder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kind of encoder that a folder holds, and the parameters it is run with beside the folder."""

    kind: str
    params: dict[str, Any] = {}


def write_saved(folder: Path, kind: str, params: Mapping[str, Any]) -> None:
    """Say how the encoder in a folder is to be run."""
    facts = {"kind": kind, "params": dict(params)}
    write_whole(folder / FILE, (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode())


def read_saved(folder: Path) -> SavedEncoder | None:
    """Return how the encoder in a folder is to be run; None where the folder does not say.

    Raises:
        EncoderError: the file is broken.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedEncoder)
    except (OSError, msgspec.DecodeError) as error:
        raise EncoderError(f"{path}: cannot be read: {one_line(error)}") from error
