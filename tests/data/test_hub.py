"""Files and checkpoints from a Hub on the loopback interface, and what no Hub answers."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stsbench.core import settings
from stsbench.core.cards import HubSource
from stsbench.core.errors import StsbenchError
from stsbench.data.hub.checkpoints import choose_files, fetch_checkpoint
from stsbench.data.hub.repository import HubPath, RepoKind, Repository
from stsbench.data.hub.rows import fetch_archive, fetch_rows
from stsbench.encoders.load import load_encoder
from tests import hub_server
from tests.hub_files import ROWS, jsonl, tiny_bert
from tests.hub_server import Fault, Hub, Repo, one_line, point_at, unplug

hub = hub_server.hub
DATA = bytes(range(256)) * 2000
REPO = "owner/corpus"


real_info = Repo.info


def fetch(name: str = "corpus.bin", *, repo: str = REPO, revision: str = "unpinned") -> Path:
    return Repository(repo, revision=revision, kind="dataset", offline_hint="use a folder").fetch(
        name
    )


def fetch_file(repo: str, name: str, *, kind: RepoKind = "dataset") -> HubPath:
    repository = Repository(repo, revision="unpinned", kind=kind)
    return HubPath(repository.fetch(name), repository.commit)


def asked(hub: Hub) -> int:
    """Requests so far; the library also asks which agents there are, once."""
    return sum("agent-harnesses" not in request.path for request in hub.asked)


@pytest.fixture(autouse=True)
def corpus(hub: Hub) -> str:
    return hub.add(
        "dataset", REPO, {"corpus.bin": DATA, "notes.txt": b"small", "deep/er/x.txt": b"deep"}
    ).commit


def test_a_file_comes_whole_with_its_commit(hub: Hub, corpus: str):
    fetched = fetch_file(REPO, "corpus.bin")
    assert fetched.path.read_bytes() == DATA
    assert fetched.commit == corpus
    assert fetch("deep/er/x.txt").read_bytes() == b"deep"


def test_a_tag_of_digits_is_no_commit(hub: Hub, monkeypatch):
    # The server finds only revisions that its commit begins with.
    hub.repos["dataset", REPO].pinned = "20231015".ljust(40, "0")
    for commit in ("a" * 40, "f" * 40):
        info = {**real_info(hub.repos["dataset", REPO]), "sha": commit}
        monkeypatch.setattr(Repo, "info", lambda repo, info=info: info)
        # A tag may be moved, so its list of files is asked for each time.
        assert Repository(REPO, revision="20231015", kind="dataset").commit == commit


def test_a_pinned_file_is_asked_for_once_and_then_needs_no_network(hub: Hub, corpus: str):
    fetch(revision=corpus)
    before = asked(hub)
    assert fetch(revision=corpus).read_bytes() == DATA
    assert asked(hub) == before


def test_a_branch_moves_with_the_hub(hub: Hub, corpus: str):
    fetch()
    moved = hub.add("dataset", REPO, {"corpus.bin": b"new"})
    fetched = fetch_file(REPO, "corpus.bin")
    assert (fetched.path.read_bytes(), fetched.commit) == (b"new", moved.commit)
    assert fetched.commit != corpus


def test_a_broken_download_goes_on_where_it_stopped(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    # The library keeps what came in whole chunks, of 10 MB each.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1 << 16)
    hub.fail("corpus.bin", cut_after=200_000, methods=("GET",), times=2)
    assert fetch().read_bytes() == DATA
    assert [request.range for request in hub.gets("corpus.bin")] == [
        "",
        "bytes=196608-",
        "bytes=393216-",
    ]


@pytest.mark.parametrize("part", ["/api/", "/resolve/"])
def test_a_hub_that_stumbles_is_asked_again(hub: Hub, part: str):
    hub.fail(part, status=503, times=2)
    assert fetch().read_bytes() == DATA


def test_wrong_bytes_are_fetched_anew_by_the_next_run(hub: Hub, tmp_path: Path):
    hub.fail("corpus.bin", wrong_bytes=True, methods=("GET",), times=1)
    text = one_line(fetch)
    assert text.startswith("file 'corpus.bin' of dataset 'owner/corpus' (revision main): damaged")
    assert text.endswith("run again to fetch it anew")
    assert not [path for path in written(tmp_path) if path.stat().st_size == len(DATA)], (
        "others would read it"
    )
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
    damage, _, reason = text.partition(" and cannot be fetched again: ")
    assert f"the copy in the cache is damaged ({kind} " in damage
    assert "and the Hub is switched off (HF_HUB_OFFLINE)" in reason


NOT_THE_HUB = "what answers is not the Hub"
FAULTS: dict[str, tuple[Callable[[], object], dict[str, Any], str]] = {
    "repository": (
        lambda: fetch(repo="owner/none"),
        {},
        "no such dataset on the Hub, or it is private.*hf auth login",
    ),
    "revision": (lambda: fetch(revision="v9"), {}, r"\(revision v9\): there is no such revision"),
    "commit": (
        lambda: fetch(revision="a" * 40),
        {},
        r"\(revision aaaaaaaaaaaa\): there is no such revision",
    ),
    "file": (lambda: fetch("corpus.bn"), {}, "there is no such file; did you mean 'corpus.bin'?"),
    "name": (
        lambda: fetch(repo="a//b"),
        {},
        "no repository can have this name; names look like 'owner/name'",
    ),
    "name with a revision": (
        lambda: fetch(repo="a/b@main"),
        {},
        "names look like 'owner/name'; a revision is named apart, by 'revision'",
    ),
    "name of a revision": (
        lambda: fetch(revision="a b"),
        {},
        "no revision can have this name; give a branch, a tag or a commit",
    ),
    "always cut off": (
        fetch,
        {"part": "corpus.bin", "cut_after": 100, "methods": ("GET",)},
        "the connection breaks again and again",
    ),
    "gone file": (
        fetch,
        {"part": "resolve", "status": 404, "code": "EntryNotFound"},
        "there is no such file",
    ),
    "401": (fetch, {"part": "/api/", "status": 401}, r"access is denied \(HTTP 401\).*HF_TOKEN"),
    "403": (fetch, {"part": "resolve", "status": 403}, r"access is denied \(HTTP 403\)"),
    "429": (fetch, {"part": "/api/", "status": 429}, "asked too often"),
    "429 later": (
        fetch,
        {"part": "resolve", "after": 1, "status": 429, "methods": ("HEAD",)},
        "asked too often",
    ),
    "500": (
        fetch,
        {"part": "/api/", "status": 500},
        r"out of order \(HTTP 500\); try again later; or use a folder",
    ),
    "500 file": (fetch, {"part": "resolve", "status": 500}, r"out of order \(HTTP 500\)"),
    "502 download": (
        fetch,
        {"part": "resolve", "status": 502, "methods": ("GET",)},
        r"out of order \(HTTP 502\)",
    ),
    "slow": (fetch, {"part": "/api/", "stall": True}, "does not answer in time"),
    "slow file": (fetch, {"part": "resolve", "stall": True}, "does not answer in time"),
    "slow download": (
        fetch,
        {"part": "resolve", "stall": True, "methods": ("GET",)},
        "does not answer in time",
    ),
    "login page": (fetch, {"part": "/api/", "not_a_hub": True}, NOT_THE_HUB),
    "login page for a file": (
        fetch,
        {"part": "resolve", "not_a_hub": True},
        NOT_THE_HUB,
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_every_failure_is_one_clear_line(hub: Hub, case: str, capfd: pytest.CaptureFixture[str]):
    call, fault, expected = FAULTS[case]
    if fault:
        hub.faults += [Fault("resolve", methods=("HEAD",), times=fault.pop("after", 0))]
        hub.fail(**fault)
    text = one_line(call)
    assert re.search(expected, text), text
    assert re.match(r"(file '.*' of )?dataset '.*' \(revision .*\): ", text)
    assert capfd.readouterr() == ("", "")
    hub.faults.clear()
    assert fetch().read_bytes() == DATA


def test_no_network_at_all(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    unplug(monkeypatch)
    text = one_line(lambda: fetch_file(REPO, "x"))
    assert text.startswith(
        "dataset 'owner/corpus' (revision main): cannot reach the Hub (Connection refused)"
    )
    assert "`data=DIR` (or set STSBENCH_DATA), or score the quickstart suite" in text
    point_at(monkeypatch, "http://no-such-host.invalid")
    assert "cannot reach the Hub (" in one_line(fetch)


def test_without_network_the_last_answer_holds(
    hub: Hub, corpus: str, monkeypatch: pytest.MonkeyPatch
):
    fetch()
    unplug(monkeypatch)
    assert fetch().read_bytes() == DATA
    assert one_line(lambda: fetch("notes.txt")).startswith("file 'notes.txt' of dataset 'owner/")


def test_a_file_that_another_program_cached_is_found_without_network(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
):
    from huggingface_hub import hf_hub_download

    hf_hub_download(REPO, "corpus.bin", repo_type="dataset")
    unplug(monkeypatch)
    assert fetch().read_bytes() == DATA
    assert "cannot reach the Hub (" in one_line(lambda: fetch("notes.txt"))


@pytest.mark.parametrize(
    "variable", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"]
)
def test_offline_mode_asks_nobody(hub: Hub, variable: str, monkeypatch: pytest.MonkeyPatch):
    fetch()
    before = asked(hub)
    monkeypatch.setenv(variable, "1")
    assert fetch().read_bytes() == DATA
    for call in (lambda: fetch("notes.txt"), lambda: fetch(repo="owner/none")):
        assert "the cache has no complete copy" in one_line(call)
    assert asked(hub) == before


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSPC, "is full; free some"),
        (errno.EACCES, "cannot be written"),
        (errno.ENOENT, "check SSL_CERT_FILE"),
    ],
)
def test_a_disk_that_takes_no_more(
    hub: Hub, code: int, expected: str, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(code, "as the system says")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", refuse)
    # The library warns of a disk that looks too small, but tries.
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1))
    assert expected in one_line(fetch)


@pytest.mark.parametrize(
    "assignment", ["HF_HUB_ETAG_TIMEOUT=abc", "HF_HUB_DOWNLOAD_TIMEOUT=", "HF_ENDPOINT=http://["]
)
def test_a_variable_at_which_the_hubs_library_would_end_is_named(
    assignment: str, monkeypatch: pytest.MonkeyPatch
):
    name, _, value = assignment.partition("=")
    monkeypatch.setenv(name, value)
    for call in (fetch, lambda: load_encoder("minilm")):
        with pytest.raises(
            StsbenchError, match=f"^{name}='.*' is not an? .*; set it to one, or unset it$"
        ):
            call()


def test_a_bug_keeps_its_traceback(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.file_download.http_get", lambda: None)
    with pytest.raises(TypeError):
        fetch()


def test_a_cache_of_ours_that_cannot_be_written_is_done_without(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STSBENCH_CACHE", "/dev/null/cache")
    assert fetch().read_bytes() == DATA


def test_what_need_not_be_kept_goes_to_another_folder(hub: Hub, corpus: str, tmp_path: Path):
    repository, into = Repository(REPO, revision=corpus, kind="dataset"), tmp_path / "into"
    assert repository.fetch("corpus.bin", into=into) == into / "corpus.bin"
    kept = fetch(revision=corpus)
    assert kept != into / "corpus.bin" and repository.fetch("corpus.bin", into=into) == kept


def test_a_checkpoint_is_safetensors_and_never_code(hub: Hub):
    files = tiny_bert()
    own = {
        "1_Pooling/config.json": b"{}",
        "bpe.codes": b"codes",
        "source.spm": b"spm",
        "prophetnet.tokenizer": b"words",
    }
    extra = [
        "pytorch_model.bin",
        "tf_model.h5",
        "onnx/model.onnx",
        "modeling.py",
        "training_args.bin",
        "README.md",
    ]
    repo = hub.add("model", "owner/bert", {**files, **dict.fromkeys(extra, b"no"), **own})
    fetched = fetch_checkpoint("owner/bert", revision="unpinned")
    assert fetched.commit == repo.commit
    names = {p.relative_to(fetched.path).as_posix() for p in fetched.path.rglob("*") if p.is_file()}
    assert names == {*files, *own}
    assert hub.asked[-1].path.endswith("/model.safetensors"), "weights come last"


def st_model() -> dict[str, bytes]:
    """A checkpoint that pools by the first token; without its own files the mean is assumed."""
    pooling = {
        "word_embedding_dimension": 16,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
    }
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {
            "idx": 1,
            "name": "1",
            "path": "1_Pooling",
            "type": "sentence_transformers.models.Pooling",
        },
    ]
    own = {"modules.json": modules, "1_Pooling/config.json": pooling}
    return {**tiny_bert(), **{name: json.dumps(value).encode() for name, value in own.items()}}


def test_a_part_of_a_checkpoint_is_not_taken_for_all_of_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
):
    """What another program left in the cache would run, with another pooling."""
    from huggingface_hub import hf_hub_download

    hub.add("model", "owner/st", st_model())
    for name in tiny_bert():
        hf_hub_download("owner/st", name)
    unplug(monkeypatch)
    text = one_line(lambda: fetch_checkpoint("owner/st", revision="unpinned"))
    assert text.startswith("model 'owner/st' (revision main): cannot reach the Hub (")
    files = ", ".join(sorted(tiny_bert()))
    assert f"the cache holds files of it ({files}), but no list of all it needs: " in text
    assert text.endswith("'hf download owner/st' fetches all")


def test_without_network_a_known_list_says_what_is_missing(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
):
    hub.add("model", "owner/st", st_model())
    path = fetch_checkpoint("owner/st", revision="unpinned").path
    unplug(monkeypatch)
    assert fetch_checkpoint("owner/st", revision="unpinned").path == path
    (path / "modules.json").unlink()
    text = one_line(lambda: fetch_checkpoint("owner/st", revision="unpinned"))
    assert text.startswith("file 'modules.json' of model 'owner/st' (revision main): ")


def test_what_hf_download_fetched_whole_needs_no_network(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    from huggingface_hub import snapshot_download

    commit = hub.add("model", "owner/st", st_model()).commit
    folder = Path(snapshot_download("owner/st"))
    unplug(monkeypatch)
    for revision in ("unpinned", commit):
        assert fetch_checkpoint("owner/st", revision=revision) == (folder, commit)
    (folder / "1_Pooling" / "config.json").unlink()
    text = one_line(lambda: fetch_checkpoint("owner/st", revision="unpinned"))
    assert text.startswith("file '1_Pooling/config.json' of model 'owner/st' (revision main): ")


@pytest.mark.parametrize(
    "content", [b"", b"[", b"[" * 100_000, b'{"commit": 3, "files": {}}', b"\xff"]
)
def test_a_damaged_note_is_no_list(hub: Hub, content: bytes):
    commit = hub.add("model", "owner/st", st_model()).commit
    fetch_checkpoint("owner/st", revision=commit)
    (note,) = (settings.cache_folder() / "hub").iterdir()
    note.write_bytes(content)
    assert (fetch_checkpoint("owner/st", revision=commit).path / "modules.json").is_file()
    assert commit.encode() in note.read_bytes()


def test_a_model_without_weights_names_those_it_has(hub: Hub):
    hub.add("model", "owner/flax", {"config.json": b"{}", "tf_model.h5": b"x", "train.py": b""})
    text = one_line(lambda: fetch_checkpoint("owner/flax", revision="unpinned"))
    assert text.startswith(
        "model 'owner/flax' (revision main): no weights in model.safetensors or "
        "pytorch_model.bin, only tf_model.h5"
    )


SHARDS = [
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
]


@pytest.mark.parametrize(
    ("names", "weights"),
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (["pytorch_model.bin", "rust_model.ot"], ["pytorch_model.bin"]),
        ([*SHARDS, "pytorch_model.bin", "pytorch_model.bin.index.json"], SHARDS),
        ([*SHARDS, "model.safetensors"], ["model.safetensors"]),
        (["model.safetensors.index.json", "pytorch_model.bin"], ["pytorch_model.bin"]),
        (
            ["model.safetensors", "2_Dense/pytorch_model.bin", "openvino/openvino_model.bin"],
            ["2_Dense/pytorch_model.bin", "model.safetensors"],
        ),
        (["model.fp16.safetensors", "flax_model.msgpack", "training_args.bin"], []),
    ],
)
def test_choice_of_weights(names: list[str], weights: list[str]):
    others = ["config.json", "sub/vocab.txt", "tokenizer.model"]
    code = ["run.py", "sub/x.py", "lib.so"]
    assert choose_files([*names, *others, *code]) == (others, weights)


def test_gated_and_disabled_models_say_what_to_do(hub: Hub):
    hub.add("model", "owner/gated", tiny_bert(), gated=True)
    text = one_line(lambda: fetch_checkpoint("owner/gated", revision="unpinned"))
    assert "gated" in text
    assert "ask for access at https://huggingface.co/owner/gated and log in" in text
    hub.add("model", "owner/shut", tiny_bert(), disabled=True)
    assert "disabled" in one_line(lambda: fetch_checkpoint("owner/shut", revision="unpinned"))


MODEL = "owner/model"


@pytest.fixture(autouse=True)
def model(hub: Hub) -> Repo:
    return hub.add("model", MODEL, tiny_bert())


def checkpoint(repo: str = MODEL, revision: str = "unpinned") -> object:
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
def test_what_no_repository_is_called(
    hub: Hub, repo: str, offline: bool, monkeypatch: pytest.MonkeyPatch
):
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    source = HubSource(repo=repo, revision="unpinned", splits={"test": "test"}, archive="x.tar")
    calls: list[Callable[[], object]] = [
        lambda: checkpoint(repo),
        lambda: fetch_file(repo, "x"),
        lambda: fetch_rows(source, "test"),
        lambda: fetch_archive(source),
    ]
    for call in calls:
        text = one_line(call)
        assert "no repository can have" in text
        assert text.isprintable()
        assert ("'revision'" in text) is (repo == "a/b@main")
    assert not hub.asked


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize(
    "revision",
    ["../../x", "a b", "a\0b", "/main", "main/", "a\nb", "..", "a" * 99 + "\x1b[0m", "é"],
)
def test_what_no_revision_is_called(
    hub: Hub, revision: str, offline: bool, monkeypatch: pytest.MonkeyPatch
):
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = one_line(lambda: checkpoint(revision=revision))
    assert "no revision can have" in text
    assert text.isprintable()
    assert not hub.asked


def test_a_branch_of_any_name_has_a_note_of_its_own(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    """``a/b`` at ``c`` is not ``a`` at ``b--c``; a name too long for a file is done without."""
    for revision in ("refs/pr/1", "b--c", "+" * 200):
        one_line(lambda revision=revision: checkpoint(revision=revision))  # type: ignore[misc]
    hub.add("model", "a", tiny_bert())
    checkpoint("a")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = one_line(lambda: checkpoint("a", revision="main--main"))
    assert text.startswith("model 'a' (revision main--main): ") and "HF_HUB_OFFLINE" in text


@pytest.mark.parametrize(
    "name",
    ["../../../../x.json", "/etc/x.json", "a/../../x.json", "..\\x.json", "C:/x.json", "c:x.json"],
)
def test_no_file_leads_out_of_the_cache(hub: Hub, name: str, tmp_path: Path):
    hub.add("model", MODEL, {**tiny_bert(), name: b"{}"})
    before = written(tmp_path)
    assert "the Hub's library refuses it (Invalid filename '" in one_line(checkpoint)
    outside = {
        p for p in written(tmp_path) - before if not p.is_relative_to(tmp_path / ".cache" / "hub")
    }
    assert all(p.is_relative_to(settings.cache_folder() / "hub") for p in outside)
    assert "Invalid filename" in one_line(lambda: fetch_file(MODEL, name, kind="model"))


@pytest.mark.parametrize("name", ["./x.json", "a//x.json", "x\x1b.json"])
def test_a_name_of_another_spelling(hub: Hub, name: str):
    hub.add("model", MODEL, {**tiny_bert(), name: b"{}"})
    assert "no file may be called" in one_line(checkpoint)


def test_names_of_data_files_and_archives_stay_inside_too(hub: Hub):
    hub.add("dataset", MODEL, {"../../x.jsonl.gz": jsonl(ROWS), "../x.tar": b""})
    source = HubSource(repo=MODEL, revision="unpinned", splits={"test": "test"}, archive="../x.tar")
    for call in (lambda: fetch_rows(source, "test"), lambda: fetch_archive(source)):
        assert "Invalid filename '../" in one_line(call)


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
    assert f"model '{MODEL}' (revision main): {NOT_THE_HUB}" in one_line(checkpoint)
    hub.faults.clear()
    checkpoint()


def test_another_commit_than_was_asked_for(hub: Hub, model: Repo):
    hub.fail("/api/", body=answer(model, sha="e" * 40))
    assert NOT_THE_HUB in one_line(lambda: checkpoint(revision=model.commit))


@pytest.mark.parametrize("part", ["/api/", "resolve"])
def test_a_redirection_to_nowhere(hub: Hub, part: str):
    hub.fail(part, status=302)
    assert NOT_THE_HUB in one_line(checkpoint)


@pytest.mark.parametrize("token", ["hf_süß", "hf_\u2026", "hf_a\nb", "hf_\x00"])
def test_a_token_that_cannot_be_sent(hub: Hub, token: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: token)
    text = one_line(checkpoint)
    assert "HF_TOKEN" in text and token[3:] not in text and "hf_" not in text


# --- commits by their beginning ---
def test_the_beginning_of_a_commit_is_enough(hub: Hub, model: Repo):
    fetched = fetch_checkpoint(MODEL, revision=model.commit[:7])
    assert fetched.commit == model.commit and fetched.path.name == model.commit
    asked = len(hub.asked)
    assert fetch_checkpoint(MODEL, revision=model.commit[:7]) == fetched
    assert len(hub.asked) == asked, "it never changes"


def test_the_beginning_of_no_commit(hub: Hub, model: Repo):
    assert "there is no such revision" in one_line(lambda: checkpoint(revision="abcdef0"))
    hub.fail("/api/", body=answer(model, sha="e" * 40))
    assert NOT_THE_HUB in one_line(lambda: checkpoint(revision=model.commit[:7]))


@pytest.mark.parametrize(
    "etag", ["../../../../../evil", "/tmp/evil-of-a-test", "a/b", "x" * 300, "..", "é"]
)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_hash_that_is_a_path(hub: Hub, etag: str, name: str, tmp_path: Path):
    """The library names its blobs after the answer's ETag, and writes where that leads."""
    hub.fail(f"resolve/{hub.repos['model', MODEL].commit}/{name}", etag=etag)
    before = written(tmp_path)
    assert NOT_THE_HUB in one_line(checkpoint)
    new = {p.relative_to(tmp_path).parts[:2] for p in written(tmp_path) - before}
    assert new <= {(".cache", "hub"), ("stsbench", "hub")}
    assert not Path("/tmp/evil-of-a-test").exists()


@pytest.mark.parametrize("commit", ["../../../../x", "b" * 40])
def test_a_file_of_another_commit(hub: Hub, model: Repo, commit: str):
    hub.fail("resolve", commit=commit)
    assert NOT_THE_HUB in one_line(checkpoint)
