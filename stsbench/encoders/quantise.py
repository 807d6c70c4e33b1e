"""A checkpoint's copy with an int8 file for a runtime.

The file is made from the float32 file that the runtime would run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import CardError, EncoderError, OutputError
from stsbench.core.files import make_scratch_path
from stsbench.core.wording import as_one_line
from stsbench.data.corpora.corpus import Corpus
from stsbench.encoders.base import Encoder
from stsbench.encoders.load import load_encoder
from stsbench.encoders.network import NamedArrays, origin_note_path
from stsbench.encoders.runtimes import RuntimeModel, quantise_weights, silence_exporters
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder

ONNX_FILE = "onnx/model_int8.onnx"
OPENVINO_FILE = "openvino/openvino_model_int8.xml"
MAX_MEASURED_SENTENCES = 300
"""The maximum number of sentences on which activations are measured."""
SMOOTHING = 0.7
"""The share of the activations' range that moves into the weights (SmoothQuant's alpha)."""
WriteFunction = Callable[[Encoder, RuntimeModel, Path], str]
"""Writes the int8 file of an encoder, from the float32 model that the runtime has loaded, to a
path; returns the line for the copy's notes that describes how the file was made."""


def quantise_onnx(name: str | Path, out: Path) -> None:
    """Write a copy of a checkpoint with an int8 file, which ONNX Runtime runs.

    Weights are stored as integers of 8 bits. The quantisation is dynamic: the numbers between the
    layers, the activations, also become integers, by their range in each batch.

    Args:
        name: The encoder: a name, or a checkpoint's folder.
        out: The folder to write.

    Raises:
        CardError: The encoder has no transformer of its own, or is quantised already.
        EncoderError: It cannot be loaded or quantised.
        OutputError: The folder exists, or cannot be written.
    """

    def write_onnx(encoder: Encoder, model: RuntimeModel, path: Path) -> str:
        """Write the int8 file of an encoder's model to a path; return how it was made."""
        # From the float32 file that the runtime has loaded.
        quantise_weights(model.file.path, path)
        return (
            "made int8 by the dynamic quantisation of onnxruntime "
            f"{version('onnxruntime')}, a scale a channel"
        )

    _write_quantised_copy(name, out, backend="onnx", int8_name=ONNX_FILE, write=write_onnx)


def quantise_openvino(name: str | Path, out: Path, corpus: Corpus) -> None:
    """Write a copy of a checkpoint with an int8 file, which OpenVINO runs and NNCF writes.

    Weights and activations, the numbers between the layers, become integers of 8 bits. The method
    is SmoothQuant, Xiao et al. 2022 (arXiv 2211.10438). The range of the activations is measured on
    up to 300 sentences of the corpus, drawn with seed 0.

    Args:
        name: The encoder: a name, or a checkpoint's folder.
        out: The folder to write.
        corpus: The corpus to measure on.

    Raises:
        CardError: The encoder has no transformer of its own, or is quantised already.
        EncoderError: NNCF is not installed, or the encoder cannot be loaded or quantised.
        OutputError: The folder exists, or cannot be written.
    """
    if find_spec("nncf") is None:
        raise EncoderError("int8 for OpenVINO needs nncf; run: pip install 'stsbench[nncf]'")
    texts = corpus.sentences()
    order = np.random.default_rng(0).permutation(len(texts))
    texts = texts.take(order[:MAX_MEASURED_SENTENCES].tolist())

    def write_openvino(encoder: Encoder, model: RuntimeModel, path: Path) -> str:
        """Write the int8 file of an encoder's model to a path; return how it was made."""
        import nncf
        import openvino

        # NNCF needs examples of the model's inputs. They are recorded while the encoder embeds the
        # texts, each by itself.
        recorded_inputs: list[dict[str, npt.NDArray[Any]]] = []
        run = model.call

        def run_and_record(inputs: dict[str, npt.NDArray[Any]], names: list[str]) -> NamedArrays:
            """Run the model as before, and add its inputs to ``recorded_inputs``."""
            recorded_inputs.append(inputs)
            return run(inputs, names)

        model.call = run_and_record
        for text in texts.column("text"):
            encoder.encode([text])
        quantised = nncf.quantize(
            openvino.Core().read_model(model.file.path),
            nncf.Dataset(recorded_inputs),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(texts),
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=SMOOTHING)
            ),
        )
        openvino.save_model(quantised, path, compress_to_fp16=False)
        return (
            f"made int8 by nncf {version('nncf')} with SmoothQuant {SMOOTHING:g}, measured on "
            f"{len(texts)} sentences of {Path(texts.name).name} (sha256 {texts.sha256[:12]})"
        )

    _write_quantised_copy(
        name, out, backend="openvino", int8_name=OPENVINO_FILE, write=write_openvino
    )


def _write_quantised_copy(
    name: str | Path, out: Path, backend: str, int8_name: str, write: WriteFunction
) -> None:
    """Copy a checkpoint to a folder, and write an int8 file and its note into the copy.

    Args:
        name: The encoder: a name, or a checkpoint's folder.
        out: The folder to write.
        backend: The name of the backend that runs the file.
        int8_name: The path of the int8 file below the transformer's folder.
        write: Called with the encoder, its model in the runtime and the path of the int8 file;
            writes this file, and returns a note on how it was made.

    Raises:
        CardError: The encoder has no transformer of its own, or is quantised already.
        EncoderError: It cannot be loaded or quantised.
        OutputError: The folder exists, or cannot be written.
    """
    if out.exists():
        raise OutputError(f"{out} is there already; give a folder that is not")
    # The runtime has loaded the checkpoint's float32 file, or one that is exported into the cache.
    encoder = load_encoder(name, params={"backend": backend})
    if not isinstance(encoder, TransformerEncoder | SentenceTransformerEncoder):
        raise CardError(f"'{name}' has no transformer of its own; give a checkpoint that has one")
    if encoder.dtype != "float32":
        raise CardError(f"'{name}' is {encoder.dtype} already; give it without 'file' and 'dtype'")
    if isinstance(encoder, TransformerEncoder):
        folder = encoder.checkpoint.folder
        model = encoder.backbone.model
    else:
        folder = encoder.root
        # The first module is a transformer.
        model = encoder.network[0].model
    # The copy is made in a scratch folder, which gets the name `out` when it is complete.
    scratch = make_scratch_path(out)
    # The transformer may be in a folder inside the checkpoint's.
    int8_path = scratch / encoder.backend.folder.relative_to(folder) / int8_name
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, scratch)
        int8_path.parent.mkdir(exist_ok=True)
        with silence_exporters():
            note = write(encoder, model, int8_path)
        origin_note_path(int8_path).write_text(f"{note}\n", encoding="utf-8")
        scratch.rename(out)
    except OSError as error:
        raise OutputError(f"{out}: cannot be written: {as_one_line(error)}") from error
    except Exception as error:  # whatever a network makes these libraries raise
        raise EncoderError(
            f"{encoder.name}: cannot be quantised: {as_one_line(error)[:300]}"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
