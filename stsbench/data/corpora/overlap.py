"""Near-duplicates of sentences: candidates by MinHash (extra ``overlap``), each then held to its true similarity."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from stsbench.core.cards import Overlap
from stsbench.core.errors import StsbenchError
from stsbench.data.corpora.corpus import TEXT_COLUMNS, Corpus, split_sentences
from stsbench.data.splits import LabelledPairSplit, PairSplit, Split
from stsbench.data.task import Task

if TYPE_CHECKING:
    from rensa import RMinHash


LENGTH = 3
"""Letters of a shingle."""
HASHES, SEED = 120, 1
FOUND = 0.99
"""The share of pairs at the threshold itself that bands are to find; of more alike ones they find more."""
LOWEST = 0.5


class NearIndex:
    """Sentences, as :func:`text_key` writes them, and what is nearly one of them.

    Two are nearly the same where the shingles of three letters that they share are at least ``threshold`` of all that
    either has (Jaccard). MinHash in bands (Broder 1997; Leskovec, Rajaraman and Ullman, section 3.4) proposes pairs, and may
    miss one in a hundred at the threshold; of a pair that it proposes the similarity is counted out.
    """

    def __init__(self, keys: Sequence[bytes], threshold: float) -> None:
        """Index the sentences; raises StsbenchError where the threshold is none, or rensa is not installed."""
        if not LOWEST <= threshold <= 1:
            raise StsbenchError(
                f"near-duplicates: {threshold:g} is no similarity between {LOWEST:g} and 1"
            )
        try:
            from rensa import RMinHashLSH
        except ImportError as error:
            raise StsbenchError(
                "near-duplicates need rensa; run: pip install 'stsbench[overlap]'"
            ) from error
        self.threshold, self.keys = threshold, keys
        self._lsh = RMinHashLSH(threshold=threshold, num_perm=HASHES, num_bands=bands(threshold))
        self._lsh.insert_many(_hashed(keys))

    def alike(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The indexed sentences that any of these is nearly, each with the first such one."""
        found: dict[bytes, bytes] = {}
        for key, candidates in zip(keys, self._lsh.query_all(_hashed(keys)), strict=True):
            own = shingles(key) if candidates else set()
            for ours in (self.keys[at] for at in candidates):
                if ours not in found:
                    theirs = shingles(ours)
                    if len(own & theirs) >= self.threshold * len(own | theirs):
                        found[ours] = key
        return found


def shingles(key: bytes) -> set[str]:
    """All runs of three letters of a sentence; what is shorter is one."""
    text = key.decode()
    return {text[at : at + LENGTH] for at in range(len(text) - LENGTH + 1)} or {text}


def bands(threshold: float) -> int:
    """The fewest bands, and so the fewest candidates, that find nearly all pairs which are as alike as this."""
    sizes = (HASHES // rows for rows in range(HASHES, 0, -1) if HASHES % rows == 0)
    return next(n for n in sizes if 1 - (1 - threshold ** (HASHES // n)) ** n >= FOUND)


def _hashed(keys: Sequence[bytes]) -> list[RMinHash]:
    from rensa import RMinHash

    # Sorted: a set's order changes from one process to the next.
    found: list[RMinHash] = RMinHash.from_token_sets(map(sorted, map(shingles, keys)), HASHES, SEED)
    return found


How = Literal["exact", "normalised", "near"]
"""How a sentence is held: sign by sign, by its letters and digits, or nearly."""
PAIRED = (
    ("first", "second"),
    ("anchor", "positive"),
    ("anchor", "negative"),
    ("anchor", "second_negative"),
)
"""Columns of a corpus whose sentences stand side by side."""
GRADED: dict[type[Split], str] = {PairSplit: "score", LabelledPairSplit: "label"}
"""What a corpus must hold beside a pair to give its answer away, by the kind of split."""
BLOCK = 20_000
"""So many sentences of a corpus are held at once."""
_DROPPED = bytes(code for code in range(128) if not chr(code).isalnum())
Pair = frozenset[bytes]


class TaskOverlap(NamedTuple):
    """What a corpus holds of one task's test split."""

    task: str
    sentences: int
    """Distinct sentences of the split, where case, blanks and punctuation make no difference."""
    found: int
    """How many of them are in the training text."""
    scored: int
    """How many of its pairs are in the training text with a gold score or label."""

    @property
    def overlap(self) -> Overlap:
        """As results carry it: ``none``, ``text`` (sentences seen) or ``gold`` (scores seen)."""
        if self.scored:
            return "gold"
        return "text" if self.found else "none"


@dataclass(frozen=True, kw_only=True)
class OverlapMatches:
    """What training text holds of some sentences: how it holds each, and which it has side by side.

    ``pairs`` are those of the same row; under ``score`` and ``label`` those that have one.
    """

    how: dict[str, How]
    pairs: dict[str, set[Pair]]

    def items(self, split: Split) -> list[tuple[How | None, ...]]:
        """How each sentence of each item is held, item by item."""
        return list(
            zip(*([self.how.get(text) for text in side] for side in split.sides), strict=True)
        )

    def paired(self, split: Split, of: str = "") -> list[bool]:
        """Which items are pairs that stand side by side, or that have a ``score`` or ``label`` there."""
        pairs = self.pairs.get(of, set())
        return [
            len(item) > 1 and frozenset(map(text_key, item)) in pairs
            for item in zip(*split.sides, strict=True)
        ]

    def graded(self, split: Split) -> list[bool]:
        """Which items are pairs of which the text has what the task asks for."""
        return self.paired(split, GRADED.get(type(split), "nothing"))


def find_overlap(corpus: Corpus, tasks: Sequence[Task]) -> list[TaskOverlap]:
    """Count the test sentences of each task that are in a corpus.

    Two texts are the same if their letters and digits are, in lower case: SentEval's tokenised files and the releases
    they were made of agree. Documents are compared sentence by sentence. Where the corpus has scores, or labels for a
    task of labelled pairs, pairs are compared too, in either order. Raises DataError: a task's data cannot be had.
    """
    splits = {task.name: task.load(task.card.score_split) for task in tasks}
    held, found = (
        find_overlap_matches(
            [corpus], [text for split in splits.values() for text in split.texts()]
        ),
        [],
    )
    for name, split in splits.items():
        keys = {text: text_key(text) for text in split.texts()}
        seen = {key for text, key in keys.items() if text in held.how}
        pairs = {frozenset(map(text_key, item)) for item in zip(*split.sides, strict=True)}
        scored = pairs & held.pairs.get(GRADED.get(type(split), ""), set())
        found.append(TaskOverlap(name, len({*keys.values()} - {b""}), len(seen), len(scored)))
    return found


def find_overlap_matches(
    corpora: Sequence[Corpus],
    texts: Iterable[str],
    *,
    near: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> OverlapMatches:
    """Find sentences in training text, which is read in blocks, its documents sentence by sentence.

    ``near`` is the least similarity of near-duplicates, see :class:`NearIndex`; without it none are looked for.
    ``progress`` is called with rows done and rows in all.
    """
    keys = {text: key for text in texts if (key := text_key(text))}
    wanted, exact, same, alike = set(keys.values()), set[str](), set[bytes](), set[bytes]()
    index = NearIndex(sorted(wanted), near) if near is not None else None
    done, total = 0, sum(map(len, corpora))
    pairs: dict[str, set[Pair]] = {"": set(), "score": set(), "label": set()}
    blocks = (
        replace(c, table=c.table.slice(start, BLOCK))
        for c in corpora
        for start in range(0, len(c), BLOCK)
    )
    for rows in blocks:
        block = dict(zip(found := list(_texts(rows)), map(text_key, found), strict=True))
        exact.update(keys.keys() & block.keys())
        same.update(wanted.intersection(block.values()))
        if index is not None:
            alike.update(index.alike(sorted({*block.values()} - {b""})))
        for of in pairs:
            pairs[of].update(_pairs(rows, same, of))
        progress(done := done + len(rows), total)
    how: dict[str, How] = {text: "near" for text, key in keys.items() if key in alike}
    how |= {text: "normalised" for text, key in keys.items() if key in same}
    return OverlapMatches(how=how | dict.fromkeys(exact, "exact"), pairs=pairs)


def text_key(text: str) -> bytes:
    """The letters and digits of a text in lower case: equal for texts that are the same but for their writing."""
    if text.isascii():
        return text.lower().encode().translate(None, _DROPPED)
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold())).encode()


def _texts(corpus: Corpus) -> Iterator[str]:
    for name in corpus.columns:
        if name == "document":
            for document in corpus.column(name):
                yield from split_sentences(document)
        elif name in TEXT_COLUMNS:
            yield from corpus.column(name)


def _pairs(corpus: Corpus, known: Collection[bytes], of: str) -> Iterator[Pair]:
    """The pairs of known sentences in a corpus; of those that have it, where a column is named."""
    if of and of not in corpus.columns:
        return
    for first, second in PAIRED:
        if {first, second} <= set(corpus.columns):
            for pair in zip(corpus.column(first), corpus.column(second), strict=True):
                one, other = map(text_key, pair)
                if one in known and other in known:
                    yield frozenset((one, other))
