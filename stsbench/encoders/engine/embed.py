"""The engine: each distinct sentence is embedded once, in batches without waste.

The sentences of all tasks come together. They are deduplicated, tokenised once, sorted by token
count and cut into batches by a token budget; a GPU has a budget that suits it. Sentences in the
store are not embedded again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import EncoderError, catch_exit, translate_errors
from stsbench.core.provenance import encoder_identity
from stsbench.core.wording import describe_sentence
from stsbench.encoders.accelerator import empty_cache
from stsbench.encoders.base import (
    DeviceEncoder,
    Embed,
    Embeddings,
    EmbeddingsDiffer,
    Encoder,
    FloatArray,
    IndexArray,
    RowFunction,
    ServedEncoder,
    ThreadedEncoder,
    TokenEncoder,
)
from stsbench.encoders.engine.side_by_side import (
    MIN_BATCHES_TO_SHARE,
    KeepFunction,
    SideBySide,
    embed_ahead,
)
from stsbench.encoders.engine.store import EmbeddingStore, Keys, StoredEmbeddings, text_keys
from stsbench.encoders.engine.token_budget import is_out_of_memory, measure_token_budget
from stsbench.encoders.metadata import check_sentences, read_notes
from stsbench.encoders.tokens import TokenIds, plan_batches

TOKEN_BUDGET = 2048
"""The maximum number of tokens in a batch on a CPU."""
TEXTS_PER_BATCH = 1024
"""The number of texts in a batch of an encoder that has no tokens."""
BATCHES_AHEAD = 2
"""The number of batches in progress at a time on a device with a memory of its own."""
ProgressCallback = Callable[[int, int], None]
"""A function that is called with (done, total) during the work, in tokens or sentences."""
BoolArray = npt.NDArray[np.bool_]
NoticeCallback = Callable[[str], None]
"""A function that is called with a message for the user that is no error."""


def to_numeric_array(
    returned: object, name: str, *, expected: str = "an array (n, d) of numbers"
) -> npt.NDArray[Any]:
    """Return the value that an encoder returned as an array of numbers.

    Its shape and the type of the numbers stay as they are, and are not checked here.

    Args:
        returned: The value that the encoder returned.
        name: The name of the encoder, for the message.
        expected: What it should have returned, for the message.

    Raises:
        EncoderError: The value cannot become an array, or becomes one of other objects.
    """
    message = f"encoder '{name}' returned a {type(returned).__name__} that is not {expected}"
    if isinstance(returned, Coroutine):
        # Nobody will await it, and Python would print a warning when it is collected.
        returned.close()
    # The three last types of errors become an EncoderError with this message.
    with translate_errors(message, EncoderError, TypeError, ValueError, RuntimeError):
        array = np.asarray(returned)
    # Numpy's letters for floats, integers, unsigned integers and bools.
    if array.dtype.kind not in "fiub":
        raise EncoderError(message)
    return array


def check_embeddings(
    embeddings: FloatArray,
    sentences: Sequence[str],
    name: str,
    *,
    d: int | None = None,
    among: Sequence[str] | None = None,
) -> None:
    """Check the shape, the type and the values of the embeddings that an encoder returned.

    Args:
        embeddings: The embeddings, which should be (n, d) and float32.
        sentences: The n sentences that were embedded.
        name: The name of the encoder, for the messages.
        d: The size of earlier embeddings, which these must have too; None if there are none.
        among: All sentences of the request: a message says at which place in it a bad sentence
            is. By default ``sentences``.

    Raises:
        EncoderError: The embeddings are not valid.
    """
    if embeddings.ndim != 2 or len(embeddings) != len(sentences):
        raise EncoderError(
            f"encoder '{name}' returned shape {embeddings.shape} for {len(sentences)} sentences; "
            "it must return one row a sentence, (n, d)"
        )
    if d is not None and embeddings.shape[1] != d:
        raise EncoderError(
            f"encoder '{name}' returned embeddings of size {embeddings.shape[1]} after some of "
            f"size {d}; its fingerprint must change when its embeddings do"
        )
    if embeddings.dtype != np.float32:
        raise EncoderError(f"encoder '{name}' returned {embeddings.dtype}; it must return float32")
    is_finite = np.isfinite(embeddings).all(axis=1)
    if not is_finite.all():
        # argmin returns the first index that is False.
        first_bad = sentences[int(np.argmin(is_finite))]
        # A batch may have sentences that are planned with others, and are in one list only.
        all_sentences = among if among is not None and first_bad in among else sentences
        # A text with the sentence's number and its beginning.
        description = describe_sentence(all_sentences, all_sentences.index(first_bad))
        raise EncoderError(f"encoder '{name}' returned NaN or infinity for {description}")


class BatchShare(NamedTuple):
    """The planned batches that one of several workers embeds."""

    number: int
    """The number of the worker, from 0; it embeds each ``n_workers``-th batch from this one on."""
    n_workers: int
    """The number of workers."""

    def select_texts(self, texts: Sequence[str]) -> Sequence[str]:
        """Return the slice of the texts that this worker tokenises for all workers."""
        start = len(texts) * self.number // self.n_workers
        stop = len(texts) * (self.number + 1) // self.n_workers
        return texts[start:stop]


FULL_SHARE = BatchShare(number=0, n_workers=1)
"""All batches: those of a single worker."""


def embed_all(encoder: TokenEncoder, sentences: Sequence[str]) -> FloatArray:
    """Return the embeddings of sentences, (n, d); each distinct one is embedded once, no store."""
    check_sentences(sentences)
    return np.asarray(Engine(encoder)(sentences), dtype=np.float32)


class Engine:
    """Embed for one encoder; there is one engine per run, and it is called once per task."""

    def __init__(
        self,
        encoder: Encoder,
        store: EmbeddingStore | None = None,
        *,
        name: str = "",
        on_progress: ProgressCallback = lambda done, total: None,
        on_notice: NoticeCallback = lambda message: None,
    ) -> None:
        """Store the arguments; nothing is embedded yet.

        Args:
            encoder: The encoder that embeds.
            store: The store of its embeddings; None to keep them in memory only.
            name: What the user calls it, for messages; empty for its own name.
            on_progress: Called after each batch with the number of tokens that are embedded and the
                number of all to embed; for an encoder without tokens, characters or texts.
            on_notice: Called with a message for the user that is no error.
        """
        self.encoder = encoder
        self.store = store or EmbeddingStore(folder=None)
        self.name = name or encoder.name
        self.on_progress = on_progress
        self.on_notice = on_notice
        self.encoded_keys: list[Keys] = []
        """The keys of the texts embedded by this engine, or by other workers for it."""
        self.timed_seconds = 0.0
        """How long all batches but the first of each request took; the first loads the model."""
        self.timed_texts = 0
        """The number of texts in those batches."""
        self._parts_per_batch = 1
        """The number of parts of each batch: more than 1 if the device's memory is too small."""
        self.side_by_side: SideBySide | None = None
        """Divides the processor among batches; None until there are enough of them."""

    def __call__(self, sentences: Sequence[str]) -> StoredEmbeddings:
        """Return the (n, d) embeddings of these sentences; those that are missing are embedded."""
        keys = text_keys(sentences)
        if len(keys) and self.store.find(keys).min() < 0:
            self.prepare(sentences)
        return self.store.view(keys)

    def count_encoded(self, sentences: Sequence[str]) -> int:
        """Return how many of these sentences were embedded in this run, each distinct one once.

        The others were in the store before. Sentences that other processes have embedded for this
        engine are counted too.
        """
        # A list of arrays: the hashes of the embedded texts, as `text_keys` returns them.
        if not self.encoded_keys:
            return 0
        # The field "hi" is the first half of a hash. These 64 bits distinguish the texts of a run
        # well enough for a count; numpy cannot compare whole hashes this way.
        requested_halves = np.unique(text_keys(sentences)["hi"])
        encoded_halves = np.concatenate([keys["hi"] for keys in self.encoded_keys])
        # By default numpy 2.0 may choose a method that fails for numbers of this size.
        return int(np.isin(requested_halves, encoded_halves, kind="sort").sum())

    def missing_texts(self, sentences: Sequence[str]) -> list[str]:
        """Return the distinct sentences of these that the store lacks."""
        texts = list(set(sentences))
        return [texts[i] for i in np.flatnonzero(self.store.find(text_keys(texts)) < 0)]

    def prepare(
        self,
        sentences: Sequence[str],
        *,
        among: Sequence[str] = (),
        share: BatchShare = FULL_SHARE,
        tokens: TokenIds | None = None,
    ) -> None:
        """Embed each distinct sentence that the store lacks, and add its embedding to the store.

        Batches are planned over all sentences, stored or not. So a run that is resumed embeds in
        the same batches as one without a stop, to the same bytes.

        Args:
            sentences: The sentences to embed.
            among: Further sentences to plan for, embedded only if their batch has one to embed.
            share: The batches that this worker embeds, by default all; others embed the rest.
            tokens: The token ids of all distinct texts to plan for, sorted; None to tokenise here.

        Raises:
            EncoderError: The embeddings are not valid, or the encoder ended the program.
            EmbeddingsDiffer: A server embeds a text otherwise than before. The store is archived.
            OutputError: The store cannot be written.
        """
        requested = set(sentences)
        # Sorted, so that the batches do not depend on the order of the sentences.
        texts = sorted(requested.union(among))
        # The store looks texts up by their hashes, (n,); it returns -1 for a text that it lacks.
        keys = text_keys(texts)
        is_stored = self.store.find(keys) >= 0
        is_missing = np.array([text in requested for text in texts], dtype=bool) & ~is_stored
        if not is_missing.any():
            return
        plan = _make_plan(self.encoder, texts, tokens)
        # For each batch with a missing text, the indices of its texts to embed. These are all that
        # are not stored, requested or not: so batches do not depend on the request.
        batches = [
            rows[~is_stored[rows]] for rows in plan.select_batches(share) if is_missing[rows].any()
        ]
        # Its method `add` checks embeddings, adds them to the store and reports the progress.
        writer = _StoreWriter(
            self,
            texts=texts,
            keys=keys,
            costs=plan.costs,
            sentences=sentences,
            total=int(sum(plan.costs[rows].sum() for rows in batches)),
        )
        self.on_progress(0, writer.total)
        try:
            if isinstance(self.encoder, ServedEncoder):
                self._embed_served(self.encoder, batches, writer)
            else:
                self._embed_batches(plan, batches, writer.add)
        except EmbeddingsDiffer:  # a server embeds a text in two ways: none can be relied on
            self.store.archive()
            raise
        finally:
            # Embeddings are also kept on Ctrl-C and on errors.
            self.store.flush()

    def _embed_served(
        self, encoder: ServedEncoder, batches: Sequence[IndexArray], writer: _StoreWriter
    ) -> None:
        """Request the embeddings of all batches from a server, which may answer in any order.

        Args:
            encoder: The encoder that sends the requests.
            batches: For each batch the indices of its texts in ``writer.texts``. The encoder
                divides the texts into requests itself.
            writer: Holds the texts, and adds their embeddings to the store as they come.

        Raises:
            EncoderError: Some embeddings are missing at the end, or the encoder's code ended the
                program.
        """
        # The empty array is for concatenate, which refuses to join nothing.
        requested_rows = np.concatenate([np.empty(0, np.int64), *batches])
        requested_texts = [writer.texts[row] for row in requested_rows]

        def keep(positions: IndexArray, embeddings: FloatArray) -> None:
            """Store embeddings that have come, of the requested texts at these positions."""
            writer.add(requested_rows[positions], embeddings)

        # An encoder that ends the program (sys.exit) raises an EncoderError instead.
        with catch_exit(f"encoder '{encoder.name}'", EncoderError):
            # It calls `keep` for each part of the texts that has come, each text once.
            encoder.embed_into(requested_texts, keep=keep)
        # For a server both count texts: those that have come, and those to embed.
        if writer.done != writer.total:
            raise EncoderError(
                f"encoder '{encoder.name}' passed {writer.done} embeddings of {writer.total}"
            )

    def _embed_batches(
        self, plan: _EmbeddingPlan, batches: Sequence[IndexArray], keep: KeepFunction
    ) -> None:
        """Embed all batches, and store their embeddings in the order of the batches.

        There are three ways. A device with a memory of its own, such as a GPU, computes one batch
        while the next is prepared. A processor with several threads computes a batch per thread.
        Otherwise there is one batch at a time.

        Args:
            plan: How the texts are embedded. Its ``tokens_per_batch`` is 0 on a processor, and
                ``n_threads`` is the most batches to compute at the same time there.
            batches: For each batch the indices of its texts.
            keep: Stores embeddings; called with the indices of their texts and the embeddings.
        """
        embed = partial(self._embed_batch, plan)
        if plan.tokens_per_batch:
            # While a device computes one batch, the next is prepared and sent to it.
            with ThreadPoolExecutor(BATCHES_AHEAD) as pool:
                embed_ahead(pool, batches, embed, keep, n_ahead=BATCHES_AHEAD)
        elif plan.n_threads > 1:
            # Kept for later calls, because it measures how many batches at a time are fastest.
            if self.side_by_side is None or self.side_by_side.n_threads != plan.n_threads:
                self.side_by_side = SideBySide(plan.n_threads)
            self.side_by_side.embed_batches(batches, plan.costs, embed, keep)
        else:
            for rows in batches:
                keep(rows, embed(rows))

    def _embed_batch(self, plan: _EmbeddingPlan, rows: IndexArray) -> npt.NDArray[Any]:
        """Return the embeddings of a batch, computed in parts if the device's memory is too small.

        The number of parts is doubled until they fit, for this batch and all later ones.

        Args:
            plan: The plan that the batch belongs to. Its ``embed`` calls the encoder with texts,
                and ``costs`` are the number of tokens of each text.
            rows: The texts of the batch, as indices of the plan's texts, (b,).

        Returns:
            The embeddings that the encoder returned, not checked yet; they should be (b, d).

        Raises:
            EncoderError: The memory does not hold a single sentence, or the encoder's code ended
                the program.
        """
        has_emptied_cache = False
        while True:
            n_parts = min(self._parts_per_batch, len(rows))
            try:
                # An encoder that ends the program (sys.exit) raises an EncoderError instead.
                with catch_exit(f"encoder '{self.name}'", EncoderError):
                    parts = [
                        to_numeric_array(plan.embed(part_rows), self.name)
                        for part_rows in np.array_split(rows, n_parts)
                    ]
                return parts[0] if n_parts == 1 else np.concatenate(parts)
            except RuntimeError as error:
                # True for torch's OutOfMemoryError, which is a RuntimeError.
                if not is_out_of_memory(error):
                    raise
                # Torch keeps the memory of earlier batches, which may suffice for this one: it is
                # freed, once. Without an accelerator empty_cache returns False.
                if not has_emptied_cache and empty_cache():
                    has_emptied_cache = True
                    continue
                if n_parts == len(rows):
                    raise EncoderError(
                        f"encoder '{self.name}': the device's memory does not hold one "
                        f"sentence of {plan.costs[rows].max()} tokens",
                        hint="set a smaller max_length or dtype=bfloat16",
                    ) from error
            # This changes self._parts_per_batch, which the next round of this loop reads.
            self._raise_parts_per_batch(2 * n_parts, plan.tokens_per_batch)

    def _raise_parts_per_batch(self, n_parts: int, tokens_per_batch: int) -> None:
        """Set into how many parts all later batches are cut, and tell the user.

        Nothing changes if another thread has already set as many.

        Args:
            n_parts: The new number of parts per batch.
            tokens_per_batch: The number of tokens of a whole batch, for the message.
        """
        if self._parts_per_batch >= n_parts:
            return
        self._parts_per_batch = n_parts
        self.on_notice(
            f"encoder '{self.name}': the device's memory is too small for its batches; "
            f"they go in {n_parts} pieces each, "
            f"as with a token budget of {tokens_per_batch // n_parts}"
        )


@dataclass
class _StoreWriter:
    """Check embeddings as they come, and add them to the store of an engine."""

    engine: Engine
    """The engine, whose store and callbacks are used."""
    texts: Sequence[str]
    """All distinct texts of the plan; rows are indices of them."""
    keys: Keys
    """The key of each text, (n,)."""
    costs: IndexArray
    """The cost of each text, (n,), in tokens or sentences."""
    sentences: Sequence[str]
    """The sentences of the request, whose numbers messages give."""
    total: int
    """The cost of all texts to embed."""
    done: int = 0
    """The cost of those that have come."""
    last_time: float | None = None
    """When the last batch had come; None before the first one."""

    def add(self, rows: IndexArray, embeddings: npt.NDArray[Any]) -> None:
        """Check embeddings of some texts, add them to the engine's store, and report the progress.

        Before the first ones, the embeddings of the probe sentences are recorded in the store:
        by these a later run can tell whether the encoder still embeds in the same way. Embeddings
        that come from a server are written to disk at once.

        Args:
            rows: The texts, as indices of ``self.texts``, (m,). ``self.keys`` and ``self.costs``
                have the hash and the number of tokens of each of ``self.texts``, (n,).
            embeddings: What the encoder returned for them, which should be (m, d).

        Raises:
            EncoderError: The embeddings are not valid.
            OutputError: The store cannot be written.
        """
        engine = self.engine
        check_embeddings(
            embeddings,
            [self.texts[row] for row in rows],
            engine.name,
            # The size of the stored embeddings; None if there are none.
            d=engine.store.width,
            # All sentences of the request, whose numbers are in the error messages.
            among=self.sentences,
        )
        # Copied before the encoder embeds probes: it may fill the same array again and again.
        stored_rows = embeddings.copy()
        if engine.store.monitor is not None and not engine.encoded_keys:
            # Not sooner: an encoder that fails gets no probe sentences.
            engine.store.monitor.record_probes()
        engine.store.add(self.keys[rows], stored_rows)
        if isinstance(engine.encoder, ServedEncoder):
            # They come from a server and may be paid for, so none is lost.
            engine.store.flush()
        engine.encoded_keys.append(self.keys[rows])
        # The progress is measured in tokens, or in texts if the encoder has no tokens.
        self.done += int(self.costs[rows].sum())
        engine.on_progress(self.done, self.total)
        now = time.perf_counter()
        # The first batch is not timed, because the model is loaded before it.
        if self.last_time is not None:
            engine.timed_seconds += now - self.last_time
            engine.timed_texts += len(rows)
        self.last_time = now


class StoredEncoder:
    """An encoder whose embeddings come from an engine, and so from its store if it has them."""

    def __init__(self, engine: Engine) -> None:
        """Keep the engine."""
        self.engine = engine
        self.encoder = engine.encoder
        self.name = engine.encoder.name

    @property
    def fingerprint(self) -> str | None:
        """The encoder's; None if the engine stores nothing on disk, so that nothing else is."""
        return encoder_identity(self.encoder) if self.engine.store.folder is not None else None

    @property
    def notes(self) -> list[str]:
        """The encoder's notes."""
        return read_notes(self.encoder)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        return np.asarray(self.engine(sentences))


class _EmbeddingPlan(NamedTuple):
    """The batches in which a set of texts will be embedded, and the function that embeds one."""

    costs: IndexArray
    """The cost of each text, (n,): its tokens, characters, or 1 for a server."""
    batches: list[IndexArray]
    """The rows of each batch, which are the same for all workers."""
    embed: Callable[[IndexArray], object]
    """Embeds the texts of some rows."""
    tokens_per_batch: int = 0
    """The tokens per batch of a device with a memory of its own; 0 if there is none."""
    n_threads: int = 1
    """The most batches to embed side by side, on a thread of torch each; 1 for one at a time."""

    def select_batches(self, share: BatchShare) -> list[IndexArray]:
        """Return the batches that one of several workers embeds.

        Args:
            share: The number of the worker, from 0, and how many workers there are.

        Returns:
            For each batch the indices of its texts. On a device with a memory of its own, such
            as a GPU, the worker's texts are cut anew into larger batches, which are faster there:
            of ``self.tokens_per_batch`` tokens, a number that is 0 without such a device.
        """
        batches = self.batches[share.number :: share.n_workers]
        if not self.tokens_per_batch or not batches:
            return batches
        rows = np.concatenate(batches)
        # Yields the positions in `rows` of each batch, the longest texts first.
        larger_batches = plan_batches(self.costs[rows], budget=self.tokens_per_batch)
        return [rows[batch] for batch in larger_batches]


def tokenize_texts(encoder: TokenEncoder, texts: Sequence[str]) -> TokenIds:
    """Return the token ids of each text.

    Args:
        encoder: An encoder, perhaps a user's own, that tokenises and embeds separately.
        texts: The texts.

    Returns:
        The ids of all texts in one object, whose ``len`` is the number of texts.

    Raises:
        EncoderError: The encoder returns another type, or not the ids of each text.
    """
    tokens = encoder.tokenize(texts)
    if not isinstance(tokens, TokenIds) or len(tokens) != len(texts):
        raise EncoderError(
            f"encoder '{encoder.name}': tokenize returned a {type(tokens).__name__}; beside "
            "embed_tokens it must return the TokenIds of each sentence (stsbench.encoders.base)"
        )
    return tokens


def _make_plan(
    encoder: Encoder | TokenEncoder, texts: Sequence[str], tokens: TokenIds | None
) -> _EmbeddingPlan:
    """Plan the batches of all texts.

    Args:
        encoder: The encoder. It has tokens only if it is a ``TokenEncoder``, that is, if it has
            the methods ``tokenize`` and ``embed_tokens``.
        texts: The texts to embed.
        tokens: The token ids of each text; None if they are not tokenised yet.

    Returns:
        The batches, of ``TOKEN_BUDGET`` tokens at most; the number of tokens of larger batches
        that are cut for a GPU; and on how many threads batches are embedded side by side.
    """
    if not isinstance(encoder, TokenEncoder):
        return _plan_without_tokens(encoder, texts)
    tokens = tokenize_texts(encoder, texts) if tokens is None else tokens
    tokens_per_batch = 0
    if isinstance(encoder, DeviceEncoder):
        # The number that is fastest on the device, at least TOKEN_BUDGET; 0 on a processor.
        tokens_per_batch = measure_token_budget(encoder, tokens, TOKEN_BUDGET)
    batches = list(plan_batches(tokens.lengths, budget=TOKEN_BUDGET))
    n_threads = 1
    # With few batches, one is computed at a time. The planned ones count, whether they are stored
    # or not, so that a resumed run embeds in the same way.
    if isinstance(encoder, ThreadedEncoder) and len(batches) >= MIN_BATCHES_TO_SHARE:
        # How many threads of torch embed on the processor; 1 on a GPU.
        n_threads = encoder.processor_threads()
    return _EmbeddingPlan(
        costs=tokens.lengths,
        batches=batches,
        embed=partial(encoder.embed_tokens, tokens),
        tokens_per_batch=tokens_per_batch,
        n_threads=n_threads,
    )


def _plan_without_tokens(encoder: Encoder, texts: Sequence[str]) -> _EmbeddingPlan:
    """Plan batches of a fixed number of texts, the longest texts first.

    For an encoder that asks a server, each text is a batch of its own.

    Args:
        encoder: An encoder that does not tokenise by itself.
        texts: The texts to embed.
    """
    # The costs order the texts and measure the progress: characters, as tokens are unknown, or 1
    # per text for a server.
    is_served = isinstance(encoder, ServedEncoder)
    costs = np.fromiter(
        (1 if is_served else len(text) for text in texts), dtype=np.int64, count=len(texts)
    )
    order = np.argsort(-costs, kind="stable")
    # For a server each text is one batch: it belongs to the same worker whatever is stored so far.
    size = 1 if is_served else TEXTS_PER_BATCH
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    return _EmbeddingPlan(
        costs, batches, embed=lambda rows: encoder.encode([texts[row] for row in rows])
    )


@dataclass(frozen=True)
class TransformedEmbeddings(Embeddings):
    """A read-only (n, k) view of embeddings that a function changes when they are read."""

    view: Embeddings
    transform: RowFunction

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and the size of an embedding."""
        n = self.view.shape[0]
        return n, self.take(np.arange(min(n, 1))).shape[1]

    def take(self, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Return these rows, (len(indices), k)."""
        return self.transform(self.view.take(indices))


def transform_embeddings(embed: Embed, transform: RowFunction) -> Embed:
    """Return a function that embeds sentences as ``embed`` does, with its rows transformed.

    The rows are transformed when an evaluator reads them.
    """
    return lambda sentences: TransformedEmbeddings(embed(sentences), transform)
