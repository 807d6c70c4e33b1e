"""The engine: each distinct sentence is embedded once, in batches without waste.

All sentences of all tasks come in together; they are deduplicated, tokenised once, sorted by token count and cut into
batches by a token budget, on a GPU by one that suits it. What the store has is not embedded again.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core import settings
from stsbench.core.errors import EncoderError, catch_exit, translate_errors
from stsbench.core.files import write_atomically
from stsbench.core.provenance import encoder_identity
from stsbench.core.wording import describe_sentence
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
    TokenEncoder,
)
from stsbench.encoders.engine.store import EmbeddingStore, Keys, StoredEmbeddings, text_keys
from stsbench.encoders.metadata import check_sentences, read_notes
from stsbench.encoders.tokens import TokenIds, plan_batches

TOKEN_BUDGET = 2048
TEXTS_PER_BATCH = 1024
BATCHES_AHEAD = 2
"""Batches under way on a device with a memory of its own."""
ProgressCallback = Callable[[int, int], None]
"""Called with (done, total) while it works, in tokens or sentences."""
NoticeCallback = Callable[[str], None]
"""Called with what is no failure and should be known."""
MIN_BATCHES_TO_TIME = 64
"""So many batches of the smallest size must there be for sizes to be timed."""
MAX_MEMORY_SHARE = 0.25
"""Of the free memory may one batch take: two are under way at a time, and kernels need some for themselves."""
MIN_SPEEDUP = 1.05
"""A batch twice as large must be faster by this factor."""


def as_array(returned: object, name: str) -> npt.NDArray[Any]:
    """What an encoder returned as an array of numbers, whatever their type; raises EncoderError where it is none."""
    what = f"encoder '{name}' returned a {type(returned).__name__} that is not an array (n, d)"
    if isinstance(returned, Coroutine):
        # Nobody will await it, which Python would warn of whenever it is collected.
        returned.close()
    with translate_errors(what, EncoderError, TypeError, ValueError, RuntimeError):
        array = np.asarray(returned)
    if array.dtype.kind not in "fiub":
        raise EncoderError(f"{what} of numbers")
    return array


def check_embeddings(
    embeddings: FloatArray,
    sentences: Sequence[str],
    name: str,
    *,
    d: int | None = None,
    among: Sequence[str] | None = None,
) -> None:
    """Check what an encoder returned, against the size ``d`` of earlier embeddings too; raises EncoderError.

    Of NaN and infinity it gives the sentence's number ``among`` those that were asked for.
    """
    if embeddings.ndim != 2 or len(embeddings) != len(sentences):
        what = f"returned shape {embeddings.shape} for {len(sentences)} sentences"
        raise EncoderError(f"encoder '{name}' {what}; it must return one row a sentence, (n, d)")
    if d is not None and embeddings.shape[1] != d:
        what = f"returned embeddings of size {embeddings.shape[1]} after some of size {d}"
        raise EncoderError(
            f"encoder '{name}' {what}; its fingerprint must change when its embeddings do"
        )
    if embeddings.dtype != np.float32:
        raise EncoderError(f"encoder '{name}' returned {embeddings.dtype}; it must return float32")
    finite = np.isfinite(embeddings).all(axis=1)
    if not finite.all():
        at, among = int(np.argmin(finite)), sentences if among is None else among
        which = describe_sentence(among, among.index(sentences[at]))
        raise EncoderError(f"encoder '{name}' returned NaN or infinity for {which}")


Budget = Annotated[int, msgspec.Meta(gt=0)]


def measure_token_budget(encoder: DeviceEncoder, tokens: TokenIds, smallest: int) -> int:
    """How many tokens go into a batch on a device with a memory of its own: the fastest number that fits; 0 on a CPU.

    A GPU waits for small batches, and no size is fastest for every model. The first run that embeds enough times some
    sizes on its own sentences; the fastest is kept in the cache folder, for this encoder on this kind of device: later
    runs embed in the same batches. The size moves an embedding by rounding at most.
    """
    if (memory := encoder.device_memory()) is None:
        return 0
    file, identified = None, encoder_identity(encoder)
    if identified is not None:
        digest = hashlib.sha256(
            f"{identified}\n{memory.device}".encode("utf-8", "surrogatepass")
        ).hexdigest()
        file = settings.cache_folder() / "budgets" / f"{digest[:32]}.json"
        with suppress(OSError, msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(file.read_bytes(), type=Budget)
    if int(tokens.lengths.sum()) < MIN_BATCHES_TO_TIME * smallest:
        return smallest
    budget = _fastest(
        encoder, tokens, smallest, most=int(MAX_MEMORY_SHARE * memory.free / memory.per_token)
    )
    if file is not None:
        write_atomically(file, f"{budget}\n".encode())
    return budget


def _fastest(encoder: DeviceEncoder, tokens: TokenIds, smallest: int, most: int) -> int:
    # Sentences of usual length: as many of them as the largest batch holds have nearly the same.
    order = np.argsort(tokens.lengths, kind="stable")
    usual = max(int(tokens.lengths[order[len(order) // 2]]), 1)
    best, best_speed, budget, n = smallest, 0.0, smallest, 0
    while budget <= max(most, smallest) and n < len(order):
        n = min(max(budget // usual, 1), len(order))
        start = (len(order) - n) // 2
        rows = order[start : start + n][::-1]
        took = []
        try:
            # The better of two times: the first may compile.
            for _ in range(2):
                began = time.perf_counter()
                encoder.embed_tokens(tokens, rows)
                took.append(time.perf_counter() - began)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            break
        speed = float(tokens.lengths[rows].sum()) / min(took)
        if speed < MIN_SPEEDUP * best_speed:
            break
        best, best_speed, budget = budget, speed, budget * 2
    return best


def _is_out_of_memory(error: RuntimeError) -> bool:
    # By its name: torch is not imported where an encoder does without.
    return type(error).__name__ == "OutOfMemoryError"


class BatchShare(NamedTuple):
    """Which of the planned batches one of several workers embeds: each ``of``-th, from its ``number`` on, which is below it."""

    number: int
    n_workers: int

    def select_texts(self, texts: Sequence[str]) -> Sequence[str]:
        """Of texts in their order those that this worker reads for all."""
        return texts[
            len(texts) * self.number // self.n_workers : len(texts)
            * (self.number + 1)
            // self.n_workers
        ]


FULL_SHARE = BatchShare(0, 1)


def embed_all(encoder: TokenEncoder, sentences: Sequence[str]) -> FloatArray:
    """Embed sentences, (n, d), each distinct one once, with no store."""
    check_sentences(sentences)
    return np.asarray(Engine(encoder)(sentences), dtype=np.float32)


class Engine:
    """Embeds for one encoder; made once a run, called once a task."""

    def __init__(
        self,
        encoder: Encoder,
        store: EmbeddingStore | None = None,
        *,
        on_progress: ProgressCallback = lambda done, total: None,
        on_notice: NoticeCallback = lambda line: None,
    ) -> None:
        """Keep the encoder and its shelf in the store; without one, embeddings stay in memory."""
        self.encoder, self.store, self.on_progress, self.on_notice = (
            encoder,
            store or EmbeddingStore(None),
            on_progress,
            on_notice,
        )
        self.encoded_keys: list[Keys] = []
        """The keys of what it has embedded, or of what others have embedded for it."""
        self._parts_per_batch = 1
        """In how many pieces a batch goes: more than one where the device's memory did not hold it."""

    def __call__(self, sentences: Sequence[str]) -> StoredEmbeddings:
        """Return the (n, d) embeddings of these sentences; what is missing is embedded first."""
        keys = text_keys(sentences)
        if len(keys) and self.store.find(keys).min() < 0:
            self.prepare(sentences)
        return self.store.view(keys)

    def count_encoded(self, sentences: Sequence[str]) -> int:
        """How many distinct ones of these sentences this engine has embedded itself."""
        if not self.encoded_keys:
            return 0
        wanted = np.unique(text_keys(sentences)["hi"])
        found = np.concatenate([keys["hi"] for keys in self.encoded_keys])
        # Left to choose, numpy 2.0 takes a way that cannot hold these numbers.
        return int(np.isin(wanted, found, kind="sort").sum())

    def missing_texts(self, sentences: Sequence[str]) -> list[str]:
        """The distinct ones of these sentences that the shelf does not hold."""
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
        """Embed all distinct sentences that the shelf does not hold, or this worker's ``share`` of them.

        Batches are planned over all sentences, held or not, and those ``among`` which they are: a resumed run embeds in
        the very batches of an undisturbed one, to the same bytes. ``tokens`` are of all distinct sentences, sorted, if
        others have tokenised them. Raises EncoderError: what comes cannot be; OutputError: the store is not written.
        """
        wanted = set(sentences)
        texts = sorted(wanted.union(among))
        keys = text_keys(texts)
        held = self.store.find(keys) >= 0
        missing = ~held & np.fromiter(
            (text in wanted for text in texts), dtype=bool, count=len(texts)
        )
        if not missing.any():
            return
        plan = _plan(self.encoder, texts, tokens)
        todo = [rows[~held[rows]] for rows in plan.share(share) if missing[rows].any()]
        total, done = int(sum(plan.costs[rows].sum() for rows in todo)), 0
        self.on_progress(0, total)

        def keep(rows: IndexArray, embeddings: npt.NDArray[Any]) -> None:
            nonlocal done
            asked = [texts[i] for i in rows]
            check_embeddings(
                embeddings, asked, self.encoder.name, d=self.store.width, among=sentences
            )
            # Before the encoder embeds samples: it may fill the same array again and again.
            copied = embeddings.copy()
            if self.store.monitor is not None and not self.encoded_keys:
                # Not sooner: what cannot embed at all is not asked for samples.
                self.store.monitor.record_probes()
            self.store.add(keys[rows], copied)
            if isinstance(self.encoder, ServedEncoder):
                # It may be paid for.
                self.store.flush()
            self.encoded_keys.append(keys[rows])
            done += int(plan.costs[rows].sum())
            self.on_progress(done, total)

        try:
            if not isinstance(self.encoder, ServedEncoder):
                for rows, embeddings in self._embed_batches(plan, todo):
                    keep(rows, embeddings)
                return
            asked = np.concatenate([np.empty(0, np.int64), *todo])
            with catch_exit(f"encoder '{self.encoder.name}'", EncoderError):
                self.encoder.embed_into(
                    [texts[i] for i in asked], lambda rows, found: keep(asked[rows], found)
                )
            if done != total:
                raise EncoderError(
                    f"encoder '{self.encoder.name}' passed {done} embeddings of {total}"
                )
        except EmbeddingsDiffer:
            self.store.set_aside()
            raise
        finally:
            # Also on Ctrl-C and on errors: what is embedded is kept.
            self.store.flush()

    def _embed_batches(
        self, plan: _Plan, batches: Sequence[IndexArray]
    ) -> Iterator[tuple[IndexArray, npt.NDArray[Any]]]:
        # While a device computes one, the next is laid out and sent to it.
        if not plan.budget:
            yield from ((rows, self._embed_batch(plan, rows)) for rows in batches)
            return
        with ThreadPoolExecutor(BATCHES_AHEAD) as pool:
            under_way = deque[tuple[IndexArray, Future[npt.NDArray[Any]]]]()
            for rows in batches:
                under_way.append((rows, pool.submit(self._embed_batch, plan, rows)))
                if len(under_way) == BATCHES_AHEAD:
                    first, found = under_way.popleft()
                    yield first, found.result()
            for rows, found in under_way:
                yield rows, found.result()

    def _embed_batch(self, plan: _Plan, rows: IndexArray) -> npt.NDArray[Any]:
        """The embeddings of a batch; one that the device's memory does not hold goes in halves, and so do all after it."""
        while True:
            pieces = min(self._parts_per_batch, len(rows))
            try:
                with catch_exit(f"encoder '{self.encoder.name}'", EncoderError):
                    found = [
                        as_array(plan.embed(part), self.encoder.name)
                        for part in np.array_split(rows, pieces)
                    ]
                return found[0] if pieces == 1 else np.concatenate(found)
            except RuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                if pieces == len(rows):
                    what = f"does not hold one sentence of {plan.costs[rows].max()} tokens"
                    way = "set a smaller max_length or dtype=bfloat16"
                    raise EncoderError(
                        f"encoder '{self.encoder.name}': the device's memory {what}; {way}"
                    ) from error
            if self._parts_per_batch < 2 * pieces:
                self._parts_per_batch = 2 * pieces
                what = f"encoder '{self.encoder.name}': the device's memory is too small for its batches"
                budget = f"as with a token budget of {plan.budget // self._parts_per_batch}"
                self.on_notice(f"{what}; they go in {self._parts_per_batch} pieces each, {budget}")


class StoredEncoder:
    """An encoder whose embeddings come by an engine: from the store where it holds them."""

    def __init__(self, engine: Engine) -> None:
        """Keep the engine."""
        self.engine, self.encoder, self.name = engine, engine.encoder, engine.encoder.name

    @property
    def fingerprint(self) -> str | None:
        """The encoder's; None where the engine keeps nothing on disk, for then nothing else may be kept."""
        return encoder_identity(self.encoder) if self.engine.store.folder is not None else None

    @property
    def notes(self) -> list[str]:
        """The encoder's."""
        return read_notes(self.encoder)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        return np.asarray(self.engine(sentences))


class _Plan(NamedTuple):
    """How a set of texts will be embedded: cost of each text (n,), batches of rows, and the call."""

    costs: IndexArray
    batches: list[IndexArray]
    embed: Callable[[IndexArray], object]
    budget: int = 0
    """How many tokens a device with a memory of its own takes at a time; 0: there is none."""

    def share(self, share: BatchShare) -> list[IndexArray]:
        """One worker's batches: of those that all plan alike each ``of``-th, joined again as far as its device takes more."""
        mine = self.batches[share.number :: share.n_workers]
        if not self.budget or not mine:
            return mine
        rows = np.concatenate(mine)
        return [rows[batch] for batch in plan_batches(self.costs[rows], budget=self.budget)]


def tokenize_texts(encoder: TokenEncoder, texts: Sequence[str]) -> TokenIds:
    """The token ids of each text; raises EncoderError where the encoder returns something else."""
    tokens = encoder.tokenize(texts)
    if not isinstance(tokens, TokenIds) or len(tokens) != len(texts):
        due = "beside embed_tokens it must return the TokenIds of each sentence (stsbench.encoders.base)"
        raise EncoderError(
            f"encoder '{encoder.name}': tokenize returned a {type(tokens).__name__}; {due}"
        )
    return tokens


def _plan(encoder: Encoder | TokenEncoder, texts: Sequence[str], tokens: TokenIds | None) -> _Plan:
    if not isinstance(encoder, TokenEncoder):
        served = isinstance(encoder, ServedEncoder)
        costs = np.fromiter(
            (1 if served else len(text) for text in texts), dtype=np.int64, count=len(texts)
        )
        order = np.argsort(-costs, kind="stable")
        # Of what is served each text is one worker's, whatever the others have stored by now.
        size = 1 if served else TEXTS_PER_BATCH
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        return _Plan(costs, batches, lambda rows: encoder.encode([texts[i] for i in rows]))
    tokens = tokenize_texts(encoder, texts) if tokens is None else tokens
    budget = (
        measure_token_budget(encoder, tokens, TOKEN_BUDGET)
        if isinstance(encoder, DeviceEncoder)
        else 0
    )
    batches = list(plan_batches(tokens.lengths, budget=TOKEN_BUDGET))
    return _Plan(tokens.lengths, batches, partial(encoder.embed_tokens, tokens), budget)


@dataclass(frozen=True)
class TransformedEmbeddings(Embeddings):
    """A read-only (n, k) view of changed embeddings."""

    view: Embeddings
    transform: RowFunction

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and embedding size."""
        n = self.view.shape[0]
        return n, self.take(np.arange(min(n, 1))).shape[1]

    def take(self, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Return these rows, (len(indices), k)."""
        return self.transform(self.view.take(indices))


def transform_embeddings(embed: Embed, transform: RowFunction) -> Embed:
    """What evaluators are handed where embeddings are changed row by row, when they are read."""
    return lambda sentences: TransformedEmbeddings(embed(sentences), transform)
