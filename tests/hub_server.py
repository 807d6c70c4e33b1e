"""A small Hub on the loopback interface that answers as the real one does, and fails as it is told to.

``hub`` is the fixture: import it by name into a test module. It starts a server, points the Hub's
library and our caches at it and at a fresh folder, and shortens every wait.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

from stsbench.core.errors import SourceError
from tests.hub_files import git_hash, sha256

LARGE = (".safetensors", ".bin", ".h5", ".gz", ".parquet", ".tar", ".onnx")
"""Files that the Hub keeps in large-file storage, named by their sha256."""


@dataclass
class Repo:
    """A repository with one commit on its main branch."""

    kind: str
    name: str
    files: dict[str, bytes]
    gated: bool = False
    disabled: bool = False
    pinned: str = ""
    """The commit, where a card names it; else it follows from the files."""

    @property
    def commit(self) -> str:
        if self.pinned:
            return self.pinned
        content = "".join(
            f"{name}{hashlib.sha1(data).hexdigest()}" for name, data in sorted(self.files.items())
        )
        return hashlib.sha1(
            f"{self.kind}{self.name}{content}".encode(errors="surrogatepass")
        ).hexdigest()

    def tree(self, *, name_key: str, git_key: str, lfs_key: str) -> list[dict[str, Any]]:
        """The files, whose facts different answers of the Hub call by different names."""
        rows = []
        for name, data in self.files.items():
            row: dict[str, Any] = {
                "type": "file",
                name_key: name,
                "size": len(data),
                git_key: git_hash(data),
            }
            if name.endswith(LARGE):
                row["lfs"] = {lfs_key: sha256(data), "size": len(data), "pointerSize": 134}
            rows.append(row)
        return rows

    def info(self) -> dict[str, Any]:
        return {
            "_id": "0" * 24,
            "id": self.name,
            "sha": self.commit,
            "private": False,
            "gated": "manual" if self.gated else False,
            "disabled": self.disabled,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "siblings": self.tree(name_key="rfilename", git_key="blobId", lfs_key="sha256"),
        }


@dataclass
class Fault:
    """What goes wrong where a request's path holds ``part``; ``times`` counts down, below zero it never ends."""

    part: str
    status: int = 0
    code: str = ""
    """The X-Error-Code header that goes with a status."""
    cut_after: int = -1
    """Break the connection after so many bytes of the body."""
    wrong_bytes: bool = False
    etag: str = ""
    """The name that a file's bytes get, where another than the hash."""
    commit: str = ""
    """The commit that a file is said to be of."""
    stall: bool = False
    not_a_hub: bool = False
    """Answer 200 with a page of HTML, as a network's login page does."""
    body: bytes | None = None
    """Answer 200 with these bytes as JSON."""
    methods: tuple[str, ...] = ("GET", "HEAD")
    times: int = -1


class Asked(NamedTuple):
    method: str
    path: str
    range: str


@dataclass
class Hub:
    """The server: its repositories, its faults, and what it was asked."""

    repos: dict[tuple[str, str], Repo] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def add(self, kind: str, name: str, files: Mapping[str, bytes], **facts: Any) -> Repo:
        """Add a repository or replace it, which moves its main branch to a new commit."""
        repo = self.repos[kind, name] = Repo(kind, name, dict(files), **facts)
        return repo

    def fail(self, part: str, **facts: Any) -> None:
        self.faults.append(Fault(part, **facts))

    def gets(self, name: str) -> list[Asked]:
        return [a for a in self.asked if a.method == "GET" and a.path.endswith(f"/{name}")]

    def fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.part in path and method in fault.methods and fault.times != 0:
                fault.times -= 1
                return fault
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise each answer waits 40 ms for an acknowledgement of its header.
    disable_nagle_algorithm = True
    hub: Hub

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(Asked(self.command, path, self.headers.get("Range", "")))
        fault = self.hub.fault(self.command, path)
        if fault and fault.stall:
            self.hub.closing.wait(60)
            self.close_connection = True
        elif fault and fault.not_a_hub:
            self.send(200, b"<html>please log in</html>", {"Content-Type": "text/html"})
        elif fault and fault.body is not None:
            self.send(200, fault.body, {"Content-Type": "application/json"})
        elif fault and fault.status:
            self.refuse(fault.status, fault.code)
        elif path.startswith("/api/"):
            self.describe(path.removeprefix("/api/").split("/"))
        else:
            self.serve(path.strip("/").split("/"), fault)

    def find(self, parts: Sequence[str], kind: str) -> tuple[Repo | None, list[str]]:
        """The repository that a path names (``name`` or ``owner/name``), and the rest of the path."""
        for size in (2, 1):
            repo = self.hub.repos.get((kind, "/".join(parts[:size])))
            if repo:
                return repo, list(parts[size:])
        return None, []

    def describe(self, parts: Sequence[str]) -> None:
        """``/api/models/ID`` and ``/api/datasets/ID``, at a revision or not; below them ``tree`` and ``paths-info``."""
        repo, rest = self.find(parts[1:], parts[0].removesuffix("s"))
        if repo is None:
            # What the real one says to those who are not logged in.
            self.refuse(401, "RepoNotFound", "Invalid username or password.")
        elif (
            rest
            and rest[1] != "main"
            and not (len(rest[1]) >= 7 and repo.commit.startswith(rest[1]))
        ):
            # The beginning of a commit is enough here, but not where files are served.
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {rest[1]}")
        else:
            tree = repo.tree(name_key="path", git_key="oid", lfs_key="oid")
            answer = tree if rest and rest[0] in ("tree", "paths-info") else repo.info()
            self.send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def serve(self, parts: list[str], fault: Fault | None) -> None:
        """``[datasets/]ID/resolve/REVISION/FILE``."""
        kind = "dataset" if parts[0] == "datasets" else "model"
        repo, rest = self.find(parts[1:] if kind == "dataset" else parts, kind)
        if repo is None or len(rest) < 3 or rest[0] != "resolve":
            return self.refuse(404, "RepoNotFound", "Repository not found")
        if rest[1] not in ("main", repo.commit):
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {rest[1]}")
        if repo.gated:
            return self.refuse(403, "GatedRepo", f"Access to {kind} {repo.name} is restricted.")
        if repo.disabled:
            return self.refuse(403, "", "Access to this resource is disabled.")
        name = "/".join(rest[2:])
        if name not in repo.files:
            return self.refuse(
                404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": repo.commit}
            )
        return self.send_file(name, repo, fault)

    def send_file(self, name: str, repo: Repo, fault: Fault | None) -> None:
        data = repo.files[name]
        headers = {
            "X-Repo-Commit": repo.commit,
            "ETag": f'"{git_hash(data)}"',
            "Accept-Ranges": "bytes",
        }
        if name.endswith(LARGE):
            headers |= {"X-Linked-Etag": f'"{sha256(data)}"', "X-Linked-Size": str(len(data))}
        status, first = 200, 0
        if asked := self.headers.get("Range"):
            status, first = 206, int(asked.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        if fault and fault.etag:
            headers |= {
                key: f'"{fault.etag}"' for key in ("ETag", "X-Linked-Etag") if key in headers
            }
        if fault and fault.commit:
            headers["X-Repo-Commit"] = fault.commit
        if fault and fault.wrong_bytes:
            data = bytes(byte ^ 255 for byte in data)
        self.send(status, data[first:], headers, cut_after=fault.cut_after if fault else -1)

    def refuse(
        self, status: int, code: str, message: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        extra = {"X-Error-Code": code} if code else {}
        extra |= {"X-Error-Message": message} if message else {}
        self.send(
            status,
            json.dumps({"error": message or "Internal Error"}).encode(),
            {**extra, **(headers or {})},
        )

    def send(
        self, status: int, body: bytes, headers: Mapping[str, str], *, cut_after: int = -1
    ) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut_after < 0:
            self.wfile.write(body)
            return
        self.wfile.write(body[:cut_after])
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def start(hub: Hub) -> ThreadingHTTPServer:
    """Serve a Hub in the background; the caller sets ``hub.closing`` and shuts the server down."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    ).start()
    return server


def point_at(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Make the Hub's library, which reads HF_ENDPOINT once when imported, talk to another address."""
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)


def unplug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the library at a port where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        point_at(monkeypatch, f"http://127.0.0.1:{free.getsockname()[1]}")


def one_line(call: Callable[[], object]) -> str:
    """The error that a call ends in, which must be one line and reach the caller soon."""
    began = time.monotonic()
    with pytest.raises(SourceError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text and len(text) < 500
    assert time.monotonic() - began < 20
    return text


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A running Hub that the Hub's library talks to, with empty caches and short waits."""
    from huggingface_hub import close_session, constants

    served = Hub()
    server = start(served)
    point_at(monkeypatch, served.url)
    # A hidden folder above, as ~/.cache is: what reads the cache must not take it for hidden data.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / ".cache" / "hub"))
    # Where the library was first imported while it was switched off, it would stay so.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.3)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, 0.01)))
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "stsbench"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    close_session()
    yield served
    served.closing.set()
    close_session()
    server.shutdown()
    server.server_close()
