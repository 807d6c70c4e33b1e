"""An encoder behind a server that speaks ``/v1/embeddings`` or TEI's ``/embed``, on this machine or paid by the token."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cached_property

import numpy as np

from stsbench.encoders.seams import FloatArray, IndexArray, KeepRows
from stsbench.encoders.served.apis import APIS, RequestFacts
from stsbench.encoders.served.link import Link, NotAsked, TooLarge
from stsbench.encoders.served.rates import RateLimit
from stsbench.encoders.served.said import recall, remember
from stsbench.encoders.served.sizes import Counter, requests_of
from stsbench.encoders.transformer.prompt import Prompt
from stsbench.errors import CardError, EncoderError, SourceError, choose
from stsbench.provenance.identity import fingerprint

CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""


def _check_positive(**numbers: float) -> None:
    for key, value in numbers.items():
        if value < 1:
            raise CardError(f"{key} is too small; give a positive number")


class OpenAIEncoder:
    """Embeds by asking a server.

    Several requests are under way at once. What has come is handed on at once, so that a run that loses its server, or
    is stopped, has paid for nothing twice. A blank sentence is not sent, since servers refuse it: its embedding is zero.
    """

    PLACES = (
        "url", "key_variable", "batch", "batch_tokens", "in_flight", "timeout", "retries",
        "requests_a_minute", "tokens_a_minute", "tokenizer",
    )  # fmt: skip
    """Parameters that change no embedding."""

    def __init__(
        self,
        model: str,
        *,
        url: str = "",
        name: str = "",
        api: str = "openai",
        key_variable: str | None = None,
        dimensions: int | None = None,
        encoding: str = "float",
        prompt: str = "",
        prompt_template: str = "",
        body: Mapping[str, str | int | float | bool] | None = None,
        batch: int = 64,
        batch_tokens: int = 8192,
        in_flight: int = 4,
        timeout: float = 60,
        retries: int = 6,
        requests_a_minute: float = 0,
        tokens_a_minute: float = 0,
        tokenizer: str = "",
    ) -> None:
        """Check what is given; nothing is sent yet.

        Args:
            model: what the server calls the model.
            url: the server's address, before ``/embeddings``: ``http://localhost:8000/v1``.
            name: what results call the encoder.
            api: ``openai``, or ``tei`` for TEI's own ``/embed``.
            key_variable: the environment variable that holds the key; default OPENAI_API_KEY at OpenAI's address, else none.
            dimensions: the size of embeddings to ask for, where the model offers several.
            encoding: ``float`` or ``base64``: how numbers are to be sent.
            prompt: text put before every sentence.
            prompt_template: text around every sentence, which goes where ``{}`` stands.
            body: fields added to every request, as ``{input_type = "query"}``.
            batch: most sentences a request.
            batch_tokens: most tokens a request; a longer sentence goes alone.
            in_flight: requests under way at once.
            timeout: seconds to wait for an answer.
            retries: how often a request that may yet succeed is sent again.
            requests_a_minute: no more than these; 0 for no limit.
            tokens_a_minute: no more than these; 0 for no limit.
            tokenizer: the model's tokenizer, a folder or Hub id, to count tokens by; without one they are estimated.

        Raises:
            CardError: a value that cannot be.
        """
        _check_positive(batch=batch, batch_tokens=batch_tokens, in_flight=in_flight, dimensions=dimensions or 1)
        _check_positive(requests_a_minute=requests_a_minute + 1, tokens_a_minute=tokens_a_minute + 1)
        self.name, self.api_name, self.api = name or model, api, choose("api of a server", api, APIS)
        self.prompt = Prompt(prompt, prompt_template)
        self.asked = RequestFacts(model=model, dimensions=dimensions, encoding=encoding, body=dict(body or {}))
        self.asked.check(self.api.own)
        pace = RateLimit(requests_a_minute=requests_a_minute, tokens_a_minute=tokens_a_minute)
        self.link = Link(url, key_variable=key_variable, timeout=timeout, retries=retries, pace=pace)
        self.batch, self.batch_tokens, self.in_flight = batch, batch_tokens, in_flight
        self.count = Counter(tokenizer)
        self._answered: int | None = None

    @cached_property
    def _said(self) -> dict[str, object] | None:
        """What the server says of its model, now or when it last gave embeddings; None where neither is known."""
        said = self.link.ask_about(self.api.about_path)
        place = (self.link.url, self.api_name, self.asked.model)
        return recall(place) if said is None else self.api.about(said, self.asked.model)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of what is asked and of what the server says of its model; its address is no part of it."""
        asked = self.asked
        return fingerprint(
            {
                "kind": "openai",
                "code": CODE_VERSION,
                "api": self.api_name,
                "model": asked.model,
                "dimensions": asked.dimensions,
                "encoding": asked.encoding,
                "body": dict(asked.body),
                "template": self.prompt.facts(),
                "server": self._said or {},
            }
        )

    @property
    def notes(self) -> list[str]:
        """What a reader of its scores should know."""
        said = ", ".join(f"{key} {value}" for key, value in (self._said or {}).items())
        return [
            f"embedded by a server that calls its model '{self.asked.model}': which weights those are is not known"
            f"{f'; it says {said}' if said else ''}"
        ]

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        found: list[tuple[IndexArray, FloatArray]] = []
        self.embed_into(sentences, lambda rows, embeddings: found.append((rows, embeddings)))
        embeddings = np.zeros((len(sentences), self.width), dtype=np.float32)
        for rows, some in found:
            embeddings[rows] = some
        return embeddings

    @property
    def width(self) -> int:
        """The size of an embedding: the one asked for, that of earlier answers, or found by asking for one word."""
        if self.asked.dimensions is not None:
            return self.asked.dimensions
        if self._answered is None:
            self.ask(["a"], threading.Event())
        return self._answered or 0

    def count_tokens(self, sentences: Sequence[str]) -> int:
        """How many tokens the server would be sent; without a tokenizer an estimate."""
        return int(self.count(self._texts(sentences)).sum())

    def embed_into(self, sentences: Sequence[str], keep: KeepRows) -> None:
        """Hand on the embeddings (m, d) of some rows (m,) as they come, until all have.

        Raises:
            SourceError: the server cannot be reached, or gives up; EncoderError: it refuses, or answers nonsense.
            What had been asked by then has been handed on.
        """
        texts = self._texts(sentences)
        full = np.array([bool(text.strip()) for text in texts], dtype=bool)
        if full.any():
            self.link.key()
            if self._said is None:
                raise SourceError(
                    f"no server answers at {self.link.url}; start it, or give another by --set url=ADDRESS"
                )
            costs = self.count(texts)
            requests = requests_of(np.flatnonzero(full), costs, count=self.batch, tokens=self.batch_tokens)
            _Asking(self, texts, sentences, keep).run(requests)
        if not full.all():
            keep(np.flatnonzero(~full), np.zeros((int((~full).sum()), self.width), dtype=np.float32))

    def _texts(self, sentences: Sequence[str]) -> list[str]:
        from stsbench.encoders.transformer.opening import valid_text

        return [valid_text(text) for text in self.prompt.around(sentences)]

    def ask(self, texts: Sequence[str], stop: threading.Event) -> FloatArray:
        """Send one request: its embeddings (n, d), NaN where the server gave no number.

        Raises:
            NotAsked: ``stop`` was set before it could be sent; others as :meth:`embed_into`.
        """
        body, tokens = self.api.request(self.asked, texts), int(self.count(texts).sum())
        answer = self.link.post(self.api.path, body, tokens=tokens, stop=stop)
        try:
            rows = self.api.read(answer, len(texts))
        except EncoderError as error:
            raise EncoderError(f"the server at {self.link.url}: {error}") from error
        wanted = self.asked.dimensions
        if wanted is not None and rows.shape[1] != wanted:
            raise EncoderError(
                f"the server at {self.link.url} gave embeddings of size {rows.shape[1]}, not the {wanted} of 'dimensions': "
                f"it does not offer them for '{self.asked.model}'; leave dimensions out"
            )
        self._answered = rows.shape[1]
        remember((self.link.url, self.api_name, self.asked.model), self._said or {})
        return rows


class _Asking:
    """One set of sentences on its way: requests under way, and what becomes of them when one fails."""

    def __init__(self, encoder: OpenAIEncoder, texts: Sequence[str], sentences: Sequence[str], keep: KeepRows) -> None:
        self.encoder, self.texts, self.sentences, self.keep = encoder, texts, sentences, keep
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        self.pending: dict[Future[FloatArray], IndexArray] = {}

    def run(self, requests: Sequence[IndexArray]) -> None:
        """Send all; after a failure send no more, keep what was under way, and raise the first failure."""
        with ThreadPoolExecutor(self.encoder.in_flight, thread_name_prefix="stsbench-server") as self.pool:
            for rows in requests:
                self._send(rows)
            while self.pending:
                try:
                    for future in wait(self.pending, return_when=FIRST_COMPLETED).done:
                        self._take(future)
                except BaseException as error:  # Ctrl-C too: what is under way is paid for
                    self._fail(error)
        if self.failure is not None:
            raise self.failure

    def _send(self, rows: IndexArray) -> None:
        texts = [self.texts[row] for row in rows]
        self.pending[self.pool.submit(self._ask, texts)] = rows

    def _ask(self, texts: Sequence[str]) -> FloatArray:
        try:
            return self.encoder.ask(texts, self.stop)
        except TooLarge:
            raise
        except BaseException:
            # Before this thread takes the next request.
            self.stop.set()
            raise

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.stop.set()
        for future in list(self.pending):
            if future.cancel():
                del self.pending[future]

    def _take(self, future: Future[FloatArray]) -> None:
        rows = self.pending.pop(future)
        try:
            found = future.result()
        except NotAsked:
            return
        except TooLarge:
            if len(rows) == 1 or self.failure is not None:
                raise
            for half in np.array_split(rows, 2):
                self._send(half)
            return
        finite = np.isfinite(found).all(axis=1)
        if finite.any():
            self.keep(rows[finite], found[finite])
        if not finite.all():
            text = self.sentences[rows[int(np.argmin(finite))]]
            raise EncoderError(f"encoder '{self.encoder.name}' returned NaN or infinity for the sentence '{text[:60]}'")
