"""The engine: each distinct sentence is embedded once, in batches without waste.

All sentences of all tasks come in together; they are deduplicated, tokenised once, sorted by
token count and cut into batches by a token budget. What the store has is not embedded again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.encoders.engine.store import Keys, Shelf, StoredEmbeddings, text_keys
from stsbench.encoders.engine.tokens import TokenIds, plan_batches
from stsbench.encoders.facts import check_sentences, notes_of
from stsbench.encoders.seams import Encoder, FloatArray, IndexArray, ServedEncoder, TokenEncoder
from stsbench.errors import EncoderError, one_line
from stsbench.provenance.identity import identity
from stsbench.registry.names import staying

TOKEN_BUDGET = 2048
CHUNK = 1024
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
        mine = plan.batches[share.number :: share.of]
        todo = [rows[~held[rows]] for rows in mine if missing[rows].any()]
        total, done = int(sum(plan.costs[rows].sum() for rows in todo)), 0
        self.progress(0, total)
        try:
            for rows in todo:
                embeddings = self._embedded(plan, rows)
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

    def _embedded(self, plan: _Plan, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
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
            self._pieces = 2 * pieces
            self.noticed(
                f"encoder '{self.encoder.name}': the device's memory is too small for its batches; they go in "
                f"{self._pieces} pieces each, as with a token budget of {TOKEN_BUDGET // self._pieces}"
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

    costs: npt.NDArray[np.int64]
    batches: list[npt.NDArray[np.int64]]
    embed: Callable[[npt.NDArray[np.int64]], object]


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
        return _Plan(tokens.lengths, batches, partial(encoder.embed_tokens, tokens))
    costs = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    order = np.argsort(-costs, kind="stable")
    batches = [order[start : start + CHUNK] for start in range(0, len(order), CHUNK)]
    return _Plan(costs, batches, lambda rows: encoder.encode([texts[i] for i in rows]))


def as_array(returned: object, name: str) -> npt.NDArray[Any]:
    """What an encoder returned as an array of numbers, whatever their type; raises EncoderError where it is none."""
    what = f"encoder '{name}' returned a {type(returned).__name__} that is not an array (n, d)"
    if isinstance(returned, Coroutine):
        # Nobody will await it, which Python would warn of whenever it is collected.
        returned.close()
    try:
        array = np.asarray(returned)
    except (TypeError, ValueError, RuntimeError) as error:
        raise EncoderError(f"{what}: {one_line(error)[:200]}") from error
    if array.dtype.kind not in "fiub":
        raise EncoderError(f"{what} of numbers")
    return array


def check_embeddings(embeddings: FloatArray, sentences: Sequence[str], name: str, *, d: int | None = None) -> None:
    """Check what an encoder returned, and against the size ``d`` of its earlier embeddings.

    Raises:
        EncoderError: not float32 (n, d), or NaN or infinity, naming the sentence.
    """
    if embeddings.ndim != 2 or len(embeddings) != len(sentences):
        raise EncoderError(
            f"encoder '{name}' returned shape {embeddings.shape} for {len(sentences)} sentences; "
            "it must return one row a sentence, (n, d)"
        )
    if d is not None and embeddings.shape[1] != d:
        raise EncoderError(
            f"encoder '{name}' returned embeddings of size {embeddings.shape[1]} after some of size {d}; "
            "its fingerprint must change when its embeddings do"
        )
    if embeddings.dtype != np.float32:
        raise EncoderError(f"encoder '{name}' returned {embeddings.dtype}; it must return float32")
    finite = np.isfinite(embeddings).all(axis=1)
    if not finite.all():
        text = sentences[int(np.argmin(finite))]
        raise EncoderError(f"encoder '{name}' returned NaN or infinity for the sentence '{text[:60]}'")
