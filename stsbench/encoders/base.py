"""What an encoder is: the seam between everything that embeds sentences and everything that scores.

An encoder has a name, a fingerprint and :meth:`Encoder.encode`. What else it can do, a protocol says; what else it may say of
itself stands in :class:`Facts`, read and checked here and nowhere else. Below them: the kinds of encoder, a registry of what makes one,
and :class:`KnownEncoder`, an encoder under the name that results give it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Integral
from typing import Annotated, Any, NamedTuple, Protocol, TypeGuard, cast, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core.cards import EncoderCard, Overlap
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError, one_line, printed, shown, visible
from stsbench.core.files import without_folders
from stsbench.core.provenance import PLACES, fitted_on, identity, is_ours
from stsbench.core.registry import Registry
from stsbench.core.secrets import redact, redact_text
from stsbench.encoders.runs import TrainedRun

FloatArray = npt.NDArray[np.float32]
Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
"""Parameters of encoders, checked where cards and users give them."""
IndexArray = npt.NDArray[np.int64]
OfRows = Callable[[FloatArray], FloatArray]
"""From embeddings (n, d) to (n, k), each row by itself."""
KeepRows = Callable[[IndexArray, FloatArray], None]
"""Takes some rows (m,) of what is asked for, and their embeddings (m, d)."""


@dataclass(frozen=True)
class TokenIds:
    """Token ids of n sentences: ``ids`` int32 (total,), ``offsets`` int64 (n + 1,); lists take ten times the memory."""

    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64] | None = None
    """Of each sentence the tokens that are pooled, (n, 2): the first, and the one after the last; None: all."""

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> TokenIds:
        """Join one list of ids a sentence."""
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        ids = np.fromiter((i for one in lists for i in one), dtype=np.int32, count=int(lengths.sum()))
        return cls(ids, np.concatenate([[0], np.cumsum(lengths)]))

    @classmethod
    def join(cls, parts: Sequence[TokenIds]) -> TokenIds:
        """Join parts end to end; all have spans, or none."""
        lengths = np.concatenate([[0], *(part.lengths for part in parts)]).astype(np.int64)
        spans = [part.spans for part in parts if part.spans is not None]
        ids = np.concatenate([np.empty(0, np.int32), *(part.ids for part in parts)])
        return cls(ids, np.cumsum(lengths), np.concatenate(spans) if spans else None)

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens in each sentence, (n,)."""
        return np.diff(self.offsets)

    def padded(
        self, rows: npt.NDArray[np.int64], *, pad: int, left: bool = False
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the ids of some sentences and their attention mask, both int64 (b, t)."""
        lengths = self.lengths[rows]
        width = int(lengths.max())
        columns = np.arange(width)
        start = (width - lengths if left else np.zeros_like(lengths))[:, None]
        mask = (columns >= start) & (columns < start + lengths[:, None])
        source = np.where(mask, self.offsets[rows][:, None] + columns - start, 0)
        return np.where(mask, self.ids[source], pad).astype(np.int64), mask.astype(np.int64)


def plan_batches(lengths: npt.NDArray[np.int64], *, budget: int) -> Iterator[npt.NDArray[np.int64]]:
    """Cut sentences of these lengths (n,) into batches of at most ``budget`` padded tokens, longest first.

    Hardly a token is padding. The same lengths in the same order give the same batches, whatever the store holds.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        width = max(int(lengths[order[start]]), 1)
        stop = start + max(budget // width, 1)
        batch = order[start:stop]
        same = int(np.searchsorted(-lengths[batch], -width, side="right"))
        # A run of equal lengths that fills most of a batch goes alone: no padding, no mask.
        if 0.75 * len(batch) <= same < len(batch):
            batch = batch[:same]
        yield batch
        start += len(batch)


@runtime_checkable
class Encoder(Protocol):
    """Sentences in, embeddings out: all that a user's own encoder has to be."""

    @property
    def name(self) -> str:
        """What results call it; a plain attribute does."""

    @property
    def fingerprint(self) -> str | None:
        """Changes if and only if embeddings can change; None: embeddings are never reused."""

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return one embedding a sentence, shape (n, d), float32, in the order given."""


@runtime_checkable
class TokenEncoder(Encoder, Protocol):
    """An encoder that lets the engine plan its batches."""

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence."""

    def embed_tokens(self, tokens: TokenIds, rows: IndexArray) -> FloatArray:
        """Return the embeddings (b, d) of some of the tokenised sentences as one batch."""


class DeviceMemory(NamedTuple):
    """The bytes that a kind of device, as ``NVIDIA H100``, has left for batches, and about how many a token takes."""

    device: str
    free: int
    per_token: int


@runtime_checkable
class DeviceEncoder(TokenEncoder, Protocol):
    """An encoder that may run on a GPU, whose batches the engine then makes as large as is fastest, two under way at a time."""

    def device_memory(self) -> DeviceMemory | None:
        """Return what its device has left; None on a CPU."""


class EmbeddingsDiffer(EncoderError):
    """A server embeds a text in two ways: nothing that it gave is believed, stored or not."""


@runtime_checkable
class ServedEncoder(Encoder, Protocol):
    """An encoder whose embeddings come from a server, some at a time, and may cost money: stored as they come.

    Nothing is computed here, so no sample sentences tell whether another machine or version still embeds alike.
    """

    def embed_into(self, sentences: Sequence[str], keep: KeepRows) -> None:
        """Pass the embeddings of some rows to ``keep`` as they come, each row once.

        Whatever it raises, what had come is kept, unless it is :class:`EmbeddingsDiffer`.
        """

    def count_tokens(self, sentences: Sequence[str]) -> int:
        """Return how many tokens these sentences have for the server, or nearly."""


@runtime_checkable
class WordEncoder(Encoder, Protocol):
    """An encoder that knows some words and no others; results count the sentences of which it knows none."""

    def unknown(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return those of the sentences that hold no word it knows."""


@runtime_checkable
class TextFitted(Protocol):
    """An encoder that is fitted on texts before it embeds: whitening, flow, token removal.

    Which texts, :attr:`Facts.fit` says (:mod:`stsbench.bench.score`); where it does not, all
    sentences of each task that it is scored on. Its fingerprint is that of everything else.
    """

    def fit_texts(self, sentences: Sequence[str]) -> Encoder:
        """Return the encoder fitted on these sentences, each counted as often as it comes; those of a pair come one after the other."""


@runtime_checkable
class PostProcessor(TextFitted, Protocol):
    """A text-fitted encoder that changes another's embeddings and needs nothing else of the text."""

    @property
    def base(self) -> Encoder:
        """The encoder whose embeddings are changed."""

    def over(self, base: Encoder) -> PostProcessor:
        """Return the same for another base: the bench gives one that takes embeddings from the store."""


class Embeddings(Protocol):
    """A read-only (n, d) view of embeddings that may live on disk, one row a sentence."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of sentences and embedding size."""

    def take(self, indices: IndexArray) -> FloatArray:
        """Return the rows of these indices, shape (len(indices), d)."""

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        """Return all rows as one array."""
        rows = self.take(np.arange(self.shape[0]))
        return rows if dtype is None else rows.astype(dtype, copy=False)


ROWS = 4096
"""So many embeddings are in memory at once where they are read in blocks."""
EmbeddingRows = npt.NDArray[np.floating] | Embeddings
"""Embeddings (n, d): an array, or a view of the store."""


def blocks(x: EmbeddingRows, start: int = 0, stop: int | None = None) -> Iterator[npt.NDArray[np.floating]]:
    """The rows of a matrix (n, d) from ``start`` to ``stop``, so many at a time that 100,000 are never in memory together."""
    stop = x.shape[0] if stop is None else stop
    for at in range(start, stop, ROWS):
        end = min(at + ROWS, stop)
        yield x[at:end] if isinstance(x, np.ndarray) else x.take(np.arange(at, end))


Embed = Callable[[Sequence[str]], Embeddings]
"""Sentences to their embeddings; what evaluators are handed instead of an encoder."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What an encoder may tell of itself, each by an attribute of this name, or None; results carry it, no more."""

    revision: str | None = None
    """The commit its checkpoint was resolved to, where that came from the Hub."""
    revision_asked: str | None = None
    """What was asked for in its place, as ``main``."""
    train_seed: int | None = None
    """The seed it was trained or fitted with: results of several seeds are averaged as one encoder."""
    dtype: str | None = None
    """The type of the numbers it computes in, as ``bfloat16``."""
    device: str | None = None
    """The device it was asked to run on, as ``auto`` or ``cuda:1``."""
    device_used: str | None = None
    """The device that its model is on; None as long as it is not loaded."""
    fit: str | None = None
    """Which texts it is fitted on, of one that is :class:`TextFitted`; a method of this name, as scikit-learn's, tells nothing."""


INHERITED = ("revision", "revision_asked", "dtype", "device", "device_used")
"""What an encoder that is made over another need not tell: its base does."""
LARGEST_SEED = (1 << 63) - 1
"""The largest that every reader of JSON can read."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def is_name(given: object) -> bool:
    """Whether results can call an encoder so: text of one line, in it a sign that a folder's name can be made of."""
    return _is_text(given) and bool(given.strip(". ")) and visible(given) == given and not {*"\t\n"} & {*given}


def _is_text(given: Any) -> TypeGuard[str]:  # noqa: ANN401 - as all below: whatever a user's class holds
    return isinstance(given, str) and bool(given) and not _SURROGATE.search(given)


def _are_texts(given: Any) -> bool:  # noqa: ANN401
    # A text may be empty: sentences are.
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    return listed and all(one == "" or _is_text(one) for one in given)


SAID: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": (is_name, "a line of text without a key, for results go into a folder of that name"),
    "fingerprint": (lambda given: given is None or _is_text(given), "text, or None"),
    "encode": (callable, "a method"),
    **dict.fromkeys((field.name for field in fields(Facts)), (_is_text, "text")),
    "train_seed": (
        lambda seed: isinstance(seed, Integral) and not isinstance(seed, bool) and 0 <= int(seed) <= LARGEST_SEED,
        f"a whole number from 0 to {LARGEST_SEED}",
    ),
    "base": (lambda given: is_encoder(given), "the encoder whose embeddings it changes"),
    "notes": (lambda given: _are_texts(given) and "" not in given, "a list of texts"),
    "unknown(sentences)": (_are_texts, "a list of texts"),
}
"""What an encoder may tell of itself, what that may be, and what it must be in words."""
NEEDED = ("name", "fingerprint", "encode")


def _checked(encoder: object, name: str, given: Any, where: str = "") -> Any:  # noqa: ANN401
    accepts, wanted = SAID[name]
    if not accepts(given):
        what = "a method; make it a property" if inspect.ismethod(given) else shown(given)
        said = f"'{name}' of {type(encoder).__name__} must be {wanted}; it is {what}"
        raise EncoderError(f"{where}: {said}" if where else said)
    return given


def facts_of(encoder: object) -> Facts:
    """What it tells of itself now: its device once it has embedded. Raises EncoderError: it tells what cannot be."""
    said: dict[str, Any] = {}
    for name in (field.name for field in fields(Facts)):
        given = getattr(encoder, name, None)
        if type(given).__module__ == "torch" and type(given).__name__ in ("dtype", "device"):
            given = str(given).removeprefix("torch.")
        if given is not None and not (name == "fit" and callable(given)):
            said[name] = _checked(encoder, name, given)
    if "train_seed" in said:
        said["train_seed"] = int(said["train_seed"])
    base = base_of(encoder)
    under = facts_of(base) if base is not None and base is not encoder else Facts()
    return Facts(**{name: getattr(under, name) for name in INHERITED} | said)


def notes_of(encoder: object) -> list[str]:
    """What a reader of its scores should know; asking may fit it. Raises EncoderError: its ``notes`` are no texts."""
    notes = getattr(encoder, "notes", None)
    return [] if notes is None else list(map(redact_text, _checked(encoder, "notes", notes)))


def base_of(encoder: object) -> Encoder | None:
    """The encoder that another is made over, by the attribute ``base``; None where that is no encoder, or there is none."""
    base = getattr(encoder, "base", None)
    return cast(Encoder, base) if is_encoder(base) else None


def layers_of(encoder: Encoder) -> list[Encoder]:
    """Return an encoder, then the encoder that it is made over, and so on down to the one that reads sentences."""
    layers = list[Encoder]()
    layer: Encoder | None = encoder
    while layer is not None and all(layer is not other for other in layers):
        layers.append(layer)
        layer = base_of(layer)
    return layers


def is_served(encoder: Encoder) -> bool:
    """Return whether a server embeds for an encoder, or for one that it is made over."""
    return any(isinstance(layer, ServedEncoder) for layer in layers_of(encoder))


def without_known_words(encoder: WordEncoder, sentences: Sequence[str]) -> list[str]:
    """Those of the sentences in which an encoder of words knows none; raises EncoderError where it returns no texts."""
    return list(_checked(encoder, "unknown(sentences)", encoder.unknown(sentences)))


def is_encoder(made: object) -> bool:
    """Whether this has all that an encoder needs; its class alone is none."""
    return not isinstance(made, type) and all(hasattr(made, needed) for needed in NEEDED)


def can_encode(made: object) -> bool:
    """Whether this, an object or a class, has an ``encode`` to call."""
    return callable(getattr(made, "encode", None))


def check_encoder(made: object, where: str) -> Encoder:
    """Return what a user's code made; raises EncoderError, which begins with ``where``: it is not what it must be."""
    if isinstance(made, type):
        raise EncoderError(f"{where}: {made.__name__} is a class, not an encoder; give {made.__name__}(…)")
    need = "an encoder needs name, fingerprint (or None) and encode(sentences)"
    for needed in NEEDED:
        try:
            _checked(made, needed, getattr(made, needed), where)
        except AttributeError as error:
            # A property of this name may lack something else.
            why = "" if str(error).endswith(f"'{needed}'") else f" ({one_line(error)})"
            lacks = f"{where}: {type(made).__name__} has no '{needed}'{why}"
            raise EncoderError(f"{lacks}; {need}") from error
    encoder = cast(Encoder, made)
    check_call(encoder.encode, f"{where}: encode of {type(encoder).__name__}")
    if isinstance(encoder, PostProcessor):
        _checked(encoder, "base", encoder.base, where)
    facts_of(encoder)
    if not is_ours(type(encoder)):
        # One of ours may have to fit before it can say.
        notes_of(encoder)
    return encoder


def check_call(function: Callable[..., object], what: str) -> None:
    """Refuse what cannot be called with the sentences and no more; raises EncoderError."""
    try:
        inspect.signature(function).bind([])
    except ValueError:
        # Nothing is known of it, as of what is written in C.
        return
    except TypeError as error:
        raise EncoderError(f"{what} must take the sentences alone: {one_line(error)}") from error


def check_sentences(sentences: object) -> None:
    """Refuse, by an EncoderError, what is no text, and one text in place of a list, which would go letter by letter."""
    if isinstance(sentences, str):
        raise EncoderError(f"encode takes a list of sentences; it was given one text of {len(sentences)} characters")
    for place, one in enumerate(sentences if isinstance(sentences, Iterable) else ()):
        if not isinstance(one, str):
            raise EncoderError(f"encode takes sentences; number {place} is {shown(one)}")


def valid_text(sentence: str) -> str:
    """Half a surrogate pair, as of an emoji cut in two, is no text to a tokenizer."""
    return sentence if sentence.isascii() else sentence.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_maker(made: Any) -> bool:  # noqa: ANN401 - what a user's name stands for
    """Whether this is an encoder, a class of encoders, or a function that may make one."""
    made = made if isinstance(made, type) or not callable(made) else inspect.unwrap(made)
    if not inspect.isfunction(made):
        return can_encode(made)
    if made.__module__.partition(".")[0] in sys.stdlib_module_names:
        return False
    returned = inspect.get_annotations(made).get("return", None)
    return not isinstance(returned, type) or can_encode(returned)


ENCODERS = Registry(
    "encoder kind",
    {
        "transformer": "stsbench.encoders.transformer.encoder:TransformerEncoder",
        "sentence_transformer": "stsbench.encoders.transformer.encoder:SentenceTransformerEncoder",
        "words": "stsbench.encoders.words.words:WordsEncoder",
        "whitening": "stsbench.encoders.whitening:whitened_encoder",
        "calibration": "stsbench.encoders.whitening:calibrated_encoder",
        "token_removal": "stsbench.encoders.whitening:token_removal_encoder",
        "flow": "stsbench.encoders.flow:flow_encoder",
        "model2vec": "stsbench.encoders.words.model2vec:Model2VecEncoder",
        "infersent": "stsbench.encoders.words.recurrent:InferSentEncoder",
        "skip_thoughts": "stsbench.encoders.words.recurrent:GruHalvesEncoder",
        "quick_thoughts": "stsbench.encoders.words.recurrent:QuickThoughtsEncoder",
        "fastsent": "stsbench.encoders.words.words:FastSentEncoder",
        "use": "stsbench.encoders.served.use:UniversalSentenceEncoder",
        "openai": "stsbench.encoders.served.openai:OpenAIEncoder",
    },
    group="encoders",
    accepts=is_maker,
    wanted="a class with encode, a function that makes an encoder, or an encoder",
)
FITTED = frozenset({"whitening", "calibration", "token_removal", "flow"})
"""The kinds that are made over another encoder and fitted on texts."""
SERVED = frozenset({"openai"})
"""The kinds whose weights are on a server."""
FROM_CHECKPOINT = frozenset(ENCODERS.table) - FITTED - SERVED - {"words"}
"""The kinds that need a checkpoint: a card may leave it to the user where none can be fetched."""


def cards_of(model: str, catalogue: Catalogue) -> list[str]:
    """The encoder cards whose checkpoint is this model of the Hub."""
    found = []
    for name in catalogue.paths("baselines"):
        card = catalogue.encoder(name)
        # A server's name for a model says nothing of its weights.
        whole = card.kind not in SERVED and not card.params.get("subfolder")
        if whole and str(card.params.get("model", "")).casefold() == model.casefold():
            found.append(name)
    return found


@dataclass(frozen=True, kw_only=True)
class KnownEncoder:
    """An encoder under the name results give it, with its card and the card's hash where it has one."""

    name: str
    encoder: Encoder
    card: EncoderCard | None = None
    card_digest: str | None = None
    run: TrainedRun | None = None
    claims: TrainedRun | None = None
    """The record of training that lies beside a checkpoint given by its place: believed where it speaks against it."""
    fitted_on: str | None = None
    """The hash of the texts that it is fitted on, for an encoder that is."""
    saw_task: bool = False
    """Whether sentences that are scored are among these texts."""
    names: Sequence[str] = ()
    """Of what lies in a folder: what it may be called, shorter names first."""
    folder: str | None = None
    """Of what lies in a folder: the hash of the way to it from the results folder. Retrained there, it keeps its name."""
    assumed: Sequence[str] = ()
    """What its own files do not say and was taken for granted: notes for its results."""
    notice: str = ""
    """A line for whoever named it: that a card was found for it."""

    def overlap_with(self, task: str) -> Overlap:
        """Whether its training text overlaps a task's test sentences; what it was fitted on is training text."""
        stated: Overlap = self.card.overlap if self.card else "unknown"
        if self.run is not None:
            stated = self.run.overlap_with(task)
        elif self.claims is not None and (claimed := self.claims.overlap_with(task)) in ("text", "gold"):
            stated = claimed
        return "text" if self.saw_task and stated != "gold" else stated

    @property
    def fingerprint(self) -> str | None:
        """What identifies its embeddings, with the texts it is fitted on."""
        own = identity(self.encoder)
        return own if own is None or self.fitted_on is None else fitted_on(own, self.fitted_on)

    @property
    def train_seed(self) -> int | None:
        """The seed it was trained or fitted with, None where nothing was drawn."""
        return self.run.seed if self.run is not None else facts_of(self.encoder).train_seed

    def notes(self) -> list[str]:
        """What a reader of its scores must know: which commit an open revision was, and how to keep it."""
        facts = facts_of(self.encoder)
        found, asked = facts.revision, facts.revision_asked
        if found is None or asked in (None, found):
            return []
        keep = f"--set revision={found}"
        if self.card is not None:
            given = f'revision = "{found}"'
            keep = f"{f'base_params = {{{given}}}' if self.card.kind in FITTED else given} in the card"
        return [f"the checkpoint of {self.name} is of revision '{asked}', today commit {found[:12]}; {keep} keeps it"]


def variant_name(name: str, extra: Mapping[str, Any], *, places: Sequence[str] = ()) -> str:
    """The name of an encoder with parameters replaced, without its device, ``places``, the folders of files, and secrets."""
    said = sorted((key, value) for key, value in extra.items() if key not in (*PLACES, *places))
    return "+".join([name, *(f"{key}={printed(redact(without_folders(value), key))}" for key, value in said)])


def keep_known(known: KnownEncoder) -> Encoder:
    """Return the encoder, and keep with it what is known of it: its results say so, as those of its name do."""
    with suppress(AttributeError, TypeError):
        # What takes no attributes is known by its own name alone.
        object.__setattr__(known.encoder, _KNOWN, (known, known.encoder.name))
    return known.encoder


_KNOWN = "_stsbench_known"


def known_as(encoder: Encoder, catalogue: Catalogue) -> KnownEncoder:
    """What is known of an encoder that a program hands over: what it was loaded with, unless its name was changed.

    One that the program made itself is called by its class where a card has its name and the class is not ours.
    """
    # Not by getattr: a wrapper may answer for what is inside it, and a copy holds what its original does.
    kept: tuple[KnownEncoder, str] | None = getattr(encoder, "__dict__", {}).get(_KNOWN)
    if kept is not None and kept[0].encoder is encoder and kept[1] == encoder.name:
        return kept[0]
    kind = type(encoder)
    theirs = not kind.__module__.startswith("stsbench.")
    name = f"{kind.__module__}:{kind.__qualname__}" if theirs and catalogue.is_taken(encoder.name) else encoder.name
    return KnownEncoder(name=name, encoder=encoder)
