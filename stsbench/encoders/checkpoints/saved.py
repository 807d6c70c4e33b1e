"""``stsbench.json``: what a saved encoder's folder says of how it is to be run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stsbench.errors import EncoderError, UnknownName, one_line
from stsbench.files.whole import write_whole

FILE = "stsbench.json"
KINDS = ("transformer", "sentence_transformer", "infersent", "skip_thoughts", "quick_thoughts", "fastsent")
"""What a folder may say it holds: the kinds that are written here, none of which names code or another encoder."""
OUTSIDE = ("model", "package", "revision", "subfolder", "name", "catalogue", "device", "vectors")
"""What is told by who runs a checkpoint: where it lies, what it is called, what it runs on."""


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
        EncoderError: the file is broken, or says what is not for a checkpoint to say.
        UnknownName: it names a kind that no folder holds.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=SavedEncoder)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EncoderError(f"{path}: cannot be read: {one_line(error)}") from error
    if saved.kind not in KINDS:
        hint = f"{path}: it is one of {', '.join(KINDS)}"
        raise UnknownName("kind of saved encoder", saved.kind, KINDS, hint=hint)
    for key in saved.params:
        if key in OUTSIDE:
            raise EncoderError(f"{path}: the params say '{key}', which is not for a checkpoint to say; remove it")
    return saved
