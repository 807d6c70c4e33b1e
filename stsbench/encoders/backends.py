"""The device, the runtime and the type of numbers that a model runs with: backends, by name.

A device does not change an embedding: it is in no name and in no fingerprint. With each backend the
tokens, batches and pooling are our own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from math import sqrt
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import CardError, EncoderError, look_up, suggest, translate_errors
from stsbench.encoders.accelerator import resolve_device_name
from stsbench.encoders.network import (
    CODE_VERSION,
    NamedArrays,
    Network,
    OpenedFile,
    RuntimeFile,
    find_runtime_file,
)

if TYPE_CHECKING:
    import torch


DTYPES = ("float32", "bfloat16", "float16")
"""The types of numbers that torch can compute in here."""
INT8 = "int8"
"""The type of numbers of a file that is made of a checkpoint for ONNX Runtime."""


def check_device(name: str) -> None:
    """Raise an error if a device cannot be used on this machine.

    Raises:
        CardError: It is no name of a device.
        EncoderError: There is no such device here.
    """
    # These two always exist: torch is not imported for them.
    if name not in ("auto", "cpu"):
        open_device(name)


def open_device(name: str) -> torch.device:
    """Return the device of a name, after trying whether it can be used.

    Args:
        name: One of torch's names, such as ``cuda:1``; or ``auto``, which stands for the
            accelerator if there is one, otherwise for the processor.

    Raises:
        CardError: It is no name of a device.
        EncoderError: There is no such device here.
    """
    import torch

    try:
        device = torch.device(resolve_device_name(name))
    except RuntimeError as error:
        raise CardError(
            f"'{name}' is not a device; give auto, cpu, cuda, or cuda:1 for the second GPU"
        ) from error
    problem = f"device '{name}' cannot be used here"
    # Torch's errors of the last two types become an EncoderError with this message.
    with translate_errors(problem, EncoderError, RuntimeError, AssertionError):
        torch.empty(1, device=device).cpu()
    return device


def is_padding_invariant(
    alone: npt.NDArray[np.float32], padded: npt.NDArray[np.float32], dtype: str
) -> bool:
    """Return whether padding changes the numbers of sentences by rounding at most.

    Args:
        alone: Hidden states or embeddings of sentences, each of which was computed alone. Numbers
            that are not finite are not compared.
        padded: Those of the same sentences, computed in a batch with longer ones; the same shape.
        dtype: The type of numbers that they were computed in, for example ``float32``.
    """
    import torch

    is_finite = np.isfinite(alone)
    largest_difference = np.abs(alone[is_finite] - padded[is_finite]).max(initial=0)
    largest_value = np.abs(alone[is_finite]).max(initial=0)
    relative_tolerance = sqrt(torch.finfo(getattr(torch, dtype)).eps)
    return bool(largest_difference <= relative_tolerance * largest_value)


MAX_OUTPUT_DIFFERENCE = {"float32": 1e-2, "bfloat16": 1e-1}
MAX_QUANTISED_OUTPUT_DIFFERENCE = 0.5
"""How far a runtime's hidden states may be from torch's, as a share of their length.

Rounding in float32 comes to 1e-6.
"""


class TorchBackend:
    """PyTorch, and the base class of other backends.

    It is made from what :func:`resolve_backend_class` has checked; the model is not loaded.

    Attributes:
        folder: The checkpoint's folder.
        dtype: The type of numbers to compute in.
        device: The name of the device.
        runtime_file: The runtime's own file in the folder; None if there is none.
        precision: The type of the numbers, for results; that of a quantised file is the file's.
    """

    dtypes: ClassVar[Sequence[str]] = DTYPES
    """The types of numbers that it can compute in."""
    libraries: ClassVar[Sequence[str]] = ()
    """The packages that may change its numbers, besides those of every transformer."""
    default_file: ClassVar[str] = ""
    """The path of its file in a checkpoint, as sentence-transformers and optimum write it."""
    suffixes: ClassVar[Sequence[str]] = ()
    """The suffixes of its files; empty if it reads none."""
    fingerprint_fields: Mapping[str, Any] = {}
    """What can change an embedding, as JSON values; empty for torch, whose fingerprints stay."""
    notes: Sequence[str] = ()
    """Notes for the readers of scores."""
    padding_reason = ""
    """The reason why a model on an accelerator computes padding; empty if it does not."""

    def __init__(self, folder: Path, *, file: str, dtype: str, device: str) -> None:
        """Find the file that this backend runs, if it is one that runs a file of its own.

        A backend with ``suffixes``, those of its files, does so; torch has none.

        Args:
            folder: The checkpoint's folder.
            file: The path of the file in the folder; empty for the class's ``default_file``.
            dtype: The type of numbers to compute in.
            device: The name of the device.

        Raises:
            CardError: The backend reads no file.
            UnknownName: ``file`` is named, and there is no such file.
            EncoderError: The file is broken.
        """
        if file and not self.suffixes:
            raise CardError(
                f"'file' ({file}) is a runtime's; give backend=onnx or backend=openvino with it"
            )
        self.folder = folder
        self.dtype = dtype
        self.device = device
        # None if it runs no file of its own; also if none is named and the folder lacks the default
        # one, so that one is exported later.
        self.runtime_file: RuntimeFile | None = None
        if self.suffixes:
            self.runtime_file = find_runtime_file(
                folder, file, default_file=self.default_file, suffixes=self.suffixes
            )
        # The fewest bits of the file's weights if they are quantised, otherwise None.
        bits = self.runtime_file.bits if self.runtime_file is not None else None
        self.precision = f"int{bits}" if bits else dtype

    @classmethod
    def hub_files(cls, file: str) -> list[str]:
        """Return the paths of files to fetch from a checkpoint on the Hub, if they exist there.

        They are the file that this backend runs, and the files beside it that may hold its weights.

        Args:
            file: The path of the file in the checkpoint; empty for the class's ``default_file``.

        Returns:
            An empty list if this backend runs no file with such a suffix; torch runs none.
        """
        path = PurePosixPath(file or cls.default_file)
        if path.suffix not in cls.suffixes:
            return []
        # The file itself, and three names under which its weights may lie beside it.
        return [str(path), str(path.with_suffix(".bin")), f"{path}_data", f"{path}.data"]

    def load_model(self, network: Network) -> Any:  # noqa: ANN401 - transformers is untyped
        """Load a model for inference on this backend's device.

        On a CPU its linear layers are packed if that makes products faster on this processor and
        the model runs with packed layers. On an accelerator it computes no padding if possible;
        otherwise ``self.padding_reason`` says why it does.

        Args:
            network: The function ``load`` that makes the model, and the outputs it must have.

        Returns:
            A model of transformers.

        Raises:
            EncoderError: The network cannot be loaded.
        """
        from stsbench.encoders.transformer.cpu_kernels import (
            is_packing_faster,
            keep_freed_memory,
            pack_linears,
            runs_on_tokens,
        )
        from stsbench.encoders.transformer.flat import find_attention, try_omitting_padding

        model = network.load(self.dtype).to(self.torch_device)
        if self.torch_device.type == "cpu":
            keep_freed_memory()
            if not is_packing_faster(self.dtype):
                return model
            # In place; then it is tried on two tokens whether the model still runs.
            pack_linears(model)
            if not runs_on_tokens(model):
                # Mamba multiplies with the weights of a layer itself, so that packing breaks it.
                return network.load(self.dtype)
            return model
        # A function that computes attention without padding; None for all devices but CUDA's.
        attention = find_attention(self.torch_device)
        self.padding_reason = "there is no attention without padding for this device"
        if attention is not None:
            # Only in the model without its head: a cross-encoder's head, for example, reads padded
            # states. The text is empty if no padding is computed.
            self.padding_reason = try_omitting_padding(model.base_model, attention)
        return model

    def load_library_model(self, load: Callable[..., Any], *, state: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of no types
        """Load a model of sentence-transformers in torch, on this backend's device.

        Args:
            load: Loads the ``SentenceTransformer``; called with ``dtype`` and ``device``.
            state: Not used here. A subclass that exports the model uses it: everything that can
                change the model's numbers, as JSON values.
        """
        return load(dtype=self.dtype, device=resolve_device_name(self.device))

    @cached_property
    def torch_device(self) -> torch.device:
        """The device of torch for the user's name of it, ``self.device``, after a first use.

        Raises:
            EncoderError: There is no such device here.
        """
        return open_device(self.device)


class RuntimeBackend(TorchBackend):
    """A runtime besides torch.

    It runs the checkpoint's own file for it, or one that torch exports into the cache folder.
    """

    runtime: ClassVar[str]
    """Its name in messages."""
    fingerprint_name: ClassVar[str]
    """Its name in fingerprints."""

    @abstractmethod
    def open(self, file: RuntimeFile) -> OpenedFile:
        """Load a file, to run in the backend's type on as many threads as torch would."""

    @cached_property
    def torch_device(self) -> torch.device:
        """The processor, on which these runtimes run here, as a device of torch."""
        return open_device("cpu")

    @cached_property
    def fingerprint_fields(self) -> Mapping[str, Any]:  # type: ignore[override]
        """What a runtime adds to the fingerprint of an encoder, as JSON values by name.

        For a file of the checkpoint these are also its hashes. An exported file is made from the
        checkpoint's weights, whose hashes are in the fingerprint already. ``CODE_VERSION`` is
        raised when a change of the export's code can change an embedding.
        """
        # The sha256 by path, of the file and of those beside it that hold its weights.
        file = self.runtime_file.file_hashes() if self.runtime_file is not None else "exported"
        return {
            "backend": self.fingerprint_name,
            "code": CODE_VERSION,
            "file": file,
            "precision": self.precision,
        }

    @property
    def notes(self) -> Sequence[str]:  # type: ignore[override]
        """One or two notes for readers of scores: the packages that run a file, and its origin."""
        file = self.runtime_file
        versions = " and ".join(f"{name} {version(name)}" for name in self.libraries)
        if file is None:
            return [f"run by {versions} from a file exported from the checkpoint"]
        note = f"run by {versions} from its file {file.name}"
        if file.depends_on_batch:
            note += (
                ", one sentence at a time: in a batch, its int8 numbers would depend on all of it"
            )
        # A line beside the file may say how it was made; otherwise this text is empty.
        if not file.origin_note:
            return [note]
        return [note, f"{file.name} was {file.origin_note}"]

    def load_model(self, network: Network) -> Any:  # noqa: ANN401 - see TorchBackend
        """Load a model in a runtime, and compare its output for a few sentences with torch's.

        The runtime runs the checkpoint's own file for it, or one that is exported now.

        Args:
            network: How to load the model in torch, and the outputs it must have.

        Returns:
            A module that is called as a model of transformers is.

        Raises:
            EncoderError: The network cannot be exported or loaded, or its output differs from
                torch's by more than rounding and quantisation explain.
        """
        from stsbench.encoders.runtimes import RuntimeModel, check_against_torch

        file = self.runtime_file or self.export(network)
        model = RuntimeModel(self.runtime, file, network, self.open)
        # As a share of the length of a hidden state: 0.01 for float32, 0.1 for bfloat16, and 0.5
        # for the precision of a quantised file, such as int8, which the table lacks.
        max_difference = MAX_OUTPUT_DIFFERENCE.get(self.precision, MAX_QUANTISED_OUTPUT_DIFFERENCE)
        check_against_torch(model, network, max_difference)
        return model

    def export(self, network: Network) -> RuntimeFile:
        """Return an ONNX file of a model in the cache folder; export it unless it exists.

        Args:
            network: How to load the model in torch, the outputs it must have, and the hashes of
                its files, by which the exported file is found.

        Raises:
            EncoderError: It cannot be exported.
            OutputError: The cache folder cannot be written.
        """
        from stsbench.encoders.runtimes import export_network

        return export_network(network)

    def load_library_model(self, load: Callable[..., Any], *, state: Mapping[str, Any]) -> Any:  # noqa: ANN401 - see TorchBackend
        """Load a ``SentenceTransformer`` whose transformer is run by this runtime, not by torch.

        Args:
            load: Loads the ``SentenceTransformer`` in torch; called with ``dtype`` and ``device``.
            state: Everything that can change its numbers, as JSON values; a hash of it names an
                exported file.

        Raises:
            EncoderError: Its modules need hidden states of all layers; or the transformer cannot
                be exported or loaded, or has another output in the runtime than in torch.
        """
        sentence_transformer = load(dtype="float32", device="cpu")
        # Only the first module is replaced; pooling and what follows run in torch.
        transformer = sentence_transformer[0]
        if transformer.config.output_hidden_states:
            raise EncoderError(
                f"{self.folder}: its modules take hidden states of all layers; run them by torch "
                "in another dtype"
            )
        torch_model = transformer.model
        network = Network(
            folder=self.folder,
            state=state,
            load=lambda dtype: torch_model,
            tokenizer=transformer.tokenizer,
        )
        # A module of this runtime, called as a model of transformers is.
        transformer.model = self.load_model(network)
        return sentence_transformer


class OnnxBackend(RuntimeBackend):
    """ONNX Runtime, which computes in the type of numbers that a file has."""

    dtypes = ("float32",)
    libraries = ("onnxruntime",)
    default_file = "onnx/model.onnx"
    suffixes = (".onnx",)
    fingerprint_name = "OnnxSession"
    runtime = "ONNX Runtime"

    def open(self, file: RuntimeFile) -> OpenedFile:
        """Load an ONNX file in ONNX Runtime, to run on as many threads as torch would.

        A file that gets one sentence at a time runs on one thread, and several sentences at once.

        Returns:
            The names of the file's inputs and outputs, and a function that runs it.
        """
        import onnxruntime
        import torch

        # On Windows the package would otherwise report its use to its makers.
        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        n_threads = torch.get_num_threads()
        max_parallel_runs = n_threads if file.depends_on_batch else 1
        options.intra_op_num_threads = n_threads // max_parallel_runs
        # Log errors only.
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            file.path, options, providers=["CPUExecutionProvider"]
        )

        def run(inputs: dict[str, npt.NDArray[Any]], names: list[str]) -> NamedArrays:
            """Return the outputs of these names for inputs by name."""
            return dict(zip(names, session.run(names, inputs), strict=True))

        return OpenedFile(
            inputs=[node.name for node in session.get_inputs()],
            outputs=[node.name for node in session.get_outputs()],
            run=run,
            max_parallel_runs=max_parallel_runs,
        )


class Int8Backend(OnnxBackend):
    """ONNX Runtime with an int8 file, which is made of the checkpoint's weights once.

    Attributes:
        exported: The folder of the file; None until the model is loaded.
    """

    dtypes = (INT8,)
    # A float32 file in the checkpoint's folder is not used.
    default_file = ""
    exported: Path | None = None

    def __init__(self, folder: Path, *, file: str, dtype: str, device: str) -> None:
        """Check that no file is named; the parameters are those of the base class.

        Raises:
            CardError: A file is named.
        """
        if file:
            raise CardError(f"dtype '{INT8}' makes a file itself; leave 'file' or 'dtype' out")
        super().__init__(folder, file=file, dtype=dtype, device=device)

    @property
    def notes(self) -> Sequence[str]:  # type: ignore[override]
        """A list of one note for results: the runtime's version, and how its file was made."""
        return [
            f"run by onnxruntime {version('onnxruntime')} from an {INT8} file that its dynamic "
            "quantisation made of the checkpoint, one sentence at a time"
        ]

    def export(self, network: Network) -> RuntimeFile:
        """Return an int8 file of a model in the cache folder; make it unless it exists.

        Its folder is stored in ``self.exported``: what int8 costs is stored there too.

        Args:
            network: How to load the model in torch, and the outputs it must have.
        """
        from stsbench.encoders.runtimes import export_network

        file = export_network(network, int8=True)
        self.exported = file.folder
        return file


class OpenVinoBackend(RuntimeBackend):
    """OpenVINO, which reads its own files, and those of ONNX."""

    dtypes = ("float32", "bfloat16")
    libraries = ("openvino",)
    default_file = "openvino/openvino_model.xml"
    suffixes = (".xml", ".onnx")
    fingerprint_name = "OpenVinoSession"
    runtime = "OpenVINO"

    def open(self, file: RuntimeFile) -> OpenedFile:
        """Load a file in OpenVINO, to run in the backend's type on as many threads as torch would.

        Args:
            file: An ONNX file, or one in OpenVINO's own format with its weights beside it.

        Returns:
            The names of the file's inputs and outputs, and a function that runs it.

        Raises:
            EncoderError: This processor does not compute in the type.
        """
        import openvino
        import torch

        core = openvino.Core()
        precision = {"float32": "f32", "bfloat16": "bf16"}[self.dtype]
        # Set for float32 too: by default OpenVINO uses bfloat16 if the processor has it.
        config = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        }
        weights = [path for path in file.weights if path.suffix == ".bin"]
        compiled = core.compile_model(core.read_model(file.path, *weights), "CPU", config)
        # OpenVINO may choose another type than it is told.
        used_precision = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        if used_precision != precision:
            raise EncoderError(
                f"this processor does not compute in {self.dtype}; leave 'dtype' out"
            )
        request = compiled.create_infer_request()
        # An output may have several names.
        positions_by_name = {
            name: position
            for position, output in enumerate(compiled.outputs)
            for name in output.names
        }

        def run(inputs: dict[str, npt.NDArray[Any]], names: list[str]) -> NamedArrays:
            """Return the outputs of these names for inputs by name."""
            arrays = request.infer(inputs, share_inputs=True)
            return {name: arrays[positions_by_name[name]] for name in names}

        return OpenedFile(
            inputs=[node.any_name for node in compiled.inputs],
            outputs=list(positions_by_name),
            run=run,
        )


BACKENDS: dict[str, type[TorchBackend]] = {
    "torch": TorchBackend,
    "onnx": OnnxBackend,
    "openvino": OpenVinoBackend,
}
"""Every backend by name; to add one, write a class above and add its name here."""


def resolve_backend_class(name: str, *, dtype: str, device: str) -> type[TorchBackend]:
    """Return the class of a backend, after checks that need no checkpoint.

    A backend is what runs a model: torch, or another runtime with files of its own.

    Args:
        name: The name of the backend: ``torch``, ``onnx`` or ``openvino``.
        dtype: The type of numbers to compute in.
        device: The name of the device.

    Raises:
        UnknownName: There is no such backend.
        CardError: The backend does not compute in this type, or not on this device.
        EncoderError: Its packages are not installed, or there is no such device here.
    """
    backend_class = look_up("backend", name, BACKENDS)
    dtypes = tuple(backend_class.dtypes)
    # For messages: what the user has chosen, and the extra of stsbench with its packages.
    label, extra = f"backend '{name}'", name
    # ONNX Runtime computes int8, whether the user names it or the default, torch.
    if backend_class in (TorchBackend, OnnxBackend):
        dtypes += Int8Backend.dtypes
        if dtype == INT8:
            backend_class = Int8Backend
            label, extra = f"dtype '{INT8}'", "onnx"
    if dtype not in dtypes:
        # For a misspelt type, the nearest one; for a type of other backends, the backend's name.
        is_known = dtype in (*DTYPES, INT8)
        advice = f" of backend '{name}'" if is_known else suggest(dtype, dtypes)
        raise CardError(f"unknown dtype '{dtype}'{advice}; known: {', '.join(dtypes)}")
    runs_own_files = bool(backend_class.suffixes)
    if not runs_own_files:  # torch, on any device
        check_device(device)
        return backend_class
    if device not in ("auto", "cpu"):
        raise CardError(f"{label} runs on the CPU here, not on '{device}'; leave 'device' out")
    # The packages that run the model, and those that export it.
    packages = (*backend_class.libraries, "onnx", "onnxscript")
    missing_packages = [package for package in packages if find_spec(package) is None]
    if missing_packages:
        raise EncoderError(
            f"{label} needs {', '.join(missing_packages)}; run: pip install 'stsbench[{extra}]'"
        )
    return backend_class
