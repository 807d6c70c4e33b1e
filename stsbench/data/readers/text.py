"""Files read as text, its sentences and its numbers; each failure has a message of its own."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stsbench.core.errors import DataError
from stsbench.core.files import read_bounded

BOM = "\ufeff"
"""A byte order mark, which is no part of the text."""
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
"""A number as many countries write it, which Python cannot parse."""


_GROUPED_DIGITS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*")
"""A number that may have commas between thousands."""
MISSING = frozenset({"", "-", "–", "n/a", "#n/a", "na", "nan", "null", "none", "k.a.", "k. a."})
"""Cells that stand for a missing score, in lower case."""
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF8_CHARACTER = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}")
# In other encodings of one byte a character, or in one of several bytes, the bytes of letters mean
# symbols of cp1252, its capital letters within words, or long runs of its accented letters.
_NOT_CP1252 = re.compile(
    r"[\x80-\x9f¤¦¨¬¯¸¹ˆ˜ŠšŸŽžƒ‡†ÐðÝýÞþÿ×÷]|[À-ÿŒœ]{3}|[a-zß-ÿ][À-ÞŒ]|õ(?!e)|[^\W\d_][³¿¡¥º£]\w"
)
_LETTER = re.compile(r"[^\W\d_]")
MAX_ACCENTED_SHARE = 0.25
"""Texts in the languages that cp1252 is for have fewer accented letters, as a share of all."""


def find_encoding(content: bytes) -> str:
    """Return the encoding of a table's text: ``utf-8``, ``utf-16`` or ``cp1252``.

    * A text that begins with a byte order mark of UTF-16 is UTF-16.
    * A text is in cp1252, the encoding of Windows in Western Europe, if it is not valid UTF-8, has
      no letter in UTF-8, and its accented letters are as words of these languages have them.
    * All else counts as UTF-8.

    Args:
        content: The bytes of the file.
    """
    if content.startswith(UTF16_MARKS):
        return "utf-16"
    try:
        content.decode()
    except UnicodeDecodeError:
        return "cp1252" if _is_surely_cp1252(content) else "utf-8"
    return "utf-8"


def _is_surely_cp1252(content: bytes) -> bool:
    """Return whether bytes that are not valid UTF-8 can be nothing but cp1252.

    cp1252 is the encoding of Windows in Western Europe. Against it speak a character of
    several bytes in UTF-8, symbols or capitals where words have none, and accented letters if they
    are more than a quarter of all letters.
    """
    if _UTF8_CHARACTER.search(content):
        return False
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        return False
    # What the bytes of another encoding become if they are read as cp1252.
    if _NOT_CP1252.search(text):
        return False
    letters = _LETTER.findall(text)
    n_accented = sum(not letter.isascii() for letter in letters)
    return n_accented <= MAX_ACCENTED_SHARE * len(letters)


def to_utf8(path: Path, content: bytes, encoding: str) -> bytes:
    """Return the bytes of a text in UTF-8.

    Args:
        path: The file, for messages.
        content: Its bytes.
        encoding: Its encoding, as :func:`find_encoding` returns it: ``utf-8``, ``utf-16`` or
            ``cp1252``.

    Raises:
        DataError: The bytes are not valid in UTF-16; in the others they are.
    """
    if encoding == "utf-8":
        return content
    try:
        return content.decode(encoding).encode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not valid UTF-16: {error.reason}; restore it, or save it as UTF-8"
        ) from error


def has_decimal_commas(numbers: Sequence[str]) -> bool:
    """Return whether the numbers of a column are written with decimal commas, as in ``2,5``.

    They are if some have a comma, each of these is a number with one comma, and no number has a
    point. If each comma may be one between thousands, as in ``2,500``, it is not sure, and the
    answer is no.

    Args:
        numbers: The cells of the column; some may be missing, such as "NA".
    """
    with_comma = [text for text in numbers if "," in text]
    if not with_comma or any("." in text for text in numbers if not is_missing(text)):
        return False
    may_be_thousands = all(map(_GROUPED_DIGITS.fullmatch, with_comma))
    return all(map(DECIMAL_COMMA.fullmatch, with_comma)) and not may_be_thousands


def is_missing(text: str) -> bool:
    """Return whether a cell is empty, or stands for a missing score."""
    return text.strip().casefold() in MISSING


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
    r"""Check the bytes of a text, and return them with ``\n`` as line ends.

    The line end ``\r\n`` is replaced only if all lines have it, as in SICK's test file, or if
    ``mixed_ends`` is set. Otherwise line ends stay as they are.

    Args:
        path: The file, for messages.
        content: The bytes of the file.
        encoding: The encoding of the text.
        mixed_ends: Accept both line ends in one file, as rows of a table may end in one, and lines
            within its quoted cells in the other.
        forbidden: The bytes that the text may not contain: NUL, the carriage return, or both.

    Raises:
        DataError: The text is UTF-16, contains a forbidden byte, or bytes that are not valid in the
            encoding; the message names the line.
    """
    if content.startswith(UTF16_MARKS):
        raise DataError(f"{path}: is UTF-16; save it as UTF-8")
    if mixed_ends or content.count(b"\r\n") == content.count(b"\n"):
        content = content.replace(b"\r\n", b"\n")
    for byte in forbidden:
        position = content.find(byte)
        if position >= 0:
            line_number = content.count(b"\n", 0, position) + 1
            is_nul = byte == 0
            problem = "a NUL byte" if is_nul else "a carriage return (mixed line ends?)"
            raise DataError(f"{path}: line {line_number}: {problem}; mend it, or restore the file")
    try:
        content.decode(encoding)
    except UnicodeDecodeError as error:
        line_number = content.count(b"\n", 0, error.start) + 1
        encoding_name = encoding.upper()
        raise DataError(
            f"{path}: line {line_number}: not valid {encoding_name} "
            f"(byte 0x{content[error.start]:02x}); "
            f"is it Latin-1 or another encoding? save the file as {encoding_name}"
        ) from error
    return content


def read_text(path: Path, *, encoding: str = "utf-8") -> str:
    r"""Return the text of a file; ``\r\n`` becomes ``\n`` if all its lines end in it.

    Args:
        path: The file.
        encoding: The encoding of the text.

    Raises:
        DataError: The file is missing or empty, is UTF-16, is not valid in the encoding, or has a
            NUL byte or a carriage return that is left.
    """
    content = read_bytes(path)
    return normalise_text(path, content, encoding=encoding).decode(encoding)


def read_lines(path: Path, *, encoding: str = "utf-8") -> list[str]:
    r"""Return a file's lines, split at ``\n`` alone: other Unicode line ends are text."""
    lines = read_text(path, encoding=encoding).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def parse_gold_score(text: str, *, where: str) -> float:
    """Return the gold score that a text is, between -1e300 and 1e300.

    Args:
        text: The number as written.
        where: The file and the line, which the message of an error begins with.

    Raises:
        DataError: The text is no number, or one beyond that range.
    """
    value = math.nan
    # Python would accept underscores between digits.
    if "_" not in text:
        # If it raises an error, the value stays NaN.
        with suppress(ValueError):
            value = float(text)
    # NaN is not in the range either.
    if not -1e300 < value < 1e300:
        hint = "; write a decimal point, not a comma" if DECIMAL_COMMA.fullmatch(text) else ""
        raise DataError(f"{where}: gold score {format_field(text)} is not a number{hint}")
    return value


def format_field(text: str) -> str:
    """Return a number or tag in quotes, for a message.

    Text of more than 16 characters may be confidential: only its length is returned.
    """
    stripped_text = text.strip()
    if len(stripped_text) > 16:
        return f"of {len(stripped_text)} characters"
    return f"'{stripped_text}'"


_SENTENCE_END = re.compile(r"[.!?]+[\"'”’)\]]*\s+(?=[\"'“‘(\[]?[A-Z0-9])")
_LAST_WORD = re.compile(r"([\w.]+)\.$")
_ABBREVIATIONS = frozenset(
    "adm al approx ave b.c blvd brig ca capt cf cmdr co col corp d.c dept dr e.g ed eds est etc "
    "fig figs gen gov hon i.e inc jr lt ltd maj mr mrs ms mt no nos op p ph.d pp prof rep rev sen "
    "sgt sr st u.k u.n u.s v viz vol vols vs".split()
)


def split_sentences(text: str) -> list[str]:
    """Split text after full stops, question and exclamation marks before a capital or a digit.

    Initials and common abbreviations of English end no sentence. This is a rule, not a model:
    nothing is lost and no order changed, but some cuts are wrong.
    """
    sentences: list[str] = []
    start = 0
    # Marks that may end a sentence, closing quotes or brackets, and the blanks behind them.
    for end_match in _SENTENCE_END.finditer(text):
        sentence_with_mark = text[start : end_match.start() + 1]
        # The word before a full stop; None before a question or exclamation mark.
        word_match = _LAST_WORD.search(sentence_with_mark)
        if word_match is not None and _is_abbreviation(word_match[1]):
            continue
        sentences.append(text[start : end_match.end()].strip())
        start = end_match.end()
    sentences.append(text[start:].strip())
    # Without empty ones.
    return list(filter(None, sentences))


def _is_abbreviation(word: str) -> bool:
    """Return whether a word before a full stop is an initial or a common abbreviation."""
    return (len(word) == 1 and word.isupper()) or word.casefold() in _ABBREVIATIONS
