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
_SECRET_TABLE_NAME = re.compile(r"(?:[\w.-]*[_.-])?(?:headers?|cookies?)", re.IGNORECASE)
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
    """Return the value of a parameter; a secret, such as a password, is replaced by a hash of it.

    Hashes distinguish secrets without giving them away. The function scrypt takes long to compute,
    so that even a short secret cannot be found by trying many.

    Args:
        value: The value, any that TOML has.
        name: The name of the parameter, by which a secret is recognised.

    Returns:
        The value itself, if there is no secret in it. Otherwise a list of two: the value with the
        text ``REDACTED`` in place of secrets, and 16 hexadecimal digits.
    """
    redacted = redact(value, name)
    if redacted == value:
        return value
    secret_bytes = json.dumps(value, sort_keys=True, default=str).encode()
    digest = hashlib.scrypt(secret_bytes, salt=b"stsbench", n=1 << 14, r=8, p=1, dklen=8)
    return [redacted, digest.hex()]


def redact(value: Any, name: str = "", *, is_secret: bool = False) -> Any:  # noqa: ANN401 - any parameter
    """Return a value with each password, key or other secret in it replaced by ``REDACTED``.

    A secret is recognised by the name of its parameter, such as ``password``, or of the table that
    holds it, such as ``headers``. In texts under other names, texts that look like a key are
    replaced. Truth values and empty values are no secrets.

    Args:
        value: The value of a parameter, or a table of parameters by name.
        name: The name of the parameter; empty if ``value`` is a table of all.
        is_secret: Whether every text and number in the value is a secret.
    """
    has_name_of_secret = SECRET_NAME.fullmatch(name) or _SECRET_TABLE_NAME.fullmatch(name)
    is_secret = is_secret or bool(has_name_of_secret)
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
