"""Sentence pairs from a Hub on the loopback interface, in every layout datasets have there."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stsbench.api.calls import evaluate
from stsbench.bench.embedder import read_texts_to_fit
from stsbench.core import files as expanded
from stsbench.core.cards import DrawSection, HubSource
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, SourceError, StsbenchError
from stsbench.data.corpora.corpus import load_corpus
from stsbench.data.hub.rows import fetch_rows
from stsbench.data.splits import ContrastSplit, PairSplit
from stsbench.data.task import Task, load_task
from tests import hub_server
from tests.cli.commands import HEAD, Command, write
from tests.data.made_encoders import Letters
from tests.hub_files import ROWS, jsonl, parquet, tar
from tests.hub_server import Hub

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


def fetched(split: str = "test", **facts: Any) -> tuple[PairSplit, str]:
    card: dict[str, Any] = {
        "repo": REPO,
        "revision": "unpinned",
        "splits": {"test": "test"},
        **facts,
    }
    pairs, commit = fetch_rows(HubSource(**card), split)
    assert isinstance(pairs, PairSplit)
    return pairs, commit


def fetch(split: str = "test", **facts: Any) -> PairSplit:
    return fetched(split, **facts)[0]


def refused(kind: type[StsbenchError] = StsbenchError, **facts: Any) -> str:
    with pytest.raises(kind) as caught:
        fetch(**facts)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def serve(hub: Hub, files: Mapping[str, bytes]) -> str:
    return hub.add("dataset", REPO, files).commit


def test_json_lines_and_the_commit(hub: Hub, capfd: pytest.CaptureFixture[str]):
    commit = serve(hub, {"README.md": b"No metadata.", "test.jsonl.gz": jsonl(ROWS)})
    split, found = fetched()
    assert found == commit
    assert split.sentences1 == ["A man plays a guitar.", "Zwei Hunde rennen.", "It rains."]
    assert split.sentences2[2] == "The stock fell\u2028again."
    assert split.gold.dtype == np.float64 and split.gold.tolist() == [3.4, 5.0, 0.0]
    assert split.subset == ["", "", ""]
    assert capfd.readouterr() == ("", "")


NAMED = jsonl([{"a": "x", "b": "y", "similarity": 0.5, "genre": "news", "score": 9}])
BY_NAME = {"sentence1": "a", "sentence2": "b", "gold": "similarity", "subset": "genre"}
NESTED = parquet([{**row, "labels": {"label": row["score"], "binary": 1}} for row in ROWS])
SHARDS = {
    f"data/test-0000{at}-of-00002.parquet": parquet(rows)
    for at, rows in enumerate((ROWS[:1], ROWS[1:]))
}
PARTS = {"train.jsonl.gz": jsonl(ROWS[:1]), "test.jsonl.gz": jsonl(ROWS[1:])}


@pytest.mark.parametrize(
    ("files", "facts", "gold"),
    [
        (SHARDS, {}, [3.4, 5.0, 0.0]),
        ({"test.jsonl.gz": NAMED}, {"columns": BY_NAME, "scale": 5.0}, [2.5]),
        (PARTS, {"splits": {"test": "train+test"}}, [3.4, 5.0, 0.0]),
        (PARTS, {"splits": {"test": "train, test"}}, [3.4, 5.0, 0.0]),
        ({"data/test.parquet": NESTED}, {"columns": {"gold": "labels.label"}}, [3.4, 5.0, 0.0]),
    ],
)
def test_each_layout_gives_its_pairs(
    hub: Hub, files: dict[str, bytes], facts: dict[str, Any], gold: list[float]
):
    serve(hub, files)
    split = fetch(**facts)
    assert split.gold.tolist() == gold
    assert split.subset == ["news" if "subset" in facts.get("columns", {}) else ""] * len(gold)


def test_a_configuration_comes_without_the_others(hub: Hub):
    files = {
        f"{name}/test.jsonl.gz": jsonl(ROWS[at:]) for at, name in enumerate(["de", "en-de", "tr"])
    }
    serve(hub, {"README.md": CONFIGS, **files})
    assert fetch(config="en-de").gold.tolist() == [5.0, 0.0]
    assert hub.gets("en-de/test.jsonl.gz") and not hub.gets("tr/test.jsonl.gz")
    assert "there is no configuration 'en_de' (has de, en-de, tr); did you mean 'en-de'" in refused(
        config="en_de"
    )
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


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress])
def test_a_file_that_grows_beyond_bounds_is_refused(
    hub: Hub, packed: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(expanded, "MAX_UNPACKED_BYTES", 5 << 20)
    end = {gzip.compress: "gz", bz2.compress: "bz2", lzma.compress: "xz"}[packed]
    serve(hub, {f"test.jsonl.{end}": packed(jsonl(ROWS, zipped=False) + b" " * (8 << 20))})
    assert "refused to read: it unpacks to more than" in refused(SourceError)


def test_some_of_the_files_are_not_taken_for_all(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    """Of two shards, another program has fetched one: half the pairs."""
    from huggingface_hub import hf_hub_download

    serve(hub, {f"data/test-0000{at}-of-00002.parquet": parquet(ROWS[at:]) for at in (0, 1)})
    hf_hub_download(REPO, "data/test-00001-of-00002.parquet", repo_type="dataset")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "(data/test-00001-of-00002.parquet)" in refused(SourceError)


GOOD = jsonl(ROWS)
BROKEN: dict[str, tuple[dict[str, bytes], dict[str, Any], str]] = {
    "cut json": ({"test.jsonl": jsonl(ROWS, zipped=False)[:-9]}, {}, "cannot be read: "),
    "cut gzip": (
        {"test.jsonl.gz": GOOD[:80]},
        {},
        "cannot be read: .*; it is broken on the Hub itself, see",
    ),
    "cut parquet": ({"test.parquet": parquet(ROWS)[:90]}, {}, "cannot be read: .*[Pp]arquet"),
    "empty": ({"test.jsonl": b""}, {}, "file 'test.jsonl' of dataset .*: the file is empty"),
    "script": ({"pairs.py": b"import os"}, {}, "only a script, which is never run"),
    "readme": (
        {"README.md": b"---\nconfigs: [}\n---\n", "test.jsonl.gz": GOOD},
        {},
        "'README.md'.* cannot be read",
    ),
    "no rows": ({"test.csv": b"sentence1,sentence2,score\n"}, {}, "there is not one row"),
    "split": (
        {"test.jsonl.gz": GOOD},
        {"splits": {"test": "tset"}},
        r"no split 'tset' \(has test\); did you mean",
    ),
    "config": (
        {"test.jsonl.gz": GOOD},
        {"config": "xx"},
        "not laid out as a dataset: .*'xx' not found",
    ),
    "column": (
        {"test.jsonl.gz": GOOD},
        {"columns": {"gold": "scor"}},
        r"no column 'scor' \(has sentence1, sentence2, score, genre\); did you mean 'score'",
    ),
    "gold text": (
        {"test.jsonl.gz": GOOD},
        {"columns": {"gold": "genre"}},
        "row 1: gold score 'captions' is not a number",
    ),
    "sentence": (
        {"test.jsonl.gz": GOOD},
        {"columns": {"sentence1": "score"}},
        "column 'score' holds double, not text",
    ),
    "no gold": (
        {"test.csv": b"sentence1,sentence2,score\na,b,1\na,b,\n"},
        {},
        "row 2: column 'score' holds neither text nor a number",
    ),
    "field": (
        {"test.parquet": NESTED},
        {"columns": {"gold": "labels.lable"}},
        "no column 'labels.lable' .*did you mean 'labels.label'",
    ),
    "no record": (
        {"test.jsonl.gz": GOOD},
        {"columns": {"gold": "label.label"}},
        "there is no column 'label.label'",
    ),
    "key": (
        {"test.jsonl.gz": GOOD},
        {"columns": {"glod": "score"}},
        "unknown key 'glod' in .hub.columns.; did you mean",
    ),
    "sentence without a label": (
        {"test.jsonl.gz": GOOD},
        {"columns": {"sentence": "sentence1"}},
        "sentence needs label, and positive or negative needs anchor, in .hub.columns.$",
    ),
    "positive without an anchor": (
        {"test.jsonl.gz": GOOD},
        {"columns": {"positive": "sentence1", "gold": "score"}},
        "sentence needs label, and positive or negative needs anchor, in .hub.columns.$",
    ),
    "number of configurations": (
        {"README.md": b"---\nconfigs: 5\n---\n", "test.jsonl.gz": GOOD},
        {},
        "not laid out as a dataset: .*configs to be a list",
    ),
    "configurations that are none": (
        {"README.md": b"---\nconfigs: [5, null]\n---\n", "test.jsonl.gz": GOOD},
        {},
        "not laid out as a dataset: ",
    ),
    "mapping of configurations": (
        {"README.md": b"---\nconfigs: {config_name: a}\n---\n", "test.jsonl.gz": GOOD},
        {},
        "not laid out as a dataset: .*configs to be a list",
    ),
    "number as pattern": (
        {
            "README.md": b"---\nconfigs: [{config_name: a, data_files: 5}]\n---\n",
            "test.jsonl.gz": GOOD,
        },
        {},
        "not laid out as a dataset: .*either a string or a list of strings",
    ),
    "bool": (
        {"test.jsonl": b'{"sentence1":"a","sentence2":"b","score":true}\n'},
        {},
        "gold score 'true' is not a number",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_every_fault_is_one_clear_line(hub: Hub, case: str, capfd: pytest.CaptureFixture[str]):
    files, facts, expected = BROKEN[case]
    serve(hub, files)
    text = refused(**facts)
    assert re.search(expected, text), text
    assert f"dataset '{REPO}' (revision main)" in text
    assert capfd.readouterr() == ("", "")


DRAW = {"rows": 6, "seed": 42, "by": "label"}
LABELLED = [
    {"sentence1": f"a {row}", "sentence2": "b", "score": row, "label": "yes" if row % 3 else "no"}
    for row in range(24)
]


def draw(**changes: Any) -> DrawSection:
    return msgspec.convert({**DRAW, **changes}, DrawSection)


@pytest.mark.parametrize("labels", [{"no": "no", "yes": "yes"}, {"no": 0, "yes": 1}])
def test_a_sample_is_drawn_with_the_shares_of_a_column(
    hub: Hub, labels: dict[str, Any], capfd: pytest.CaptureFixture[str]
):
    rows = [{**row, "label": labels[str(row["label"])]} for row in LABELLED]
    serve(hub, {"test.parquet": parquet(rows)})
    sample = fetch(draw=draw())
    # The rows that train_test_split of datasets draws by this seed, in its order.
    assert sample.gold.tolist() == [22, 19, 0, 8, 17, 15]
    assert sample.sentences1 == [f"a {row:.0f}" for row in sample.gold]
    assert sum(row % 3 == 0 for row in sample.gold) == 2
    assert fetch(draw=draw(seed=1)).gold.tolist() != sample.gold.tolist()
    # A split that is no larger is taken whole, in its own order.
    assert fetch(draw=draw(rows=24)).gold.tolist() == list(range(24))
    assert capfd.readouterr() == ("", "")


def test_a_sample_that_cannot_be_drawn_is_one_clear_line(hub: Hub):
    serve(hub, {"test.parquet": parquet([*LABELLED, {**LABELLED[0], "label": "maybe"}])})
    assert "no 6 rows can be drawn by column 'label': " in refused(DataError, draw=draw())
    assert "there is no column 'lable'" in refused(DataError, draw=draw(by="lable"))


CARDS = {
    card.hub.repo: card
    for card in map(Catalogue().task, Catalogue().paths("tasks"))
    if card.hub and card.hub.splits and card.evaluator == "sts"
}


@pytest.mark.parametrize("repo", CARDS)
def test_every_card_reads_the_layout_that_it_says_its_dataset_has(hub: Hub, repo: str):
    source = CARDS[repo].hub
    assert source is not None
    names = {"sentence1": "sentence1", "sentence2": "sentence2", "gold": "score", **source.columns}
    values = {
        role: [row[key] for row in ROWS]
        for role, key in {
            "sentence1": "sentence1",
            "sentence2": "sentence2",
            "gold": "score",
        }.items()
    }
    rows: list[dict[str, Any]] = [{} for _ in ROWS]
    for role, name in names.items():
        top, _, field = name.partition(".")
        for row, value in zip(rows, values.get(role, ["news"] * len(ROWS)), strict=True):
            row[top] = {field: value} if field else value
    split, hubs = next(iter(source.splits.items()))
    parts = re.split(r"[+,]", hubs)
    configs = source.configs or [source.config or "default"]
    facts = "---\nconfigs:\n"
    files: dict[str, bytes] = {}
    for config in configs:
        declared = "".join(f"  - split: {part}\n    path: {config}/{part}-*\n" for part in parts)
        facts += f"- config_name: {config}\n  data_files:\n{declared}"
        files |= {f"{config}/{part}-00000-of-00001.parquet": parquet(rows) for part in parts}
    commit = hub.add("dataset", repo, {"README.md": f"{facts}---\n".encode(), **files}).commit
    found, read = fetched(split, **{**msgspec.structs.asdict(source), "revision": "unpinned"})
    assert (found.n, read) == (len(ROWS) * len(parts) * len(configs), commit)
    assert list(dict.fromkeys(found.subset)) == (source.configs or [""])
    assert found.gold[:2].tolist() == [3.4 * source.scale, 5.0 * source.scale]


def test_rows_of_a_contrast_set_have_columns_or_lists(hub: Hub):
    rows = [
        {"Original": "up", "Synonym": "high", "others": ["down", "not up"]},
        {"Original": "in", "Synonym": "within", "others": ["out", "not in"]},
    ]
    serve(hub, {"train.parquet": parquet(rows)})
    columns = {
        "anchor": "Original",
        "positive": "Synonym",
        "negative": "others.1",
        "negative2": "others.0",
    }
    source = HubSource(repo=REPO, revision="unpinned", splits={"train": "train"}, columns=columns)
    split = fetch_rows(source, "train").split
    assert isinstance(split, ContrastSplit)
    assert [list(side) for side in split.sides] == [
        ["up", "in"],
        ["high", "within"],
        ["not up", "not in"],
        ["down", "out"],
    ]
    for missing in ("positive", "negative"):
        fewer = {role: name for role, name in columns.items() if role != missing}
        with pytest.raises(CardError, match="anchor needs positive and negative"):
            fetch_rows(msgspec.structs.replace(source, columns=fewer), "train")


COMMIT = "5" * 40
PAIRS = "a cat\tthe cat\na dog\tno dog\nit rains\tthe sun shines\n"
GOLD = "5\n\n0.5\n"


def card(
    *,
    ungraded: str = "ungraded = 1\n",
    more: str = "mean = 2.75",
    folder: str = "downstream",
    **hub: str,
) -> str:
    source = {
        "repo": "owner/sets",
        "revision": COMMIT,
        "archive": "sets.tar",
        "archive_folder": "downstream",
        **hub,
    }
    files = [("in.txt", PAIRS, ', subset = "news"'), ("gs.txt", GOLD, "")]
    rows = "".join(
        f'  {{path = "{name}", sha256 = "{hashlib.sha256(text.encode()).hexdigest()}"{subset}}},\n'
        for name, text, subset in files
    )
    return (
        f"{HEAD}[splits.test]\nn = 2\n{ungraded}characters = [13, 21]\n{more}\nsubsets = {{news = 2}}\n"
        f'[local]\nreader = "semeval"\nfolder = "{folder}/mine"\n[local.files]\ntest = [\n{rows}]\n[hub]\n'
        + "".join(f'{key} = "{value}"\n' for key, value in source.items() if value)
        + ("" if source["archive"] else 'splits = {test = "test"}\n')
    )


def task(folder: Path, text: str) -> Task:
    write(folder / "cards" / "tasks" / "mine.toml", text)
    return load_task("mine", catalogue=Catalogue([folder / "cards"]))


def serve_of_hub_sources(hub: Hub, files: Mapping[str, str | bytes]) -> None:
    data = {
        f"mine/{name}": text if isinstance(text, bytes) else text.encode()
        for name, text in files.items()
    }
    hub.add("dataset", "owner/sets", {"sets.tar": tar(data)}, pinned=COMMIT)


def pairs(task: Task) -> PairSplit:
    split = task.load()
    assert isinstance(split, PairSplit)
    return split


def refused_of_hub_sources(task: Task, kind: type[Exception] = DataError) -> str:
    with pytest.raises(kind) as caught:
        task.load()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_archive_gives_subsets_and_pairs_without_a_score(hub: Hub, tmp_path: Path):
    serve_of_hub_sources(hub, {"in.txt": PAIRS, "gs.txt": GOLD})
    mine = task(tmp_path, card())
    assert (pairs(mine).subset, pairs(mine).ungraded) == (["news", "news"], ["a dog", "no dog"])
    assert mine.loaded_split("test").revision == COMMIT and mine.loaded_split("test").notes == []
    assert mine.texts(with_ungraded=True)[-2:] == ["a dog", "no dog"]


def test_an_archive_of_no_known_commit_tells_the_one_it_came_from(hub: Hub, tmp_path: Path):
    serve_of_hub_sources(hub, {"in.txt": PAIRS, "gs.txt": GOLD})
    for revision in ("unpinned", "main", COMMIT[:7]):
        loaded = task(tmp_path, card(revision=revision)).loaded_split("test")
        note = (
            f"the data are of revision '{revision}', today commit 555555555555; "
            f'revision = "{COMMIT}" in the card keeps it'
        )
        assert (loaded.revision, loaded.notes) == (COMMIT, [note])


def test_rows_that_leave_out_pairs_without_a_score_are_never_taken_for_all(
    hub: Hub, tmp_path: Path
):
    rows = [
        {"sentence1": "a cat", "sentence2": "the cat", "score": 5},
        {"sentence1": "it rains", "sentence2": "the sun shines", "score": 0.5},
    ]
    hub.add("dataset", "owner/sets", {"test.jsonl.gz": jsonl(rows)}, pinned=COMMIT)
    without = task(tmp_path, card(archive="", archive_folder=""))
    assert pairs(without).n == 2 and len(without.texts()) == 4
    catalogue = Catalogue([tmp_path / "cards"])
    with pytest.raises(DataError, match=" 1 pairs .* `data=DIR`"):
        read_texts_to_fit("target+ungraded", task=without, catalogue=catalogue)
    write(tmp_path / "cards" / "trainers" / "corpora.toml", OWN_CORPUS)
    with pytest.raises(
        DataError, match=r"mine \(test\): .*\(hub\) lacks the 1 pairs without a gold score"
    ):
        load_corpus("mine_sentences", catalogue=catalogue)
    none = task(tmp_path, card(archive="", archive_folder="", ungraded=""))
    assert len(read_texts_to_fit("target+ungraded", task=none, catalogue=catalogue)) == 4


OWN_CORPUS = """[mine_sentences]
name = "Mine"
rows = 6
columns = {text = "text"}
tasks = ["mine"]
license = "mine"
source = "none"
"""


@pytest.mark.parametrize("ungraded", ["", "ungraded = 2\n"])
def test_a_card_counts_the_pairs_without_a_score(hub: Hub, tmp_path: Path, ungraded: str):
    serve_of_hub_sources(hub, {"in.txt": PAIRS, "gs.txt": GOLD})
    assert "pairs without a gold score 1, the card says" in refused_of_hub_sources(
        task(tmp_path, card(ungraded=ungraded))
    )


OTHER_BYTES: dict[str, tuple[Mapping[str, str | bytes], str, bool]] = {
    "line ends": ({"in.txt": PAIRS, "gs.txt": GOLD.replace("\n", "\r\n")}, "gs.txt", True),
    "spelling": ({"in.txt": PAIRS.replace("a cat", "a bat"), "gs.txt": GOLD}, "in.txt", False),
    "scores": ({"in.txt": PAIRS, "gs.txt": "0.5\n\n5\n"}, "gs.txt", False),
}


@pytest.mark.parametrize("case", OTHER_BYTES)
def test_other_bytes_with_counts_that_fit_are_scored_with_a_note(
    hub: Hub, tmp_path: Path, case: str
):
    files, name, same = OTHER_BYTES[case]
    mine = task(tmp_path, card())
    catalogue = Catalogue([tmp_path / "cards"])
    write(tmp_path / "data" / "downstream" / "mine" / "in.txt", PAIRS)
    write(tmp_path / "data" / "downstream" / "mine" / "gs.txt", GOLD)
    known = load_task("mine", data=tmp_path / "data", catalogue=catalogue)
    serve_of_hub_sources(hub, files)
    assert (pairs(mine).digest == pairs(known).digest) is same, (
        "its digest tells other text, not other line ends"
    )
    (result,) = evaluate(Letters(), "mine", catalogue=catalogue, store=None)
    (note,) = result.notes
    assert note.startswith(f"{name} in sets.tar differs from the file that its card names (")
    assert note.endswith("counts, characters and mean fit")
    assert ("CRLF" if same else "sha256 ") in note


def test_data_verify_tells_other_bytes(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    serve_of_hub_sources(hub, OTHER_BYTES["spelling"][0])
    task(tmp_path, card())
    monkeypatch.setenv("COLUMNS", "300")
    stsbench = Command(capsys)
    cards = ("mine", "--cards", tmp_path / "cards")
    code, out, err = stsbench("data", "verify", *cards)
    assert (code, err) == (
        2,
        "",
    ) and "in.txt in sets.tar differs from the file that its card names" in out
    assert "in.txt in sets.tar differs" in stsbench.fine("data", "fetch", *cards)


def test_data_verify_passes_an_open_revision_and_data_fetch_says_it(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    serve_of_hub_sources(hub, {"in.txt": PAIRS, "gs.txt": GOLD})
    task(tmp_path, card(revision="main"))
    stsbench, cards = Command(capsys), ("mine", "--cards", tmp_path / "cards")
    assert "OK" in stsbench.fine("data", "verify", *cards)
    assert f'revision = "{COMMIT}"' in stsbench.fine("data", "fetch", *cards)


REFUSED: dict[str, tuple[Mapping[str, str | bytes], dict[str, str], str]] = {
    "rows": (
        {"in.txt": PAIRS * 2, "gs.txt": GOLD * 2},
        {},
        "rows 4, the card says 2; use the files of the release",
    ),
    "characters": (
        {"in.txt": PAIRS.replace("dog", "dogs").replace("a cat", "cats"), "gs.txt": GOLD},
        {},
        "characters",
    ),
    "mean": (
        {"in.txt": PAIRS, "gs.txt": "4\n\n0.5\n"},
        {},
        "mean gold score 2.250000, the card says 2.750000",
    ),
    "no file": ({"in.txt": PAIRS}, {}, "there is no file mine/gs.txt"),
    "a card that tells no mean": (
        OTHER_BYTES["scores"][0],
        {"more": ""},
        "gs.txt: differs from the file that its card names",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(hub: Hub, tmp_path: Path, case: str):
    files, facts, expected = REFUSED[case]
    serve_of_hub_sources(hub, files)
    text = refused_of_hub_sources(task(tmp_path, card(**facts)))
    assert expected in text


def test_a_folder_of_ones_own_holds_the_bytes_that_the_card_names(tmp_path: Path):
    for name, text in OTHER_BYTES["line ends"][0].items():
        write(tmp_path / "data" / "downstream" / "mine" / name, text)
    write(tmp_path / "cards" / "tasks" / "mine.toml", card())
    mine = load_task("mine", data=tmp_path / "data", catalogue=Catalogue([tmp_path / "cards"]))
    assert "its line ends are CRLF); restore the file" in refused_of_hub_sources(mine)


@pytest.mark.parametrize("top", ["up", "downstream/mine/deeper", "downstreams", "/downstream"])
def test_an_archive_folder_that_is_no_parent(hub: Hub, tmp_path: Path, top: str):
    text = refused_of_hub_sources(task(tmp_path, card(archive_folder=top)), CardError)
    assert (
        f"[hub] archive_folder '{top}' is not a parent of [local] folder 'downstream/mine'" in text
    )


def test_without_the_archive_the_local_files_are_named(hub: Hub, tmp_path: Path):
    assert "with DIR/downstream/mine/in.txt and 1 more" in refused_of_hub_sources(
        task(tmp_path, card()), SourceError
    )


# --- the project's own cards ---


@pytest.mark.data
def test_consert_s_sentences_come_from_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    source, downstream = (
        Catalogue().task("sts15").hub,
        Path(os.environ["STSBENCH_DATA"]) / "downstream",
    )
    assert source is not None
    files = [
        path
        for name in ("STS", "SICK")
        for path in (downstream / name).rglob("*")
        if path.is_file()
    ]
    archive = tar({path.relative_to(downstream).as_posix(): path.read_bytes() for path in files})
    local = load_corpus("sts_sentences")
    hub.add("dataset", source.repo, {source.archive: archive}, pinned=source.revision)
    monkeypatch.delenv("STSBENCH_DATA")
    corpus = load_corpus("sts_sentences")
    assert len(corpus) == 89_192 and corpus.table.equals(local.table)
    assert len(hub.gets(source.archive)) == 1
    assert (
        len(read_texts_to_fit("target+ungraded", task=load_task("sts16"), catalogue=Catalogue()))
        == 2 * 9183
    )
    for name in ("sts12", "sts13", "sts14", "sts15", "sts16"):
        loaded = load_task(name).loaded_split("test")
        assert pairs(load_task(name)).subsets_known and (loaded.source, loaded.notes) == ("hub", [])
    (result,) = evaluate(Letters(), "sts13", protocol="wmean", store=None)
    assert list(result.per_subset) == ["FNWN", "headlines", "OnWN"] and not result.notes
