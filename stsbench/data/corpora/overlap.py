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
from stsbench.data.corpora.corpus import TEXT_COLUMNS, Corpus, load_corpus
from stsbench.data.readers.files import TABLE_SUFFIXES
from stsbench.data.readers.table import ColumnKey
from stsbench.data.readers.text import split_sentences
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
    """Load training text that is searched for sentences of tasks.

    It is a corpus, a file with the columns of one, or any tables whose columns of sentences, and of
    scores or labels if any, can be recognised.

    Args:
        name: The id of a corpus, or the path of a file or of a folder of tables.
        corpora: The folder of corpora; None for the one in ``STSBENCH_CORPORA``.
        data: The data folder; None if there is none.
        catalogue: The cards of corpora and tasks.

    Raises:
        StsbenchError: The text is missing or broken, or has no column of sentences.
    """
    path = Path(name)
    suffix = path.suffix.lower()
    try:
        corpus = load_corpus(name, corpora=corpora, data=data, catalogue=catalogue)
    except StsbenchError:
        may_be_tables = path.is_dir() or suffix in TABLE_SUFFIXES
        if name in catalogue.corpora() or not may_be_tables:
            raise
    else:
        # Lines of text with tabs are the rows of a table.
        is_table = suffix == ".txt" and path.is_file() and "\t" in corpus.column("text")[0]
        if not is_table:
            return corpus
    columns = find_tables(path).columns()
    # A key is the name or the position of a column. The target column has scores or labels.
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
    sentence_names = ("text",) if len(sentence_keys) == 1 else ("first", "second")
    our_names = (*sentence_names, *target_names)
    keys = (*sentence_keys, *target_keys)
    # Scores stay text: only the name of their column is needed.
    cells_by_key = {column.key: column.cells for column in columns}
    table = pa.table(
        {
            our_name: pa.array(cells_by_key[key], pa.large_string())
            for our_name, key in zip(our_names, keys, strict=True)
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
        """Index sentences, so that those similar to another one are found without comparing all.

        The similarity of two sentences is Jaccard's: the number of runs of three letters (shingles)
        that both have over that of those that either has.

        Args:
            keys: The text of each sentence as it is compared, in UTF-8: for training text its
                letters and digits (:func:`letters_and_digits`), for the items of a task their
                texts in lower case with single blanks.
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
        # MinHash: sentences with equal hashes in a band are proposed as similar. The index knows
        # each sentence by its position in keys.
        n_bands = choose_n_bands(threshold)
        self._index = RMinHashLSH(threshold=threshold, num_perm=N_HASHES, num_bands=n_bands)
        self._index.insert_many(_minhashes(keys))

    def find_near(self, keys: Sequence[bytes], *, skip_equal: bool = False) -> dict[bytes, bytes]:
        """Find the indexed sentences that have a near-duplicate among others.

        The index, MinHash, proposes pairs of sentences; ``self.threshold`` is the lowest similarity
        (Jaccard) at which a pair is one of near-duplicates.

        Args:
            keys: The letters and digits of each of the other sentences.
            skip_equal: Do not count a sentence as a near-duplicate of itself.

        Returns:
            Each indexed sentence with a near-duplicate -> the first such one of the others, both as
            their letters and digits.
        """
        near_by_indexed: dict[bytes, bytes] = {}
        # For each other sentence, the positions in self.keys of the indexed ones that are proposed.
        positions_by_key = self._index.query_all(_minhashes(keys))
        for key, positions in zip(keys, positions_by_key, strict=True):
            key_shingles = shingles(key) if positions else set()
            for position in positions:
                indexed_key = self.keys[position]
                if indexed_key in near_by_indexed or (skip_equal and indexed_key == key):
                    continue
                # Equal hashes only propose a pair: its similarity is computed here, from the sets
                # of runs of three letters.
                indexed_shingles = shingles(indexed_key)
                n_shared = len(key_shingles & indexed_shingles)
                if n_shared >= self.threshold * len(key_shingles | indexed_shingles):
                    near_by_indexed[indexed_key] = key
        return near_by_indexed


def shingles(key: bytes) -> set[str]:
    """Return all runs of three letters of a sentence; a shorter sentence is its only shingle."""
    text = key.decode()
    n_shingles = len(text) - SHINGLE_LENGTH + 1
    return {text[start : start + SHINGLE_LENGTH] for start in range(n_shingles)} or {text}


def choose_n_bands(threshold: float) -> int:
    """Return into how many bands MinHash divides the hashes of a sentence.

    A pair of sentences is proposed as near-duplicates if all hashes of one band are equal. With n
    bands of r hashes a pair of similarity s is proposed with probability 1 - (1 - s^r)^n (Leskovec,
    Rajaraman and Ullman, Mining of Massive Datasets, section 3.4). It is the smallest number n that
    proposes a pair at the threshold with a probability of ``MIN_RECALL``, 0.99: fewer bands propose
    fewer pairs in vain.

    Args:
        threshold: The lowest similarity of near-duplicates, in (0, 1].
    """
    # Of the N_HASHES hashes all bands have the same number.
    divisors = [n_bands for n_bands in range(1, N_HASHES + 1) if N_HASHES % n_bands == 0]
    return next(
        n_bands
        for n_bands in divisors
        if 1 - (1 - threshold ** (N_HASHES // n_bands)) ** n_bands >= MIN_RECALL
    )


def _minhashes(keys: Sequence[bytes]) -> list[RMinHash]:
    """Return the MinHash signature of each sentence: ``N_HASHES`` hashes of its shingles.

    Shingles are its runs of three letters; a shorter sentence is its only shingle. The more
    shingles two sentences share, the more of their hashes are equal.

    Args:
        keys: The letters and digits of each sentence.
    """
    from rensa import RMinHash

    # Sorted: a set's order changes from one process to the next.
    shingles_by_sentence = map(sorted, map(shingles, keys))
    minhashes: list[RMinHash] = RMinHash.from_token_sets(shingles_by_sentence, N_HASHES, HASH_SEED)
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
"""The letters and digits of the two sentences of a pair, in either order."""


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
        """The overlap as results carry it.

        It is ``gold`` if the corpus has pairs of the task with a gold score or label
        (``self.n_graded`` of them), ``text`` if it has sentences alone (``self.n_found``), else
        ``none``.
        """
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
        """Return for each item how the training text contains each of its sentences.

        A kind is ``exact``, ``normalised`` (by letters and digits), ``near`` (a near-duplicate), or
        None for a sentence that is not contained.

        Args:
            split: The items. ``sides`` are columns of sentences, of equal length: one for single
                sentences, two for pairs, more for an anchor with a positive and negatives.
        """
        kinds_by_side = [[self.kind_by_text.get(text) for text in side] for side in split.sides]
        return list(zip(*kinds_by_side, strict=True))

    def is_paired(self, split: Split, target: str = "") -> list[bool]:
        """Return for each item whether one row of the training text contains both its sentences.

        The order of the two does not matter; they are compared by letters and digits.

        Args:
            split: The items. ``sides`` are columns of sentences, of equal length: one for single
                sentences, two for pairs, more for an anchor with a positive and negatives.
            target: ``score`` or ``label``: only rows that have one count. Empty: all rows count.
        """
        # Each pair is a set of two sentences, as letters and digits.
        pairs = self.pairs_by_target.get(target, set())
        return [
            len(item_sentences) > 1 and frozenset(map(letters_and_digits, item_sentences)) in pairs
            for item_sentences in zip(*split.sides, strict=True)
        ]

    def is_graded(self, split: Split) -> list[bool]:
        """Return for each item whether one row of the text has both its sentences and a target.

        The target is a score for a split of pairs with gold scores, a label for one of labelled
        pairs. Items of other splits are never graded.
        """
        return self.is_paired(split, TARGET_COLUMNS.get(type(split), "nothing"))


def find_overlap(corpus: Corpus, tasks: Sequence[Task]) -> list[TaskOverlap]:
    """Count the sentences of each task's scored split that a corpus contains.

    * Two texts are the same if their letters and digits are, in lower case: SentEval's tokenised
      files then equal the releases that they were made from.
    * Documents are compared sentence by sentence.
    * Pairs with their gold score or label are counted too, in either order of the two sentences.

    Args:
        corpus: The training text.
        tasks: The tasks; their data are read here.

    Returns:
        For each task the numbers of distinct sentences, of those that the corpus contains, and of
        pairs that it contains with a gold score or label.

    Raises:
        DataError: The data of a task cannot be read.
    """
    splits = {task.name: task.load(task.card.score_split) for task in tasks}
    texts = [text for split in splits.values() for text in split.texts()]
    matches = find_overlap_matches([corpus], texts)
    overlaps: list[TaskOverlap] = []
    for task_name, split in splits.items():
        key_by_text = {text: letters_and_digits(text) for text in split.texts()}
        # A text of punctuation alone has an empty key, and cannot be found.
        searched_keys = set(key_by_text.values()) - {b""}
        # matches.kind_by_text has the sentences that the corpus contains.
        found_keys = {key for text, key in key_by_text.items() if text in matches.kind_by_text}
        # Distinct pairs, as sets of letters and digits.
        graded_pairs = {
            frozenset(map(letters_and_digits, item_sentences))
            for item_sentences, is_graded in zip(
                zip(*split.sides, strict=True), matches.is_graded(split), strict=True
            )
            if is_graded
        }
        overlaps.append(
            TaskOverlap(
                task=task_name,
                n_sentences=len(searched_keys),
                n_found=len(found_keys),
                n_graded=len(graded_pairs),
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
        min_similarity: The lowest similarity of near-duplicates (see :class:`NearIndex`); None to
            find no near-duplicates.
        progress: Called with the number of rows that are done, and of all rows.

    Returns:
        How each sentence that was found is contained: exactly, by its letters and digits, or as a
        near-duplicate. And the pairs of sentences that one row has, by letters and digits: all of
        them, those in rows with a score, and those in rows with a label.
    """
    # The key of a text is its letters and digits.
    key_by_text: dict[str, bytes] = {}
    for text in texts:
        key = letters_and_digits(text)
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
        block_key_by_text = {text: letters_and_digits(text) for text in _iter_texts(block)}
        block_keys = set(block_key_by_text.values())
        exact_texts.update(key_by_text.keys() & block_key_by_text.keys())
        same_keys.update(distinct_keys & block_keys)
        if index is not None:
            # Those of the texts to find, not of the block.
            near_keys.update(index.find_near(sorted(block_keys - {b""})))
        for target, pairs in pairs_by_target.items():
            # Pairs of two keys in same_keys, which has all those of this block already.
            pairs.update(_iter_pairs(block, same_keys, target))
        n_done += len(block)
        progress(n_done, n_rows)
    kind_by_text: dict[str, MatchKind] = {}
    # A more exact kind replaces a less exact one.
    kind_by_text |= {text: "near" for text, key in key_by_text.items() if key in near_keys}
    kind_by_text |= {text: "normalised" for text, key in key_by_text.items() if key in same_keys}
    kind_by_text |= dict.fromkeys(exact_texts, "exact")
    return OverlapMatches(kind_by_text=kind_by_text, pairs_by_target=pairs_by_target)


def letters_and_digits(text: str) -> bytes:
    """Return the letters and digits of a text in lower case, as UTF-8; empty if it has none.

    The result is the same for texts that differ only in case, blanks and punctuation, and for forms
    of one character that Unicode counts as compatible (NFKC).
    """
    # The quick way for ASCII: it deletes all bytes that are no letters or digits.
    if text.isascii():
        return text.lower().encode().translate(None, _OMITTED_BYTES)
    normalised_text = unicodedata.normalize("NFKC", text).casefold()
    return "".join(filter(str.isalnum, normalised_text)).encode()


def _iter_blocks(corpora: Sequence[Corpus]) -> Iterator[Corpus]:
    """Yield all rows of some corpora, in blocks of limited length."""
    for corpus in corpora:
        for start in range(0, len(corpus), BLOCK_ROWS):
            yield replace(corpus, table=corpus.table.slice(start, BLOCK_ROWS))


def _iter_texts(corpus: Corpus) -> Iterator[str]:
    """Yield all texts of a corpus; of documents, their sentences."""
    for name in corpus.columns:
        if name == "document":
            for document in corpus.column(name):
                # A document may hold a sentence of a task among others.
                yield from split_sentences(document)
        elif name in TEXT_COLUMNS:
            yield from corpus.column(name)


def _iter_pairs(corpus: Corpus, keys: Collection[bytes], target: str) -> Iterator[PairKeys]:
    """Yield the pairs of sentences in one row of a corpus, if both are among some sentences.

    Args:
        corpus: The corpus.
        keys: The letters and digits of these sentences, see :func:`letters_and_digits`.
        target: ``score`` or ``label``: without this column the corpus has no pairs. Empty: no such
            column is needed.

    Yields:
        The letters and digits of both sentences, as a set; it has one member if they are equal.
    """
    if target and target not in corpus.columns:
        return
    # Names of two columns whose sentences form pairs: first and second, anchor and positive, or
    # anchor and one of the negatives.
    for first_column, second_column in PAIRED_COLUMNS:
        if not {first_column, second_column} <= set(corpus.columns):
            continue
        rows = zip(corpus.column(first_column), corpus.column(second_column), strict=True)
        for first_text, second_text in rows:
            first_key = letters_and_digits(first_text)
            second_key = letters_and_digits(second_text)
            if first_key in keys and second_key in keys:
                yield frozenset((first_key, second_key))
