"""A user's own cards, as small as they may be."""

from __future__ import annotations

from pathlib import Path

TASK = """
name = "Mine"
evaluator = "sts"
languages = ["en"]
paper = "none"
license = "mine"
[splits.test]
n = 2
"""
ENCODER = """
name = "Mine"
kind = "words"
method = "Mean"
backbone = "GloVe"
supervision = "none"
overlap = "none"
paper = "none"
license = "mine"
"""


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
