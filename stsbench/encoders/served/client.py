"""Requests to a server of embeddings: with a key, a time limit, a rate, and retries.

The key is in the environment. It is sent to the user's address alone, redirects are not followed,
and messages of the server are printed without it.
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
from urllib.parse import SplitResult, urlsplit

import httpx2

from stsbench.core import settings
from stsbench.core.errors import CardError, EncoderError, SourceError, StsbenchError
from stsbench.core.wording import as_one_line, escape_controls, format_repr

TRANSIENT_STATUSES = frozenset({0, 408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed; some overloaded services answer 529."""
QUOTA_CODES = ("insufficient_quota", "billing_hard_limit_reached")
"""Codes of error 429 that no waiting helps."""
FIRST_WAIT = 0.5
"""The seconds before the second attempt; twice as many before each further one."""
MAX_WAIT = 60.0
"""The maximum number of seconds before an attempt, unless the server asks for more."""
MAX_REQUESTED_WAIT = 600.0
"""The maximum number of seconds that a server may ask us to wait."""
MAX_RESPONSE_BYTES = 1 << 28
"""Bytes of a response, unpacked: more than 2,048 embeddings of 4,096 numbers have as text."""
MAX_MESSAGE_LENGTH = 20_000
"""Characters of a server's message that are searched for quotes."""
QUOTE_LENGTH = 10
"""The number of characters of a text that make a quote of it."""
OPENAI_HOST = "api.openai.com"
OPENAI_KEY = "OPENAI_API_KEY"
KEY_HINT = "put a key into an environment variable and name that: `params=key_variable=NAME`"
STORED_HINT = "what has come is kept: run the same command to continue"


class RequestTooLarge(EncoderError):
    """A request with more text than the server accepts at once."""


class RequestSkipped(SourceError):
    """A request that was not sent, since another has failed."""


class _Response(NamedTuple):
    status: int
    """0 if there was no response; the content then describes the failure."""
    content: bytes
    headers: Mapping[str, str] = {}

    def parse(self) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON value of the content; the content as text if it is not JSON."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            return self.content.decode("utf-8", "replace")

    def is_transient(self) -> bool:
        """Return whether the same request may succeed later."""
        value = self.parse()
        error = value.get("error") if isinstance(value, dict) else None
        is_quota_used = isinstance(error, dict) and error.get("code") in QUOTA_CODES
        return self.status in TRANSIENT_STATUSES and not is_quota_used

    def requested_wait(self) -> float | None:
        """Return for how many seconds the server asks us to wait before the next request.

        It does so by the header ``Retry-After``: a number of seconds, or a date.

        Returns:
            None if there is no such header, or neither of the two in it.
        """
        header = self.headers.get("Retry-After", "").strip()
        try:
            if header.replace(".", "", 1).isdecimal():
                return float(header)
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        date = date.replace(tzinfo=date.tzinfo or UTC)
        return max(0.0, (date - datetime.now(UTC)).total_seconds())


class ServerClient:
    """A client of one server, with its address, key and limits, for several threads at one rate."""

    def __init__(
        self,
        url: str,
        key_variable: str | None = None,
        timeout: float = 60,
        retries: int = 6,
        requests_a_minute: float = 0,
        tokens_a_minute: float = 0,
    ) -> None:
        """Check the address and store the limits; nothing is sent yet.

        Args:
            url: The address of the server.
            key_variable: The environment variable that holds the key, empty for no key; None for
                OPENAI_API_KEY at OpenAI's own address, and else for no key.
            timeout: The seconds that one request may take in all.
            retries: The number of attempts after the first.
            requests_a_minute: The maximum rate of requests; 0 for none.
            tokens_a_minute: The maximum rate of tokens; 0 for none.

        Raises:
            CardError: The address is missing or not valid.
        """
        # With these the client is made again in another process.
        self._arguments = (url, key_variable, timeout, retries, requests_a_minute, tokens_a_minute)
        parts = _split_address(url)
        host = parts.hostname
        # Users may give the address with the path of the requests, which is added again later.
        self.url = url.rstrip("/").removesuffix("/embeddings").removesuffix("/embed")
        is_openai = (parts.scheme, host) == ("https", OPENAI_HOST)
        default_variable = OPENAI_KEY if is_openai else ""
        self.key_variable = default_variable if key_variable is None else key_variable
        self.timeout = timeout
        self.retries = retries
        self._is_local = host in ("localhost", "127.0.0.1", "::1")
        self._seconds_per_request = 60 / requests_a_minute if requests_a_minute else 0.0
        self._seconds_per_token = 60 / tokens_a_minute if tokens_a_minute else 0.0
        self._lock = threading.Lock()
        # Two times of the monotonic clock, in seconds, before which no request is sent: because of
        # our rates, and because the server has asked us to wait.
        self._next_start = 0.0
        self._blocked_until = 0.0
        self._idle_clients: list[httpx2.Client] = []

    def __reduce__(self) -> tuple[type[ServerClient], tuple[Any, ...]]:
        """Rebuild it in another process, without connections, and with the key there."""
        return ServerClient, self._arguments

    def read_key(self) -> str:
        """Return the key to send, empty if there is none.

        Raises:
            StsbenchError: The environment lacks the variable.
        """
        return settings.read_secret(self.key_variable) if self.key_variable else ""

    def get(self, path: str) -> dict[str, Any] | None:
        """Return the JSON object at a path of the server.

        Args:
            path: The path below the server's address.

        Returns:
            An empty object if the server has none there. None if no server answers, if it has an
            error of its own, or if the key is missing.
        """
        try:
            response = self._send("GET", path, seconds=min(self.timeout, 10))
        except StsbenchError:
            # For example, the key is missing: stored embeddings can still be found without it.
            return None
        # Status 501, "not implemented", only says that the server has nothing at this path.
        has_answered = 0 < response.status < 500 or response.status == 501
        if not has_answered:
            return None
        value = response.parse() if response.status == 200 else {}
        return value if isinstance(value, dict) else {}

    def post(
        self, path: str, body: Mapping[str, Any], *, tokens: int, stop: threading.Event
    ) -> Any:  # noqa: ANN401 - JSON
        """Send a request for embeddings and return the JSON value of its response.

        After a failure that may be transient, the request is sent again, up to ``self.retries``
        times.

        Args:
            path: The path of the request below the address.
            body: The fields of the request.
            tokens: The number of tokens in the request, for the limit on tokens per minute.
            stop: Once any thread has set it, no request is sent any more.

        Raises:
            RequestTooLarge: The server accepts fewer texts at once.
            RequestSkipped: ``stop`` was set before the request was sent.
            SourceError: The server cannot be reached, or gives no embeddings in all attempts.
            EncoderError: The server refuses.
        """
        # All lists among the fields are of texts, which error messages must not quote.
        sent_texts = [text for field in body.values() if isinstance(field, list) for text in field]
        reason = ""
        for attempt in range(self.retries + 1):
            # Returns at once if `stop` is set.
            self._wait_for_rate(tokens, stop)
            if stop.is_set():
                raise RequestSkipped(
                    f"the server at {self.url} is not asked any more; {STORED_HINT}"
                )
            # Its status is 0 if there was no response.
            response = self._send("POST", path, seconds=self.timeout, body=body)
            if response.status == 200:
                # The content as text if it is not JSON.
                value = response.parse()
                if isinstance(value, str):
                    message = self._without_secrets(value, sent_texts)
                    raise EncoderError(f"the server at {self.url} answered no JSON: {message}")
                return value
            # Transient: no response, too many requests (429), or a server's error such as 503,
            # unless a quota is used up.
            if not response.is_transient():
                raise self._permanent_error(path, response, sent_texts)
            reason = f"{response.status or ''} {self._error_message(response, sent_texts)}".lstrip()
            # Not after the last attempt.
            if attempt < self.retries:
                self._wait(attempt, response, reason, stop)
        raise SourceError(
            f"the server at {self.url} gave no embeddings in {self.retries + 1} attempts: "
            f"{reason}; {STORED_HINT}"
        )

    @contextmanager
    def _borrow_client(self, seconds: float) -> Iterator[httpx2.Client]:
        """Provide a HTTP client for one request, and close it if the request takes too long.

        The limit is on the whole request: one on each read would not end a response that comes
        byte by byte. A client that is still open at the end is kept for the next request.

        Args:
            seconds: The limit.

        Yields:
            An idle client, or a new one, which sends the key with each request.

        Raises:
            httpx2.ReadTimeout: The client was closed at the limit.
        """
        try:
            client = self._idle_clients.pop()
        except IndexError:
            # Empty if the server needs no key. Raises an error if the key's variable is not set.
            key = self.read_key()
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            # A proxy in the environment (trust_env) is used only for servers on other machines.
            # The context also has the certificates that the user names in SSL_CERT_FILE.
            client = httpx2.Client(
                headers=headers,
                verify=httpx2.create_ssl_context(),
                trust_env=not self._is_local,
            )
            weakref.finalize(self, client.close)
        timer = threading.Timer(seconds, client.close)
        timer.start()
        try:
            yield client
        except Exception as error:
            if client.is_closed:
                raise httpx2.ReadTimeout("the time for the request is over") from error
            raise
        finally:
            timer.cancel()
            timer.join()
            if not client.is_closed:
                self._idle_clients.append(client)

    def _send(self, method: str, path: str, *, seconds: float, body: object = None) -> _Response:
        """Send a request once and read its response.

        Args:
            method: ``GET`` or ``POST``.
            path: The path of the request below the address.
            seconds: The time limit for the whole request.
            body: The fields of the request, sent as JSON; None for a request without any.

        Returns:
            The response; with status 0 and the reason as its content if there was none.

        Raises:
            EncoderError: The response has more than ``MAX_RESPONSE_BYTES``, or the key has
                characters that cannot be in a header.
        """
        content = bytearray()
        # The limit of each step; `_borrow_client` limits the whole, by a TimeoutException too.
        timeout = httpx2.Timeout(seconds, connect=min(seconds, 10))
        try:
            with (
                self._borrow_client(seconds) as client,
                client.stream(method, f"{self.url}{path}", json=body, timeout=timeout) as response,
            ):
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > MAX_RESPONSE_BYTES:
                        raise EncoderError(
                            f"the server at {self.url} answered more than "
                            f"{MAX_RESPONSE_BYTES:,} bytes"
                        )
        except UnicodeEncodeError as error:  # of the header with the key
            raise EncoderError(
                f"the key in {self.key_variable} holds characters that no key has"
            ) from error
        except httpx2.TimeoutException:
            message = f"no answer in {seconds:g} s (`params=timeout=SECONDS` waits longer)"
            return _Response(status=0, content=message.encode())
        except httpx2.HTTPError as error:
            return _Response(status=0, content=f"{type(error).__name__}: {error}".encode())
        return _Response(response.status_code, content=bytes(content), headers=response.headers)

    def _wait_for_rate(self, tokens: int, stop: threading.Event) -> None:
        """Wait until a request may be sent, so that all threads together keep the rates.

        The rates are requests per minute and tokens per minute, as the user has set them, and any
        wait that the server has asked for.

        Args:
            tokens: The number of tokens of the request.
            stop: Ends the wait when it is set.
        """
        # A thread takes the next free time, and moves it on for the thread after it.
        with self._lock:
            start = max(time.monotonic(), self._next_start)
            self._next_start = start + max(
                self._seconds_per_request, tokens * self._seconds_per_token
            )
        # Repeated, because while this thread waits the server may ask another one to wait longer.
        while (seconds := max(start, self._blocked_until) - time.monotonic()) > 0:
            # True if it was set during the wait.
            if stop.wait(seconds):
                return

    def _wait(self, attempt: int, response: _Response, reason: str, stop: threading.Event) -> None:
        """Wait after a failed attempt, or set a time before which no thread sends a request.

        If the server asks for a wait, or answers that there are too many requests (status 429),
        only the time is set, for all threads; they wait for it before their next request.
        Otherwise this thread waits now, longer after each attempt.

        Args:
            attempt: The number of the failed attempt, from 0.
            response: The server's response to it.
            reason: The server's message, for an error.
            stop: Ends the wait when it is set.

        Raises:
            SourceError: The server asks for more than ``MAX_REQUESTED_WAIT`` seconds.
        """
        # None if the server asks for no wait.
        requested = response.requested_wait()
        if requested is not None and requested > MAX_REQUESTED_WAIT:
            raise SourceError(
                f"the server at {self.url} asks to wait {requested:.0f} s ({reason}); {STORED_HINT}"
            )
        # A random factor, so that the threads do not all send their requests at the same time.
        own_wait = min(MAX_WAIT, FIRST_WAIT * 2.0**attempt) * random.uniform(0.5, 1)
        seconds = own_wait if requested is None else requested
        # Neither a wait that the server asks for nor "too many requests": it concerns this request.
        if requested is None and response.status != 429:
            stop.wait(seconds)
            return
        # A time of the monotonic clock, for which `_wait_for_rate` waits before each request.
        with self._lock:
            self._blocked_until = max(self._blocked_until, time.monotonic() + seconds)

    def _permanent_error(
        self, path: str, response: _Response, sent_texts: Sequence[str]
    ) -> EncoderError:
        """Return the error for a response after which the same request would fail again.

        It is a RequestTooLarge, which is an EncoderError too, if the status is 413.

        Args:
            path: The path of the request below the address.
            response: The server's response.
            sent_texts: The texts of the request, which the message must not quote.
        """
        # The server's own message, in one line, without the key and the texts.
        message = self._error_message(response, sent_texts)
        if response.status == 413:
            return RequestTooLarge(f"the server at {self.url} finds the text too long: {message}")
        hint = ""
        if response.status in (401, 403):
            has_key = bool(self.key_variable)
            hint = f"set {self.key_variable} to a key that it takes" if has_key else KEY_HINT
        elif response.status == 404:
            hint = (
                f"is {path} there? the address of most servers ends in /v1, "
                "and 'model' must be theirs"
            )
        return EncoderError(
            f"the server at {self.url} answered {response.status}: {message}", hint=hint
        )

    def _error_message(self, response: _Response, sent_texts: Sequence[str]) -> str:
        """Return the error message of a response in one line."""
        value = response.parse()
        for key in ("error", "detail", "message"):
            if isinstance(value, dict) and key in value:
                value = value[key]
        return self._without_secrets(str(value), sent_texts)

    def _without_secrets(self, message: str, sent_texts: Sequence[str]) -> str:
        """Return a server's message in one line, without the key and without quotes of texts."""
        key = self.read_key()
        message = message[:MAX_MESSAGE_LENGTH]
        if key:
            message = message.replace(key, "***")
        return escape_controls(as_one_line(without_quotes(message, sent_texts)))[:200]


def _split_address(url: str) -> SplitResult:
    """Return the parts of a server's address: scheme, host, port and path.

    Raises:
        CardError: The address is missing, is not of http or https, or has a user, a password or
            parameters in it, any of which may be a secret.
    """
    if not url:
        raise CardError(
            "an encoder behind a server needs its address: `params=url=http://localhost:8000/v1`"
        )
    try:
        parts = urlsplit(url)
        # Both raise for hosts that cannot exist: with characters of no host, or an empty label.
        httpx2.URL(url)
        host = (parts.hostname or "").encode("idna")
        is_address = bool(host and parts.scheme in ("http", "https") and parts.port != 0)
    except (ValueError, httpx2.InvalidURL):
        is_address = False
    if not is_address:
        raise CardError(
            f"url {format_repr(url)} is no address; give http://HOST:PORT/v1 or https://HOST/v1"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        # The message does not contain the address, which may have the key in it.
        raise CardError(
            f"url of {parts.hostname}: leave out user, password and what stands after '?'; "
            "the key is in key_variable"
        )
    return parts


def _quoted_forms(texts: Sequence[str]) -> set[str]:
    """Return the forms in which a message may quote some texts.

    These are the texts themselves, as JSON writes them, as JSON inside JSON does, and as Python
    does. Blank forms are omitted.
    """
    # [1:-1] removes the quotation marks around the whole text, which a message need not have.
    json_forms = [json.dumps(text)[1:-1] for text in texts]
    nested_json_forms = [json.dumps(text)[1:-1] for text in json_forms]
    python_forms = [repr(text)[1:-1] for text in texts]
    all_forms = (*texts, *json_forms, *nested_json_forms, *python_forms)
    return {form for form in all_forms if form.strip()}


def without_quotes(message: str, texts: Sequence[str]) -> str:
    """Return a server's message with ``[…]`` in place of texts that it quotes.

    The user's texts may be confidential, and messages are printed. A quote is a whole text, or any
    ``QUOTE_LENGTH`` characters of one, as it is or as JSON or Python write it.

    Args:
        message: The message.
        texts: The texts that were sent to the server.
    """
    # The texts themselves, and as JSON and Python write them, without quotation marks; none blank.
    forms = _quoted_forms(texts)
    # All pieces of QUOTE_LENGTH characters. A longer quote is covered by several of these.
    fragments = {
        form[start : start + QUOTE_LENGTH]
        for form in forms
        for start in range(len(form) - QUOTE_LENGTH + 1)
    }
    # For each character of the message, whether it is part of a quote.
    is_quoted = [False] * len(message)
    for start in range(len(message)):
        if message[start : start + QUOTE_LENGTH] in fragments:
            is_quoted[start : start + QUOTE_LENGTH] = [True] * QUOTE_LENGTH
    # A shorter text is a quote only between word boundaries: "a" is not one inside "max".
    for form in forms:
        if len(form) < QUOTE_LENGTH:
            for match in re.finditer(rf"(?<!\w){re.escape(form)}(?!\w)", message):
                is_quoted[match.start() : match.end()] = [True] * len(form)
    parts = []
    # Characters that follow each other and are quoted become one mark, whatever their number.
    for quoted, pairs in groupby(zip(message, is_quoted, strict=True), key=itemgetter(1)):
        parts.append("[…]" if quoted else "".join(character for character, _ in pairs))
    return "".join(parts)
