"""Corpora made of published ones: the first rows of a file, the long documents of a dataset."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import (
    DataError,
    OutputError,
    Remedy,
    SourceError,
    StsbenchError,
)
from stsbench.data.corpora.corpus import load_corpus
from stsbench.data.corpora.making import FileProgress, make_corpus
from stsbench.encoders.transformer.backbone import TokenCounter
from tests import hub_server
from tests.hub_files import parquet as parquet_bytes, tiny_bert
from tests.hub_server import Hub

hub = hub_server.hub
LINES = ["A dog.", "un café\u2028still", "", "the end"]
HEAD = 'name = "Mine"\nlicense = "mine"\nsource = "mine"\n'


def catalogue(folder: Path, *tables: str) -> Catalogue:
    (folder / "cards" / "trainers").mkdir(parents=True)
    (folder / "cards" / "trainers" / "corpora.toml").write_text("\n".join(tables))
    (folder / "corpora").mkdir()
    (folder / "corpora" / "whole.txt.xz").write_bytes(
        lzma.compress(("\n".join(LINES) + "\n").encode())
    )
    return Catalogue([folder / "cards"])


def make(
    name: str, corpora: Path, cards: Catalogue, progress: FileProgress = lambda done, total: None
) -> tuple[Path, int]:
    return make_corpus(
        name, corpora=corpora, catalogue=cards, open_tokenizer=TokenCounter, progress=progress
    )


WHOLE = f'[whole]\n{HEAD}file = "whole.txt.xz"\ncolumns = {{text = 0}}\nrows = 4\n'
PART = f"""[part]
{HEAD}file = "parts/part.txt"
columns = {{text = 0}}
rows = 2
make = {{way = "first_rows", of = "whole", rows = 2}}
"""


def test_the_first_rows_of_another_corpus(tmp_path: Path) -> None:
    cards = catalogue(tmp_path, WHOLE, PART)
    corpora = tmp_path / "corpora"
    with pytest.raises(
        SourceError,
        match=r"put parts/part.txt .* `text=NAME` .*make_corpus\(corpus='part'\)",
    ) as caught:
        load_corpus("part", corpora=corpora, catalogue=cards)
    assert caught.value.remedy == Remedy("make", {"corpus": "part"})
    path, rows = make("part", corpora, cards)
    assert (path, rows) == (corpora / "parts" / "part.txt", 2)
    assert list(load_corpus("part", corpora=corpora, catalogue=cards).column("text")) == LINES[:2]
    with pytest.raises(OutputError, match="part.txt: already exists; remove it"):
        make("part", corpora, cards)
    assert [p.name for p in corpora.rglob("*") if p.is_file()] == ["whole.txt.xz", "part.txt"]


def test_other_rows_and_another_hash_than_the_cards_are_told(tmp_path: Path) -> None:
    few = PART.replace("rows = 2\n", "rows = 3\n", 1)
    hashed = (
        PART.replace("[part]", "[hashed]").replace("part.txt", "hashed.txt")
        + f'sha256 = "{"0" * 64}"\n'
    )
    cards = catalogue(tmp_path, WHOLE, few, hashed)
    for corpus, message in (
        ("part", "part.txt: made, but of 2 rows where the card of 'part' says 3: "),
        ("hashed", "hashed.txt: differs from the file that its card names"),
    ):
        with pytest.raises(DataError, match=message):
            make(corpus, tmp_path / "corpora", cards)


OF = "owner/pages"
PAGES = [
    [f"Page {shard} {row} " + "and more " * (row % 5) for row in range(9)] for shard in range(4)
]


def serve(hub: Hub, pages: Sequence[Sequence[str]] = PAGES) -> None:
    shards = {
        f"data/train-0000{at}-of-00004.parquet": parquet_bytes([{"text": text} for text in texts])
        for at, texts in enumerate(pages)
    }
    hub.add(
        "dataset",
        OF,
        {"README.md": b"Pages.", "data/test-0.parquet": parquet_bytes([{"text": "no"}]), **shards},
    )
    hub.add("model", "owner/bert", tiny_bert())


def of_hub(folder: Path, **facts: str) -> Catalogue:
    """A card of the documents of more than 20 tokens."""
    told = {"way": "long_documents", "of": OF, "tokenizer": "owner/bert", **facts}
    made = ", ".join(
        [*(f'{key} = "{value}"' for key, value in told.items()), "tokens = 20, lowercase = true"]
    )
    body = f'file = "pages.txt"\ncolumns = {{document = 0}}\nrows = 12\nmake = {{{made}}}\n'
    return catalogue(folder, f"[pages]\n{HEAD}{body}")


def undisturbed() -> bytes:
    """What is to come of it: of nine pages a file those with three or more times "and more"; a letter is a token."""
    texts = [" ".join(text.lower().split()) for texts in PAGES for text in texts]
    return "".join(f"{text}\n" for text in texts if text.count("and more") >= 3).encode()


def test_long_documents_come_from_the_hub_file_by_file(hub: Hub, tmp_path: Path) -> None:
    serve(hub)
    told: list[tuple[int, int]] = []
    path, rows = make(
        "pages", tmp_path / "corpora", of_hub(tmp_path), lambda *done: told.append(done)
    )
    assert (path.read_bytes(), rows) == (undisturbed(), 12)
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4)]
    fetched = {
        asked.path.rsplit("/", 1)[1]
        for asked in hub.asked
        if asked.method == "GET" and "/resolve/" in asked.path
    }
    assert fetched == {f"train-0000{at}-of-00004.parquet" for at in range(4)} | {
        "config.json", "vocab.txt", "tokenizer_config.json",
    }  # fmt: skip
    # No file of the dataset stays behind, and nothing of the draft.
    assert not list((tmp_path / ".cache").rglob("*.parquet"))
    assert sorted(p.name for p in path.parent.iterdir()) == ["pages.txt", "whole.txt.xz"]


def test_a_damaged_file_of_dataset_or_tokenizer_is_never_read(hub: Hub, tmp_path: Path) -> None:
    serve(hub)
    cards = of_hub(tmp_path)
    for name in ("vocab.txt", "train-00002-of-00004.parquet"):
        hub.fail(name, wrong_bytes=True, methods=("GET",), times=1)
        with pytest.raises(SourceError, match=f"{name}' of .* damaged"):
            make("pages", tmp_path / "corpora", cards)
    # What was whole before is taken as it is.
    before = len(hub.gets("train-00001-of-00004.parquet"))
    assert make("pages", tmp_path / "corpora", cards)[0].read_bytes() == undisturbed()
    assert len(hub.gets("train-00001-of-00004.parquet")) == before


class Stopped(TokenCounter):
    """Stops the run at a call, as a kill would."""

    calls = 0

    def __call__(self, texts: Sequence[str]) -> list[int]:
        Stopped.calls -= 1
        if Stopped.calls == 0:
            raise KeyboardInterrupt
        return super().__call__(texts)


def test_a_stopped_run_goes_on_and_makes_the_same_bytes(hub: Hub, tmp_path: Path) -> None:
    serve(hub)
    cards, corpora = of_hub(tmp_path), tmp_path / "corpora"
    for Stopped.calls in (1, 2, 2):
        with pytest.raises(KeyboardInterrupt):
            make_corpus("pages", corpora=corpora, catalogue=cards, open_tokenizer=Stopped)
        # Half a file's documents, as a kill between two writes leaves them.
        with (corpora / "pages.txt.unfinished").open("ab") as stream:
            stream.write(b"half a docu")
    assert make("pages", corpora, cards)[0].read_bytes() == undisturbed()


def test_a_tokenizer_gets_some_hundred_documents_at_once(hub: Hub, tmp_path: Path) -> None:
    serve(hub, [[PAGES[0][3]] * 2000])
    Stopped.calls = 4
    with pytest.raises(KeyboardInterrupt):
        make_corpus(
            "pages",
            corpora=tmp_path / "corpora",
            catalogue=of_hub(tmp_path),
            open_tokenizer=Stopped,
        )


def test_a_draft_of_another_dataset_or_tokenizer_is_begun_again(hub: Hub, tmp_path: Path) -> None:
    serve(hub)
    cards, corpora = of_hub(tmp_path), tmp_path / "corpora"
    hub.fail("train-00003", status=404, code="EntryNotFound")
    with pytest.raises(SourceError):
        make("pages", corpora, cards)
    assert (corpora / "pages.txt.unfinished").stat().st_size > 0
    hub.faults.clear()
    serve(hub, [PAGES[3], *PAGES[1:]])
    path, rows = make("pages", corpora, cards)
    assert (rows, path.read_text().count("page 3 3 "), path.read_text().count("page 0 ")) == (
        12,
        2,
        0,
    )


@pytest.mark.parametrize(
    ("shard", "problem"),
    [
        (b"PAR1 is not enough", "cannot be read: "),
        (parquet_bytes([{"text": 3}]), "column 'text' holds int64, not text"),
        (parquet_bytes([{"body": "x"}]), r"no column 'text' \(has body\)"),
    ],
    ids=["broken", "numbers", "column"],
)
def test_a_file_that_is_not_as_it_should_be_is_one_line(
    hub: Hub, tmp_path: Path, shard: bytes, problem: str
) -> None:
    serve(hub)
    hub.add("dataset", OF, {"train.parquet": shard})
    message = rf"file 'train.parquet' of dataset 'owner/pages' \(revision main\): {problem}"
    with pytest.raises(DataError, match=message) as caught:
        make("pages", tmp_path / "corpora", of_hub(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"of": "owner/script"}, "'owner/script' .*: has no parquet file for training"),
        (
            {"tokenizer": "owner/bare"},
            "'owner/bare' .*: no files of a tokenizer; choose another model",
        ),
    ],
)
def test_a_dataset_without_parquet_and_a_model_without_tokenizer_are_told(
    hub: Hub, tmp_path: Path, source: dict[str, str], message: str
) -> None:
    serve(hub)
    hub.add("dataset", "owner/script", {"pages.py": b"import os", "test.parquet": b""})
    hub.add("model", "owner/bare", {"model.safetensors": b"x"})
    with pytest.raises(SourceError, match=message):
        make("pages", tmp_path / "corpora", of_hub(tmp_path, **source))


def test_every_corpus_that_is_published_nowhere_says_how_it_is_had() -> None:
    cards = Catalogue().corpora()
    for name, card in cards.items():
        assert card.repo or card.tasks or card.make or card.how, name
        if card.make and card.make.way == "first_rows":
            assert cards[card.make.of].repo and card.make.rows == card.rows


def test_what_is_not_made_says_what_does_instead(tmp_path: Path) -> None:
    for name, message in (
        (
            "caption_pairs",
            "corpus 'caption_pairs' cannot be made from others: the first two, and the third",
        ),
        ("stsb_back_translations", "made by 'stsbench data back-translate stsb_sentences"),
        ("wiki1m", "fetch it, or put it into a folder"),
        ("wiki1m_haed", "unknown corpus 'wiki1m_haed'; did you mean 'wiki1m_head'"),
    ):
        with pytest.raises(StsbenchError, match=message):
            make(name, tmp_path, Catalogue())
