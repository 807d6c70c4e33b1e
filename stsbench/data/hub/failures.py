"""Every way the Hub fails, in one line: what was wanted, why it cannot be had, what to do."""

from __future__ import annotations

import errno
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from logging import CRITICAL
from typing import Literal, NamedTuple, TypeVar

from stsbench.core.errors import SourceError, StsbenchError, one_line

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
_FOLDERS = "set HF_HOME and STSBENCH_CACHE to folders"
_OFFLINE = "the cache has no complete copy, and the Hub is switched off (HF_HUB_OFFLINE)"
_NO_HUB = "check HF_ENDPOINT, and the network's proxy or login page"
FAILURES = (
    Failure(("OfflineModeIsEnabled",), _OFFLINE, "unset HF_HUB_OFFLINE once to fetch it", passing=True),
    Failure(("GatedRepoError",), "access is gated", f"ask for access at {{page}} and {_LOGIN}"),
    Failure(("DisabledRepoError",), "the Hub has disabled this repository", "see {page}"),
    Failure(("RevisionNotFoundError",), "there is no such revision", "see {page}/commits/main for those there are"),
    Failure(("RemoteEntryNotFoundError",), "there is no such file", "see {page}/tree/main for those there are"),
    Failure(
        ("RepositoryNotFoundError",), "no such {kind} on the Hub, or it is private", f"check the name, or {_LOGIN}"
    ),
    Failure((401, 403), "access is denied (HTTP {status})", f"{_LOGIN} as a user who may read it"),
    Failure((429,), "the Hub is asked too often (HTTP 429)", f"wait some minutes, or {_LOGIN}", passing=True),
    Failure((408, *range(500, 600)), "the Hub is out of order (HTTP {status})", "try again later", True, again=True),
    Failure(tuple(range(400, 500)), "the Hub refuses (HTTP {status})", "check {page}"),
    Failure(("TimeoutException", "TimeoutError"), "the Hub does not answer in time", f"{_NETWORK} {_SECONDS}", True),
    Failure(
        ("RemoteProtocolError", "ReadError", "WriteError"), "the connection breaks again and again", _NETWORK, True
    ),
    Failure(
        ("UnicodeEncodeError", "LocalProtocolError"), "HF_TOKEN holds a character that no token has", "set it anew"
    ),
    Failure(("TransportError", "ConnectionError"), "cannot reach the Hub ({detail})", _NETWORK, passing=True),
    Failure(("FileMetadataError", "TooManyRedirects"), "what answers is not the Hub", _NO_HUB, passing=True),
    Failure(("JSONDecodeError", "OddAnswer"), "what answers is not the Hub", _NO_HUB, passing=True),
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

    Raises:
        Unreached: a failure that may pass: no network, no answer, a Hub out of order, offline mode.
        SourceError: any other.
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
    words = re.sub(r"^\[Errno -?\d+\] ", "", said)
    return words if len(words) <= 160 else f"{words[:159]}…"


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
