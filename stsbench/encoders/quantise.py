"""A checkpoint's copy with an int8 file for a runtime, made from the float32 file that the runtime would run."""

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
from stsbench.core.files import scratch_beside
from stsbench.core.wording import join_lines
from stsbench.data.corpora.corpus import Corpus
from stsbench.encoders.base import Encoder
from stsbench.encoders.load import load_encoder
from stsbench.encoders.network import NamedArrays, origin_note_path
from stsbench.encoders.runtimes import RuntimeModel, silence_libraries
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder

ONNX_FILE, OPENVINO_FILE = "onnx/model_int8.onnx", "openvino/openvino_model_int8.xml"
SENTENCES, SMOOTHING = 300, 0.7
"""What activations are measured on, and how much of their range moves into the weights (SmoothQuant's alpha)."""


def quantise_onnx(name: str | Path, out: Path) -> None:
    """Write a checkpoint's copy with an int8 file by ONNX Runtime, which takes activations' range from each input.

    Raises CardError: the encoder has no transformer of its own, or is quantised already. EncoderError: it cannot be.
    OutputError: the folder is there, or cannot be written.
    """

    def write(encoder: Encoder, model: RuntimeModel, path: Path) -> str:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # The default, one scale a matrix, moves embeddings much farther.
        quantize_dynamic(model.file.path, path, weight_type=QuantType.QInt8, per_channel=True)
        return f"made int8 by the dynamic quantisation of onnxruntime {version('onnxruntime')}, a scale a channel"

    _write(name, out, "onnx", ONNX_FILE, write)


def quantise_openvino(name: str | Path, out: Path, corpus: Corpus) -> None:
    """Write a checkpoint's copy with an int8 file by NNCF with SmoothQuant (Xiao et al. 2022, arXiv 2211.10438).

    The range of activations is measured on up to 300 sentences of the corpus, drawn with seed 0. Raises as
    :func:`quantise_onnx`, and EncoderError where NNCF is not installed.
    """
    if find_spec("nncf") is None:
        raise EncoderError("int8 for OpenVINO needs nncf; run: pip install 'stsbench[nncf]'")
    texts = corpus.sentences()
    texts = texts.take(np.random.default_rng(0).permutation(len(texts))[:SENTENCES].tolist())

    def write(encoder: Encoder, model: RuntimeModel, path: Path) -> str:
        import nncf
        import openvino

        run = model.call
        seen: list[dict[str, npt.NDArray[Any]]] = []

        def watched(feeds: dict[str, npt.NDArray[Any]], names: list[str]) -> NamedArrays:
            seen.append(feeds)
            return run(feeds, names)

        # Tokens and prompt of a text alone, as the encoder makes them.
        model.call = watched
        for text in texts.column("text"):
            encoder.encode([text])
        quantised = nncf.quantize(
            openvino.Core().read_model(model.file.path),
            nncf.Dataset(seen),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(texts),
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=SMOOTHING)
            ),
        )
        openvino.save_model(quantised, path, compress_to_fp16=False)
        by = f"made int8 by nncf {version('nncf')} with SmoothQuant {SMOOTHING:g}"
        return f"{by}, measured on {len(texts)} sentences of {Path(texts.name).name} (sha256 {texts.sha256[:12]})"

    _write(name, out, "openvino", OPENVINO_FILE, write)


def _write(
    name: str | Path,
    out: Path,
    backend: str,
    file: str,
    write: Callable[[Encoder, RuntimeModel, Path], str],
) -> None:
    if out.exists():
        raise OutputError(f"{out} is there already; give a folder that is not")
    encoder = load_encoder(name, params={"backend": backend})
    if not isinstance(encoder, TransformerEncoder | SentenceTransformerEncoder):
        raise CardError(f"'{name}' has no transformer of its own; give a checkpoint that has one")
    if encoder.dtype != "float32":
        raise CardError(f"'{name}' is {encoder.dtype} already; give it without 'file' and 'dtype'")
    if isinstance(encoder, TransformerEncoder):
        folder, model = encoder.checkpoint.folder, encoder.backbone.model
    else:
        folder, model = encoder.root, encoder.network[0].model
    scratch = scratch_beside(out)
    path = scratch / encoder.backend.folder.relative_to(folder) / file
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, scratch)
        path.parent.mkdir(exist_ok=True)
        with silence_libraries():
            made = write(encoder, model, path)
        origin_note_path(path).write_text(f"{made}\n", encoding="utf-8")
        scratch.rename(out)
    except OSError as error:
        raise OutputError(f"{out}: cannot be written: {join_lines(error)}") from error
    except Exception as error:  # whatever a network makes these libraries raise
        raise EncoderError(
            f"{encoder.name}: cannot be quantised: {join_lines(error)[:300]}"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
