"""Which rows of a table are shown, and in which order: by language, size, licence and column."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from stsbench.boards.published.encoder_facts import format_parameters
from stsbench.boards.tables.table import (
    EncoderTraits,
    Row,
    Table,
    TableCell,
    TableColumn,
    TableNumber,
)
from stsbench.core.errors import StsbenchError, UnknownName, look_up

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
    """Return the code of three letters of a language by its name or by either code.

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
    """Return a number of parameters that is written as ``500M``, ``1.5B`` or in digits.

    Raises:
        StsbenchError: It is none.
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


def add_fact_columns(table: Table, names: Sequence[str]) -> Table:
    """Return a table with columns of facts of its encoders; a note says what the times are.

    Args:
        table: The table.
        names: Keys of ``FACT_COLUMNS``; a column that the table has already is not added again.

    Raises:
        UnknownName: There is no such column.
    """
    requested = [look_up("column", name.lower(), FACT_COLUMNS) for name in dict.fromkeys(names)]
    heads = {column.head for column in table.columns}
    columns = [column for column in requested if column.head not in heads]

    def add_facts(row: Row) -> Row:
        cells = dict(row.cells)
        for column in columns:
            number = _find_fact(row, column.key)
            if number is not None:
                cell = TableCell(measured=number) if row.results else TableCell(published=number)
                cells[column.key] = cell
        return replace(row, cells=cells)

    notes = list(table.notes)
    if any(column.key == MILLISECONDS for column in columns):
        runs = [result.run for row in table.rows() for result in row.results]
        # Without a device it is no network, which the processor alone computes.
        devices = sorted({run["device"] or "cpu" for run in runs if run.get("ms_per_sentence")})
        measured_on = f", measured on {', '.join(devices)}" if devices else ""
        notes.append(f"ms: milliseconds to embed a sentence, in batches{measured_on}")
    with_facts = table.map_rows(add_facts)
    return replace(with_facts, columns=[*table.columns, *columns], notes=notes)


def _find_fact(row: Row, name: str) -> TableNumber | None:
    """Return the fact of a row's encoder for a column of facts; None if it is not known."""
    if name == "size":
        n_parameters = row.traits.parameters
        return (
            TableNumber(n_parameters, text=format_parameters(n_parameters))
            if n_parameters
            else None
        )
    key = "ms_per_sentence" if name == MILLISECONDS else name
    values = [float(result.run[key]) for result in row.results if result.run.get(key)]
    return TableNumber(statistics.median(values)) if values else None


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
        language: str | None = None,
        max_parameters: str | int | None = None,
        license: str | None = None,  # noqa: A002 - the name of the argument for users
        only_open: bool = False,
        sort: str | None = None,
        top: int | None = None,
        columns: Sequence[str] = (),
        max_ms: float | None = None,
    ) -> RowFilter:
        """Make a choice as users write it: a language by name or code, a size such as ``500M``.

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

    def apply(self, table: Table) -> Table:
        """Return the table with the chosen rows, and a note on how many were omitted and why.

        Groups without a chosen row are omitted.

        Raises:
            UnknownName: There is no such column to sort by or to add.
        """
        table = add_fact_columns(table, self.columns)
        sort_column = self._find_column(table) if self.sort else None
        n_omitted = 0
        n_unknown = 0
        groups = []
        for group in table.groups:
            fitting_rows = []
            for row in group.rows:
                checks = [*self._check_facts(row.traits), *self._check_speed(row)]
                if all(checks):
                    fitting_rows.append(row)
                elif False not in checks:
                    # No fact speaks against the row, but one is not known.
                    n_unknown += 1
            if sort_column is not None:
                fitting_rows = sort_rows(fitting_rows, sort_column)
            chosen_rows = fitting_rows[: self.top]
            n_omitted += len(group.rows) - len(chosen_rows)
            if chosen_rows:
                groups.append(replace(group, rows=chosen_rows))
        notes = list(table.notes)
        if n_omitted:
            unknown = f", {n_unknown} of them because the facts are not known" if n_unknown else ""
            rows = "1 row is" if n_omitted == 1 else f"{n_omitted} rows are"
            notes.append(f"{rows} not shown{unknown} ({self.describe()})")
        return replace(table, groups=groups, notes=notes)

    def _check_facts(self, traits: EncoderTraits) -> list[bool | None]:
        """Return one value for each requested fact: whether it fits, or None if it is unknown."""
        checks: list[bool | None] = []
        if self.language:
            codes = {_member_code(code) for code in traits.languages}
            checks.append(self.language in codes if codes else None)
        if self.max_parameters is not None:
            n_parameters = traits.parameters
            checks.append(None if n_parameters is None else n_parameters <= self.max_parameters)
        if self.license:
            has_license = traits.license.lower().startswith(self.license.lower())
            checks.append(has_license if traits.license else None)
        if self.only_open:
            checks.append(traits.is_open)
        return checks

    def _check_speed(self, row: Row) -> list[bool | None]:
        """Return whether a row fits the requested time, or None if it is unknown."""
        if self.max_ms is None:
            return []
        milliseconds = _find_fact(row, MILLISECONDS)
        return [None if milliseconds is None else milliseconds.value <= self.max_ms]

    def describe(self) -> str:
        """Return the choice in words, for example ``German, at most 500M parameters``."""
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

    def _find_column(self, table: Table) -> TableColumn:
        """Return the column to sort by, whose key or head the user gives in any case of letters.

        Raises:
            UnknownName: The table has no such column.
        """
        for column in table.columns:
            if self.sort.lower() in (column.key.lower(), column.head.lower()):
                return column
        keys = [column.key for column in table.columns]
        raise UnknownName("column", self.sort, keys, hint=f"has {', '.join(keys)}")


def sort_rows(rows: Sequence[Row], column: TableColumn) -> list[Row]:
    """Return rows with the best number of a column first, and those without a number last.

    Sizes and standings begin with the lowest.
    """

    def sort_key(row: Row) -> tuple[bool, float]:
        cell = row.cell(column.key)
        number = cell.measured or cell.published
        if number is None:
            return True, 0.0
        is_descending = column.better == "high"
        return False, -number.value if is_descending else number.value

    return sorted(rows, key=sort_key)
