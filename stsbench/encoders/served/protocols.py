"""The protocols of servers that embed: their paths, requests and answers."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core.errors import EncoderError, translate_errors
from stsbench.encoders.base import FloatArray


class _Row(msgspec.Struct):
    """The embedding of one text: numbers or base64, and the number of the text."""

    index: int
    embedding: str | list[float | None] | None


class _Rows(msgspec.Struct):
    """The answer by OpenAI's protocol: the embeddings, and the name of the model."""

    data: list[_Row]
    model: Any = None


class Answer(NamedTuple):
    """The embeddings of some texts by a server."""

    embeddings: FloatArray
    """(n, d), NaN where no number stands."""
    has_null: npt.NDArray[np.bool_]
    """Null stands in the place of an embedding, or of a number of it, (n,)."""
    model: str
    """The model that the answer names; empty if it names none."""


class ServerApi(NamedTuple):
    """A protocol of servers."""

    path: str
    """The path of requests for embeddings."""
    description_path: str
    """The path of the server's description of its models."""
    response_type: Any
    """The type that the JSON of a response is converted to."""
    request_fields: tuple[str, ...]
    """The field of the texts, and others that a user may not add."""
    identifying_keys: tuple[str, ...]
    """The keys of a model's description that identify it; its clock and load change each time."""

    def make_request(self, texts: Sequence[str], model: str, encoding: str) -> dict[str, Any]:
        """Return the fields of a request for these texts."""
        request: dict[str, Any] = {self.request_fields[0]: list(texts)}
        for key, value in {"model": model, "encoding_format": encoding}.items():
            if key in self.request_fields:
                request[key] = value
        return request

    def read(self, response: object, n: int, message_prefix: str) -> Answer:
        """Read the embeddings of ``n`` texts from a server's response.

        Args:
            response: The JSON value of the response.
            n: The number of texts.
            message_prefix: The beginning of error messages.

        Returns:
            The embeddings (n, d) in the order of the texts; for each text whether it has a null,
            in place of an embedding or of a number in it, which becomes NaN; and the name of the
            model in the response, empty if there is none.

        Raises:
            EncoderError: The response has not one embedding per text, or has several sizes.
        """
        problem = f"{message_prefix}: the answer is not as it must be"
        # Errors of the last two types become an EncoderError with this message.
        with translate_errors(problem, EncoderError, ValueError, msgspec.ValidationError):
            table = msgspec.convert(response, self.response_type)
            # Some APIs answer with a plain list of embeddings, in the order of the texts.
            if not isinstance(table, _Rows):
                table = _Rows([_Row(index, embedding) for index, embedding in enumerate(table)])
            # A server may answer in any order; 'index' is the number of the text in the request.
            rows = sorted(table.data, key=lambda row: row.index)
            embeddings = [
                None if row.embedding is None else _read_numbers(row.embedding) for row in rows
            ]
        if [row.index for row in rows] != list(range(n)):
            raise EncoderError(
                f"{message_prefix}: the answer holds {len(rows)} embeddings for {n} texts, "
                f"or their 'index' is not 0 to {n - 1}"
            )
        sizes = sorted({len(embedding) for embedding in embeddings if embedding is not None})
        if not sizes:
            raise EncoderError(
                f"{message_prefix}: the answer holds null in the place of every embedding"
            )
        if len(sizes) > 1 or 0 in sizes:
            sizes_text = ", ".join(map(str, sizes))
            raise EncoderError(
                f"{message_prefix}: the answer holds embeddings of sizes {sizes_text}"
            )
        # A null in place of an embedding becomes NaN. The caller then raises an error that names
        # the text.
        missing = np.full(sizes[0], np.nan)
        stacked = np.stack(
            [missing if embedding is None else embedding for embedding in embeddings]
        )
        has_null = [
            row.embedding is None or (isinstance(row.embedding, list) and None in row.embedding)
            for row in rows
        ]
        model = table.model if isinstance(table.model, str) else ""
        return Answer(
            embeddings=stacked.astype(np.float32), has_null=np.array(has_null), model=model
        )


def _read_numbers(embedding: str | list[float | None]) -> FloatArray:
    """Return an embedding (d,) of a response.

    Args:
        embedding: A list of numbers, in which None stands for a missing number; or the bytes of
            little-endian float32 numbers in base64.

    Raises:
        ValueError: A text is no base64, or its bytes are no float32 numbers.
    """
    if not isinstance(embedding, str):
        # None becomes NaN, and a number too large for float32 becomes infinity. For both the
        # caller raises an error.
        with np.errstate(over="ignore"):
            return np.array(embedding, dtype=np.float64).astype(np.float32)
    return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")


SERVER_APIS = {
    # As OpenAI, vLLM, TEI, Ollama, llama.cpp, LM Studio and Infinity have it.
    "openai": ServerApi(
        path="/embeddings",
        description_path="/models",
        response_type=_Rows,
        request_fields=("input", "model", "encoding_format", "dimensions"),
        identifying_keys=("root", "parent", "backend", "max_model_len", "meta"),
    ),
    # Text Embeddings Inference.
    "tei": ServerApi(
        path="/embed",
        description_path="/info",
        response_type=list[list[float | None] | None],
        request_fields=("inputs", "dimensions"),
        identifying_keys=(
            "model_id",
            "model_sha",
            "model_dtype",
            "model_type",
            "max_input_length",
            "auto_truncate",
            "version",
        ),
    ),
}
"""The protocols of servers by name."""
