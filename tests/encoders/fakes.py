"""Encoders without a model, whose calls are counted."""

from __future__ import annotations

import hashlib
import os
import signal
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.encoders.engine.drift import PROBE_SENTENCES
from stsbench.encoders.tokens import TokenIds

Array = np.ndarray[Any, np.dtype[np.float32]]
Rows = np.ndarray[Any, np.dtype[np.int64]]


def hashed(text: str, d: int = 4) -> list[float]:
    """Numbers in [-1, 1) that tell a text."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return [byte / 128 - 1 for byte in digest[:d]]


class Plain:
    """What a user may write: three names and no more."""

    def __init__(
        self, name: str = "plain", fingerprint: str | None = "plain-1", d: int = 4
    ) -> None:
        self.name, self.fingerprint, self.d = name, fingerprint, d
        self.calls: list[list[str]] = []
        self.sampled: list[str] = []
        """The samples of :mod:`stsbench.encoders.engine.drift`, which are no sentences of a task."""

    def encode(self, sentences: Sequence[str]) -> Array:
        if set(sentences) == set(PROBE_SENTENCES):
            self.sampled.extend(sentences)
        else:
            self.calls.append(list(sentences))
        return np.array([hashed(text, self.d) for text in sentences], dtype=np.float32).reshape(
            -1, self.d
        )


class Neighbourly:
    """An encoder with words as tokens whose embeddings depend on all that is in their batch.

    After ``stop_after`` batches it is interrupted, as by Ctrl-C; each batch takes ``seconds``.
    """

    def __init__(
        self,
        name: str = "neighbourly",
        fingerprint: str | None = "n-1",
        *,
        stop_after: int = -1,
        seconds: float = 0,
    ) -> None:
        self.name, self.fingerprint = name, fingerprint
        self.stop_after, self.seconds = stop_after, seconds
        self.batches: list[list[str]] = []
        self.tokenized: list[str] = []
        self.texts: dict[bytes, str] = {}
        """By their tokens; another process may have tokenised what is embedded here."""

    @property
    def embedded(self) -> Counter[str]:
        return Counter(text for batch in self.batches for text in batch)

    def encode(self, sentences: Sequence[str]) -> Array:
        raise AssertionError("the engine plans the batches")

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        self.tokenized = list(sentences)
        tokens = TokenIds.from_lists([self._ids(text) for text in sentences])
        self.texts.update(
            (one.tobytes(), text) for one, text in zip(self._each(tokens), sentences, strict=True)
        )
        return tokens

    def _ids(self, text: str) -> list[int]:
        return [zlib.crc32(word.encode()) >> 1 for word in text.split()]

    def alone(self, text: str) -> list[float]:
        """What of its embedding is of the text itself."""
        return hashed(repr(np.array(self._ids(text), dtype=np.int32).tobytes()))

    def _each(self, tokens: TokenIds) -> list[Any]:
        return np.split(tokens.ids, tokens.offsets[1:-1]) if len(tokens) else []

    def embed_tokens(self, tokens: TokenIds, rows: Rows) -> Array:
        if len(self.batches) == self.stop_after:
            raise KeyboardInterrupt
        time.sleep(self.seconds)
        every = self._each(tokens)
        batch = [every[row].tobytes() for row in rows]
        self.batches.append([self.texts.get(one, "") for one in batch])
        beside = hashed(repr(batch))
        return np.array([hashed(repr(one)) + beside for one in batch], dtype=np.float32)


SLOW = Neighbourly("slow", "slow-1", seconds=0.02)
PLAIN = Plain()


class Unsteady(Plain):
    """Ends its process, hangs or raises, as often as its file of marks says; then it embeds."""

    def __init__(self, marks: str, *, times: int, how: str) -> None:
        super().__init__("unsteady", f"unsteady-{how}-{times}")
        self.marks, self.times, self.how = Path(marks), times, how

    def encode(self, sentences: Sequence[str]) -> Array:
        if self.marks.exists() and len(self.marks.read_text()) >= self.times:
            return super().encode(sentences)
        with self.marks.open("a") as marks:
            marks.write("x")
        if self.how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        while self.how == "hangs":
            time.sleep(0.1)
        raise ZeroDivisionError("a bug of the user's")


class Shifted(Plain):
    """Embeds otherwise than its fingerprint says, which does not tell its shift."""

    def __init__(self, shift: float) -> None:
        super().__init__("shifted", "shifted-1")
        self.shift = shift

    def encode(self, sentences: Sequence[str]) -> Array:
        return super().encode(sentences) + np.float32(self.shift)
