"""An encoder behind a server, on this machine or paid by the token.

The server speaks OpenAI's ``/v1/embeddings``, as most do, or TEI's ``/embed``.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from stsbench.core import settings
from stsbench.core.errors import CardError, EncoderError, SourceError, look_up
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
from stsbench.encoders.cached_files import read_json_record
from stsbench.encoders.metadata import check_sentences, replace_lone_surrogates
from stsbench.encoders.served.client import RequestSkipped, RequestTooLarge, ServerClient
from stsbench.encoders.served.protocols import SERVER_APIS, Answer
from stsbench.encoders.served.requests import (
    MAX_SERVER_DRIFT,
    RepeatedTexts,
    RequestLimits,
    plan_requests,
)
from stsbench.encoders.transformer.prompt import Prompt

CODE_VERSION = 1
"""To be raised with a change here that can change an embedding: stored ones are not reused then."""
PROBE_TEXT = "A man is playing a guitar."
"""The text that shows a run whether the server still embeds as in earlier runs."""
BYTES_PER_TOKEN = 4
"""Bytes of UTF-8 per token of an estimate.

English text has 4 to 5 with the vocabularies in use; other scripts have fewer.
"""


class ServerReport(msgspec.Struct, rename={"description": "said", "answering_model": "answers"}):
    """A server's description of a model, and the model that its answers named."""

    description: dict[str, Any]
    answering_model: str = ""


class History(msgspec.Struct):
    """The observations of earlier runs of a server's model."""

    changes: int = 0
    """The number of times that it embedded a text in two ways."""
    probe: bytes = b""
    """The embedding of :data:`PROBE_TEXT`, (d,), float32.

    Empty before the first run of several texts.
    """


class OpenAIEncoder:
    """Embeds by requests to a server, several at once.

    Embeddings are passed on as they come, so that nothing is paid for twice. A blank sentence,
    which servers refuse, is zero.
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
        """Check the parameters and store them; nothing is sent yet. docs/encoders.md explains them.

        ``batch`` and ``batch_tokens`` limit the texts and tokens of one request, ``in_flight`` the
        number of requests at a time; ``body`` has further fields of each request. ``dimensions`` is
        the size of embeddings that the server is asked for. By ``tokenizer``, a checkpoint, tokens
        are counted; without it they are estimated.

        Raises:
            UnknownName: There is no protocol ``api``.
            CardError: Another parameter is not valid.
        """
        self.name = name or model
        self.model = model
        self.dimensions = dimensions
        self.encoding = encoding
        self.api_name = api
        # The server's protocol: how requests are written and answers read.
        self.api = look_up("api of a server", api, SERVER_APIS)
        self.body = dict(body or {})
        for key in self.body.keys() & set(self.api.request_fields):
            raise CardError(f"body: '{key}' cannot be set: stsbench sets it")
        self.prompt = Prompt(prompt, prompt_template)
        self.client = ServerClient(
            url, key_variable, timeout, retries, requests_a_minute, tokens_a_minute
        )
        self.batch = batch
        self.batch_tokens = batch_tokens
        self.in_flight = in_flight
        self.tokenizer = tokenizer
        # The size of an embedding; None until an answer shows it.
        self._size = dimensions
        # Under the key "model" the name in the server's first answer, in whichever thread.
        self._answering_model: dict[str, str] = {}

    @property
    def _report_path(self) -> Path:
        """The file of what the server last said of itself."""
        # By the report of its last embeddings, a run finds them if the server is gone.
        location = json.dumps((self.client.url, self.api_name, self.model))
        digest = hashlib.sha256(location.encode()).hexdigest()[:32]
        return settings.cache_folder() / "served" / f"{digest}.json"

    @cached_property
    def _server_report(self) -> ServerReport | None:
        """How the server describes its model now, and which model its earlier answers named.

        If the server does not answer, it is the report that was stored with its last embeddings, so
        that these are found. None if there is no stored report either.
        """
        # None if the server does not answer; empty if it answers, but has no description.
        response = self.client.get(self.api.description_path)
        earlier_report = read_json_record(self._report_path, ServerReport)
        if response is None:
            return earlier_report
        description = self._find_description(response)
        # Those that the protocol lists. Others, such as the server's clock and load, always change.
        identifying_fields = {
            key: description[key]
            for key in self.api.identifying_keys
            if description.get(key) is not None
        }
        answering_model = earlier_report.answering_model if earlier_report else ""
        return ServerReport(identifying_fields, answering_model)

    def _find_description(self, response: Mapping[str, Any]) -> dict[str, Any]:
        """Return the description of this encoder's model in a server's answer.

        Args:
            response: The answer. By OpenAI's protocol it has a list of models under ``data``; by
                that of TEI (Text Embeddings Inference) it is the description of the only model.

        Returns:
            The fields of the description by name; empty if the answer does not describe the model.
        """
        if "data" not in response:
            # The description by TEI has no id.
            return {**response, "id": self.model}
        models = response["data"]
        for model in models if isinstance(models, list) else []:
            if isinstance(model, dict) and model.get("id") == self.model:
                return model
        return {}

    @property
    def fingerprint(self) -> str:
        """The hash of everything known that can change an embedding.

        That is the form of the requests, the server's description of its model, and how often the
        server has been found to embed a text in two ways. The server's address is no part of it.
        """
        # How often this has been found, in this run and earlier ones.
        changes = self._history.changes
        if not changes:
            return self._model_fingerprint
        return fingerprint({"model": self._model_fingerprint, "changes": changes})

    @cached_property
    def _model_fingerprint(self) -> str:
        """The hash of the form of the requests and of the server's description of its model."""
        return fingerprint(
            {
                "kind": "openai",
                "code": CODE_VERSION,
                "model": self.model,
                "dimensions": self.dimensions,
                "encoding": self.encoding,
                "body": self.body,
                "api": self.api_name,
                "template": self.prompt.fingerprint_fields(),
                # Only fields that identify the model; empty if the server has never answered.
                "server": self._server_report.description if self._server_report else {},
            }
        )

    @property
    def _history_path(self) -> Path:
        """The file of the model's history: its changes, and its embedding of the probe."""
        # By no address: a model may be served at several.
        digest = hashlib.sha256(self._model_fingerprint.encode()).hexdigest()[:32]
        return settings.cache_folder() / "served" / f"history-{digest}.json"

    @cached_property
    def _history(self) -> History:
        """The history in the file; a new one if there is no file."""
        return read_json_record(self._history_path, History) or History()

    def _write_history(self, history: History) -> None:
        """Replace the history, here and in its file."""
        self._history = history
        write_atomically(self._history_path, msgspec.json.encode(history))

    @property
    def notes(self) -> list[str]:
        """A list of one note for results: that the weights of the server's model are not known.

        The note has the server's description of its model, and the model that its answers name, as
        far as the server has sent them.
        """
        # None if the server does not answer and never has.
        report = self._server_report or ServerReport(description={})
        note = (
            f"embedded by a server that calls its model '{self.model}': "
            "which weights those are is not known"
        )
        if report.description:
            pairs = ", ".join(f"{key} {value}" for key, value in report.description.items())
            note += f"; it says {pairs}"
        # The name in the answers of this run; if there are none yet, that in earlier answers.
        answering_model = self._answering_model.get("model", report.answering_model)
        if answering_model:
            note += f"; its answers name {format_repr(answering_model)}"
        return [note]

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return the embeddings (n, d) that the server computes; zero for a blank sentence."""
        check_sentences(sentences)
        # The embeddings as they come: the numbers of their sentences, and the embeddings.
        chunks: list[tuple[IndexArray, FloatArray]] = []
        self.embed_into(sentences, keep=lambda rows, chunk: chunks.append((rows, chunk)))
        # If no answer has shown the size of an embedding yet, `self.width` sends a word to see it.
        embeddings = np.zeros((len(sentences), self.width), dtype=np.float32)
        for rows, chunk in chunks:
            embeddings[rows] = chunk
        return embeddings

    @property
    def width(self) -> int:
        """The size of an embedding; if no answer has shown it yet, one word is sent."""
        if self._size is None:
            self.request(["a"], threading.Event())
        return self._size or 0

    def count_tokens(self, sentences: Sequence[str]) -> int:
        """Return the number of tokens to send to the server for some sentences.

        Blank texts are not sent. Texts that are sent a second time, to compare the server's
        answers, are counted twice. The probe text, which every run sends, counts too. Without a
        tokenizer the number is an estimate.

        Args:
            sentences: The sentences to embed.
        """
        # With the prompt around each, the probe too.
        texts = self._texts_to_send([*sentences, PROBE_TEXT])
        # The number of tokens of each text.
        costs = self._count_each(texts)
        # Each phase is a list of requests, and a request the numbers of its texts.
        phases = self._plan_requests(texts, costs)
        return sum(int(costs[rows].sum()) for phase in phases for rows in phase)

    def _plan_requests(self, texts: Sequence[str], costs: IndexArray) -> list[list[IndexArray]]:
        """Plan the requests for some texts; blank ones are not sent, because servers refuse them.

        Args:
            texts: n texts, of which the last is the probe, the text that every run sends.
            costs: The number of tokens of each, (n,).

        Returns:
            The phases of :func:`plan_requests`, in their order: for each a list of requests, and
            for each request the numbers of its texts. Empty if all texts but the probe are blank.
        """
        rows = np.array(
            [row for row, text in enumerate(texts[:-1]) if text.strip()], dtype=np.int64
        )
        limits = RequestLimits(self.batch, self.batch_tokens)
        return plan_requests(rows, costs, limits, probe=len(texts) - 1) if len(rows) else []

    @cached_property
    def _count_by_tokenizer(self) -> Callable[[Sequence[str]], list[int]]:
        from stsbench.encoders.transformer.backbone import TokenCounter

        return TokenCounter(self.tokenizer)

    def _count_each(self, texts: Sequence[str]) -> IndexArray:
        """Return the number of tokens of each text, (n,).

        With a tokenizer, its special tokens are not counted. Without, the number is estimated from
        that of bytes in UTF-8, and one is added to each text for special tokens.
        """
        if self.tokenizer:
            return np.array(self._count_by_tokenizer(texts) if len(texts) else [], dtype=np.int64)
        n_bytes = np.array([len(text.encode()) for text in texts], dtype=np.int64)
        # Divided and rounded up.
        return -(-n_bytes // BYTES_PER_TOKEN) + 1

    def embed_into(self, sentences: Sequence[str], keep: KeepEmbeddings) -> None:
        """Embed sentences, and pass their embeddings to a function as they come from the server.

        Some texts are sent twice, to see whether their embeddings stay the same
        (:mod:`stsbench.encoders.served.requests`). After a failure no more requests are sent, but
        the answers to those that were sent are still passed on: they may be paid for.

        Args:
            sentences: The sentences.
            keep: Called with the numbers (m,) of some sentences and their embeddings (m, d).

        Raises:
            StsbenchError: The environment lacks the variable of the key.
            SourceError: The server cannot be reached, or sends no embeddings in all attempts.
            EmbeddingsDiffer: The server embeds a text in two ways.
            EncoderError: The server refuses a request, or its answer is not valid.
        """
        texts = self._texts_to_send([*sentences, PROBE_TEXT])
        phases = self._plan_requests(texts, self._count_each(texts))
        if phases:
            self.client.read_key()  # raises if it is missing
            # Its first access asks the server. None if that does not answer and never has.
            if self._server_report is None:
                raise SourceError(
                    f"no server answers at {self.client.url}",
                    hint="start it, or give another by `params=url=ADDRESS`",
                )
            self._send_phases(phases, texts, sentences, keep)
        # Servers refuse a blank text, so its embedding is zero. If no answer has shown the size of
        # an embedding yet, `self.width` sends one word to see it.
        blank_rows = np.array(
            [row for row, text in enumerate(texts[:-1]) if not text.strip()], dtype=np.int64
        )
        if len(blank_rows):
            keep(blank_rows, np.zeros((len(blank_rows), self.width), dtype=np.float32))

    def _send_phases(
        self,
        phases: Sequence[Sequence[IndexArray]],
        texts: Sequence[str],
        sentences: Sequence[str],
        keep: KeepEmbeddings,
    ) -> None:
        """Send the requests of all phases, and pass on each text's first embedding.

        The embedding of the probe, a text that every run sends, is compared with earlier runs'.

        Args:
            phases: The requests of each phase, each the numbers of its texts. A phase begins when
                all requests of the one before it have been answered.
            texts: The texts to send, (n + 1,), of which the last is the probe.
            sentences: The sentences that all other texts are made of, (n,), for messages.
            keep: Called with the numbers (m,) of some sentences and their embeddings (m, d).

        Raises:
            SourceError, EmbeddingsDiffer, EncoderError: As :meth:`embed_into`.
        """
        probe = len(sentences)
        # It has the first embeddings of texts that are sent again, by number, to compare them.
        repeated = RepeatedTexts(phases, probe)
        if self._history.probe:  # bytes, empty before the first run of several texts
            repeated.embeddings[probe] = np.frombuffer(self._history.probe, dtype="<f4")
        # Whether each text's embedding is still to be passed on: not for blank ones.
        is_missing = np.array([bool(text.strip()) for text in texts[:-1]] + [False])

        def take_answer(rows: IndexArray, answer: Answer) -> None:
            """Pass on an answer's embeddings of missing texts; raise an error if any is bad."""
            is_finite = np.isfinite(answer.embeddings).all(axis=1)
            finite_rows = rows[is_finite]
            finite_embeddings = answer.embeddings[is_finite]
            # Raises if a text that was sent before now has another embedding.
            self._refuse_changed_embedding(repeated.largest_move(finite_rows, finite_embeddings))
            is_new = is_missing[finite_rows]
            new_rows = finite_rows[is_new]
            is_missing[new_rows] = False
            if len(new_rows):
                keep(new_rows, finite_embeddings[is_new])
            if not is_finite.all():
                index = int(np.argmin(is_finite))
                row = int(rows[index])
                value = "null" if answer.has_null[index] else "NaN or infinity"
                # The probe is no text of the user's.
                text = "a text of our own" if row == probe else describe_sentence(sentences, row)
                raise EncoderError(f"encoder '{self.name}' returned {value} for {text}")

        stop = threading.Event()
        with ThreadPoolExecutor(self.in_flight, thread_name_prefix="stsbench-server") as pool:
            for requests in phases:
                _run_requests(
                    requests,
                    send=lambda rows: pool.submit(self._request_rows, texts, rows, stop),
                    take_answer=take_answer,
                    stop=stop,
                )
                # Does nothing if one is stored already, or if the server has not embedded it yet.
                self._store_probe(repeated.embeddings.get(probe))

    def _store_probe(self, embedding: FloatArray | None) -> None:
        """Write the embedding (d,) of the probe text into the model's history.

        Nothing is written if the history has one already, or if ``embedding`` is None: the server
        has not embedded the probe yet. The history also counts the changes of the model that were
        seen; this number stays.
        """
        if embedding is not None and not self._history.probe:
            # Little-endian float32.
            probe = embedding.astype("<f4").tobytes()
            self._write_history(History(self._history.changes, probe))

    def _refuse_changed_embedding(self, move: float) -> None:
        """Raise an error if a text that was sent twice has two different embeddings.

        The change is first written into the model's history.

        Args:
            move: The distance of the two embeddings, as a share of the length of the first.

        Raises:
            EmbeddingsDiffer: The distance is above ``MAX_SERVER_DRIFT``.
        """
        # Written with "not", so that NaN, for which each comparison is false, raises too.
        if not move <= MAX_SERVER_DRIFT:
            # It returns the EmbeddingsDiffer.
            raise self._record_change(
                f"the server at {self.client.url} embeds a text otherwise when it is asked for "
                f"again (its embedding moves by {move:.2g} of its length): "
                "its answers are in another order, or its model has changed"
            )

    def _record_change(self, problem: str) -> EmbeddingsDiffer:
        """Write into the model's history that the server has changed, and return the error for it.

        The history counts the changes. The count is part of the encoder's fingerprint, so that
        earlier embeddings, and scores of them, are not reused. The embedding of the probe text is
        removed from the history; the next run stores a new one.

        Args:
            problem: The message of the error.
        """
        self._write_history(History(self._history.changes + 1))
        return EmbeddingsDiffer(
            problem,
            hint="nothing that it gave before counts any more: run again, "
            "with `params=batch=1` if this comes again",
        )

    def _request_rows(
        self, texts: Sequence[str], rows: IndexArray, stop: threading.Event
    ) -> Answer | None:
        """Request the embeddings of some of the texts.

        After a failure ``stop`` is set, unless the request was too large and can be divided.

        Args:
            texts: All texts, with the prompt around each.
            rows: The texts of this request, as indices.
            stop: Once it is set, no thread sends a request any more.

        Returns:
            The server's answer; None if the request was not sent, because ``stop`` was set.
        """
        try:
            return self.request([texts[row] for row in rows], stop)
        except RequestSkipped:
            return None
        except BaseException as error:
            # Set here, before this thread begins another request, which may cost money.
            if not isinstance(error, RequestTooLarge):
                stop.set()
            raise

    def _texts_to_send(self, sentences: Sequence[str]) -> list[str]:
        """Return the texts to send for sentences: with the prompt, and valid as UTF-8."""
        return [replace_lone_surrogates(text) for text in self.prompt.wrap(sentences)]

    def request(self, texts: Sequence[str], stop: threading.Event) -> Answer:
        """Send one request for embeddings and return the server's answer.

        The size of the embeddings is stored in this object. The server's report, its description of
        the model and the name in its answers, is written into the cache folder if it has changed.

        Args:
            texts: The texts as they are sent, with the prompt around each.
            stop: Once any thread has set it, no request is sent any more.

        Raises:
            RequestSkipped: ``stop`` was set before the request was sent.
            EmbeddingsDiffer: The answer names another model than the first answer of this run.
            SourceError: The server cannot be reached, or sends no embeddings in all attempts.
            EncoderError: The server refuses the request, or its answer is not valid.
        """
        # The user's own fields, and those of the protocol.
        fields = {**self.body, **self.api.make_request(texts, self.model, self.encoding)}
        if self.dimensions is not None:
            fields["dimensions"] = self.dimensions
        tokens = int(self._count_each(texts).sum())
        response = self.client.post(self.api.path, fields, tokens=tokens, stop=stop)
        server_label = f"the server at {self.client.url}"
        answer = self.api.read(response, len(texts), server_label)
        size = answer.embeddings.shape[1]
        if self.dimensions not in (None, size):
            raise EncoderError(
                f"{server_label} gave embeddings of size {size}, not the {self.dimensions} of "
                f"'dimensions': it does not offer them for '{self.model}'; leave dimensions out"
            )
        # The name that the server gives its model, empty if it gives none, must be the same in all
        # answers of a run. Requests run in several threads: `setdefault` of a dict stores the first
        # name, whichever thread comes first.
        first_model = self._answering_model.setdefault("model", answer.model)
        if first_model != answer.model:
            # The change is written into the model's history; the error is an EmbeddingsDiffer.
            raise self._record_change(
                f"{server_label} answered as model {format_repr(first_model)}, and now as "
                f"{format_repr(answer.model)}: it was changed in mid-run"
            )
        self._size = size
        # The description is what the server gave when this run began, the name is this answer's.
        report = ServerReport(
            self._server_report.description if self._server_report else {}, answer.model
        )
        if read_json_record(self._report_path, ServerReport) != report:
            write_atomically(self._report_path, msgspec.json.encode(report, order="sorted"))
        return answer


def _run_requests(
    requests: Sequence[IndexArray],
    send: Callable[[IndexArray], Future[Answer | None]],
    take_answer: Callable[[IndexArray, Answer], None],
    stop: threading.Event,
) -> None:
    """Send requests in threads and handle their answers as they come.

    A request that is too large is sent again as two halves. After a failure no more requests are
    sent. Those that were sent are waited for, and their answers are handled, because they are paid
    for. The first failure is raised at the end.

    Args:
        requests: The numbers of the texts of each request.
        send: Starts one request in a thread; the result of its future is None if the request was
            not sent.
        take_answer: Called with the numbers of the texts and the answer of each request.
        stop: Set after a failure, so that no thread sends a request any more.
    """
    # The requests that are not answered yet: by future the numbers of the texts.
    pending = {send(rows): rows for rows in requests}
    failure: BaseException | None = None
    while pending:
        try:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                rows = pending.pop(future)
                try:
                    answer = future.result()
                except RequestTooLarge:
                    # One text cannot be halved; and after a failure there are no new requests.
                    if len(rows) == 1 or failure is not None:
                        raise
                    pending |= {send(half): half for half in np.array_split(rows, 2)}
                else:
                    if answer is not None:
                        take_answer(rows, answer)
        except BaseException as error:  # Ctrl-C too: requests that are under way are paid for
            failure = failure or error
            stop.set()
            # cancel() is True only for a request that has not begun. Those under way or done stay
            # pending, and the next turn takes their answers.
            not_cancelled = [future for future in pending if not future.cancel()]
            pending = {future: pending[future] for future in not_cancelled}
    if failure is not None:
        raise failure
