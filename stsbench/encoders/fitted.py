"""Encoders that change another encoder's embeddings by something fitted on texts: whitening, flow.

A kind is a :class:`Method`. What it learns, some tensors, is kept in the cache folder by what it was made of (the base encoder's
fingerprint, the texts, the method's parameters), as safetensors and JSON, so that the same fit is never made twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stsbench.core import settings
from stsbench.core.errors import EncoderError
from stsbench.core.files import write_whole
from stsbench.core.provenance import derived
from stsbench.encoders.base import Encoder, FloatArray, facts_of, notes_of
from stsbench.encoders.converted import is_sealed, seal
from stsbench.encoders.engine.embed import OfRows

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
