"""The way to a server: requests with a key, a total time, a pace, and what is asked again when it fails.

The key stands in the environment. It is sent to the one address that was given, redirects are not followed, and what
a server says is printed without it.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from stsbench.core import settings
from stsbench.core.errors import CardError, EncoderError, SourceError, StsbenchError
from stsbench.core.wording import escape_controls, join_lines

AGAIN = frozenset({0, 408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Answers after which the same request may succeed; 529 is that of some services with too much to do."""
USED_UP = ("insufficient_quota", "billing_hard_limit_reached")
"""Codes of error 429 that no waiting helps."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds before the second attempt; twice as many before each further one, up to the longest."""
LONGEST_ASKED = 600.0
"""Seconds that a server may ask us to wait."""
LARGEST = 1 << 28
"""Bytes of an answer, unpacked: more than 2,048 embeddings of 4,096 numbers have, written out."""
LONGEST_MESSAGE = 20_000
"""Characters of a server's message that are looked at."""
QUOTE = 10
"""So many characters of a text make a quote of it."""
OPENAI_HOST, OPENAI_KEY = "api.openai.com", "OPENAI_API_KEY"
NAME_A_KEY = "put a key into an environment variable and name that: --set key_variable=NAME"
KEPT = "what has come is kept: run the same command to continue"


class RequestTooLarge(EncoderError):
    """A request with more text than the server takes at once."""


class RequestSkipped(SourceError):
    """A request that was not sent, since another has failed."""


class _Answer(NamedTuple):
    status: int
    """0 where none came; the content then says why."""
    content: bytes
    headers: Mapping[str, str] = {}

    def parsed(self) -> Any:  # noqa: ANN401 - JSON, or the text of what is none
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            return self.content.decode("utf-8", "replace")

    def may_pass(self) -> bool:
        """Whether the same request may succeed later."""
        error = found.get("error") if isinstance(found := self.parsed(), dict) else None
        return self.status in AGAIN and not (
            isinstance(error, dict) and error.get("code") in USED_UP
        )

    def asks_to_wait(self) -> float | None:
        """The seconds of a Retry-After header, which holds a number or a date."""
        said = self.headers.get("Retry-After", "").strip()
        try:
            if said.replace(".", "", 1).isdecimal():
                return float(said)
            date = parsedate_to_datetime(said)
        except ValueError:
            return None
        return max(
            0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
        )


class ServerClient:
    """One server: its address, the key for it, and how it is asked, by several threads at one pace."""

    def __init__(
        self,
        url: str,
        key_variable: str | None = None,
        timeout: float = 60,
        retries: int = 6,
        requests_a_minute: float = 0,
        tokens_a_minute: float = 0,
    ) -> None:
        """Check the address; nothing is sent yet.

        ``key_variable`` is the environment variable that holds the key, "" for none; default OPENAI_API_KEY at OpenAI's
        own address, else none. ``timeout`` is in seconds, for all of a request. Rate 0: no limit. Raises CardError.
        """
        self._given = (url, key_variable, timeout, retries, requests_a_minute, tokens_a_minute)
        if not url:
            raise CardError(
                "an encoder behind a server needs its address: --set url=http://localhost:8000/v1"
            )
        try:
            parts = urlsplit(url)
            host = parts.hostname if parts.scheme in ("http", "https") and parts.port != 0 else None
        except ValueError:
            host = None
        if not host:
            raise CardError(
                f"url '{url[:80]}' is no address; give http://HOST:PORT/v1 or https://HOST/v1"
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            # Not shown: it may hold the key.
            out = "leave out user, password and what stands after '?'"
            raise CardError(f"url of {host}: {out}; the key is in key_variable")
        self.url = url.rstrip("/").removesuffix("/embeddings").removesuffix("/embed")
        usual = OPENAI_KEY if (parts.scheme, host) == ("https", OPENAI_HOST) else ""
        self.key_variable = usual if key_variable is None else key_variable
        self.timeout, self.retries = timeout, retries
        self._on_this_machine = host in ("localhost", "127.0.0.1", "::1")
        self._a_request, self._a_token = (
            60 / rate if rate else 0.0 for rate in (requests_a_minute, tokens_a_minute)
        )
        self._lock = threading.Lock()
        self._free_at = self._held_until = 0.0
        self._idle: list[httpx2.Client] = []

    def __reduce__(self) -> tuple[type[ServerClient], tuple[Any, ...]]:
        """What another process is sent: no connections, and no key, which it has of its own environment."""
        return ServerClient, self._given

    def key(self) -> str:
        """The key to send, empty where none is. Raises StsbenchError: the environment lacks it."""
        return settings.secret(self.key_variable) if self.key_variable else ""

    def ask_about(self, path: str) -> dict[str, Any] | None:
        """What the server says of itself: an empty table where it says nothing of that, None where none answers."""
        try:
            answer = self._send("GET", path, seconds=min(self.timeout, 10))
        except StsbenchError:
            # Without a key, what is stored can still be found and counted.
            return None
        said = answer.parsed() if answer.status == 200 else {}
        # A server that has no such page may say that it is not implemented.
        answers = 0 < answer.status < 500 or answer.status == 501
        return None if not answers else said if isinstance(said, dict) else {}

    def post(
        self, path: str, body: Mapping[str, Any], *, tokens: int, stop: threading.Event
    ) -> Any:  # noqa: ANN401 - JSON
        """Send a request and return the answer's JSON; what may pass is tried again, until ``stop`` is set.

        Raises TooLarge: the server wants fewer texts at once; SourceError: it cannot be reached, or gives up;
        EncoderError: it refuses.
        """
        why, sent = (
            "",
            [text for field in body.values() if isinstance(field, list) for text in field],
        )
        for attempt in range(self.retries + 1):
            self._keep_pace(tokens, stop)
            if stop.is_set():
                raise RequestSkipped(f"the server at {self.url} is not asked any more; {KEPT}")
            answer = self._send("POST", path, seconds=self.timeout, body=body)
            if answer.status == 200:
                if isinstance(found := answer.parsed(), str):
                    raise EncoderError(
                        f"the server at {self.url} answered no JSON: {self._clean(found, sent)}"
                    )
                return found
            if not answer.may_pass():
                raise self._refusal(path, answer, sent)
            why = f"{answer.status or ''} {self._said(answer, sent)}".lstrip()
            if attempt < self.retries:
                self._wait(attempt, answer, why, stop)
        raise SourceError(
            f"the server at {self.url} gave no embeddings in {self.retries + 1} attempts: {why}; {KEPT}"
        )

    @contextmanager
    def _client(self, seconds: float) -> Iterator[httpx2.Client]:
        """A client for one request, which is broken off after so long: a limit on each read never ends what drips."""
        try:
            client = self._idle.pop()
        except IndexError:
            headers = {"Authorization": f"Bearer {key}"} if (key := self.key()) else {}
            # A proxy of the user's leads out of this machine; certificates named by SSL_CERT_FILE count here too.
            tls, elsewhere = httpx2.create_ssl_context(), not self._on_this_machine
            client = httpx2.Client(headers=headers, verify=tls, trust_env=elsewhere)
            weakref.finalize(self, client.close)
        clock = threading.Timer(seconds, client.close)
        clock.start()
        try:
            yield client
        except Exception as error:
            if client.is_closed:
                raise httpx2.ReadTimeout("the time for the request is over") from error
            raise
        finally:
            clock.cancel()
            clock.join()
            if not client.is_closed:
                self._idle.append(client)

    def _send(self, method: str, path: str, *, seconds: float, body: object = None) -> _Answer:
        """Send a request and read its answer, no more of it than any true one has; raises EncoderError where it is longer."""
        content, limits = bytearray(), httpx2.Timeout(seconds, connect=min(seconds, 10))
        try:
            with (
                self._client(seconds) as client,
                client.stream(method, f"{self.url}{path}", json=body, timeout=limits) as answer,
            ):
                for part in answer.iter_bytes():
                    content += part
                    if len(content) > LARGEST:
                        raise EncoderError(
                            f"the server at {self.url} answered more than {LARGEST:,} bytes"
                        )
        except UnicodeEncodeError as error:
            raise EncoderError(
                f"the key in {self.key_variable} holds signs that no key has"
            ) from error
        except httpx2.TimeoutException:
            return _Answer(
                0, f"no answer in {seconds:g} s (--set timeout=SECONDS waits longer)".encode()
            )
        except httpx2.HTTPError as error:
            return _Answer(0, f"{type(error).__name__}: {error}".encode())
        return _Answer(answer.status_code, bytes(content), answer.headers)

    def _keep_pace(self, tokens: int, stop: threading.Event) -> None:
        """Wait until a request of so many tokens may be sent; no longer than until ``stop`` is set."""
        with self._lock:
            start = max(time.monotonic(), self._free_at)
            self._free_at = start + max(self._a_request, tokens * self._a_token)
        # The server may ask another thread to wait longer while this one waits.
        while (left := max(start, self._held_until) - time.monotonic()) > 0 and not stop.wait(left):
            pass

    def _wait(self, attempt: int, answer: _Answer, why: str, stop: threading.Event) -> None:
        asked = answer.asks_to_wait()
        if asked is not None and asked > LONGEST_ASKED:
            raise SourceError(
                f"the server at {self.url} asks to wait {asked:.0f} s ({why}); {KEPT}"
            )
        seconds = (
            min(LONGEST_WAIT, FIRST_WAIT * 2.0**attempt) * random.uniform(0.5, 1)
            if asked is None
            else asked
        )
        if asked is None and answer.status != 429:
            stop.wait(seconds)
            return
        # Of all threads none asks before that.
        with self._lock:
            self._held_until = max(self._held_until, time.monotonic() + seconds)

    def _refusal(self, path: str, answer: _Answer, sent: Sequence[str]) -> EncoderError:
        status, said = answer.status, self._said(answer, sent)
        what = f"the server at {self.url} answered {status}: {said}"
        if status == 413:
            return RequestTooLarge(f"the server at {self.url} finds the text too long: {said}")
        if status in (401, 403):
            what += (
                f"; set {self.key_variable} to a key that it takes"
                if self.key_variable
                else f"; {NAME_A_KEY}"
            )
        elif status == 404:
            what += f"; is {path} there? the address of most servers ends in /v1, and 'model' must be theirs"
        return EncoderError(what)

    def _said(self, answer: _Answer, sent: Sequence[str]) -> str:
        said = answer.parsed()
        for key in ("error", "detail", "message"):
            said = said[key] if isinstance(said, dict) and key in said else said
        return self._clean(str(said), sent)

    def _clean(self, text: str, sent: Sequence[str]) -> str:
        """Return a text of the server in one line, without the key and without what it quotes of the texts that it was sent."""
        key = self.key()
        text = text[:LONGEST_MESSAGE]
        return escape_controls(
            join_lines(without_quotes(text.replace(key, "***") if key else text, sent))
        )[:200]


def without_quotes(message: str, sent: Sequence[str]) -> str:
    """Return a message with ``[…]`` in the place of what it quotes of texts, which may be confidential.

    A quote is a text as a whole, or any part of it of ``QUOTE`` characters, also as JSON (within JSON) and Python write it.
    """
    escaped = [json.dumps(text)[1:-1] for text in sent]
    twice = [json.dumps(text)[1:-1] for text in escaped]
    forms = {
        form
        for form in (*sent, *escaped, *twice, *(repr(text)[1:-1] for text in sent))
        if form.strip()
    }
    parts = {
        form[start : start + QUOTE] for form in forms for start in range(len(form) - QUOTE + 1)
    }
    quoted = [False] * len(message)
    for start in range(len(message)):
        if message[start : start + QUOTE] in parts:
            quoted[start : start + QUOTE] = [True] * QUOTE
    for form in forms:
        if len(form) < QUOTE:
            for found in re.finditer(rf"(?<!\w){re.escape(form)}(?!\w)", message):
                quoted[found.start() : found.end()] = [True] * len(form)
    runs = groupby(zip(message, quoted, strict=True), key=itemgetter(1))
    return "".join(
        "[…]" if is_quoted else "".join(sign for sign, _ in signs) for is_quoted, signs in runs
    )
