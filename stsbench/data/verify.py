"""Whether data are what their card says: counts, characters, means, hashes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stsbench.cards import FileFacts, SplitFacts
from stsbench.data.splits import LabelledPairSplit, PairSplit, Split
from stsbench.errors import DataError


def check_file(path: Path, facts: FileFacts) -> None:
    """Check a file's sha256 against its card; raises DataError."""
    if not facts.sha256:
        return
    found = file_digest(path)
    if found != facts.sha256:
        unix = hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
        why = "its line ends are CRLF" if unix == facts.sha256 else f"sha256 {found[:12]}, card {facts.sha256[:12]}"
        raise DataError(
            f"{path}: differs from the release the card names ({why}); "
            "restore the file, or write a task card of your own for other data"
        )


def file_digest(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def characters(split: Split) -> list[int]:
    """Characters in each text column."""
    if isinstance(split, PairSplit | LabelledPairSplit):
        columns: list[Sequence[str]] = [split.sentences1, split.sentences2]
    else:
        columns = [split.texts()]
    return [sum(map(len, column)) for column in columns]


def check_split(split: Split, facts: SplitFacts, *, where: str) -> None:
    """Check a split against its card; raises DataError naming the first fact that differs."""
    _check(where, "rows", split.n, facts.n)
    if facts.characters:
        _check(where, "characters", characters(split), facts.characters)
    if isinstance(split, PairSplit):
        if facts.mean is not None and abs(float(np.mean(split.gold)) - facts.mean) > 1e-6:
            raise DataError(f"{where}: mean gold score {np.mean(split.gold):.6f}, the card says {facts.mean:.6f}")
        if facts.subsets and split.subsets_known:
            _check(where, "pairs a subset", dict(Counter(split.subset)), facts.subsets)
    elif facts.labels and not hasattr(split, "image_features"):
        counts = np.bincount(split.labels, minlength=len(split.classes)).tolist()
        _check(where, "rows a class", dict(zip(split.classes, counts, strict=True)), facts.labels)


def _check(where: str, what: str, found: object, expected: object) -> None:
    if found != expected:
        raise DataError(f"{where}: {what} {found}, the card says {expected}; fetch the data again")
