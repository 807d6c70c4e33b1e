"""Values as TOML writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping


def toml(value: object) -> str:
    """A value as TOML writes it in one line; a table is written inline."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{toml_key(str(key))} = {toml(one)}' for key, one in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    # A text in JSON is one in TOML, but for one sign.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_tables(table: Mapping[str, object]) -> str:
    """A record as a file: plain keys first, then a table each; what is None, which TOML has no word for, or empty is left out."""
    said = {key: value for key, value in table.items() if value not in (None, "", [], {})}
    lines = [f"{toml_key(key)} = {toml(value)}" for key, value in said.items() if not isinstance(value, Mapping)]
    for key, value in said.items():
        if isinstance(value, Mapping):
            inner = (f"{toml_key(name)} = {toml(one)}" for name, one in value.items() if one is not None)
            lines += ["", f"[{toml_key(key)}]", *inner]
    return "\n".join(lines) + "\n"


def toml_key(key: str) -> str:
    """A key as TOML writes it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)
