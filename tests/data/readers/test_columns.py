"""The reader ``table``: columns by usual names, what is given before what is found, and what is not clear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stsbench.data.readers.columns import Roles, find_roles, read_any_table
from stsbench.data.readers.text import DataFile
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.errors import CardError


def read(folder: Path, content: str, **params: Any) -> PairSplit | LabelledSplit | LabelledPairSplit:
    (folder / "t.csv").write_text(content, encoding="utf-8")
    return read_any_table([DataFile(path=folder / "t.csv")], **params)


def test_pairs_with_scores(tmp_path):
    split = read(tmp_path, "id,Sentence_A,sentence-b,Relatedness Score\n1,x,y,3.5\n2,z,w,1\n")
    assert isinstance(split, PairSplit)
    assert (list(split.sentences1), list(split.sentences2), split.gold.tolist()) == (["x", "z"], ["y", "w"], [3.5, 1.0])


def test_sentences_with_labels(tmp_path):
    split = read(tmp_path, "label,text\ngood,x\nbad,y\n", classes=["bad", "good"])
    assert isinstance(split, LabelledSplit)
    assert (list(split.sentences), split.labels.tolist()) == (["x", "y"], [1, 0])


def test_pairs_with_labels_beside_scores(tmp_path):
    content = "premise,hypothesis,label,score\nx,y,no,1\nz,w,yes,2\n"
    split = read(tmp_path, content, classes=["no", "yes"])
    assert isinstance(split, LabelledPairSplit)
    assert split.labels.tolist() == [0, 1]
    assert isinstance(read(tmp_path, content, gold="score"), PairSplit)


def test_columns_by_position_need_no_header(tmp_path):
    split = read(tmp_path, "x,y,3.5\nz,w,1\n", sentence1=0, sentence2=1, gold=2)
    assert split.n == 2


def test_rows_of_one_split(tmp_path):
    content = "text,label,fold\na,x,tr\nb,y,te\n"
    split = read(tmp_path, content, classes=["x", "y"], split_column="fold", split_values={"test": "te"}, split="test")
    assert isinstance(split, LabelledSplit)
    assert list(split.sentences) == ["b"]


@pytest.mark.parametrize(
    ("content", "params", "message"),
    [
        ("u,v,w\nx,y,1\n", {}, "no columns have usual names of the sentences; give sentence1 and sentence2, or sentence, in params; its columns are u, v, w"),
        ("s1,s2,w\nx,y,1\n", {}, "none has a usual name of the scores or labels; give gold or label"),
        ("s1,s2,score,label\nx,y,1,2\n", {}, "score and label may be the scores or labels"),
        ("s1,s2,score,gold\nx,y,1,2\n", {}, "score and gold may be the scores"),
        ("s1,s2,q1,q2,score\nx,y,1,2,3\n", {}, "several columns may be the sentences"),
        ("text,review,label\nx,y,1\n", {}, "several columns may be the sentences"),
        ("text,score\nx,1\n", {}, "none has a usual name of the scores or labels"),
        ("text,score\nx,1\n", {"gold": "score"}, "one sentence has no gold score"),
        ("s1,s2,score\nx,y,1\n", {"sentence1": "s1"}, "one sentence of the pair is given; give sentence1 and sentence2"),
        ("s1,s2,score\nx,y,1\n", {"sentence": "s1", "sentence2": "s2"}, "'sentence' is given beside 'sentence1' or 'sentence2'"),
        ("s1,s2,score\nx,y,1\n", {"gold": "score", "label": "score"}, "'gold' and 'label' are both given"),
        ("s1,s2,score\nx,y,1\n", {"gold": "score", "classes": ["1"]}, "'classes' has no effect with scores; leave it out"),
        ("text,label\nx,1\n", {"classes": ["1"], "subset": "label"}, "'subset' has no effect with labels; leave it out"),
        ("text,label\nx,b\ny,a\n", {}, r"must give the classes of column 'label' in params, such as classes = \['a', 'b'\], or say gold = 'label'"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_told_in_one_line(tmp_path, content, params, message):
    with pytest.raises(CardError, match=message) as caught:
        read(tmp_path, content, **params)
    assert "t.csv: " in str(caught.value) and "\n" not in str(caught.value)


def test_roles_of_a_header():
    assert find_roles(["question1", "question2", "score"], {}) == Roles(
        ("question1", "question2"), "score", is_gold=True
    )
    assert find_roles(["x", "sentence"], {"label": "x"}) == Roles(("sentence",), "x", is_gold=False)
