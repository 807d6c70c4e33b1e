"""A network that a backend will run, and a runtime's own files of it.

Files are read from the checkpoint's folder only, and identified by their hashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

import numpy.typing as npt

from stsbench.core.errors import EncoderError, UnknownName, translate_errors
from stsbench.core.files import file_sha256, read_bounded
from stsbench.core.wording import as_one_line, escape_controls, format_repr

_QUANTISED = re.compile(rb'element_type="[iu]([48])"')
"""Weights of 4 or 8 bits in OpenVINO's XML; counts and ids have more bits."""
_MAX_NOTE_BYTES = 1000
"""The maximum size of a note beside a file."""
NamedArrays = Mapping[str, npt.NDArray[Any]]
"""The inputs or outputs of a network, by name."""
RunFunction = Callable[[dict[str, npt.NDArray[Any]], list[str]], NamedArrays]
"""Computes outputs from all inputs and the names of the outputs."""


class OpenedFile(NamedTuple):
    """A runtime's file that is loaded."""

    inputs: list[str]
    """The names of its inputs."""
    outputs: list[str]
    """The names of its outputs."""
    run: RunFunction
    max_parallel_runs: int = 1
    """How many threads may call ``run`` at the same time."""


def origin_note_path(path: Path) -> Path:
    """Return the path of the line beside a file that describes how the file was made."""
    return path.with_name(f"{path.name}.made.txt")


class RuntimeFile:
    """A network as a runtime's file, and the files beside it with its weights."""

    bits: int | None
    """The fewest bits of its quantised weights; None if none is quantised."""
    depends_on_batch = False
    """Whether it scales activations by their range in a batch, whose sentences then interact."""

    def __init__(self, folder: Path, name: str) -> None:
        """Read which files hold the weights of a runtime's file, and of how many bits they are.

        The file is in ONNX's format, or in OpenVINO's (``.xml``).

        Args:
            folder: The checkpoint's folder.
            name: The path of the file in the folder.

        Raises:
            EncoderError: The file is broken, or its weights are not in its folder.
        """
        self.folder = folder
        self.name = name
        self.path = folder / name
        if self.path.suffix == ".xml":
            weights_names = {self.path.with_suffix(".bin").name}
            # The fewest bits of its quantised weights; None if none is quantised. The pattern finds
            # the digit in types such as element_type="i8" and "u4".
            self.bits = min(map(int, _QUANTISED.findall(self.path.read_bytes())), default=None)
        else:
            # This sets `bits` too, and `depends_on_batch`, which is False otherwise.
            weights_names = self._read_onnx()
        for weights_name in sorted(weights_names):
            # A path that is split by Windows' rules is split by any: both slashes, drives, roots.
            relative_path = PureWindowsPath(weights_name)
            is_outside = relative_path.anchor or ".." in relative_path.parts
            if is_outside or not weights_name.isprintable():
                raise EncoderError(
                    f"{self.path}: points at weights outside its folder "
                    f"({format_repr(weights_name)}); it is not read"
                )
            if not (self.path.parent / weights_name).is_file():
                raise EncoderError(
                    f"{self.path}: its weights '{weights_name}' are not beside it; copy them there"
                )
        self.weights = [self.path.parent / name for name in sorted(weights_names)]

    def _read_onnx(self) -> set[str]:
        """Read an ONNX file: return the names of the files beside it that hold its weights.

        Also set two attributes: ``bits``, the fewest bits of its quantised weights, None if none is
        quantised; and ``depends_on_batch``, whether numbers of one sentence depend on the others in
        a batch, because it quantises by the range of the numbers in the batch.

        Raises:
            EncoderError: The file cannot be read.
        """
        import onnx

        with translate_errors(f"{self.path}: cannot be read as ONNX", EncoderError):
            model = onnx.load(str(self.path), load_external_data=False)
        tensor_class = onnx.TensorProto
        bits_by_type = {
            tensor_class.INT8: 8,
            tensor_class.UINT8: 8,
            tensor_class.INT4: 4,
            tensor_class.UINT4: 4,
        }
        # ONNX files are of messages of protobuf inside each other: graphs, nodes, tensors.
        messages = list(_iter_messages(model))
        tensors = [message for message in messages if isinstance(message, tensor_class)]
        types = [tensor.data_type for tensor in tensors]
        self.bits = min(
            (bits_by_type[data_type] for data_type in types if data_type in bits_by_type),
            default=None,
        )
        nodes = [message for message in messages if isinstance(message, onnx.NodeProto)]
        self.depends_on_batch = any(node.op_type == "DynamicQuantizeLinear" for node in nodes)
        # A tensor outside the file names its own file in the field "location".
        names = set()
        for tensor in tensors:
            if tensor.data_location == tensor_class.EXTERNAL:
                fields = {field.key: field.value for field in tensor.external_data}
                names.add(fields.get("location", ""))
        return names

    def file_hashes(self) -> dict[str, str]:
        """Return the sha256 of all its files, by their paths in the folder."""
        return {
            path.relative_to(self.folder).as_posix(): file_sha256(path)
            for path in (self.path, *self.weights)
        }

    @property
    def origin_note(self) -> str:
        """How the file was made, as a note beside it says; empty without a note.

        The note of ``model.onnx`` is the file ``model.onnx.made.txt``.

        Raises:
            DataError: The note is longer than ``_MAX_NOTE_BYTES``.
        """
        path = origin_note_path(self.path)
        if not path.is_file():
            return ""
        content = read_bounded(path, _MAX_NOTE_BYTES).decode("utf-8", "replace")
        # Without line ends and without control characters, which could change a terminal.
        return escape_controls(as_one_line(content))


def find_runtime_file(
    folder: Path, name: str, *, default_file: str, suffixes: Sequence[str]
) -> RuntimeFile | None:
    """Return the file in a checkpoint's folder that a runtime, such as ONNX Runtime, runs.

    Args:
        folder: The checkpoint's folder.
        name: The path of the file in the folder, as the user names it; empty for the usual one.
        default_file: The path of the usual file.
        suffixes: The suffixes of the runtime's files, for example ``.onnx``.

    Returns:
        None if no file is named and there is no usual one.

    Raises:
        UnknownName: There is no file of this name.
        EncoderError: The file is broken, or its weights are not in its folder.
    """
    if not name:
        has_usual_file = (folder / default_file).is_file()
        return RuntimeFile(folder, default_file) if has_usual_file else None
    paths: list[Path] = []
    for suffix in suffixes:
        paths += [*folder.glob(f"*{suffix}"), *folder.glob(f"*/*{suffix}")]
    choices = sorted(path.relative_to(folder).as_posix() for path in paths)
    if name not in choices:
        raise UnknownName(
            "file", name, choices, hint=f"{folder} has {', '.join(choices) or f'no {suffixes[0]}'}"
        )
    return RuntimeFile(folder, name)


def _iter_messages(message: Any) -> Iterator[Any]:  # noqa: ANN401 - protobuf's
    """Yield all messages of protobuf within a message, at any depth.

    Protobuf is the format of ONNX files: a model is a message, its graph a message inside it, and
    so on. Tensors may be in graphs inside nodes, in functions and in sparse tensors.
    """
    for field, value in message.ListFields():
        if field.message_type is not None:
            # A field holds one message or a list of them.
            inner_messages = [value] if hasattr(value, "ListFields") else value
            for inner_message in inner_messages:
                yield inner_message
                yield from _iter_messages(inner_message)


CODE_VERSION = 1
"""Raise it when a change of how networks are exported or run can change an embedding.

Stored embeddings are then not reused.
"""
LAST_STATES, HEAD_OUTPUT = "last_hidden_state", "pooler_output"
"""The names of the last hidden states, and of the output of the model's own head."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A transformer that a backend will run, and the outputs that it must have."""

    folder: Path
    """The folder of its ``config.json``."""
    state: Mapping[str, Any]
    """Everything that can change its numbers, as JSON values: the hashes of its files."""
    load: Callable[[str], Any]
    """Loads it in torch with numbers of a type, in evaluation mode on the CPU."""
    layer_indices: Callable[[int], Sequence[int]] = lambda depth: (-1,)
    """Returns the hidden states to output for a number of layers; the last is always output."""
    through_head: bool = False
    """Whether the output of the model's own head is needed."""
    tokenizer: Any = None
    """The checkpoint's tokenizer, to compare the network in a runtime with torch on sentences."""

    @cached_property
    def torch_model(self) -> Any:  # noqa: ANN401 - transformers is untyped
        """The network in torch, in float32, which is exported, and compared with the runtime."""
        return self.load("float32")

    @cached_property
    def config(self) -> Any:  # noqa: ANN401 - transformers is untyped
        """The transformer's configuration, of transformers, read without loading the model.

        Raises:
            EncoderError: It cannot be read, or lacks the number of layers or words.
        """
        import transformers

        with translate_errors(f"{self.folder}: config.json cannot be read", EncoderError):
            # Neither download anything nor run code of the folder.
            safe_options = {"local_files_only": True, "trust_remote_code": False}
            config = transformers.AutoConfig.from_pretrained(str(self.folder), **safe_options)
            # Not every architecture has these two: if one is missing, it is an error here.
            _ = config.num_hidden_layers, config.vocab_size
            return config

    @cached_property
    def outputs(self) -> Mapping[str, int]:
        """The outputs that the network must have: the index of the layer by the output's name.

        ``output_name`` gives the last layer one name, by index -1 as by the number of layers.
        ``layer_indices`` are those of the layers that the pooling reads.

        The last layer's states, index -1, are always first. They are followed by those of the
        layers that are pooled, or by the output of the model's own head, also with index -1.
        """
        depth = self.config.num_hidden_layers
        if self.through_head:
            return {output_name(-1, depth): -1, HEAD_OUTPUT: -1}
        return {output_name(layer, depth): layer for layer in (-1, *self.layer_indices(depth))}

    def call(self, model: Any, **inputs: Any) -> list[Any]:  # noqa: ANN401 - transformers is untyped
        """Run a model and return the outputs that are named in ``self.outputs``, in that order.

        Args:
            model: The model of transformers that this network describes, or one like it.
            inputs: Its inputs by name, (b, t) each.

        Returns:
            For a layer its hidden states (b, t, h), for the model's own head its output (b, h).
        """
        # The names of outputs that are neither the last layer's nor the head's.
        inner_layers = self.outputs.keys() - {LAST_STATES, HEAD_OUTPUT}
        result = model(**inputs, output_hidden_states=bool(inner_layers))
        return [
            result.hidden_states[layer] if name in inner_layers else getattr(result, name)
            for name, layer in self.outputs.items()
        ]


def output_name(layer: int, depth: int) -> str:
    """Return the name in files for the hidden states of a layer of ``depth`` layers."""
    index = layer % (depth + 1)
    return LAST_STATES if index == depth else f"hidden_states.{index}"
