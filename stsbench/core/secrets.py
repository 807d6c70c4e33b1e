"""Secrets in parameters and in text: passwords, keys in addresses and headers, and key parameters.

Nothing that stsbench writes or prints contains one: names, results, settings, logs, errors and
JSON have ``REDACTED`` in its place.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

REDACTED = "REDACTED"
"""The text that replaces a secret."""
_NAME = (
    # A tokenizer's special tokens are no secrets.
    r"(?!(?:mask|pad|sep|cls|unk|bos|eos)_token\b)(?:[\w.-]*[_.-])?"
    r"(?:(?:api|access|auth)?(?:key|token)|secret|passw(?:or)?d|pwd|auth|authorization|bearer"
    r"|credentials?|signature|sig)"
)
SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
"""The names of parameters, fields and headers that hold a secret."""
_TABLE_NAME = re.compile(r"(?:[\w.-]*[_.-])?(?:headers?|cookies?)", re.IGNORECASE)
"""The names of tables in which every text may be a secret."""
_IN_TEXT = (
    # The user and password of an address.
    (re.compile(r"(?<=://)[^/\s'\"<>?#]+@"), f"{REDACTED}@"),
    # A field of an address, or a parameter in the name of an encoder.
    (
        re.compile(rf"([?&;+]{_NAME}=)(?:'[^']*'|\"[^\"]*\"|[^\s&;+#'\"\\]+)", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
    (
        re.compile(
            r"(\bbearer\s+(?=\S*\d)"
            r"|\bauthorization['\"]?\s*[:=]\s*['\"]?(?:(?:basic|bearer)\s+)?)"
            r"[^\s'\"\\]{4,}",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    # Keys by their prefix; names of models may have it too, but have fewer digits or a slash.
    (
        re.compile(
            r"(?<![\w/-])(?:sk|pk|pa|hf|gsk|xai|jina|nvapi|ghp)[-_]"
            r"(?=(?:[\w-]*\d){3})[\w-]{12,}(?![\w/-])",
        ),
        REDACTED,
    ),
)


def redact_text(text: str) -> str:
    """Return a text without the secrets that can be recognised in it."""
    for pattern, replacement in _IN_TEXT:
        text = pattern.sub(replacement, text)
    return text


def redact_with_digest(value: Any, name: str) -> Any:  # noqa: ANN401 - any parameter
    """Return the value of a parameter; a secret is replaced by ``REDACTED`` and a digest.

    The digest distinguishes secrets. It is slow to compute, so that short ones are slow to guess.
    """
    redacted = redact(value, name)
    if redacted == value:
        return value
    text = json.dumps(value, sort_keys=True, default=str).encode()
    return [redacted, hashlib.scrypt(text, salt=b"stsbench", n=1 << 14, r=8, p=1, dklen=8).hex()]


def redact(value: Any, name: str = "", *, is_secret: bool = False) -> Any:  # noqa: ANN401 - any parameter
    """Return the value of a parameter, or a table of them, without secrets.

    Args:
        value: A TOML value.
        name: The name of the parameter.
        is_secret: Whether every text and number in the value is a secret, as in a table of headers.
    """
    is_secret = is_secret or bool(SECRET_NAME.fullmatch(name) or _TABLE_NAME.fullmatch(name))
    if isinstance(value, Mapping):
        return {
            key: redact(nested_value, str(key), is_secret=is_secret)
            for key, nested_value in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(redact(nested_value, is_secret=is_secret) for nested_value in value)
    if is_secret and value and not isinstance(value, bool):
        return REDACTED
    return redact_text(value) if isinstance(value, str) else value
