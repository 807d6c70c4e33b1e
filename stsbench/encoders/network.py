"""A network that is to be run by a backend, and a runtime's own files of it: kept to the checkpoint's folder, known by their hashes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy.typing as npt

from stsbench.core.errors import EncoderError, UnknownName, translate_errors
from stsbench.core.files import file_digest, read_bounded
from stsbench.core.wording import escape_controls, format_repr, join_lines

_QUANTISED = re.compile(rb'element_type="[iu]([48])"')
"""Weights of a few bits in OpenVINO's XML: counts and ids are of more, and of bits."""
_LONGEST_NOTE = 1000
NamedArrays = Mapping[str, npt.NDArray[Any]]
OpenedFile = tuple[
    list[str], list[str], Callable[[dict[str, npt.NDArray[Any]], list[str]], NamedArrays]
]
"""Of a file that is loaded the names of inputs and outputs, and what runs it: from all inputs, and names of outputs, to these."""


def origin_note_path(path: Path) -> Path:
    """Where a line says how a file was made."""
    return path.with_name(f"{path.name}.made.txt")


class RuntimeFile:
    """A network as a runtime's file, and the files with its weights where they lie beside it."""

    bits: int | None
    """The fewest bits that its quantised weights have; None where none is quantised."""
    depends_on_batch = False
    """Whether it takes the range of its activations from a whole batch, so that an embedding depends on its neighbours."""

    def __init__(self, folder: Path, name: str) -> None:
        """Read where its weights are, and how they are kept; raises EncoderError: broken, or not all in its folder."""
        self.folder, self.name, self.path = folder, name, folder / name
        if self.path.suffix == ".xml":
            beside = {self.path.with_suffix(".bin").name}
            self.bits = min(map(int, _QUANTISED.findall(self.path.read_bytes())), default=None)
        else:
            beside = self._read_onnx()
        for part in sorted(beside):
            # Parts by Windows' rules are parts by any: both slashes, drives, roots.
            place = PureWindowsPath(part)
            if place.anchor or ".." in place.parts or not part.isprintable():
                raise EncoderError(
                    f"{self.path}: points at weights outside its folder ({format_repr(part)}); it is not read"
                )
            if not (self.path.parent / part).is_file():
                raise EncoderError(
                    f"{self.path}: its weights '{part}' are not beside it; copy them there"
                )
        self.weights = [self.path.parent / part for part in sorted(beside)]

    def _read_onnx(self) -> set[str]:
        import onnx

        with translate_errors(f"{self.path}: cannot be read as ONNX", EncoderError):
            graph = onnx.load(str(self.path), load_external_data=False)
        kinds = onnx.TensorProto
        widths = {kinds.INT8: 8, kinds.UINT8: 8, kinds.INT4: 4, kinds.UINT4: 4}
        messages = list(_messages(graph))
        tensors = [message for message in messages if isinstance(message, kinds)]
        self.bits = min(
            (widths[one.data_type] for one in tensors if one.data_type in widths), default=None
        )
        nodes = [message for message in messages if isinstance(message, onnx.NodeProto)]
        self.depends_on_batch = any(node.op_type == "DynamicQuantizeLinear" for node in nodes)
        outside = [one for one in tensors if one.data_location == kinds.EXTERNAL]
        return {
            {entry.key: entry.value for entry in one.external_data}.get("location", "")
            for one in outside
        }

    def digests(self) -> dict[str, str]:
        """The sha256 of all its files, by their paths in the folder."""
        return {
            path.relative_to(self.folder).as_posix(): file_digest(path)
            for path in (self.path, *self.weights)
        }

    @property
    def origin_note(self) -> str:
        """How it was made, as a line beside it says; empty where there is none. Raises DataError where that is too long."""
        note = origin_note_path(self.path)
        return (
            escape_controls(
                join_lines(read_bounded(note, _LONGEST_NOTE).decode("utf-8", "replace"))
            )
            if note.is_file()
            else ""
        )


def find_runtime_file(
    folder: Path, name: str, *, usual: str, suffixes: Sequence[str]
) -> RuntimeFile | None:
    """The file of this name in a checkpoint's folder, or the usual one if it is there; raises UnknownName."""
    if not name:
        return RuntimeFile(folder, usual) if (folder / usual).is_file() else None
    found = (
        path
        for suffix in suffixes
        for place in ("*", "*/*")
        for path in folder.glob(place + suffix)
    )
    known = sorted(path.relative_to(folder).as_posix() for path in found)
    if name not in known:
        raise UnknownName(
            "file", name, known, hint=f"{folder} has {', '.join(known) or f'no {suffixes[0]}'}"
        )
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
    load: Callable[[str], Any]
    """Loads it in torch, its numbers of this type, in evaluation mode on the CPU."""
    layer_indices: Callable[[int], Sequence[int]] = lambda depth: (-1,)
    """The hidden states that are asked for, given how many layers there are; the last is always given."""
    through_head: bool = False
    """Whether the model's own head is asked for."""
    tokenizer: Any = None

    @cached_property
    def torch_model(self) -> Any:  # noqa: ANN401 - transformers is untyped
        """The network in torch, in float32: what is exported, and what a runtime's numbers are compared with."""
        return self.load("float32")

    @cached_property
    def config(self) -> Any:  # noqa: ANN401 - transformers is untyped
        """Its configuration alone; raises EncoderError."""
        import transformers

        with translate_errors(f"{self.folder}: config.json cannot be read", EncoderError):
            local = {"local_files_only": True, "trust_remote_code": False}
            config = transformers.AutoConfig.from_pretrained(str(self.folder), **local)
            # Not every architecture says these.
            _ = config.num_hidden_layers, config.vocab_size
            return config

    @cached_property
    def outputs(self) -> Mapping[str, int]:
        """The names of what a runtime has to give, and of which layer each is; the last hidden states are the first."""
        depth = self.config.num_hidden_layers
        earlier = () if self.through_head else self.layer_indices(depth)
        names = {output_name(layer, depth): layer for layer in (-1, *earlier)}
        return {**names, HEAD: -1} if self.through_head else names

    def call(self, model: Any, **inputs: Any) -> list[Any]:  # noqa: ANN401 - transformers is untyped
        """Of what a model gives for these inputs the outputs that are asked for."""
        found = model(**inputs, output_hidden_states=not {LAST, HEAD}.issuperset(self.outputs))
        named = self.outputs.items()
        return [
            getattr(found, one) if one in (LAST, HEAD) else found.hidden_states[layer]
            for one, layer in named
        ]


def output_name(layer: int, depth: int) -> str:
    """What files call the hidden states of a layer of a network with ``depth`` layers."""
    number = layer % (depth + 1)
    return LAST if number == depth else f"hidden_states.{number}"
