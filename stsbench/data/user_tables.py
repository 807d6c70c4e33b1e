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
from stsbench.data.readers.text import DECIMAL_COMMA, format_field, has_decimal_commas, is_missing
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
MIN_LANGUAGE_SHARE = 2 / 3
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
    """Check the cells of the target, the column that is scored.

    * No cell may be empty, but for missing scores that the user wants to leave out: these may also
      be texts such as ``NA``.
    * Gold scores must be numbers, and on the scale if the user gives one.
    * Labels must be numbers too if most of them are, or if the column is called like scores; not if
      the user says that they are labels.

    Args:
        split_tables: The tables of all splits.
        roles: The columns of the sentences, and whether the target is a gold score.
        target: The column of the target in all tables together.
        settings: The scale of the scores, or None, and whether rows without one are dropped.
        labels: Whether the user says that the target is a label, whatever it looks like.

    Raises:
        DataError: Some cells are not valid; the message names their rows.
    """
    is_gold = roles.is_gold
    is_called_score = len(roles.sentences) == 2 and plain_name(str(target.key)) in GOLD_NAMES
    # A column counts as numbers if most of its cells are.
    looks_like_score = target.is_number or is_called_score
    need_numbers = is_gold or (looks_like_score and not labels)
    has_commas = has_decimal_commas(target.cells)
    messages: list[str] = []
    # The file and line of each cell with a decimal point.
    with_point: list[str] = []
    for table in split_tables.distinct_tables():
        position = table.column_position(target.key)
        # Position of a row -> what is wrong with its cell.
        notes: dict[int, str] = {}
        for row, cells in enumerate(table.rows):
            cell = (cells[position] or "").strip()
            if is_gold and settings.drop_unscored and is_missing(cell):
                continue
            if "." in cell and not is_missing(cell):
                with_point.append(table.locate_row(row))
            # What is wrong with the cell; empty if nothing is.
            problem = _describe_problem(
                cell, target, need_numbers=need_numbers, has_commas=has_commas
            )
            if not problem and is_gold and settings.scale is not None:
                problem = _describe_beyond_scale(cell, settings.scale)
            if problem:
                notes[row] = problem
        if notes:
            messages.append(table.describe_rows(notes))
    if messages:
        raise _invalid_targets_error(
            target, messages, with_point, settings, is_gold=is_gold, need_numbers=need_numbers
        )


def _describe_problem(
    cell: str, target: DataColumn, *, need_numbers: bool, has_commas: bool
) -> str:
    """Return what is wrong with a cell of gold scores or labels; empty if nothing is.

    Args:
        cell: The cell, without blanks around it.
        target: The column that it is of; ``non_numbers`` are its cells that are no numbers.
        need_numbers: Whether the cells of the column must be numbers.
        has_commas: Whether the numbers of the column have decimal commas.
    """
    if not cell:
        return "empty"
    has_odd_comma = "," in cell and not has_commas
    if need_numbers and (cell in target.non_numbers or has_odd_comma):
        return format_field(cell)
    return ""


def _describe_beyond_scale(score: str, scale: tuple[float, float]) -> str:
    """Return a note on a score that is not on the scale; empty if it is.

    Args:
        score: The score as written, perhaps with a decimal comma.
        scale: The lowest and the highest possible score.
    """
    low, high = scale
    is_on_scale = low <= float(score.replace(",", ".")) <= high
    return "" if is_on_scale else f"{format_field(score)} is not in {low:g} to {high:g}"


def _invalid_targets_error(
    target: DataColumn,
    messages: Sequence[str],
    with_point: Sequence[str],
    settings: ScoreSettings,
    *,
    is_gold: bool,
    need_numbers: bool,
) -> DataError:
    """Return the error to raise if some cells of the target, the scored column, are not valid.

    Args:
        target: The column.
        messages: For each table, the rows whose cells are not valid.
        with_point: The file and line of each cell with a decimal point.
        settings: How the user wants scores to be read.
        is_gold: Whether the target is read as a gold score.
        need_numbers: Whether its cells must be numbers, also if they are read as labels.
    """
    kind = "score" if need_numbers else "label"
    hints = ["mend them, or give another `scale`" if settings.scale else "mend them"]
    if need_numbers and with_point and any(map(DECIMAL_COMMA.fullmatch, target.cells)):
        hints.append(f"decimal commas count only if no score has a point, as in {with_point[0]}")
    if is_gold and not settings.drop_unscored:
        hints.append("`drop_unscored` leaves out rows without a score")
    if need_numbers:
        hints.append("`labels` takes all that the column holds for classes")
    return DataError(
        f"column {target.key!r} has rows without a valid {kind}: {'; '.join(messages)}",
        hint="; ".join(hints),
    )


def describe_reading(
    split_tables: SplitTables, target: DataColumn, settings: ScoreSettings, *, is_gold: bool
) -> list[str]:
    """Return notes on how tables were read, where there was a choice, such as the encoding.

    Args:
        split_tables: The tables.
        target: The column of gold scores or labels.
        settings: How the user wants scores to be read: their ``scale``, or None, and whether to
            ``drop_unscored`` rows.
        is_gold: Whether the target is a gold score.

    Returns:
        One clause each, for example "the scores have decimal commas".
    """
    notes = [
        # An encoding that is not UTF-8, or the sheet of a workbook; otherwise empty.
        f"{Path(table.path).name} is read from {table.reading}"
        for table in split_tables.distinct_tables()
        if table.reading
    ]
    if not is_gold:
        return notes
    if has_decimal_commas(target.cells):
        notes.append("the scores have decimal commas")
    if settings.scale is not None:
        low, high = settings.scale
        notes.append(f"the scale {low:g} to {high:g} was given")
    n_missing = sum(map(is_missing, target.cells))
    if settings.drop_unscored and n_missing:
        row_count = format_count(len(target.cells), "row")
        notes.append(f"{n_missing:,} of {row_count} have no score and are left out")
    return notes


def find_languages(columns: Iterable[Sequence[str]]) -> list[str]:
    """Return the languages of columns of texts, if each is surely of one language.

    A column is of a language if most of its letters are of a script for that language alone, such
    as Thai; or if the library py3langid is installed and finds most of its first texts in it.

    Args:
        columns: The columns of sentences.

    Returns:
        The codes of the languages, such as ``th``, each once; empty if a column is not sure.
    """
    languages = [_find_script_language(texts) or _detect_language(texts) for texts in columns]
    return list(dict.fromkeys(languages)) if all(languages) else []


def _find_script_language(texts: Sequence[str]) -> str:
    """Return the code of the language in whose own script most letters of some texts are.

    It is empty if less than two thirds of the letters are of one such script: Thai is one, Latin
    is not. If a tenth of them is kana, Chinese characters count as Japanese.
    """
    letters = islice(filter(str.isalpha, chain.from_iterable(texts)), MAX_LETTERS)
    # Code of a language -> number of letters; empty for letters of other scripts.
    n_by_language: Counter[str] = Counter()
    for letter in letters:
        # The name of a character begins with its script: "CYRILLIC SMALL LETTER A".
        script, _, _ = unicodedata.name(letter, "").partition(" ")
        n_by_language[LANGUAGE_BY_SCRIPT.get(script, "")] += 1
    n_letters = n_by_language.total()
    if not n_letters:
        return ""
    if n_by_language["ja"] >= MIN_KANA_SHARE * n_letters:
        # Japanese is written in kana and Chinese characters.
        n_by_language["ja"] += n_by_language.pop("zh", 0)
    language, n_most = max(n_by_language.items(), key=lambda pair: pair[1], default=("", 0))
    return language if n_most >= MIN_LANGUAGE_SHARE * n_letters else ""


def _detect_language(texts: Sequence[str]) -> str:
    """Return the code of the language that py3langid finds for most of the first texts.

    It is empty if py3langid is not installed, if there are fewer than ``MIN_TEXTS`` (20) different
    texts, or if less than two thirds of them are in one language.
    """
    distinct_texts = list(islice(dict.fromkeys(texts), MAX_TEXTS))
    try:
        import py3langid
    except ImportError:
        return ""
    if len(distinct_texts) < MIN_TEXTS:
        return ""
    # classify() returns the code and a score.
    counts = Counter(py3langid.classify(text)[0] for text in distinct_texts)
    language, count = counts.most_common(1)[0]
    # "zxx" is its code for numbers and other text in no language.
    is_sure = language != "zxx" and count >= MIN_LANGUAGE_SHARE * len(distinct_texts)
    return str(language) if is_sure else ""
