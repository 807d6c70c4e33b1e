"""The layer sweep: the scores that each layer's own encoder has."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stsbench.analysis.inside import Layers, TokenFrequency, near_vectors, read_counts
from stsbench.core.errors import CardError, DataError, EncoderError
from stsbench.encoders import base as seams
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.whitening import token_removal_encoder
from stsbench.encoders.words.words import WordsEncoder
from tests.analysis.beds import bed
from tests.cli.commands import write
from tests.encoders.fakes import Plain


def test_scores_are_those_of_each_layers_own_encoder(bert):
    rows = Layers(poolings=["mean", "max"]).tables(bed(TransformerEncoder(str(bert), name="b")))[
        "layers"
    ]
    assert [(row["pooling"], row["layer"]) for row in rows] == [
        (p, at) for p in ("mean", "max") for at in range(3)
    ]
    for row in rows:
        alone = TransformerEncoder(str(bert), name="b", pooling=f"{row['pooling']}({row['layer']})")
        (subject,) = bed(alone).subjects()
        assert row["score"] == subject.score().score
        assert (row["low"], row["high"]) == subject.score().interval


def test_classification_is_swept_too(bert):
    task = "quickstart-probe"
    rows = Layers(poolings=["mean"]).tables(
        bed(TransformerEncoder(str(bert), name="b"), task=task)
    )["layers"]
    for row in rows:
        alone = TransformerEncoder(str(bert), name="b", pooling=f"mean({row['layer']})")
        (subject,) = bed(alone, task=task).subjects()
        assert row["score"] == subject.score().score and row["low"] <= row["score"] <= row["high"]


def test_the_first_tokens_word_embedding_has_no_score(bert):
    rows = Layers(poolings=["cls"]).tables(bed(TransformerEncoder(str(bert), name="b")))["layers"]
    assert math.isnan(rows[0]["score"]) and not math.isnan(rows[1]["score"])


def test_what_has_no_layers_is_refused(bert):
    with pytest.raises(EncoderError, match="'plain' has no"):
        Layers().tables(bed(Plain()))
    with pytest.raises(CardError, match="unknown pooling 'mena"):
        Layers(poolings=["mena"]).tables(bed(TransformerEncoder(str(bert), name="b")))


def test_lines_leave_out_what_has_no_score_and_a_heat_map_leaves_it_empty(bert):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    tables = Layers().tables(bed(TransformerEncoder(str(bert), name="b")))
    lines = Layers().draw(tables, "mine").axes[0].lines
    assert [line.get_xdata().tolist() for line in lines] == [[1, 2], [0, 1, 2], [0, 1, 2]]
    heat = Layers(picture="heat").draw(tables, "mine").axes[0]
    assert [label.get_text() for label in heat.get_xticklabels()] == ["0", "1", "2"]
    assert len(heat.texts) == 8


X = np.random.default_rng(8).normal(size=(21, 3)).astype(np.float32)


@pytest.fixture
def counts(tmp_path):
    """The words of the packaged pairs, the more frequent the earlier in the alphabet."""
    words = sorted(
        {
            w
            for text in bed(Plain()).loaded_task.texts()
            for w in text.lower().replace(".", "").split()
        }
    )
    lines = [f"{word} {100000 - at}" for at, word in enumerate(words)]
    return str(write(tmp_path / "counts.txt", "\n".join(reversed(lines)) + "\n"))


@pytest.mark.parametrize("rows", [2, 4096])
def test_near_vectors_are_those_of_all_distances(monkeypatch, rows):
    monkeypatch.setattr(seams, "ROWS_AT_ONCE", rows)
    found = near_vectors(X, np.array([4, 17]), 3)
    for place, at in enumerate((4, 17)):
        others = np.delete(X.astype(float), at, axis=0)
        mine = X[at].astype(float)
        assert found.distances[place] == pytest.approx(
            sorted(np.linalg.norm(others - mine, axis=1))[:3]
        )
        assert found.products[place] == pytest.approx(sorted(others @ mine, reverse=True)[:3])


def test_counts_are_read_by_frequency_and_checked(counts, tmp_path):
    words = read_counts(counts)
    assert words == sorted(words)
    write(tmp_path / "bad.txt", "a 1\nb\n")
    for name, message in (
        ("none.txt", "no file of words and counts '.*none.txt'"),
        ("bad.txt", "bad.txt, line 2: is not a word, a space and a count"),
    ):
        with pytest.raises(DataError, match=message):
            read_counts(str(tmp_path / name))


def test_a_score_without_tokens_is_that_of_the_encoder_that_leaves_them_out(bert, counts):
    found = TokenFrequency(counts=counts, removed=[2, 0, 5]).tables(
        bed(TransformerEncoder(str(bert), name="b"))
    )
    texts = bed(Plain()).loaded_task.texts()
    for row in found["removal"]:
        fitted = token_removal_encoder(str(bert), k=row["removed"]).fit_texts(texts)
        (subject,) = bed(fitted).subjects()
        assert row["score"] == subject.score().score
    assert [row["removed"] for row in found["removal"]] == [0, 2, 5]


def test_word_vectors_have_bands_and_lose_words(counts, tmp_path):
    words = read_counts(counts)
    vectors = np.random.default_rng(9).normal(size=(len(words), 3)).round(3)
    lines = [
        f"{word} {' '.join(map(str, row))}\n"
        for word, row in zip(words, vectors.tolist(), strict=True)
    ]
    encoder = WordsEncoder(str(write(tmp_path / "words.txt", "".join(lines))), name="w")
    found = TokenFrequency(counts=counts, removed=[0, 1]).tables(bed(encoder))
    band = found["bands"][0]
    assert (band["from"], band["to"], band["words"]) == (0, 100, min(100, len(words)))
    assert band["norm"] == pytest.approx(np.linalg.norm(vectors[:100], axis=1).mean(), rel=1e-5)
    apart = np.linalg.norm(vectors[:100, None] - vectors[None], axis=2)
    wanted = np.sort(apart, axis=1)[:, 1:4].mean()
    assert band["distance_3"] == pytest.approx(wanted, rel=1e-5)
    bags = encoder.bags(bed(encoder).loaded_task.texts())
    flat = [row for bag in bags for row in bag]
    first = max(dict.fromkeys(flat), key=flat.count)

    class Without(WordsEncoder):
        def bags(self, sentences):
            return [[row for row in bag if row != first] for bag in super().bags(sentences)]

    (subject,) = bed(Without(str(tmp_path / "words.txt"), name="w")).subjects()
    assert found["removal"][1]["score"] == pytest.approx(subject.score().score)


def test_what_takes_no_mean_over_tokens_is_refused(bert, counts):
    with pytest.raises(
        EncoderError,
        match="'b' takes no mean over tokens; leave it out, or name its model with pooling=mean",
    ):
        TokenFrequency(counts=counts).tables(
            bed(TransformerEncoder(str(bert), name="b", pooling="max"))
        )
    with pytest.raises(EncoderError, match="has no layers"):
        TokenFrequency(counts=counts).tables(bed(Plain()))
