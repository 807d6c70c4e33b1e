"""What a checkpoint's own files tell of how it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from stsbench.encoders.checkpoints.saved import read_saved
from stsbench.encoders.transformer.modules import plain_transformer_params


class Told(NamedTuple):
    """A kind of encoder, its parameters beside ``model``, and which files tell them."""

    kind: str
    params: dict[str, Any]
    is_saved: bool = False
    """Whether ``stsbench.json`` tells all."""
    has_modules: bool = False
    """Whether sentence-transformers' files do; without either, a bare transformer tells no pooling."""


def told_by_files(folder: Path) -> Told:
    """Return what a checkpoint's folder tells.

    Raises:
        EncoderError: a file that tells it is broken. UnknownName: it names a kind that no folder holds.
    """
    if (saved := read_saved(folder)) is not None:
        return Told(saved.kind, dict(saved.params), is_saved=True)
    plain = plain_transformer_params(folder)
    has_modules = (folder / "modules.json").is_file()
    kind = "sentence_transformer" if has_modules and plain is None else "transformer"
    return Told(kind, plain or {}, has_modules=has_modules)
