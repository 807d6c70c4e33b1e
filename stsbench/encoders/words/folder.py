"""The folder of a saved encoder of words: ``config.json``, ``model.safetensors``, ``vocab.txt``, ``stsbench.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from stsbench.data.verify import file_digest
from stsbench.encoders.checkpoints.checkpoint import locate_checkpoint
from stsbench.encoders.checkpoints.saved import FILE, write_saved
from stsbench.errors import EncoderError, OutputError, one_line
from stsbench.files.whole import remove, scratch_beside, write_whole

if TYPE_CHECKING:
    import torch

CONFIG, WEIGHTS, VOCABULARY = "config.json", "model.safetensors", "vocab.txt"
ConfigT = TypeVar("ConfigT", bound=msgspec.Struct)


class WordFolder:
    """A folder that was found, its files read when they are asked for."""

    def __init__(self, model: str, *, revision: str = "unpinned") -> None:
        """Find the folder: a path, or a Hub id.

        Raises:
            SourceError: it cannot be had.
            EncoderError: it holds no weights.
        """
        self.path, self.revision = locate_checkpoint(model, revision=revision)
        for name in (CONFIG, WEIGHTS):
            if not (self.path / name).is_file():
                raise EncoderError(f"{self.path}: no {name}; is it the folder of a saved encoder?")

    def config(self, record: type[ConfigT]) -> ConfigT:
        """Read ``config.json`` strictly; raises EncoderError naming the key."""
        try:
            return msgspec.json.decode((self.path / CONFIG).read_bytes(), type=record)
        except (OSError, msgspec.DecodeError) as error:
            raise EncoderError(f"{self.path / CONFIG}: cannot be read: {one_line(error)}") from error

    def words(self) -> list[str]:
        """Read ``vocab.txt``: one word a line, in the order of the table's rows."""
        path = self.path / VOCABULARY
        try:
            words = path.read_bytes().decode("utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise EncoderError(f"{path}: cannot be read: {one_line(error)}") from error
        return words[:-1] if words[-1] == "" else words

    def tensors(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
        """Read the weights, which must be of these names and shapes.

        Raises:
            EncoderError: one is missing, too much, or of another shape.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.path / WEIGHTS
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError) as error:
            raise EncoderError(f"{path}: cannot be read: {one_line(error)}") from error
        check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, shapes, where=str(path))
        return {name: tensors[name].float() for name in shapes}

    def digests(self) -> dict[str, str]:
        """The sha256 of each file that can change an embedding."""
        names = [name for name in (CONFIG, WEIGHTS, VOCABULARY) if (self.path / name).is_file()]
        return {name: file_digest(self.path / name) for name in names}


def check_shapes(found: Mapping[str, tuple[int, ...]], due: Mapping[str, tuple[int, ...]], *, where: str) -> None:
    """Raise EncoderError where tensors are not those that an architecture has."""
    for name, shape in due.items():
        if name not in found:
            raise EncoderError(f"{where}: the tensor '{name}' is missing")
        if found[name] != shape:
            raise EncoderError(f"{where}: the tensor '{name}' has shape {found[name]}, not {shape}")
    extra = sorted(set(found) - set(due))
    if extra:
        raise EncoderError(f"{where}: has an unknown tensor '{extra[0]}'")


def write_word_folder(
    folder: Path,
    *,
    kind: str,
    config: msgspec.Struct,
    tensors: Mapping[str, torch.Tensor],
    words: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
) -> Path:
    """Write an encoder's folder, which ``load_encoder`` opens.

    Args:
        folder: where; files of the same names are replaced.
        kind: the encoder's kind.
        config: its architecture and how it reads text.
        tensors: its weights by name.
        words: the vocabulary, in the order of the table's rows.
        params: further parameters to run it with.

    Raises:
        OutputError: the folder cannot be written, or a word holds a line end.
    """
    if any("\n" in word or word == "" for word in words):
        raise OutputError(f"{folder / VOCABULARY}: a word of the vocabulary is empty or holds a line end")
    _write_weights(folder / WEIGHTS, tensors)
    if words:
        write_whole(folder / VOCABULARY, "".join(f"{word}\n" for word in words).encode())
    # In their order: the halves of an encoder are joined in it.
    facts = json.dumps(msgspec.to_builtins(config), indent=1)
    write_whole(folder / CONFIG, f"{facts}\n".encode())
    # The last: a folder with it is whole.
    write_saved(folder, kind, params or {})
    return folder / FILE


def _write_weights(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors so that the file is there whole or not at all; they may be gigabytes and are not copied."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    scratch = scratch_beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, scratch)
        scratch.replace(path)
    except (OSError, SafetensorError) as error:
        raise OutputError(f"{path.parent}: cannot be written: {one_line(error)}") from error
    finally:
        remove(scratch)
