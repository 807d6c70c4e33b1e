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
import numpy.typing as npt

from stsbench.core import settings
from stsbench.core.errors import CardError, EncoderError, SourceError, look_up, translate_errors
from stsbench.core.files import write_atomically
from stsbench.core.provenance import fingerprint
from stsbench.core.wording import describe_sentence, format_repr
from stsbench.encoders.base import (
    EmbeddingsDiffer,
    FloatArray,
    IndexArray,
    KeepEmbeddings,
    NonNegativeFloat,
    PositiveInt,
)
from stsbench.encoders.checkpoint import read_record
from stsbench.encoders.metadata import valid_text
from stsbench.encoders.served.link import RequestSkipped, RequestTooLarge, ServerClient
from stsbench.encoders.served.requests import (
    MAX_SERVER_DRIFT,
    RepeatedTexts,
    RequestLimits,
    plan_requests,
)
from stsbench.encoders.transformer.pooling import Prompt

CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""
PROBE = "A man is playing a guitar."
"""The text by which a run sees whether the server still embeds as in earlier runs."""
BYTES_A_TOKEN = 4
"""Bytes of UTF-8 for each token of an estimate. English text has 4 to 5 with the vocabularies in use; other scripts have fewer."""


class _Row(msgspec.Struct):
    index: int
    embedding: str | list[float | None] | None


class _Rows(msgspec.Struct):
    data: list[_Row]
    model: Any = None


class Answer(NamedTuple):
    """What a server gave for some texts."""

    embeddings: FloatArray
    """(n, d), NaN where no number stands."""
    has_null: npt.NDArray[np.bool_]
    """Whether null stands in the place of an embedding, or of a number of it, (n,)."""
    model: str
    """The model that the answer names; empty if it names none."""


class ServerApi(NamedTuple):
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
        return {
            self.own[0]: list(texts),
            **{key: value for key, value in fields.items() if key in self.own},
        }

    def read(self, answer: object, n: int, where: str) -> Answer:
        """Read the answer for ``n`` texts.

        Raises EncoderError, which begins with ``where``: it is not one embedding a text, all of one size.
        """
        with translate_errors(
            f"{where}: the answer is not as it must be",
            EncoderError,
            ValueError,
            msgspec.ValidationError,
        ):
            found = msgspec.convert(answer, self.answer)
            listed = (
                found
                if isinstance(found, _Rows)
                else _Rows([_Row(i, one) for i, one in enumerate(found)])
            )
            rows = sorted(listed.data, key=lambda row: row.index)
            embeddings = [
                None if row.embedding is None else _numbers(row.embedding) for row in rows
            ]
        if [row.index for row in rows] != list(range(n)):
            what = f"the answer holds {len(rows)} embeddings for {n} texts, or their 'index' is not 0 to {n - 1}"
            raise EncoderError(f"{where}: {what}")
        sizes = sorted({len(embedding) for embedding in embeddings if embedding is not None})
        if not sizes:
            raise EncoderError(f"{where}: the answer holds null in the place of every embedding")
        if len(sizes) > 1 or 0 in sizes:
            raise EncoderError(
                f"{where}: the answer holds embeddings of sizes {', '.join(map(str, sizes))}"
            )
        missing = np.full(sizes[0], np.nan)
        stacked = np.stack(
            [missing if embedding is None else embedding for embedding in embeddings]
        )
        has_null = [
            row.embedding is None or (isinstance(row.embedding, list) and None in row.embedding)
            for row in rows
        ]
        model = listed.model if isinstance(listed.model, str) else ""
        return Answer(stacked.astype(np.float32), np.array(has_null), model)


def _numbers(embedding: str | list[float | None]) -> FloatArray:
    """An embedding (d,), whether it came as numbers or as base64 of float32, little-endian; raises ValueError."""
    if not isinstance(embedding, str):
        with np.errstate(over="ignore"):
            return np.array(embedding, dtype=np.float64).astype(np.float32)
    return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")


OPENAI_SAYS = ("root", "parent", "backend", "max_model_len", "meta")
TEI_SAYS = (
    "model_id",
    "model_sha",
    "model_dtype",
    "model_type",
    "max_input_length",
    "auto_truncate",
    "version",
)
APIS = {
    # As OpenAI, vLLM, TEI, Ollama, llama.cpp, LM Studio and Infinity have it.
    "openai": ServerApi(
        "/embeddings",
        "/models",
        _Rows,
        ("input", "model", "encoding_format", "dimensions"),
        OPENAI_SAYS,
    ),
    # Text Embeddings Inference.
    "tei": ServerApi(
        "/embed", "/info", list[list[float | None] | None], ("inputs", "dimensions"), TEI_SAYS
    ),
}
"""The ways to ask a server, by name."""


class ServerReport(msgspec.Struct):
    """What a server said of a model, and the model that its answers named."""

    said: dict[str, Any]
    answers: str = ""


class History(msgspec.Struct):
    """What earlier runs saw of a server's model."""

    changes: int = 0
    """How often it embedded a text in two ways."""
    probe: bytes = b""
    """The embedding of :data:`PROBE` (d,), float32; empty before the first run of several texts."""


class OpenAIEncoder:
    """Embeds by asking a server, by several requests at once.

    What comes is passed on at once, so that nothing is paid for twice. A blank sentence, which servers refuse, is zero.
    """

    RUNTIME_PARAMETERS = (
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
        dimensions: PositiveInt | None = None,
        encoding: Literal["float", "base64"] = "float",
        prompt: str = "",
        prompt_template: str = "",
        body: Mapping[str, str | int | float | bool] | None = None,
        batch: PositiveInt = 64,
        batch_tokens: PositiveInt = 8192,
        in_flight: PositiveInt = 4,
        timeout: Annotated[float, msgspec.Meta(gt=0)] = 60,
        retries: Annotated[int, msgspec.Meta(ge=0)] = 6,
        requests_a_minute: NonNegativeFloat = 0,
        tokens_a_minute: NonNegativeFloat = 0,
        tokenizer: str = "",
    ) -> None:
        """Check what is given, each as docs/encoders.md says; nothing is sent yet. Raises CardError: it cannot be."""
        self.name, self.model, self.dimensions, self.encoding = (
            name or model,
            model,
            dimensions,
            encoding,
        )
        self.api_name, self.api, self.body = (
            api,
            look_up("api of a server", api, APIS),
            dict(body or {}),
        )
        for key in self.body.keys() & set(self.api.own):
            raise CardError(f"body: '{key}' cannot be set: stsbench sets it")
        self.prompt = Prompt(prompt, prompt_template)
        self.link = ServerClient(
            url, key_variable, timeout, retries, requests_a_minute, tokens_a_minute
        )
        self.batch, self.batch_tokens, self.in_flight, self.tokenizer = (
            batch,
            batch_tokens,
            in_flight,
            tokenizer,
        )
        self._size = dimensions
        self._answers: dict[str, str] = {}

    @property
    def _memory(self) -> Path:
        # What the server said when it last gave embeddings: a run whose server is gone finds them by it.
        place = json.dumps((self.link.url, self.api_name, self.model))
        return (
            settings.cache_folder()
            / "served"
            / f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"
        )

    @cached_property
    def _said(self) -> ServerReport | None:
        """What the server says of its model, now or when it last gave embeddings; None where neither is known."""
        said, known = (
            self.link.ask_about(self.api.about_path),
            read_record(self._memory, ServerReport),
        )
        if said is None:
            return known
        # OpenAI's way lists models, TEI's speaks of its own.
        listed = said.get("data", [{**said, "id": self.model}])
        models = (
            [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        )
        mine = next((one for one in models if one.get("id") == self.model), {})
        facts = {key: mine[key] for key in self.api.says if mine.get(key) is not None}
        return ServerReport(facts, known.answers if known else "")

    @property
    def fingerprint(self) -> str:
        """The hash of what is asked, of what the server says of its model, and of how often it was seen to change.

        Its address is no part of it.
        """
        changes = self._history.changes
        return fingerprint({"model": self._state, "changes": changes}) if changes else self._state

    @cached_property
    def _state(self) -> str:
        """The hash of what is asked and of what the server says."""
        asked = {key: getattr(self, key) for key in ("model", "dimensions", "encoding", "body")}
        asked |= {"api": self.api_name, "template": self.prompt.fingerprint_fields()}
        said = self._said.said if self._said else {}
        return fingerprint({"kind": "openai", "code": CODE_VERSION, **asked, "server": said})

    @property
    def _history_file(self) -> Path:
        # By no address: a model may answer at several.
        return (
            settings.cache_folder()
            / "served"
            / f"history-{hashlib.sha256(self._state.encode()).hexdigest()[:32]}.json"
        )

    @cached_property
    def _history(self) -> History:
        return read_record(self._history_file, History) or History()

    def _keep_history(self, history: History) -> None:
        self._history = history
        write_atomically(self._history_file, msgspec.json.encode(history))

    @property
    def notes(self) -> list[str]:
        """What a reader of its scores should know."""
        known = self._said or ServerReport({})
        said = ", ".join(f"{key} {value}" for key, value in known.said.items())
        answers = self._answers.get("model", known.answers)
        return [
            f"embedded by a server that calls its model '{self.model}': which weights those are is not known"
            f"{f'; it says {said}' if said else ''}{f'; its answers name {format_repr(answers)}' if answers else ''}"
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
        """How many tokens the server would be sent, texts that are asked for twice among them; without a tokenizer an estimate."""
        texts = self._texts([*sentences, PROBE])
        costs = self._costs(texts)
        phases = self._plan(texts, costs)
        return sum(int(costs[rows].sum()) for phase in phases for rows in phase)

    def _plan(self, texts: Sequence[str], costs: IndexArray) -> list[list[IndexArray]]:
        """Plan the requests for texts (n,), the last of which is the probe; empty if all others are blank."""
        rows = np.array(
            [row for row, text in enumerate(texts[:-1]) if text.strip()], dtype=np.int64
        )
        limits = RequestLimits(self.batch, self.batch_tokens)
        return plan_requests(rows, costs, limits, probe=len(texts) - 1) if len(rows) else []

    @cached_property
    def _counter(self) -> Callable[[Sequence[str]], list[int]]:
        from stsbench.encoders.transformer.backbone import TokenCounter

        return TokenCounter(self.tokenizer)

    def _costs(self, texts: Sequence[str]) -> IndexArray:
        """The tokens of each text (n,); without a tokenizer by bytes, and one more a text for special tokens."""
        if self.tokenizer:
            return np.array(self._counter(texts) if len(texts) else [], dtype=np.int64)
        return (
            -(-np.array([len(text.encode()) for text in texts], dtype=np.int64) // BYTES_A_TOKEN)
            + 1
        )

    def embed_into(self, sentences: Sequence[str], keep: KeepEmbeddings) -> None:
        """Pass on the embeddings (m, d) of some rows (m,) as they come, until all have.

        Some texts are asked for twice (:mod:`stsbench.encoders.served.requests`). After a failure no more are sent, and what was
        under way is passed on.

        Raises:
            SourceError: The server cannot be reached, or gives up.
            EmbeddingsDiffer: It embeds a text in two ways.
            EncoderError: It refuses, or answers nonsense.
        """
        texts = self._texts([*sentences, PROBE])
        probe = len(sentences)
        phases = self._plan(texts, self._costs(texts))
        if phases:
            self.link.key()
            if self._said is None:
                what = f"no server answers at {self.link.url}"
                raise SourceError(f"{what}; start it, or give another by --set url=ADDRESS")
            repeated = RepeatedTexts(phases, probe)
            if self._history.probe:
                repeated.embeddings[probe] = np.frombuffer(self._history.probe, dtype="<f4")
            is_due = np.array([bool(text.strip()) for text in texts[:-1]] + [False])

            def take(rows: IndexArray, answer: Answer) -> None:
                finite = np.isfinite(answer.embeddings).all(axis=1)
                move = repeated.largest_move(rows[finite], answer.embeddings[finite])
                if not move <= MAX_SERVER_DRIFT:
                    far = f"its embedding moves by {move:.2g} of its length"
                    what = f"the server at {self.link.url} embeds a text otherwise when it is asked for again ({far})"
                    raise self._changed(
                        f"{what}: its answers are in another order, or its model has changed"
                    )
                new = finite & is_due[rows]
                is_due[rows[new]] = False
                if new.any():
                    keep(rows[new], answer.embeddings[new])
                if not finite.all():
                    index = int(np.argmin(finite))
                    what = "null" if answer.has_null[index] else "NaN or infinity"
                    where = (
                        "a text of our own"
                        if rows[index] == probe
                        else describe_sentence(sentences, int(rows[index]))
                    )
                    raise EncoderError(f"encoder '{self.name}' returned {what} for {where}")

            stop = threading.Event()
            with ThreadPoolExecutor(self.in_flight, thread_name_prefix="stsbench-server") as pool:
                for requests in phases:
                    _answered(
                        requests,
                        lambda rows: pool.submit(self._embed, texts, rows, stop),
                        take,
                        stop,
                    )
                    if not self._history.probe and probe in repeated.embeddings:
                        embedding = repeated.embeddings[probe].astype("<f4").tobytes()
                        self._keep_history(History(self._history.changes, embedding))
        blank = np.array(
            [row for row, text in enumerate(texts[:-1]) if not text.strip()], dtype=np.int64
        )
        if len(blank):
            keep(blank, np.zeros((len(blank), self.width), dtype=np.float32))

    def _changed(self, problem: str) -> EmbeddingsDiffer:
        """Return the error for a server that has changed; what it gave before is found no more, stored or scored."""
        self._keep_history(History(self._history.changes + 1))
        todo = "nothing that it gave before counts any more: run again, with --set batch=1 if this comes again"
        return EmbeddingsDiffer(problem, hint=todo)

    def _embed(
        self, texts: Sequence[str], rows: IndexArray, stop: threading.Event
    ) -> Answer | None:
        """Ask for some texts; None if nothing is asked any more."""
        try:
            return self.ask([texts[row] for row in rows], stop)
        except RequestSkipped:
            return None
        except BaseException as error:
            # Before this thread takes the next request, which may cost money.
            if not isinstance(error, RequestTooLarge):
                stop.set()
            raise

    def _texts(self, sentences: Sequence[str]) -> list[str]:
        return [valid_text(text) for text in self.prompt.wrap(sentences)]

    def ask(self, texts: Sequence[str], stop: threading.Event) -> Answer:
        """Send one request and read its answer.

        Raises NotAsked: ``stop`` was set before it could be sent; others as :meth:`embed_into`.
        """
        dimensions = {} if self.dimensions is None else {"dimensions": self.dimensions}
        body = {**self.body, **self.api.request(texts, self.model, self.encoding), **dimensions}
        answer = self.link.post(
            self.api.path, body, tokens=int(self._costs(texts).sum()), stop=stop
        )
        where = f"the server at {self.link.url}"
        found = self.api.read(answer, len(texts), where)
        size, model = found.embeddings.shape[1], found.model
        if self.dimensions not in (None, size):
            what = f"gave embeddings of size {size}, not the {self.dimensions} of 'dimensions'"
            raise EncoderError(
                f"{where} {what}: it does not offer them for '{self.model}'; leave dimensions out"
            )
        if (before := self._answers.setdefault("model", model)) != model:
            what = (
                f"{where} answered as model {format_repr(before)}, and now as {format_repr(model)}"
            )
            raise self._changed(f"{what}: it was changed in mid-run")
        self._size = size
        now = ServerReport(self._said.said if self._said else {}, model)
        if read_record(self._memory, ServerReport) != now:
            write_atomically(self._memory, msgspec.json.encode(now, order="sorted"))
        return found


def _answered(
    requests: Sequence[IndexArray],
    send: Callable[[IndexArray], Future[Answer | None]],
    take: Callable[[IndexArray, Answer], None],
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
                except RequestTooLarge:
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
