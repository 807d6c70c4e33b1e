"""What a recipe is made of: its corpus as rows or as sentences, and what its weights are chosen by."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import spearmanr

from stsbench.core.cards import CorpusSection, SelectionSection
from stsbench.core.errors import CardError, DataError
from stsbench.data.corpora.corpus import Corpus
from stsbench.data.splits import PairSplit
from stsbench.numbers.similarity import alignment, uniformity
from stsbench.recipes.train_plan import TrainPlan, load_text, make_validator
from stsbench.recipes.trainer import load_trainer
from stsbench.training.learner import extra_measures
from tests.recipes.little import little_recipe
from tests.training.students import sentences


def plan(
    folder: Path,
    base: Path,
    *,
    rows: int | None = None,
    whole: bool = False,
    max_words: int | None = None,
) -> TrainPlan:
    card = little_recipe(
        "is_bert",
        data=CorpusSection(
            corpus=str(folder / "pairs.csv"), sentences=not whole, rows=rows, max_words=max_words
        ),
        selection=SelectionSection(task="quickstart-en", split="test"),
    )
    return TrainPlan(name="little", card=card, seed=0, out=folder, base=str(base), device="cpu")


def test_pairs_serve_as_their_distinct_sentences(masked_lm, tmp_path):
    first, second = sentences(20), sentences(20, seed=1)
    lines = [f"{a},{b}" for a, b in zip([*first, *first], [*second, *first[::-1]], strict=True)]
    (tmp_path / "pairs.csv").write_text("anchor,positive\n" + "\n".join(lines) + "\n")
    made = load_trainer(plan(tmp_path, masked_lm))
    assert list(made.corpus.column("text")) == list(
        dict.fromkeys([*first, *first, *second, *first[::-1]])
    )
    assert len(load_trainer(plan(tmp_path, masked_lm, rows=7)).corpus) == 7
    with pytest.raises(DataError, match="has no text"):
        load_trainer(plan(tmp_path, masked_lm, whole=True))


def test_texts_of_too_many_words_are_left_out(masked_lm, tmp_path):
    lines = ["one", "one two", " one  two ", "one two three", "one two three four", ""]
    (tmp_path / "pairs.csv").write_text(
        "anchor,positive\n" + "".join(f"{line},one\n" for line in lines)
    )
    made = load_trainer(plan(tmp_path, masked_lm, max_words=2))
    assert [text.split() for text in made.corpus.column("text")] == [
        text.split()
        for text in load_trainer(plan(tmp_path, masked_lm)).corpus.column("text")
        if len(text.split()) <= 2
    ]
    assert len(made.corpus) > 2
    with pytest.raises(CardError, match=r"max_words 0: .* [01] of"):
        load_trainer(plan(tmp_path, masked_lm, max_words=0))


def test_of_ordered_text_no_sentence_is_left_out(masked_lm, tmp_path, monkeypatch):
    book = Corpus(name="book", table=pa.table({"text": ["a", "b c"], "document_id": [0, 0]}))
    monkeypatch.setattr("stsbench.recipes.train_plan.load_corpus", lambda name, **where: book)
    with pytest.raises(CardError, match="'book' is ordered text"):
        load_text(plan(tmp_path, masked_lm, whole=True, max_words=1))


class Fixed:
    """An encoder of numbered sentences."""

    name, fingerprint = "fixed", None
    vectors = np.random.default_rng(4).normal(size=(60, 3)).astype(np.float32)

    def encode(self, texts: Any) -> Any:
        return self.vectors[[int(text) for text in texts]]


def test_the_best_of_four_similarities_may_choose_weights():
    noise = np.random.default_rng(5).normal(size=30)
    gold = noise - np.abs(Fixed.vectors[:30] - Fixed.vectors[30:]).sum(axis=1)
    texts = [str(i) for i in range(60)]
    split = PairSplit(sentences1=texts[:30], sentences2=texts[30:], gold=gold, subset=[""] * 30)
    a, b = Fixed.vectors[:30].astype(float).tolist(), Fixed.vectors[30:].astype(float).tolist()
    pairs = list(zip(a, b, strict=True))
    dots = [math.fsum(x * y for x, y in zip(u, v, strict=True)) for u, v in pairs]
    four = [
        [dot / math.hypot(*u) / math.hypot(*v) for dot, (u, v) in zip(dots, pairs, strict=True)],
        dots,
        [-math.fsum(abs(x - y) for x, y in zip(u, v, strict=True)) for u, v in pairs],
        [-math.dist(u, v) for u, v in pairs],
    ]
    wanted = [float(spearmanr(one, gold).statistic) for one in four]
    assert max(wanted) > wanted[0] + 0.01
    assert make_validator(split)(Fixed()) == pytest.approx(wanted[0], abs=1e-9)
    assert make_validator(split, measure="best_of_four")(Fixed()) == pytest.approx(
        max(wanted), abs=1e-9
    )


def test_alignment_is_of_the_pairs_above_four_fifths_and_uniformity_of_all_sentences():
    gold = np.array([5.0, 4.0, 4.2, *np.linspace(0, 3, 27)])
    texts = [str(i) for i in range(60)]
    split = PairSplit(sentences1=texts[:30], sentences2=texts[30:], gold=gold, subset=[""] * 30)
    score = make_validator(split)(Fixed())
    vectors = Fixed.vectors
    assert extra_measures(score) == {
        "alignment": pytest.approx(alignment(vectors[[0, 2]], vectors[[30, 32]]), rel=1e-12),
        "uniformity": pytest.approx(uniformity(vectors), rel=1e-12),
    }
    assert extra_measures(0.5) == {}
