"""Files to lines, with every way a text file goes wrong told apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from stsbench.errors import DataError

UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""How a file begins that is UTF-16."""
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
"""A number as many countries write it, and no reader of numbers takes it."""


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
        raise DataError(f"{path}: the file is empty; restore it")
    return content


def read_text(path: Path, *, encoding: str = "utf-8", mixed_ends: bool = False) -> str:
    r"""Return a file's text, ``\r\n`` as ``\n`` where every line ends so (SICK's test file does).

    Args:
        path: the file.
        encoding: what its bytes are.
        mixed_ends: whether lines may end in either: rows of a table in one, lines within its quoted cells in the other.

    Raises:
        DataError: a NUL byte, a carriage return elsewhere, or bytes that are not the encoding.
    """
    content = read_bytes(path)
    if content.startswith(UTF16):
        raise DataError(f"{path}: is UTF-16; save it as UTF-8")
    if mixed_ends or content.count(b"\r\n") == content.count(b"\n"):
        content = content.replace(b"\r\n", b"\n")
    for byte, what in ((b"\x00", "a NUL byte"), (b"\r", "a carriage return (mixed line ends?)")):
        if (at := content.find(byte)) >= 0:
            line = content.count(b"\n", 0, at) + 1
            raise DataError(f"{path}: line {line}: {what}; mend it, or restore the file")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}: line {line}: not valid {encoding.upper()} (byte 0x{content[error.start]:02x}); "
            f"is it Latin-1 or another encoding? save the file as {encoding.upper()}"
        ) from error


def read_lines(path: Path, *, encoding: str = "utf-8") -> list[str]:
    r"""Return a file's lines, split at ``\n`` alone: other Unicode line ends are text."""
    lines = read_text(path, encoding=encoding).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def parse_number(text: str, *, where: str, what: str) -> float:
    """Parse a finite number; raises DataError that begins with ``where``: the file and the line."""
    try:
        # Python would pass over underscores between digits.
        value = float(text) if "_" not in text else float("nan")
    except ValueError:
        value = float("nan")
    if not -1e300 < value < 1e300:
        comma = "; write a decimal point, not a comma" if DECIMAL_COMMA.fullmatch(text) else ""
        raise DataError(f"{where}: {what} '{text.strip()[:40]}' is not a number{comma}")
    return value
