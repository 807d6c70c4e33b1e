"""Encoders over another one: by something fitted on texts (whitening, flow), and variants with fewer numbers, integers or bits.

A kind is a :class:`EmbeddingTransform`. What it learns is kept in the cache folder by base, texts and parameters: no fit is made
twice. One encoder embeds for all of its variants. Integers need the range of each dimension, fitted on texts too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from stsbench.core import settings
from stsbench.core.errors import CardError, EncoderError
from stsbench.core.parameters import call_with_params
from stsbench.core.provenance import derive_fingerprint
from stsbench.encoders.base import Encoder, FloatArray, PositiveInt, RowFunction
from stsbench.encoders.checkpoint import is_sealed, sealed_folder
from stsbench.encoders.metadata import read_metadata, read_notes
from stsbench.encoders.named import variant_name
from stsbench.numbers.similarity import EMBEDDING_TYPES, FLOAT_TYPE, to_bits, to_integers, truncate

TARGET_TASK = "target"
"""The word for the sentences of the very task that is scored."""
FIT_FILE = "fit.safetensors"
Tensors = Mapping[str, npt.NDArray[Any]]


class EmbeddingTransform(Protocol):
    """A way to change embeddings by what is learned from texts: a dataclass of its parameters, and how it learns."""

    kind: ClassVar[str]
    code: ClassVar[int] = 1
    """Raise when a change can change an embedding: kept fits are then not reused."""
    libraries: ClassVar[Sequence[str]] = ()
    """The packages that fit, as far as another version of them may learn something else."""

    @property
    def reads_embeddings(self) -> bool:
        """Whether it fits on the base's embeddings as they are, and so on stored ones."""
        return True

    def params(self) -> dict[str, Any]:
        """All that decides what is learned; JSON values."""
        return {"kind": self.kind, "code": self.code, **asdict(cast(Any, self))}

    def fit(self, base: Encoder, sentences: Sequence[str]) -> Tensors:
        """Learn from the base encoder's embeddings of these sentences."""

    def transform(self, learned: Tensors) -> RowFunction:
        """What changes embeddings, (n, d) to (n, k), each row by itself."""

    def notes(self, learned: Tensors) -> list[str]:
        """What a reader of its scores should know."""
        return []


class PostProcessed:
    """An encoder over another one, before it is fitted: :meth:`fit_texts` makes the encoder that embeds."""

    def __init__(self, base: Encoder, method: EmbeddingTransform, *, name: str, fit: str) -> None:
        """Keep what is to be fitted, on what."""
        self.base, self.method, self.name, self.fit = base, method, name, fit

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of base and parameters, without the texts or what they are called; None where the base has none."""
        return derive_fingerprint(
            self.base, {"method": self.method.params()}, self.method.libraries
        )

    @property
    def train_seed(self) -> int | None:
        """The seed of fitting, else the base's; None where nothing is drawn."""
        seed: int | None = self.method.params().get("seed")
        return read_metadata(self.base).train_seed if seed is None else seed

    def over(self, base: Encoder) -> PostProcessed:
        """Return the same over another base."""
        return PostProcessed(base, self.method, name=self.name, fit=self.fit)

    def fit_texts(self, sentences: Sequence[str]) -> FittedEncoder:
        """Return the encoder fitted on these sentences; the work is done when it is first needed."""
        return FittedEncoder(self.base, self.method, sentences, name=self.name)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Refuse: nothing is fitted yet."""
        raise EncoderError(
            f"encoder '{self.name}' is fitted on texts ({self.fit}); call fit_texts(sentences) first"
        )


class FittedEncoder:
    """An encoder whose embeddings are its base's, transformed by what was fitted on texts."""

    def __init__(
        self, base: Encoder, method: EmbeddingTransform, sentences: Sequence[str], *, name: str
    ) -> None:
        """Keep what to fit; nothing is computed before the first sentence."""
        self.base, self.method, self.sentences, self.name = base, method, sentences, name

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of base, parameters and texts; None where the base has none."""
        facts = {"method": self.method.params(), "texts": digest_texts(self.sentences)}
        return derive_fingerprint(self.base, facts, self.method.libraries)

    @property
    def folder(self) -> Path | None:
        """Where its fit is kept; None where nothing identifies the base."""
        return (
            settings.cache_folder() / "fitted" / self.fingerprint[:32] if self.fingerprint else None
        )

    @cached_property
    def learned(self) -> Tensors:
        """What was learned; taken from the cache folder where it has been made before."""
        from safetensors.numpy import load, save

        folder = self.folder
        if folder is not None and is_sealed(folder):
            kept: Tensors = load((folder / FIT_FILE).read_bytes())
            return kept
        made = self.method.fit(self.base, self.sentences)
        if folder is not None:
            with sealed_folder(folder) as scratch:
                (scratch / "fit.json").write_text(
                    json.dumps(self.method.params(), indent=1) + "\n", encoding="utf-8"
                )
                (scratch / FIT_FILE).write_bytes(
                    save({name: np.ascontiguousarray(one) for name, one in made.items()})
                )
        return made

    @cached_property
    def transform(self) -> RowFunction:
        """What changes the base's embeddings, (n, d) to (n, k)."""
        return self.method.transform(self.learned)

    def texts_to_embed(self) -> Sequence[str]:
        """The sentences whose embeddings fitting will ask the base for; none where the fit is kept already."""
        kept = self.folder is not None and is_sealed(self.folder)
        return () if kept or not self.method.reads_embeddings else self.sentences

    @property
    def notes(self) -> list[str]:
        """What a reader of its scores should know, of its base too."""
        return [*read_notes(self.base), *self.method.notes(self.learned)]

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, k)."""
        # Before the base embeds: fitting may ask it for embeddings too.
        transform = self.transform
        return np.ascontiguousarray(transform(self.base.encode(sentences)), dtype=np.float32)


def read_fit(encoder: object) -> str:
    """Which texts an encoder is fitted on; those of the task where it does not say."""
    return read_metadata(encoder).fit or TARGET_TASK


def digest_texts(sentences: Sequence[str]) -> str:
    """The sha256 of texts in their order."""
    digest = hashlib.sha256()
    for sentence in sentences:
        raw = sentence.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()


EMBED_CHUNK = 65536


def iter_embeddings(base: Encoder, sentences: Sequence[str]) -> Iterator[FloatArray]:
    """The embeddings of sentences, a chunk of them in memory at a time."""
    return (
        base.encode(sentences[start : start + EMBED_CHUNK])
        for start in range(0, len(sentences), EMBED_CHUNK)
    )


def check_embeddings(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return embeddings to fit on, (n, d), in float64.

    Raises EncoderError: another shape, or a value that is not finite.
    """
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim != 2:
        raise EncoderError(f"fitting takes embeddings (n, d), not shape {rows.shape}")
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(broken):
        problem = f"row {broken[0]} (from 0) has a value that is not"
        raise EncoderError(f"fitting takes finite embeddings; {problem}")
    return rows


CALIBRATION = "stsb.train"
"""The texts that ranges are taken from where nobody says: no split that is scored."""


@dataclass(frozen=True, kw_only=True)
class Variant(EmbeddingTransform):
    """What is made of each embedding, a :class:`EmbeddingTransform`; ``embeddings`` is the type of its numbers, one of ``TYPES``."""

    dimensions: PositiveInt | None = None
    embeddings: Literal["float32", "int8", "uint8", "binary", "ubinary"] = "float32"
    calibration: str = ""
    kind: ClassVar[str] = "variant"

    def __post_init__(self) -> None:
        """Refuse values of no sense, and texts that nothing would read."""
        if self.dimensions is None and self.embeddings == FLOAT_TYPE:
            raise CardError("embeddings = float32 is what they are; leave it out")
        if self.calibration and not self.needs_texts:
            raise CardError(
                "calibration has no effect without embeddings = int8 or uint8; leave it out"
            )

    @property
    def needs_texts(self) -> bool:
        """Whether the ranges of dimensions are taken from texts."""
        return EMBEDDING_TYPES[self.embeddings].bits == 8

    def params(self) -> dict[str, Any]:
        """All that decides an embedding beside the base and the texts."""
        return {key: value for key, value in super().params().items() if key != "calibration"}

    def check_size(self, d: int) -> None:
        """Raise EncoderError where embeddings of this size have too few dimensions."""
        if self.dimensions is not None and self.dimensions > d:
            raise EncoderError(
                f"dimensions = {self.dimensions}: the embeddings have {d}; give {d} or fewer"
            )

    def _shorten(self, embeddings: FloatArray) -> FloatArray:
        self.check_size(embeddings.shape[1])
        return embeddings if self.dimensions is None else truncate(embeddings, self.dimensions)

    def fit(self, base: Encoder, sentences: Sequence[str]) -> Tensors:
        """The ends of each dimension's range, (2, k), if integers need them; raises EncoderError: under two texts."""
        if not self.needs_texts:
            return {}
        if len(sentences) < 2:
            raise EncoderError(
                f"the ranges of integers are taken from two texts at least, not from {len(sentences)}"
            )
        found = map(self._shorten, iter_embeddings(base, sentences))
        ends = np.array([(part.min(axis=0), part.max(axis=0)) for part in found])
        return {"ranges": np.array([ends[:, 0].min(axis=0), ends[:, 1].max(axis=0)])}

    def transform(self, learned: Tensors) -> RowFunction:
        """What makes embeddings smaller, (n, d) to (n, k)."""
        kept = EMBEDDING_TYPES[self.embeddings]

        def smaller(embeddings: FloatArray) -> FloatArray:
            short = self._shorten(embeddings)
            if self.needs_texts:
                return to_integers(short, learned["ranges"], signed=kept.signed)
            return short if self.embeddings == FLOAT_TYPE else to_bits(short, signed=kept.signed)

        return smaller

    def notes(self, learned: Tensors) -> list[str]:
        """Says of what scores are."""
        numbers = "bits" if EMBEDDING_TYPES[self.embeddings].bits == 1 else "integers"
        said = [f"embeddings are {self.embeddings}: similarity and features are of these {numbers}"]
        return said if self.embeddings != FLOAT_TYPE else []


class VariantEncoder(FittedEncoder):
    """An encoder whose embeddings are its base's, made smaller by what needs no texts."""

    learned: Tensors = {}

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of base and variant, whatever they are called; None where the base has none."""
        return derive_fingerprint(self.base, self.method.params())

    @property
    def train_seed(self) -> int | None:
        """The base's."""
        return read_metadata(self.base).train_seed


VARIANT_KEYS = tuple(one.name for one in fields(Variant))
"""The parameters of a variant, which every encoder takes."""


def variant_specs(spec: str, grid: Mapping[str, Sequence[Any]], calibration: str = "") -> list[str]:
    """The names of an encoder's variants: of all ``dimensions`` and ``embeddings``, the first varying slowest.

    Ranges are taken from the texts ``calibration``. Raises CardError: a value is none of its parameter.
    """
    found = []
    for values in product(*grid.values()):
        given = {key: value for key, value in zip(grid, values, strict=True) if value != FLOAT_TYPE}
        if given:
            variant: Variant = call_with_params(Variant, given, where="--variants")
            given |= {"calibration": calibration} if calibration and variant.needs_texts else {}
        found.append(variant_name(spec, given))
    return list(dict.fromkeys(found))


def find_variant(encoder: object) -> Variant | None:
    """What is made of another's embeddings, of an encoder that is a variant, fitted or not; else None."""
    method = encoder.method if isinstance(encoder, PostProcessed | FittedEncoder) else None
    return method if isinstance(method, Variant) else None
