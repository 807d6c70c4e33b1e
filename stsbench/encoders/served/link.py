"""The way to a server: requests with a key, time-outs, a pace, and what is asked again when it fails.

The key stands in the environment. It is sent to the one address that was given, redirects are not followed, and what
a server says is printed without it.
"""

from __future__ import annotations

import json
import random
import threading
import weakref
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from stsbench import settings
from stsbench.encoders.served.rates import RateLimit
from stsbench.errors import CardError, EncoderError, SourceError, StsbenchError, one_line, visible

AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Answers after which the same request may succeed; 529 is that of some services with too much to do."""
USED_UP = ("insufficient_quota", "billing_hard_limit_reached")
"""Codes of error 429 that no waiting helps."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds before the second attempt; twice as many before each further one, up to the longest."""
LONGEST_TOLD = 600.0
"""Seconds that a server may ask us to wait."""
LARGEST = 1 << 28
"""Bytes of an answer, unpacked: more than 2,048 embeddings of 4,096 numbers have, written out."""
OPENAI_HOST, OPENAI_KEY = "api.openai.com", "OPENAI_API_KEY"


class _Answer(NamedTuple):
    status: int
    headers: httpx2.Headers
    content: bytes


class TooLarge(EncoderError):
    """A request with more text than the server takes at once."""


class NotAsked(SourceError):
    """A request that was not sent, since another has failed."""


class Link:
    """One server: its address, the key for it, and how it is asked."""

    def __init__(
        self,
        url: str,
        *,
        key_variable: str | None = None,
        timeout: float = 60,
        retries: int = 6,
        pace: RateLimit | None = None,
    ) -> None:
        """Check the address; nothing is sent yet.

        Args:
            url: the address before ``/embeddings``.
            key_variable: the environment variable that holds the key, "" for none; default OPENAI_API_KEY at OpenAI's
                own address, else none.
            timeout: seconds to wait for an answer.
            retries: how often a request is sent again.
            pace: limits that its threads share.

        Raises:
            CardError: it is no address, or holds what does not belong there.
        """
        parts = _checked(url)
        self.url = url.rstrip("/").removesuffix("/embeddings").removesuffix("/embed")
        if timeout <= 0 or retries < 0:
            raise CardError(f"timeout {timeout:g}, retries {retries}: give a time above 0, and 0 retries or more")
        usual = OPENAI_KEY if parts.scheme == "https" and parts.hostname == OPENAI_HOST else ""
        self.key_variable = usual if key_variable is None else key_variable
        self.timeout, self.retries, self.pace = timeout, retries, pace or RateLimit()
        self._on_this_machine = parts.hostname in ("localhost", "127.0.0.1", "::1")

    def __getstate__(self) -> dict[str, Any]:
        """What another process is sent: no connections, and no key, which it has of its own environment."""
        return {name: value for name, value in vars(self).items() if name != "_client"}

    @cached_property
    def _client(self) -> httpx2.Client:
        key = self.key()
        client = httpx2.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(self.timeout, connect=min(self.timeout, 10), pool=None),
            limits=httpx2.Limits(max_connections=None),
            # A proxy of the user's leads out of this machine.
            trust_env=not self._on_this_machine,
        )
        weakref.finalize(self, client.close)
        return client

    def key(self) -> str:
        """The key to send, empty where none is.

        Raises:
            StsbenchError: the environment lacks it.
        """
        return settings.secret(self.key_variable) if self.key_variable else ""

    def ask_about(self, path: str) -> dict[str, Any] | None:
        """What the server says of itself: an empty table where it says nothing of that, None where none answers."""
        try:
            answer = self._send("GET", path, timeout=min(self.timeout, 10))
        except (httpx2.HTTPError, StsbenchError):
            # Without a key, what is stored can still be found and counted.
            return None
        if answer.status >= 500:
            return None
        try:
            said = json.loads(answer.content) if answer.status == 200 else {}
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}

    def post(self, path: str, body: Mapping[str, Any], *, tokens: int, stop: threading.Event) -> Any:  # noqa: ANN401 - JSON
        """Send a request and return the answer's JSON; what may pass is tried again, until ``stop`` is set.

        Raises:
            TooLarge: the server wants fewer texts at once.
            SourceError: it cannot be reached, or gives up. EncoderError: it refuses.
        """
        why = ""
        for attempt in range(self.retries + 1):
            self.pace.wait(tokens, stop)
            if stop.is_set():
                raise NotAsked(f"the server at {self.url} is not asked any more; {KEPT}")
            answer, why = self._try(path, body)
            if answer is not None and answer.status == 200:
                return self._json(answer)
            if answer is not None and (answer.status not in AGAIN or _code(answer) in USED_UP):
                raise self._refusal(path, answer)
            if attempt < self.retries:
                self._wait(attempt, answer, why, stop)
        raise SourceError(f"the server at {self.url} gave no embeddings in {self.retries + 1} attempts: {why}; {KEPT}")

    def _send(self, method: str, path: str, **options: Any) -> _Answer:  # noqa: ANN401 - the client's own
        """Send a request and read its answer, no more of it than any true one has; raises EncoderError."""
        content = bytearray()
        with self._client.stream(method, f"{self.url}{path}", **options) as answer:
            for part in answer.iter_bytes():
                content += part
                if len(content) > LARGEST:
                    raise EncoderError(f"the server at {self.url} answered more than {LARGEST:,} bytes")
        return _Answer(answer.status_code, answer.headers, bytes(content))

    def _try(self, path: str, body: Mapping[str, Any]) -> tuple[_Answer | None, str]:
        try:
            answer = self._send("POST", path, json=body)
        except httpx2.TimeoutException:
            return None, f"no answer in {self.timeout:g} s (--set timeout=SECONDS waits longer)"
        except httpx2.HTTPError as error:
            return None, self._clean(f"{type(error).__name__}: {error}")
        except UnicodeEncodeError as error:
            raise EncoderError(f"the key in {self.key_variable} holds signs that no key has") from error
        return answer, f"{answer.status} {self._said(answer)}"

    def _wait(self, attempt: int, answer: _Answer | None, why: str, stop: threading.Event) -> None:
        told = _retry_after(answer) if answer is not None else None
        if told is not None and told > LONGEST_TOLD:
            raise SourceError(f"the server at {self.url} asks to wait {told:.0f} s ({why}); {KEPT}")
        usual = min(LONGEST_WAIT, FIRST_WAIT * 2.0**attempt) * random.uniform(0.5, 1)
        seconds = usual if told is None else told
        if told is not None or (answer is not None and answer.status == 429):
            self.pace.hold(seconds)
        else:
            stop.wait(seconds)

    def _json(self, answer: _Answer) -> Any:  # noqa: ANN401 - JSON
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError) as error:
            raise EncoderError(
                f"the server at {self.url} answered no JSON: {self._clean(answer.content.decode('utf-8', 'replace'))}"
            ) from error

    def _refusal(self, path: str, answer: _Answer) -> EncoderError:
        status, said = answer.status, self._said(answer)
        if status == 413:
            return TooLarge(f"the server at {self.url} finds the text too long: {said}")
        what = f"the server at {self.url} answered {status}: {said}"
        if status in (401, 403):
            named = f"set {self.key_variable} to a key that it takes" if self.key_variable else NAME_A_KEY
            return EncoderError(f"{what}; {named}")
        if status == 404:
            return EncoderError(
                f"{what}; is {path} there? the address of most servers ends in /v1, and 'model' must be theirs"
            )
        return EncoderError(what)

    def _said(self, answer: _Answer) -> str:
        """What an error says, in one line and without the key."""
        try:
            told = json.loads(answer.content)
        except (ValueError, RecursionError):
            told = answer.content.decode("utf-8", "replace")
        for key in ("error", "detail", "message"):
            if isinstance(told, dict) and key in told:
                told = told[key]
        return self._clean(str(told))

    def _clean(self, text: str) -> str:
        key = self.key()
        return visible(one_line(text.replace(key, "***") if key else text))[:200]


NAME_A_KEY = "put a key into an environment variable and name that: --set key_variable=NAME"
KEPT = "what has come is kept: run the same command to go on"


def _checked(url: str) -> Any:  # noqa: ANN401 - urllib's own
    if not url:
        raise CardError("an encoder behind a server needs its address: --set url=http://localhost:8000/v1")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise CardError(f"url '{url[:80]}' is no address; give http://HOST:PORT/v1 or https://HOST/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        # Not shown: it may hold the key.
        raise CardError(
            f"url of {parts.hostname}: leave out user, password and what stands after '?'; the key is in key_variable"
        )
    return parts


def _code(answer: _Answer) -> str:
    try:
        return str(json.loads(answer.content)["error"]["code"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


def _retry_after(answer: _Answer) -> float | None:
    """The seconds of a Retry-After header, which holds a number or a date."""
    said = answer.headers.get("Retry-After", "").strip()
    try:
        return max(0.0, float(said))
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(said)
    except ValueError:
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
