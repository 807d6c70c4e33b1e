"""Checks of evaluation data: copies, splits that leak, contradicting targets, damaged text.

A check is a row of ``CHECKS`` and a function above it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core.grouping import group_by
from stsbench.data.corpora.overlap import NearIndex
from stsbench.data.splits import CaptionSplit, LabelledPairSplit, LabelledSplit, PairSplit, Split
from stsbench.data.task import Task, has_files
from stsbench.data.user_tables import find_languages

MIN_CEILING = 0.9
"""The least Spearman correlation that gold scores must leave within reach.

Gold scores of two values are below it, however many have each (0.87 at most, of many pairs), those
of three equally frequent values above it (0.94).
"""
MAX_MAJORITY = 0.9
"""The largest share of items in one class: the accuracy of an encoder that embeds nothing."""
MAX_CHARACTERS = 2_000
"""About the 512 tokens that BERT reads, of four letters each in English; what follows is cut."""
MIN_CUT_CHARACTERS = 60
"""Texts that were cut are at least so long: many short texts have the same length by chance."""
MIN_CUT_TEXTS = 5
"""So many texts of exactly the greatest length show a limit; without one a single text has it."""
MIN_NUMBERED_SHARE = 0.9
"""The share of texts that begin with a number of their own from which these number the rows."""


def normalise_pair_text(text: str) -> str:
    """Return a text in lower case with single blanks, in Unicode's compatible forms (NFKC).

    MTEB compares the pairs of STSBenchmark.v2 so; punctuation counts.
    """
    normal = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(normal.casefold().split())


ItemTexts = tuple[str, ...]
"""The sentences of an item, as :func:`normalise_pair_text` writes them."""


@dataclass(frozen=True, kw_only=True)
class DataToCheck:
    """The splits of a task that are checked together."""

    splits: Mapping[str, Split]
    score_split: str
    languages: Sequence[str] = ()
    """The codes of the languages that the texts should be in; empty if that is not known."""
    min_similarity: float | None = None
    """The lowest similarity of near-duplicates, see :class:`NearIndex`; None to find none."""

    @property
    def is_cross_validated(self) -> bool:
        """Whether the only split is divided into folds to train and test on."""
        return list(self.splits) == ["all"]

    @cached_property
    def checked_splits(self) -> dict[str, CheckedSplit]:
        """The splits with their texts normalised, by name, the scored one first."""
        names = sorted(self.splits, key=lambda name: name != self.score_split)
        return {name: CheckedSplit(name=name, split=self.splits[name], task=self) for name in names}


@dataclass(frozen=True, kw_only=True)
class CheckedSplit:
    """A split of a task, with what several checks need of it."""

    name: str
    split: Split
    task: DataToCheck

    @cached_property
    def items(self) -> list[ItemTexts]:
        """The texts of each item in their order; captions, which images share, are no items."""
        if isinstance(self.split, CaptionSplit):
            return []
        sides = [list(map(normalise_pair_text, side)) for side in self.split.sides]
        return list(zip(*sides, strict=True))

    @cached_property
    def sorted_items(self) -> list[ItemTexts]:
        """The texts of each item, sorted: a pair and the swapped pair are the same."""
        return [tuple(sorted(item)) for item in self.items]

    @cached_property
    def copies(self) -> list[list[int]]:
        """The positions of items with the same texts in either order, if they are several."""
        return _group_positions(self.sorted_items)

    @cached_property
    def copied(self) -> set[int]:
        """The positions of all items with a copy in this or another split."""
        return {*chain.from_iterable(self.copies), *find_leaks(self).items}

    @property
    def targets(self) -> npt.NDArray[Any]:
        """The gold score or class of each item; empty if they have none."""
        has_targets = isinstance(self.split, PairSplit | LabelledSplit | LabelledPairSplit)
        return getattr(self.split, self.split.target_column) if has_targets else np.array([])

    @property
    def is_gold(self) -> bool:
        """Whether the targets are gold scores."""
        return isinstance(self.split, PairSplit)

    @property
    def is_scored(self) -> bool:
        """Whether it is the split that is scored."""
        return self.name == self.task.score_split

    @property
    def other_splits(self) -> list[CheckedSplit]:
        """The other splits of the task."""
        return [split for split in self.task.checked_splits.values() if split is not self]


def load_local_splits(task: Task) -> dict[str, Split]:
    """Load those splits of a task whose files are on this machine or in the package: name -> split.

    Raises:
        DataError: The data are broken, or differ from the card.
    """
    # The sources of files in a card, each may be None: card.package (the files of a package) and
    # card.local (those in the user's data folder, task.data).
    return {
        name: task.load(name)
        for name in task.card.splits
        if task.card.package is not None or has_files(task.card.local, name, task.data)
    }


def _group_positions(items: Sequence[ItemTexts]) -> list[list[int]]:
    """Return the positions of equal items, for each item that occurs several times."""
    positions_by_item = group_by(range(len(items)), lambda position: items[position])
    return [positions for positions in positions_by_item.values() if len(positions) > 1]


class Objection(NamedTuple):
    """The items of a split that a check objects to."""

    items: Sequence[int]
    """Their positions in the split, counted from 0; empty if there are none."""
    detail: str = ""
    """What else to say of them; begins with a comma or the like."""


def find_leaks(checked: CheckedSplit) -> Objection:
    """Find the items whose texts are, in either order, those of an item of another split.

    Lower and upper case, and the number of blanks, make no difference.

    Returns:
        The positions of these items in the split, and text with how many of them each other split
        has.
    """
    counts: list[str] = []
    leaked_positions: set[int] = set()
    for other_split in checked.other_splits:
        # The texts of each item, sorted, so that the order of a pair does not matter.
        other_items = set(other_split.sorted_items)
        positions = [
            position for position, item in enumerate(checked.sorted_items) if item in other_items
        ]
        if positions:
            leaked_positions.update(positions)
            counts.append(f"{other_split.name} {len(positions):,}")
    return Objection(sorted(leaked_positions), f": {', '.join(counts)}")


def find_fold_copies(checked: CheckedSplit) -> Objection:
    """Find the items of a cross-validated split that have a copy in it: mostly in another fold."""
    is_divided = checked.task.is_cross_validated
    return Objection(sorted(chain.from_iterable(checked.copies)) if is_divided else [])


def _find_repeated(checked: CheckedSplit, *, swapped: bool) -> Objection:
    """Find the items whose texts are, in either order, those of an earlier item of the split.

    Args:
        checked: The split; ``items`` are the texts of each item, normalised (lower case, single
            blanks). ``copies`` are the positions of items with equal texts in either order, in one
            ascending list for each text or pair that occurs several times.
        swapped: Find the items with their texts in another order than the first item of the list;
            else those with them in the same order.

    Returns:
        The positions of the items in the split.
    """
    items = checked.items
    repeated_positions = [
        position
        for first, *later_positions in checked.copies
        for position in later_positions
        if (items[position] != items[first]) == swapped
    ]
    return Objection(sorted(repeated_positions))


def find_contradicting(checked: CheckedSplit) -> Objection:
    """Find the items with the same texts and different targets (gold scores or labels).

    A gold score is of a pair in either order of its sentences. A label of a pair, such as
    entailment, is of one order. Texts are compared in lower case, with single blanks.

    Returns:
        The positions of the items in the split, and how far gold scores are apart.
    """
    # The gold score or the number of the class of each item, an array; empty if there are none.
    targets = checked.targets
    # Lists of the positions of items with the same texts; ``copies``: in either order.
    groups = checked.copies if checked.is_gold else _group_positions(checked.items)
    if not len(targets):
        return Objection([])
    # The range of the targets, ptp() (peak to peak), is 0 if they are equal.
    contradicting = [positions for positions in groups if np.ptp(targets[positions])]
    widest = max((np.ptp(targets[positions]) for positions in contradicting), default=0)
    detail = f", up to {widest:g} points apart" if checked.is_gold else ""
    return Objection(sorted(chain.from_iterable(contradicting)), detail)


def find_shared(checked: CheckedSplit) -> Objection:
    """Find the pairs of the scored split of which another split has a sentence, but not the pair.

    Texts are compared in lower case, with single blanks. Pairs that occur twice in the scored split
    are left out too.

    Returns:
        The positions of the pairs in the split; none for single sentences or another split.
    """
    if len(checked.split.sides) < 2 or not checked.is_scored:
        return Objection([])
    other_items = chain.from_iterable(other_split.items for other_split in checked.other_splits)
    other_texts = set(chain.from_iterable(other_items))
    # checked.copied are the positions of items with a copy in this or another split.
    shared_positions = [
        position
        for position, item in enumerate(checked.items)
        if position not in checked.copied and not other_texts.isdisjoint(item)
    ]
    return Objection(shared_positions)


def find_near(checked: CheckedSplit) -> Objection:
    """Find the items of the scored split with a near-duplicate in any split, but no copy.

    Two items are near-duplicates if their texts, joined, in lower case, are as similar as the user
    has set (``min_similarity``); None of that finds none. The similarity, from 0 to 1, is the
    number of runs of three characters that both have over that of those that either has.

    Returns:
        The positions of the items in the split.
    """
    min_similarity = checked.task.min_similarity
    if min_similarity is None or not checked.is_scored:
        return Objection([])
    # The joined texts of each item, sorted, so that the order of a pair does not matter.
    keys_by_split = {
        name: ["".join(item).encode() for item in checked_split.sorted_items]
        for name, checked_split in checked.task.checked_splits.items()
    }
    keys = keys_by_split[checked.name]
    all_keys: set[bytes] = set().union(*keys_by_split.values())
    index = NearIndex(sorted(set(keys)), min_similarity)
    # The keys of this split that are similar to another key of any split.
    # skip_equal: no key is a near-duplicate of itself.
    near_keys = index.find_near(sorted(all_keys), skip_equal=True)
    # checked.copied are the positions of items with a copy in this or another split.
    near_positions = [
        position
        for position, key in enumerate(keys)
        if key in near_keys and position not in checked.copied
    ]
    return Objection(near_positions, f" (similarity {min_similarity:g} or more)")


def find_constant(checked: CheckedSplit) -> Objection:
    """Find all items of a split if their gold scores, or their classes, are the same."""
    return Objection(range(checked.split.n) if len(np.unique(checked.targets)) == 1 else [])


def find_degenerate(checked: CheckedSplit) -> Objection:
    """Find all items of a split if its gold scores or classes hardly tell encoders apart.

    * Gold scores with many ties bound Spearman's correlation. Let t be the number of items that
      share a score, for each score. With n similarities without ties, the correlation is at most
      sqrt(1 - sum of (t³ - t) / (n³ - n)), the deviation of tied ranks over that of untied ones
      (Kendall 1945, Biometrika 33). They are degenerate if that is less than ``MIN_CEILING``.
    * Classes are degenerate if one has more than ``MAX_MAJORITY`` of the items.

    Returns:
        The positions of all items, or none, with the reason.
    """
    # The targets are empty if the items have neither gold scores nor classes.
    values, counts = np.unique(checked.targets, return_counts=True)
    if len(values) < 2:
        return Objection([])
    n = checked.split.n
    ceiling = np.sqrt(1 - (counts**3.0 - counts).sum() / (n**3.0 - n))
    majority_share = counts.max() / n
    if checked.is_gold:
        is_degenerate = ceiling < MIN_CEILING
        detail = f": their {len(values)} values let Spearman reach {100 * ceiling:.1f} at most"
    else:
        is_degenerate = majority_share > MAX_MAJORITY
        detail = f": {100 * majority_share:.1f}% are of one class"
    return Objection(range(n) if is_degenerate else [], detail)


def _find_texts(checked: CheckedSplit, is_bad: Callable[[str], object]) -> Objection:
    """Find the items of a split with a text for which a function returns something true."""
    texts_by_item = zip(*checked.split.sides, strict=True)
    return Objection(
        [position for position, texts in enumerate(texts_by_item) if any(map(is_bad, texts))]
    )


def find_empty(checked: CheckedSplit) -> Objection:
    """Find the items with a text that has neither letters nor digits."""
    return _find_texts(checked, lambda text: not any(map(str.isalnum, text)))


def find_long(checked: CheckedSplit) -> Objection:
    """Find the items with a text that most encoders cut."""
    return _find_texts(checked, lambda text: len(text) > MAX_CHARACTERS)


def find_cut(checked: CheckedSplit) -> Objection:
    """Find the items with a text that was probably cut at a limit of characters.

    There is such a limit if many distinct texts (``MIN_CUT_TEXTS``) have exactly the greatest
    length, and if that is not short (``MIN_CUT_CHARACTERS``).

    Returns:
        The positions of these items in the split, and text with the greatest length.
    """
    n_texts_by_length = Counter(len(text) for text in set(checked.split.texts()))
    greatest_length = max(n_texts_by_length, default=0)
    has_many_texts = n_texts_by_length[greatest_length] >= MIN_CUT_TEXTS
    is_limit = has_many_texts and greatest_length >= MIN_CUT_CHARACTERS
    objection = _find_texts(checked, lambda text: is_limit and len(text) == greatest_length)
    return objection._replace(detail=f", {greatest_length:,} characters")


_NUMBERED = re.compile(r"\W*(?:\w+[-_#:])?\d+\b")
_ID = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{16,}\b|\b\w+_\d{4,}\b",
    re.IGNORECASE,
)


def find_ids(checked: CheckedSplit) -> Objection:
    """Find the items with an id in a text.

    An id (``_ID``) is a UUID, a word of 16 or more hexadecimal digits, letters and figures, or a
    word such as ``img_1234``.

    If the texts of one side begin with a number each, such as ``12`` or ``q-12`` (``_NUMBERED``),
    all different (at least ``MIN_NUMBERED_SHARE`` of them), these number the rows, and all items
    are found.
    """
    for texts in checked.split.sides:
        number_matches = filter(None, map(_NUMBERED.match, texts))
        distinct_numbers = {match[0] for match in number_matches}
        if len(texts) > 2 and len(distinct_numbers) >= MIN_NUMBERED_SHARE * len(texts):
            return Objection(
                range(len(texts)), ": each text of a column begins with another number"
            )
    return _find_texts(checked, _ID.search)


def find_foreign(checked: CheckedSplit) -> Objection:
    """Find all items of a split if one side is surely in a language that it should not be in.

    The languages that it should be in are ``checked.task.languages``; without these, none is found.

    Returns:
        The positions of all items, or none, with the names of the languages.
    """
    expected_languages = checked.task.languages
    sides = checked.split.sides if expected_languages else ()
    # find_languages() returns the code of the language of these texts, nothing if it is not sure.
    languages = [language for texts in sides for language in find_languages([texts])]
    foreign_languages = sorted(set(languages) - set(expected_languages))
    detail = f" in {', '.join(foreign_languages)}, not in {', '.join(expected_languages)}"
    return Objection(range(checked.split.n) if foreign_languages else [], detail)


def _find_matching(pattern: str) -> Callable[[CheckedSplit], Objection]:
    """Return a check that finds the items with a text that matches a regular expression."""
    search = re.compile(pattern).search
    return lambda checked: _find_texts(checked, search)


Level = Literal["warning", "note"]
"""How much a finding matters: a warning is about the score."""


@dataclass(frozen=True)
class Check:
    """A check of evaluation data."""

    name: str
    level: Level
    """The level of what it finds in the scored split; in other splits all is a note."""
    find: Callable[[CheckedSplit], Objection]
    message: str
    """What is said of the items that it finds."""
    is_quick: bool = True
    """Whether it is made in every run too, if it is a warning."""


CHECKS: tuple[Check, ...] = (
    Check("leak", "warning", find_leaks, "stand in another split too"),
    Check("folds", "warning", find_fold_copies, "have a copy, most often in another fold"),
    Check("contradicting", "warning", find_contradicting, "have the same texts and other targets"),
    Check("doubled", "warning", partial(_find_repeated, swapped=False), "repeat an earlier item"),
    Check(
        "swapped",
        "warning",
        partial(_find_repeated, swapped=True),
        "repeat an earlier item in another order",
    ),
    Check("constant", "warning", find_constant, "have the same target"),
    Check("empty", "warning", find_empty, "have a text without letters and digits"),
    # The bytes of UTF-8 read as cp1252: a letter with a mark or a quote became two or three signs.
    Check(
        "mojibake",
        "warning",
        _find_matching(
            "(?<![A-ZÀ-Þ])[ÂÃ][\x80-¿ŒœŠšŽžŸƒˆ˜–—‘-„†-•…‰‹›€™]|â€[\x80-¿œ™“”\u02dc¦¢]"  # noqa: RUF001
            "|(?:[ÐÑ][\x80-¿‚-„†-•…‰‹›€™ŠŒŽšœžŸˆ˜]){2}"  # noqa: RUF001
        ),
        "have letters of another encoding (mojibake)",
    ),
    Check("replaced", "warning", _find_matching("\ufffd"), "have a replacement character (U+FFFD)"),
    Check("bom", "warning", _find_matching("\ufeff"), "have a byte order mark"),
    Check(
        "control",
        "warning",
        _find_matching("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"),
        "have control characters",
    ),
    Check("language", "warning", find_foreign, "have a column", is_quick=False),
    Check("near", "note", find_near, "have a near-duplicate, in any split"),
    Check("shared", "note", find_shared, "have a sentence of another split"),
    Check("degenerate", "note", find_degenerate, "hardly tell encoders apart"),
    Check("ids", "note", find_ids, "have an id in a text"),
    Check(
        "entities",
        "note",
        _find_matching(r"&(?:#\d+|#x[\da-fA-F]+|amp|lt|gt|quot|apos|nbsp);|<br ?/?>"),
        "have HTML in a text",
    ),
    Check("long", "note", find_long, f"have a text of more than {MAX_CHARACTERS:,} characters"),
    Check("cut", "note", find_cut, "have the greatest length, which may be a limit"),
)
"""The checks, the weightiest first."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check objects to in a split."""

    check: str
    level: Level
    split: str
    n: int
    """The number of items of the split."""
    items: Sequence[int]
    """The positions in the split of the items that the finding is about, counted from 0."""
    locations: Sequence[str]
    """The file and line of each of these items; empty if they are not known."""
    message: str
    """What is wrong with these items, the end of a sentence."""

    @property
    def share(self) -> str:
        """The number of the items, with that of all items unless it is all of them."""
        n_items = len(self.items)
        return f"{n_items:,} of {self.n:,}" if n_items < self.n else f"all {self.n:,}"


def check_data(
    data: DataToCheck, *, only_quick: bool = False, ignored: Sequence[str] = ()
) -> list[Finding]:
    """Check the quality of all splits of a task.

    A finding is a warning if it is about the scored split and the check is one of warnings; else it
    is a note.

    Args:
        data: The splits.
        only_quick: Make only the quick checks for warnings about the scored split, as every run
            does.
        ignored: The names of checks that are not made.

    Returns:
        What was found, in the order of splits and checks.

    Raises:
        StsbenchError: Near-duplicates are wanted, and the library rensa is not installed.
    """
    findings: list[Finding] = []
    for checked in data.checked_splits.values():
        # The file and line of each item; empty if they are not known.
        locations = checked.split.locations
        for check in CHECKS:
            is_warning = checked.is_scored and check.level == "warning"
            is_quick_warning = is_warning and check.is_quick
            if check.name in ignored or (only_quick and not is_quick_warning):
                continue
            # Its items are positions in the split; its detail is the end of the message, or empty.
            objection = check.find(checked)
            if len(objection.items):
                findings.append(
                    Finding(
                        check=check.name,
                        level="warning" if is_warning else "note",
                        split=checked.name,
                        n=checked.split.n,
                        items=objection.items,
                        locations=[locations[item] for item in objection.items if locations],
                        message=check.message + objection.detail,
                    )
                )
    return findings
