"""``.bin`` weights, read once as tensors and nothing else, and kept as safetensors.

The file is mapped into memory and written tensor by tensor, so that a conversion needs little more
memory than the file has bytes.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from stsbench import settings
from stsbench.data.verify import file_digest
from stsbench.encoders.checkpoints.sealed import is_sealed, seal
from stsbench.errors import EncoderError, one_line
from stsbench.files.whole import remove_stale, write_whole, writing_whole

if TYPE_CHECKING:
    import torch

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
