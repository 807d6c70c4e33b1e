"""Task cards drafted from datasets on a Hub on the loopback interface: in each layout they read the same data again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import HubSource, TaskCard
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.data.task import Task, load_task
from stsbench.drafts.draft import Draft, find_home
from stsbench.drafts.hub import draft_hub_task
from stsbench.errors import CardError, DataError
from tests import hub_server
from tests.hub_files import jsonl, parquet, tar
from tests.hub_server import Hub

hub = hub_server.hub

REPO = "owner/sets"
PAIRS = [{"sentence1": f"a cat {at}", "sentence2": f"the dog {at * at}", "score": at % 6 * 0.9} for at in range(12)]
REVIEWS = [
    {"text": f"{word} film {at}", "label": label} for at in range(6) for label, word in enumerate(("bad", "good"))
]


def drafted(out: Path, *, config: str = "", **columns: str) -> tuple[Draft, TaskCard, Task]:
    """A draft that is written; and its card and its task, as every command finds them."""
    source = HubSource(repo=REPO, revision="main", config=config)
    draft = draft_hub_task(source, find_home(out, "tasks", "mine"), columns=columns)
    draft.write(force=False)
    catalogue = Catalogue(out)
    return draft, catalogue.task("mine"), load_task("mine", catalogue=catalogue)


def renamed(rows: list[dict[str, Any]], **names: str) -> list[dict[str, Any]]:
    return [{names.get(key, key): value for key, value in row.items()} for row in rows]


def csv_of(rows: list[dict[str, Any]]) -> bytes:
    return "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows), ""]).encode()


README = b"---\nlanguage:\n- de\nlicense: cc-by-4.0\n---\nPairs.\n"
TWO = b"---\nconfigs:\n- config_name: de\n  data_files:\n  - split: test\n    path: de.jsonl\n- config_name: tr\n  data_files:\n  - split: test\n    path: tr.jsonl\n---\n"
ODD = b"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: easy\n    path: e.jsonl\n  - split: hard\n    path: h.jsonl\n---\n"
LAYOUTS: Mapping[str, tuple[dict[str, bytes], dict[str, str], dict[str, str]]] = {
    "one file of JSON lines": ({"test.jsonl.gz": jsonl(PAIRS)}, {"test": "test"}, {}),
    "parquet by splits": (
        {f"data/{split}-00000-of-00001.parquet": parquet(PAIRS) for split in ("train", "dev", "test")},
        {"train": "train", "validation": "dev", "test": "test"},
        {},
    ),
    "CSV, another name of the score": (
        {"test.csv": csv_of(renamed(PAIRS, score="similarity_score"))},
        {"test": "test"},
        {"gold": "similarity_score"},
    ),
    "a field within a column": (
        {
            "test.jsonl": jsonl(
                [
                    {**{k: row[k] for k in ("sentence1", "sentence2")}, "labels": {"label": row["score"]}}
                    for row in PAIRS
                ],
                zipped=False,
            )
        },
        {"test": "test"},
        {"gold": "labels.label"},
    ),
}


@pytest.mark.parametrize(("files", "splits", "columns"), LAYOUTS.values(), ids=LAYOUTS)
def test_pairs_in_each_layout(hub: Hub, tmp_path, files, splits, columns):
    commit = hub.add("dataset", REPO, {"README.md": README, **files}).commit
    draft, card, task = drafted(tmp_path)
    assert card.hub == HubSource(repo=REPO, revision=commit, splits=splits, columns=columns)
    assert (card.evaluator, card.languages, card.license, card.gold_range) == ("sts", ["de"], "cc-by-4.0", (0.0, 5.0))
    assert card.local is None and card.splits["test"].n == 12
    split = task.load("test")
    assert isinstance(split, PairSplit)
    assert list(split.sentences2) == [row["sentence2"] for row in PAIRS]
    assert split.gold.tolist() == [row["score"] for row in PAIRS]
    assert card.splits["test"].characters == [
        sum(len(str(row[key])) for row in PAIRS) for key in ("sentence1", "sentence2")
    ]
    assert "# the commit that was read" in draft.files[tmp_path / "tasks" / "mine.toml"]
    assert task.loaded("test").notes == []


def test_a_moved_branch_leaves_the_card_at_its_commit(hub: Hub, tmp_path):
    hub.add("dataset", REPO, {"test.jsonl": jsonl(PAIRS, zipped=False)})
    _, card, task = drafted(tmp_path)
    hub.add("dataset", REPO, {"test.jsonl": jsonl(PAIRS[:5], zipped=False)})
    assert task.load("test").n == 12 and card.hub is not None and len(card.hub.revision) == 40


def test_one_of_several_configurations(hub: Hub, tmp_path):
    files = {"README.md": TWO, "de.jsonl": jsonl(PAIRS, zipped=False), "tr.jsonl": jsonl(PAIRS[:8], zipped=False)}
    hub.add("dataset", REPO, files)
    with pytest.raises(DataError, match=r"has several configurations \(de, tr\)"):
        drafted(tmp_path)
    draft, card, task = drafted(tmp_path, config="tr")
    assert card.hub is not None and card.hub.config == "tr" and task.load("test").n == 8
    assert "English is assumed: the data do not tell their language" in draft.unsure


def test_sentences_with_labels(hub: Hub, tmp_path):
    hub.add(
        "dataset", REPO, {"train.jsonl": jsonl(REVIEWS, zipped=False), "test.jsonl": jsonl(REVIEWS[:4], zipped=False)}
    )
    _, card, task = drafted(tmp_path)
    assert card.hub is not None and card.hub.columns == {"sentence": "text", "label": "label"}
    assert (card.evaluator, card.hub.classes, card.splits["train"].labels) == ("probe", ["0", "1"], {"0": 6, "1": 6})
    split = task.load("test")
    assert isinstance(split, LabelledSplit) and split.labels.tolist() == [0, 1, 0, 1]


def test_pairs_with_labels(hub: Hub, tmp_path):
    rows = [{"premise": f"a cat {at}", "hypothesis": f"no dog {at}", "label": ("yes", "no")[at % 2]} for at in range(8)]
    hub.add("dataset", REPO, {"all.jsonl": jsonl(rows, zipped=False)})
    _, card, task = drafted(tmp_path)
    split = task.load("all")
    assert isinstance(split, LabelledPairSplit) and list(split.classes) == ["no", "yes"]
    assert split.labels.tolist() == [1, 0] * 4 and card.options == {"features": "abs_mul"}


def test_a_split_whose_answers_are_kept_back_is_left_out(hub: Hub, tmp_path):
    secret = [{**row, "score": -1.0} for row in PAIRS]
    hub.add(
        "dataset", REPO, {"validation.jsonl": jsonl(PAIRS, zipped=False), "test.jsonl": jsonl(secret, zipped=False)}
    )
    draft, card, _ = drafted(tmp_path)
    assert list(card.splits) == ["validation"] and card.score_split == "validation"
    assert "the split test is left out: 'score' is '-1.0' in every row" in draft.unsure


def test_columns_are_as_the_user_says(hub: Hub, tmp_path):
    rows = [
        {"u": row["sentence1"], "v": row["sentence2"], "w": row["score"], "x": 0.5 + at} for at, row in enumerate(PAIRS)
    ]
    hub.add("dataset", REPO, {"test.jsonl": jsonl(rows, zipped=False)})
    _, card, _ = drafted(tmp_path, sentence1="v", sentence2="u", gold="w")
    assert card.hub is not None and card.hub.columns == {"sentence1": "v", "sentence2": "u", "gold": "w"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"sets.tar": tar({"a.txt": b"a"})}, "no data files in JSON, CSV or parquet"),
        ({"sets.py": b"raise SystemExit"}, "only a script, which is never run"),
        (
            {"test.jsonl": jsonl([{"tokens": ["a", "b"]}] * 3, zipped=False)},
            r"no column holds texts or numbers \(has tokens\)",
        ),
        (
            {"README.md": ODD, "e.jsonl": jsonl(PAIRS, zipped=False), "h.jsonl": jsonl(PAIRS, zipped=False)},
            "none of its splits is of train",
        ),
        ({"test.parquet": b"PAR1 broken"}, "broken on the Hub itself"),
    ],
)
def test_what_makes_no_task_is_one_line(hub: Hub, tmp_path, files, message):
    hub.add("dataset", REPO, files)
    with pytest.raises(DataError, match=message) as caught:
        drafted(tmp_path)
    assert "\n" not in str(caught.value) and not (tmp_path / "tasks").exists()


def test_a_label_that_is_no_class_is_refused(hub: Hub, tmp_path):
    hub.add("dataset", REPO, {"all.jsonl": jsonl(REVIEWS, zipped=False)})
    _, _, task = drafted(tmp_path)
    card = tmp_path / "tasks" / "mine.toml"
    card.write_text(card.read_text().replace('classes = ["0", "1"]', 'classes = ["1", "2"]'))
    with pytest.raises(DataError, match="row 1: label '0' is not one of 1, 2"):
        load_task("mine", catalogue=Catalogue(tmp_path)).load("all")
    card.write_text(card.read_text().replace('classes = ["1", "2"]\n', ""))
    with pytest.raises(CardError, match="labels need sentence, or sentence1 and sentence2"):
        load_task("mine", catalogue=Catalogue(tmp_path)).load("all")
