"""Where drafts go, what they may be called, and that nothing is written over."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stsbench.core import settings
from stsbench.core.cards import HubSource, TaskCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, OutputError, StsbenchError
from stsbench.core.toml import card_lines, toml
from stsbench.data.card_draft import Draft, locate_card, relative_path, suggest_card_name
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.data.task import Task, load_task
from stsbench.data.task_draft import draft_task
from tests import hub_server
from tests.hub_files import jsonl, parquet, tar
from tests.hub_server import Hub


def test_a_folder_of_cards_or_of_one_kind_in_it(tmp_path):
    for out in ("mine", "mine/tasks"):
        home = locate_card(tmp_path / out, "tasks", "pairs")
        assert home.path == tmp_path / "mine" / "tasks" / "pairs.toml"


NO_NAME = "'{}' cannot be the name of a card; give letters, digits"
TAKEN = "the name '{}' is taken by .*; give another with `name`"


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        *(
            ("tasks", name, NO_NAME)
            for name in ("", "a,b", "a/b", "../a", "a+b=1", "a@1", "suites", "-a", "é")
        ),
        ("tasks", "stsb", TAKEN),
        ("tasks", "sts", TAKEN),
        ("baselines", "minilm", TAKEN),
    ],
)
def test_names_that_no_card_can_have_are_refused(tmp_path, kind, name, message):
    with pytest.raises(StsbenchError, match=message.format(re.escape(name))):
        locate_card(tmp_path, kind, name)


def test_names_come_from_files_and_folders(tmp_path):
    (tmp_path / "My Data.v2").mkdir()
    assert suggest_card_name(tmp_path / "My Data.v2") == "my-data.v2"
    assert suggest_card_name(Path("some/My pairs, 2024.csv")) == "my-pairs-2024"


def test_nothing_is_written_over_without_force(tmp_path):
    existing, other = tmp_path / "existing", tmp_path / "other"
    existing.write_text("mine")
    draft = Draft(files={other: "new", existing: "new"}, findings=[], doubts=[])
    with pytest.raises(OutputError, match=f"^{existing} exists; `force` writes it again"):
        draft.write(force=False)
    assert (existing.read_text(), other.exists()) == ("mine", False)
    draft.write(force=True)
    assert (existing.read_text(), other.read_text()) == ("new", "new")


VALUES = {
    "text": 'say "hi"\n\t\\ é \x7f \u2028',
    "#1 String": [1, 2.5, True, "x"],
    "table": {"a b": 1, "c": {"d": [1e-9]}},
}


def test_values_are_written_as_toml_reads_them():
    text = "\n".join(card_lines(VALUES, {"text": "a note"}))
    assert text.startswith("# a note\ntext = ")
    assert tomllib.loads(text) == VALUES
    assert toml((0.0, 5.0)) == "[0.0, 5.0]"


PAIRS = 's1,s2,rating\n"a, b",c d,0.5\ne f,"g\nh",4.5\n"say ""i""",j k,2\n'
REVIEWS = "text;stars;part\n" + "".join(f"so {word};{at % 3};{part}\n" for at, (word, part) in enumerate(
    [("good", "train"), ("bad", "train"), ("odd", "train"), ("fine", "dev"), ("poor", "dev"), ("dull", "dev")]
))  # fmt: skip


def put(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode())
    return path


def drafted(source: Path | HubSource, out: Path, **columns: str) -> tuple[Draft, TaskCard, Task]:
    """A draft that is written; and its card and its task, as every command finds them."""
    draft = draft_task(source, locate_card(out, "tasks", "mine"), columns=columns)
    draft.write(force=False)
    catalogue = Catalogue(out)
    return draft, catalogue.task("mine"), load_task("mine", catalogue=catalogue)


def test_pairs_with_scores(tmp_path):
    draft, card, task = drafted(put(tmp_path / "data" / "pairs.csv", PAIRS), tmp_path / "cards")
    split = task.load()
    assert isinstance(split, PairSplit)
    assert (list(split.sentences1), list(split.sentences2)) == (
        ["a, b", "e f", 'say "i"'],
        ["c d", "g\nh", "j k"],
    )
    assert (card.evaluator, card.gold_range, card.score_split) == ("sts", (0.0, 5.0), "test")
    facts = card.splits["test"]
    assert (facts.n, facts.characters, facts.mean) == (3, [14, 9], round(7 / 3, 12))
    assert card.local is not None and len(card.local.files["test"][0].sha256) == 64
    assert draft.findings == [
        f"{tmp_path}/cards/tasks/mine.toml: pairs with scores (test 3) from the columns s1, s2, rating"
    ]
    assert draft.doubts == [
        "scores from 0.5 to 4.5 were found; the scale is taken to be 0 to 5",
        "English is assumed: the data do not tell their language",
    ]
    text = (tmp_path / "cards" / "tasks" / "mine.toml").read_text()
    assert all(f"# unsure: {line}\n" in text for line in draft.doubts)
    assert 'folder = "../../data"\n' in text


def test_what_is_edited_later_is_not_scored_as_what_was_drafted(tmp_path):
    path = put(tmp_path / "pairs.csv", PAIRS)
    _, _, task = drafted(path, tmp_path / "cards")
    path.write_text(PAIRS.replace("0.5", "1.5"))
    with pytest.raises(DataError, match="mean gold score"):
        task.load()


def test_sentences_with_labels_in_one_file_of_two_splits(tmp_path):
    draft, card, task = drafted(put(tmp_path / "reviews.csv", REVIEWS), tmp_path / "cards")
    assert (card.evaluator, list(card.splits), card.score_split) == (
        "probe",
        ["train", "test"],
        "test",
    )
    train, test = task.load("train"), task.load("test")
    assert isinstance(train, LabelledSplit) and isinstance(test, LabelledSplit)
    assert (list(train.classes), test.labels.tolist()) == (["0", "1", "2"], [0, 1, 2])
    assert test.sentences[0] == "so fine"
    assert "there is no test split: the one for validation is taken as test" in draft.doubts
    assert (
        'split_column = "part", split_values = {test = "dev"}'
        in draft.files[tmp_path / "cards/tasks/mine.toml"]
    )


def test_sentences_with_labels_in_one_file_are_cross_validated(tmp_path):
    _, card, task = drafted(
        put(tmp_path / "r.csv", REVIEWS.replace(";dev", ";x")), tmp_path / "cards", label="stars"
    )
    assert (list(card.splits), card.score_split) == (["all"], "all")
    assert task.load("all").n == 6


def test_labels_with_decimal_commas_are_classes_in_the_order_of_their_values(tmp_path):
    rows = "".join(f"so {word};{label}\n" for word, label in zip(
        ("good", "bad", "odd", "fine", "poor", "dull"), ("10,5", "2,5") * 3, strict=True
    ))  # fmt: skip
    _, card, _ = drafted(
        put(tmp_path / "r.csv", f"text;stars\n{rows}"), tmp_path / "cards", label="stars"
    )
    assert card.local and card.local.params["classes"] == ["2,5", "10,5"]


def test_pairs_with_labels_in_files_of_splits(tmp_path):
    rows = [
        ("a b", "c d", "no"),
        ("e f", "g h", "yes"),
        ("i j", "k l", "no"),
        ("m n", "o p", "yes"),
    ]
    for file in ("train", "dev", "test"):
        lines = (
            json.dumps(dict(zip(("premise", "hypothesis", "label"), row, strict=True)))
            for row in rows
        )
        put(tmp_path / "nli" / f"{file}.jsonl", "\n".join(lines))
    draft, card, task = drafted(tmp_path / "nli", tmp_path / "cards")
    assert (card.evaluator, card.options) == ("probe", {"features": "abs_mul"})
    assert list(card.splits) == ["train", "validation", "test"]
    split = task.load("validation")
    assert isinstance(split, LabelledPairSplit) and split.labels.tolist() == [0, 1, 0, 1]
    assert card.splits["train"].labels == {"no": 2, "yes": 2}
    assert len(draft.doubts) == 1


def test_subsets_are_kept(tmp_path):
    rows = "sentence1\tsentence2\tscore\tsubset\na b\tc d\t0\tnews\ne f\tg h\t5\tforum\ni j\tk l\t2\tnews\n"
    _, card, task = drafted(put(tmp_path / "p.tsv", rows), tmp_path / "cards")
    split = task.load()
    assert isinstance(split, PairSplit)
    assert (list(split.subset), card.splits["test"].subsets) == (
        ["news", "forum", "news"],
        {"news": 2, "forum": 1},
    )
    assert card.gold_range == (0.0, 5.0)


def test_a_class_that_a_split_lacks_is_noted(tmp_path):
    put(tmp_path / "d" / "train.csv", "text,label\na b,x\nc d,y\ne f,x\ng h,y\n")
    put(tmp_path / "d" / "test.csv", "text,label\na b,x\nc d,x\n")
    draft, _, _ = drafted(tmp_path / "d", tmp_path / "cards")
    assert "the split test has no item of class 'y'" in draft.doubts


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("s1;s2;score\na;b;3,5\nc;d;4.0\n", {}, "t.csv: line 2: '3,5'"),
        ("s1,s2,score\na,b,3.5\nc,d,\ne,f,x\ng,h,-\n", {}, "t.csv: line 3: empty, line 4: 'x', line 5: '-'"),
        ("s1,s2,score\na,b,3.5\n", {"gold": "scor"}, r"no column 'scor' \(has s1, s2, score\); did you mean 'score'\?"),
        ("text,label\na b,x\nc d,y\ne f,\ng h,x\ni j,y\nk l,x\n", {}, "column 'label' has rows without a valid label: .*t.csv: line 4: empty"),
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
    with pytest.raises(
        DataError,
        match="d: has the splits validation, test; labels need train and test, or one table",
    ):
        drafted(tmp_path / "d", tmp_path / "cards")


def test_a_folder_is_written_as_seen_from_the_card(tmp_path):
    assert relative_path(tmp_path / "a", tmp_path / "b" / "c") == "../../a"
    assert relative_path(tmp_path / "a" / "b", tmp_path / "a") == "./b"
    assert relative_path(tmp_path, tmp_path) == "."
    assert relative_path(Path("/usr/data"), tmp_path) == str(Path("/usr/data").resolve())


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
    assert [task.load(split).digest for split in card.splits] == [
        known.load(split).digest for split in card.splits
    ]


def as_csv(frame: pd.DataFrame, path: Path, **options: Any) -> None:
    frame.to_csv(path, index=False, **options)


WAYS: dict[str, tuple[str, Callable[[pd.DataFrame, Path], None]]] = {
    "csv": ("t.csv", as_csv),
    "csv with numbers of rows": ("t.csv", lambda frame, path: frame.to_csv(path)),
    "csv without a header": ("t.csv", partial(as_csv, header=False)),
    "semicolons, CRLF": ("t.csv", partial(as_csv, sep=";", lineterminator="\r\n")),
    "byte order mark, all quoted": (
        "t.csv",
        partial(as_csv, encoding="utf-8-sig", quoting=csv.QUOTE_ALL),
    ),
    "tsv": ("t.tsv", partial(as_csv, sep="\t")),
    "tsv without a header": ("t.txt", partial(as_csv, sep="\t", header=False)),
    "jsonl": (
        "t.jsonl",
        lambda frame, path: frame.to_json(path, orient="records", lines=True, double_precision=15),
    ),
    "parquet": ("t.parquet", lambda frame, path: frame.to_parquet(path)),
}


@pytest.mark.data
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "split", "drafted_as"),
    [("stsb", "validation", "test"), ("mr", "all", "all"), ("mrpc", "test", "all")],
)
def test_real_data_in_every_format_are_the_same_task(tmp_path, way, name, split, drafted_as):
    read = real(name).load(split)
    names = ("sentence1", "sentence2") if len(read.sides) == 2 else ("text",)
    sides = dict(zip(names, read.sides, strict=True))
    assert isinstance(read, PairSplit | LabelledSplit | LabelledPairSplit)
    target = (
        read.gold if isinstance(read, PairSplit) else [read.classes[label] for label in read.labels]
    )
    file, write = WAYS[way]
    write(
        pd.DataFrame({**sides, "score" if isinstance(read, PairSplit) else "label": target}),
        tmp_path / file,
    )
    _, card, task = drafted(tmp_path / file, tmp_path / "cards")
    assert (card.splits[drafted_as].n, task.load(drafted_as).digest) == (read.n, read.digest)


hub = hub_server.hub
REPO = "owner/sets"
GRADED = [
    {"sentence1": f"a cat {at}", "sentence2": f"the dog {at * at}", "score": at % 6 * 0.9}
    for at in range(12)
]
RATED = [
    {"text": f"{word} film {at}", "label": label}
    for at in range(6)
    for label, word in enumerate(("bad", "good"))
]
README = b"---\nlanguage:\n- de\nlicense: cc-by-4.0\n---\nPairs.\n"


def lines(rows: list[dict[str, Any]]) -> bytes:
    return jsonl(rows, zipped=False)


def declared(**paths: str) -> bytes:
    """A README with a configuration for each file of a test split."""
    configuration = "- config_name: {}\n  data_files:\n  - split: test\n    path: {}\n"
    configurations = (configuration.format(*pair) for pair in paths.items())
    return f"---\nconfigs:\n{''.join(configurations)}---\n".encode()


def drafted_of_hub(out: Path, *, config: str = "", **columns: str) -> tuple[Draft, TaskCard, Task]:
    return drafted(HubSource(repo=REPO, revision="main", config=config), out, **columns)


CSV = "\n".join(
    [
        "sentence1,sentence2,similarity_score",
        *(",".join(map(str, row.values())) for row in GRADED),
        "",
    ]
)
NESTED = [
    {"sentence1": r["sentence1"], "sentence2": r["sentence2"], "labels": {"label": r["score"]}}
    for r in GRADED
]
SHARDS = {
    f"data/{split}-00000-of-00001.parquet": parquet(GRADED) for split in ("train", "dev", "test")
}
THREE = {"train": "train", "validation": "dev", "test": "test"}
LAYOUTS: Mapping[str, tuple[dict[str, bytes], dict[str, str], dict[str, str]]] = {
    "one file of JSON lines": ({"test.jsonl.gz": jsonl(GRADED)}, {"test": "test"}, {}),
    "parquet by splits": (SHARDS, THREE, {}),
    "another name of the score": (
        {"test.csv": CSV.encode()},
        {"test": "test"},
        {"gold": "similarity_score"},
    ),
    "a field within a column": (
        {"test.jsonl": lines(NESTED)},
        {"test": "test"},
        {"gold": "labels.label"},
    ),
}


@pytest.mark.parametrize(("files", "splits", "columns"), LAYOUTS.values(), ids=LAYOUTS)
def test_pairs_in_each_layout(hub: Hub, tmp_path, files, splits, columns):
    commit = hub.add("dataset", REPO, {"README.md": README, **files}).commit
    draft, card, task = drafted_of_hub(tmp_path)
    assert card.hub == HubSource(repo=REPO, revision=commit, splits=splits, columns=columns)
    assert (card.evaluator, card.languages, card.license, card.gold_range) == (
        "sts",
        ["de"],
        "cc-by-4.0",
        (0.0, 5.0),
    )
    assert card.local is None and card.splits["test"].n == 12
    split = task.load("test")
    assert isinstance(split, PairSplit)
    due = [[row[key] for row in GRADED] for key in ("sentence2", "score")]
    assert [list(split.sentences2), split.gold.tolist()] == due
    assert card.splits["test"].characters == [sum(map(len, side)) for side in split.sides]
    assert "# the commit that was read" in draft.files[tmp_path / "tasks" / "mine.toml"]
    hub.add("dataset", REPO, {"test.jsonl": lines(GRADED[:5])})
    again = load_task("mine", catalogue=Catalogue(tmp_path))
    # A moved branch leaves the card at its commit.
    assert (again.load("test").n, again.loaded_split("test").notes) == (12, [])


def test_one_of_several_configurations(hub: Hub, tmp_path):
    readme = declared(de="de.jsonl", tr="tr.jsonl")
    hub.add(
        "dataset",
        REPO,
        {"README.md": readme, "de.jsonl": lines(GRADED), "tr.jsonl": lines(GRADED[:8])},
    )
    with pytest.raises(DataError, match=r"has several configurations \(de, tr\)"):
        drafted_of_hub(tmp_path)
    draft, card, task = drafted_of_hub(tmp_path, config="tr")
    assert card.hub is not None and card.hub.config == "tr" and task.load("test").n == 8
    assert "English is assumed: the data do not tell their language" in draft.doubts


def test_sentences_and_pairs_with_labels(hub: Hub, tmp_path):
    hub.add("dataset", REPO, {"train.jsonl": lines(RATED), "test.jsonl": lines(RATED[:4])})
    _, card, task = drafted_of_hub(tmp_path / "one")
    assert card.hub is not None and card.hub.columns == {"sentence": "text", "label": "label"}
    assert (card.evaluator, card.hub.classes, card.splits["train"].labels) == (
        "probe",
        ["0", "1"],
        {"0": 6, "1": 6},
    )
    split = task.load("test")
    assert isinstance(split, LabelledSplit) and split.labels.tolist() == [0, 1, 0, 1]
    rows = [
        {"premise": f"a cat {at}", "hypothesis": f"no dog {at}", "label": ("yes", "no")[at % 2]}
        for at in range(8)
    ]
    hub.add("dataset", REPO, {"all.jsonl": lines(rows)})
    _, card, task = drafted_of_hub(tmp_path / "two")
    pairs = task.load("all")
    assert isinstance(pairs, LabelledPairSplit) and list(pairs.classes) == ["no", "yes"]
    assert pairs.labels.tolist() == [1, 0] * 4 and card.options == {"features": "abs_mul"}


def test_a_split_whose_answers_are_kept_back_is_left_out(hub: Hub, tmp_path):
    secret = [{**row, "score": -1.0} for row in GRADED]
    hub.add("dataset", REPO, {"validation.jsonl": lines(GRADED), "test.jsonl": lines(secret)})
    draft, card, _ = drafted_of_hub(tmp_path)
    assert list(card.splits) == ["validation"] and card.score_split == "validation"
    assert "the split test is left out: 'score' is '-1.0' in every row" in draft.doubts


@pytest.mark.parametrize("secret", ["", "-"])
def test_the_label_of_a_split_whose_answers_are_kept_back_is_no_class(hub: Hub, tmp_path, secret):
    rated = [{**row, "label": ("bad", "good")[int(str(row["label"]))]} for row in RATED]
    kept_back = [{**row, "label": secret} for row in rated]
    files = {"train": rated, "validation": rated[:4], "test": kept_back}
    hub.add("dataset", REPO, {f"{name}.jsonl": lines(rows) for name, rows in files.items()})
    draft, card, task = drafted_of_hub(tmp_path)
    assert card.hub is not None and card.hub.classes == ["bad", "good"]
    # The validation split is scored instead.
    assert card.splits["test"].labels == {"bad": 2, "good": 2} and task.load("test").n == 4
    assert f"the split test is left out: 'label' is '{secret}' in every row" in draft.doubts


def test_columns_are_as_the_user_says(hub: Hub, tmp_path):
    rows = [
        {"u": r["sentence1"], "v": r["sentence2"], "w": r["score"], "x": 0.5 + at}
        for at, r in enumerate(GRADED)
    ]
    hub.add("dataset", REPO, {"test.jsonl": lines(rows)})
    _, card, _ = drafted_of_hub(tmp_path, sentence1="v", sentence2="u", gold="w")
    assert card.hub is not None and card.hub.columns == {
        "sentence1": "v",
        "sentence2": "u",
        "gold": "w",
    }


TOKENS = lines([{"tokens": ["a", "b"]}] * 3)
ODD = declared(default="e.jsonl\n  - split: hard\n    path: h.jsonl").replace(
    b"split: test", b"split: easy"
)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"sets.tar": tar({"a.txt": b"a"})}, "no data files in JSON, CSV or parquet"),
        ({"sets.py": b"raise SystemExit"}, "only a script, which is never run"),
        ({"test.jsonl": TOKENS}, r"no column holds sentences \(has tokens\)"),
        (
            {"README.md": ODD, "e.jsonl": lines(RATED), "h.jsonl": lines(RATED)},
            "none of its splits is of train",
        ),
        ({"test.parquet": b"PAR1 broken"}, "broken on the Hub itself"),
    ],
)
def test_what_makes_no_task_is_one_line(hub: Hub, tmp_path, files, message):
    hub.add("dataset", REPO, files)
    with pytest.raises(DataError, match=message) as caught:
        drafted_of_hub(tmp_path)
    assert "\n" not in str(caught.value) and not (tmp_path / "tasks").exists()


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ('classes = ["1", "2"]', "row 1: unknown label '0' .known: 1, 2."),
        ("", "labels need sentence, or sentence1 and"),
    ],
)
def test_a_label_that_is_no_class_is_refused(hub: Hub, tmp_path, classes, message):
    hub.add("dataset", REPO, {"all.jsonl": lines(RATED)})
    drafted_of_hub(tmp_path)
    card = tmp_path / "tasks" / "mine.toml"
    card.write_text(card.read_text().replace('classes = ["0", "1"]', classes))
    with pytest.raises((DataError, CardError), match=message):
        load_task("mine", catalogue=Catalogue(tmp_path)).load("all")
