"""Files from a Hub on the loopback interface: each ends well or in one clear line."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stsbench.data.hub import fetch_file
from stsbench.data.hub.repository import forget
from tests import hub_server
from tests.hub_files import sha256
from tests.hub_server import Hub, one_line, point_at, unplug

hub = hub_server.hub

DATA = bytes(range(256)) * 2000
REPO = "owner/corpus"


def fetch(name: str = "corpus.bin", *, repo: str = REPO, revision: str = "unpinned", sha256: str = "") -> Path:
    return fetch_file(repo, name, revision=revision, kind="dataset", sha256=sha256, without="use a folder").path


def asked(hub: Hub) -> int:
    """Requests so far; the library also asks which agents there are, once."""
    return sum("agent-harnesses" not in request.path for request in hub.asked)


@pytest.fixture(autouse=True)
def corpus(hub: Hub) -> str:
    return hub.add("dataset", REPO, {"corpus.bin": DATA, "notes.txt": b"small", "deep/er/x.txt": b"deep"}).commit


def test_a_file_comes_whole_with_its_commit(hub: Hub, corpus: str):
    found = fetch_file(REPO, "corpus.bin", revision="unpinned", kind="dataset")
    assert found.path.read_bytes() == DATA
    assert (found.commit, found.sha256) == (corpus, sha256(DATA))
    assert fetch("deep/er/x.txt").read_bytes() == b"deep"


def test_a_pinned_file_is_asked_for_once_and_then_needs_no_network(hub: Hub, corpus: str):
    fetch(revision=corpus)
    before = asked(hub)
    assert fetch(revision=corpus).read_bytes() == DATA
    assert asked(hub) == before


def test_a_branch_moves_with_the_hub(hub: Hub, corpus: str):
    fetch()
    moved = hub.add("dataset", REPO, {"corpus.bin": b"new"})
    found = fetch_file(REPO, "corpus.bin", revision="unpinned", kind="dataset")
    assert (found.path.read_bytes(), found.commit) == (b"new", moved.commit)
    assert found.commit != corpus


def test_a_broken_download_goes_on_where_it_stopped(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    # The library keeps what came in whole chunks, of 10 MB each.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1 << 16)
    hub.fail("corpus.bin", cut_after=200_000, methods=("GET",), times=2)
    assert fetch().read_bytes() == DATA
    assert [request.range for request in hub.gets("corpus.bin")] == ["", "bytes=196608-", "bytes=393216-"]


def test_a_download_that_always_breaks_ends(hub: Hub):
    hub.fail("corpus.bin", cut_after=100, methods=("GET",))
    assert "the connection breaks again and again" in one_line(fetch)
    hub.faults.clear()
    assert fetch().read_bytes() == DATA


@pytest.mark.parametrize("part", ["/api/", "/resolve/"])
def test_a_hub_that_stumbles_is_asked_again(hub: Hub, part: str):
    hub.fail(part, status=503, times=2)
    assert fetch().read_bytes() == DATA


def test_wrong_bytes_are_removed_so_that_the_next_run_is_well(hub: Hub):
    hub.fail("corpus.bin", wrong_bytes=True, methods=("GET",), times=1)
    text = one_line(fetch)
    assert text.startswith("file 'corpus.bin' of dataset 'owner/corpus' (revision main): damaged (sha256 ")
    assert text.endswith("it has left the cache: run again to fetch it anew")
    assert fetch().read_bytes() == DATA


def test_a_file_damaged_in_the_cache_is_fetched_again(hub: Hub, corpus: str):
    for name, whole in (("corpus.bin", DATA), ("notes.txt", b"small")):
        fetch(name, revision=corpus).resolve().write_bytes(whole[:-1] + b"?")
        assert fetch(name, revision=corpus).read_bytes() == whole
        assert len(hub.gets(name)) == 2


@pytest.mark.parametrize(("name", "kind"), [("corpus.bin", "sha256"), ("notes.txt", "git hash")])
def test_a_file_damaged_in_the_cache_is_told_without_network(
    hub: Hub, corpus: str, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    fetch(name, revision=corpus).resolve().write_bytes(b"rot")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = one_line(lambda: fetch(name, revision=corpus))
    assert f"the copy in the cache is damaged ({kind} " in text and "cannot be fetched again: " in text
    assert "the Hub is switched off (HF_HUB_OFFLINE)" in text


def test_a_card_names_another_file(hub: Hub):
    text = one_line(lambda: fetch(sha256="f" * 64))
    assert "not the file the card names" in text and "pin the card's revision" in text
    assert fetch(sha256=sha256(DATA)).is_file(), "the Hub's own file is whole and stays"
    assert "not the file the card names" in one_line(lambda: fetch("notes.txt", sha256="f" * 64))


FAULTS: dict[str, tuple[Callable[[], object], dict[str, Any], str]] = {
    "repository": (lambda: fetch(repo="owner/none"), {}, "no such dataset on the Hub, or it is private.*hf auth login"),
    "revision": (lambda: fetch(revision="v9"), {}, r"\(revision v9\): there is no such revision"),
    "commit": (lambda: fetch(revision="a" * 40), {}, r"\(revision aaaaaaaaaaaa\): there is no such revision"),
    "file": (lambda: fetch("corpus.bn"), {}, "there is no such file; did you mean 'corpus.bin'?"),
    "name": (lambda: fetch(repo="a//b"), {}, "no repository can have this name"),
    "gone file": (fetch, {"part": "resolve", "status": 404, "code": "EntryNotFound"}, "there is no such file"),
    "401": (fetch, {"part": "/api/", "status": 401}, r"access is denied \(HTTP 401\).*HF_TOKEN"),
    "403": (fetch, {"part": "resolve", "status": 403}, r"access is denied \(HTTP 403\)"),
    "429": (fetch, {"part": "/api/", "status": 429}, "asked too often"),
    "500": (fetch, {"part": "/api/", "status": 500}, r"out of order \(HTTP 500\); try again later; or use a folder"),
    "500 file": (fetch, {"part": "resolve", "status": 500}, r"out of order \(HTTP 500\)"),
    "502 download": (fetch, {"part": "resolve", "status": 502, "methods": ("GET",)}, r"out of order \(HTTP 502\)"),
    "slow": (fetch, {"part": "/api/", "stall": True}, "does not answer in time"),
    "slow file": (fetch, {"part": "resolve", "stall": True}, "does not answer in time"),
    "slow download": (fetch, {"part": "resolve", "stall": True, "methods": ("GET",)}, "does not answer in time"),
    "login page": (fetch, {"part": "/api/", "not_a_hub": True}, "what answers is not the Hub"),
    "login page for a file": (fetch, {"part": "resolve", "not_a_hub": True}, "what answers is not the Hub"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_every_failure_is_one_clear_line(hub: Hub, case: str, capfd: pytest.CaptureFixture[str]):
    call, fault, expected = FAULTS[case]
    if fault:
        hub.fail(**fault)
    text = one_line(call)
    assert re.search(expected, text), text
    assert re.match(r"(file '.*' of )?dataset '.*' \(revision .*\): ", text)
    assert capfd.readouterr() == ("", "")


def test_no_network_at_all(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    unplug(monkeypatch)
    text = one_line(lambda: fetch_file(REPO, "x", revision="unpinned", kind="dataset"))
    assert "dataset 'owner/corpus' (revision main): cannot reach the Hub (Connection refused)" in text
    assert "--data DIR (or set STSBENCH_DATA), or run 'stsbench run' on the quickstart suite" in text
    point_at(monkeypatch, "http://no-such-host.invalid")
    assert "cannot reach the Hub (" in one_line(fetch)


def test_without_network_the_last_answer_holds(hub: Hub, corpus: str, monkeypatch: pytest.MonkeyPatch):
    fetch()
    unplug(monkeypatch)
    assert fetch().read_bytes() == DATA
    assert "file 'notes.txt' of dataset 'owner/corpus' (revision main): cannot reach the Hub" in one_line(
        lambda: fetch("notes.txt")
    )


def test_a_file_that_another_program_cached_is_found_without_network(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    from huggingface_hub import hf_hub_download

    hf_hub_download(REPO, "corpus.bin", repo_type="dataset")
    unplug(monkeypatch)
    assert fetch().read_bytes() == DATA
    assert "cannot reach the Hub" in one_line(lambda: fetch("notes.txt"))


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_mode_asks_nobody(hub: Hub, variable: str, monkeypatch: pytest.MonkeyPatch):
    fetch()
    before = asked(hub)
    monkeypatch.setenv(variable, "1")
    assert fetch().read_bytes() == DATA
    for call in (lambda: fetch("notes.txt"), lambda: fetch(repo="owner/none")):
        assert "the cache has no complete copy, and the Hub is switched off" in one_line(call)
    assert asked(hub) == before


@pytest.mark.parametrize(
    ("code", "expected"), [(errno.ENOSPC, "the disk is full; free some space"), (errno.EACCES, "cannot be written")]
)
def test_a_disk_that_takes_no_more(hub: Hub, code: int, expected: str, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(code, "as the system says")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", refuse)
    # The library warns of a disk that looks too small, but tries.
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1))
    assert expected in one_line(fetch)


def test_a_bug_keeps_its_traceback(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.file_download.http_get", lambda: None)
    with pytest.raises(TypeError):
        fetch()


def test_a_cache_of_ours_that_cannot_be_written_is_done_without(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STSBENCH_CACHE", "/dev/null/cache")
    assert fetch().read_bytes() == DATA


def test_a_file_outside_the_cache_is_never_removed(hub: Hub, tmp_path: Path):
    mine = tmp_path / "mine.bin"
    mine.write_bytes(b"mine")
    assert not forget(mine) and mine.read_bytes() == b"mine"
