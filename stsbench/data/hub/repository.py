"""A repository of the Hub at a known commit: its files come whole and as the Hub has them, or one line says why not.

The Hub's library fetches, continues what broke off, and keeps its cache. What is added here: the list of files and their
hashes is noted for each commit, so that every use of a file is checked against it, also without a network (the library's
``verify_repo_checksums`` asks the Hub each time, its ``snapshot_download`` checks no hash); no request waits without an
end, as some of the library's do; and each way to fail is one line that says what to do.
"""

from __future__ import annotations

import errno
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from logging import CRITICAL
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from stsbench.core import settings
from stsbench.core.errors import OutputError, SourceError, StsbenchError, suggest
from stsbench.core.files import file_digest, remove, write_atomically
from stsbench.core.wording import format_some, join_lines, shorten

RepoKind = Literal["model", "dataset"]
T = TypeVar("T")

WITHOUT: dict[RepoKind, str] = {
    "dataset": "put the files under a data folder and pass --data DIR (or set STSBENCH_DATA), "
    "or run 'stsbench run' on the quickstart suite, which needs no network",
    "model": "give the folder of a checkpoint on this machine, "
    "or run 'stsbench run' on the quickstart suite, which needs no network",
}
"""What to do without the Hub, where the caller says nothing better."""
STUMBLES = (408, *range(500, 600))
"""HTTP statuses of a Hub that is asked again at once."""
WAITS = (1.0, 2.0)
"""Seconds to wait before asking a Hub that stumbles once more, and once again."""
SHA256, GIT_HASH = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")
_HASH = re.compile(f"{SHA256.pattern}|{GIT_HASH.pattern}")
_REPO = re.compile(r"(?!.*(--|\.\.|\.git$))(\w([\w.-]{0,94}\w)?/)?\w([\w.-]{0,94}\w)?", re.ASCII)
_BLOB = re.compile(r"\w[\w.-]{,127}", re.ASCII)
_REVISION = re.compile(r"(?=.{1,200}$)(?!.*\.\.)[\w.+@#=-]+(/[\w.+@#=-]+)*", re.ASCII)


class UnexpectedResponse(Exception):
    """An answer that is not one of the Hub's."""


class HubUnreachable(SourceError):
    """The Hub cannot be asked now; what is known from before may do."""


class FailureKind(NamedTuple):
    """One way to fail: what shows it, why it fails, what to do, and whether it may pass."""

    signs: tuple[str | int, ...]
    """Names of exception classes, HTTP statuses, error numbers."""
    why: str
    todo: str
    passing: bool = False


_LOGIN = "log in with 'hf auth login' (or set HF_TOKEN)"
_NETWORK = "check the network and try again"
_SECONDS = "(HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT set the seconds)"
_OFFLINE = "the cache has no complete copy, and the Hub is switched off (HF_HUB_OFFLINE)"
_NO_HUB = (
    "what answers is not the Hub",
    "check HF_ENDPOINT, and the network's proxy or login page",
)
_FOLDERS = "set HF_HOME and STSBENCH_CACHE to folders"
FAILURES = (
    FailureKind(
        ("OfflineModeIsEnabled",), _OFFLINE, "unset HF_HUB_OFFLINE once to fetch it", passing=True
    ),
    FailureKind(("GatedRepoError",), "access is gated", f"ask for access at {{page}} and {_LOGIN}"),
    FailureKind(("DisabledRepoError",), "the Hub has disabled this repository", "see {page}"),
    FailureKind(
        ("RevisionNotFoundError",),
        "there is no such revision",
        "see {page}/commits/main for those there are",
    ),
    FailureKind(
        ("RemoteEntryNotFoundError",),
        "there is no such file",
        "see {page}/tree/main for those there are",
    ),
    FailureKind(
        ("RepositoryNotFoundError",),
        "no such {kind} on the Hub, or it is private",
        f"check the id, or {_LOGIN}",
    ),
    FailureKind(
        (401, 403), "access is denied (HTTP {status})", f"{_LOGIN} as a user who may read it"
    ),
    FailureKind(
        (429,),
        "the Hub is asked too often (HTTP 429)",
        f"wait some minutes, or {_LOGIN}",
        passing=True,
    ),
    FailureKind(STUMBLES, "the Hub is out of order (HTTP {status})", "try again later", True),
    FailureKind(tuple(range(400, 500)), "the Hub refuses (HTTP {status})", "check {page}"),
    FailureKind(
        ("TimeoutException", "TimeoutError"),
        "the Hub does not answer in time",
        f"{_NETWORK} {_SECONDS}",
        True,
    ),
    FailureKind(
        ("RemoteProtocolError", "ReadError", "WriteError"),
        "the connection breaks again and again",
        _NETWORK,
        True,
    ),
    FailureKind(
        ("UnicodeEncodeError", "LocalProtocolError"),
        "HF_TOKEN holds a sign that no token has",
        "set it anew",
    ),
    FailureKind(
        ("TransportError", "ConnectionError"),
        "cannot reach the Hub ({detail})",
        _NETWORK,
        passing=True,
    ),
    FailureKind(
        ("FileMetadataError", "TooManyRedirects", "JSONDecodeError", "UnexpectedResponse"),
        *_NO_HUB,
        passing=True,
    ),
    # Such as a file whose name leads out of the cache.
    FailureKind(("ValueError",), "the Hub's library refuses it ({detail})", "see {page}"),
    FailureKind(
        (errno.ENOSPC, errno.EDQUOT),
        "the disk is full",
        f"free some space, or {_FOLDERS} on a larger disk",
    ),
    FailureKind(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "the cache cannot be written",
        f"{_FOLDERS} you may write to",
    ),
    FailureKind(
        (errno.ENOENT,),
        "a file is not there ({detail})",
        "check SSL_CERT_FILE and SSL_CERT_DIR, and try again",
    ),
    # Last, what is left: a size other than announced, an input/output error, an error of the Xet transfer.
    FailureKind(
        ("OSError", "RuntimeError", "XetDownloadError"),
        "the download failed ({detail})",
        "try again",
    ),
)
"""The ways to fail; of several that fit, the first counts."""


def status_of(error: BaseException) -> int | None:
    """The HTTP status of an answer that is an error."""
    return getattr(getattr(error, "response", None), "status_code", None)


def call_with_retries(call: Callable[[], T]) -> T:
    """Call, and call again twice where the Hub stumbles; a Hub that hangs has been waited for already."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    if settings.hub_is_offline():
        raise OfflineModeIsEnabled("offline mode")
    for wait in WAITS:
        try:
            return call()
        except Exception as error:
            if status_of(error) not in STUMBLES:
                raise
        time.sleep(wait)
    return call()


def detail(error: BaseException) -> str:
    """An error's own words, short and on one line."""
    said = getattr(error, "strerror", None) or join_lines(error) or type(error).__name__
    return shorten(re.sub(r"^\[Errno -?\d+\] ", "", said), 160)


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


class FileListing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files of a repository at one commit, each with the Hub's hash of it.

    That is the sha256 of a large file and git's own hash of a small one, ``""`` where the Hub gave none.
    """

    commit: str
    files: dict[str, str]
    unreached: str = ""
    """Why the Hub could not be asked: the files then are only those that happen to lie in the cache."""


class Repository:
    """A repository of the Hub at a revision: what it holds, and its files."""

    def __init__(
        self, repo: str, *, revision: str, kind: RepoKind, without: str | None = None
    ) -> None:
        """Name it; nothing is asked yet.

        ``revision`` is a commit, branch or tag; ``unpinned`` is the main branch. ``without`` is what to do without the
        Hub, for errors; ``""`` says nothing of it. Raises SourceError: no repository, or no revision, can have this name.
        """
        settings.check_hub()
        self.repo, self.kind, self.revision = (
            repo,
            kind,
            "main" if revision in ("", "unpinned") else revision,
        )
        self.without = WITHOUT[kind] if without is None else without
        # A commit, which never changes, or the beginning of one; else a branch or tag.
        self.pinned = re.fullmatch(r"[0-9a-f]{7,40}", self.revision) is not None
        self.page = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{repo}"
        where = f"{kind} {ascii(repo):.99} (revision {ascii(self.revision)[1:-1]:.99})"
        # Both become parts of paths in the cache.
        if not _REPO.fullmatch(repo):
            apart = "; a revision is named apart, by 'revision'" if "@" in repo else ""
            raise SourceError(
                f"{where}: no repository can have this name; names look like 'owner/name'{apart}"
            )
        if not _REVISION.fullmatch(self.revision):
            raise SourceError(
                f"{where}: no revision can have this name; give a branch, a tag or a commit"
            )

    def __str__(self) -> str:
        """As errors name it."""
        return f"{self.kind} '{self.repo}' (revision {self.revision[:12] if self.pinned else self.revision})"

    def at(self, name: str) -> str:
        """A file of it, as errors name it."""
        return f"file '{name}' of {self}"

    @contextmanager
    def explained(self, where: str = "") -> Iterator[None]:
        """Turn whatever the Hub's library raises into one clear line; a bug keeps its traceback.

        Raises Unreached: a failure that may pass: no network, no answer, a Hub out of order, offline mode; SourceError: any
        other.
        """
        try:
            yield
        except StsbenchError:
            raise
        except Exception as error:
            # So the library says that it could not ask the Hub, and that the cache has nothing, or nothing whole, either.
            wraps = type(error).__name__ in ("LocalEntryNotFoundError", "ValueError")
            cause = error.__cause__ if wraps and error.__cause__ else error
            signs = {
                *(kind.__name__ for kind in type(cause).__mro__),
                status_of(cause),
                getattr(cause, "errno", None),
            }
            failure = next((one for one in FAILURES if signs.intersection(one.signs)), None)
            if failure is None:
                raise
            facts = {
                "page": self.page,
                "kind": self.kind,
                "status": status_of(cause),
                "detail": detail(cause),
            }
            todo = "; or ".join(filter(None, [failure.todo.format_map(facts), self.without]))
            kind = HubUnreachable if failure.passing else SourceError
            raise kind(f"{where or self}: {failure.why.format_map(facts)}", hint=todo) from error

    @cached_property
    def listing(self) -> FileListing:
        """Its commit, and the files that are known of it.

        The answer for a commit never changes, so it is asked once and noted down. A branch is asked
        for each time; where the Hub cannot be reached, the last answer holds, or the list that the
        Hub's library has noted when it fetched the whole of it. Without either, what the library's
        cache happens to have is listed, and ``unreached`` says why. Raises SourceError: there is no
        such repository or revision, or no answer and nothing known.
        """
        # No repository's name holds an '@'.
        name = f"{self.kind}s--{self.repo.replace('/', '--')}@{quote(self.revision, safe='')}.json"
        note, noted = settings.cache_folder() / "hub" / name, None
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            noted = msgspec.json.decode(note.read_bytes(), type=FileListing)
        if noted and self.pinned:
            return noted
        try:
            found = self.ask()
        except HubUnreachable as error:
            if known := noted or self._in_cache(str(error)):
                return known
            raise
        # Only a convenience: without it the Hub is asked again.
        with suppress(OutputError, UnicodeEncodeError):
            write_atomically(note, msgspec.json.encode(found))
        return found

    def ask(self) -> FileListing:
        """Ask the Hub, whatever is known already; raises SourceError, with the reason, where it gives no answer."""
        from huggingface_hub import HfApi, constants

        place: dict[str, Any] = {
            "repo_type": self.kind,
            "revision": self.revision,
            "files_metadata": True,
        }
        wait = float(constants.HF_HUB_ETAG_TIMEOUT)
        with self.explained():
            try:
                info: Any = call_with_retries(
                    lambda: HfApi().repo_info(self.repo, timeout=wait, **place)
                )
                hashes = {
                    one.rfilename: one.lfs.sha256 if one.lfs else one.blob_id
                    for one in info.siblings or []
                }
                # A hash becomes a part of paths, too.
                known = {
                    name: one if one and _HASH.fullmatch(one) else ""
                    for name, one in hashes.items()
                }
                facts = {"commit": info.sha, "files": known}
                found = msgspec.convert(facts, FileListing)
            except (OSError, UnicodeEncodeError):
                raise
            except (TypeError, AttributeError, LookupError, ValueError, RecursionError) as error:
                # The library takes the answer as it comes; what it cannot take is no answer of the Hub's.
                raise UnexpectedResponse(type(error).__name__) from error
            if not GIT_HASH.fullmatch(found.commit) or (
                self.pinned and not found.commit.startswith(self.revision)
            ):
                raise UnexpectedResponse("it names no commit, or another than was asked for")
        return found

    def _in_cache(self, why: str) -> FileListing | None:
        """What the Hub's cache has of it, whoever put it there (transformers, ``hf download``)."""
        from huggingface_hub import get_cached_repo_tree, snapshot_download
        from huggingface_hub.errors import CachedRepoTreeNotFoundError, LocalEntryNotFoundError

        place: dict[str, Any] = {
            "repo_id": self.repo,
            "repo_type": self.kind,
            "revision": self.revision,
        }
        try:
            # No file is asked for: whether the right ones are there is decided here.
            folder = Path(snapshot_download(**place, local_files_only=True, allow_patterns=[]))
        except LocalEntryNotFoundError:
            return None
        with suppress(CachedRepoTreeNotFoundError):
            # The list that the library notes when it fetches a whole repository; the cache names files by their hashes.
            return FileListing(
                commit=folder.name, files={file.path: "" for file in get_cached_repo_tree(**place)}
            )
        files = {
            path.relative_to(folder).as_posix(): "" for path in folder.rglob("*") if path.is_file()
        }
        return FileListing(commit=folder.name, files=files, unreached=why)

    @property
    def commit(self) -> str:
        """The commit that all files are of."""
        return self.listing.commit

    @property
    def files(self) -> dict[str, str]:
        """All its files with their hashes.

        Raises SourceError, also where nobody knows which there should be: one that is missing might change a score.
        """
        found = self.listing
        if found.unreached:
            raise SourceError(
                f"{found.unreached}; the cache holds files of it ({format_some(sorted(found.files), 4)}), but no list of all "
                f"it needs: one that is missing might change the score; 'hf download {self.repo}' fetches all"
            )
        return found.files

    def fetch(self, name: str, *, into: Path | None = None) -> Path:
        """Return a file's place in the cache, its bytes being those that the Hub has: a damaged copy is fetched again.

        What the cache has not goes to the folder ``into`` instead, where that is given. Raises SourceError: the repository
        has no such file, it cannot be had, or it came damaged.
        """
        from huggingface_hub import try_to_load_from_cache

        where = self.at(name)
        if not name.isprintable() or PurePosixPath(name).as_posix() != name:
            raise SourceError(
                f"{self}: no file may be called {ascii(name):.80}: not the shortest spelling of a path"
            )
        if name not in self.listing.files:
            near = (
                suggest(name, self.listing.files)
                or f"; see {self.page}/tree/main for those there are"
            )
            raise SourceError(self.listing.unreached or f"{where}: there is no such file{near}")
        with self.explained(where):
            cached = try_to_load_from_cache(
                self.repo, name, revision=self.commit, repo_type=self.kind
            )
        if isinstance(cached, str):
            if not (damage := self._damage(name, Path(cached))):
                return Path(cached)
            where = f"{where}: the copy in the cache is {damage} and cannot be fetched again"
        with self.explained(where), quiet("huggingface_hub"):
            found = self._download(name, force_download=isinstance(cached, str), local_dir=into)
        if damage := self._damage(name, found):
            # Others that read this cache would take it for whole.
            remove(found.parent / found.readlink() if found.is_symlink() else found)
            raise SourceError(f"{self.at(name)}: {damage}; run again to fetch it anew")
        return found

    def _download(self, name: str, **how: Any) -> Path:  # noqa: ANN401 - of hf_hub_download
        from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url

        place: dict[str, Any] = {"repo_type": self.kind, "revision": self.commit}
        url, wait = hf_hub_url(self.repo, name, **place), float(constants.HF_HUB_ETAG_TIMEOUT)
        # The library asks a Hub that hangs for over six minutes before it gives up; here it is asked first, once.
        facts = call_with_retries(lambda: get_hf_file_metadata(url, timeout=wait))
        # Both become parts of paths in the library's cache.
        if facts.commit_hash != self.commit or not _BLOB.fullmatch(facts.etag or ""):
            raise UnexpectedResponse("another commit, or a hash that is none")
        return Path(call_with_retries(lambda: hf_hub_download(self.repo, name, **place, **how)))

    def fetch_all(self, names: Sequence[str]) -> HubPath:
        """Fetch at least one file, in this order, and return the folder of the snapshot."""
        paths = [self.fetch(name) for name in names]
        return HubPath(paths[-1].parents[names[-1].count("/")], self.commit)

    def _damage(self, name: str, path: Path) -> str:
        """How a file's bytes differ from those that the Hub has of it, ``""`` where they do not or nobody knows.

        Where no list gives its hash, the cache names the blob behind a snapshot's link after it. Only the first link
        counts: the blob may be a link into a store shared by repositories, whose names are hashes of another kind.
        """
        from huggingface_hub.utils.sha import git_hash

        expected = self.listing.files[name] or (path.readlink().name if path.is_symlink() else "")
        if SHA256.fullmatch(expected):
            kind, found = "sha256", file_digest(path)
        elif GIT_HASH.fullmatch(expected):
            kind, found = "git hash", git_hash(path.read_bytes())
        else:
            return ""
        return (
            ""
            if found == expected
            else f"damaged ({kind} {found[:12]}, the Hub says {expected[:12]})"
        )


def fetch_checkpoint(repo: str, *, revision: str, also: Sequence[str] = ()) -> HubPath:
    """Fetch the files that an encoder is made of, and ``also`` those of these names that it has: never code.

    Each file is checked each time, so that what is damaged in the cache is fetched again. Raises SourceError: the repository
    has no weights, a file cannot be had, or nobody knows which there are; one line.
    """
    repository = Repository(repo, revision=revision, kind="model")
    files = repository.files
    wanted, weights = choose_files(files)
    if not weights:
        others = sorted(filter(_OF_WEIGHTS.fullmatch, files))[:3]
        has = f", only {', '.join(others)}" if others else ""
        what = "no weights in model.safetensors or pytorch_model.bin"
        raise SourceError(f"{repository}: {what}{has}; choose another checkpoint")
    # Weights come last: a folder that has them has the rest, should the network be gone next time.
    return repository.fetch_all([*wanted, *(name for name in also if name in files), *weights])


def fetch_tokenizer(repo: str, *, revision: str, without: str | None = None) -> HubPath:
    """Fetch and check the files of a model's tokenizer and its configuration, without any weights; raises SourceError."""
    repository = Repository(repo, revision=revision, kind="model", without=without)
    wanted = [name for name in choose_files(repository.files)[0] if "/" not in name]
    if not wanted:
        raise SourceError(f"{repository}: no files of a tokenizer; choose another model")
    return repository.fetch_all(wanted)


_SMALL = re.compile(r".*\.(json|txt|model|codes|spm|tokenizer)")
_WEIGHTS = (
    r"model\.safetensors",
    r"model-\d+-of-\d+\.safetensors|model\.safetensors\.index\.json",
    r"pytorch_model\.bin",
    r"pytorch_model-\d+-of-\d+\.bin|pytorch_model\.bin\.index\.json",
)
"""Weights that are read, the better ones first: what one file of them is called, and what shards of them are."""
_OF_WEIGHTS = re.compile(
    r".*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|onnx|onnx_data|ot|tflite|gguf|pkl|pickle|npz)"
)


def choose_files(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The files of a model's configuration and tokenizer, and its weights in each folder; other weights and code are left out."""
    names = sorted(names)
    folders: dict[PurePosixPath, list[str]] = {}
    for name in names:
        folders.setdefault(PurePosixPath(name).parent, []).append(name)
    weights: list[str] = []
    for _, here in sorted(folders.items(), key=lambda one: (-len(one[0].parts), str(one[0]))):
        kinds = (
            [name for name in here if re.fullmatch(kind, PurePosixPath(name).name)]
            for kind in _WEIGHTS
        )
        weights += next(
            (kind for kind in kinds if any(not name.endswith(".json") for name in kind)), []
        )
    return [
        name for name in names if _SMALL.fullmatch(name) and not name.endswith(".index.json")
    ], weights
