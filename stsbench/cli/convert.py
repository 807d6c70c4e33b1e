"""``stsbench convert``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from stsbench.cli.printing import say
from stsbench.errors import CardError, choose


class Conversion(NamedTuple):
    """What the user wants converted, and with what."""

    source: Path
    out: Path
    version: int
    vectors: str
    limit: int | None


def convert_command(kind: str, source: Path, out: Path, *, version: int, vectors: str, limit: int | None) -> None:
    """Convert published weights, or expand an encoder's vocabulary, and say how to use the folder."""
    choose("conversion", kind, CONVERSIONS)(Conversion(source, out, version, vectors, limit))
    say(f"wrote {out}; run it with: stsbench run --encoder {out}")


def _infersent(asked: Conversion) -> None:
    from stsbench.encoders.words.convert import convert_infersent

    if asked.version not in (1, 2):
        raise CardError(f"InferSent has the versions 1 and 2, not {asked.version}")
    convert_infersent(asked.source, asked.out, version=1 if asked.version == 1 else 2, vectors=asked.vectors)


def _skip_thoughts(asked: Conversion) -> None:
    from stsbench.encoders.words.convert import convert_skip_thoughts

    convert_skip_thoughts(asked.source, asked.out)


def _expand(asked: Conversion) -> None:
    from stsbench.encoders.loading import load_encoder
    from stsbench.encoders.words.expansion import expand_vocabulary
    from stsbench.encoders.words.gru_halves import GruHalvesEncoder

    encoder = load_encoder(str(asked.source))
    if not isinstance(encoder, GruHalvesEncoder):
        raise CardError(f"{asked.source} is no Skip-Thoughts or Quick-Thoughts encoder; only their vocabularies expand")
    if not asked.vectors:
        raise CardError("expand needs --vectors, the file whose words the vocabulary is to have")
    expand_vocabulary(encoder, asked.vectors, asked.out, limit=asked.limit)


CONVERSIONS: Mapping[str, Callable[[Conversion], None]] = {
    "infersent": _infersent,
    "skip_thoughts": _skip_thoughts,
    "expand": _expand,
}
