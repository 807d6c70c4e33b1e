"""Failures of the Hub and its library: each becomes one line that says what to do.

A request is repeated after an error of the Hub's own, and the library prints nothing itself.
"""

from __future__ import annotations

import errno
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from logging import CRITICAL
from typing import Literal, NamedTuple, TypeVar

from stsbench.core import settings
from stsbench.core.errors import SourceError
from stsbench.core.wording import as_one_line, shorten

ResponseT = TypeVar("ResponseT")

RETRIED_STATUSES = (408, *range(500, 600))
"""HTTP statuses after which a request is repeated at once."""
RETRY_WAITS = (1.0, 2.0)
"""The seconds to wait before the first and the second repetition of a request."""


class UnexpectedResponse(Exception):
    """A response that the Hub does not give."""


class HubUnreachable(SourceError):
    """The Hub cannot be asked at present; an earlier response may do."""


class FailureKind(NamedTuple):
    """A kind of failure: how to recognise it, its reason and its remedy.

    The texts may contain ``{page}``, ``{kind}``, ``{status}`` and ``{detail}``.
    """

    signs: tuple[str | int, ...]
    """Names of exception classes, HTTP statuses, and error numbers; one of them is enough."""
    reason: str
    hint: str
    is_temporary: bool = False


_LOGIN_HINT = "log in with 'hf auth login' (or set HF_TOKEN)"
_NETWORK_HINT = "check the network and try again"
_FOLDERS_HINT = "set HF_HOME and STSBENCH_CACHE to folders"
FAILURES = (
    FailureKind(
        ("OfflineModeIsEnabled",),
        "the cache has no complete copy, and the Hub is switched off (HF_HUB_OFFLINE)",
        "unset HF_HUB_OFFLINE once to fetch it",
        is_temporary=True,
    ),
    FailureKind(
        ("GatedRepoError",), "access is gated", f"ask for access at {{page}} and {_LOGIN_HINT}"
    ),
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
        f"check the id, or {_LOGIN_HINT}",
    ),
    FailureKind(
        (401, 403), "access is denied (HTTP {status})", f"{_LOGIN_HINT} as a user who may read it"
    ),
    FailureKind(
        (429,),
        "the Hub is asked too often (HTTP 429)",
        f"wait some minutes, or {_LOGIN_HINT}",
        is_temporary=True,
    ),
    FailureKind(
        RETRIED_STATUSES,
        "the Hub is out of order (HTTP {status})",
        "try again later",
        is_temporary=True,
    ),
    FailureKind(tuple(range(400, 500)), "the Hub refuses (HTTP {status})", "check {page}"),
    FailureKind(
        ("TimeoutException", "TimeoutError"),
        "the Hub does not answer in time",
        f"{_NETWORK_HINT} (HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT set the seconds)",
        is_temporary=True,
    ),
    FailureKind(
        ("RemoteProtocolError", "ReadError", "WriteError"),
        "the connection breaks again and again",
        _NETWORK_HINT,
        is_temporary=True,
    ),
    FailureKind(
        ("UnicodeEncodeError", "LocalProtocolError"),
        "HF_TOKEN holds a character that no token has",
        "set it anew",
    ),
    FailureKind(
        ("TransportError", "ConnectionError"),
        "cannot reach the Hub ({detail})",
        _NETWORK_HINT,
        is_temporary=True,
    ),
    FailureKind(
        ("FileMetadataError", "TooManyRedirects", "JSONDecodeError", "UnexpectedResponse"),
        "what answers is not the Hub",
        "check HF_ENDPOINT, and the network's proxy or login page",
        is_temporary=True,
    ),
    # Such as a file whose name leads out of the cache.
    FailureKind(("ValueError",), "the Hub's library refuses it ({detail})", "see {page}"),
    FailureKind(
        (errno.ENOSPC, errno.EDQUOT),
        "the disk is full",
        f"free some space, or {_FOLDERS_HINT} on a larger disk",
    ),
    FailureKind(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "the cache cannot be written",
        f"{_FOLDERS_HINT} you may write to",
    ),
    FailureKind(
        (errno.ENOENT,),
        "a file is not there ({detail})",
        "check SSL_CERT_FILE and SSL_CERT_DIR, and try again",
    ),
    # Last, the rest: another size than announced, an input/output error, an error of Xet.
    FailureKind(
        ("OSError", "RuntimeError", "XetDownloadError"),
        "the download failed ({detail})",
        "try again",
    ),
)
"""The kinds of failure; if several fit, the first counts."""


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of a response that is an error; None for other exceptions."""
    return getattr(getattr(error, "response", None), "status_code", None)


def call_with_retries(request: Callable[[], ResponseT]) -> ResponseT:
    """Send a request to the Hub, and repeat it up to twice after an error of the server.

    Such errors have the HTTP status 408 or one from 500 (``RETRIED_STATUSES``). A request without
    any response is not repeated: its timeout has been waited for already.

    Args:
        request: Send the request and return the response.

    Returns:
        The response.

    Raises:
        OfflineModeIsEnabled: The settings forbid requests; nothing is sent.
        Exception: The error of the last request.
    """
    from huggingface_hub.errors import OfflineModeIsEnabled

    if settings.hub_is_offline():
        raise OfflineModeIsEnabled("offline mode")
    for seconds in RETRY_WAITS:  # one wait for each of the two repetitions
        try:
            return request()
        except Exception as error:
            if http_status(error) not in RETRIED_STATUSES:
                raise
        time.sleep(seconds)
    # The last time, an error is raised.
    return request()


def describe_exception(error: BaseException) -> str:
    """Return the text of an exception, short and on one line."""
    text = getattr(error, "strerror", None) or as_one_line(error) or type(error).__name__
    return shorten(re.sub(r"^\[Errno -?\d+\] ", "", text), max_length=160)


@contextmanager
def silence_library(library: Literal["huggingface_hub", "datasets"]) -> Iterator[None]:
    """Keep a library's progress bars, warnings and log off the terminal within a ``with`` block.

    Behind the block its settings are as before. Its errors are raised; this package prints them as
    one line.
    """
    utils = import_module(f"{library}.utils")
    earlier_verbosity = utils.logging.get_verbosity()
    had_progress_bars = not utils.are_progress_bars_disabled()
    with warnings.catch_warnings():
        # For example that the disk may be too small: if it is, the error says so.
        warnings.filterwarnings("ignore", module="huggingface_hub")
        # Some versions of datasets leave files open.
        warnings.simplefilter("ignore", ResourceWarning)
        utils.logging.set_verbosity(CRITICAL)
        if had_progress_bars:
            utils.disable_progress_bars()
        try:
            yield
        finally:
            utils.logging.set_verbosity(earlier_verbosity)
            if had_progress_bars:
                utils.enable_progress_bars()
