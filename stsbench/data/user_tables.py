"""Checks of a user's tables before a card is drafted, and how they are read: its note says it."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from stsbench.core.errors import DataError
from stsbench.core.wording import format_count
from stsbench.data.readers.columns import GOLD_NAMES, ColumnRoles, plain_name
from stsbench.data.readers.text import format_field, has_decimal_commas, is_missing
from stsbench.data.recognition import DataColumn, SplitTables

LANGUAGE_BY_SCRIPT: Mapping[str, str] = {
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "HANGUL": "ko",
    "CJK": "zh",
    "THAI": "th",
    "GREEK": "el",
    "HEBREW": "he",
    "GEORGIAN": "ka",
    "ARMENIAN": "hy",
    "TAMIL": "ta",
    "TELUGU": "te",
    "KANNADA": "kn",
    "MALAYALAM": "ml",
    "GUJARATI": "gu",
    "SINHALA": "si",
    "KHMER": "km",
    "LAO": "lo",
    "MYANMAR": "my",
}
"""The one language of today that a script is for, by the first word of its letters' names."""
MIN_LETTER_SHARE = 2 / 3
"""The share of letters of one language from which texts are taken to be in it."""
MIN_KANA_SHARE = 0.1
"""Texts with this share of kana are in Japanese, and their Chinese characters too."""
MAX_LETTERS = 20_000
"""The number of first letters by which a language is found."""


class ScoreSettings(NamedTuple):
    """How a user wants the scores of tables to be read."""

    scale: tuple[float, float] | None = None
    """The lowest and the highest possible score; None to find them."""
    drop_unscored: bool = False
    """Whether rows without a score are left out."""


def check_targets(
    split_tables: SplitTables,
    roles: ColumnRoles,
    target: DataColumn,
    settings: ScoreSettings,
    *,
    labels: bool,
) -> None:
    """Check that all cells of the target are scores on the scale, or else labels.

    Labels must be numbers too if most of them are, or the column is called like scores.

    Args:
        split_tables: The tables, whose rows with other cells a message names.
        roles: The roles of the columns.
        target: The column of the target.
        settings: How scores are read.
        labels: Whether the target is a label, whatever it looks like.

    Raises:
        DataError: Some cells are neither; names them all, or the first ones if they are many.
    """
    is_called_score = len(roles.sentences) == 2 and plain_name(str(target.key)) in GOLD_NAMES
    # A column counts as numbers if most of its cells are.
    is_score = roles.is_gold or (not labels and (target.is_number or is_called_score))
    has_commas = has_decimal_commas(target.cells)
    messages: list[str] = []
    for table in split_tables.distinct_tables():
        position = table.column_position(target.key)
        notes: dict[int, str] = {}
        for row, cells in enumerate(table.rows):
            cell = (cells[position] or "").strip()
            if roles.is_gold and settings.drop_unscored and is_missing(cell):
                continue
            if not cell:
                notes[row] = "empty"
            elif is_score and (cell in target.non_numbers or ("," in cell and not has_commas)):
                notes[row] = format_field(cell)
            elif roles.is_gold and settings.scale is not None:
                low, high = settings.scale
                if not low <= float(cell.replace(",", ".")) <= high:
                    notes[row] = f"{format_field(cell)} is not in {low:g} to {high:g}"
        if notes:
            messages.append(table.describe_rows(notes))
    if not messages:
        return
    kind = "score" if is_score else "label"
    hints = ["mend them"]
    if roles.is_gold:
        hints.append("`drop_unscored` leaves out rows without a score")
    if is_score:
        hints.append("`labels` takes all that the column holds for classes")
    raise DataError(
        f"column {target.key!r} has rows without a valid {kind}: {'; '.join(messages)}",
        hint="; ".join(hints),
    )


def describe_reading(
    split_tables: SplitTables, target: DataColumn, settings: ScoreSettings, *, is_gold: bool
) -> list[str]:
    """Return how the tables are read where there was a choice, a part of a sentence each.

    Args:
        split_tables: The tables.
        target: The column of the target.
        settings: How scores are read.
        is_gold: Whether the target is a score.
    """
    lines = [
        f"{Path(table.path).name} is read from {table.reading}"
        for table in split_tables.distinct_tables()
        if table.reading
    ]
    if not is_gold:
        return lines
    if has_decimal_commas(target.cells):
        lines.append("the scores have decimal commas")
    if settings.scale is not None:
        low, high = settings.scale
        lines.append(f"the scale {low:g} to {high:g} was given")
    n_missing = sum(map(is_missing, target.cells))
    if settings.drop_unscored and n_missing:
        rows = format_count(len(target.cells), "row")
        lines.append(f"{n_missing:,} of {rows} have no score and are left out")
    return lines


def find_languages(columns: Iterable[Sequence[str]]) -> list[str]:
    """Return the languages of columns of texts, if each is of a script for one language only.

    Args:
        columns: The columns of sentences.

    Returns:
        The two-letter codes of the languages, each once; empty if one of them is not sure.
    """
    languages = [_find_language(texts) for texts in columns]
    return list(dict.fromkeys(languages)) if all(languages) else []


def _find_language(texts: Sequence[str]) -> str:
    """Return the code of the language that most letters of some texts are for; empty if none."""
    letters = islice(filter(str.isalpha, chain.from_iterable(texts)), MAX_LETTERS)
    counts = Counter(
        LANGUAGE_BY_SCRIPT.get(unicodedata.name(letter, "").partition(" ")[0], "")
        for letter in letters
    )
    n_letters = counts.total()
    if counts["ja"] >= MIN_KANA_SHARE * n_letters:
        counts["ja"] += counts.pop("zh", 0)
    language, count = max(counts.items(), key=lambda pair: pair[1], default=("", 0))
    return language if count >= MIN_LETTER_SHARE * n_letters else ""
