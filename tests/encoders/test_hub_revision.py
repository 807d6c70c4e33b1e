"""Checkpoints whose card names no whole commit: resolved on a Hub on the loopback interface, and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.encoders.load import load_named
from stsbench.encoders.metadata import read_metadata
from tests import hub_server
from tests.cli.commands import Command, write
from tests.hub_files import tiny_bert
from tests.hub_server import Hub

hub = hub_server.hub

COMMIT = "0123456789abcdef" + "a" * 24
CARD = """
name = "Tiny"
kind = "transformer"
method = "none"
backbone = "BERT"
supervision = "none"
overlap = "none"
paper = "none"
license = "mine"
[params]
model = "owner/tiny"
"""


@pytest.fixture(autouse=True)
def model(hub: Hub) -> None:
    hub.add("model", "owner/tiny", tiny_bert(), pinned=COMMIT)


def notes(folder: Path, revision: str) -> list[str]:
    write(
        folder / "cards" / "baselines" / "tiny.toml",
        f'{CARD}revision = "{revision}"\n' if revision else CARD,
    )
    known = load_named("tiny", catalogue=Catalogue([folder / "cards"]))
    assert read_metadata(known.encoder).revision == COMMIT
    return known.notes()


@pytest.mark.parametrize("revision", ["", "unpinned", "main", COMMIT[:7], COMMIT[:39]])
def test_a_card_without_a_whole_commit_tells_which_it_was(revision: str, tmp_path: Path):
    (note,) = notes(tmp_path, revision)
    asked = f"is of revision '{revision or 'unpinned'}', today commit {COMMIT[:12]}"
    assert note == f'the checkpoint of tiny {asked}; revision = "{COMMIT}" in the card keeps it'


def test_a_hub_id_is_kept_by_a_parameter():
    (note,) = load_named("owner/tiny").notes()
    assert note.endswith(f"; the parameter revision={COMMIT} keeps it")
    assert load_named("owner/tiny", params={"revision": COMMIT}).notes() == []


def test_the_run_tells_it_once_for_all_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write(tmp_path / "cards" / "baselines" / "tiny.toml", CARD)
    tasks = ("--tasks", "quickstart-en,quickstart-es-en", "--results", tmp_path / "out")
    code, out, _ = Command(capsys)(
        "run", "--encoder", "tiny", "--cards", tmp_path / "cards", *tasks
    )
    assert code == 0
    assert (
        " ".join(out.split()).count(
            "quickstart-en, quickstart-es-en: the checkpoint of tiny is of revision"
        )
        == 1
    )
    assert COMMIT in out.replace("\n", "")


def test_a_part_of_a_checkpoint_in_the_cache_gives_no_score(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Without modules.json, which is not in the cache, the mean would be taken for the first token."""
    from huggingface_hub import hf_hub_download

    hub.add("model", "owner/st", {**tiny_bert(), "modules.json": b"[]"}, pinned=COMMIT)
    for name in tiny_bert():
        hf_hub_download("owner/st", name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    arguments = ("--tasks", "quickstart-en", "--results", tmp_path / "out")
    code, _, err = Command(capsys)("run", "--encoder", "owner/st", *arguments)
    assert code == 2 and "but no list of" in err
    assert not list((tmp_path / "out").rglob("*.json"))


FITTED = CARD.replace("transformer", "whitening").replace('model = "owner/tiny"', 'base = "BASE"')


@pytest.mark.parametrize("base", ["tiny", "owner/tiny", "tiny+pooling=mean"])
@pytest.mark.parametrize("revision", ["", "main", COMMIT])
def test_a_fitted_encoder_tells_the_revision_of_its_base(base: str, revision: str, tmp_path: Path):
    cards = tmp_path / "cards" / "baselines"
    write(cards / "tiny.toml", CARD)
    given = f'base_params = {{revision = "{revision}"}}\n' if revision else ""
    write(cards / "whitened.toml", FITTED.replace("BASE", base) + given)
    known = load_named("whitened", catalogue=Catalogue([tmp_path / "cards"]))
    asked = f"is of revision '{revision or 'unpinned'}', today commit {COMMIT[:12]}"
    said = f"the checkpoint of whitened {asked}; "
    line = f'base_params = {{revision = "{COMMIT}"}} in the card keeps it'
    assert known.notes() == ([] if revision == COMMIT else [said + line])
    # A Hub id is run as the card that names it says.
    if revision == "" and base == "owner/tiny":
        write(cards / "tiny.toml", f'{CARD}revision = "{COMMIT}"\n')
        assert load_named("whitened", catalogue=Catalogue([tmp_path / "cards"])).notes() == []
