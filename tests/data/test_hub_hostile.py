"""What no Hub answers, and names that no repository has: each ends in one clear line, inside the cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stsbench.core import settings
from stsbench.core.cards import HubSource
from stsbench.data.hub import fetch_archive, fetch_checkpoint, fetch_file, fetch_rows
from tests import hub_server
from tests.hub_files import ROWS, jsonl, tiny_bert
from tests.hub_server import Hub, Repo, one_line

hub = hub_server.hub

REPO = "owner/model"


@pytest.fixture(autouse=True)
def model(hub: Hub) -> Repo:
    return hub.add("model", REPO, tiny_bert())


def checkpoint(repo: str = REPO, revision: str = "unpinned") -> object:
    return fetch_checkpoint(repo, revision=revision)


def written(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


# --- names ---

REPOS = [
    "a/b@main",
    "owner/na me",
    "a--b/c",
    "a/..",
    "../a",
    "a/b/c",
    "/a",
    "a/",
    "",
    "a\0b",
    "a/\ud800",
    "x.git",
    "é/a",
    "a" * 200,
    "-a/b",
]


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("repo", REPOS)
def test_what_no_repository_is_called(hub: Hub, repo: str, offline: bool, monkeypatch: pytest.MonkeyPatch):
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    source = HubSource(repo=repo, revision="unpinned", splits={"test": "test"}, archive="x.tar")
    calls: list[Callable[[], object]] = [
        lambda: checkpoint(repo),
        lambda: fetch_file(repo, "x", revision="unpinned", kind="dataset"),
        lambda: fetch_rows(source, "test"),
        lambda: fetch_archive(source),
    ]
    for call in calls:
        text = one_line(call)
        assert "no repository can have this name; names look like 'owner/name'" in text and text.isprintable()
        assert ("named apart, by 'revision'" in text) is (repo == "a/b@main")
    assert not hub.asked


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize(
    "revision", ["../../x", "a b", "a\0b", "/main", "main/", "a\nb", "..", "a" * 99 + "\x1b[0m", "é"]
)
def test_what_no_revision_is_called(hub: Hub, revision: str, offline: bool, monkeypatch: pytest.MonkeyPatch):
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = one_line(lambda: checkpoint(revision=revision))
    assert "no revision can have this name; give a branch, a tag or a commit" in text and text.isprintable()
    assert not hub.asked


def test_a_branch_of_any_name_has_a_note_of_its_own(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    """``a/b`` at ``c`` is not ``a`` at ``b--c``; a name too long for a file is done without."""
    for revision in ("refs/pr/1", "b--c", "+" * 200):
        one_line(lambda revision=revision: checkpoint(revision=revision))  # type: ignore[misc]
    hub.add("model", "a", tiny_bert())
    checkpoint("a")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "the Hub is switched off" in one_line(lambda: checkpoint("a", revision="main--main"))


NAMES = [
    "../../../../x.json", "/etc/x.json", "a/../../x.json", "./x.json", "a//x.json", "..\\x.json", "C:/x.json", "c:x.json",
    "x\0.json", "a\x1b[2Jx.json", "a/" + "x" * 300 + ".json", "\ud800.json", "a\n.json",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_file_leads_out_of_the_cache(hub: Hub, name: str, tmp_path: Path):
    hub.add("model", REPO, {**tiny_bert(), name: b"{}"})
    before = written(tmp_path)
    text = one_line(checkpoint)
    assert "no file may be called" in text and "lead outside the cache" in text and text.isprintable()
    outside = {p for p in written(tmp_path) - before if not p.is_relative_to(tmp_path / ".cache" / "hub")}
    assert all(p.is_relative_to(settings.cache_folder() / "hub") for p in outside)
    assert "no file may be called" in one_line(lambda: fetch_file(REPO, name, revision="unpinned", kind="model"))


def test_names_of_data_files_and_archives_stay_inside_too(hub: Hub):
    hub.add("dataset", REPO, {"../../x.jsonl.gz": jsonl(ROWS), "../x.tar": b""})
    source = HubSource(repo=REPO, revision="unpinned", splits={"test": "test"}, archive="../x.tar")
    for call in (lambda: fetch_rows(source, "test"), lambda: fetch_archive(source)):
        assert "no file may be called '../" in one_line(call)


# --- answers ---


def answer(repo: Repo, **changes: Any) -> bytes:
    return json.dumps(repo.info() | changes).encode()


SIBLING = {"rfilename": "config.json", "size": 2, "blobId": "a" * 40}
ODD: dict[str, Callable[[Repo], bytes]] = {
    "a list": lambda repo: b"[]",
    "a number": lambda repo: b"3",
    "null": lambda repo: b"null",
    "text": lambda repo: b'"x"',
    "nothing": lambda repo: b"{}",
    "nested": lambda repo: b"[" * 100_000,
    "nested inside": lambda repo: b'{"siblings": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "no files' list": lambda repo: answer(repo, siblings=7),
    "files of no name": lambda repo: answer(repo, siblings=[{"size": 1}]),
    "files that are numbers": lambda repo: answer(repo, siblings=[1, 2]),
    "a name that is a number": lambda repo: answer(repo, siblings=[{"rfilename": 5}]),
    "a name that is a list": lambda repo: answer(repo, siblings=[{"rfilename": ["config.json"]}]),
    "doubled names": lambda repo: answer(repo, siblings=[SIBLING, {**SIBLING, "blobId": "b" * 40}]),
    "large files of no hash": lambda repo: answer(repo, siblings=[{**SIBLING, "lfs": {"size": 1}}]),
    "large files that are text": lambda repo: answer(repo, siblings=[{**SIBLING, "lfs": "x"}]),
    "a hash that is a number": lambda repo: answer(repo, siblings=[{**SIBLING, "blobId": 7}]),
    "a commit that is a path": lambda repo: answer(repo, sha="../../../../x"),
    "a commit that is a number": lambda repo: answer(repo, sha=12),
    "no commit": lambda repo: answer(repo, sha=None),
    "dates": lambda repo: answer(repo, lastModified=[], createdAt="yesterday"),
}


@pytest.mark.parametrize("case", ODD)
def test_an_answer_that_is_none_of_the_hubs(hub: Hub, model: Repo, case: str):
    hub.fail("/api/", body=ODD[case](model))
    assert "model 'owner/model' (revision main): what answers is not the Hub" in one_line(checkpoint)
    hub.faults.clear()
    checkpoint()


def test_another_commit_than_was_asked_for(hub: Hub, model: Repo):
    hub.fail("/api/", body=answer(model, sha="e" * 40))
    assert "what answers is not the Hub" in one_line(lambda: checkpoint(revision=model.commit))


@pytest.mark.parametrize("part", ["/api/", "resolve"])
def test_a_redirection_to_nowhere(hub: Hub, part: str):
    hub.fail(part, status=302)
    assert "what answers is not the Hub" in one_line(checkpoint)


@pytest.mark.parametrize("token", ["hf_süß", "hf_\u2026", "hf_a\nb", "hf_\x00"])
def test_a_token_that_cannot_be_sent(hub: Hub, token: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: token)
    text = one_line(checkpoint)
    assert "HF_TOKEN" in text and token[3:] not in text and "hf_" not in text


# --- commits by their beginning ---


def test_the_beginning_of_a_commit_is_enough(hub: Hub, model: Repo):
    found = fetch_checkpoint(REPO, revision=model.commit[:7])
    assert found.commit == model.commit and found.path.name == model.commit
    asked = len(hub.asked)
    assert fetch_checkpoint(REPO, revision=model.commit[:7]) == found and len(hub.asked) == asked, "it never changes"


def test_the_beginning_of_no_commit(hub: Hub, model: Repo):
    assert "there is no such revision" in one_line(lambda: checkpoint(revision="abcdef0"))
    hub.fail("/api/", body=answer(model, sha="e" * 40))
    assert "what answers is not the Hub" in one_line(lambda: checkpoint(revision=model.commit[:7]))


@pytest.mark.parametrize("etag", ["../../../../../evil", "/tmp/evil-of-a-test", "a/b", "x" * 300, "..", "é"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_hash_that_is_a_path(hub: Hub, etag: str, name: str, tmp_path: Path):
    """The library names its blobs after the answer's ETag, and writes where that leads."""
    hub.fail(f"resolve/{hub.repos['model', REPO].commit}/{name}", etag=etag)
    before = written(tmp_path)
    assert "what answers is not the Hub" in one_line(checkpoint)
    new = {p.relative_to(tmp_path).parts[:2] for p in written(tmp_path) - before}
    assert new <= {(".cache", "hub"), ("stsbench", "hub")}
    assert not Path("/tmp/evil-of-a-test").exists()


@pytest.mark.parametrize("commit", ["../../../../x", "b" * 40])
def test_a_file_of_another_commit(hub: Hub, model: Repo, commit: str):
    hub.fail("resolve", commit=commit)
    assert "what answers is not the Hub" in one_line(checkpoint)
