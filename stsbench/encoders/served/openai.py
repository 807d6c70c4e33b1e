"""An encoder behind a server that speaks OpenAI's ``/v1/embeddings``, as most do, or TEI's ``/embed``, here or paid by the token."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from stsbench.core import settings
from stsbench.core.errors import CardError, EncoderError, SourceError, choose, failing, shown, which_sentence
from stsbench.core.files import write_whole
from stsbench.core.provenance import fingerprint
from stsbench.encoders.base import FloatArray, IndexArray, KeepRows, NotNegative, Positive, valid_text
from stsbench.encoders.checkpoint import kept_record
from stsbench.encoders.served.link import Link, NotAsked, TooLarge
from stsbench.encoders.transformer.pooling import Prompt

CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""
SAME = 0.1
"""How far an embedding may move with other texts in its request, as a share of its length: rounding in 8 bits moves it by .05."""
BYTES_A_TOKEN = 4
"""Bytes of UTF-8 for each token of an estimate. English text has 4 to 5 with the vocabularies in use; other scripts have fewer."""


class _Row(msgspec.Struct):
    index: int
    embedding: str | list[float | None]


class _Rows(msgspec.Struct):
    data: list[_Row]
    model: Any = None


class Api(NamedTuple):
    """A way to ask a server."""

    path: str
    about_path: str
    answer: Any
    """The type of an answer."""
    own: tuple[str, ...]
    """The field of the texts, and others that no one may add."""
    says: tuple[str, ...]
    """Of what a server says of a model that which tells it from another; its clock and its load are other each time."""

    def request(self, texts: Sequence[str], model: str, encoding: str) -> dict[str, Any]:
        """The fields of a request for these texts."""
        fields = {"model": model, "encoding_format": encoding}
        return {self.own[0]: list(texts), **{key: value for key, value in fields.items() if key in self.own}}

    def read(self, answer: object, n: int, where: str) -> tuple[FloatArray, str]:
        """The embeddings (n, d) of an answer, NaN where no number stands, and the model that it names, "" for none.

        Raises EncoderError, which begins with ``where``: it is not one embedding a text, all of one size.
        """
        with failing(f"{where}: the answer is not as it must be", EncoderError, ValueError, msgspec.ValidationError):
            found = msgspec.convert(answer, self.answer)
            listed = found if isinstance(found, _Rows) else _Rows([_Row(i, one) for i, one in enumerate(found)])
            rows = sorted(listed.data, key=lambda row: row.index)
            embeddings = [_numbers(row.embedding) for row in rows]
        if [row.index for row in rows] != list(range(n)):
            what = f"the answer holds {len(rows)} embeddings for {n} texts, or their 'index' is not 0 to {n - 1}"
            raise EncoderError(f"{where}: {what}")
        sizes = {len(embedding) for embedding in embeddings}
        if len(sizes) != 1 or 0 in sizes:
            raise EncoderError(f"{where}: the answer holds embeddings of sizes {', '.join(map(str, sorted(sizes)))}")
        return np.stack(embeddings).astype(np.float32), listed.model if isinstance(listed.model, str) else ""


def _numbers(embedding: str | list[float | None]) -> FloatArray:
    """An embedding (d,), whether it came as numbers or as base64 of float32, little-endian; raises ValueError."""
    if not isinstance(embedding, str):
        with np.errstate(over="ignore"):
            return np.array(embedding, dtype=np.float64).astype(np.float32)
    return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")


OPENAI_SAYS = ("root", "parent", "backend", "max_model_len", "meta")
TEI_SAYS = ("model_id", "model_sha", "model_dtype", "model_type", "max_input_length", "auto_truncate", "version")
APIS = {
    # As OpenAI, vLLM, TEI, Ollama, llama.cpp, LM Studio and Infinity have it.
    "openai": Api("/embeddings", "/models", _Rows, ("input", "model", "encoding_format", "dimensions"), OPENAI_SAYS),
    # Text Embeddings Inference.
    "tei": Api("/embed", "/info", list[list[float | None]], ("inputs", "dimensions"), TEI_SAYS),
}
"""The ways to ask a server, by name."""


class Said(msgspec.Struct):
    """What a server said of a model, and the model that its answers named."""

    said: dict[str, Any]
    answers: str = ""


class OpenAIEncoder:
    """Embeds by asking a server, by several requests at once.

    What comes is passed on at once, so that nothing is paid for twice. A blank sentence, which servers refuse, is zero.
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
        dimensions: Positive | None = None,
        encoding: Literal["float", "base64"] = "float",
        prompt: str = "",
        prompt_template: str = "",
        body: Mapping[str, str | int | float | bool] | None = None,
        batch: Positive = 64,
        batch_tokens: Positive = 8192,
        in_flight: Positive = 4,
        timeout: Annotated[float, msgspec.Meta(gt=0)] = 60,
        retries: Annotated[int, msgspec.Meta(ge=0)] = 6,
        requests_a_minute: NotNegative = 0,
        tokens_a_minute: NotNegative = 0,
        tokenizer: str = "",
    ) -> None:
        """Check what is given, each as docs/encoders.md says; nothing is sent yet. Raises CardError: it cannot be."""
        self.name, self.model, self.dimensions, self.encoding = name or model, model, dimensions, encoding
        self.api_name, self.api, self.body = api, choose("api of a server", api, APIS), dict(body or {})
        for key in self.body.keys() & set(self.api.own):
            raise CardError(f"body: '{key}' cannot be set: stsbench sets it")
        self.prompt = Prompt(prompt, prompt_template)
        self.link = Link(url, key_variable, timeout, retries, requests_a_minute, tokens_a_minute)
        self.batch, self.batch_tokens, self.in_flight, self.tokenizer = batch, batch_tokens, in_flight, tokenizer
        self._size = dimensions
        self._answers: dict[str, str] = {}

    @property
    def _memory(self) -> Path:
        # What the server said when it last gave embeddings: a run whose server is gone finds them by it.
        place = json.dumps((self.link.url, self.api_name, self.model))
        return settings.cache_folder() / "served" / f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"

    @cached_property
    def _said(self) -> Said | None:
        """What the server says of its model, now or when it last gave embeddings; None where neither is known."""
        said, known = self.link.ask_about(self.api.about_path), kept_record(self._memory, Said)
        if said is None:
            return known
        # OpenAI's way lists models, TEI's speaks of its own.
        listed = said.get("data", [{**said, "id": self.model}])
        models = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        mine = next((one for one in models if one.get("id") == self.model), {})
        facts = {key: mine[key] for key in self.api.says if mine.get(key) is not None}
        return Said(facts, known.answers if known else "")

    @cached_property
    def fingerprint(self) -> str:
        """The hash of what is asked and of what the server says of its model; its address is no part of it."""
        asked = {key: getattr(self, key) for key in ("model", "dimensions", "encoding", "body")}
        asked |= {"api": self.api_name, "template": self.prompt.facts()}
        said = self._said.said if self._said else {}
        return fingerprint({"kind": "openai", "code": CODE_VERSION, **asked, "server": said})

    @property
    def notes(self) -> list[str]:
        """What a reader of its scores should know."""
        known = self._said or Said({})
        said = ", ".join(f"{key} {value}" for key, value in known.said.items())
        answers = self._answers.get("model", known.answers)
        return [
            f"embedded by a server that calls its model '{self.model}': which weights those are is not known"
            f"{f'; it says {said}' if said else ''}{f'; its answers name {shown(answers)}' if answers else ''}"
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
        if self._size is None:
            self.ask(["a"], threading.Event())
        return self._size or 0

    def count_tokens(self, sentences: Sequence[str]) -> int:
        """How many tokens the server would be sent; without a tokenizer an estimate."""
        return int(self._costs(self._texts(sentences)).sum())

    @cached_property
    def _counter(self) -> Callable[[Sequence[str]], list[int]]:
        from stsbench.encoders.transformer.backbone import TokenCounter

        return TokenCounter(self.tokenizer)

    def _costs(self, texts: Sequence[str]) -> IndexArray:
        """The tokens of each text (n,); without a tokenizer by bytes, and one more a text for special tokens."""
        if self.tokenizer:
            return np.array(self._counter(texts) if len(texts) else [], dtype=np.int64)
        return -(-np.array([len(text.encode()) for text in texts], dtype=np.int64) // BYTES_A_TOKEN) + 1

    def embed_into(self, sentences: Sequence[str], keep: KeepRows) -> None:
        """Pass on the embeddings (m, d) of some rows (m,) as they come, until all have.

        The first text and the last are asked for again alone, the first before other requests are sent. After a failure
        no more are sent, and what was under way is passed on. Raises SourceError: the server cannot be reached, or gives
        up; EncoderError: it refuses, or answers nonsense.
        """
        texts = self._texts(sentences)
        full = np.array([bool(text.strip()) for text in texts], dtype=bool)

        def take(rows: IndexArray, found: FloatArray) -> None:
            finite = np.isfinite(found).all(axis=1)
            if finite.any():
                keep(rows[finite], found[finite])
            if not finite.all():
                where = which_sentence(sentences, int(rows[int(np.argmin(finite))]))
                raise EncoderError(f"encoder '{self.name}' returned NaN or infinity for {where}")

        if full.any():
            self.link.key()
            if self._said is None:
                what = f"no server answers at {self.link.url}"
                raise SourceError(f"{what}; start it, or give another by --set url=ADDRESS")
            requests = self._requests(np.flatnonzero(full), self._costs(texts))
            again, stop = (requests[0][0], requests[-1][-1]), threading.Event()
            with ThreadPoolExecutor(self.in_flight, thread_name_prefix="stsbench-server") as pool:
                for some in (requests[:1], requests[1:]):
                    _answered(some, lambda rows: pool.submit(self._embed, texts, rows, again, stop), take, stop)
        if not full.all():
            keep(np.flatnonzero(~full), np.zeros((int((~full).sum()), self.width), dtype=np.float32))

    def _embed(
        self, texts: Sequence[str], rows: IndexArray, again: Sequence[int], stop: threading.Event
    ) -> FloatArray | None:
        """The embeddings of some texts, those in ``again`` also asked for alone; None: nothing is asked any more."""
        try:
            found = self.ask([texts[row] for row in rows], stop)
            for at in np.flatnonzero(np.isin(rows, again) & np.isfinite(found).all(axis=1) & (len(rows) > 1)):
                alone = self.ask([texts[rows[at]]], stop)[0]
                moved = float(np.linalg.norm(found[at] - alone) / max(float(np.linalg.norm(alone)), 1e-12))
                if not moved <= SAME:
                    what = f"the server at {self.link.url} embeds a text differently alone than among {len(rows)}"
                    why = "its answers are in another order, or its model has changed"
                    far = f"its embedding moves by {moved:.2g} of its length"
                    raise EncoderError(f"{what} ({far}): {why}; try --set batch=1, with another --store")
        except NotAsked:
            return None
        except BaseException as error:
            # Before this thread takes the next request, which may cost money.
            if not isinstance(error, TooLarge):
                stop.set()
            raise
        return found

    def _texts(self, sentences: Sequence[str]) -> list[str]:
        return [valid_text(text) for text in self.prompt.around(sentences)]

    def _requests(self, rows: IndexArray, costs: IndexArray) -> list[IndexArray]:
        """Cut rows into requests of not too many texts and tokens, longest first; a text that is too long goes alone."""
        requests: list[list[int]] = []
        left = 0
        for row in rows[np.argsort(-costs[rows], kind="stable")].tolist():
            if not requests or len(requests[-1]) == self.batch or costs[row] > left:
                requests.append([])
                left = self.batch_tokens
            requests[-1].append(row)
            left -= int(costs[row])
        return [np.array(request, dtype=np.int64) for request in requests]

    def ask(self, texts: Sequence[str], stop: threading.Event) -> FloatArray:
        """Send one request: its embeddings (n, d), NaN where the server gave no number.

        Raises NotAsked: ``stop`` was set before it could be sent; others as :meth:`embed_into`.
        """
        size = {} if self.dimensions is None else {"dimensions": self.dimensions}
        body = {**self.body, **self.api.request(texts, self.model, self.encoding), **size}
        answer = self.link.post(self.api.path, body, tokens=int(self._costs(texts).sum()), stop=stop)
        where = f"the server at {self.link.url}"
        rows, model = self.api.read(answer, len(texts), where)
        if self.dimensions not in (None, rows.shape[1]):
            what = f"gave embeddings of size {rows.shape[1]}, not the {self.dimensions} of 'dimensions'"
            raise EncoderError(f"{where} {what}: it does not offer them for '{self.model}'; leave dimensions out")
        if (before := self._answers.setdefault("model", model)) != model:
            what = f"{where} answered as model {shown(before)}, and now as {shown(model)}"
            raise EncoderError(f"{what}: it was changed in mid-run; run again with another --store")
        self._size = rows.shape[1]
        now = Said(self._said.said if self._said else {}, model)
        if kept_record(self._memory, Said) != now:
            write_whole(self._memory, msgspec.json.encode(now, order="sorted"))
        return rows


def _answered(
    requests: Sequence[IndexArray],
    send: Callable[[IndexArray], Future[FloatArray | None]],
    take: KeepRows,
    stop: threading.Event,
) -> None:
    """Send requests and take their answers as they come; one that is too large is halved; raises the first failure at the end."""
    pending = {send(rows): rows for rows in requests}
    failure: BaseException | None = None
    while pending:
        try:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                rows = pending.pop(future)
                try:
                    found = future.result()
                except TooLarge:
                    if len(rows) == 1 or failure is not None:
                        raise
                    pending |= {send(half): half for half in np.array_split(rows, 2)}
                else:
                    if found is not None:
                        take(rows, found)
        except BaseException as error:  # Ctrl-C too: what is under way is paid for
            failure = failure or error
            stop.set()
            pending = {one: rows for one, rows in pending.items() if not one.cancel()}
    if failure is not None:
        raise failure
