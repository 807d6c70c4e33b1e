"""Which rows of a table are shown, and in which order: by language, size, licence and column."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from stsbench.boards.published.encoder_facts import format_parameters
from stsbench.boards.tables.table import (
    AVERAGE,
    Row,
    Show,
    Table,
    TableColumn,
    TableNumber,
)
from stsbench.core.errors import AdvisingNote, StsbenchError, UnknownName, look_up
from stsbench.core.grouping import group_by
from stsbench.core.wording import format_some
from stsbench.results.folder import make_rescore_remedy
from stsbench.results.record import Result

LANGUAGES_FILE = Path(__file__).parent / "languages.json"
MEMBER_CODES = {"zho": "cmn", "ara": "arb"}
"""The code of the language that a code of several languages stands for in STS."""
SIZE_PATTERN = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kKmMbB]?)")
UNIT_SIZES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


class Language(NamedTuple):
    """A language, as ISO 639 names it."""

    code: str
    """Its code of three letters."""
    name: str
    short_code: str
    """Its code of two letters; empty if it has none."""


@cache
def read_languages() -> Mapping[str, Language]:
    """Read all languages that tasks or models name, by their code of three letters."""
    names_by_code: dict[str, list[str]] = json.loads(LANGUAGES_FILE.read_bytes())
    return {code: Language(code, *names) for code, names in names_by_code.items()}


def find_language(text: str) -> str:
    """Return the code of three letters of a language, from what a user has typed.

    For the code of several languages it is that of the one which is meant: ``cmn`` for ``zho``.

    Args:
        text: The English name of the language, or its code of two or of three letters, in any case.

    Raises:
        UnknownName: No task and no model names such a language; the message has the nearest name.
    """
    for language in read_languages().values():
        if text.lower() in (language.code, language.short_code, language.name.lower()):
            return _member_code(language.code)
    names = [language.name for language in read_languages().values()]
    raise UnknownName("language", text, names, hint="give a name or a code, such as German or de")


def _member_code(code: str) -> str:
    """Return a code without script, and that of the one language for a code of several."""
    language = code.partition("-")[0]
    return MEMBER_CODES.get(language, language)


def parse_size(text: str) -> int:
    """Return the number of parameters of a network that a user has typed.

    Args:
        text: ``500M`` for 500 million, ``1.5B`` for 1,500 million, or digits; the units are K, M
            and B, in upper or lower case.

    Raises:
        StsbenchError: The text is no such number.
    """
    match = SIZE_PATTERN.fullmatch(text.strip())
    if match is None:
        raise StsbenchError(
            "no number of parameters",
            hint="give 500M, 1.5B or digits",
            parameter="max_parameters",
            value=text,
        )
    return round(float(match["number"]) * UNIT_SIZES[match["unit"].lower()])


MILLISECONDS = "ms"
_fact = partial(TableColumn, kind="fact", better="", in_points=False)
FACT_COLUMNS: Mapping[str, TableColumn] = {
    "size": _fact(key="size", head="Size"),
    "dimensions": _fact(key="dimensions", head="Dims", decimals=0),
    MILLISECONDS: _fact(key=MILLISECONDS, head="ms", better="low"),
}
"""The columns of facts that a user may add to a table, by their names."""


def add_fact_columns(table: Table, names: Sequence[str], results: Sequence[Result]) -> Table:
    """Add columns of facts about its encoders, such as their size, to a table.

    A note says how times were measured, and one for each fact that no row has says so.

    Args:
        table: The table.
        names: The facts, keys of ``FACT_COLUMNS``. A column that the table has already is not added
            again.
        results: All results of the encoders, also on tasks that are not in the table.

    Raises:
        UnknownName: There is no such column.
    """
    heads = {column.head for column in table.columns}
    requested = [look_up("column", name.lower(), FACT_COLUMNS) for name in names]
    columns = [column for column in dict.fromkeys(requested) if column.head not in heads]
    # Of one encoder and state, times and dimensions are alike.
    results_by_state = group_by(results, lambda result: (result.encoder, result.state))

    def find_runs(row: Row) -> list[dict[str, Any]]:
        """Return what all results of the encoder of a row, in the row's state, say of their runs.

        A row of clean scores, over fewer test items, has no ``results``, so that it is never
        ranked.
        """
        row_results = row.results or row.clean_results
        states = {(result.encoder, result.state) for result in row_results}
        return [result.run for state in states for result in results_by_state[state]]

    def add_facts(row: Row) -> Row:
        """Return a row with the facts of its encoder in the new ``columns``, as far as known."""
        runs = find_runs(row)
        for column in columns:
            fact = _find_fact(row, column.key, runs)
            if fact is not None:
                row = row.with_fact(column.key, fact)
        return row

    with_facts = table.map_rows(add_facts)
    rows = with_facts.rows()
    notes = list(table.notes)
    for column in columns:
        is_time = column.key == MILLISECONDS
        if not any(column.key in row.cells for row in rows):
            note = f"{column.head}: no row has it"
            if is_time:
                note = _advise_timing(f"{note}; a run of two batches or more measures it", rows)
            notes.append(note)
        elif is_time:
            runs = [run for row in rows for run in find_runs(row)]
            # An encoder that is no network has no device (None): the processor computes it.
            devices = {run["device"] or "cpu" for run in runs if run.get("ms_per_sentence")}
            names = ", ".join(sorted(devices))
            notes.append(f"ms: milliseconds to embed a sentence, in batches, measured on {names}")
    return replace(with_facts, columns=[*table.columns, *columns], notes=notes)


def _find_fact(row: Row, name: str, runs: Sequence[Mapping[str, Any]]) -> TableNumber | None:
    """Return a fact about the encoder of a row, such as its size; None if it is not known.

    Args:
        row: The row. ``row.traits`` are facts from its card.
        name: The key of the fact's column: ``size`` for the number of parameters, ``ms`` for
            milliseconds to embed a sentence, or another key of the runs.
        runs: What the encoder's results record about their runs. Of several numbers the median
            counts; 0 counts as unknown.
    """
    if name == "size":
        n_parameters = row.traits.parameters
        if not n_parameters:
            return None
        return TableNumber(n_parameters, text=format_parameters(n_parameters))
    key = "ms_per_sentence" if name == MILLISECONDS else name
    values = [float(run[key]) for run in runs if run.get(key)]
    return TableNumber(statistics.median(values)) if values else None


def _advise_timing(note: str, rows: Sequence[Row]) -> str:
    """Return a note with the advice to score rows again without stored embeddings.

    Args:
        note: The note.
        rows: Rows that lack a fact. The advice is on those without a time all of whose runs have
            found stored embeddings; without such a row the note is returned as it is.

    Returns:
        A str, or an AdvisingNote: a str that has the remedy as an attribute.
    """
    untimed = [
        result
        for row in rows
        if MILLISECONDS not in row.cells
        and all(result.run.get("from_store") for result in row.results)
        for result in row.results
    ]
    if not untimed:
        return note
    rescore = make_rescore_remedy(untimed)
    # ``store=None``: without stored embeddings.
    return AdvisingNote(
        f"{note}; embeddings that were stored already have no time",
        rescore._replace(arguments={**rescore.arguments, "store": None}),
    )


@dataclass(frozen=True, kw_only=True)
class RowFilter:
    """A choice of a table's rows, and their order.

    Attributes:
        language: The language that a model must be made for, as a code of three letters; empty for
            any.
        max_parameters: The most parameters; None for any number.
        license: The beginning of the licence's name, whatever its case; empty for any.
        only_open: Show only models whose weights can be had.
        sort: The key or head of the column to sort by; empty for the table's own order.
        top: The number of rows to show of each group; None for all.
        columns: The columns of facts to add, keys of ``FACT_COLUMNS``.
        max_ms: The most milliseconds to embed a sentence; None for any number.
    """

    columns: Sequence[str] = ()
    max_ms: float | None = None
    language: str = ""
    max_parameters: int | None = None
    license: str = ""
    only_open: bool = False
    sort: str = ""
    top: int | None = None

    @classmethod
    def from_texts(
        cls,
        *,
        language: str | None,
        max_parameters: str | int | None,
        license: str | None,  # noqa: A002 - the name of the argument for users
        only_open: bool,
        sort: str | None,
        top: int | None,
        columns: Sequence[str],
        max_ms: float | None,
    ) -> RowFilter:
        """Make a filter of a table's rows from what a user has typed.

        None, False and an empty list mean that the user did not ask for it.

        Args:
            language: The encoder must handle this language, by its name or code.
            max_parameters: The maximum number of parameters, such as ``500M`` or 500000000.
            license: The beginning of the encoder's licence.
            only_open: The encoder must have open weights.
            sort: The column to sort by.
            top: The number of rows of each group to show.
            columns: Columns of facts to add.
            max_ms: The maximum time to embed a sentence, in milliseconds; its column is added.

        Raises:
            UnknownName: There is no such language.
            StsbenchError: The size is no number of parameters.
        """
        return cls(
            language=find_language(language) if language else "",
            max_parameters=None if max_parameters is None else parse_size(str(max_parameters)),
            license=license or "",
            only_open=only_open,
            sort=sort or "",
            top=top,
            columns=[*columns, *([MILLISECONDS] if max_ms is not None else [])],
            max_ms=max_ms,
        )

    def apply(self, table: Table, show: Show | None, results: Sequence[Result]) -> Table:
        """Return a table with the rows that fit this filter only, sorted, and with added columns.

        ``self.columns`` are the columns of facts to add, ``self.sort`` the column to sort by (empty
        for none), and ``self.top`` the number of rows of each group (None for all). A note says how
        many rows were omitted, for they do not fit or are below the top ones. Groups without a row
        are omitted. ``show`` are the kinds of numbers that the user wants to see, ``results`` all
        results of the encoders, which hold facts about them.

        Raises:
            UnknownName: There is no such column to sort by or to add.
        """
        # A fact to sort by is shown as well; FACT_COLUMNS has the columns of facts by their names.
        sort_facts = [self.sort.lower()] if self.sort.lower() in FACT_COLUMNS else []
        table = add_fact_columns(table, [*self.columns, *sort_facts], results)
        # None also if the average is named, and the tasks have no mean.
        sort_column = self._find_column(table) if self.sort else None
        n_omitted = 0
        unknown_rows: list[Row] = []
        groups = []
        for group in table.groups:
            fitting_rows = []
            for row in group.rows:
                # For each requested fact True, False, or None if it is not known.
                checks = self._check_facts(row)
                if all(checks):
                    fitting_rows.append(row)
                elif False not in checks:
                    # No fact speaks against the row, but one is not known.
                    unknown_rows.append(row)
            if sort_column:
                fitting_rows = sort_rows(fitting_rows, sort_column, show)
            chosen_rows = fitting_rows[: self.top]
            n_omitted += len(group.rows) - len(chosen_rows)
            if chosen_rows:
                groups.append(replace(group, rows=chosen_rows))
        notes = list(table.notes)
        table = replace(table, groups=groups)
        if self.sort and sort_column is None:
            notes.append(f"not sorted by {AVERAGE}: these tasks have no mean")
        if sort_column and not any(_find_number(row, sort_column, show) for row in table.rows()):
            is_mean = sort_column.kind in ("average", "exact")
            reason = "no row has scores of all tasks" if is_mean else "no row has one"
            notes.append(f"not sorted by {sort_column.key}: {reason}")
        # The last note, because it is the reason if no row is shown.
        if n_omitted:
            notes.append(self._describe_omitted(n_omitted, unknown_rows))
        return replace(table, notes=notes)

    def _describe_omitted(self, n_omitted: int, unknown_rows: Sequence[Row]) -> str:
        """Return a note on the rows that are not shown.

        If some have no time because their embeddings were stored already, the note has a remedy: to
        score them again without stored embeddings.

        Args:
            n_omitted: How many rows are not shown.
            unknown_rows: Those of them that have a fact which is not known.

        Returns:
            A str, or an AdvisingNote: a str that has the remedy as an attribute.
        """
        rows = "1 row is" if n_omitted == 1 else f"{n_omitted} rows are"
        unknown = ""
        if unknown_rows:
            labels = format_some([row.label for row in unknown_rows])
            unknown = f", {len(unknown_rows)} of them because the facts are not known: {labels}"
        note = f"{rows} not shown{unknown} ({self.describe()})"
        return note if self.max_ms is None else _advise_timing(note, unknown_rows)

    def _check_facts(self, row: Row) -> list[bool | None]:
        """Return whether the encoder of a row has each fact that this filter asks for.

        The filter asks for a language, a maximum number of parameters, a licence (its beginning),
        open weights or a time; attributes that are empty, None or False ask for nothing.

        Args:
            row: The row.

        Returns:
            True or False for each fact that is asked for, or None if it is not known.
        """
        traits = row.traits
        checks: list[bool | None] = []
        if self.language:
            # Some codes stand for several languages, of which one is meant: ``zho`` for ``cmn``.
            # ``self.language`` is the code of that one.
            codes = {_member_code(code) for code in traits.languages}
            checks.append(self.language in codes if codes else None)
        if self.max_parameters is not None:
            n_parameters = traits.parameters
            checks.append(None if n_parameters is None else n_parameters <= self.max_parameters)
        if self.license:
            has_license = traits.license.lower().startswith(self.license.lower())
            checks.append(has_license if traits.license else None)
        if self.only_open:
            # True, False, or None if it is not known.
            checks.append(traits.is_open)
        if self.max_ms is not None:
            milliseconds = _find_number(row, FACT_COLUMNS[MILLISECONDS], show=None)
            checks.append(None if milliseconds is None else milliseconds.value <= self.max_ms)
        return checks

    def describe(self) -> str:
        """Describe which rows this filter shows: ``German, at most 500M parameters``.

        Each attribute that is set adds a part; columns and the order of rows are not named.
        """
        words = []
        if self.language:
            words.append(read_languages()[self.language].name)
        if self.max_parameters is not None:
            words.append(f"at most {self.max_parameters / 1e6:g}M parameters")
        if self.license:
            words.append(f"licence {self.license}")
        if self.only_open:
            words.append("open weights")
        if self.max_ms is not None:
            words.append(f"at most {self.max_ms:g} ms a sentence")
        if self.top is not None:
            words.append(f"the first {self.top} of each group")
        return ", ".join(words)

    def _find_column(self, table: Table) -> TableColumn | None:
        """Return the column of a table to sort by, which the user has named in ``self.sort``.

        The name may be the key or the head of the column, in upper or lower case. None for the
        average of tasks that have no mean.

        Raises:
            UnknownName: The table has no such column.
        """
        for column in table.columns:
            if self.sort.lower() in (column.key.lower(), column.head.lower()):
                return column
        if self.sort.lower() == AVERAGE:
            return None
        keys = [column.key for column in table.columns]
        choices = [*keys, *FACT_COLUMNS]
        raise UnknownName("column", self.sort, choices, hint=f"has {', '.join(choices)}")


def _find_number(row: Row, column: TableColumn, show: Show | None) -> TableNumber | None:
    """Return the number to sort a row by; None if it has none.

    It is the measured one if there is one, else the published one; or their difference if a user
    wants to see differences (``show``) of scores.
    """
    cell = row.cell(column.key)
    if show == "difference" and column.kind != "fact":
        return cell.difference
    return cell.measured or cell.published


def sort_rows(rows: Sequence[Row], column: TableColumn, show: Show | None) -> list[Row]:
    """Return rows sorted by a column: the best number first, and rows without a number last.

    A row's number is the measured one, else the published one; for scores it is their difference
    if ``show`` is ``difference``. The best is the highest if ``column.better`` is ``high`` or the
    column is of differences to a row; otherwise, as for sizes and ranks, the lowest comes first.
    Rows with equal numbers keep their order.
    """

    def sort_key(row: Row) -> tuple[bool, float]:
        number = _find_number(row, column, show)
        if number is None:
            return True, 0.0
        is_descending = column.better == "high" or column.kind == "delta"
        return False, -number.value if is_descending else number.value

    return sorted(rows, key=sort_key)
