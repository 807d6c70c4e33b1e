"""Files to lines, with every way a text file goes wrong told apart."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stsbench.errors import CardError, DataError, did_you_mean, one_line

LISTED = 20
"""So many columns of a file are named in a message."""


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file on this machine and what its card says of it."""

    path: Path
    subset: str = ""
    label: str = ""
    pinned: bool = False
    """Whether the card gives its sha256: what the reader lets pass in it is then as released."""


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes; raises DataError where it is missing or empty."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if not content:
        raise DataError(f"{path}: the file is empty; fetch it again")
    return content


def read_text(path: Path, *, encoding: str = "utf-8") -> str:
    r"""Return a file's text, ``\r\n`` as ``\n`` where every line ends so (SICK's test file does).

    Raises:
        DataError: a NUL byte, a carriage return elsewhere, or bytes that are not the encoding.
    """
    content = read_bytes(path)
    if content.count(b"\r\n") == content.count(b"\n"):
        content = content.replace(b"\r\n", b"\n")
    for byte, what in ((b"\x00", "a NUL byte"), (b"\r", "a carriage return (mixed line ends?)")):
        if (at := content.find(byte)) >= 0:
            line = content.count(b"\n", 0, at) + 1
            raise DataError(f"{path}: line {line}: {what}; restore the file as released")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}: line {line}: not valid {encoding.upper()} (byte 0x{content[error.start]:02x})"
        ) from error


def read_lines(path: Path, *, encoding: str = "utf-8") -> list[str]:
    r"""Return a file's lines, split at ``\n`` alone: other Unicode line ends are text."""
    lines = read_text(path, encoding=encoding).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """The cells of a delimited file; ``first_line`` is the number of the first row's line."""

    path: Path
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    first_line: int

    def column(self, key: str | int) -> list[str]:
        """One column by header name or by position; raises DataError where it is missing."""
        index = self.index(key)
        for at, row in enumerate(self.rows):
            if index >= len(row):
                raise DataError(
                    f"{self.path}: line {self.first_line + at}: {len(row)} columns, column {key!r} is missing"
                )
        return [row[index] for row in self.rows]

    def check_even(self, fields: int = 0) -> None:
        """Check that every row has so many fields; default as many as the header, without one as the first row.

        Raises:
            DataError: names the first line that has more or fewer.
        """
        expected = fields or len(self.header or self.rows[0])
        for at, row in enumerate(self.rows):
            if len(row) != expected:
                raise DataError(f"{self.path}: line {self.first_line + at}: {len(row)} fields, expected {expected}")

    def index(self, key: str | int) -> int:
        """The position of a column."""
        if isinstance(key, int):
            if key < 0:
                raise CardError(f"{self.path}: column {key}: columns are counted from 0")
            return key
        if (there := list(self.header).count(key)) > 1:
            raise DataError(f"{self.path}: {there} columns are called '{key}'; give its position, or rename one")
        if not there:
            some = self.header[:LISTED]
            listed = ", ".join(some)[:300] + (", …" if len(self.header) > LISTED else "")
            raise DataError(f"{self.path}: no column '{key}' (has {listed}){did_you_mean(key, some)}")
        return list(self.header).index(key)


def read_delimited(
    path: Path, *, delimiter: str, header: bool, quoting: bool = False, encoding: str = "utf-8"
) -> TextTable:
    """Read a delimited file; without ``quoting`` a double quote is a character like any other."""
    check_delimiter(path, delimiter, quoting=quoting)
    if quoting:
        stream = io.StringIO(read_text(path, encoding=encoding), newline="")
        try:
            rows = list(csv.reader(stream, delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise DataError(f"{path}: not valid CSV: {one_line(error)}") from error
    else:
        rows = [line.split(delimiter) for line in read_lines(path, encoding=encoding)]
    names: list[str] = []
    if header:
        names, rows = [name.lstrip("\ufeff") for name in rows[0]], rows[1:]
    return TextTable(path=path, header=names, rows=rows, first_line=2 if header else 1)


def check_delimiter(path: Path, delimiter: str, *, quoting: bool) -> None:
    """A card's delimiter must part something, and be one character where cells are quoted; raises CardError."""
    if not delimiter or set(delimiter) & {"\n", "\r"} or quoting and (len(delimiter) > 1 or delimiter == '"'):
        wanted = "one character, neither a quote nor the end of a line" if quoting else "text within a line"
        raise CardError(f"{path}: delimiter {delimiter[:20]!r} separates no cells; give {wanted}, such as '\\t' or ','")


def parse_number(text: str, *, path: Path, line: int, what: str) -> float:
    """Parse a finite number; raises DataError naming the line."""
    try:
        # Python would pass over underscores between digits.
        value = float(text) if "_" not in text else float("nan")
    except ValueError:
        value = float("nan")
    if not -1e300 < value < 1e300:
        raise DataError(f"{path}: line {line}: {what} '{text.strip()[:40]}' is not a number")
    return value
