from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.core.errors import EncoderError
from stsbench.encoders.engine import embed as engines, store
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.store import EmbeddingStore
from stsbench.encoders.tokens import TokenIds, plan_batches
from tests.encoders.fakes import Neighbourly, Plain, hashed

TEXTS = [f"{'word ' * (i % 120 % 9)}number {i % 60}" for i in range(150)]
"""150 sentences, 120 of them distinct, of 2 to 10 tokens."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "TOKEN_BUDGET", 40)
    monkeypatch.setattr(engines, "TEXTS_PER_BATCH", 16)


def distinct() -> int:
    return len(set(TEXTS))


# --- each distinct sentence once ---


def test_each_distinct_sentence_is_embedded_once():
    encoder = Neighbourly()
    engine = Engine(encoder)
    engine.prepare(TEXTS)
    assert set(encoder.embedded) == set(TEXTS)
    assert set(encoder.embedded.values()) == {1}
    calls = len(encoder.batches)
    embeddings = engine(TEXTS[::-1])
    assert len(encoder.batches) == calls
    assert embeddings.shape == (150, 8)
    assert np.asarray(embeddings)[:, :4].tolist() == [encoder.alone(text) for text in TEXTS[::-1]]
    engine(TEXTS[:10])
    engine.prepare(TEXTS[50:])
    assert len(encoder.batches) == calls


def test_a_plain_encoder_gets_chunks_of_like_length():
    encoder = Plain()
    embeddings = np.asarray(Engine(encoder)(TEXTS))
    assert embeddings.tolist() == [hashed(text) for text in TEXTS]
    assert sorted(text for call in encoder.calls for text in call) == sorted(set(TEXTS))
    assert [len(call) for call in encoder.calls] == [16] * 7 + [8]
    lengths = [len(text) for call in encoder.calls for text in call]
    assert lengths == sorted(lengths, reverse=True)


def test_what_is_missing_is_embedded_when_asked_for():
    encoder = Plain()
    engine = Engine(encoder)
    engine.prepare(TEXTS[:20])
    engine(TEXTS[:30])
    assert sum(map(len, encoder.calls)) == len(set(TEXTS[:30]))
    assert engine.count_encoded(TEXTS[:30]) == len(set(TEXTS[:30]))
    assert engine.count_encoded(["never seen"]) == 0


# --- the store ---


def test_what_is_held_is_not_embedded_again(tmp_path):
    Engine(Plain(), EmbeddingStore(tmp_path)).prepare(TEXTS)
    encoder = Plain()
    engine = Engine(encoder, EmbeddingStore(tmp_path))
    engine.prepare(TEXTS)
    assert np.asarray(engine(TEXTS)).tolist() == [hashed(text) for text in TEXTS]
    assert encoder.calls == []
    assert engine.count_encoded(TEXTS) == 0
    engine.prepare([*TEXTS, "one more"])
    assert engine.count_encoded([*TEXTS, "one more"]) == 1


def undisturbed(folder: Path) -> bytes:
    return np.asarray(Engine(Neighbourly(), EmbeddingStore(folder))(TEXTS)).tobytes()


@pytest.mark.parametrize("stop_after", [0, 1, 2, 5, 11])
@pytest.mark.parametrize("block_bytes", [1, 400, 1 << 20])
def test_stopped_and_resumed_gives_the_same_bytes(tmp_path, monkeypatch, stop_after, block_bytes):
    expected = undisturbed(tmp_path / "whole")
    monkeypatch.setattr(store, "BLOCK_BYTES", block_bytes)
    first = Neighbourly(stop_after=stop_after)
    with pytest.raises(KeyboardInterrupt):
        Engine(first, EmbeddingStore(tmp_path / "cut")).prepare(TEXTS)
    second = Neighbourly()
    engine = Engine(second, EmbeddingStore(tmp_path / "cut"))
    engine.prepare(TEXTS)
    assert np.asarray(engine(TEXTS)).tobytes() == expected
    # Ctrl-C loses nothing that was embedded.
    assert len(first.batches) == stop_after
    assert not set(first.embedded) & set(second.embedded)
    assert first.embedded + second.embedded == dict.fromkeys(TEXTS, 1)


def test_a_part_is_embedded_in_the_batches_of_the_whole(tmp_path):
    expected = np.frombuffer(undisturbed(tmp_path), dtype=np.float32).reshape(150, 8)
    encoder = Neighbourly()
    engine = Engine(encoder)
    engine.prepare(TEXTS[:7], among=TEXTS)
    assert np.asarray(engine(TEXTS[:7])).tobytes() == expected[:7].tobytes()
    assert set(TEXTS[:7]) <= set(encoder.embedded)
    assert len(encoder.embedded) < distinct()


def test_a_damaged_block_is_embedded_in_its_old_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "BLOCK_BYTES", 400)
    expected = undisturbed(tmp_path)
    victim = sorted(tmp_path.glob("*.npy"))[2]
    victim.write_bytes(victim.read_bytes()[:-1] + b"\x7f")
    encoder = Neighbourly()
    engine = Engine(encoder, EmbeddingStore(tmp_path))
    engine.prepare(TEXTS)
    assert 0 < len(encoder.embedded) < distinct()
    assert np.asarray(engine(TEXTS)).tobytes() == expected


# --- progress ---


@pytest.mark.parametrize("encoder", [Plain(), Neighbourly()])
def test_progress_adds_up(encoder):
    reported: list[tuple[int, int]] = []
    Engine(encoder, on_progress=lambda done, total: reported.append((done, total))).prepare(TEXTS)
    done, totals = zip(*reported, strict=True)
    (total,) = set(totals)
    size = (lambda text: len(text.split())) if isinstance(encoder, Neighbourly) else len
    assert total == sum(size(text) for text in set(TEXTS))
    assert (done[0], done[-1]) == (0, total)
    assert list(done) == sorted(done)
    reported.clear()
    Engine(encoder, on_progress=lambda done, total: reported.append((done, total))).prepare([])
    assert reported == []


# --- what an encoder may return ---


class Returns(Plain):
    """Returns whatever a function makes of the right embeddings."""

    def __init__(self, change: Any) -> None:
        super().__init__(name="mine")
        self.change = change

    def encode(self, sentences: Sequence[str]) -> Any:
        return self.change(super().encode(sentences))


def broken(value: float) -> Any:
    def change(rows: Any) -> Any:
        rows[(rows == np.array(hashed("the culprit"), np.float32)).all(axis=1), 2] = value
        return rows

    return change


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_names_the_sentence(value):
    with pytest.raises(EncoderError) as caught:
        Engine(Returns(broken(value)))([*TEXTS, "the culprit"])
    which = f"sentence {len(TEXTS) + 1} of {len(TEXTS) + 1} (its sha256 begins ed5cffaa)"
    assert str(caught.value) == f"encoder 'mine' returned NaN or infinity for {which}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda rows: rows[:-1],
            "returned shape (15, 4) for 16 sentences; it must return one row a sentence",
        ),
        (lambda rows: rows[0], "returned shape (4,) for 16 sentences"),
        (lambda rows: rows[:, None], "returned shape (16, 1, 4) for 16 sentences"),
        (lambda rows: rows.astype(np.float64), "returned float64; it must return float32"),
        (lambda rows: rows.astype(np.float16), "returned float16; it must return float32"),
        (lambda rows: rows.tolist(), "returned float64; it must return float32"),
        (lambda rows: None, "returned a NoneType that is not an array (n, d) of numbers"),
        (lambda rows: [[1.0], [1.0, 2.0]], "returned a list that is not an array (n, d)"),
        (lambda rows: rows[:, : 3 + (rows[0, 0] > 0)], ""),
    ],
)
def test_a_wrong_return_is_one_clear_line(change, message):
    with pytest.raises(EncoderError) as caught:
        Engine(Returns(change))(TEXTS)
    assert str(caught.value).startswith("encoder 'mine' returned")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_encoder_that_changed_and_kept_its_fingerprint(tmp_path):
    Engine(Plain(d=4), EmbeddingStore(tmp_path)).prepare(TEXTS)
    with pytest.raises(
        EncoderError, match="size 6 after some of size 4; its fingerprint must change"
    ):
        Engine(Plain(d=6), EmbeddingStore(tmp_path)).prepare([*TEXTS, "new"])


def test_what_was_embedded_before_an_error_is_kept(tmp_path):
    class Fails(Plain):
        def encode(self, sentences: Sequence[str]) -> Any:
            if len(self.calls) == 3:
                raise ZeroDivisionError
            return super().encode(sentences)

    with pytest.raises(ZeroDivisionError):
        Engine(Fails(), EmbeddingStore(tmp_path)).prepare(TEXTS)
    encoder = Plain()
    Engine(encoder, EmbeddingStore(tmp_path)).prepare(TEXTS)
    assert sum(map(len, encoder.calls)) == distinct() - 48


Ints = np.ndarray[Any, np.dtype[np.int64]]


def plan(lengths: list[int] | Ints, budget: int = 64) -> list[list[int]]:
    return [
        rows.tolist() for rows in plan_batches(np.asarray(lengths, dtype=np.int64), budget=budget)
    ]


def test_joined_parts_keep_what_is_pooled():
    parts = [
        TokenIds(np.arange(n, dtype=np.int32), np.array([0, n]), np.array([[1, n]])) for n in (3, 5)
    ]
    spans = TokenIds.join(parts).spans
    assert spans is not None and spans.tolist() == [[1, 3], [1, 5]]


@pytest.mark.parametrize(
    ("left", "ids", "mask"),
    [
        (False, [[5, 0, 0], [7, 8, 9], [0, 0, 0]], [[1, 0, 0], [1, 1, 1], [0, 0, 0]]),
        (True, [[0, 0, 5], [7, 8, 9], [0, 0, 0]], [[0, 0, 1], [1, 1, 1], [0, 0, 0]]),
    ],
)
def test_padded_on_either_side(left, ids, mask):
    tokens = TokenIds.from_lists([[7, 8, 9], [], [5]])
    padded = tokens.pad(np.array([2, 0, 1]), pad_token=0, pad_left=left)
    assert padded[0].tolist() == ids
    assert padded[1].tolist() == mask
    assert {part.dtype for part in padded} == {np.dtype(np.int64)}


@pytest.mark.parametrize("budget", [1, 39, 64, 2048])
def test_batches_hold_every_row_once_longest_first_within_the_budget(budget):
    lengths = np.random.default_rng(0).integers(0, 40, size=500)
    batches = plan(lengths, budget)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    in_turn = [int(lengths[row]) for rows in batches for row in rows]
    assert in_turn == sorted(in_turn, reverse=True)
    assert all(
        len(rows) * max(lengths[rows].max(), 1) <= budget or len(rows) == 1 for rows in batches
    )


def test_hardly_a_token_is_padding():
    lengths = np.random.default_rng(1).integers(4, 60, size=20_000)
    padded = sum(len(rows) * int(lengths[rows].max()) for rows in plan(lengths, 2048))
    assert padded < 1.01 * lengths.sum()


@pytest.mark.parametrize(
    ("lengths", "budget", "batches"),
    [
        # A sentence longer than the budget goes alone.
        ([200, 3, 100, 3], 64, [[0], [2], [1, 3]]),
        # A short run of equal lengths shares its batch.
        ([8, 7, 7, 7, 7, 6, 6, 6], 64, [list(range(8))]),
        # Sentences of no tokens are planned like any.
        ([0, 0, 2], 2, [[2], [0, 1]]),
        ([], 64, []),
    ],
)
def test_plans(lengths, budget, batches):
    assert plan(lengths, budget) == batches
