"""What servers are asked and what they answer: OpenAI's ``/v1/embeddings``, which most speak, and TEI's own ``/embed``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np

from stsbench.encoders.seams import FloatArray
from stsbench.errors import CardError, EncoderError, one_line

SAYS_OF_MODEL = ("root", "parent", "backend", "max_model_len", "meta")
"""Of a server's line on a model what tells it from another; its clock and its load are other each time."""
SAYS_OF_TEI = ("model_id", "model_sha", "model_dtype", "model_type", "max_input_length", "auto_truncate", "version")


@dataclass(frozen=True, kw_only=True)
class RequestFacts:
    """What stands in every request beside the texts."""

    model: str
    dimensions: int | None = None
    encoding: str = "float"
    body: Mapping[str, Any]

    def check(self, own: Iterable[str]) -> None:
        """Refuse an encoding that there is not, and fields that stsbench sets itself.

        Raises:
            CardError: names it.
        """
        if self.encoding not in ("float", "base64"):
            raise CardError(f"encoding '{self.encoding}' is neither 'float' nor 'base64'")
        for key in self.body.keys() & own:
            raise CardError(f"body: '{key}' cannot be set: stsbench sets it")


class _Row(msgspec.Struct):
    index: int
    embedding: str | list[float | None]


class _Rows(msgspec.Struct):
    data: list[_Row]


class OpenAIApi:
    """``POST /embeddings`` below the address, as OpenAI, vLLM, TEI, Ollama, llama.cpp, LM Studio and Infinity have it."""

    path: ClassVar[str] = "/embeddings"
    about_path: ClassVar[str] = "/models"
    own: ClassVar[frozenset[str]] = frozenset({"model", "input", "encoding_format", "dimensions"})
    """Fields that are no one's to add."""

    @staticmethod
    def request(asked: RequestFacts, texts: Sequence[str]) -> dict[str, Any]:
        """The body of a request for these texts."""
        dimensions = {} if asked.dimensions is None else {"dimensions": asked.dimensions}
        own = {"model": asked.model, "input": list(texts), "encoding_format": asked.encoding, **dimensions}
        return {**asked.body, **own}

    @staticmethod
    def read(answer: object, n: int) -> FloatArray:
        """The embeddings (n, d) of an answer in the order of the texts, NaN where the server gave no number.

        Raises:
            EncoderError: it is not one embedding a text, all of one size.
        """
        rows = _convert(answer, _Rows).data
        if sorted(row.index for row in rows) != list(range(n)):
            raise EncoderError(
                f"the answer holds {len(rows)} embeddings for {n} texts, or their 'index' is not 0 to {n - 1}"
            )
        return _stacked([_numbers(row.embedding) for row in sorted(rows, key=lambda row: row.index)])

    @staticmethod
    def about(said: Mapping[str, Any], model: str) -> dict[str, Any]:
        """What the list of models says of one."""
        rows = said.get("data")
        mine = (
            [row for row in rows if isinstance(row, dict) and row.get("id") == model] if isinstance(rows, list) else []
        )
        return {key: mine[0][key] for key in SAYS_OF_MODEL if mine and mine[0].get(key) is not None}


class TEIApi:
    """``POST /embed`` of Text Embeddings Inference."""

    path: ClassVar[str] = "/embed"
    about_path: ClassVar[str] = "/info"
    own: ClassVar[frozenset[str]] = frozenset({"inputs", "dimensions"})
    """Fields that are no one's to add."""

    @staticmethod
    def request(asked: RequestFacts, texts: Sequence[str]) -> dict[str, Any]:
        """The body of a request for these texts."""
        dimensions = {} if asked.dimensions is None else {"dimensions": asked.dimensions}
        return {**asked.body, "inputs": list(texts), **dimensions}

    @staticmethod
    def read(answer: object, n: int) -> FloatArray:
        """As :meth:`OpenAIApi.read`; the answer holds the embeddings alone, in their order."""
        rows = _convert(answer, list[list[float | None]])
        if len(rows) != n:
            raise EncoderError(f"the answer holds {len(rows)} embeddings for {n} texts")
        return _stacked([_numbers(row) for row in rows])

    @staticmethod
    def about(said: Mapping[str, Any], model: str) -> dict[str, Any]:
        """What the server says of its model."""
        return {key: said[key] for key in SAYS_OF_TEI if said.get(key) is not None}


APIS: dict[str, type[OpenAIApi] | type[TEIApi]] = {"openai": OpenAIApi, "tei": TEIApi}
"""The ways to ask a server, by name."""


def _convert(answer: object, kind: Any) -> Any:  # noqa: ANN401 - a type, and a value of it
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise EncoderError(f"the answer is not as it must be: {one_line(error)}") from error


def _numbers(embedding: str | list[float | None]) -> FloatArray:
    """One embedding (d,), whether it came as numbers or as base64 of float32, little-endian."""
    if isinstance(embedding, str):
        try:
            return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
        except (binascii.Error, ValueError) as error:
            raise EncoderError(f"an embedding in the answer is not base64 of float32: {one_line(error)}") from error
    with np.errstate(over="ignore"):
        return np.array(embedding, dtype=np.float64).astype(np.float32)


def _stacked(rows: Sequence[FloatArray]) -> FloatArray:
    sizes = {len(row) for row in rows}
    if len(sizes) != 1 or 0 in sizes:
        raise EncoderError(f"the answer holds embeddings of sizes {', '.join(map(str, sorted(sizes)))}")
    return np.stack(rows)
