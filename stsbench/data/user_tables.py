"""Checks of a user's tables before a card is drafted, and how they are read: its note says it."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from stsbench.core.errors import DataError
from stsbench.core.wording import format_count
from stsbench.data.readers.columns import GOLD_NAMES, ColumnRoles, plain_name
from stsbench.data.readers.text import format_field, has_decimal_commas, is_missing
from stsbench.data.recognition import DataColumn, SplitTables

LANGUAGE_BY_SCRIPT = dict(
    script_and_language.split(":")
    for script_and_language in """
    HIRAGANA:ja KATAKANA:ja HANGUL:ko CJK:zh THAI:th GREEK:el HEBREW:he GEORGIAN:ka ARMENIAN:hy
    TAMIL:ta TELUGU:te KANNADA:kn MALAYALAM:ml GUJARATI:gu SINHALA:si KHMER:km LAO:lo
    MYANMAR:my
    """.split()
)
"""The one language of today that a script is for, by the first word of its letters' names."""
MIN_LETTER_SHARE = 2 / 3
"""The share of letters, or of texts, of one language from which all are taken to be in it."""
MIN_KANA_SHARE = 0.1
"""Texts with this share of kana are in Japanese, and their Chinese characters too."""
MAX_LETTERS = 20_000
"""The number of first letters by which a script is found."""
MIN_TEXTS, MAX_TEXTS = 20, 200
"""The texts of which py3langid (extra ``language``) must find most in one language; less is not
sure."""


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

    def describe_problem(cell: str) -> str:
        """Return a note on a cell that is not valid; empty if it is valid."""
        if roles.is_gold and settings.drop_unscored and is_missing(cell):
            return ""
        if not cell:
            return "empty"
        if is_score and (cell in target.non_numbers or ("," in cell and not has_commas)):
            return format_field(cell)
        if roles.is_gold and settings.scale is not None:
            low, high = settings.scale
            if not low <= float(cell.replace(",", ".")) <= high:
                return f"{format_field(cell)} is not in {low:g} to {high:g}"
        return ""

    messages: list[str] = []
    for table in split_tables.distinct_tables():
        position = table.column_position(target.key)
        notes: dict[int, str] = {}
        for row, cells in enumerate(table.rows):
            if problem := describe_problem((cells[position] or "").strip()):
                notes[row] = problem
        if notes:
            messages.append(table.describe_rows(notes))
    if messages:
        raise _invalid_targets_error(target, messages, is_gold=roles.is_gold, is_score=is_score)


def _invalid_targets_error(
    target: DataColumn, messages: Sequence[str], *, is_gold: bool, is_score: bool
) -> DataError:
    """Return the error to raise if some cells of the target are not valid.

    Args:
        target: The column of the target.
        messages: The rows of each table that are not valid.
        is_gold: Whether the target is read as a score.
        is_score: Whether its cells must be numbers.
    """
    kind = "score" if is_score else "label"
    hints = ["mend them"]
    if is_gold:
        hints.append("`drop_unscored` leaves out rows without a score")
    if is_score:
        hints.append("`labels` takes all that the column holds for classes")
    return DataError(
        f"column {target.key!r} has rows without a valid {kind}: {'; '.join(messages)}",
        hint="; ".join(hints),
    )


def describe_reading(
    split_tables: SplitTables, target: DataColumn, settings: ScoreSettings, *, is_gold: bool
) -> list[str]:
    """Return the choices that were made to read the tables, each as a part of a sentence.

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
    """Return the languages of columns of texts, if each is surely of one language.

    It is if most of its letters are of a script for one language, or if py3langid is installed and
    finds most of its first texts in one.

    Args:
        columns: The columns of sentences.

    Returns:
        The codes of the languages, each once; empty if one of them is not sure.
    """
    languages = [_find_script_language(texts) or _detect_language(texts) for texts in columns]
    return list(dict.fromkeys(languages)) if all(languages) else []


def _find_script_language(texts: Sequence[str]) -> str:
    """Return the code of the language whose script most letters of some texts are in.

    Empty if no such language has enough of the letters.
    """
    letters = islice(filter(str.isalpha, chain.from_iterable(texts)), MAX_LETTERS)
    counts: Counter[str] = Counter()
    for letter in letters:
        # The name of a character begins with its script: "CYRILLIC SMALL LETTER A".
        script, _, _ = unicodedata.name(letter, "").partition(" ")
        counts[LANGUAGE_BY_SCRIPT.get(script, "")] += 1
    n_letters = counts.total()
    if counts["ja"] >= MIN_KANA_SHARE * n_letters:
        # Japanese is written in kana and Chinese characters.
        counts["ja"] += counts.pop("zh", 0)
    language, count = max(counts.items(), key=lambda pair: pair[1], default=("", 0))
    return language if count >= MIN_LETTER_SHARE * n_letters else ""


def _detect_language(texts: Sequence[str]) -> str:
    """Return the code of the language of most texts, each by itself; empty if that is not sure."""
    distinct_texts = list(islice(dict.fromkeys(texts), MAX_TEXTS))
    try:
        import py3langid
    except ImportError:
        return ""
    if len(distinct_texts) < MIN_TEXTS:
        return ""
    counts = Counter(py3langid.classify(text)[0] for text in distinct_texts)
    language, count = counts.most_common(1)[0]
    # Its class for numbers, codes and other text in no language.
    is_no_language = language == "zxx"
    is_sure = count >= MIN_LETTER_SHARE * len(distinct_texts) and not is_no_language
    return str(language) if is_sure else ""
