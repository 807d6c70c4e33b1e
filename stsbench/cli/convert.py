"""``stsbench convert``: folders of encoders, made of published weights or for a runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Literal, NamedTuple

from stsbench.cli import options as opt
from stsbench.cli.option_values import TypedOptions, resolve_spec
from stsbench.cli.printing import print_text
from stsbench.core.errors import CardError, look_up

CORPUS_ROWS = 10_000
"""The number of rows of a corpus from which sentences are drawn."""


def convert_command(
    context: opt.Context,
    kind: opt.Conversion,
    source: opt.Weights,
    out: opt.EncoderFolder,
    *,
    version: opt.InferSentVersion = 1,
    vectors: opt.Vectors = "",
    limit: opt.VectorLimit = None,
    text: opt.ActivationText = "wiki1m_head",
    corpora: opt.TextFolder = None,
) -> None:
    """Convert an encoder into a folder.

    It converts published weights, from which only tensors are read, or a transformer to int8 for a
    runtime.

    Example: stsbench convert infersent infersent1.pkl infersent-1
    Example: stsbench convert openvino-int8 minilm minilm-int8 --text wiki1m_head
    """
    # The function that converts, and the names of the options that it uses.
    conversion = look_up("conversion", kind, CONVERSIONS)
    values_by_option = {
        "--version": version,
        "--vectors": vectors,
        "--limit": limit,
        "--text": text,
        "--corpora": corpora,
    }
    idle_options = sorted(values_by_option.keys() - {*conversion.options})
    TypedOptions.from_context(context).forbid(f"with '{kind}'", *idle_options)
    # The function's further parameters are in the order of its options. It returns further options
    # for 'stsbench run', or None.
    arguments = [values_by_option[option] for option in conversion.options]
    run_options = conversion.convert(source, out, *arguments) or ""
    print_text(f"wrote {out}; run it with: stsbench run --encoder {quote(str(out))}{run_options}")


def _convert_skip_thoughts(source: Path, out: Path) -> None:
    """Convert the published weights of Skip-Thoughts, in a folder, into the folder ``out``."""
    from stsbench.encoders.words.convert import convert_skip_thoughts

    convert_skip_thoughts(source, out)


def _convert_infersent(source: Path, out: Path, version: Literal[1, 2], vectors_file: str) -> None:
    """Convert the published weights of the encoder InferSent into a folder.

    Args:
        source: The released file of weights.
        out: The folder to write.
        version: InferSent's version.
        vectors_file: The path of its file of word vectors; empty for the one that it was trained
            with.
    """
    from stsbench.encoders.words.convert import convert_infersent

    convert_infersent(source, out, version=version, vectors_file=vectors_file)


def _expand_vocabulary(source: Path, out: Path, vectors_file: str, limit: int | None) -> None:
    """Write a copy of a Skip-Thoughts or Quick-Thoughts encoder that knows more words.

    Its vocabulary then also has the words of a file of word vectors. Their rows in the encoder's
    word table are predicted from these vectors, by a linear map.

    Args:
        source: The folder or name of the encoder.
        out: The folder to write.
        vectors_file: The path of the file of word vectors.
        limit: Use only this many of its vectors; None for all.

    Raises:
        CardError: The encoder is of another kind, or the path of vectors is empty.
    """
    from stsbench.encoders.load import load_encoder
    from stsbench.encoders.words.convert import expand_vocabulary
    from stsbench.encoders.words.recurrent import GruHalvesEncoder

    # GruHalvesEncoder is the class of both kinds.
    encoder = load_encoder(resolve_spec(str(source)))
    if not isinstance(encoder, GruHalvesEncoder):
        raise CardError(
            f"{source} is not a Skip-Thoughts or Quick-Thoughts encoder; "
            "only their vocabularies can be expanded"
        )
    if not vectors_file:
        raise CardError("expand needs --vectors, the file whose words the vocabulary is to have")
    expand_vocabulary(encoder, vectors_file, out, limit=limit)


def _quantise(source: Path, out: Path, text: str | None = None, corpora: Path | None = None) -> str:
    """Convert a transformer encoder to 8-bit integers, for the runtime ONNX or OpenVINO.

    Without a text it is converted for ONNX, with a text for OpenVINO.

    Args:
        source: The folder or name of the encoder.
        out: The folder to write.
        text: The corpus or file of text on which the ranges of activations are measured, for
            OpenVINO, which uses its first 10,000 rows; None for ONNX, which measures none.
        corpora: The folder of corpora; None for the default one.

    Returns:
        The options, beginning with a blank, with which ``stsbench run`` runs the converted encoder.
    """
    from stsbench.data.corpora.corpus import load_corpus
    from stsbench.encoders.quantise import (
        ONNX_FILE,
        OPENVINO_FILE,
        quantise_onnx,
        quantise_openvino,
    )

    spec = resolve_spec(str(source))
    if text is None:
        quantise_onnx(spec, out)
        return f" --set backend=onnx --set file={ONNX_FILE}"
    quantise_openvino(spec, out, load_corpus(text, corpora=corpora, limit=CORPUS_ROWS))
    return f" --set backend=openvino --set file={OPENVINO_FILE}"


class Conversion(NamedTuple):
    """A kind of conversion."""

    convert: Callable[..., str | None]
    """Called with the source, the folder to write and the values of the options.

    Returns further options for ``stsbench run``, or None.
    """
    options: tuple[str, ...] = ()
    """The options that it uses."""


CONVERSIONS: Mapping[str, Conversion] = {
    "infersent": Conversion(_convert_infersent, ("--version", "--vectors")),
    "skip_thoughts": Conversion(_convert_skip_thoughts),
    "expand": Conversion(_expand_vocabulary, ("--vectors", "--limit")),
    "onnx-int8": Conversion(_quantise),
    "openvino-int8": Conversion(_quantise, ("--text", "--corpora")),
}
