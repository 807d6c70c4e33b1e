"""Hashes of large files, remembered: a gigabyte takes more than a second, and is opened again and again."""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.core import settings
from stsbench.core.errors import EncoderError, SourceError, one_line
from stsbench.core.files import file_digest, remove_stale, write_whole, writing_whole

if TYPE_CHECKING:
    import torch


def remembered_digest(path: Path) -> str:
    """The sha256 of a file, not computed again while it is the same file of the same size and times.

    Among the times is the one that no program can set: an edit that keeps size and date is seen. Where a system has none (Windows),
    the file is hashed every time. Raises SourceError: the file cannot be read.
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


SEAL = "sha256.json"
LARGE = 64 << 20
"""Bytes from which a hash is remembered with the file's size and times; what is smaller is hashed each time."""


def seal(folder: Path) -> None:
    """Write the hashes of all files of a folder, the last of its files."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.suffix != ".partial"]
    digests = {path.name: file_digest(path) for path in files if path.name != SEAL}
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


UNUSED = ("cls.seq_relationship.", "qa_outputs.", "classifier.", "discriminator_predictions.")
"""Heads that neither embed nor train here."""


def as_safetensors(weights: Path) -> Path:
    """Convert ``.bin`` weights, or find them converted; one that was damaged since is converted again.

    Raises EncoderError: the file holds more than tensors, or some that safetensors cannot hold. OutputError: the
    cache folder cannot be written.
    """
    # The model is opened as a folder, so its configuration goes along and counts.
    config = (weights.parent / "config.json").read_bytes()
    key = hashlib.sha256(file_digest(weights).encode() + config).hexdigest()
    target = settings.cache_folder() / "converted" / key / "model.safetensors"
    if target.is_file() and is_sealed(target.parent):
        return target
    from safetensors.torch import save_file

    state = _tensors(weights)
    write_whole(target.parent / "config.json", config)
    remove_stale(target.parent)
    with writing_whole(target) as stream:
        try:
            save_file(state, stream.name, metadata={"format": "pt"})
        except Exception as error:  # its own kind, whether a type or the disk is the cause
            what = f"{weights}: cannot be kept as safetensors ({one_line(error)[:200]})"
            raise EncoderError(f"{what}; ask its author for them, or free some space in {target.parent}") from error
    seal(target.parent)
    return target


def _tensors(weights: Path) -> dict[str, torch.Tensor]:
    """The tensors by name, as they lie in the file; those that share memory each for itself."""
    import torch

    try:
        # Files of torch before 1.6 are no zip archives and cannot be mapped.
        state = torch.load(weights, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(weights))
    except Exception as error:  # torch raises many kinds for what it refuses to unpickle
        what = f"{weights}: holds more than tensors and is not read ({one_line(error)[:80]}…)"
        raise EncoderError(f"{what}; ask its author for safetensors") from error
    if not isinstance(state, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
        raise EncoderError(f"{weights}: is not a flat table of tensors; ask its author for safetensors")
    plain, seen = dict[str, torch.Tensor](), set[int]()
    for name, tensor in state.items():
        if not isinstance(name, str) or tensor.is_quantized or tensor.layout != torch.strided or tensor.is_meta:
            what = f"{weights}: the tensor '{str(name)[:80]}' is no plain array of numbers with a name"
            raise EncoderError(f"{what}; ask its author for safetensors")
        if not name.startswith(UNUSED):
            kept = tensor.detach().resolve_conj().resolve_neg().contiguous()
            place = kept.untyped_storage().data_ptr()
            plain[name] = kept.clone() if place in seen else kept
            seen.add(place)
    return plain
