"""``stsbench convert``."""

from __future__ import annotations

from typing import Literal

from stsbench.cli.options.encoders import ConvertOptions
from stsbench.cli.printing import say
from stsbench.errors import CardError, choose


def convert_command(options: ConvertOptions) -> None:
    """Convert weights, and say how to use the folder."""
    how = choose("conversion", options.kind, KINDS)(options)
    say(f"wrote {options.out}; run it with: stsbench run --encoder {options.out}{how}")


def _infersent(options: ConvertOptions) -> str:
    from stsbench.encoders.words.convert import convert_infersent

    if options.version not in (1, 2):
        raise CardError(f"InferSent has the versions 1 and 2, not {options.version}")
    version: Literal[1, 2] = 1 if options.version == 1 else 2
    convert_infersent(options.source, options.out, version=version, vectors=options.vectors)
    return ""


def _skip_thoughts(options: ConvertOptions) -> str:
    from stsbench.encoders.words.convert import convert_skip_thoughts

    convert_skip_thoughts(options.source, options.out)
    return ""


def _expand(options: ConvertOptions) -> str:
    from stsbench.cards.catalogue import Catalogue
    from stsbench.cli.names import Names
    from stsbench.encoders.loading import load_encoder
    from stsbench.encoders.words.expansion import expand_vocabulary
    from stsbench.encoders.words.gru_halves import GruHalvesEncoder

    encoder = load_encoder(Names(Catalogue()).one_to_load(str(options.source)))
    if not isinstance(encoder, GruHalvesEncoder):
        raise CardError(
            f"{options.source} is not a Skip-Thoughts or Quick-Thoughts encoder; only their vocabularies can be expanded"
        )
    if not options.vectors:
        raise CardError("expand needs --vectors, the file whose words the vocabulary is to have")
    expand_vocabulary(encoder, options.vectors, options.out, limit=options.limit)
    return ""


def _onnx_int8(options: ConvertOptions) -> str:
    from stsbench.cards.catalogue import Catalogue
    from stsbench.cli.names import Names
    from stsbench.encoders.runtimes.quantise import ONNX_FILE, quantise_onnx

    quantise_onnx(Names(Catalogue()).one_to_load(str(options.source)), options.out)
    return f" --set backend=onnx --set file={ONNX_FILE}"


def _openvino_int8(options: ConvertOptions) -> str:
    from stsbench.cards.catalogue import Catalogue
    from stsbench.cli.names import Names
    from stsbench.data.corpora.load import load_corpus
    from stsbench.encoders.runtimes.quantise import OPENVINO_FILE, quantise_openvino

    name = Names(Catalogue()).one_to_load(str(options.source))
    corpus = load_corpus(options.text, corpora=options.corpora, limit=FIRST)
    quantise_openvino(name, options.out, corpus)
    return f" --set backend=openvino --set file={OPENVINO_FILE}"


FIRST = 10_000
"""The rows of a corpus that sentences are drawn from."""
KINDS = {
    "infersent": _infersent,
    "skip_thoughts": _skip_thoughts,
    "expand": _expand,
    "onnx-int8": _onnx_int8,
    "openvino-int8": _openvino_int8,
}
