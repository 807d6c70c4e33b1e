"""Universal Sentence Encoder (Cer et al. 2018, arXiv 1803.11175): a SavedModel of TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.core.errors import EncoderError, SourceError
from stsbench.core.files import expand_home, file_sha256
from stsbench.core.provenance import fingerprint
from stsbench.core.wording import as_one_line
from stsbench.encoders.base import FloatArray, PositiveInt
from stsbench.encoders.metadata import check_sentences

CODE_VERSION = 1
"""To be raised with a change here that can change an embedding: stored ones are not reused then."""
LIBRARIES = ("tensorflow", "tensorflow-cpu", "tensorflow-text")
GRAPH_FILE = "saved_model.pb"
MODULE_FILE = "tfhub_module.pb"
SIGNATURES = ("default", "serving_default")
EMBEDDING_OUTPUTS = ("outputs", "default", "output_0")
"""The names of the embeddings in releases that return several outputs."""


class UniversalSentenceEncoder:
    """Embeds with a SavedModel that takes strings, (n, 512) for the released ones.

    A SavedModel is a program that TensorFlow runs: load only one that you trust.
    """

    RUNTIME_PARAMETERS = ("batch",)

    def __init__(self, model: str, *, name: str = "", batch: PositiveInt = 128) -> None:
        """Find the folder of the SavedModel, TensorFlow's format of a model; it is not loaded yet.

        Args:
            model: A folder with ``saved_model.pb``, or an ``https://`` handle of TensorFlow Hub.
            name: The name of the encoder; empty for that of the model.
            batch: The number of sentences to embed at once.

        Raises:
            EncoderError: TensorFlow is not installed, or there is no SavedModel in the folder.
            SourceError: The folder does not exist, or the handle cannot be fetched.
        """
        self.name = name or model
        self.batch = batch
        if find_spec("tensorflow") is None:
            raise EncoderError(
                f"'{self.name}' needs TensorFlow, which is not installed: "
                "pip install 'stsbench[use]'"
            )
        if model.startswith("https://"):
            self.folder = _fetch_handle(model)
        else:
            self.folder = expand_home(model)
        if not self.folder.is_dir():
            raise SourceError(f"checkpoint folder '{model}' does not exist")
        if not (self.folder / GRAPH_FILE).is_file():
            raise EncoderError(
                f"{self.folder}: no {GRAPH_FILE}; unpack the SavedModel and give its folder"
            )

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the files of the model, and the versions of TensorFlow's packages."""
        paths = [self.folder / GRAPH_FILE]
        for subfolder in ("variables", "assets"):
            for path in sorted((self.folder / subfolder).glob("*")):
                if path.is_file():
                    paths.append(path)
        # Hashes by path. Packages of LIBRARIES that are not installed are left out.
        files = {path.relative_to(self.folder).as_posix(): file_sha256(path) for path in paths}
        return fingerprint({"kind": "use", "code": CODE_VERSION, "files": files}, LIBRARIES)

    @cached_property
    def graph(self) -> Any:  # noqa: ANN401 - tensorflow is not typed
        """The SavedModel, loaded at the first access.

        It is kept whole, because the variables of a SavedModel are freed with it, even if one of
        its functions is still in use.

        Raises:
            EncoderError: It cannot be loaded.
        """
        import tensorflow

        # A SavedModel may hold several graphs, each under tags. In TensorFlow Hub's first format
        # the graph has none. With None TensorFlow loads the only graph, whatever its tags are.
        tags: list[str] | None = [] if (self.folder / MODULE_FILE).is_file() else None
        try:
            return tensorflow.saved_model.load(str(self.folder), tags=tags)
        except Exception as error:  # whatever a broken file makes the library raise
            raise EncoderError(
                f"{self.folder}: cannot be loaded: {as_one_line(error)[:200]}"
            ) from error

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d), computed ``self.batch`` sentences at a time."""
        check_sentences(sentences)
        # Without sentences the result is (0, d). Only an embedding shows d, so a blank one is made.
        if not len(sentences):
            return self._embed([""])[:0]
        starts = range(0, len(sentences), self.batch)
        return np.concatenate(
            [self._embed(sentences[start : start + self.batch]) for start in starts]
        )

    def _embed(self, sentences: Sequence[str]) -> FloatArray:
        """Return the embeddings of one batch of sentences, (n, d), that TensorFlow computes."""
        import tensorflow

        # Half a surrogate pair, which cannot be written as UTF-8, becomes "?".
        text = tensorflow.constant([sentence.encode("utf-8", "replace") for sentence in sentences])
        # A tensor of embeddings, or several outputs by name.
        outputs = self._function(text)
        if isinstance(outputs, dict):
            outputs = self._select_embeddings(outputs)
        embeddings: FloatArray = np.asarray(outputs, dtype=np.float32)
        return embeddings

    @property
    def _function(self) -> Any:  # noqa: ANN401 - tensorflow is not typed
        """The function of the SavedModel that embeds a tensor of sentences.

        Raises:
            EncoderError: There is none of a known kind.
        """
        # A SavedModel of TensorFlow 2 can be called itself.
        if callable(self.graph):
            return self.graph
        # One of TensorFlow 1, which the module large/3 is, is called by its signatures, functions
        # by name. The first of the known names (SIGNATURES) that is there counts.
        signatures = getattr(self.graph, "signatures", {})
        for name in SIGNATURES:
            if name in signatures:
                return signatures[name]
        raise EncoderError(
            f"{self.folder}: the SavedModel can be called in no way that is known "
            f"(signatures: {list(signatures)})"
        )

    def _select_embeddings(self, outputs: dict[str, Any]) -> Any:  # noqa: ANN401 - see _function
        """Return the output that is the embeddings.

        It is the first that is there of ``EMBEDDING_OUTPUTS``, a tuple of names; without any of
        these, the only output.

        Args:
            outputs: The outputs of the SavedModel by name.

        Raises:
            EncoderError: There are several, and none has a known name.
        """
        for name in EMBEDDING_OUTPUTS:
            if name in outputs:
                return outputs[name]
        if len(outputs) > 1:
            raise EncoderError(
                f"{self.folder}: returns {', '.join(sorted(outputs))}; "
                "none is known to be the embeddings"
            )
        return next(iter(outputs.values()))


def _fetch_handle(handle: str) -> Path:
    """Download a model of TensorFlow Hub, and return its folder in that library's own cache.

    Args:
        handle: The address of the model, ``https://...``.

    Raises:
        EncoderError: The package tensorflow_hub is not installed.
        SourceError: The model cannot be downloaded.
    """
    if find_spec("tensorflow_hub") is None:
        raise EncoderError(
            f"'{handle}' needs TensorFlow Hub, which is not installed: pip install 'stsbench[use]'"
        )
    import tensorflow_hub

    try:
        return Path(tensorflow_hub.resolve(handle))
    except Exception as error:  # its own kinds, urllib's and TensorFlow's
        raise SourceError(
            f"'{handle}' cannot be fetched: {as_one_line(error)[:120]}",
            hint="download it and pass `params=model=FOLDER`",
        ) from error
