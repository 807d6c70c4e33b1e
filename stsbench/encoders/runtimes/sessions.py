"""Networks that a runtime has loaded. A runtime raises whatever it likes: all of it is told as one line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy.typing as npt
import torch

from stsbench.encoders.runtimes.files import RuntimeFile
from stsbench.errors import EncoderError, one_line

NamedArrays = Mapping[str, npt.NDArray[Any]]
_ERRORS_ALONE = 3


class Session(ABC):
    """A network in a runtime: arrays by name in, arrays by name out."""

    runtime: ClassVar[str]
    inputs: Sequence[str]
    outputs: Sequence[str]

    def __init__(self, file: RuntimeFile) -> None:
        """Keep the file, its parts found and checked before a runtime opens what it points at; raises EncoderError."""
        self.file, self.parts = file, file.parts

    def run(self, feeds: NamedArrays, names: Sequence[str]) -> NamedArrays:
        """Return the outputs of these names; ``feeds`` has what may be asked for, and more.

        Raises:
            EncoderError: the runtime fails.
        """
        with self._failing("cannot embed with it"):
            return self._run({name: feeds[name] for name in self.inputs}, names)

    @abstractmethod
    def _run(self, feeds: dict[str, npt.NDArray[Any]], names: Sequence[str]) -> NamedArrays:
        """As :meth:`run`, of just the inputs; raises whatever the runtime does."""

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the runtimes' errors have no class in common
            raise EncoderError(f"{self.file.path}: {type(self).runtime} {what}: {one_line(error)[:300]}") from error


class OnnxSession(Session):
    """A network in ONNX Runtime."""

    runtime = "ONNX Runtime"

    def __init__(self, file: RuntimeFile, dtype: str) -> None:
        """Load a file, to run in its own numbers on as many threads as torch would; raises EncoderError."""
        super().__init__(file)
        import onnxruntime

        # It tells its makers how it is used, on Windows.
        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), _ERRORS_ALONE
        with self._failing("cannot load it"):
            self._session = onnxruntime.InferenceSession(file.path, options, providers=["CPUExecutionProvider"])
        self.inputs = [one.name for one in self._session.get_inputs()]
        self.outputs = [one.name for one in self._session.get_outputs()]

    def _run(self, feeds: dict[str, npt.NDArray[Any]], names: Sequence[str]) -> NamedArrays:
        return dict(zip(names, self._session.run(list(names), feeds), strict=True))


class OpenVinoSession(Session):
    """A network in OpenVINO."""

    runtime = "OpenVINO"

    def __init__(self, file: RuntimeFile, dtype: str) -> None:
        """Load a file, to run in these numbers on as many threads as torch would.

        Raises:
            EncoderError: it cannot be loaded, or the processor has no such numbers.
        """
        super().__init__(file)
        import openvino

        core = openvino.Core()
        # Said even of float32: where a processor has bfloat16, OpenVINO would take that.
        hint = {"INFERENCE_PRECISION_HINT": PRECISIONS[dtype], "INFERENCE_NUM_THREADS": torch.get_num_threads()}
        with self._failing("cannot load it"):
            self._compiled = core.compile_model(self._read(core), "CPU", hint)
            precision = self._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        if precision != PRECISIONS[dtype]:
            raise EncoderError(f"this processor does not compute in {dtype}; leave 'dtype' out")
        self._request = self._compiled.create_infer_request()
        self.inputs = [one.any_name for one in self._compiled.inputs]
        self._places = {name: i for i, one in enumerate(self._compiled.outputs) for name in one.names}
        self.outputs = list(self._places)

    def _read(self, core: Any) -> Any:  # noqa: ANN401 - openvino
        weights = [path for path in self.parts if path.suffix == ".bin"]
        return core.read_model(self.file.path, *weights)

    def _run(self, feeds: dict[str, npt.NDArray[Any]], names: Sequence[str]) -> NamedArrays:
        found = self._request.infer(feeds, share_inputs=True)
        return {name: found[self._places[name]] for name in names}


PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}
"""What OpenVINO calls a type."""
