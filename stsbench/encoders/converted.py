"""Hashes of large files, remembered: a gigabyte takes more than a second, and is opened again and again."""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from stsbench.core import settings
from stsbench.core.errors import EncoderError, SourceError, one_line
from stsbench.core.files import file_digest, remove_stale, write_whole, writing_whole

if TYPE_CHECKING:
    import torch


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


CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""Torch's types by the names that safetensors has for them."""
UNUSED = ("cls.seq_relationship.", "qa_outputs.", "classifier.", "discriminator_predictions.")
"""Heads that neither embed nor train here."""
PIECE = 1 << 22
"""Values written at a time."""


def as_safetensors(weights: Path) -> Path:
    """Convert ``.bin`` weights, or find them converted; one that was damaged since is converted again.

    Raises:
        EncoderError: the file holds more than tensors, or some that safetensors cannot hold.
        OutputError: the cache folder cannot be written.
    """
    # The model is opened as a folder, so its configuration goes along and counts.
    config = (weights.parent / "config.json").read_bytes()
    key = hashlib.sha256(file_digest(weights).encode() + config).hexdigest()
    target = settings.cache_folder() / "converted" / key / "model.safetensors"
    if target.is_file() and is_sealed(target.parent):
        return target
    state = _tensors(weights)
    write_whole(target.parent / "config.json", config)
    _write(target, state)
    seal(target.parent)
    return target


def _tensors(weights: Path) -> dict[str, torch.Tensor]:
    """The tensors by name, as they lie in the file."""
    import torch

    state = _load(weights)
    if not isinstance(state, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
        raise EncoderError(f"{weights}: is not a flat table of tensors; ask its author for safetensors")
    for name, tensor in state.items():
        if not isinstance(name, str):
            raise EncoderError(
                f"{weights}: a tensor is called {str(name)[:40]}, which is not text; ask for safetensors"
            )
        if fault := _fault(tensor):
            raise EncoderError(f"{weights}: the tensor '{name[:80]}' {fault}; ask its author for safetensors")
    return {name: tensor for name, tensor in state.items() if not name.startswith(UNUSED)}


def _load(weights: Path) -> object:
    import torch

    try:
        # Files of torch before 1.6 are no zip archives and cannot be mapped.
        return torch.load(weights, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(weights))
    except Exception as error:  # torch raises many kinds for what it refuses to unpickle
        raise EncoderError(
            f"{weights}: holds more than tensors and is not read ({one_line(error)[:80]}…); "
            "ask its author for safetensors"
        ) from error


def _fault(tensor: torch.Tensor) -> str:
    """Why a tensor cannot be kept, nothing where it can."""
    import torch

    if tensor.is_quantized:
        return "is quantised"
    if tensor.layout != torch.strided:
        return f"is not dense ({str(tensor.layout).removeprefix('torch.')})"
    if tensor.device.type != "cpu":
        return f"has no values (device {tensor.device.type})"
    kind = str(tensor.dtype).removeprefix("torch.")
    return "" if kind in CODES else f"is of type {kind}"


def _write(path: Path, state: Mapping[str, torch.Tensor]) -> None:
    """Write a safetensors file so that it is there whole or not at all, a piece of a tensor in memory at a time."""
    remove_stale(path.parent)
    with writing_whole(path) as stream:
        # The widest type first, so that every tensor begins where its type may.
        ordered = sorted(state, key=lambda name: (-state[name].element_size(), name))
        _write_header(stream, {name: state[name] for name in ordered})
        for name in ordered:
            for piece in _pieces(state[name]):
                stream.write(piece)


def _write_header(stream: BinaryIO, state: Mapping[str, torch.Tensor]) -> None:
    """Eight bytes of length and then JSON: each tensor's type, shape, and where its bytes lie behind the header."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, tensor in state.items():
        end = start + tensor.numel() * tensor.element_size()
        code = CODES[str(tensor.dtype).removeprefix("torch.")]
        header[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    content = json.dumps(header, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    stream.write(len(content).to_bytes(8, "little") + content)


def _pieces(tensor: torch.Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor; what does not lie in one piece is copied, alone."""
    import torch

    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
    for start in range(0, len(flat), PIECE):
        yield flat[start : start + PIECE].data
