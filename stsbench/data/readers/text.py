"""Files read as text, and numbers in it; each failure has a message of its own."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from pathlib import Path

from stsbench.core.errors import DataError
from stsbench.core.files import read_bounded

BOM = "\ufeff"
"""A byte order mark, which is no part of the text."""
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
"""A number as many countries write it, which Python cannot parse."""


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes; raises DataError if it is missing or empty."""
    content = read_bounded(path)
    if not content:
        raise DataError(f"{path}: the file is empty; restore it")
    return content


def normalise_text(
    path: Path,
    content: bytes,
    *,
    encoding: str = "utf-8",
    mixed_ends: bool = False,
    forbidden: bytes = b"\0\r",
) -> bytes:
    r"""Check the bytes of a text, and return them with ``\r\n`` as ``\n`` if every line ends so.

    The lines of SICK's test file do. Otherwise line ends stay as they are.

    Args:
        path: The file, for messages.
        content: The bytes of the file.
        encoding: The encoding of the text.
        mixed_ends: Accept both line ends in one file, as rows of a table may end in one, and lines
            within its quoted cells in the other.
        forbidden: The characters that the text may not contain, of NUL and the carriage return.

    Raises:
        DataError: The text is UTF-16, contains a forbidden character, or bytes that are not valid
            in the encoding; the message names the line.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: is UTF-16; save it as UTF-8")
    if mixed_ends or content.count(b"\r\n") == content.count(b"\n"):
        content = content.replace(b"\r\n", b"\n")
    for byte in forbidden:
        position = content.find(byte)
        if position >= 0:
            line = content.count(b"\n", 0, position) + 1
            is_nul = byte == 0
            problem = "a NUL byte" if is_nul else "a carriage return (mixed line ends?)"
            raise DataError(f"{path}: line {line}: {problem}; mend it, or restore the file")
    try:
        content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        encoding_name = encoding.upper()
        raise DataError(
            f"{path}: line {line}: not valid {encoding_name} "
            f"(byte 0x{content[error.start]:02x}); "
            f"is it Latin-1 or another encoding? save the file as {encoding_name}"
        ) from error
    return content


def read_text(path: Path, *, encoding: str = "utf-8", mixed_ends: bool = False) -> str:
    """Return a file's text, with its line ends as :func:`normalise_text` leaves them.

    Args:
        path: The file.
        encoding: The encoding of the text.
        mixed_ends: Accept both line ends in one file.

    Raises:
        DataError: The file is missing, empty, or no valid text.
    """
    content = read_bytes(path)
    return normalise_text(path, content, encoding=encoding, mixed_ends=mixed_ends).decode(encoding)


def read_lines(path: Path, *, encoding: str = "utf-8") -> list[str]:
    r"""Return a file's lines, split at ``\n`` alone: other Unicode line ends are text."""
    lines = read_text(path, encoding=encoding).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def parse_number(text: str, *, where: str, name: str) -> float:
    """Parse a number between -1e300 and 1e300.

    Args:
        text: The number as written.
        where: The file and the line, with which the message begins.
        name: The number as the message calls it, for example ``gold score``.

    Raises:
        DataError: The text is no number, or a larger one.
    """
    value = math.nan
    # Python would accept underscores between digits.
    if "_" not in text:
        with suppress(ValueError):
            value = float(text)
    # NaN is not in the range either.
    if not -1e300 < value < 1e300:
        hint = "; write a decimal point, not a comma" if DECIMAL_COMMA.fullmatch(text) else ""
        raise DataError(f"{where}: {name} {format_field(text)} is not a number{hint}")
    return value


def format_field(text: str) -> str:
    """Return a number or tag for a message.

    Longer text may be confidential, so only its length is given.
    """
    text = text.strip()
    return f"'{text}'" if len(text) <= 16 else f"of {len(text)} characters"
