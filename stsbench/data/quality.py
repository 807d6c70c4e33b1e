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
    """Load the splits of a task whose files are on this machine.

    Raises:
        DataError: The data are broken, or differ from the card.
    """
    return {
        name: task.load(name)
        for name in task.card.splits
        if task.card.package is not None or has_files(task.card.local, name, task.data)
    }


def _group_positions(items: Sequence[ItemTexts]) -> list[list[int]]:
    """Return the positions of equal items, for each item that occurs several times."""
    positions_by_item = group_by(range(len(items)), lambda position: items[position])
    return [positions for positions in positions_by_item.values() if len(positions) > 1]


class Found(NamedTuple):
    """The items of a split that a check objects to."""

    items: Sequence[int]
    """Their positions in the split, counted from 0; empty if there are none."""
    detail: str = ""
    """What else to say of them; begins with a comma or the like."""


def find_leaks(split: CheckedSplit) -> Found:
    """Find the items whose texts are, in either order, those of an item of another split."""
    counts: list[str] = []
    leaked: set[int] = set()
    for other_split in split.other_splits:
        others = set(other_split.sorted_items)
        positions = [index for index, item in enumerate(split.sorted_items) if item in others]
        if positions:
            leaked.update(positions)
            counts.append(f"{other_split.name} {len(positions):,}")
    return Found(sorted(leaked), f": {', '.join(counts)}")


def find_fold_copies(split: CheckedSplit) -> Found:
    """Find the items of a cross-validated split that have a copy in it: mostly in another fold."""
    is_divided = split.task.is_cross_validated
    return Found(sorted(chain.from_iterable(split.copies)) if is_divided else [])


def _find_repeated(split: CheckedSplit, *, swapped: bool) -> Found:
    """Find the items that repeat an earlier one of their split.

    Args:
        split: The split.
        swapped: Find those with their texts in another order than the first of them; otherwise
            those in the same order.
    """
    items = split.items
    return Found(
        sorted(
            position
            for first, *others in split.copies
            for position in others
            if (items[position] != items[first]) == swapped
        )
    )


def find_contradicting(split: CheckedSplit) -> Found:
    """Find the items with the same texts and different targets.

    Gold scores are of a pair in either order; labels of a pair, such as entailment, in one.
    """
    targets = split.targets
    groups = split.copies if split.is_gold else _group_positions(split.items)
    contradicting = [group for group in groups if len(targets) and np.ptp(targets[group])]
    widest = max((np.ptp(targets[group]) for group in contradicting), default=0)
    detail = f", up to {widest:g} points apart" if split.is_gold else ""
    return Found(sorted(chain.from_iterable(contradicting)), detail)


def find_shared(split: CheckedSplit) -> Found:
    """Find the scored pairs of which another split has a sentence, but not the pair."""
    if len(split.split.sides) < 2 or not split.is_scored:
        return Found([])
    other_items = chain.from_iterable(other.items for other in split.other_splits)
    texts = set(chain.from_iterable(other_items))
    return Found(
        [
            position
            for position, item in enumerate(split.items)
            if position not in split.copied and not texts.isdisjoint(item)
        ]
    )


def find_near(split: CheckedSplit) -> Found:
    """Find the scored items with a near-duplicate in their split or another, but no copy."""
    min_similarity = split.task.min_similarity
    if min_similarity is None or not split.is_scored:
        return Found([])
    keys_by_split = {
        name: ["".join(item).encode() for item in checked.sorted_items]
        for name, checked in split.task.checked_splits.items()
    }
    keys = keys_by_split[split.name]
    index = NearIndex(sorted(set(keys)), min_similarity)
    near_keys = index.find_near(sorted(set().union(*keys_by_split.values())), skip_equal=True)
    return Found(
        [
            position
            for position, key in enumerate(keys)
            if key in near_keys and position not in split.copied
        ],
        f" (similarity {min_similarity:g} or more)",
    )


def find_constant(split: CheckedSplit) -> Found:
    """Find all items of a split if their gold scores, or their classes, are the same."""
    return Found(range(split.split.n) if len(np.unique(split.targets)) == 1 else [])


def find_degenerate(split: CheckedSplit) -> Found:
    """Find all items of a split whose targets hardly tell encoders apart.

    Of n similarities without ties the Spearman correlation with gold scores of which t share each
    value is sqrt(1 - sum of (t^3 - t) / (n^3 - n)) at most: by the variance of tied ranks over that
    of untied ones (Kendall 1945, Biometrika 33). Classes are degenerate if one has nearly all
    items.
    """
    values, counts = np.unique(split.targets, return_counts=True)
    if len(values) < 2:
        return Found([])
    n = split.split.n
    ceiling = np.sqrt(1 - (counts**3.0 - counts).sum() / (n**3.0 - n))
    majority = counts.max() / n
    if split.is_gold:
        is_degenerate = ceiling < MIN_CEILING
        detail = f": their {len(values)} values let Spearman reach {100 * ceiling:.1f} at most"
    else:
        is_degenerate = majority > MAX_MAJORITY
        detail = f": {100 * majority:.1f}% are of one class"
    return Found(range(n) if is_degenerate else [], detail)


def _find_texts(split: CheckedSplit, is_bad: Callable[[str], object]) -> Found:
    """Find the items with a text for which a function returns something true."""
    rows = zip(*split.split.sides, strict=True)
    return Found([index for index, texts in enumerate(rows) if any(map(is_bad, texts))])


def find_empty(split: CheckedSplit) -> Found:
    """Find the items with a text that has neither letters nor digits."""
    return _find_texts(split, lambda text: not any(map(str.isalnum, text)))


def find_long(split: CheckedSplit) -> Found:
    """Find the items with a text that most encoders cut."""
    return _find_texts(split, lambda text: len(text) > MAX_CHARACTERS)


def find_cut(split: CheckedSplit) -> Found:
    """Find the items with a text of the greatest length, if so many have it that it is a limit."""
    lengths = Counter(len(text) for text in set(split.split.texts()))
    limit = max(lengths, default=0)
    is_limit = limit >= MIN_CUT_CHARACTERS and lengths[limit] >= MIN_CUT_TEXTS
    found = _find_texts(split, lambda text: is_limit and len(text) == limit)
    return found._replace(detail=f", {limit:,} characters")


_NUMBERED = re.compile(r"\W*(?:\w+[-_#:])?\d+\b")
_ID = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{16,}\b|\b\w+_\d{4,}\b",
    re.IGNORECASE,
)


def find_ids(split: CheckedSplit) -> Found:
    """Find the items with an id in a text, or all if a column begins with the numbers of rows."""
    for texts in split.split.sides:
        numbers = [match[0] for text in texts if (match := _NUMBERED.match(text))]
        if len(texts) > 2 and len(set(numbers)) >= MIN_NUMBERED_SHARE * len(texts):
            return Found(range(len(texts)), ": each text of a column begins with another number")
    return _find_texts(split, _ID.search)


def find_foreign(split: CheckedSplit) -> Found:
    """Find all items of a split if a column is surely in a language that it should not be in."""
    columns = split.split.sides if split.task.languages else ()
    languages = [language for column in columns for language in find_languages([column])]
    foreign = sorted(set(languages) - set(split.task.languages))
    expected = ", ".join(split.task.languages)
    detail = f" in {', '.join(foreign)}, not in {expected}"
    return Found(range(split.split.n) if foreign else [], detail)


def _matching(pattern: str) -> Callable[[CheckedSplit], Found]:
    """Return a check that finds the items with a text that matches a regular expression."""
    search = re.compile(pattern).search
    return lambda split: _find_texts(split, search)


Level = Literal["warning", "note"]
"""How much a finding matters: a warning is about the score."""


@dataclass(frozen=True)
class Check:
    """A check of evaluation data."""

    name: str
    level: Level
    """The level of what it finds in the scored split; in other splits all is a note."""
    find: Callable[[CheckedSplit], Found]
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
        _matching(
            "(?<![A-ZÀ-Þ])[ÂÃ][\x80-¿ŒœŠšŽžŸƒˆ˜–—‘-„†-•…‰‹›€™]|â€[\x80-¿œ™“”\u02dc¦¢]"  # noqa: RUF001
            "|(?:[ÐÑ][\x80-¿‚-„†-•…‰‹›€™ŠŒŽšœžŸˆ˜]){2}"  # noqa: RUF001
        ),
        "have letters of another encoding (mojibake)",
    ),
    Check("replaced", "warning", _matching("\ufffd"), "have a replacement character (U+FFFD)"),
    Check("bom", "warning", _matching("\ufeff"), "have a byte order mark"),
    Check(
        "control",
        "warning",
        _matching("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"),
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
        _matching(r"&(?:#\d+|#x[\da-fA-F]+|amp|lt|gt|quot|apos|nbsp);|<br ?/?>"),
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
    """The positions of the items that the finding is about, counted from 0."""
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
    """Check all splits, and return what is found, in the order of splits and checks.

    Args:
        data: The splits.
        only_quick: Make only the checks of the scored split that every run makes.
        ignored: The names of checks that are not made.

    Raises:
        StsbenchError: Near-duplicates are wanted, and rensa is not installed.
    """
    findings: list[Finding] = []
    for split in data.checked_splits.values():
        for check in CHECKS:
            matters = split.is_scored and check.level == "warning"
            is_skipped = only_quick and not (matters and check.is_quick)
            if is_skipped or check.name in ignored:
                continue
            found = check.find(split)
            if len(found.items):
                findings.append(
                    Finding(
                        check=check.name,
                        level="warning" if matters else "note",
                        split=split.name,
                        n=split.split.n,
                        items=found.items,
                        message=check.message + found.detail,
                    )
                )
    return findings
