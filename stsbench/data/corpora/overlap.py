"""Sentences of tasks in training text, also near-duplicates of them.

MinHash (extra ``overlap``) proposes near-duplicates, and the true similarity of each decides.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa

from stsbench.core.cards import Overlap
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError
from stsbench.data.corpora.corpus import TEXT_COLUMNS, Corpus, load_corpus, split_sentences
from stsbench.data.readers.files import TABLE_SUFFIXES
from stsbench.data.readers.table import ColumnKey
from stsbench.data.recognition import choose_roles, find_tables, recognise_sentences
from stsbench.data.splits import LabelledPairSplit, PairSplit, Split
from stsbench.data.task import Task

if TYPE_CHECKING:
    from rensa import RMinHash


SHINGLE_LENGTH = 3
"""The number of letters of a shingle."""
N_HASHES = 120
HASH_SEED = 1
MIN_RECALL = 0.99
"""The share of pairs exactly at the threshold that must be proposed; of more similar ones it is
higher."""
MIN_THRESHOLD = 0.5


def load_searched_text(
    name: str, *, corpora: Path | None, data: Path | None, catalogue: Catalogue
) -> Corpus:
    """Load training text to search: a corpus, or a file or folder of any tables of sentences.

    Args:
        name: The id of a corpus, or a path. A file without the names of columns that training needs
            is read as a user's data are when a task is made of them.
        corpora: The folder of corpora; None for the one of the settings.
        data: The data folder; None if there is none.
        catalogue: The cards.

    Raises:
        StsbenchError: The text is missing or broken, or has no column of sentences.
    """
    path = Path(name)
    suffix = path.suffix.lower()
    try:
        corpus = load_corpus(name, corpora=corpora, data=data, catalogue=catalogue)
    except StsbenchError:
        if name in catalogue.corpora() or not (path.is_dir() or suffix in TABLE_SUFFIXES):
            raise
    else:
        # Lines of text with tabs are the rows of a table.
        if not (suffix == ".txt" and path.is_file() and "\t" in corpus.column("text")[0]):
            return corpus
    split_tables = find_tables(path)
    columns = split_tables.columns()
    target_keys: tuple[ColumnKey, ...] = ()
    target_names: tuple[str, ...] = ()
    try:
        roles = choose_roles(columns, {}, where=name).roles
    except DataError:
        # Text without a score or label.
        sentence_keys = recognise_sentences(columns, {}, where=name).keys
    else:
        sentence_keys, target_keys = roles.sentences, (roles.target,)
        target_names = ("score",) if roles.is_gold else ("label",)
    names = ("text",) if len(sentence_keys) == 1 else ("first", "second")
    cells_by_key = {column.key: column.cells for column in columns}
    table = pa.table(
        {
            our_name: pa.array(cells_by_key[key], pa.large_string())
            for our_name, key in zip(
                (*names, *target_names), (*sentence_keys, *target_keys), strict=True
            )
        }
    )
    return Corpus(name=name, table=table)


class NearIndex:
    """An index of sentences that finds the near-duplicates of others.

    Two sentences are near-duplicates if the shingles of three letters that they share are at least
    ``threshold`` of all that either has (Jaccard). MinHash in bands (Broder 1997; Leskovec,
    Rajaraman and Ullman, section 3.4) proposes pairs, and may miss one in a hundred at the
    threshold; the similarity of each proposed pair is then computed exactly.
    """

    def __init__(self, keys: Sequence[bytes], threshold: float) -> None:
        """Index the sentences.

        Args:
            keys: The sentences, as :func:`text_key` writes them.
            threshold: The lowest similarity of near-duplicates, from 0.5 to 1.

        Raises:
            StsbenchError: The threshold is out of range, or rensa is not installed.
        """
        if not MIN_THRESHOLD <= threshold <= 1:
            raise StsbenchError(
                f"near-duplicates: {threshold:g} is no similarity between {MIN_THRESHOLD:g} and 1"
            )
        try:
            from rensa import RMinHashLSH
        except ImportError as error:
            raise StsbenchError(
                "near-duplicates need rensa; run: pip install 'stsbench[overlap]'"
            ) from error
        self.threshold = threshold
        self.keys = keys
        n_bands = choose_n_bands(threshold)
        self._index = RMinHashLSH(threshold=threshold, num_perm=N_HASHES, num_bands=n_bands)
        self._index.insert_many(_minhashes(keys))

    def find_near(self, keys: Sequence[bytes], *, skip_equal: bool = False) -> dict[bytes, bytes]:
        """Find the indexed sentences that have a near-duplicate among others.

        Args:
            keys: The other sentences, as :func:`text_key` writes them.
            skip_equal: Do not count a sentence as a near-duplicate of itself.

        Returns:
            The first near-duplicate of each indexed sentence that has one.
        """
        near_by_indexed: dict[bytes, bytes] = {}
        candidates_by_key = self._index.query_all(_minhashes(keys))
        for key, candidates in zip(keys, candidates_by_key, strict=True):
            key_shingles = shingles(key) if candidates else set()
            for indexed in (self.keys[position] for position in candidates):
                if indexed in near_by_indexed or (skip_equal and indexed == key):
                    continue
                # Equal hashes only propose a pair: its similarity (Jaccard) is counted here.
                indexed_shingles = shingles(indexed)
                n_shared = len(key_shingles & indexed_shingles)
                if n_shared >= self.threshold * len(key_shingles | indexed_shingles):
                    near_by_indexed[indexed] = key
        return near_by_indexed


def shingles(key: bytes) -> set[str]:
    """Return all runs of three letters of a sentence; a shorter sentence is its only shingle."""
    text = key.decode()
    n_shingles = len(text) - SHINGLE_LENGTH + 1
    return {text[start : start + SHINGLE_LENGTH] for start in range(n_shingles)} or {text}


def choose_n_bands(threshold: float) -> int:
    """Return the smallest number of bands that proposes nearly all pairs with a similarity.

    With n bands of r hashes a pair of similarity s is proposed with probability 1 - (1 - s^r)^n
    (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4). Fewer bands propose
    fewer pairs in vain.

    Args:
        threshold: The lowest similarity of near-duplicates, in (0, 1].
    """
    # The divisors of the number of hashes, in ascending order.
    candidates = [n_bands for n_bands in range(1, N_HASHES + 1) if N_HASHES % n_bands == 0]
    return next(
        n_bands for n_bands in candidates if _proposal_probability(threshold, n_bands) >= MIN_RECALL
    )


def _proposal_probability(similarity: float, n_bands: int) -> float:
    """Return the probability that bands of hashes propose a pair, see :func:`choose_n_bands`.

    Args:
        similarity: The similarity of the pair.
        n_bands: The number of bands, a divisor of N_HASHES.
    """
    hashes_per_band = N_HASHES // n_bands
    return 1 - (1 - similarity**hashes_per_band) ** n_bands


def _minhashes(keys: Sequence[bytes]) -> list[RMinHash]:
    """Return the MinHash signature of each sentence: N_HASHES numbers, by its shingles."""
    from rensa import RMinHash

    # Sorted: a set's order changes from one process to the next.
    token_sets = map(sorted, map(shingles, keys))
    minhashes: list[RMinHash] = RMinHash.from_token_sets(token_sets, N_HASHES, HASH_SEED)
    return minhashes


MatchKind = Literal["exact", "normalised", "near"]
"""How text contains a sentence: exactly, by its letters and digits, or as a near-duplicate."""
PAIRED_COLUMNS = (
    ("first", "second"),
    ("anchor", "positive"),
    ("anchor", "negative"),
    ("anchor", "second_negative"),
)
"""Columns of a corpus whose sentences form pairs."""
TARGET_COLUMNS: dict[type[Split], str] = {PairSplit: "score", LabelledPairSplit: "label"}
"""The column of a corpus that gives away the target of a pair, by the class of the split."""
BLOCK_ROWS = 20_000
"""The number of rows of a corpus that are compared at the same time."""
_OMITTED_BYTES = bytes(code for code in range(128) if not chr(code).isalnum())
"""The ASCII characters that are neither letters nor digits: texts are compared without them."""
PairKeys = frozenset[bytes]
"""The two sentences of a pair, as :func:`text_key` writes them, in either order."""


class TaskOverlap(NamedTuple):
    """The sentences and pairs of one task's scored split that a corpus contains."""

    task: str
    n_sentences: int
    """The number of distinct sentences of the split, apart from case, blanks and punctuation."""
    n_found: int
    """The number of them in the corpus."""
    n_graded: int
    """The number of the split's pairs that the corpus has with a gold score or label."""

    @property
    def overlap(self) -> Overlap:
        """The overlap as results carry it: ``none``, ``text`` (sentences) or ``gold`` (scores)."""
        if self.n_graded:
            return "gold"
        return "text" if self.n_found else "none"


@dataclass(frozen=True, kw_only=True)
class OverlapMatches:
    """The sentences that training text contains, and the pairs of them that it contains."""

    kind_by_text: dict[str, MatchKind]
    """How each sentence is contained; those that are not are absent."""
    pairs_by_target: dict[str, set[PairKeys]]
    """The pairs in one row of the text: all under an empty string, those with a score or label
    under ``score`` and ``label``."""

    def kinds_by_item(self, split: Split) -> list[tuple[MatchKind | None, ...]]:
        """Return how the sentences of each item are contained; None for one that is not."""
        kinds = [[self.kind_by_text.get(text) for text in column] for column in split.sides]
        return list(zip(*kinds, strict=True))

    def is_paired(self, split: Split, target: str = "") -> list[bool]:
        """Return for each item whether it is a pair that one row contains.

        Args:
            split: The split.
            target: ``score`` or ``label`` to require that the row has one; empty for any row.
        """
        pairs = self.pairs_by_target.get(target, set())
        return [
            len(item) > 1 and frozenset(map(text_key, item)) in pairs
            for item in zip(*split.sides, strict=True)
        ]

    def is_graded(self, split: Split) -> list[bool]:
        """Return for each item whether it is a pair that one row contains with its target."""
        return self.is_paired(split, TARGET_COLUMNS.get(type(split), "nothing"))


def find_overlap(corpus: Corpus, tasks: Sequence[Task]) -> list[TaskOverlap]:
    """Count the sentences of each task's scored split that a corpus contains.

    Two texts are the same if their letters and digits are, in lower case: SentEval's tokenised
    files then equal the releases they were made from. Documents are compared sentence by sentence.
    Pairs are compared, in either order, if the corpus has scores, or labels for a task of labelled
    pairs.

    Args:
        corpus: The training text.
        tasks: The tasks; their data are read here.

    Raises:
        DataError: The data of a task cannot be read.
    """
    splits = {task.name: task.load(task.card.score_split) for task in tasks}
    texts = [text for split in splits.values() for text in split.texts()]
    matches = find_overlap_matches([corpus], texts)
    overlaps: list[TaskOverlap] = []
    for name, split in splits.items():
        key_by_text = {text: text_key(text) for text in split.texts()}
        # A text of punctuation alone has an empty key, and cannot be found.
        searched_keys = set(key_by_text.values()) - {b""}
        found_keys = {key for text, key in key_by_text.items() if text in matches.kind_by_text}
        pairs = {frozenset(map(text_key, item)) for item in zip(*split.sides, strict=True)}
        # The column that makes a row of the corpus a graded pair: its score or its label.
        target = TARGET_COLUMNS.get(type(split), "")
        graded_pairs = matches.pairs_by_target.get(target, set())
        overlaps.append(
            TaskOverlap(
                task=name,
                n_sentences=len(searched_keys),
                n_found=len(found_keys),
                n_graded=len(pairs & graded_pairs),
            )
        )
    return overlaps


def find_overlap_matches(
    corpora: Sequence[Corpus],
    texts: Iterable[str],
    *,
    min_similarity: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> OverlapMatches:
    """Find sentences in training text, whose documents are read sentence by sentence.

    Args:
        corpora: The training text, which is read in blocks of rows.
        texts: The sentences to find.
        min_similarity: The lowest similarity of near-duplicates, see :class:`NearIndex`; None to
            find no near-duplicates.
        progress: Called with the number of rows that are done, and of all rows.
    """
    key_by_text: dict[str, bytes] = {}
    for text in texts:
        key = text_key(text)
        # Texts of punctuation alone have an empty key: they would be equal to each other.
        if key:
            key_by_text[text] = key
    distinct_keys = set(key_by_text.values())
    index = None
    if min_similarity is not None:
        index = NearIndex(sorted(distinct_keys), min_similarity)
    exact_texts: set[str] = set()
    # The keys that training text has, and those with a near-duplicate in it.
    same_keys: set[bytes] = set()
    near_keys: set[bytes] = set()
    pairs_by_target: dict[str, set[PairKeys]] = {"": set(), "score": set(), "label": set()}
    n_done = 0
    n_rows = sum(map(len, corpora))
    for block in _iter_blocks(corpora):
        block_key_by_text = {text: text_key(text) for text in _iter_texts(block)}
        block_keys = set(block_key_by_text.values())
        # Texts as they are, and below by their letters and digits alone.
        exact_texts.update(key_by_text.keys() & block_key_by_text.keys())
        same_keys.update(distinct_keys & block_keys)
        if index is not None:
            near_keys.update(index.find_near(sorted(block_keys - {b""})))
        for target, pairs in pairs_by_target.items():
            # Both sentences of a pair are in this block, so its keys are among same_keys already.
            pairs.update(_iter_pairs(block, same_keys, target))
        n_done += len(block)
        progress(n_done, n_rows)
    kind_by_text: dict[str, MatchKind] = {}
    # The more exact kind replaces the less exact one.
    kind_by_text |= {text: "near" for text, key in key_by_text.items() if key in near_keys}
    kind_by_text |= {text: "normalised" for text, key in key_by_text.items() if key in same_keys}
    kind_by_text |= dict.fromkeys(exact_texts, "exact")
    return OverlapMatches(kind_by_text=kind_by_text, pairs_by_target=pairs_by_target)


def text_key(text: str) -> bytes:
    """Return the letters and digits of a text in lower case, as UTF-8; empty if it has none.

    Texts that differ only in case, blanks and punctuation have the same key, and so have forms of
    one character that Unicode counts as compatible (NFKC).
    """
    if text.isascii():
        return text.lower().encode().translate(None, _OMITTED_BYTES)
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold())).encode()


def _iter_blocks(corpora: Sequence[Corpus]) -> Iterator[Corpus]:
    """Yield all rows of some corpora, in blocks of limited length."""
    for corpus in corpora:
        for start in range(0, len(corpus), BLOCK_ROWS):
            yield replace(corpus, table=corpus.table.slice(start, BLOCK_ROWS))


def _iter_texts(corpus: Corpus) -> Iterator[str]:
    """Yield all texts of a corpus, the sentences of documents."""
    for name in corpus.columns:
        if name == "document":
            for document in corpus.column(name):
                # A document may hold a sentence of a task among others.
                yield from split_sentences(document)
        elif name in TEXT_COLUMNS:
            yield from corpus.column(name)


def _iter_pairs(corpus: Corpus, keys: Collection[bytes], target: str) -> Iterator[PairKeys]:
    """Yield the pairs of a corpus of which both sentences have a key among the given ones.

    Args:
        corpus: The corpus.
        keys: The keys of sentences, see :func:`text_key`.
        target: A column that the corpus must have, or it has no pairs; empty for none.
    """
    if target and target not in corpus.columns:
        return
    for first_column, second_column in PAIRED_COLUMNS:
        if not {first_column, second_column} <= set(corpus.columns):
            continue
        rows = zip(corpus.column(first_column), corpus.column(second_column), strict=True)
        for first_text, second_text in rows:
            first_key, second_key = text_key(first_text), text_key(second_text)
            if first_key in keys and second_key in keys:
                yield frozenset((first_key, second_key))
