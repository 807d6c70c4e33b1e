"""Tasks whose files lie in an archive on a Hub on the loopback interface, or whose graded pairs do."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from stsbench.bench.fit_texts import texts_to_fit
from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import HubSource
from stsbench.data.corpora.load import load_corpus
from stsbench.data.splits import PairSplit
from stsbench.data.task import Task, load_task
from stsbench.errors import CardError, DataError, SourceError
from stsbench.interface.scoring import evaluate
from tests import hub_server
from tests.cli.commands import HEAD, Command, write
from tests.data.made_encoders import Letters
from tests.hub_files import jsonl, tar
from tests.hub_server import Hub

hub = hub_server.hub

COMMIT = "5" * 40
PAIRS = "a cat\tthe cat\na dog\tno dog\nit rains\tthe sun shines\n"
GOLD = "5\n\n0.5\n"


def card(*, ungraded: str = "ungraded = 1\n", more: str = "mean = 2.75", folder: str = "downstream", **hub: str) -> str:
    source = {"repo": "owner/sets", "revision": COMMIT, "archive": "sets.tar", "archive_folder": "downstream", **hub}
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


def serve(hub: Hub, files: Mapping[str, str | bytes]) -> None:
    data = {f"mine/{name}": text if isinstance(text, bytes) else text.encode() for name, text in files.items()}
    hub.add("dataset", "owner/sets", {"sets.tar": tar(data)}, pinned=COMMIT)


def pairs(task: Task) -> PairSplit:
    split = task.load()
    assert isinstance(split, PairSplit)
    return split


def refused(task: Task, kind: type[Exception] = DataError) -> str:
    with pytest.raises(kind) as caught:
        task.load()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_archive_gives_subsets_and_pairs_without_a_score(hub: Hub, tmp_path: Path):
    serve(hub, {"in.txt": PAIRS, "gs.txt": GOLD})
    mine = task(tmp_path, card())
    assert (pairs(mine).subset, pairs(mine).ungraded) == (["news", "news"], ["a dog", "no dog"])
    assert mine.loaded("test").revision == COMMIT and mine.loaded("test").notes == []
    assert mine.texts(with_ungraded=True)[-2:] == ["a dog", "no dog"]


def test_an_archive_of_no_known_commit_tells_the_one_it_came_from(hub: Hub, tmp_path: Path):
    serve(hub, {"in.txt": PAIRS, "gs.txt": GOLD})
    for revision in ("unpinned", "main", COMMIT[:7]):
        loaded = task(tmp_path, card(revision=revision)).loaded("test")
        said = f"the data are of revision '{revision}', today commit 555555555555; revision = \"{COMMIT}\" in the card keeps it"
        assert (loaded.revision, loaded.notes) == (COMMIT, [said])


def test_rows_that_leave_out_pairs_without_a_score_are_never_taken_for_all(hub: Hub, tmp_path: Path):
    rows = [
        {"sentence1": "a cat", "sentence2": "the cat", "score": 5},
        {"sentence1": "it rains", "sentence2": "the sun shines", "score": 0.5},
    ]
    hub.add("dataset", "owner/sets", {"test.jsonl.gz": jsonl(rows)}, pinned=COMMIT)
    without = task(tmp_path, card(archive="", archive_folder=""))
    assert pairs(without).n == 2 and len(without.texts()) == 4
    catalogue = Catalogue([tmp_path / "cards"])
    with pytest.raises(
        DataError, match=r"mine \(test\): .*\(hub\) leaves out the 1 pairs without a gold score"
    ) as said:
        texts_to_fit("target+ungraded", task=without, catalogue=catalogue)
    assert "pass --data DIR" in str(said.value)
    write(tmp_path / "cards" / "trainers" / "corpora.toml", OWN_CORPUS)
    with pytest.raises(DataError, match="leaves out the 1 pairs"):
        load_corpus("mine_sentences", catalogue=catalogue)
    none = task(tmp_path, card(archive="", archive_folder="", ungraded=""))
    assert len(texts_to_fit("target+ungraded", task=none, catalogue=catalogue)) == 4


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
    serve(hub, {"in.txt": PAIRS, "gs.txt": GOLD})
    assert "pairs without a gold score 1, the card says" in refused(task(tmp_path, card(ungraded=ungraded)))


OTHER_BYTES: dict[str, tuple[Mapping[str, str | bytes], str, bool]] = {
    "line ends": ({"in.txt": PAIRS, "gs.txt": GOLD.replace("\n", "\r\n")}, "gs.txt", True),
    "spelling": ({"in.txt": PAIRS.replace("a cat", "a bat"), "gs.txt": GOLD}, "in.txt", False),
    "scores": ({"in.txt": PAIRS, "gs.txt": "0.5\n\n5\n"}, "gs.txt", False),
}


@pytest.mark.parametrize("case", OTHER_BYTES)
def test_other_bytes_with_counts_that_fit_are_scored_and_told(hub: Hub, tmp_path: Path, case: str):
    files, name, same = OTHER_BYTES[case]
    mine = task(tmp_path, card())
    catalogue = Catalogue([tmp_path / "cards"])
    write(tmp_path / "data" / "downstream" / "mine" / "in.txt", PAIRS)
    write(tmp_path / "data" / "downstream" / "mine" / "gs.txt", GOLD)
    known = load_task("mine", data=tmp_path / "data", catalogue=catalogue)
    serve(hub, files)
    assert (pairs(mine).digest == pairs(known).digest) is same, "its digest tells other text, not other line ends"
    (result,) = evaluate(Letters(), "mine", catalogue=catalogue, store=None)
    (note,) = result.notes
    assert note.startswith(f"{name} in sets.tar differs from the file that its card names (")
    assert note.endswith("counts, characters and mean fit")
    assert ("CRLF" if same else "sha256 ") in note


def test_data_verify_tells_other_bytes(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    serve(hub, OTHER_BYTES["spelling"][0])
    task(tmp_path, card())
    monkeypatch.setenv("COLUMNS", "300")
    stsbench = Command(capsys)
    code, out, err = stsbench("data", "verify", "mine", "--cards", tmp_path / "cards")
    assert (code, err) == (2, "") and "in.txt in sets.tar differs from the file that its card names" in out
    assert "in.txt in sets.tar differs" in stsbench.fine("data", "fetch", "mine", "--cards", tmp_path / "cards")


def test_data_verify_passes_an_open_revision_and_data_fetch_tells_it(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    serve(hub, {"in.txt": PAIRS, "gs.txt": GOLD})
    task(tmp_path, card(revision="main"))
    stsbench = Command(capsys)
    assert "OK" in stsbench.fine("data", "verify", "mine", "--cards", tmp_path / "cards")
    assert f'revision = "{COMMIT}"' in stsbench.fine("data", "fetch", "mine", "--cards", tmp_path / "cards")


REFUSED: dict[str, tuple[Mapping[str, str | bytes], dict[str, str], str]] = {
    "rows": ({"in.txt": PAIRS * 2, "gs.txt": GOLD * 2}, {}, "rows 4, the card says 2; use the files of the release"),
    "characters": ({"in.txt": PAIRS.replace("dog", "dogs").replace("a cat", "cats"), "gs.txt": GOLD}, {}, "characters"),
    "mean": ({"in.txt": PAIRS, "gs.txt": "4\n\n0.5\n"}, {}, "mean gold score 2.250000, the card says 2.750000"),
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
    serve(hub, files)
    text = refused(task(tmp_path, card(**facts)))
    assert expected in text and "fetch the data again" not in text


def test_a_folder_of_ones_own_holds_the_bytes_that_the_card_names(tmp_path: Path):
    for name, text in OTHER_BYTES["line ends"][0].items():
        write(tmp_path / "data" / "downstream" / "mine" / name, text)
    write(tmp_path / "cards" / "tasks" / "mine.toml", card())
    mine = load_task("mine", data=tmp_path / "data", catalogue=Catalogue([tmp_path / "cards"]))
    assert "its line ends are CRLF); restore the file" in refused(mine)


@pytest.mark.parametrize("top", ["up", "downstream/mine/deeper", "downstreams", "/downstream"])
def test_an_archive_folder_that_is_no_parent(hub: Hub, tmp_path: Path, top: str):
    text = refused(task(tmp_path, card(archive_folder=top)), CardError)
    assert f"[hub] archive_folder '{top}' is not a parent of [local] folder 'downstream/mine'" in text


def test_without_the_archive_the_local_files_are_named(hub: Hub, tmp_path: Path):
    assert "with DIR/downstream/mine/in.txt and 1 more" in refused(task(tmp_path, card()), SourceError)


# --- the project's own cards ---


def archived() -> dict[str, HubSource]:
    cards = {name: Catalogue().task(name) for name in Catalogue().paths("tasks")}
    return {name: card.hub for name, card in cards.items() if card.hub and card.hub.archive}


def test_every_card_of_an_archive_tells_its_splits_well():
    """Only then may a file's hash differ: all have characters, and a mean or rows a class."""
    assert {"sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "mr", "trec"} <= set(archived())
    for name in archived():
        for split, facts in Catalogue().task(name).splits.items():
            assert facts.characters and (facts.mean is not None or facts.labels), (name, split)


def real_archive() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in ("STS", "SICK"):
            archive.add(Path(os.environ["STSBENCH_DATA"]) / "downstream" / name, arcname=name)
    return stream.getvalue()


@pytest.mark.data
def test_consert_s_sentences_come_from_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    source = archived()["sts15"]
    local = load_corpus("sts_sentences")
    hub.add("dataset", source.repo, {source.archive: real_archive()}, pinned=source.revision)
    monkeypatch.delenv("STSBENCH_DATA")
    corpus = load_corpus("sts_sentences")
    assert len(corpus) == 89_192 and corpus.table.equals(local.table)
    assert len(hub.gets(source.archive)) == 1
    assert len(texts_to_fit("target+ungraded", task=load_task("sts16"), catalogue=Catalogue())) == 2 * 9183
    for name in ("sts12", "sts13", "sts14", "sts15", "sts16"):
        loaded = load_task(name).loaded("test")
        assert pairs(load_task(name)).subsets_known and (loaded.source, loaded.notes) == ("hub", [])
    (result,) = evaluate(Letters(), "sts13", protocol="wmean", store=None)
    assert list(result.per_subset) == ["FNWN", "headlines", "OnWN"] and not result.notes
