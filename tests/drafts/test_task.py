"""Task cards drafted from files in every format: they run at once, and real data give the counts of the project's cards."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stsbench import settings
from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import TaskCard
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.data.task import Task, load_task
from stsbench.drafts.draft import Draft, find_home
from stsbench.drafts.task import draft_task
from stsbench.drafts.task_card import seen_from
from stsbench.errors import DataError

PAIRS = 's1,s2,rating\n"a, b",c d,0.5\ne f,"g\nh",4.5\n"say ""i""",j k,2\n'
REVIEWS = "text;stars;part\n" + "".join(f"so {word};{at % 3};{part}\n" for at, (word, part) in enumerate(
    [("good", "train"), ("bad", "train"), ("odd", "train"), ("fine", "dev"), ("poor", "dev"), ("dull", "dev")]
))  # fmt: skip


def put(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode())
    return path


def drafted(source: Path, out: Path, name: str = "mine", **columns: str) -> tuple[Draft, TaskCard, Task]:
    """A draft that is written; and its card and its task, as every command finds them."""
    draft = draft_task(source, find_home(out, "tasks", name), columns=columns)
    draft.write(force=False)
    catalogue = Catalogue(out)
    return draft, catalogue.task(name), load_task(name, catalogue=catalogue)


def test_pairs_with_scores(tmp_path):
    draft, card, task = drafted(put(tmp_path / "data" / "pairs.csv", PAIRS), tmp_path / "cards")
    split = task.load()
    assert isinstance(split, PairSplit)
    assert (list(split.sentences1), list(split.sentences2)) == (["a, b", "e f", 'say "i"'], ["c d", "g\nh", "j k"])
    assert (card.evaluator, card.gold_range, card.score_split) == ("sts", (0.0, 5.0), "test")
    facts = card.splits["test"]
    assert (facts.n, facts.characters, facts.mean) == (3, [14, 9], round(7 / 3, 12))
    assert card.local is not None and len(card.local.files["test"][0].sha256) == 64
    assert draft.command == f"stsbench run -t mine --cards {tmp_path / 'cards'}"
    assert draft.found == [
        f"{tmp_path}/cards/tasks/mine.toml: pairs with scores (test 3) from the columns s1, s2, rating"
    ]
    assert draft.unsure == [
        "scores from 0.5 to 4.5 were found; the scale is taken to be 0 to 5",
        "English is assumed: the data do not tell their language",
    ]
    text = (tmp_path / "cards" / "tasks" / "mine.toml").read_text()
    assert all(f"# unsure: {line}\n" in text for line in draft.unsure)
    assert 'folder = "../../data"\n' in text


def test_what_is_edited_later_is_not_scored_as_what_was_drafted(tmp_path):
    path = put(tmp_path / "pairs.csv", PAIRS)
    _, _, task = drafted(path, tmp_path / "cards")
    path.write_text(PAIRS.replace("0.5", "1.5"))
    with pytest.raises(DataError, match="mean gold score"):
        task.load()


def test_sentences_with_labels_in_one_file_of_two_splits(tmp_path):
    draft, card, task = drafted(put(tmp_path / "reviews.csv", REVIEWS), tmp_path / "cards")
    assert (card.evaluator, list(card.splits), card.score_split) == ("probe", ["train", "test"], "test")
    train, test = task.load("train"), task.load("test")
    assert isinstance(train, LabelledSplit) and isinstance(test, LabelledSplit)
    assert (list(train.classes), test.labels.tolist(), list(test.sentences)[0]) == (
        ["0", "1", "2"],
        [0, 1, 2],
        "so fine",
    )
    assert "there is no test split: the one for validation is taken as test" in draft.unsure
    assert 'split_column = "part", split_values = {test = "dev"}' in draft.files[tmp_path / "cards/tasks/mine.toml"]


def test_sentences_with_labels_in_one_file_are_cross_validated(tmp_path):
    _, card, task = drafted(put(tmp_path / "r.csv", REVIEWS.replace(";dev", ";x")), tmp_path / "cards", label="stars")
    assert (list(card.splits), card.score_split) == (["all"], "all")
    assert task.load("all").n == 6


def test_pairs_with_labels_in_files_of_splits(tmp_path):
    rows = [("a b", "c d", "no"), ("e f", "g h", "yes"), ("i j", "k l", "no"), ("m n", "o p", "yes")]
    for file in ("train", "dev", "test"):
        lines = (json.dumps(dict(zip(("premise", "hypothesis", "label"), row, strict=True))) for row in rows)
        put(tmp_path / "nli" / f"{file}.jsonl", "\n".join(lines))
    draft, card, task = drafted(tmp_path / "nli", tmp_path / "cards")
    assert (card.evaluator, card.options) == ("probe", {"features": "abs_mul"})
    assert list(card.splits) == ["train", "validation", "test"]
    split = task.load("validation")
    assert isinstance(split, LabelledPairSplit) and split.labels.tolist() == [0, 1, 0, 1]
    assert card.splits["train"].labels == {"no": 2, "yes": 2}
    assert len(draft.unsure) == 1


def test_subsets_are_kept(tmp_path):
    rows = "sentence1\tsentence2\tscore\tsubset\na b\tc d\t0\tnews\ne f\tg h\t5\tforum\ni j\tk l\t2\tnews\n"
    _, card, task = drafted(put(tmp_path / "p.tsv", rows), tmp_path / "cards")
    split = task.load()
    assert isinstance(split, PairSplit)
    assert (list(split.subset), card.splits["test"].subsets) == (["news", "forum", "news"], {"news": 2, "forum": 1})
    assert card.gold_range == (0.0, 5.0)


def test_a_class_that_a_split_lacks_is_told(tmp_path):
    put(tmp_path / "d" / "train.csv", "text,label\na b,x\nc d,y\ne f,x\ng h,y\n")
    put(tmp_path / "d" / "test.csv", "text,label\na b,x\nc d,x\n")
    draft, _, _ = drafted(tmp_path / "d", tmp_path / "cards")
    assert "the split test has no item of class 'y'" in draft.unsure


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("s1;s2;score\na;b;3,5\nc;d;4,0\n", {}, "line 2: gold score '3,5' is not a number; write a decimal point, not a comma"),
        ("s1,s2,score\na,b,3.5\nc,d,\n", {}, "line 3: gold score '' is not a number"),
        ("s1,s2,score\na,b,3.5\n", {"gold": "scor"}, r"no column 'scor' \(has s1, s2, score\); did you mean 'score'\?"),
        ("text,label\na b,x\nc d,y\ne f,\ng h,x\ni j,y\nk l,x\n", {}, r"line 4: unknown label '' \(known: x, y\)"),
    ],
)  # fmt: skip
def test_data_of_which_no_task_can_be_made(tmp_path, content, columns, message):
    with pytest.raises(DataError, match=message) as caught:
        drafted(put(tmp_path / "t.csv", content), tmp_path / "cards", **columns)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cards").exists()


def test_splits_that_no_probe_has_are_refused(tmp_path):
    for split in ("dev", "test"):
        put(tmp_path / "d" / f"{split}.csv", "text,label\na b,x\nc d,y\ne f,x\ng h,y\n")
    with pytest.raises(DataError, match="d: has the splits validation, test; labels need train and test, or one table"):
        drafted(tmp_path / "d", tmp_path / "cards")


def test_a_folder_is_written_as_seen_from_the_card(tmp_path):
    assert seen_from(tmp_path / "a", tmp_path / "b" / "c") == "../../a"
    assert seen_from(tmp_path / "a" / "b", tmp_path / "a") == "./b"
    assert seen_from(tmp_path, tmp_path) == "."
    assert seen_from(Path("/usr/data"), tmp_path) == str(Path("/usr/data").resolve())


# Real data.


def real(name: str) -> Task:
    task, data = load_task(name), settings.data_folder()
    if data is None or task.card.local is None or not (data / task.card.local.folder).is_dir():
        pytest.skip(f"STSBENCH_DATA does not hold {name}")
    return task


@pytest.mark.data
@pytest.mark.parametrize("name", ["stsb", "mrpc"])
def test_a_released_folder_gives_the_facts_of_the_projects_card(tmp_path, name):
    known = real(name)
    assert known.data is not None and known.card.local is not None
    _, card, task = drafted(known.data / known.card.local.folder, tmp_path / "cards")
    assert card.splits == known.card.splits
    assert [task.load(split).digest for split in card.splits] == [known.load(split).digest for split in card.splits]


def as_csv(frame: pd.DataFrame, path: Path, **options: Any) -> None:
    frame.to_csv(path, index=False, **options)


WAYS: dict[str, tuple[str, Callable[[pd.DataFrame, Path], None]]] = {
    "csv": ("t.csv", as_csv),
    "csv with numbers of rows": ("t.csv", lambda frame, path: frame.to_csv(path)),
    "csv without a header": ("t.csv", partial(as_csv, header=False)),
    "semicolons, CRLF": ("t.csv", partial(as_csv, sep=";", lineterminator="\r\n")),
    "byte order mark, all quoted": ("t.csv", partial(as_csv, encoding="utf-8-sig", quoting=csv.QUOTE_ALL)),
    "tsv": ("t.tsv", partial(as_csv, sep="\t")),
    "tsv without a header": ("t.txt", partial(as_csv, sep="\t", header=False)),
    "jsonl": ("t.jsonl", lambda frame, path: frame.to_json(path, orient="records", lines=True, double_precision=15)),
    "parquet": ("t.parquet", lambda frame, path: frame.to_parquet(path)),
}


@pytest.mark.data
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "split", "drafted_as"), [("stsb", "validation", "test"), ("mr", "all", "all"), ("mrpc", "test", "all")]
)
def test_real_data_in_every_format_are_the_same_task(tmp_path, way, name, split, drafted_as):
    read = real(name).load(split)
    sides = (
        dict(zip(("sentence1", "sentence2"), read.sides, strict=False))
        if len(read.sides) == 2
        else {"text": read.sides[0]}
    )
    assert isinstance(read, PairSplit | LabelledSplit | LabelledPairSplit)
    target = read.gold if isinstance(read, PairSplit) else [read.classes[label] for label in read.labels]
    file, write = WAYS[way]
    write(pd.DataFrame({**sides, "score" if isinstance(read, PairSplit) else "label": target}), tmp_path / file)
    _, card, task = drafted(tmp_path / file, tmp_path / "cards")
    assert (card.splits[drafted_as].n, task.load(drafted_as).digest) == (read.n, read.digest)
