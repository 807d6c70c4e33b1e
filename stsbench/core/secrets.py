"""Secrets in parameters and in text: passwords and keys in addresses, headers, and parameters that are called as such.

Nothing that stsbench writes or prints holds one: names, results, settings of a run, logs, errors and JSON have ``REDACTED``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

REDACTED = "REDACTED"
"""What stands in the place of a secret."""
_NAME = (
    # A tokenizer's special tokens are none.
    r"(?!(?:mask|pad|sep|cls|unk|bos|eos)_token\b)(?:[\w.-]*[_.-])?(?:(?:api|access|auth)?(?:key|token)|secret|passw(?:or)?d|pwd|auth|authorization|bearer"
    r"|credentials?|signature|sig)"
)
SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
"""What parameters, fields and headers are called that hold a secret."""
_TABLE_NAME = re.compile(r"(?:[\w.-]*[_.-])?(?:headers?|cookies?)", re.IGNORECASE)
"""What tables are called of which every text may be a secret."""
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
            r"(\bbearer\s+(?=\S*\d)|\bauthorization['\"]?\s*[:=]\s*['\"]?(?:(?:basic|bearer)\s+)?)[^\s'\"\\]{4,}",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    # Keys by how they begin; the names of models may begin so too, and have fewer digits or a slash.
    (
        re.compile(
            r"(?<![\w/-])(?:sk|pk|pa|hf|gsk|xai|jina|nvapi|ghp)[-_](?=(?:[\w-]*\d){3})[\w-]{12,}(?![\w/-])",
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
    """Return the value of a parameter; one that holds a secret without it, and with a digest that tells it from others.

    The digest is slow to compute, so that short secrets are slow to guess.
    """
    redacted = redact(value, name)
    if redacted == value:
        return value
    text = json.dumps(value, sort_keys=True, default=str).encode()
    return [redacted, hashlib.scrypt(text, salt=b"stsbench", n=1 << 14, r=8, p=1, dklen=8).hex()]


def redact(value: Any, name: str = "", *, is_secret: bool = False) -> Any:  # noqa: ANN401 - any parameter
    """Return the value of a parameter, or a table of them, without secrets.

    Args:
        value: A value as TOML has it.
        name: What the parameter is called.
        is_secret: Whether every text and number in the value is a secret, as in a table of headers.
    """
    is_secret = is_secret or bool(SECRET_NAME.fullmatch(name) or _TABLE_NAME.fullmatch(name))
    if isinstance(value, Mapping):
        return {key: redact(inner, str(key), is_secret=is_secret) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(redact(inner, is_secret=is_secret) for inner in value)
    if is_secret and value and not isinstance(value, bool):
        return REDACTED
    return redact_text(value) if isinstance(value, str) else value
