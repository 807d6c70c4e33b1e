"""The engine: each distinct sentence is embedded once, in batches without waste.

All sentences of all tasks come in together; they are deduplicated, tokenised once, sorted by
token count and cut into batches by a token budget, on a GPU by one that suits it. What the store has is
not embedded again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.encoders.engine.budget import device_budget
from stsbench.encoders.engine.returned import as_array, check_embeddings
from stsbench.encoders.engine.store import Keys, Shelf, StoredEmbeddings, text_keys
from stsbench.encoders.engine.tokens import TokenIds, plan_batches
from stsbench.encoders.facts import check_sentences, notes_of
from stsbench.encoders.seams import DeviceEncoder, Encoder, FloatArray, IndexArray, ServedEncoder, TokenEncoder
from stsbench.errors import EncoderError
from stsbench.provenance.identity import identity
from stsbench.registry.names import staying

TOKEN_BUDGET = 2048
CHUNK = 1024
AHEAD = 2
"""Batches under way on a device with a memory of its own."""
Progress = Callable[[int, int], None]
"""Told (done, total) as work goes on, in tokens or sentences."""
Noticed = Callable[[str], None]
"""Told what is no failure and should be known."""


class BatchShare(NamedTuple):
    """Which of the planned batches one of several workers embeds: each ``of``-th, from its ``number`` on, which is below it."""

    number: int
    of: int

    def piece(self, texts: Sequence[str]) -> Sequence[str]:
        """Of texts in their order those that this worker reads for all."""
        return texts[len(texts) * self.number // self.of : len(texts) * (self.number + 1) // self.of]


WHOLE = BatchShare(0, 1)


def embed_all(encoder: TokenEncoder, sentences: Sequence[str]) -> FloatArray:
    """Embed sentences, (n, d), each distinct one once, with no store."""
    check_sentences(sentences)
    engine = Engine(encoder)
    return np.asarray(engine(sentences), dtype=np.float32)


class Engine:
    """Embeds for one encoder; made once a run, called once a task."""

    def __init__(
        self,
        encoder: Encoder,
        shelf: Shelf | None = None,
        *,
        progress: Progress | None = None,
        noticed: Noticed | None = None,
    ) -> None:
        """Keep the encoder and its shelf in the store; without one, embeddings stay in memory."""
        self.encoder = encoder
        self.shelf = shelf or Shelf(None)
        self.progress = progress or (lambda done, total: None)
        self.noticed = noticed or (lambda line: None)
        self.encoded: list[Keys] = []
        """The keys of what it has embedded, or of what others have embedded for it."""
        self._pieces = 1
        """In how many pieces a batch goes: more than one where the device's memory did not hold it."""

    def __call__(self, sentences: Sequence[str]) -> StoredEmbeddings:
        """Return the (n, d) embeddings of these sentences; what is missing is embedded first."""
        keys = text_keys(sentences)
        if len(keys) and self.shelf.find(keys).min() < 0:
            self.prepare(sentences)
        return self.shelf.view(keys)

    def encoded_among(self, sentences: Sequence[str]) -> int:
        """How many distinct ones of these sentences this engine has embedded itself."""
        if not self.encoded:
            return 0
        wanted = np.unique(text_keys(sentences)["hi"])
        found = np.concatenate([keys["hi"] for keys in self.encoded])
        # Left to choose, numpy 2.0 takes a way that cannot hold these numbers.
        return int(np.isin(wanted, found, kind="sort").sum())

    def forget_encoded(self) -> None:
        """Count from now on what it embeds."""
        self.encoded.clear()

    def missing(self, sentences: Sequence[str]) -> list[str]:
        """The distinct ones of these sentences that the shelf does not hold."""
        texts = list(set(sentences))
        if self.shelf.width is None:
            return texts
        return [texts[i] for i in np.flatnonzero(self.shelf.find(text_keys(texts)) < 0)]

    def prepare(
        self,
        sentences: Sequence[str],
        *,
        among: Sequence[str] = (),
        share: BatchShare = WHOLE,
        tokens: TokenIds | None = None,
    ) -> None:
        """Embed all distinct sentences that the shelf does not hold, or this worker's share of them.

        Batches are planned over all sentences, held or not, and those ``among`` which they are.
        Of a batch all that is not held is embedded together and stored together: a resumed run
        embeds in the very batches of an undisturbed one, so their bytes are the same.

        Args:
            sentences: what is wanted.
            among: what else the batches are planned over.
            share: which of the batches are embedded.
            tokens: those of all distinct sentences, sorted, where others have tokenised them.

        Raises:
            EncoderError: the encoder returned the wrong shape, NaN or infinity.
            OutputError: the store cannot be written.
        """
        wanted = set(sentences)
        texts = sorted(wanted.union(among))
        keys = text_keys(texts)
        held = self.shelf.find(keys) >= 0
        missing = ~held & np.fromiter((text in wanted for text in texts), dtype=bool, count=len(texts))
        if not missing.any():
            return
        if isinstance(self.encoder, ServedEncoder):
            # Each text is one worker's, whatever the others have stored by now.
            mine = np.arange(len(texts)) % share.of == share.number
            self._ask_for(self.encoder, [texts[i] for i in np.flatnonzero(missing & mine)])
            return
        plan = _plan(self.encoder, texts, tokens)
        mine = plan.share(share)
        todo = [rows[~held[rows]] for rows in mine if missing[rows].any()]
        total, done = int(sum(plan.costs[rows].sum() for rows in todo)), 0
        self.progress(0, total)
        try:
            for rows, embeddings in self._in_turn(plan, todo):
                check_embeddings(embeddings, [texts[i] for i in rows], self.encoder.name, d=self.shelf.width)
                # A copy: an encoder may fill the same array again and again.
                self.shelf.add(keys[rows], embeddings.copy())
                self.encoded.append(keys[rows])
                done += int(plan.costs[rows].sum())
                self.progress(done, total)
        finally:
            # Also on Ctrl-C and on errors: what is embedded is kept.
            self.shelf.flush()
        if self.shelf.watch is not None and share.number == 0:
            self.shelf.watch.complete()

    def _in_turn(self, plan: _Plan, batches: Sequence[IndexArray]) -> Iterator[tuple[IndexArray, npt.NDArray[Any]]]:
        """The batches with their embeddings; while a device computes one, the next is laid out and sent to it."""
        if not plan.on_device:
            yield from ((rows, self._embedded(plan, rows)) for rows in batches)
            return
        with ThreadPoolExecutor(AHEAD) as pool:
            under_way = deque[tuple[IndexArray, Future[npt.NDArray[Any]]]]()
            for rows in batches:
                under_way.append((rows, pool.submit(self._embedded, plan, rows)))
                if len(under_way) == AHEAD:
                    first, found = under_way.popleft()
                    yield first, found.result()
            for rows, found in under_way:
                yield rows, found.result()

    def _embedded(self, plan: _Plan, rows: IndexArray) -> npt.NDArray[Any]:
        """The embeddings of a batch; one that the device's memory does not hold goes in halves, and so do all after it."""
        while True:
            pieces = min(self._pieces, len(rows))
            try:
                with staying(f"encoder '{self.encoder.name}'", EncoderError):
                    found = [as_array(plan.embed(part), self.encoder.name) for part in np.array_split(rows, pieces)]
                return found[0] if pieces == 1 else np.concatenate(found)
            except RuntimeError as error:
                # By its name: torch is not imported where an encoder does without.
                if type(error).__name__ != "OutOfMemoryError":
                    raise
                if pieces == len(rows):
                    raise EncoderError(
                        f"encoder '{self.encoder.name}': the device's memory does not hold one sentence of "
                        f"{plan.costs[rows].max()} tokens; set a smaller max_length or dtype=bfloat16"
                    ) from error
            if self._pieces < 2 * pieces:
                self._pieces = 2 * pieces
                self.noticed(
                    f"encoder '{self.encoder.name}': the device's memory is too small for its batches; they go in "
                    f"{self._pieces} pieces each, as with a token budget of {plan.budget // self._pieces}"
                )

    def _ask_for(self, encoder: ServedEncoder, texts: Sequence[str]) -> None:
        """Have a server embed texts; what comes is written at once, since it may be paid for."""
        keys, done = text_keys(texts), 0
        self.progress(0, len(texts))

        def keep(rows: IndexArray, embeddings: FloatArray) -> None:
            nonlocal done
            check_embeddings(embeddings, [texts[i] for i in rows], encoder.name, d=self.shelf.width)
            self.shelf.add(keys[rows], embeddings.copy())
            self.shelf.flush()
            self.encoded.append(keys[rows])
            done += len(rows)
            self.progress(done, len(texts))

        with staying(f"encoder '{encoder.name}'", EncoderError):
            encoder.embed_into(texts, keep)
        if done != len(texts):
            raise EncoderError(f"encoder '{encoder.name}' handed on {done} embeddings of {len(texts)}")


class StoredEncoder:
    """An encoder whose embeddings come by an engine: from the store where it holds them."""

    def __init__(self, engine: Engine) -> None:
        """Keep the engine."""
        self.engine, self.encoder, self.name = engine, engine.encoder, engine.encoder.name

    @property
    def fingerprint(self) -> str | None:
        """The encoder's; None where the engine keeps nothing on disk, for then nothing else may be kept."""
        return identity(self.encoder) if self.engine.shelf.folder is not None else None

    @property
    def notes(self) -> list[str]:
        """The encoder's."""
        return notes_of(self.encoder)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        return np.asarray(self.engine(sentences))


class _Plan(NamedTuple):
    """How a set of texts will be embedded: cost of each text (n,), batches of rows, and the call."""

    costs: IndexArray
    batches: list[IndexArray]
    embed: Callable[[IndexArray], object]
    budget: int
    on_device: bool = False
    """Whether a device with a memory of its own embeds, which takes ``budget`` tokens at a time."""

    def share(self, share: BatchShare) -> list[IndexArray]:
        """One worker's batches: of those that all plan alike each ``of``-th, joined again as far as its device takes more."""
        mine = self.batches[share.number :: share.of]
        if not self.on_device or not mine:
            return mine
        rows = np.concatenate(mine)
        return [rows[batch] for batch in plan_batches(self.costs[rows], budget=self.budget)]


def tokens_of(encoder: TokenEncoder, texts: Sequence[str]) -> TokenIds:
    """The token ids of each text; raises EncoderError where the encoder returns something else."""
    tokens = encoder.tokenize(texts)
    if not isinstance(tokens, TokenIds) or len(tokens) != len(texts):
        raise EncoderError(
            f"encoder '{encoder.name}': tokenize returned a {type(tokens).__name__}; beside embed_tokens it must "
            "return the TokenIds of each sentence (stsbench.encoders.engine.tokens)"
        )
    return tokens


def _plan(encoder: Encoder | TokenEncoder, texts: Sequence[str], tokens: TokenIds | None) -> _Plan:
    """Plan by tokens where the encoder lets us, else in chunks of texts of like length."""
    if isinstance(encoder, TokenEncoder):
        tokens = tokens_of(encoder, texts) if tokens is None else tokens
        batches = list(plan_batches(tokens.lengths, budget=TOKEN_BUDGET))
        embed = partial(encoder.embed_tokens, tokens)
        if isinstance(encoder, DeviceEncoder) and (memory := encoder.device_memory()) is not None:
            budget = device_budget(encoder, memory, tokens, TOKEN_BUDGET)
            return _Plan(tokens.lengths, batches, embed, budget, on_device=True)
        return _Plan(tokens.lengths, batches, embed, TOKEN_BUDGET)
    costs = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    order = np.argsort(-costs, kind="stable")
    batches = [order[start : start + CHUNK] for start in range(0, len(order), CHUNK)]
    return _Plan(costs, batches, lambda rows: encoder.encode([texts[i] for i in rows]), TOKEN_BUDGET)
