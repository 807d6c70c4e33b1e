"""``stsbench convert``: folders of encoders, made of published weights or for a runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from stsbench.cli import options as opt
from stsbench.cli.printing import print_text
from stsbench.core.errors import CardError, look_up

FIRST = 10_000
"""The rows of a corpus that sentences are drawn from."""


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
    corpora: opt.Corpora = None,
) -> None:
    """Make an encoder's folder.

    From published weights, of which tensors are read and nothing else, or from a transformer, in int8 for a runtime.

    Example: stsbench convert infersent infersent1.pkl infersent-1
    Example: stsbench convert openvino-int8 minilm minilm-int8 --text wiki1m_head
    """
    chosen = look_up("conversion", kind, KINDS)
    others = {*chain(*(one.uses for one in KINDS.values()))} - {*chosen.uses}
    opt.TypedOptions.from_context(context).forbid(f"with '{kind}'", *sorted(others))
    given = {
        "--version": version,
        "--vectors": vectors,
        "--limit": limit,
        "--text": text,
        "--corpora": corpora,
    }
    how = chosen.convert(source, out, *(given[flag] for flag in chosen.uses))
    print_text(f"wrote {out}; run it with: stsbench run --encoder {out}{how or ''}")


def _published(source: Path, out: Path, version: int | None = None, vectors: str = "") -> None:
    from stsbench.encoders.words.convert import convert_infersent, convert_skip_thoughts

    if version is None:
        convert_skip_thoughts(source, out)
    else:
        convert_infersent(source, out, version=1 if version == 1 else 2, vectors=vectors)


def _expand(source: Path, out: Path, vectors: str, limit: int | None) -> None:
    from stsbench.encoders.load import load_encoder
    from stsbench.encoders.words.convert import expand_vocabulary
    from stsbench.encoders.words.recurrent import GruHalvesEncoder

    encoder = load_encoder(opt.resolve_spec(str(source)))
    if not isinstance(encoder, GruHalvesEncoder):
        what = f"{source} is not a Skip-Thoughts or Quick-Thoughts encoder"
        raise CardError(f"{what}; only their vocabularies can be expanded")
    if not vectors:
        raise CardError("expand needs --vectors, the file whose words the vocabulary is to have")
    expand_vocabulary(encoder, vectors, out, limit=limit)


def _int8(source: Path, out: Path, text: str | None = None, corpora: Path | None = None) -> str:
    from stsbench.data.corpora.corpus import load_corpus
    from stsbench.encoders.quantise import (
        ONNX_FILE,
        OPENVINO_FILE,
        quantise_onnx,
        quantise_openvino,
    )

    name = opt.resolve_spec(str(source))
    if text is None:
        quantise_onnx(name, out)
        return f" --set backend=onnx --set file={ONNX_FILE}"
    quantise_openvino(name, out, load_corpus(text, corpora=corpora, limit=FIRST))
    return f" --set backend=openvino --set file={OPENVINO_FILE}"


class Conversion(NamedTuple):
    """A kind of conversion: what carries it out and says how to run the encoder, and the options it takes."""

    convert: Callable[..., str | None]
    uses: tuple[str, ...] = ()


KINDS: Mapping[str, Conversion] = {
    "infersent": Conversion(_published, ("--version", "--vectors")),
    "skip_thoughts": Conversion(_published),
    "expand": Conversion(_expand, ("--vectors", "--limit")),
    "onnx-int8": Conversion(_int8),
    "openvino-int8": Conversion(_int8, ("--text", "--corpora")),
}
