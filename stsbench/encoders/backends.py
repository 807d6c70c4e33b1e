"""Where a model runs, by what, and in which numbers: devices, and the backends, chosen by name.

A device says nothing of an embedding: it stands in no name and in no fingerprint. Under each backend tokens, batches and pooling are ours.
"""

from __future__ import annotations

import sys
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


def check_device(name: str) -> None:
    """Refuse a device that cannot be used here, before anything is taken from the store; raises as :func:`open_device`."""
    # These are everywhere: torch is not imported for them.
    if name not in ("auto", "cpu"):
        open_device(name)


def pick_device(name: str) -> str:
    """The device of this name; ``auto`` is a GPU where there is one."""
    import torch

    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def open_device(name: str) -> torch.device:
    """The device of this name. Raises EncoderError: there is no such device; CardError: it is no device's name."""
    import torch

    try:
        device = torch.device(pick_device(name))
    except RuntimeError as error:
        raise CardError(
            f"'{name}' is not a device; give auto, cpu, cuda, or cuda:1 for the second GPU"
        ) from error
    with translate_errors(
        f"device '{name}' cannot be used here", EncoderError, RuntimeError, AssertionError
    ):
        torch.empty(1, device=device).cpu()
    return device


def move_to(device: torch.device, array: npt.NDArray[Any]) -> torch.Tensor:
    """An array as a tensor on a device; a GPU copies it from pinned memory, while it computes."""
    import torch

    tensor = torch.from_numpy(array)
    return (
        tensor.pin_memory().to(device, non_blocking=True)
        if device.type == "cuda"
        else tensor.to(device)
    )


def uses_tf32() -> bool:
    """Whether a program has asked torch for products of float32 with ten bits alone, TF32, as GPUs offer; torch itself does not."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and torch.cuda.is_available()
        and torch.get_float32_matmul_precision() != "highest"
    )


def is_padding_invariant(
    alone: npt.NDArray[np.float32], beside: npt.NDArray[np.float32], dtype: str
) -> bool:
    """Whether what is computed in a type of numbers is the same beside longer sentences as alone, but for rounding."""
    import torch

    finite = np.isfinite(alone)
    far = np.abs(alone[finite] - beside[finite]).max(initial=0)
    return bool(
        far <= sqrt(torch.finfo(getattr(torch, dtype)).eps) * np.abs(alone[finite]).max(initial=0)
    )


MAX_DIFFERENCE = {"float32": 1e-2, "bfloat16": 1e-1}
MAX_QUANTISED_DIFFERENCE = 0.5
"""How far a runtime's hidden states may be from torch's, as a share of their length; rounding in float32 comes to 1e-6."""


class TorchBackend:
    """PyTorch itself, and what other ways to run a network begin from; made of what :func:`backend_kind` has checked, without loading."""

    dtypes: ClassVar[Sequence[str]] = DTYPES
    """The types of numbers that it computes in."""
    libraries: ClassVar[Sequence[str]] = ()
    """The packages whose versions may change what it computes, beside those of every transformer."""
    default_file: ClassVar[str] = ""
    """Where its file lies in a checkpoint, as sentence-transformers and optimum write it."""
    suffixes: ClassVar[Sequence[str]] = ()
    """What names of its files end in; none: it takes no file."""
    fingerprint_fields: Mapping[str, Any] = {}
    """What of it decides an embedding, as JSON values; nothing of torch, whose encoders keep their fingerprints."""
    notes: Sequence[str] = ()
    """What a reader of the scores should know."""

    def __init__(self, folder: Path, *, file: str, dtype: str, device: str) -> None:
        """Find the file of this name in the checkpoint's folder; raises CardError: it takes none; UnknownName."""
        if file and not self.suffixes:
            raise CardError(
                f"'file' ({file}) is a runtime's; give backend=onnx or backend=openvino with it"
            )
        self.folder, self.dtype, self.device = folder, dtype, device
        self.runtime_file = (
            find_runtime_file(folder, file, usual=self.default_file, suffixes=self.suffixes)
            if self.suffixes
            else None
        )
        self.precision = (
            f"int{self.runtime_file.bits}"
            if self.runtime_file is not None and self.runtime_file.bits
            else dtype
        )
        """The type of the numbers, for results: that of a quantised file is the file's."""

    @classmethod
    def hub_files(cls, file: str) -> list[str]:
        """What those of its files are called that a checkpoint on the Hub may have."""
        path = PurePosixPath(file or cls.default_file)
        if path.suffix not in cls.suffixes:
            return []
        return [
            str(one) for one in (path, path.with_suffix(".bin"), f"{path}_data", f"{path}.data")
        ]

    def model(self, network: Network) -> Any:  # noqa: ANN401 - transformers is untyped
        """Return what is called as a model of transformers is, loaded; raises EncoderError."""
        from stsbench.encoders.transformer.cpu_kernels import (
            pack_linears,
            runs_on_tokens,
            use_flash_attention,
        )

        model = network.load(self.dtype).to(self.torch_device)
        if self.torch_device.type == "cpu":
            pack_linears(model)
            # Mamba multiplies with the weights of a layer itself.
            return model if runs_on_tokens(model) else network.load(self.dtype)
        if self.torch_device.type == "cuda":
            use_flash_attention(model)
        return model

    def library(self, load: Callable[..., Any], *, state: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of no types
        """Return the ``SentenceTransformer`` that ``load`` makes, run here; ``state`` is what decides its numbers."""
        return load(dtype=self.dtype, device=pick_device(self.device))

    @cached_property
    def torch_device(self) -> torch.device:
        """The device that it runs on; raises EncoderError where there is none."""
        return open_device(self.device)


class RuntimeBackend(TorchBackend):
    """A runtime beside torch: takes the checkpoint's own file for it, or has torch export one into the cache folder."""

    runtime: ClassVar[str]
    """What messages call it."""
    fingerprint_name: ClassVar[str]
    """What fingerprints call it."""

    @abstractmethod
    def open(self, file: RuntimeFile) -> OpenedFile:
        """Load a file, to run in this dtype on as many threads as torch would."""

    @cached_property
    def fingerprint_fields(self) -> Mapping[str, Any]:  # type: ignore[override]
        """See :class:`TorchBackend`."""
        file = self.runtime_file.digests() if self.runtime_file is not None else "exported"
        return {
            "backend": self.fingerprint_name,
            "code": CODE_VERSION,
            "file": file,
            "precision": self.precision,
        }

    @property
    def notes(self) -> Sequence[str]:  # type: ignore[override]
        """See :class:`TorchBackend`."""
        run = f"run by {' and '.join(f'{name} {version(name)}' for name in self.libraries)} from "
        if self.runtime_file is None:
            return [f"{run}a file exported from the checkpoint"]
        alone = ", one sentence at a time: in a batch, its int8 numbers would depend on all of it"
        line = f"{run}its file {self.runtime_file.name}{alone if self.runtime_file.depends_on_batch else ''}"
        return [
            line,
            *(
                [f"{self.runtime_file.name} was {self.runtime_file.origin_note}"]
                if self.runtime_file.origin_note
                else []
            ),
        ]

    def model(self, network: Network) -> Any:  # noqa: ANN401 - see TorchBackend
        """See :meth:`TorchBackend.model`."""
        from stsbench.encoders.runtimes import RuntimeModel, check_against_torch, export_network

        file = self.runtime_file or export_network(network)
        model = RuntimeModel(self.runtime, file, network, self.open)
        check_against_torch(
            model, network, MAX_DIFFERENCE.get(self.precision, MAX_QUANTISED_DIFFERENCE)
        )
        return model

    def library(self, load: Callable[..., Any], *, state: Mapping[str, Any]) -> Any:  # noqa: ANN401 - see TorchBackend
        """See :meth:`TorchBackend.library`."""
        library = load(dtype="float32", device="cpu")
        first = library[0]
        if first.config.output_hidden_states:
            raise EncoderError(
                f"{self.folder}: its modules take hidden states of all layers; leave 'backend' out"
            )
        loaded = first.model
        network = Network(
            folder=self.folder, state=state, load=lambda dtype: loaded, tokenizer=first.tokenizer
        )
        first.model = self.model(network)
        return library


class OnnxBackend(RuntimeBackend):
    """ONNX Runtime: computes in the numbers that a file is written in."""

    dtypes, libraries = ("float32",), ("onnxruntime",)
    default_file, suffixes, fingerprint_name = "onnx/model.onnx", (".onnx",), "OnnxSession"
    runtime = "ONNX Runtime"

    def open(self, file: RuntimeFile) -> OpenedFile:
        """See :meth:`RuntimeBackend.open`."""
        import onnxruntime
        import torch

        # It sends its makers how it is used, on Windows.
        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        # Of what it has to say, errors alone.
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
        session = onnxruntime.InferenceSession(
            file.path, options, providers=["CPUExecutionProvider"]
        )

        def call(feeds: dict[str, npt.NDArray[Any]], names: list[str]) -> NamedArrays:
            return dict(zip(names, session.run(names, feeds), strict=True))

        return (
            [one.name for one in session.get_inputs()],
            [one.name for one in session.get_outputs()],
            call,
        )


class OpenVinoBackend(RuntimeBackend):
    """OpenVINO: its own files, and ONNX's."""

    dtypes, libraries = ("float32", "bfloat16"), ("openvino",)
    default_file, suffixes, fingerprint_name = (
        "openvino/openvino_model.xml",
        (".xml", ".onnx"),
        "OpenVinoSession",
    )
    runtime = "OpenVINO"

    def open(self, file: RuntimeFile) -> OpenedFile:
        """See :meth:`RuntimeBackend.open`."""
        import openvino
        import torch

        core, precision = openvino.Core(), {"float32": "f32", "bfloat16": "bf16"}[self.dtype]
        # Said even of float32: where a processor has bfloat16, OpenVINO would take that.
        hint = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        }
        network = core.read_model(
            file.path, *(path for path in file.weights if path.suffix == ".bin")
        )
        compiled = core.compile_model(network, "CPU", hint)
        if compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name() != precision:
            raise EncoderError(
                f"this processor does not compute in {self.dtype}; leave 'dtype' out"
            )
        request = compiled.create_infer_request()
        places = {name: i for i, one in enumerate(compiled.outputs) for name in one.names}

        def call(feeds: dict[str, npt.NDArray[Any]], names: list[str]) -> NamedArrays:
            found = request.infer(feeds, share_inputs=True)
            return {name: found[places[name]] for name in names}

        return [one.any_name for one in compiled.inputs], list(places), call


BACKENDS: dict[str, type[TorchBackend]] = {
    "torch": TorchBackend,
    "onnx": OnnxBackend,
    "openvino": OpenVinoBackend,
}
"""Every backend; adding one is a class above and its name here."""


def backend_kind(name: str, *, dtype: str, device: str) -> type[TorchBackend]:
    """Return the backend of this name, checked before a checkpoint is looked for.

    Raises UnknownName; CardError: it has no such type or device; EncoderError: it or the device is not there.
    """
    kind = look_up("backend", name, BACKENDS)
    if dtype not in kind.dtypes:
        near = f" of backend '{name}'" if dtype in DTYPES else suggest(dtype, kind.dtypes)
        raise CardError(f"unknown dtype '{dtype}'{near}; known: {', '.join(kind.dtypes)}")
    if not kind.suffixes:
        check_device(device)
    elif device not in ("auto", "cpu"):
        raise CardError(
            f"backend '{name}' runs on the CPU here, not on '{device}'; leave 'device' out"
        )
    elif lacking := [
        one for one in (*kind.libraries, "onnx", "onnxscript") if find_spec(one) is None
    ]:
        raise EncoderError(
            f"backend '{name}' needs {', '.join(lacking)}; run: pip install 'stsbench[{name}]'"
        )
    return kind
