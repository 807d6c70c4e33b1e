"""Every way the Hub fails, in one line: what was wanted, why it cannot be had, what to do."""

from __future__ import annotations

import errno
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from stsbench.errors import SourceError, StsbenchError, one_line

RepoKind = Literal["model", "dataset"]

WITHOUT: dict[RepoKind, str] = {
    "dataset": "put the files under a data folder and pass --data DIR (or set STSBENCH_DATA), "
    "or run 'stsbench run' on the quickstart suite, which needs no network",
    "model": "give the folder of a checkpoint on this machine, "
    "or run 'stsbench run' on the quickstart suite, which needs no network",
}
"""How to go on without the Hub, where the caller says nothing better."""

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


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One way to fail: how it is told from others, why, what to do, and whether it may pass."""

    names: tuple[str, ...] = ()
    """Names of exception classes: the HTTP library below the Hub's has had two names, its classes one."""
    statuses: range | tuple[int, ...] = ()
    codes: tuple[int, ...] = ()
    why: str
    todo: str
    passing: bool = False
    again: bool = False

    def fits(self, error: BaseException) -> bool:
        """Whether an error is of this kind."""
        response = getattr(error, "response", None)
        return (
            any(c.__name__ in self.names for c in type(error).__mro__)
            or getattr(response, "status_code", None) in self.statuses
            or getattr(error, "errno", None) in self.codes
        )


_LOGIN = "log in with 'hf auth login' (or set HF_TOKEN)"

FAILURES = (
    Failure(
        names=("OfflineModeIsEnabled",),
        why="the cache has no complete copy, and the Hub is switched off (HF_HUB_OFFLINE)",
        todo="unset HF_HUB_OFFLINE once to fetch it",
        passing=True,
    ),
    Failure(
        names=("GatedRepoError",),
        why="access is gated: its owners choose who may read it",
        todo=f"ask for access at {{page}} and {_LOGIN}",
    ),
    Failure(names=("DisabledRepoError",), why="the Hub has disabled this repository", todo="see {page}"),
    Failure(
        names=("RevisionNotFoundError",),
        why="there is no such revision",
        todo="see {page}/commits/main for those there are",
    ),
    Failure(
        names=("RemoteEntryNotFoundError",),
        why="there is no such file",
        todo="see {page}/tree/main for those there are",
    ),
    Failure(
        names=("RepositoryNotFoundError",),
        why="there is no such {kind} on the Hub, or it is private",
        todo=f"check the name, or {_LOGIN}",
    ),
    Failure(names=("HFValidationError",), why="no repository can have this name", todo="names look like 'owner/name'"),
    Failure(statuses=(401, 403), why="access is denied (HTTP {status})", todo=f"{_LOGIN} as a user who may read it"),
    Failure(
        statuses=(429,),
        why="the Hub is asked too often (HTTP 429)",
        todo=f"wait some minutes, or {_LOGIN}, which raises the limit",
        passing=True,
    ),
    Failure(
        statuses=(408, *range(500, 600)),
        why="the Hub is out of order (HTTP {status})",
        todo="try again later",
        passing=True,
        again=True,
    ),
    Failure(statuses=range(400, 500), why="the Hub refuses (HTTP {status})", todo="check {page}"),
    Failure(
        names=("TimeoutException", "TimeoutError"),
        why="the Hub does not answer in time",
        todo="check the network and try again (HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT set the seconds)",
        passing=True,
    ),
    Failure(
        names=("RemoteProtocolError", "ReadError", "WriteError"),
        why="the connection breaks again and again ({detail})",
        todo="check the network and try again",
        passing=True,
    ),
    Failure(
        names=("UnicodeEncodeError", "LocalProtocolError"),
        why="the request cannot be sent: HF_TOKEN holds a character that no token has",
        todo="set it to the token alone, or unset it",
    ),
    Failure(
        names=("TransportError", "ConnectionError"),
        why="cannot reach the Hub ({detail})",
        todo="check the network and try again",
        passing=True,
    ),
    Failure(
        names=("FileMetadataError", "JSONDecodeError", "TooManyRedirects", "OddAnswer"),
        why="what answers is not the Hub",
        todo="check HF_ENDPOINT, and the network's proxy or login page",
        passing=True,
    ),
    Failure(
        codes=(errno.ENOSPC, errno.EDQUOT),
        why="the disk is full",
        todo="free some space, or set HF_HOME and STSBENCH_CACHE to folders on a larger disk",
    ),
    Failure(
        codes=(errno.EACCES, errno.EPERM, errno.EROFS),
        why="the cache cannot be written ({detail})",
        todo="set HF_HOME and STSBENCH_CACHE to folders you may write to",
    ),
    # Last, what is left: a size other than announced, an error of the Xet transfer (a RuntimeError), an input/output error.
    Failure(
        names=("OSError", "RuntimeError", "XetDownloadError", "XetAuthenticationError", "XetObjectNotFoundError"),
        why="the download failed ({detail})",
        todo="try again",
    ),
)
"""The ways to fail, tried in order: the first that fits is told."""

T = TypeVar("T")


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
        cause = _root(error)
        failure = _failure(cause)
        if failure is None:
            raise
        kind = Unreached if failure.passing else SourceError
        problem, hint = _sentences(failure, cause, address, without)
        raise kind(problem, hint=hint) from error


def is_hub_failure(error: BaseException) -> bool:
    """Whether an error is one of the ways in which the Hub fails."""
    return _failure(error) is not None


def persistently(call: Callable[[], T]) -> T:
    """Call, and call again twice where the Hub stumbles; a Hub that hangs has been waited for already."""
    for wait in WAITS:
        try:
            return call()
        except Exception as error:
            failure = _failure(error)
            if failure is None or not failure.again:
                raise
        time.sleep(wait)
    return call()


def _root(error: BaseException) -> BaseException:
    """The error behind "not found locally either", which the library raises when it could not ask the Hub."""
    while type(error).__name__ == "LocalEntryNotFoundError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def _failure(error: BaseException) -> Failure | None:
    return next((failure for failure in FAILURES if failure.fits(error)), None)


def _sentences(failure: Failure, error: BaseException, address: Address, without: str | None) -> tuple[str, str]:
    """What is wrong, and what to do."""
    facts = {
        "page": address.page,
        "kind": address.kind,
        "status": getattr(getattr(error, "response", None), "status_code", None),
        "detail": detail(error),
    }
    why, todo = failure.why.format_map(facts), failure.todo.format_map(facts)
    instead = WITHOUT[address.kind] if without is None else without
    return f"{address}: {why}", f"{todo}{f'; or {instead}' if instead else ''}"


def detail(error: BaseException) -> str:
    """An error's own words, short and on one line."""
    if isinstance(error, json.JSONDecodeError):
        return "the answer is not JSON"
    words = getattr(error, "strerror", None) or one_line(error) or type(error).__name__
    words = re.sub(r"^\[Errno -?\d+\] ", "", words)
    return words if len(words) <= 160 else f"{words[:159]}…"
