"""What an encoder returned: looked at before anything is made of it."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stsbench.encoders.seams import FloatArray
from stsbench.errors import EncoderError, one_line


def as_array(returned: object, name: str) -> npt.NDArray[Any]:
    """What an encoder returned as an array of numbers, whatever their type; raises EncoderError where it is none."""
    what = f"encoder '{name}' returned a {type(returned).__name__} that is not an array (n, d)"
    if isinstance(returned, Coroutine):
        # Nobody will await it, which Python would warn of whenever it is collected.
        returned.close()
    try:
        array = np.asarray(returned)
    except (TypeError, ValueError, RuntimeError) as error:
        raise EncoderError(f"{what}: {one_line(error)[:200]}") from error
    if array.dtype.kind not in "fiub":
        raise EncoderError(f"{what} of numbers")
    return array


def check_embeddings(embeddings: FloatArray, sentences: Sequence[str], name: str, *, d: int | None = None) -> None:
    """Check what an encoder returned, and against the size ``d`` of its earlier embeddings.

    Raises:
        EncoderError: not float32 (n, d), or NaN or infinity, naming the sentence.
    """
    if embeddings.ndim != 2 or len(embeddings) != len(sentences):
        raise EncoderError(
            f"encoder '{name}' returned shape {embeddings.shape} for {len(sentences)} sentences; "
            "it must return one row a sentence, (n, d)"
        )
    if d is not None and embeddings.shape[1] != d:
        raise EncoderError(
            f"encoder '{name}' returned embeddings of size {embeddings.shape[1]} after some of size {d}; "
            "its fingerprint must change when its embeddings do"
        )
    if embeddings.dtype != np.float32:
        raise EncoderError(f"encoder '{name}' returned {embeddings.dtype}; it must return float32")
    finite = np.isfinite(embeddings).all(axis=1)
    if not finite.all():
        text = sentences[int(np.argmin(finite))]
        raise EncoderError(f"encoder '{name}' returned NaN or infinity for the sentence '{text[:60]}'")
