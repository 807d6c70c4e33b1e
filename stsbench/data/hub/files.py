"""Files and checkpoints from the Hub, whole and as the Hub has them, or one clear line why not.

Files are fetched one by one and not by the library's ``snapshot_download``, which checks no hash, takes a damaged
copy for a whole one, and without a list takes any part of a repository for all of it.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from stsbench.data.hub.failures import Address, OddAnswer, RepoKind, explained, persistently
from stsbench.data.hub.listing import Listing, expected_hash, heed_offline, look_up, timeout
from stsbench.data.hub.names import path_within
from stsbench.data.hub.quiet import quiet_hub
from stsbench.data.verify import file_digest
from stsbench.errors import SourceError, did_you_mean

_TOKENIZER = ("*.json", "*.txt", "*.model", "*.codes", "*.spm", "*.tokenizer")
CHECKPOINT = (*_TOKENIZER, "*.safetensors", "pytorch_model*.bin", "*/pytorch_model*.bin")
"""What an encoder is made of: configuration, tokenizer, weights."""


class HubFile(NamedTuple):
    """A file in the Hub's cache, the commit it is of, and its sha256."""

    path: Path
    commit: str
    sha256: str


class HubFolder(NamedTuple):
    """A snapshot's folder in the Hub's cache, and its commit."""

    path: Path
    commit: str


_REPO = re.compile(r"(\w([\w.-]{0,94}\w)?/)?\w([\w.-]{0,94}\w)?", re.ASCII)
_BLOB = re.compile(r"\w[\w.-]{,127}", re.ASCII)
_REVISION = re.compile(r"(?=.{1,200}$)[\w.+@#=-]+(/[\w.+@#=-]+)*", re.ASCII)


def address_of(repo: str, *, revision: str, kind: RepoKind) -> Address:
    """The address of a repository; a card's ``unpinned`` means the main branch.

    Raises:
        SourceError: no repository or no revision can have this name.
    """
    revision = "main" if revision in ("", "unpinned") else revision
    where = f"{kind} {ascii(repo):.99} (revision {ascii(revision)[1:-1]:.99})"
    if not _REPO.fullmatch(repo) or re.search(r"--|\.\.|\.git$", repo):
        apart = "; a revision is named apart, by 'revision'" if "@" in repo else ""
        raise SourceError(f"{where}: no repository can have this name; names look like 'owner/name'{apart}")
    # Both become parts of paths in the cache.
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise SourceError(f"{where}: no revision can have this name; give a branch, a tag or a commit")
    return Address(kind=kind, repo=repo, revision=revision)


def fetch_file(
    repo: str,
    path: str,
    *,
    revision: str,
    kind: RepoKind,
    sha256: str = "",
    without: str | None = None,
    progress: bool = False,
) -> HubFile:
    """Fetch one file and check its bytes; in the cache already, no network is needed for a pinned revision.

    Args:
        repo: ``owner/name``.
        path: the file in the repository.
        revision: a commit, branch or tag; ``unpinned`` is the main branch.
        kind: what the repository holds.
        sha256: what the file must hash to; without it, what the Hub says where it says so.
        without: how to go on without the Hub, for the error; ``""`` says nothing of it.
        progress: whether to let the Hub's library show its bars.

    Raises:
        SourceError: the file cannot be had, or is not what it should be; one line.
    """
    address = address_of(repo, revision=revision, kind=kind)
    listing = look_up(address, without=without)
    found = fetch_listed(address.at(path), listing, without=without, progress=progress)
    digest = file_digest(found)
    if sha256 and digest != sha256:
        raise SourceError(
            f"{address.at(path)}: not the file the card names (sha256 {digest[:12]}, card {sha256[:12]}); "
            "pin the card's revision, or write a card of your own for other data"
        )
    return HubFile(found, listing.commit, digest)


def fetch_checkpoint(
    repo: str,
    *,
    revision: str,
    allow: Sequence[str] = CHECKPOINT,
    also: Sequence[str] = (),
    without: str | None = None,
    progress: bool = False,
) -> HubFolder:
    """Fetch the files of a model that match a pattern, and ``also`` those of these names that it has: never code.

    Of weights that match, ``pytorch_model.bin`` comes only from folders without safetensors; those of other frameworks
    never. Each file is checked each time, so that what is damaged in the cache is fetched again.

    Raises:
        SourceError: the repository has no weights, a file cannot be had, or nobody knows which there are; one line.
    """
    address = address_of(repo, revision=revision, kind="model")
    listing = look_up(address, without=without)
    listing.check_whole(address)
    wanted, weights = choose_files(listing.files, allow)
    if not weights:
        others = sorted(name for name in listing.files if _is_weights(name))[:3]
        has = f", only {', '.join(others)}" if others else ""
        raise SourceError(
            f"{address}: no weights in model.safetensors or pytorch_model.bin{has}; choose another checkpoint"
        )
    # Weights come last: a folder that has them has the rest, should the network be gone next time.
    for name in [*wanted, *(name for name in also if name in listing.files), *weights]:
        path = fetch_listed(address.at(name), listing, without=without, progress=progress)
    return HubFolder(folder_of(path, weights[-1]), listing.commit)


def fetch_tokenizer(repo: str, *, revision: str, without: str | None = None) -> HubFolder:
    """Fetch and check the files of a model's tokenizer and its configuration, without any weights.

    Raises:
        SourceError: the repository has none, a file cannot be had, or nobody knows which there are; one line.
    """
    address = address_of(repo, revision=revision, kind="model")
    listing = look_up(address, without=without)
    listing.check_whole(address)
    wanted = [name for name in choose_files(listing.files, _TOKENIZER)[0] if "/" not in name]
    if not wanted:
        raise SourceError(f"{address}: no files of a tokenizer; choose another model")
    for name in wanted:
        path = fetch_listed(address.at(name), listing, without=without, progress=False)
    return HubFolder(path.parent, listing.commit)


def folder_of(path: Path, name: str) -> Path:
    """The snapshot's folder, given where one of its files lies and what the file is called in the repository."""
    return path.parents[len(PurePosixPath(name).parts) - 1]


def fetch_listed(address: Address, listing: Listing, *, without: str | None, progress: bool) -> Path:
    """Return a file's place in the cache, its bytes being those that the Hub has: a damaged copy is fetched again.

    Raises:
        SourceError: the repository has no such file, it cannot be had, or it came damaged.
    """
    from huggingface_hub import try_to_load_from_cache

    _check_name(address)
    if address.path not in listing.files:
        near = did_you_mean(address.path, listing.files) or f"; see {address.page}/tree/main for those there are"
        raise SourceError(listing.unreached or f"{address}: there is no such file{near}")
    cached = try_to_load_from_cache(address.repo, address.path, revision=listing.commit, repo_type=address.kind)
    damage = _damage(Path(cached), listing, address) if isinstance(cached, str) else ""
    if isinstance(cached, str) and not damage:
        return Path(cached)
    try:
        with explained(address, without), quiet_hub(progress):
            path = _download(address, listing.commit, anew=bool(damage))
    except SourceError as error:
        if not damage:
            raise
        why = str(error).removeprefix(f"{address}: ")
        raise SourceError(f"{address}: the copy in the cache is {damage} and cannot be fetched again: {why}") from error
    if damage := _damage(path, listing, address):
        again = "it has left the cache: run again to fetch it anew" if forget(path) else "restore it"
        raise SourceError(f"{address}: {damage}; {again}")
    return path


def _download(address: Address, commit: str, *, anew: bool) -> Path:
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    repo, kind = address.repo, address.kind
    heed_offline()
    url = hf_hub_url(repo, address.path, repo_type=kind, revision=commit)
    # The library asks a Hub that hangs for over six minutes before it gives up; we ask first, once.
    try:
        facts = persistently(lambda: get_hf_file_metadata(url, timeout=timeout()))
    except KeyError as error:
        # So some versions of the library end where an answer lacks a header.
        raise OddAnswer(f"it has no {error}") from error
    # Both become parts of paths in the library's cache.
    if facts.commit_hash != commit or not _BLOB.fullmatch(facts.etag or ""):
        raise OddAnswer("another commit, or a hash that is none")
    return Path(
        persistently(lambda: hf_hub_download(repo, address.path, repo_type=kind, revision=commit, force_download=anew))
    )


def _check_name(address: Address) -> None:
    """Refuse a file's name that could lead out of the cache, or that no file can have."""
    name = address.path
    path = path_within(name)
    # Of several spellings of a path the Hub gives the shortest.
    if path is None or path.as_posix() != name or not name.isprintable():
        raise SourceError(f"{address.at('')}: no file may be called {ascii(name):.80}: it could lead outside the cache")


def _damage(path: Path, listing: Listing, address: Address) -> str:
    """How a file's bytes differ from those that the Hub has of it, ``""`` where they do not or nobody tells."""
    expected = listing.files[address.path] or expected_hash(path)
    if not expected:
        return ""
    kind, digest = ("sha256", file_digest) if len(expected) == 64 else ("git hash", git_hash)
    if (found := digest(path)) == expected:
        return ""
    return f"damaged ({kind} {found[:12]}, the Hub says {expected[:12]})"


def git_hash(path: Path) -> str:
    """The name that git has for a file's bytes: what the Hub tells of a small file."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def forget(path: Path) -> bool:
    """Remove a file from the Hub's cache, the link and what is behind it; returns whether it lay there."""
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE).resolve()
    removed = False
    # Folders are resolved, the file is not: each link of the chain goes, but nothing outside the cache.
    while (path := path.parent.resolve() / path.name).is_relative_to(cache):
        behind = path.parent / path.readlink() if path.is_symlink() else None
        path.unlink(missing_ok=True)
        removed = True
        if behind is None:
            break
        path = behind
    return removed


_SAFETENSORS = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
_TORCH = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin(\.index\.json)?")
_WEIGHTS = re.compile(r".*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|onnx|onnx_data|ot|tflite|gguf|pkl|pickle|npz)")
_CODE = frozenset({".py", ".pyc", ".sh", ".so", ".dll", ".dylib", ".exe", ".ipynb"})


def _is_weights(name: str) -> bool:
    return _WEIGHTS.fullmatch(name.removesuffix(".index.json")) is not None


def choose_files(names: Iterable[str], allow: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the files that match a pattern into weights to read and all else; other weights and code are left out."""
    wanted: list[str] = []
    folders: dict[str, set[str]] = defaultdict(set)
    for name in sorted(names):
        place = PurePosixPath(name)
        if place.suffix in _CODE or not any(fnmatchcase(name, pattern) for pattern in allow):
            continue
        if _is_weights(name):
            folders[str(place.parent)].add(place.name)
        else:
            wanted.append(name)
    deepest_first = sorted(folders, key=lambda folder: (-len(PurePosixPath(folder).parts), folder))
    return wanted, [(PurePosixPath(f) / name).as_posix() for f in deepest_first for name in _readable(folders[f])]


def _readable(names: set[str]) -> list[str]:
    """The weights of one folder to read: one safetensors file, else its shards, else PyTorch's own."""
    for whole, family in (("model.safetensors", _SAFETENSORS), ("pytorch_model.bin", _TORCH)):
        if whole in names:
            return [whole]
        shards = sorted(name for name in names if family.fullmatch(name))
        if any(not name.endswith(".index.json") for name in shards):
            return shards
    return []
