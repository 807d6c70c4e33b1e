"""Sentence pairs from a Hub on the loopback interface, in every layout datasets have there."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import HubSource
from stsbench.data.hub import fetch_pairs
from stsbench.data.splits import PairSplit
from stsbench.errors import CardError, DataError, SourceError
from stsbench.files import expanded
from tests import hub_server
from tests.hub_files import ROWS, jsonl, parquet
from tests.hub_server import Hub, point_at

hub = hub_server.hub

REPO = "owner/pairs"
CONFIGS = b"""---
configs:
- config_name: de
  data_files:
  - split: test
    path: de/*.jsonl.gz
- config_name: en-de
  data_files:
  - split: test
    path:
    - en-de/test.jsonl.gz
- config_name: tr
  data_files:
  - split: test
    path: tr/test.jsonl.gz
---
Pairs in three languages.
"""


def fetch(split: str = "test", **facts: Any) -> PairSplit:
    card: dict[str, Any] = {"repo": REPO, "revision": "unpinned", "splits": {"test": "test"}, **facts}
    return fetch_pairs(HubSource(**card), split, without="")[0]


def refused(kind: type[DataError] = DataError, **facts: Any) -> str:
    """The one line that a fetch ends in."""
    with pytest.raises(DataError) as caught:
        fetch(**facts)
    assert type(caught.value).__mro__.index(kind) <= 1
    assert "\n" not in str(caught.value)
    return str(caught.value)


def serve(hub: Hub, files: Mapping[str, bytes]) -> str:
    return hub.add("dataset", REPO, files).commit


def test_json_lines_and_the_commit(hub: Hub, capfd: pytest.CaptureFixture[str]):
    commit = serve(hub, {"README.md": b"No metadata.", "test.jsonl.gz": jsonl(ROWS)})
    split, found = fetch_pairs(HubSource(repo=REPO, revision="unpinned", splits={"test": "test"}), "test")
    assert found == commit
    assert split.sentences1 == ["A man plays a guitar.", "Zwei Hunde rennen.", "It rains."]
    assert split.sentences2[2] == "The stock fell\u2028again."
    assert split.gold.dtype == np.float64 and split.gold.tolist() == [3.4, 5.0, 0.0]
    assert split.subset == ["", "", ""]
    assert capfd.readouterr() == ("", "")


def test_parquet_in_shards(hub: Hub):
    names = [f"data/test-0000{at}-of-00002.parquet" for at in (0, 1)]
    serve(hub, {names[0]: parquet(ROWS[:1]), names[1]: parquet(ROWS[1:])})
    assert fetch().gold.tolist() == [3.4, 5.0, 0.0]


def test_columns_scale_and_subset(hub: Hub):
    rows = [{"a": "x", "b": "y", "similarity": 0.5, "genre": "news", "score": 9}]
    serve(hub, {"test.jsonl.gz": jsonl(rows)})
    split = fetch(columns={"sentence1": "a", "sentence2": "b", "gold": "similarity", "subset": "genre"}, scale=5.0)
    assert (split.sentences1, split.sentences2, split.gold.tolist(), split.subset) == (["x"], ["y"], [2.5], ["news"])


@pytest.mark.parametrize("together", ["train+test", "train, test"])
def test_splits_read_as_one(hub: Hub, together: str):
    serve(hub, {"train.jsonl.gz": jsonl(ROWS[:1]), "test.jsonl.gz": jsonl(ROWS[1:])})
    assert fetch(splits={"test": together}).gold.tolist() == [3.4, 5.0, 0.0]


def test_a_configuration_comes_without_the_others(hub: Hub):
    files = {f"{name}/test.jsonl.gz": jsonl(ROWS[at:]) for at, name in enumerate(["de", "en-de", "tr"])}
    serve(hub, {"README.md": CONFIGS, **files})
    assert fetch(config="en-de").gold.tolist() == [5.0, 0.0]
    assert hub.gets("en-de/test.jsonl.gz") and not hub.gets("tr/test.jsonl.gz")
    assert "there is no configuration 'en_de' (has de, en-de, tr); did you mean 'en-de'" in refused(config="en_de")
    assert "several configurations (de, en-de, tr); the card must name one" in refused()


def test_again_offline_and_at_the_pinned_commit_only(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    commit = serve(hub, {"test.jsonl.gz": jsonl(ROWS)})
    fetch(revision=commit)
    serve(hub, {"test.jsonl.gz": jsonl(ROWS[:1])})
    assert fetch().n == 1
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = len(hub.asked)
    assert (fetch(revision=commit).n, fetch().n) == (3, 1)
    assert len(hub.asked) == before
    # The datasets library, left to itself, would give the revision it cached last.
    assert "no complete copy" in refused(SourceError, revision="a" * 40)


def test_no_network(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    point_at(monkeypatch, "http://127.0.0.1:9")
    assert re.search(r"dataset 'owner/pairs' \(revision main\): cannot reach the Hub", refused(SourceError))


def test_damaged_on_the_way(hub: Hub):
    serve(hub, {"test.jsonl.gz": jsonl(ROWS)})
    hub.fail("test.jsonl.gz", wrong_bytes=True, methods=("GET",), times=1)
    assert "damaged" in refused(SourceError)
    assert fetch().n == 3


def test_small_files_are_held_against_their_git_hash(hub: Hub):
    serve(hub, {"test.jsonl": jsonl(ROWS, zipped=False)})
    hub.fail("test.jsonl", wrong_bytes=True, methods=("GET",), times=1)
    assert "damaged (git hash " in refused(SourceError)
    assert fetch().n == 3


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress])
def test_a_file_that_grows_beyond_bounds_is_refused(
    hub: Hub, packed: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(expanded, "MOST_BYTES", 5 << 20)
    end = {gzip.compress: "gz", bz2.compress: "bz2", lzma.compress: "xz"}[packed]
    serve(hub, {f"test.jsonl.{end}": packed(jsonl(ROWS, zipped=False) + b" " * (8 << 20))})
    assert "refused to read: it unpacks to more than" in refused(SourceError)


def test_some_of_the_files_are_not_taken_for_all(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    """Of two shards, another program has fetched one: half the pairs."""
    from huggingface_hub import hf_hub_download

    serve(hub, {f"data/test-0000{at}-of-00002.parquet": parquet(ROWS[at:]) for at in (0, 1)})
    hf_hub_download(REPO, "data/test-00001-of-00002.parquet", repo_type="dataset")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "holds files of it (data/test-00001-of-00002.parquet), but no list of all" in refused(SourceError)


GOOD = jsonl(ROWS)
BROKEN: dict[str, tuple[dict[str, bytes], dict[str, Any], str]] = {
    "cut json": ({"test.jsonl": jsonl(ROWS, zipped=False)[:-9]}, {}, "cannot be read: "),
    "cut gzip": ({"test.jsonl.gz": GOOD[:80]}, {}, "cannot be read: .*; it is broken on the Hub itself, see"),
    "cut parquet": ({"test.parquet": parquet(ROWS)[:90]}, {}, "cannot be read: .*[Pp]arquet"),
    "empty": ({"test.jsonl": b""}, {}, "file 'test.jsonl' of dataset .*: the file is empty"),
    "script": ({"pairs.py": b"import os"}, {}, "only a script, which is never run"),
    "readme": ({"README.md": b"---\nconfigs: [}\n---\n", "test.jsonl.gz": GOOD}, {}, "'README.md'.* cannot be read"),
    "no rows": ({"test.csv": b"sentence1,sentence2,score\n"}, {}, "there is not one row"),
    "split": ({"test.jsonl.gz": GOOD}, {"splits": {"test": "tset"}}, r"no split 'tset' \(has test\); did you mean"),
    "card split": ({"test.jsonl.gz": GOOD}, {"split": "dev"}, r"the card names no split 'dev' there \(has test\)"),
    "config": ({"test.jsonl.gz": GOOD}, {"config": "xx"}, "not laid out as a dataset: .*'xx' not found"),
    "column": (
        {"test.jsonl.gz": GOOD},
        {"columns": {"gold": "scor"}},
        r"no column 'scor' \(has sentence1, sentence2, score, genre\); did you mean 'score'",
    ),
    "gold text": ({"test.jsonl.gz": GOOD}, {"columns": {"gold": "genre"}}, "row 1: .*'genre' is str 'captions', not a"),
    "sentence": ({"test.jsonl.gz": GOOD}, {"columns": {"sentence1": "score"}}, "row 1: 'score' is float 3.4, not text"),
    "no gold": ({"test.csv": b"sentence1,sentence2,score\na,b,1\na,b,\n"}, {}, "row 2: .*'score' is missing, not a"),
    "bool": ({"test.jsonl": b'{"sentence1":"a","sentence2":"b","score":true}\n'}, {}, "is bool True, not a number"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_every_fault_is_one_clear_line(hub: Hub, case: str, capfd: pytest.CaptureFixture[str]):
    files, facts, expected = BROKEN[case]
    serve(hub, files)
    text = refused(**facts)
    assert re.search(expected, text), text
    assert "dataset 'owner/pairs' (revision main)" in text
    assert capfd.readouterr() == ("", "")


def test_an_unknown_key_of_the_card(hub: Hub):
    serve(hub, {"test.jsonl.gz": GOOD})
    with pytest.raises(CardError, match=r"unknown key 'glod' in \[hub.columns\]; did you mean 'gold'"):
        fetch(columns={"glod": "score"})


def test_a_process_of_its_own(hub: Hub, tmp_path: os.PathLike[str]):
    """The libraries read the environment when they are imported; here they do, and import no torch."""
    serve(hub, {"test.jsonl.gz": GOOD})
    code = (
        "import sys; from stsbench.cards.facts import HubSource; from stsbench.data.hub import fetch_pairs;"
        "assert not {'datasets', 'huggingface_hub'} & set(sys.modules);"
        f"s, _ = fetch_pairs(HubSource(repo='{REPO}', revision='unpinned', splits={{'test': 'test'}}), 'test');"
        "print(s.n, 'torch' in sys.modules)"
    )
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": os.fspath(tmp_path)}
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("3 False\n", "")


def test_a_column_of_records_is_entered_by_name(hub: Hub):
    rows = [{**row, "labels": {"label": row["score"], "binary": 1}} for row in ROWS]
    serve(hub, {"data/test.parquet": parquet(rows)})
    assert fetch(columns={"gold": "labels.label"}).gold.tolist() == [3.4, 5.0, 0.0]
    assert refused(columns={"gold": "labels.lable"}).endswith(
        "column 'labels' has no field 'lable' (has label, binary)"
    )
    assert "there is no column 'label'" in refused(columns={"gold": "label.label"})
    assert refused(columns={"gold": "score.label"}).endswith("column 'score' has no field 'label' (has no fields)")


CARDS = {
    card.hub.repo: card for card in map(Catalogue().task, Catalogue().paths("tasks")) if card.hub and card.hub.splits
}


@pytest.mark.parametrize("repo", CARDS)
def test_every_card_reads_the_layout_that_it_says_its_dataset_has(hub: Hub, repo: str):
    source = CARDS[repo].hub
    assert source is not None
    names = {"sentence1": "sentence1", "sentence2": "sentence2", "gold": "score", **source.columns}
    values = {
        role: [row[key] for row in ROWS]
        for role, key in {"sentence1": "sentence1", "sentence2": "sentence2", "gold": "score"}.items()
    }
    rows: list[dict[str, Any]] = [{} for _ in ROWS]
    for role, name in names.items():
        top, _, field = name.partition(".")
        for row, value in zip(rows, values.get(role, ["news"] * len(ROWS)), strict=True):
            row[top] = {field: value} if field else value
    split, hubs = next(iter(source.splits.items()))
    parts = re.split(r"[+,]", hubs)
    config = source.config or "default"
    declared = "".join(f"  - split: {part}\n    path: {config}/{part}-*\n" for part in parts)
    facts = f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{declared}---\n"
    files = {f"{config}/{part}-00000-of-00001.parquet": parquet(rows) for part in parts}
    commit = hub.add("dataset", repo, {"README.md": facts.encode(), **files}).commit
    found, read = fetch_pairs(msgspec.structs.replace(source, revision="unpinned"), split, without="")
    assert (found.n, read) == (len(ROWS) * len(parts), commit)
    assert found.gold[:2].tolist() == [3.4 * source.scale, 5.0 * source.scale]
