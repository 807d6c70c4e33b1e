"""A repository of the Hub at a known commit: its files come whole and as the Hub has them, or one line says why not.

The list of files and their hashes are noted for each commit, so that what is pinned is checked at every use without a
network; the library's ``verify_repo_checksums`` asks the Hub each time, and its ``snapshot_download`` checks no hash.
"""

from __future__ import annotations

import errno
import hashlib
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib import import_module
from logging import CRITICAL
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from stsbench.core import settings
from stsbench.core.errors import OutputError, SourceError, StsbenchError, cut, did_you_mean, one_line
from stsbench.core.files import file_digest, write_whole

_TOKENIZER = ("*.json", "*.txt", "*.model", "*.codes", "*.spm", "*.tokenizer")
_CHECKPOINT = (*_TOKENIZER, "*.safetensors", "pytorch_model*.bin", "*/pytorch_model*.bin")
SHA256, GIT_HASH = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")
_REPO = re.compile(r"(?!.*(--|\.\.|\.git$))(\w([\w.-]{0,94}\w)?/)?\w([\w.-]{0,94}\w)?", re.ASCII)
_BLOB = re.compile(r"\w[\w.-]{,127}", re.ASCII)
_REVISION = re.compile(r"(?=.{1,200}$)(?!.*\.\.)[\w.+@#=-]+(/[\w.+@#=-]+)*", re.ASCII)


RepoKind = Literal["model", "dataset"]
T = TypeVar("T")

WITHOUT: dict[RepoKind, str] = {
    "dataset": "put the files under a data folder and pass --data DIR (or set STSBENCH_DATA), "
    "or run 'stsbench run' on the quickstart suite, which needs no network",
    "model": "give the folder of a checkpoint on this machine, "
    "or run 'stsbench run' on the quickstart suite, which needs no network",
}
"""What to do without the Hub, where the caller says nothing better."""
WAITS = (1.0, 2.0)
"""Seconds to wait before asking a Hub that stumbles once more, and once again."""


class OddAnswer(Exception):
    """An answer that is not one of the Hub's."""


class Unreached(SourceError):
    """The Hub cannot be asked now; what is known from before may do."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """What is asked of the Hub: a repository at a revision, or a file of it."""

    kind: RepoKind
    repo: str
    revision: str
    path: str = ""

    def at(self, path: str) -> Address:
        """The address of a file of this repository."""
        return replace(self, path=path)

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, which never changes, or the beginning of one, and not a branch or tag."""
        return re.fullmatch(r"[0-9a-f]{7,40}", self.revision) is not None

    @property
    def page(self) -> str:
        """The repository's page."""
        return f"https://huggingface.co/{'datasets/' if self.kind == 'dataset' else ''}{self.repo}"

    def __str__(self) -> str:
        """As errors name it."""
        revision = self.revision[:12] if self.pinned else self.revision
        file = f"file '{self.path}' of " if self.path else ""
        return f"{file}{self.kind} '{self.repo}' (revision {revision})"


class Failure(NamedTuple):
    """One way to fail: what shows it, why it fails, what to do, whether it may pass, and whether to ask again at once."""

    signs: tuple[str | int, ...]
    """Names of exception classes, HTTP statuses, error numbers."""
    why: str
    todo: str
    passing: bool = False
    again: bool = False


_LOGIN = "log in with 'hf auth login' (or set HF_TOKEN)"
_NETWORK = "check the network and try again"
_SECONDS = "(HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT set the seconds)"
_OFFLINE = "the cache has no complete copy, and the Hub is switched off (HF_HUB_OFFLINE)"
_NO_HUB = ("what answers is not the Hub", "check HF_ENDPOINT, and the network's proxy or login page")
_FOLDERS = "set HF_HOME and STSBENCH_CACHE to folders"
FAILURES = (
    Failure(("OfflineModeIsEnabled",), _OFFLINE, "unset HF_HUB_OFFLINE once to fetch it", passing=True),
    Failure(("GatedRepoError",), "access is gated", f"ask for access at {{page}} and {_LOGIN}"),
    Failure(("DisabledRepoError",), "the Hub has disabled this repository", "see {page}"),
    Failure(("RevisionNotFoundError",), "there is no such revision", "see {page}/commits/main for those there are"),
    Failure(("RemoteEntryNotFoundError",), "there is no such file", "see {page}/tree/main for those there are"),
    Failure(("RepositoryNotFoundError",), "no such {kind} on the Hub, or it is private", f"check the id, or {_LOGIN}"),
    Failure((401, 403), "access is denied (HTTP {status})", f"{_LOGIN} as a user who may read it"),
    Failure((429,), "the Hub is asked too often (HTTP 429)", f"wait some minutes, or {_LOGIN}", passing=True),
    Failure((408, *range(500, 600)), "the Hub is out of order (HTTP {status})", "try again later", True, again=True),
    Failure(tuple(range(400, 500)), "the Hub refuses (HTTP {status})", "check {page}"),
    Failure(("TimeoutException", "TimeoutError"), "the Hub does not answer in time", f"{_NETWORK} {_SECONDS}", True),
    Failure(
        ("RemoteProtocolError", "ReadError", "WriteError"), "the connection breaks again and again", _NETWORK, True
    ),
    Failure(("UnicodeEncodeError", "LocalProtocolError"), "HF_TOKEN holds a sign that no token has", "set it anew"),
    Failure(("TransportError", "ConnectionError"), "cannot reach the Hub ({detail})", _NETWORK, passing=True),
    Failure(("FileMetadataError", "TooManyRedirects", "JSONDecodeError", "OddAnswer"), *_NO_HUB, passing=True),
    Failure((errno.ENOSPC, errno.EDQUOT), "the disk is full", f"free some space, or {_FOLDERS} on a larger disk"),
    Failure((errno.EACCES, errno.EPERM, errno.EROFS), "the cache cannot be written", f"{_FOLDERS} you may write to"),
    # Last, what is left: a size other than announced, an input/output error, an error of the Xet transfer.
    Failure(("OSError", "RuntimeError", "XetDownloadError"), "the download failed ({detail})", "try again"),
)
"""The ways to fail; of several that fit, the first counts."""


def failure_of(error: BaseException) -> Failure | None:
    """The way in which the Hub has failed, None for an error of another kind."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    signs = {*(kind.__name__ for kind in type(error).__mro__), status, getattr(error, "errno", None)}
    return next((failure for failure in FAILURES if signs.intersection(failure.signs)), None)


@contextmanager
def explained(address: Address, without: str | None) -> Iterator[None]:
    """Turn whatever the Hub's library raises into one clear line; a bug keeps its traceback.

    Raises Unreached: a failure that may pass: no network, no answer, a Hub out of order, offline mode; SourceError: any
    other.
    """
    try:
        yield
    except StsbenchError:
        raise
    except Exception as error:
        cause: BaseException = error
        # So the library says that it could not ask the Hub, and that the cache has nothing either.
        while type(cause).__name__ == "LocalEntryNotFoundError" and cause.__cause__ is not None:
            cause = cause.__cause__
        failure = failure_of(cause)
        if failure is None:
            raise
        status = getattr(getattr(cause, "response", None), "status_code", None)
        facts = {"page": address.page, "kind": address.kind, "status": status, "detail": detail(cause)}
        instead = WITHOUT[address.kind] if without is None else without
        todo = "; or ".join(filter(None, [failure.todo.format_map(facts), instead]))
        kind = Unreached if failure.passing else SourceError
        raise kind(f"{address}: {failure.why.format_map(facts)}", hint=todo) from error


def persistently(call: Callable[[], T]) -> T:
    """Call, and call again twice where the Hub stumbles; a Hub that hangs has been waited for already."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    if settings.hub_is_offline():
        raise OfflineModeIsEnabled("offline mode")
    for wait in WAITS:
        try:
            return call()
        except Exception as error:
            failure = failure_of(error)
            if failure is None or not failure.again:
                raise
        time.sleep(wait)
    return call()


def detail(error: BaseException) -> str:
    """An error's own words, short and on one line."""
    said = getattr(error, "strerror", None) or one_line(error) or type(error).__name__
    return cut(re.sub(r"^\[Errno -?\d+\] ", "", said), 160)


@contextmanager
def quiet(library: Literal["huggingface_hub", "datasets"]) -> Iterator[None]:
    """Keep a library off the terminal, its bars, warnings and log: what goes wrong is said in one line here."""
    module = import_module(f"{library}.utils")
    level, bars = module.logging.get_verbosity(), not module.are_progress_bars_disabled()
    with warnings.catch_warnings():
        # Such as that the disk may be too small: whether it is, the error says. Some versions of datasets leave files open.
        warnings.filterwarnings("ignore", module="huggingface_hub")
        warnings.simplefilter("ignore", ResourceWarning)
        module.logging.set_verbosity(CRITICAL)
        if bars:
            module.disable_progress_bars()
        try:
            yield
        finally:
            module.logging.set_verbosity(level)
            if bars:
                module.enable_progress_bars()


class HubPath(NamedTuple):
    """A file or a snapshot's folder in the Hub's cache, and its commit."""

    path: Path
    commit: str


class Listing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files of a repository at one commit, each with the Hub's hash of it.

    That is the sha256 of a large file and git's own hash of a small one, ``""`` where the Hub gave none.
    """

    commit: str
    files: dict[str, str]
    unreached: str = ""
    """Why the Hub could not be asked: the files then are only those that happen to lie in the cache."""

    def answers(self, address: Address) -> bool:
        """Whether it is of a commit, and of the one that is asked for."""
        commit = str(self.commit)
        return bool(GIT_HASH.fullmatch(commit)) and (not address.pinned or commit.startswith(address.revision))


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository whose files are known, see :func:`open_repository`."""

    address: Address
    listing: Listing
    without: str | None

    @property
    def commit(self) -> str:
        """The commit that all files are of."""
        return self.listing.commit

    def check_whole(self) -> Repository:
        """Raise SourceError where nobody knows which files there should be: one that is missing might change a score."""
        if self.listing.unreached:
            names = sorted(self.listing.files)
            some = ", ".join(names[:4]) or "none"
            raise SourceError(
                f"{self.listing.unreached}; the cache holds files of it ({some}{', …' if len(names) > 4 else ''}), but no "
                f"list of all it needs: one that is missing might change the score; 'hf download {self.address.repo}' fetches all"
            )
        return self

    def fetch(self, name: str) -> Path:
        """Return a file's place in the cache, its bytes being those that the Hub has: a damaged copy is fetched again.

        Raises SourceError: the repository has no such file, it cannot be had, or it came damaged.
        """
        from huggingface_hub import try_to_load_from_cache

        address, path = self.address.at(name), path_within(name)
        # Of several spellings of a path the Hub gives the shortest.
        if path is None or path.as_posix() != name or not name.isprintable():
            raise SourceError(f"{self.address}: no file may be called {ascii(name):.80}: may lead outside the cache")
        if name not in self.listing.files:
            near = did_you_mean(name, self.listing.files) or f"; see {address.page}/tree/main for those there are"
            raise SourceError(self.listing.unreached or f"{address}: there is no such file{near}")
        cached = try_to_load_from_cache(address.repo, name, revision=self.commit, repo_type=address.kind)
        damage = self._damage(name, Path(cached)) if isinstance(cached, str) else ""
        if isinstance(cached, str) and not damage:
            return Path(cached)
        try:
            with explained(address, self.without), quiet("huggingface_hub"):
                found = _download(address, self.commit, anew=bool(damage))
        except SourceError as error:
            if not damage:
                raise
            why = f"the copy in the cache is {damage} and cannot be fetched again"
            raise SourceError(f"{address}: {why}: {str(error).removeprefix(f'{address}: ')}") from error
        if damage := self._damage(name, found):
            again = "it has left the cache: run again to fetch it anew" if forget(found) else "restore it"
            raise SourceError(f"{address}: {damage}; {again}")
        return found

    def fetch_all(self, names: Sequence[str]) -> HubPath:
        """Fetch at least one file, in this order, and return the folder of the snapshot."""
        paths = [self.fetch(name) for name in names]
        return HubPath(paths[-1].parents[names[-1].count("/")], self.commit)

    @contextmanager
    def passing(self, name: str) -> Iterator[Path]:
        """A file that stays in the cache only if it was there before: a dataset may be larger than the disk."""
        from huggingface_hub import constants
        from huggingface_hub.file_download import repo_folder_name

        folder = repo_folder_name(repo_id=self.address.repo, repo_type=self.address.kind)
        # Another commit's copy is the same file.
        kept = Path(constants.HF_HUB_CACHE, folder, "blobs", self.listing.files[name]).exists()
        path = self.fetch(name)
        try:
            yield path
        finally:
            if not kept:
                forget(path)

    def _damage(self, name: str, path: Path) -> str:
        """How a file's bytes differ from those that the Hub has of it, ``""`` where they do not or nobody knows.

        Where no list gives its hash, the cache names the blob behind a snapshot's link after it. Only the first link
        counts: the blob may be a link into a store shared by repositories, whose names are hashes of another kind.
        """
        expected = self.listing.files[name] or (path.readlink().name if path.is_symlink() else "")
        if SHA256.fullmatch(expected):
            kind, found = "sha256", file_digest(path)
        elif GIT_HASH.fullmatch(expected):
            content = path.read_bytes()
            kind, found = "git hash", hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        else:
            return ""
        return "" if found == expected else f"damaged ({kind} {found[:12]}, the Hub says {expected[:12]})"


def open_repository(repo: str, *, revision: str, kind: RepoKind, without: str | None = None) -> Repository:
    """Find what a repository holds.

    The answer for a commit never changes, so it is asked once and noted down. A branch is asked
    for each time; where the Hub cannot be reached, the last answer holds, or the list that the
    Hub's library has noted when it fetched the whole of it. Without either, what the library's
    cache happens to have is listed, and ``unreached`` says why.

    ``revision`` is a commit, branch or tag; ``unpinned`` is the main branch. ``without`` is what to do without the Hub,
    for errors; ``""`` says nothing of it. Raises SourceError: there is no such repository or revision, or no answer and
    nothing known.
    """
    address = address_of(repo, revision=revision, kind=kind)
    # No repository's name holds an '@'.
    name = f"{kind}s--{address.repo.replace('/', '--')}@{quote(address.revision, safe='')}.json"
    note, listing = settings.cache_folder() / "hub" / name, None
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        noted = msgspec.json.decode(note.read_bytes(), type=Listing)
        listing = noted if noted.answers(address) else None
    if listing is None or not address.pinned:
        try:
            listing = ask_now(address, without)
        except Unreached as error:
            listing = listing or _in_cache(address, str(error))
            if listing is None:
                raise
        else:
            # Only a convenience: without it the Hub is asked again.
            with suppress(OutputError, UnicodeEncodeError):
                write_whole(note, msgspec.json.encode(listing))
    return Repository(address=address, listing=listing, without=without)


def address_of(repo: str, *, revision: str, kind: RepoKind) -> Address:
    """The address of a repository; raises SourceError where none, or no revision, can have this name.

    A card's ``unpinned`` means the main branch. Both names become parts of paths in the cache.
    """
    revision = "main" if revision in ("", "unpinned") else revision
    where = f"{kind} {ascii(repo):.99} (revision {ascii(revision)[1:-1]:.99})"
    if not _REPO.fullmatch(repo):
        apart = "; a revision is named apart, by 'revision'" if "@" in repo else ""
        raise SourceError(f"{where}: no repository can have this name; names look like 'owner/name'{apart}")
    if not _REVISION.fullmatch(revision):
        raise SourceError(f"{where}: no revision can have this name; give a branch, a tag or a commit")
    return Address(kind=kind, repo=repo, revision=revision)


def ask_now(address: Address, without: str | None = "") -> Listing:
    """Ask the Hub, whatever is known already; raises SourceError, with the reason, where it gives no answer."""
    with explained(address, without):
        return persistently(lambda: _ask(address))


def _ask(address: Address) -> Listing:
    from huggingface_hub import HfApi, constants

    try:
        info: Any = HfApi().repo_info(
            address.repo,
            repo_type=address.kind,
            revision=address.revision,
            files_metadata=True,
            timeout=float(constants.HF_HUB_ETAG_TIMEOUT),
        )
        files: dict[str, str] = {}
        for file in info.siblings or []:
            if not isinstance(file.rfilename, str) or file.rfilename in files:
                raise OddAnswer(f"it lists {file.rfilename!r:.80} twice, or as a file's name")
            digest = (file.lfs.sha256 if file.lfs else file.blob_id) or ""
            files[file.rfilename] = digest if (SHA256 if file.lfs else GIT_HASH).fullmatch(digest) else ""
        listing = Listing(commit=info.sha, files=files)
    except (TypeError, AttributeError, LookupError, ValueError, RecursionError) as error:
        # The library takes the answer as it comes; what it cannot take is no answer of the Hub's.
        if failure_of(error) is not None and not isinstance(error, RecursionError):
            raise
        raise OddAnswer(type(error).__name__) from error
    if not listing.answers(address):
        raise OddAnswer("it names no commit, or another than was asked for")
    return listing


def _in_cache(address: Address, why: str) -> Listing | None:
    """What the Hub's cache has of a repository, whoever put it there (transformers, ``hf download``)."""
    from huggingface_hub import get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import CachedRepoTreeNotFoundError, LocalEntryNotFoundError

    repo: dict[str, Any] = {"repo_id": address.repo, "repo_type": address.kind}
    try:
        # No file is asked for: whether the right ones are there is decided here.
        folder = Path(snapshot_download(**repo, revision=address.revision, local_files_only=True, allow_patterns=[]))
    except LocalEntryNotFoundError:
        return None
    with suppress(CachedRepoTreeNotFoundError):
        # The list that the library notes when it fetches a whole repository; the cache names files by their hashes.
        whole = get_cached_repo_tree(**repo, revision=folder.name)
        return Listing(commit=folder.name, files={file.path: "" for file in whole})
    files = {path.relative_to(folder).as_posix(): "" for path in folder.rglob("*") if path.is_file()}
    return Listing(commit=folder.name, files=files, unreached=why)


def _download(address: Address, commit: str, *, anew: bool) -> Path:
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url

    place: dict[str, Any] = {"repo_type": address.kind, "revision": commit}
    url = hf_hub_url(address.repo, address.path, **place)
    # The library asks a Hub that hangs for over six minutes before it gives up; here it is asked first, once.
    try:
        facts = persistently(lambda: get_hf_file_metadata(url, timeout=float(constants.HF_HUB_ETAG_TIMEOUT)))
    except KeyError as error:
        # So some versions of the library end where an answer lacks a header.
        raise OddAnswer(f"it has no {error}") from error
    # Both become parts of paths in the library's cache.
    if facts.commit_hash != commit or not _BLOB.fullmatch(facts.etag or ""):
        raise OddAnswer("another commit, or a hash that is none")
    return Path(persistently(lambda: hf_hub_download(address.repo, address.path, force_download=anew, **place)))


def path_within(name: str) -> PurePosixPath | None:
    r"""The path that a name means below a folder, None where it leads elsewhere or no file can have it.

    ``\`` counts as a separator and ``C:`` as a drive on every system: a cache may be shared.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in name or re.match("[A-Za-z]:", name):
        return None
    sizes = [len(part.encode(errors="surrogatepass")) for part in path.parts]
    return path if sum(sizes) <= 1000 and max(sizes, default=0) <= 255 else None


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


def fetch_file(
    repo: str, path: str, *, revision: str, kind: RepoKind, sha256: str = "", without: str | None = None
) -> HubPath:
    """Fetch one file and check its bytes; in the cache already, no network is needed for a pinned revision.

    ``sha256`` is what the file must hash to; without it, what the Hub says. All else is as in :func:`open_repository`.
    Raises SourceError: the file cannot be had, or is not what it should be; one line.
    """
    repository = open_repository(repo, revision=revision, kind=kind, without=without)
    found = repository.fetch(path)
    if sha256 and (digest := file_digest(found)) != sha256:
        raise SourceError(
            f"{repository.address.at(path)}: not the file the card names (sha256 {digest[:12]}, card {sha256[:12]}); "
            "pin the card's revision, or write a card of your own for other data"
        )
    return HubPath(found, repository.commit)


def fetch_checkpoint(repo: str, *, revision: str, also: Sequence[str] = ()) -> HubPath:
    """Fetch the files that an encoder is made of, and ``also`` those of these names that it has: never code.

    ``pytorch_model.bin`` comes only from folders without safetensors; weights of other frameworks never. Each file is
    checked each time, so that what is damaged in the cache is fetched again. Raises SourceError: the repository has no
    weights, a file cannot be had, or nobody knows which there are; one line.
    """
    repository = open_repository(repo, revision=revision, kind="model").check_whole()
    files = repository.listing.files
    wanted, weights = choose_files(files, _CHECKPOINT)
    if not weights:
        others = sorted(name for name in files if _is_weights(name))[:3]
        has = f", only {', '.join(others)}" if others else ""
        raise SourceError(
            f"{repository.address}: no weights in model.safetensors or pytorch_model.bin{has}; choose another checkpoint"
        )
    # Weights come last: a folder that has them has the rest, should the network be gone next time.
    return repository.fetch_all([*wanted, *(name for name in also if name in files), *weights])


def fetch_tokenizer(repo: str, *, revision: str, without: str | None = None) -> HubPath:
    """Fetch and check the files of a model's tokenizer and its configuration, without any weights; raises SourceError."""
    repository = open_repository(repo, revision=revision, kind="model", without=without).check_whole()
    wanted = [name for name in choose_files(repository.listing.files, _TOKENIZER)[0] if "/" not in name]
    if not wanted:
        raise SourceError(f"{repository.address}: no files of a tokenizer; choose another model")
    return repository.fetch_all(wanted)


_FAMILIES = (
    ("model.safetensors", re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")),
    ("pytorch_model.bin", re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin(\.index\.json)?")),
)
"""Weights that are read, the better ones first: what one file of them is called, and what shards of them are."""
_WEIGHTS = re.compile(r".*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|onnx|onnx_data|ot|tflite|gguf|pkl|pickle|npz)")
_CODE = frozenset({".py", ".pyc", ".sh", ".so", ".dll", ".dylib", ".exe", ".ipynb"})


def _is_weights(name: str) -> bool:
    return _WEIGHTS.fullmatch(name.removesuffix(".index.json")) is not None


def choose_files(names: Iterable[str], allow: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the files that match a pattern into weights to read and all else; other weights and code are left out."""
    wanted: list[str] = []
    folders: dict[PurePosixPath, list[str]] = {}
    for name in sorted(names):
        place = PurePosixPath(name)
        if place.suffix in _CODE or not any(fnmatchcase(name, pattern) for pattern in allow):
            continue
        (folders.setdefault(place.parent, []) if _is_weights(name) else wanted).append(name)
    deepest_first = sorted(folders, key=lambda folder: (-len(folder.parts), str(folder)))
    return wanted, [name for folder in deepest_first for name in _readable(folders[folder])]


def _readable(names: Sequence[str]) -> list[str]:
    for whole, family in _FAMILIES:
        found = [name for name in names if family.fullmatch(name.rpartition("/")[2])]
        if one := [name for name in found if name.rpartition("/")[2] == whole]:
            return one
        if any(not name.endswith(".index.json") for name in found):
            return found
    return []
