"""What of a corpus is learned from: conditions, labelled pairs as positives and negatives, rows repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stsbench.cards.recipe import CorpusFacts
from stsbench.data.corpora.corpus import Corpus
from stsbench.errors import CardError, DataError, StsbenchError
from stsbench.recipes.outline import outline
from stsbench.recipes.plan import TrainPlan
from stsbench.recipes.prepare import load_text
from tests.recipes.little import little_recipe

LABELLED = """premise,hypothesis,label
a man,a person,entailment
a man,a dog,contradiction
a man,a father,neutral
a cup,a thing,entailment
a cup,a mug,neutral
a cup,a jug,neutral
a cup,a tree,contradiction
a cup,a mouse,contradiction
a boat,a ship,entailment
"""
GRADED = "sentence1,sentence2,score\na,b,4.5\nc,d,4\ne,f,1.25\ng,h,0\n"


def chosen(folder: Path, text: str = LABELLED, *, seed: int = 0, **facts: Any) -> Corpus:
    """A file of text as a recipe that says so takes it."""
    (folder / "pairs.csv").write_text(text)
    card = little_recipe("simcse", data=CorpusFacts(corpus=str(folder / "pairs.csv"), **facts))
    return load_text(TrainPlan(name="little", card=card, seed=seed, out=folder))


def rows(corpus: Corpus) -> list[tuple[Any, ...]]:
    return [tuple(corpus[at].values()) for at in range(len(corpus))]


@pytest.mark.parametrize(
    ("condition", "left"),
    [("label = entailment", 3), ("label=contradiction", 3), ("label != neutral", 6), ("first = a cup", 5)],
)
def test_rows_of_a_label_alone(tmp_path, condition, left):
    found = chosen(tmp_path, where=condition)
    assert len(found) == left and found.columns == ["first", "second", "label"]


@pytest.mark.parametrize(
    ("condition", "left"), [("score >= 4", 2), ("score > 1", 3), ("score<4", 2), ("score != 0", 3)]
)
def test_rows_of_some_scores_alone(tmp_path, condition, left):
    assert len(chosen(tmp_path, GRADED, where=condition)) == left


@pytest.mark.parametrize(
    ("text", "condition", "says"),
    [
        (LABELLED, "label = entailmnt", "leaves 0 of 9 rows; did you mean 'entailment'.*labels: contradiction, ent"),
        (LABELLED, "lable = entailment", "has no lable; did you mean 'label'"),
        (LABELLED, "entailment", "give COLUMN = VALUE"),
        (LABELLED, "label = ", "give COLUMN = VALUE"),
        (LABELLED, "label >= neutral", "label is text; compare it by = or !="),
        (GRADED, "score = high", "score is a number, 'high' is not"),
        (GRADED, "score > 4.2", "leaves 1 of 4 rows"),
    ],
)
def test_what_is_no_condition_is_one_line(tmp_path, text, condition, says):
    with pytest.raises(CardError, match=f"where '{condition}': .*{says}"):
        chosen(tmp_path, text, where=condition)


def test_labelled_pairs_are_positives_whatever_their_label_unless_a_condition_says_which(tmp_path):
    assert chosen(tmp_path, form="pairs").columns == ["anchor", "positive"]
    assert len(chosen(tmp_path, form="pairs")) == 9
    assert rows(chosen(tmp_path, form="pairs", where="label = entailment")) == [
        ("a man", "a person"), ("a cup", "a thing"), ("a boat", "a ship"),
    ]  # fmt: skip


def test_pairs_of_one_first_sentence_are_a_triplet(tmp_path):
    found = chosen(tmp_path, form="triplets")
    assert found.columns == ["anchor", "positive", "negative"]
    assert rows(found) == [("a man", "a person", "a dog"), ("a cup", "a thing", "a tree")]


def test_a_neutral_pair_is_a_second_negative(tmp_path):
    found = chosen(tmp_path, form="two_negatives")
    assert found.columns == ["anchor", "positive", "negative", "second_negative"]
    assert rows(found) == [("a man", "a person", "a dog", "a father"), ("a cup", "a thing", "a tree", "a mug")]


def test_a_form_that_the_corpus_cannot_have_is_refused(tmp_path):
    with pytest.raises(StsbenchError, match="did you mean 'triplets'"):
        chosen(tmp_path, form="triplet")
    with pytest.raises(CardError, match="form 'triplets': 1 first sentences"):
        chosen(tmp_path, LABELLED.partition("a cup")[0] + "a boat,a ship,entailment\n", form="triplets")
    with pytest.raises(DataError, match="has no label"):
        chosen(tmp_path, GRADED, form="triplets")


@pytest.mark.parametrize(("wanted", "times"), [(1, 9), (2, 4), (5, 1), (9, 1)])
def test_drawn_rows_are_repeated_to_the_length_of_the_corpus(tmp_path, wanted, times):
    found, once = (rows(chosen(tmp_path, rows=wanted, upsample=up)) if up or wanted > 1 else [] for up in (True, False))
    assert len(found) == wanted * times and len(set(found)) == wanted
    assert found == (once or found[:1]) * times


def test_what_is_drawn_is_the_seed_s_and_of_the_rows_that_fit(tmp_path):
    found = [rows(chosen(tmp_path, where="label = neutral", rows=2, seed=seed)) for seed in range(6)]
    assert len(set(map(tuple, found))) > 1 and {row[2] for draw in found for row in draw} == {"neutral"}


def test_rows_that_are_too_few_or_not_said_are_refused(tmp_path):
    with pytest.raises(CardError, match="rows 1: the corpus has 9, and two are the fewest"):
        chosen(tmp_path, rows=1)
    with pytest.raises(CardError, match="upsample repeats the rows that are drawn; give 'rows' too"):
        chosen(tmp_path, upsample=True)


@pytest.mark.parametrize("facts", [{"where": "text != a"}, {"rows": 2, "upsample": True}])
def test_ordered_text_is_left_whole(tmp_path, monkeypatch, facts):
    import pyarrow as pa

    book = Corpus(name="book", table=pa.table({"text": ["a", "b", "c"], "document_id": [0, 0, 0]}))
    monkeypatch.setattr("stsbench.data.corpora.load.load_corpus", lambda name, **where: book)
    with pytest.raises(
        CardError, match=rf"\[data\] {next(key for key in facts if key != 'rows')}: corpus 'book' is ordered"
    ):
        chosen(tmp_path, **facts)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "allnli, 942,069 rows"),
        ({"where": "label = entailment"}, "allnli"),
        ({"form": "triplets"}, "allnli"),
        ({"rows": 1000}, "allnli, 1,000 rows"),
        ({"rows": 1000, "upsample": True}, "allnli, 942,000 rows"),
        ({"rows": 1000, "upsample": True, "form": "pairs"}, "allnli"),
    ],
)
def test_an_outline_tells_how_many_rows_where_the_cards_do(tmp_path, facts, said):
    card = little_recipe("simcse", data=CorpusFacts(corpus="allnli", **facts))
    assert outline(TrainPlan(name="little", card=card, seed=0, out=tmp_path))["corpus"] == said
