"""Encoders over another one: fitted on texts (whitening, flow), and variants of smaller embeddings.

A kind is an :class:`EmbeddingTransform`. Its fit is stored in the cache folder by base, texts and
parameters, and is never made twice. A variant has fewer dimensions, or integers or bits; one
encoder embeds for all of its variants. Integers need the range of each dimension, which is fitted
on texts too.
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
from stsbench.encoders.cached_files import is_sealed, sealed_folder
from stsbench.encoders.metadata import read_metadata, read_notes
from stsbench.encoders.named import variant_name
from stsbench.numbers.similarity import EMBEDDING_TYPES, FLOAT_TYPE, to_bits, to_integers, truncate

TARGET_TASK = "target"
"""The name for the sentences of the task that is scored."""
FIT_FILE = "fit.safetensors"
Tensors = Mapping[str, npt.NDArray[Any]]


class EmbeddingTransform(Protocol):
    """A change of embeddings learned from texts: a dataclass of its parameters."""

    kind: ClassVar[str]
    code: ClassVar[int] = 1
    """To be raised with a change that can change an embedding: stored fits are then not reused."""
    libraries: ClassVar[Sequence[str]] = ()
    """The packages of which another version may learn other tensors."""

    @property
    def reads_embeddings(self) -> bool:
        """The transform is fitted on the base's embeddings as they are, and so on stored ones."""
        return True

    def params(self) -> dict[str, Any]:
        """Return all parameters that decide the fit, as JSON values."""
        return {"kind": self.kind, "code": self.code, **asdict(cast(Any, self))}

    def fit(self, base: Encoder, sentences: Sequence[str]) -> Tensors:
        """Learn tensors by name from the base encoder's embeddings of these sentences."""

    def transform(self, learned: Tensors) -> RowFunction:
        """Return the function that changes embeddings, (n, d) to (n, k), each row by itself."""

    def notes(self, learned: Tensors) -> list[str]:
        """Return the notes for its results."""
        return []


class PostProcessed:
    """An encoder over another one, before it is fitted: :meth:`fit_texts` makes the encoder."""

    def __init__(self, base: Encoder, method: EmbeddingTransform, *, name: str, fit: str) -> None:
        """Store the base, the transform, and ``fit``, the name of the texts to fit on."""
        self.base = base
        self.method = method
        self.name = name
        self.fit = fit

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of base and parameters, without the texts; None if the base has none."""
        return derive_fingerprint(
            self.base, {"method": self.method.params()}, self.method.libraries
        )

    @property
    def train_seed(self) -> int | None:
        """The seed of fitting, else that of the base; None if nothing is drawn."""
        seed: int | None = self.method.params().get("seed")
        return read_metadata(self.base).train_seed if seed is None else seed

    def over(self, base: Encoder) -> PostProcessed:
        """Return the same encoder over another base."""
        return PostProcessed(base, self.method, name=self.name, fit=self.fit)

    def fit_texts(self, sentences: Sequence[str]) -> FittedEncoder:
        """Return the encoder fitted on these sentences; it is fitted when it first needs to be."""
        return FittedEncoder(self.base, self.method, sentences, name=self.name)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Raise EncoderError: the encoder is not fitted yet."""
        raise EncoderError(
            f"encoder '{self.name}' is fitted on texts ({self.fit}); "
            "call fit_texts(sentences) first"
        )


class FittedEncoder:
    """An encoder whose embeddings are its base's, transformed by a fit on texts."""

    def __init__(
        self, base: Encoder, method: EmbeddingTransform, sentences: Sequence[str], *, name: str
    ) -> None:
        """Store the base, the transform and the texts; the transform is not fitted yet.

        Args:
            base: The encoder whose embeddings are transformed.
            method: The transform, which is fitted when it is first needed.
            sentences: The texts to fit it on.
            name: The name of the encoder.
        """
        self.base = base
        self.method = method
        self.sentences = sentences
        self.name = name

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of base, parameters and texts; None if the base has none."""
        parameters = {"method": self.method.params(), "texts": texts_sha256(self.sentences)}
        return derive_fingerprint(self.base, parameters, self.method.libraries)

    @property
    def folder(self) -> Path | None:
        """The folder in the cache for its fit; None if it has no fingerprint."""
        if self.fingerprint is None:
            return None
        return settings.cache_folder() / "fitted" / self.fingerprint[:32]

    @cached_property
    def learned(self) -> Tensors:
        """What the transform has learned from the texts: tensors by name.

        They are read from the cache folder if an earlier run has computed them. Otherwise they are
        computed and written there. ``self.folder`` is None if the encoder has no fingerprint: then
        they are only computed.
        """
        from safetensors.numpy import load, save

        folder = self.folder
        # A sealed folder is complete, and its files have not changed.
        if folder is not None and is_sealed(folder):
            stored: Tensors = load((folder / FIT_FILE).read_bytes())
            return stored
        learned = self.method.fit(self.base, self.sentences)
        if folder is not None:
            parameters = json.dumps(self.method.params(), indent=1)
            arrays = {name: np.ascontiguousarray(tensor) for name, tensor in learned.items()}
            # The scratch folder is renamed at the end of the block, so that it is never half full.
            with sealed_folder(folder) as scratch:
                (scratch / "fit.json").write_text(f"{parameters}\n", encoding="utf-8")
                (scratch / FIT_FILE).write_bytes(save(arrays))
        return learned

    @cached_property
    def transform(self) -> RowFunction:
        """The function that changes the base's embeddings, (n, d) to (n, k)."""
        return self.method.transform(self.learned)

    def texts_to_embed(self) -> Sequence[str]:
        """Return the sentences that the base must embed for the fit; none if the fit is stored."""
        is_stored = self.folder is not None and is_sealed(self.folder)
        return () if is_stored or not self.method.reads_embeddings else self.sentences

    @property
    def notes(self) -> list[str]:
        """The notes for its results, after those of its base."""
        return [*read_notes(self.base), *self.method.notes(self.learned)]

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, k)."""
        # Before the base embeds these sentences: the fit may need its embeddings of other ones.
        transform = self.transform
        return np.ascontiguousarray(transform(self.base.encode(sentences)), dtype=np.float32)


def name_of_fitting_texts(encoder: object) -> str:
    """Return the name of the texts that an encoder is fitted on, by default those of its task."""
    return read_metadata(encoder).fit or TARGET_TASK


def texts_sha256(sentences: Sequence[str]) -> str:
    """Return the sha256 of texts in their order."""
    digest = hashlib.sha256()
    for sentence in sentences:
        encoded = sentence.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


EMBED_CHUNK = 65536
"""The number of sentences whose embeddings are in memory at once."""


def iter_embeddings(base: Encoder, sentences: Sequence[str]) -> Iterator[FloatArray]:
    """Yield the embeddings of sentences in chunks, so that not all are in memory at once."""
    return (
        base.encode(sentences[start : start + EMBED_CHUNK])
        for start in range(0, len(sentences), EMBED_CHUNK)
    )


def to_finite_float64(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return embeddings (n, d) as float64, after a check that they are finite.

    Raises:
        EncoderError: They have another shape, or a value that is infinite or not a number.
    """
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim != 2:
        raise EncoderError(f"fitting takes embeddings (n, d), not shape {rows.shape}")
    invalid_rows = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(invalid_rows):
        problem = f"row {invalid_rows[0]} (from 0) has a value that is not"
        raise EncoderError(f"fitting takes finite embeddings; {problem}")
    return rows


DEFAULT_CALIBRATION_TEXTS = "stsb.train"
"""The texts that ranges are taken from by default: a split that is not scored."""


@dataclass(frozen=True, kw_only=True)
class Variant(EmbeddingTransform):
    """Smaller embeddings: fewer dimensions, or numbers of another type.

    Attributes:
        dimensions: The number of dimensions to keep; None for all.
        embeddings: The type of the numbers.
        calibration: The texts that the ranges for integers are taken from; empty for the default.
    """

    dimensions: PositiveInt | None = None
    embeddings: Literal["float32", "int8", "uint8", "binary", "ubinary"] = "float32"
    calibration: str = ""
    kind: ClassVar[str] = "variant"

    def __post_init__(self) -> None:
        """Check that the parameters have an effect.

        Raises:
            CardError: The embeddings would not change, or texts are named that are not needed.
        """
        if self.dimensions is None and self.embeddings == FLOAT_TYPE:
            raise CardError("embeddings = float32 is what they are; leave it out")
        if self.calibration and not self.needs_texts:
            raise CardError(
                "calibration has no effect without embeddings = int8 or uint8; leave it out"
            )

    @property
    def needs_texts(self) -> bool:
        """The ranges of dimensions are taken from texts, as the numbers are integers of 8 bits."""
        return EMBEDDING_TYPES[self.embeddings].bits == 8

    def params(self) -> dict[str, Any]:
        """Return all parameters that decide an embedding, besides the base and the texts."""
        return {key: value for key, value in super().params().items() if key != "calibration"}

    def check_size(self, d: int) -> None:
        """Raise EncoderError if embeddings of d dimensions have too few."""
        if self.dimensions is not None and self.dimensions > d:
            raise EncoderError(
                f"dimensions = {self.dimensions}: the embeddings have {d}; give {d} or fewer"
            )

    def _shorten(self, embeddings: FloatArray) -> FloatArray:
        self.check_size(embeddings.shape[1])
        return embeddings if self.dimensions is None else truncate(embeddings, self.dimensions)

    def fit(self, base: Encoder, sentences: Sequence[str]) -> Tensors:
        """Measure the range of each dimension, if embeddings become integers.

        Args:
            base: The encoder whose embeddings become integers.
            sentences: The texts whose embeddings are measured.

        Returns:
            Under ``ranges`` an array (2, k): the lowest and the highest value of each of the k
            dimensions that are kept. An empty table if embeddings do not become integers.

        Raises:
            EncoderError: There are fewer than two texts.
        """
        if not self.needs_texts:
            return {}
        if len(sentences) < 2:
            raise EncoderError(
                f"the ranges of integers need two texts or more, not {len(sentences)}"
            )
        # Some thousand embeddings at a time, (n, k). If fewer dimensions are kept, they are the
        # first, and each embedding is scaled to length 1.
        chunks = map(self._shorten, iter_embeddings(base, sentences))
        # (chunks, 2, k)
        chunk_ranges = np.array([(chunk.min(axis=0), chunk.max(axis=0)) for chunk in chunks])
        lower = chunk_ranges[:, 0].min(axis=0)
        upper = chunk_ranges[:, 1].max(axis=0)
        return {"ranges": np.array([lower, upper])}

    def transform(self, learned: Tensors) -> RowFunction:
        """Return the function that makes embeddings smaller, (n, d) to (n, k).

        Its results are float32 too, as nothing is packed: integers from -128 to 127, bits as -1 and
        1; of unsigned types integers from 0 to 255, bits as 0 and 1.

        Args:
            learned: The result of :meth:`fit`, with ``ranges`` (2, k) if embeddings become
                integers.
        """
        # The bits of a number of this type, and whether it has a sign.
        embedding_type = EMBEDDING_TYPES[self.embeddings]

        def shrink(embeddings: FloatArray) -> FloatArray:
            """Return embeddings with fewer dimensions, or as integers of 8 bits or as bits."""
            # The first `self.dimensions` of their dimensions, scaled to length 1; if that is None,
            # the embeddings as they are.
            shortened = self._shorten(embeddings)
            # The range of each dimension is taken from texts if numbers become integers.
            if self.needs_texts:
                return to_integers(shortened, learned["ranges"], signed=embedding_type.signed)
            if self.embeddings == FLOAT_TYPE:
                return shortened
            return to_bits(shortened, signed=embedding_type.signed)

        return shrink

    def notes(self, learned: Tensors) -> list[str]:
        """Return a note on the type of the numbers, unless it is float32."""
        if self.embeddings == FLOAT_TYPE:
            return []
        numbers = "bits" if EMBEDDING_TYPES[self.embeddings].bits == 1 else "integers"
        return [f"embeddings are {self.embeddings}: similarity and features are of these {numbers}"]


class VariantEncoder(FittedEncoder):
    """An encoder whose embeddings are its base's, made smaller without texts."""

    learned: Tensors = {}

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of base and variant, whatever their names are; None if the base has none."""
        return derive_fingerprint(self.base, self.method.params())

    @property
    def train_seed(self) -> int | None:
        """The seed of the base."""
        return read_metadata(self.base).train_seed


VARIANT_KEYS = tuple(field.name for field in fields(Variant))
"""The parameters of a variant, which every encoder accepts."""


def variant_specs(spec: str, grid: Mapping[str, Sequence[Any]], calibration: str = "") -> list[str]:
    """Return the names of an encoder's variants, for all combinations of some parameters' values.

    A name is the encoder's with the parameters behind it, as in ``minilm+dimensions=64``. The value
    ``float32`` of ``embeddings`` changes nothing and is no part of a name. Equal names are listed
    once. The first parameter of the grid varies slowest.

    Args:
        spec: The name of the encoder.
        grid: The values to combine, by the parameter's name: ``dimensions`` and ``embeddings``.
        calibration: The texts from which the ranges for integers are taken; empty for the default.

    Raises:
        CardError: A value is not valid for its parameter.
    """
    specs = []
    for values in product(*grid.values()):
        combination = dict(zip(grid, values, strict=True))
        params = {key: value for key, value in combination.items() if value != FLOAT_TYPE}
        if params:
            variant: Variant = call_with_params(Variant, params, where="`variants`")
            # `needs_texts` is true of int8 and uint8, whose ranges are taken from texts.
            if calibration and variant.needs_texts:
                params["calibration"] = calibration
        specs.append(variant_name(spec, params))
    return list(dict.fromkeys(specs))


def find_variant(encoder: object) -> Variant | None:
    """Return the variant of an encoder, fitted or not; None if the encoder is no variant."""
    method = encoder.method if isinstance(encoder, PostProcessed | FittedEncoder) else None
    return method if isinstance(method, Variant) else None
