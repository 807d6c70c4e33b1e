"""Encoders over another one: by something fitted on texts (whitening, flow), and variants with fewer numbers, integers or bits.

A kind is a :class:`Method`. What it learns, some tensors, is kept in the cache folder by what it was made of (the base encoder's
fingerprint, the texts, the method's parameters), as safetensors and JSON, so that the same fit is never made twice. One encoder embeds
for all of its variants. Integers need the range of each dimension, which is fitted on texts too; bits and fewer numbers need none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from inspect import Parameter, signature
from itertools import product
from pathlib import Path
from typing import Any, Literal, Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from stsbench.core import settings
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, EncoderError
from stsbench.core.files import write_whole
from stsbench.core.provenance import derived, remember_maker
from stsbench.core.registry import call_with_params
from stsbench.encoders.base import (
    Encoder,
    FloatArray,
    TextFitted,
    can_encode,
    facts_of,
    make_encoder,
    notes_of,
    variant_name,
)
from stsbench.encoders.converted import is_sealed, seal
from stsbench.encoders.engine.embed import OfRows
from stsbench.numbers.similarity import FLOAT, TYPES, to_bits, to_integers, truncate

TARGET = "target"
"""The word for the sentences of the very task that is scored."""
FIT_FILE = "fit.safetensors"
Tensors = Mapping[str, npt.NDArray[Any]]


class Method(Protocol):
    """A way to change embeddings by what is learned from texts: how that is learned, and with which parameters."""

    @property
    def reads_embeddings(self) -> bool:
        """Whether it fits on the base's embeddings as they are, and so on stored ones."""

    @property
    def libraries(self) -> Sequence[str]:
        """The packages that fit, as far as another version of them may learn something else."""

    def params(self) -> Mapping[str, Any]:
        """All that decides what is learned, its code's version among it; JSON values."""

    def fit(self, base: Encoder, sentences: Sequence[str]) -> Tensors:
        """Learn from the base encoder's embeddings of these sentences."""

    def transform(self, learned: Tensors) -> OfRows:
        """What changes embeddings, (n, d) to (n, k), each row by itself."""

    def notes(self, learned: Tensors) -> list[str]:
        """What a reader of its scores should know."""


class PostProcessed:
    """An encoder over another one, before it is fitted: :meth:`fit_texts` makes the encoder that embeds."""

    def __init__(self, base: Encoder, method: Method, *, name: str, fit: str) -> None:
        """Keep what is to be fitted, on what."""
        self.base, self.method, self.name, self.fit = base, method, name, fit

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of base and parameters, without the texts or what they are called; None where the base has none."""
        return derived(self.base, {"method": dict(self.method.params())}, self.method.libraries)

    @property
    def train_seed(self) -> int | None:
        """The seed of fitting, else the base's; None where nothing is drawn."""
        seed: int | None = self.method.params().get("seed")
        return facts_of(self.base).train_seed if seed is None else seed

    def over(self, base: Encoder) -> PostProcessed:
        """Return the same over another base."""
        return PostProcessed(base, self.method, name=self.name, fit=self.fit)

    def fit_texts(self, sentences: Sequence[str]) -> FittedEncoder:
        """Return the encoder fitted on these sentences; the work is done when it is first needed."""
        return FittedEncoder(self.base, self.method, sentences, name=self.name)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Refuse: nothing is fitted yet."""
        raise EncoderError(f"encoder '{self.name}' is fitted on texts ({self.fit}); call fit_texts(sentences) first")


class FittedEncoder:
    """An encoder whose embeddings are its base's, transformed by what was fitted on texts."""

    def __init__(self, base: Encoder, method: Method, sentences: Sequence[str], *, name: str) -> None:
        """Keep what to fit; nothing is computed before the first sentence."""
        self.base, self.method, self.sentences, self.name = base, method, sentences, name

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of base, parameters and texts; None where the base has none."""
        facts = {"method": dict(self.method.params()), "texts": texts_digest(self.sentences)}
        return derived(self.base, facts, self.method.libraries)

    @property
    def folder(self) -> Path | None:
        """Where its fit is kept; None where nothing identifies the base."""
        return settings.cache_folder() / "fitted" / self.fingerprint[:32] if self.fingerprint else None

    @cached_property
    def learned(self) -> Tensors:
        """What was learned; taken from the cache folder where it has been made before."""
        folder = self.folder
        if folder is not None and is_sealed(folder):
            return load_fit(folder)
        made = self.method.fit(self.base, self.sentences)
        if folder is not None:
            save_fit(folder, made, self.method.params())
        return made

    @cached_property
    def transform(self) -> OfRows:
        """What changes the base's embeddings, (n, d) to (n, k)."""
        return self.method.transform(self.learned)

    def fit_anew(self) -> None:
        """Fit now, whatever the cache folder keeps, and keep nothing there."""
        self.learned = self.method.fit(self.base, self.sentences)

    def texts_to_embed(self) -> Sequence[str]:
        """The sentences whose embeddings fitting will ask the base for; none where the fit is kept already."""
        kept = self.folder is not None and is_sealed(self.folder)
        return () if kept or not self.method.reads_embeddings else self.sentences

    @property
    def notes(self) -> list[str]:
        """What a reader of its scores should know, of its base too."""
        return [*notes_of(self.base), *self.method.notes(self.learned)]

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, k)."""
        # Before the base embeds: fitting may ask it for embeddings too.
        transform = self.transform
        return np.ascontiguousarray(transform(self.base.encode(sentences)), dtype=np.float32)


def fit_of(encoder: object) -> str:
    """Which texts an encoder is fitted on; those of the task where it does not say."""
    return facts_of(encoder).fit or TARGET


def texts_digest(sentences: Sequence[str]) -> str:
    """The sha256 of texts in their order."""
    digest = hashlib.sha256()
    for sentence in sentences:
        raw = sentence.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()


def save_fit(folder: Path, learned: Tensors, params: Mapping[str, Any]) -> Path:
    """Write what was learned, ``fit.json`` and ``fit.safetensors``, and seal it.

    Raises:
        OutputError: the folder cannot be written.
    """
    from safetensors.numpy import save

    tensors = {name: np.ascontiguousarray(array) for name, array in learned.items()}
    write_whole(folder / "fit.json", (json.dumps(dict(params), indent=1) + "\n").encode())
    written = write_whole(folder / FIT_FILE, save(tensors))
    seal(folder)
    return written


def load_fit(folder: Path) -> Tensors:
    """Read what :func:`save_fit` wrote and sealed."""
    from safetensors.numpy import load

    tensors: Tensors = load((folder / FIT_FILE).read_bytes())
    return tensors


CODE_VERSION = 1
"""Raise when a change here can change an embedding: kept ranges are then not reused."""
CHUNK = 65536
CALIBRATION = "stsb.train"
"""The texts that ranges are taken from where nobody says: no split that is scored."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What is made of each embedding; ``embeddings`` is the type of its numbers, one of ``TYPES``."""

    dimensions: int | None = None
    embeddings: Literal["float32", "int8", "uint8", "binary", "ubinary"] = "float32"
    calibration: str = ""

    def __post_init__(self) -> None:
        """Refuse values of no sense, and texts that nothing would read."""
        if self.dimensions is not None and self.dimensions < 1:
            raise CardError(f"dimensions = {self.dimensions} keeps nothing of an embedding; give 1 or more")
        if self.dimensions is None and self.embeddings == FLOAT:
            raise CardError("embeddings = float32 is what they are; leave it out")
        if self.calibration and not self.needs_texts:
            raise CardError("calibration has no effect without embeddings = int8 or uint8; leave it out")

    @property
    def needs_texts(self) -> bool:
        """Whether the ranges of dimensions are taken from texts."""
        return TYPES[self.embeddings].needs_ranges

    def facts(self) -> dict[str, Any]:
        """All that decides an embedding beside the base and the texts."""
        return {"kind": "variant", "code": CODE_VERSION, "dimensions": self.dimensions, "embeddings": self.embeddings}

    def shorten(self, embeddings: FloatArray) -> FloatArray:
        """Return the first dimensions at length 1, (n, d) to (n, k), or the embeddings as they are.

        Raises:
            EncoderError: there are fewer.
        """
        if self.dimensions is None:
            return embeddings
        self.check_size(embeddings.shape[1])
        return truncate(embeddings, self.dimensions)

    def check_size(self, d: int) -> None:
        """Raise EncoderError where embeddings of this size have too few dimensions."""
        if self.dimensions is not None and self.dimensions > d:
            raise EncoderError(f"dimensions = {self.dimensions}: the embeddings have {d}; give {d} or fewer")


class VariantEncoder:
    """An encoder whose embeddings are its base's, made smaller."""

    def __init__(self, base: Encoder, variant: Variant, *, name: str) -> None:
        """Keep the base and what is made of its embeddings."""
        self.base, self.variant, self.name = base, variant, name

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of base and variant, whatever they are called; None where the base has none."""
        return derived(self.base, self.variant.facts())

    @property
    def train_seed(self) -> int | None:
        """The base's."""
        return facts_of(self.base).train_seed

    @property
    def notes(self) -> list[str]:
        """The base's, and of what scores are."""
        return [*notes_of(self.base), *_said(self.variant)]

    def over(self, base: Encoder) -> VariantEncoder:
        """Return the same over another base."""
        return VariantEncoder(base, self.variant, name=self.name)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, k)."""
        return self.transform(self.base.encode(sentences))

    def transform(self, embeddings: FloatArray) -> FloatArray:
        """Return the base's embeddings made smaller, (n, d) to (n, k)."""
        embeddings, kept = self.variant.shorten(embeddings), self.variant.embeddings
        return embeddings if kept == FLOAT else to_bits(embeddings, signed=TYPES[kept].signed)


class RangesMethod:
    """How the ranges of an encoder's dimensions are taken from texts."""

    reads_embeddings = True
    libraries = ()

    def __init__(self, variant: Variant) -> None:
        """Keep what is made of embeddings."""
        self.variant = variant

    def params(self) -> Mapping[str, Any]:
        """All that decides the result."""
        return self.variant.facts()

    def fit(self, base: Encoder, sentences: Sequence[str]) -> Tensors:
        """The smallest and the largest number of each dimension, (2, k), of the embeddings of these sentences.

        Raises:
            EncoderError: fewer than two are given.
        """
        if len(sentences) < 2:
            raise EncoderError(f"the ranges of integers are taken from two texts at least, not from {len(sentences)}")
        chunks = range(0, len(sentences), CHUNK)
        found = (self.variant.shorten(base.encode(sentences[start : start + CHUNK])) for start in chunks)
        ends = np.array([(part.min(axis=0), part.max(axis=0)) for part in found])
        return {"ranges": np.array([ends[:, 0].min(axis=0), ends[:, 1].max(axis=0)])}

    def transform(self, learned: Tensors) -> OfRows:
        """What makes integers of embeddings, (n, d) to (n, k)."""
        signed = TYPES[self.variant.embeddings].signed
        return lambda embeddings: to_integers(self.variant.shorten(embeddings), learned["ranges"], signed=signed)

    def notes(self, learned: Tensors) -> list[str]:
        """Says of what scores are."""
        return _said(self.variant)


def _said(variant: Variant) -> list[str]:
    if variant.embeddings == FLOAT:
        return []
    numbers = "bits" if TYPES[variant.embeddings].bits == 1 else "integers"
    return [f"embeddings are {variant.embeddings}: similarity and features are of these {numbers}"]


def make_or_vary(
    maker: Callable[..., Any],
    name: str,
    params: Mapping[str, Any],
    where: str,
    catalogue: Catalogue | None = None,
    *,
    found_by: str,
) -> Encoder:
    """Return what a maker makes of its own parameters, or the variant of that which the others ask for.

    Args:
        maker: a kind, or a user's own class, function or encoder.
        name: what the encoder is called.
        params: its parameters, and those of :class:`Variant` that it does not take itself.
        where: what messages begin with.
        catalogue: the cards.
        found_by: the name that the maker was found by.

    Raises:
        CardError: a parameter is wrong, or a variant of an encoder that is fitted on texts is asked for.
    """
    asked = {key: value for key, value in params.items() if key in KEYS and not _takes(maker, key)}
    own = {key: value for key, value in params.items() if key not in asked}
    known = f"{found_by} {sorted(own.items())} {catalogue.folders if catalogue else ()}"
    made = _BASES.get(known) if asked else None
    if made is None:
        made = make_encoder(maker, name, own, where, catalogue, also=KEYS)
        remember_maker(made, maker, own, called=found_by)
    if not asked:
        return made
    variant: Variant = call_with_params(Variant, asked, where=where)
    with suppress(TypeError):
        # What takes no weak references is made for each variant.
        _BASES[known] = made
    if isinstance(made, TextFitted):
        raise CardError(f"{where}: '{min(asked)}' is for encoders that are not fitted on texts, and this one is")
    if not variant.needs_texts:
        return VariantEncoder(made, variant, name=made.name)
    return PostProcessed(made, RangesMethod(variant), name=made.name, fit=variant.calibration or CALIBRATION)


def _takes(maker: Callable[..., Any], key: str) -> bool:
    """Whether a parameter is the maker's own; an encoder that is made already takes none."""
    if not isinstance(maker, type) and can_encode(maker):
        return False
    takes = signature(maker).parameters
    return key in takes or any(one.kind is Parameter.VAR_KEYWORD for one in takes.values())


_BASES: WeakValueDictionary[str, Encoder] = WeakValueDictionary()
"""The bases of variants that are in use, by what made them: the next variant takes the same one."""
KEYS = tuple(one.name for one in fields(Variant))
"""The parameters of a variant, which every encoder takes."""


def variant_specs(spec: str, grid: Mapping[str, Sequence[Any]], calibration: str = "") -> list[str]:
    """The names of an encoder's variants: of each combination of values of ``dimensions`` and ``embeddings``.

    Args:
        spec: the encoder.
        grid: values by parameter, the first one varying slowest; float32 is the encoder without a type.
        calibration: the texts that ranges are taken from, where any are.

    Raises:
        CardError: a value is none of its parameter.
    """
    found = []
    for values in product(*grid.values()):
        given = {key: value for key, value in zip(grid, values, strict=True) if value != FLOAT}
        if given:
            variant: Variant = call_with_params(Variant, given, where="--variants")
            given |= {"calibration": calibration} if calibration and variant.needs_texts else {}
        found.append(variant_name(spec, given))
    return list(dict.fromkeys(found))


def variant_of(encoder: object) -> Variant | None:
    """What is made of another's embeddings, of an encoder that is a variant, fitted or not; else None."""
    if isinstance(encoder, VariantEncoder):
        return encoder.variant
    method = encoder.method if isinstance(encoder, PostProcessed) else None
    return method.variant if isinstance(method, RangesMethod) else None
