"""A network that is to be run by a backend, and a runtime's own files of it: kept to the checkpoint's folder, known by their hashes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

from stsbench.core.errors import EncoderError, UnknownName, one_line, shown, visible
from stsbench.core.files import file_digest, read_bounded

_QUANTISED = re.compile(rb'element_type="[iu]([48])"')
"""Weights of a few bits in OpenVINO's XML: counts and ids are of more, and of bits."""
_LONGEST_NOTE = 1000


def note_beside(path: Path) -> Path:
    """Where a line says how a file was made."""
    return path.with_name(f"{path.name}.made.txt")


class RuntimeFile:
    """A network as a runtime's file, and the files with its weights where they lie beside it."""

    def __init__(self, folder: Path, name: str) -> None:
        """Keep the checkpoint's folder and the file's path in it."""
        self.folder, self.name, self.path = folder, name, folder / name

    def digests(self) -> dict[str, str]:
        """The sha256 of all its files, by their paths in the folder; raises EncoderError as :attr:`parts`."""
        return {path.relative_to(self.folder).as_posix(): file_digest(path) for path in self.parts}

    @cached_property
    def parts(self) -> list[Path]:
        """The file, and those that it takes its weights from.

        Raises EncoderError: it is broken, one of them is not there, or it points out of its folder.
        """
        beside = [self.path.with_suffix(".bin").name] if self.path.suffix == ".xml" else sorted(self._graph.locations)
        for name in beside:
            # Parts by Windows' rules are parts by any: both slashes, drives, roots.
            place = PureWindowsPath(name)
            if place.anchor or ".." in place.parts or not name.isprintable():
                raise EncoderError(f"{self.path}: points at weights outside its folder ({shown(name)}); it is not read")
            if not (self.path.parent / name).is_file():
                raise EncoderError(f"{self.path}: its weights '{name}' are not beside it; copy them there")
        return [self.path, *(self.path.parent / name for name in beside)]

    @property
    def made(self) -> str:
        """How it was made, as a line beside it says; empty where there is none. Raises DataError where that is too long."""
        note = note_beside(self.path)
        return visible(one_line(read_bounded(note, _LONGEST_NOTE).decode("utf-8", "replace"))) if note.is_file() else ""

    @cached_property
    def bits(self) -> int | None:
        """The fewest bits that its quantised weights have; None where none is quantised."""
        if self.path.suffix != ".xml":
            return min(self._graph.bits, default=None)
        return min(map(int, _QUANTISED.findall(self.path.read_bytes())), default=None)

    @property
    def hangs_on_batch(self) -> bool:
        """Whether it takes the range of its activations from a whole batch, so that an embedding hangs on its neighbours."""
        return self.path.suffix != ".xml" and self._graph.hangs_on_batch

    @cached_property
    def _graph(self) -> _Graph:
        """What the ONNX file tells; raises EncoderError where it is broken."""
        import onnx

        try:
            graph = onnx.load(str(self.path), load_external_data=False)
        except Exception as error:  # protobuf's own kinds
            raise EncoderError(f"{self.path}: cannot be read as ONNX: {one_line(error)[:200]}") from error
        kinds = onnx.TensorProto
        widths = {kinds.INT8: 8, kinds.UINT8: 8, kinds.INT4: 4, kinds.UINT4: 4}
        found = _Graph(set(), set())
        for message in _messages(graph):
            if isinstance(message, kinds):
                found.bits.update({widths[message.data_type]} if message.data_type in widths else ())
                if message.data_location == kinds.EXTERNAL:
                    found.locations.add({one.key: one.value for one in message.external_data}.get("location", ""))
            elif isinstance(message, onnx.NodeProto) and message.op_type == "DynamicQuantizeLinear":
                found = found._replace(hangs_on_batch=True)
        return found


class _Graph(NamedTuple):
    """What an ONNX file tells: where its weights lie, how many bits those have that are quantised, and how it quantises."""

    locations: set[str]
    bits: set[int]
    hangs_on_batch: bool = False


def find_file(folder: Path, name: str, *, usual: str, suffixes: Sequence[str]) -> RuntimeFile | None:
    """Return the file of this name in a checkpoint's folder; without a name the usual one, None where it is not there.

    Raises UnknownName: there is no such file, or it lies elsewhere; says which there are.
    """
    if not name:
        return RuntimeFile(folder, usual) if (folder / usual).is_file() else None
    known = sorted(
        path.relative_to(folder).as_posix()
        for suffix in suffixes
        for path in (*folder.glob(f"*{suffix}"), *folder.glob(f"*/*{suffix}"))
    )
    if name not in known:
        raise UnknownName("file", name, known, hint=f"{folder} has {', '.join(known) or f'no {suffixes[0]}'}")
    return RuntimeFile(folder, name)


def _messages(message: Any) -> Iterator[Any]:  # noqa: ANN401 - protobuf's
    """All messages within one, wherever they stand: in graphs inside nodes, in functions, in sparse tensors."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in [value] if hasattr(value, "ListFields") else value:
                yield one
                yield from _messages(one)


CODE_VERSION = 1
"""Raise when a change of how networks are exported or run can change an embedding: stored ones are then not reused."""
LAST, HEAD = "last_hidden_state", "pooler_output"


@dataclass(frozen=True, kw_only=True)
class Network:
    """A transformer that is to be run, and what is asked of it."""

    folder: Path
    """Where its ``config.json`` lies."""
    state: Mapping[str, Any]
    """What decides its numbers, as JSON values: the hashes of its files."""
    make: Callable[[str], Any]
    """Loads it in torch, its numbers of this type, in evaluation mode on the CPU."""
    layers: Callable[[int], Sequence[int]] = lambda depth: (-1,)
    """The hidden states that are asked for, given how many layers there are; the last is always given."""
    through_head: bool = False
    """Whether the model's own head is asked for."""
    tokenizer: Any = None

    @cached_property
    def in_torch(self) -> Any:  # noqa: ANN401 - transformers is untyped
        """The network in torch, in float32: what is exported, and what a runtime's numbers are compared with."""
        return self.make("float32")

    def config(self) -> Any:  # noqa: ANN401 - transformers is untyped
        """Load its configuration alone; raises EncoderError."""
        import transformers

        try:
            config = transformers.AutoConfig.from_pretrained(
                str(self.folder), local_files_only=True, trust_remote_code=False
            )
            # Not every architecture says these.
            _ = config.num_hidden_layers, config.vocab_size
            return config
        except Exception as error:  # what others wrote makes transformers raise anything
            raise EncoderError(f"{self.folder}: config.json cannot be read: {one_line(error)[:300]}") from error

    def earlier(self, depth: int) -> list[int]:
        """The layers that are asked for beside the last, of a network with so many."""
        return [layer for layer in self.layers(depth) if output_of(layer, depth) != LAST]

    def outputs(self, depth: int) -> list[str]:
        """The names of what a runtime has to give."""
        if self.through_head:
            return [LAST, HEAD]
        return [LAST, *(output_of(layer, depth) for layer in self.earlier(depth))]


def output_of(layer: int, depth: int) -> str:
    """What files call the hidden states of a layer of a network with ``depth`` layers."""
    number = layer % (depth + 1)
    return LAST if number == depth else f"hidden_states.{number}"
