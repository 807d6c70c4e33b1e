"""Batches on a device with a memory of its own: made larger as long as that is faster, the same in the next run."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.core.errors import EncoderError
from stsbench.encoders.base import DeviceMemory
from stsbench.encoders.engine import embed as engines, token_budget
from stsbench.encoders.engine.embed import BatchShare, Engine
from stsbench.encoders.engine.store import EmbeddingStore
from stsbench.encoders.tokens import TokenIds
from tests.encoders.fakes import Array, Neighbourly, Rows

TEXTS = [f"{'word ' * (i % 9)}{i}" for i in range(900)]


class OutOfMemoryError(RuntimeError):
    """As torch calls it."""


class OnDevice(Neighbourly):
    """On a device that computes ``fastest`` tokens in a second, whatever of them are there, and holds ``most``."""

    def __init__(
        self, clock: list[float], *, fastest: int = 10**9, most: int = 10**9, free: int = 10**9
    ) -> None:
        super().__init__()
        self.clock, self.fastest, self.most, self.free = clock, fastest, most, free
        self.sizes: list[int] = []
        self.breaks_after = 10**9
        self.under_way, self.most_under_way = 0, 0
        self.lock = threading.Lock()

    def device_memory(self) -> DeviceMemory | None:
        return DeviceMemory("a device", self.free, 1)

    def embed_tokens(self, tokens: TokenIds, rows: Rows) -> Array:
        with self.lock:
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            time.sleep(0.001)
            size = int(tokens.lengths[rows].sum())
            if len(self.sizes) >= self.breaks_after:
                raise ZeroDivisionError("a bug of the user's")
            self.sizes.append(size)
            if size > self.most:
                raise OutOfMemoryError("CUDA out of memory")
            self.clock[0] += max(1.0, size / self.fastest)
            return super().embed_tokens(tokens, rows)
        finally:
            with self.lock:
                self.under_way -= 1


@pytest.fixture(autouse=True)
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the devices spend, and small batches."""
    now = [0.0]
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("stsbench.encoders.engine.token_budget.time.perf_counter", lambda: now[0])
    monkeypatch.setattr(engines, "TOKEN_BUDGET", 40)
    return now


def embedded(encoder: Any, **options: Any) -> int:
    """Embed all; the largest batch that was stored, in tokens."""
    engine = Engine(encoder, EmbeddingStore(None))
    engine.prepare(TEXTS, **options)
    largest = max(
        sum(len(text.split()) for text in batch)
        for batch in encoder.batches[-len(engine.encoded_keys) :]
    )
    return int(largest)


@pytest.mark.parametrize(
    ("facts", "least", "most"),
    [
        # Twice as large is twice as fast, up to what is computed in a second.
        ({"fastest": 320}, 161, 320),
        ({"free": 4 * 160}, 81, 160),
        ({"most": 160}, 81, 160),
        ({"free": 1}, 1, 40),
    ],
)
def test_batches_are_as_large_as_is_fastest_and_fits(clock, facts, least, most):
    assert least <= embedded(OnDevice(clock, **facts)) <= most


def test_the_next_run_embeds_in_the_same_batches(clock, tmp_path):
    first = OnDevice(clock, fastest=320)
    embedded(first)
    (kept,) = tmp_path.glob("budgets/*.json")
    again = OnDevice(clock, free=1)
    embedded(again)
    assert sorted(map(sorted, again.batches)) == sorted(
        map(sorted, first.batches[-len(again.batches) :])
    )
    assert len(again.batches) < len(first.batches), "nothing is timed"
    for broken in (b"", b"{}", b'{"tokens": "many"}', b'{"tokens": -1}', b"[" * 9000):
        kept.write_bytes(broken)
        embedded(OnDevice(clock, fastest=320))
        assert kept.read_bytes() != broken


def test_few_sentences_and_a_processor_keep_the_usual_batches(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(token_budget, "MIN_BATCHES_TO_TIME", 10**6)
    few, processor, plain = OnDevice(clock), OnDevice(clock), Neighbourly()
    monkeypatch.setattr(processor, "device_memory", lambda: None)
    for encoder in (few, processor, plain):
        embedded(encoder)
    assert sorted(few.batches) == sorted(processor.batches) == sorted(plain.batches)
    assert few.most_under_way == 2 and processor.most_under_way == 1
    assert not list(tmp_path.rglob("*.json"))


def test_workers_that_share_an_encoder_embed_each_sentence_once_whatever_their_devices(
    clock, monkeypatch
):
    workers = [OnDevice(clock, fastest=320), OnDevice(clock, free=1), Neighbourly()]
    for encoder in workers:
        # Each has a cache of its own.
        encoder.fingerprint = None
    found: list[bytes] = []
    for number, encoder in enumerate(workers):
        engine = Engine(encoder, EmbeddingStore(None))
        engine.prepare(TEXTS, share=BatchShare(number, 3))
        found += [key.tobytes() for keys in engine.encoded_keys for key in keys]
    assert len(found) == len(set(found)) == len(TEXTS)


def test_embeddings_come_to_their_sentences_and_errors_as_they_are(clock):
    encoder = OnDevice(clock, fastest=320)
    rows = np.asarray(Engine(encoder)(TEXTS))
    assert rows[:, :4].tolist() == [encoder.alone(text) for text in TEXTS]
    noticed: list[str] = []
    small = OnDevice(clock, fastest=320)
    embedded(small)
    small.most = 100
    engine = Engine(small, on_notice=noticed.append)
    assert np.asarray(engine(TEXTS))[:, :4].tolist() == rows[:, :4].tolist()
    assert noticed[0].endswith("they go in 2 pieces each, as with a token budget of 160")
    small.most = 3
    with pytest.raises(EncoderError, match="memory does not hold one sentence of 9 tokens"):
        Engine(small)(TEXTS)
    encoder.breaks_after = len(encoder.sizes) + 3
    engine = Engine(encoder)
    with pytest.raises(ZeroDivisionError):
        engine.prepare(TEXTS)
    assert 1 <= len(engine.encoded_keys) <= 4, "what came before is kept"
