"""Batches side by side on a processor: the same bytes in the same order, in the fastest arrangement."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from stsbench.encoders.engine import embed as engines, side_by_side
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.tokens import TokenIds
from tests.encoders.fakes import Array, Rows
from tests.encoders.tiny import ENCODERS, SENTENCES, make_encoder

TEXTS = [f"{'word ' * (i % 9)}{i}" for i in range(2000)]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Four threads of torch, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


SIZES: list[int] = []
"""The sizes of the pools that are open."""


class Pool(ThreadPoolExecutor):
    """A pool whose size is seen from its threads."""

    def __enter__(self) -> Pool:
        SIZES.append(self._max_workers)
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown(wait=True)
        SIZES.pop()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that encoders spend, and small batches."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(side_by_side, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(engines, "TOKEN_BUDGET", 40)
    return now


class Threaded:
    """A batch takes ``seconds[workers]`` of the clock, where so many embed at a time."""

    name, fingerprint = "threaded", "t-1"

    def __init__(self, clock: list[float], seconds: dict[int, float]) -> None:
        self.clock, self.seconds = clock, seconds
        self.lock = threading.Lock()
        self.workers: list[int] = []
        """The size of the pool that each batch was embedded in; 0 outside of one."""
        self.threads: set[int] = set()
        """How many threads of torch embedded a batch."""
        self.batches: list[list[int]] = []
        self.stop_at = -1

    def encode(self, sentences: Sequence[str]) -> Array:
        raise AssertionError("the engine plans the batches")

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        words = [text.split() for text in sentences]
        return TokenIds.from_lists([[zlib.crc32(w.encode()) >> 1 for w in text] for text in words])

    def processor_threads(self) -> int:
        return torch.get_num_threads()

    def embed_tokens(self, tokens: TokenIds, rows: Rows) -> Array:
        with self.lock:
            self.threads.add(torch.get_num_threads())
            self.workers.append(SIZES[-1] if SIZES else 0)
            self.clock[0] += self.seconds.get(self.workers[-1], 0.0)
            if len(self.batches) == self.stop_at:
                raise KeyboardInterrupt
            self.batches.append(rows.tolist())
        # Its first and last word, and what is beside it in the batch.
        ends = [tokens.offsets[rows], tokens.offsets[rows + 1] - 1]
        beside = np.full(len(rows), rows.sum())
        return np.stack([*(tokens.ids[end] for end in ends), beside], axis=1).astype(np.float32)


def embed_in_turns(texts: Sequence[str]) -> tuple[Array, bytes]:
    """The embeddings of an encoder without threads, and the keys in their order of storing."""
    torch.set_num_threads(1)
    engine = Engine(Threaded([0.0], {}))
    engine.prepare(texts)
    torch.set_num_threads(4)
    return np.asarray(engine(texts)), stored_order(engine)


def stored_order(engine: Engine) -> bytes:
    return b"".join(keys.tobytes() for keys in engine.encoded_keys)


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ({4: 1.0, 2: 1.0, 1: 1.0}, 4),
        ({4: 2.0, 2: 1.0, 1: 2.0}, 2),
        ({4: 9.0, 2: 3.0, 1: 1.0}, 1),
        # Hardly faster: as many batches as possible.
        ({4: 1.0, 2: 0.9, 1: 3.0}, 4),
    ],
)
def test_the_fastest_number_of_workers_is_chosen(clock, seconds, best):
    encoder = Threaded(clock, seconds)
    engine = Engine(encoder)
    engine.prepare(TEXTS)
    assert set(encoder.workers) == {1, 2, 4}
    assert set(encoder.workers[-20:]) == {best}
    assert encoder.threads == {1}
    embeddings, order = embed_in_turns(TEXTS)
    assert stored_order(engine) == order
    assert np.array_equal(np.asarray(engine(TEXTS)), embeddings)
    assert torch.get_num_threads() == 4
    threads: list[int] = []
    thread = threading.Thread(target=lambda: threads.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert threads == [4], "threads begun later have all cores"


def test_the_number_is_chosen_again_when_speed_falls(clock):
    encoder = Threaded(clock, {4: 1.0, 2: 1.0, 1: 1.0})
    engine = Engine(encoder)

    def slow_down(done: int, total: int) -> None:
        if done > total / 2:
            encoder.seconds[4] = 10.0

    engine.on_progress = slow_down
    engine.prepare([f"{text} {i}" for i in range(2) for text in TEXTS])
    assert set(encoder.workers[40:100]) == {4}
    assert set(encoder.workers[-20:]) == {2}


def test_few_batches_are_embedded_by_all_threads_one_after_the_other(clock):
    encoder = Threaded(clock, {})
    Engine(encoder).prepare(TEXTS[:100])
    assert set(encoder.workers) == {0}
    assert encoder.threads == {4}


def test_a_resumed_run_embeds_on_as_many_threads(clock):
    encoder = Threaded(clock, {})
    engine = Engine(encoder)
    engine.prepare(TEXTS[:100], among=TEXTS)
    assert encoder.threads == {1}


@pytest.mark.parametrize("stop_at", [0, 3, 30, 150])
def test_a_stop_keeps_all_that_is_embedded(clock, stop_at):
    encoder = Threaded(clock, {})
    encoder.stop_at = stop_at
    engine = Engine(encoder)
    with pytest.raises(KeyboardInterrupt):
        engine.prepare(TEXTS)
    texts = sorted(set(TEXTS))
    finished = {texts[row] for batch in encoder.batches for row in batch}
    assert set(TEXTS) - set(engine.missing_texts(TEXTS)) == finished
    encoder.stop_at = -1
    engine.prepare(TEXTS)
    assert np.array_equal(np.asarray(engine(TEXTS)), embed_in_turns(TEXTS)[0])


@pytest.mark.parametrize("name", ENCODERS)
def test_bytes_of_transformers_are_equal_on_any_number_of_threads(tiny, monkeypatch, name):
    monkeypatch.setattr(engines, "TOKEN_BUDGET", 64)
    texts = [f"{text[:60]} {i}" for i in range(12) for text in SENTENCES]
    embeddings = []
    for count in (1, 2, 4):
        torch.set_num_threads(count)
        engine = Engine(make_encoder(tiny, name))
        engine.prepare(texts)
        embeddings.append(np.asarray(engine(texts)))
        # Whether batches went side by side.
        assert (engine.side_by_side is not None) == (count > 1)
    assert all(np.array_equal(embeddings[0], other) for other in embeddings[1:])
