"""Which column of a table is which: by names where they tell, else by what the columns hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from stsbench.data.readers.columns import (
    GOLD,
    LABELS,
    PAIRS,
    SENTENCES,
    Roles,
    columns_called,
    find_sentences,
    plain_name,
)
from stsbench.data.readers.table import ColumnKey, listed
from stsbench.data.readers.text import DECIMAL_COMMA
from stsbench.errors import DataError

NAMES = {*GOLD, *LABELS, *SENTENCES, *(name for pair in PAIRS for name in pair), "id", "split", "subset"}
MOST_CLASSES, MOST_WORDS = 50, 4
"""More classes, or longer names of them, are only taken where a column is called so."""
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class DataColumn:
    """A column's name or position, and its cells."""

    key: ColumnKey
    cells: Sequence[str]

    @cached_property
    def distinct(self) -> frozenset[str]:
        """What it holds, each once."""
        return frozenset(cell.strip() for cell in self.cells)

    @cached_property
    def is_number(self) -> bool:
        """Whether it holds numbers; a decimal comma counts, which the reader then refuses, and so do gaps."""
        filled = [cell for cell in self.distinct if cell]
        return bool(filled) and all(_NUMBER.fullmatch(cell) or DECIMAL_COMMA.fullmatch(cell) for cell in filled)

    @cached_property
    def has_fractions(self) -> bool:
        """Whether one of its numbers is written with a decimal sign."""
        return self.is_number and any(re.search("[.,]", cell) for cell in self.distinct)

    @cached_property
    def words(self) -> float:
        """Words a cell, on average."""
        return sum(len(cell.split()) for cell in self.cells) / max(len(self.cells), 1)

    @property
    def is_id(self) -> bool:
        """Whether it numbers the rows, or is called so."""
        name = plain_name(self.key) if isinstance(self.key, str) else ""
        if name.endswith("id") or name in ("index", "idx", "unnamed0", "row", "n", "no", "number"):
            return True
        return (
            len(self.cells) > 2 and not self.has_fractions and self.is_number and len(self.distinct) == len(self.cells)
        )

    @property
    def is_labels(self) -> bool:
        """Whether it holds few short texts or whole numbers, again and again."""
        few = 2 <= len(self.distinct) <= min(MOST_CLASSES, max(2, len(self.cells) // 2), len(self.cells) - 1)
        # A column with gaps is a remark on some rows.
        return few and all(self.distinct) and not self.has_fractions and self.words <= MOST_WORDS


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of these rows names the columns of the others."""
    first, rest = [cell.strip() for cell in rows[0]], rows[1:]
    if not any(first) or any(map(_NUMBER.fullmatch, first)):
        return False
    if not rest:
        return any(plain_name(cell) in NAMES for cell in first)
    columns = [DataColumn(at, cells) for at, cells in enumerate(zip(*rest, strict=False))]
    pairs = list(zip(columns, first, strict=False))
    if any(cell in column.distinct for column, cell in pairs if cell):
        return False
    # pandas writes the numbers of rows below no name.
    return any(column.is_number or (cell and (plain_name(cell) in NAMES or column.is_labels)) for column, cell in pairs)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The roles of columns, and one line for each that is unsure."""

    roles: Roles
    unsure: Sequence[str]


def decide(columns: Sequence[DataColumn], given: Mapping[str, ColumnKey], *, where: str) -> Decision:
    """Decide which columns hold the sentences and what is scored.

    Args:
        columns: of the whole table.
        given: columns that the user names by what they hold: these are not doubted.
        where: the file, for the message.

    Raises:
        DataError: nothing fits; says what can be given.
    """
    header = [column.key for column in columns if isinstance(column.key, str)]
    unsure: list[str] = []
    sentences = find_sentences(header, given)
    if isinstance(sentences, str):
        if {"sentence", "sentence1", "sentence2"} & {*given}:
            raise DataError(f"{where}: {sentences}")
        sentences = _sentences_by_content(columns, {*given.values()}, where, unsure)
    others = [column for column in columns if column.key not in sentences and column.cells]
    if "gold" in given and len(sentences) == 1:
        raise DataError(f"{where}: one sentence has no gold score; give sentence1 and sentence2, or label")
    target = given.get("gold", given.get("label"))
    if target is not None:
        return Decision(roles=Roles(sentences, target, is_gold="gold" in given), unsure=unsure)
    named = columns_called(header, (*GOLD, *LABELS)) if len(sentences) == 2 else columns_called(header, LABELS)
    likely = [column for column in others if column.key in named and (column.is_number or column.words <= MOST_WORDS)]
    best = likely or _best_targets([column for column in others if not column.is_id], len(sentences))
    chosen = next(iter(_best_targets(likely, len(sentences)) or best), None)
    if chosen is None:
        raise DataError(
            f"{where}: no column holds scores or labels (has {_keys(columns)}); "
            "name it with --columns gold=NAME or --columns label=NAME"
        )
    if len(best) > 1:
        unsure.append(f"columns {_shown([one.key for one in best])} may be what is scored: {chosen.key!r} is taken")
    elif not likely and not chosen.is_number:
        unsure.append(f"column {chosen.key!r} is taken for what is scored, by what it holds")
    is_gold = len(sentences) == 2 and _are_scores(chosen, unsure)
    return Decision(roles=Roles(sentences, chosen.key, is_gold=is_gold), unsure=unsure)


def _sentences_by_content(
    columns: Sequence[DataColumn], taken: set[ColumnKey], where: str, unsure: list[str]
) -> tuple[ColumnKey, ...]:
    """The two columns of most words, or the only one that holds text other than labels."""
    texts = [column for column in columns if not (column.is_number or column.is_labels or column.key in taken)]
    texts = [column for column in texts if column.words >= 2] or [
        column for column in texts if column.words and not column.is_id
    ]
    if not texts:
        raise DataError(
            f"{where}: no column holds sentences (has {_keys(columns)}); name them with "
            "--columns sentence1=NAME,sentence2=NAME or --columns sentence=NAME"
        )
    longest = sorted(texts, key=lambda column: column.words, reverse=True)[:2]
    keys = tuple(column.key for column in columns if column in longest)
    more = f" of the {len(texts)} columns of text" if len(texts) > 2 else ""
    unsure.append(
        f"column{'s' if len(keys) > 1 else ''} {_shown(keys)}{more}: taken for the sentence{'s' if len(keys) > 1 else ''}"
    )
    return keys


def _best_targets(columns: Sequence[DataColumn], sentences: int) -> list[DataColumn]:
    """What may be scored, the best first: of a pair rather fractions than whole numbers, and numbers than labels."""
    labels = [column for column in columns if column.is_labels]
    if sentences == 2 and (numbers := [column for column in columns if column.is_number]):
        return sorted(numbers, key=lambda column: not column.has_fractions)
    return [column for column in labels if not column.is_number] or labels


def _are_scores(column: DataColumn, unsure: list[str]) -> bool:
    """Whether the numbers beside pairs are scores; text is labels."""
    if not column.is_number:
        return False
    if column.has_fractions:
        return True
    name, few = plain_name(str(column.key)), len(column.distinct)
    if name in LABELS:
        return few > MOST_CLASSES
    if few <= 2 and name not in GOLD:
        return False
    if few <= MOST_CLASSES and (few <= 2 or name not in GOLD):
        unsure.append(f"column {column.key!r} holds only whole numbers: taken for scores, they may be classes")
    return True


def _keys(columns: Sequence[DataColumn]) -> str:
    return listed([str(column.key) for column in columns])


def _shown(keys: Sequence[ColumnKey]) -> str:
    return listed([repr(key) for key in keys])
