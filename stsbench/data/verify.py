"""Whether data are what their card says: counts, characters, means, hashes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stsbench.cards.facts import FileFacts, SplitFacts
from stsbench.data.split_checks import check_form
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit, Split
from stsbench.errors import DataError

FETCH = "fetch the data again, or correct the card where the data are your own"


def check_file(path: Path, facts: FileFacts) -> None:
    """Check a file's lines and sha256 against its card; raises DataError."""
    check_lines(path, facts)
    if how := difference(path, facts):
        raise DataError(f"{path}: {how}; restore the file, or correct the card where the data are your own")


def check_lines(path: Path, facts: FileFacts, *, todo: str = FETCH) -> None:
    """Check how many lines a file has; raises DataError."""
    if facts.rows is not None:
        _check(str(path), "lines", _lines(path), facts.rows, todo)


def difference(path: Path, facts: FileFacts) -> str:
    """How a file's bytes differ from those its card names, ``""`` where they do not or it names none."""
    found = file_digest(path) if facts.sha256 else ""
    if found == facts.sha256:
        return ""
    unix = hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
    why = "its line ends are CRLF" if unix == facts.sha256 else f"sha256 {found[:12]}, card {facts.sha256[:12]}"
    return f"differs from the file that its card names ({why})"


def is_told_well(split: Split, facts: SplitFacts) -> bool:
    """Whether a card tells a split without its files' hashes: by characters, and mean score or rows a class."""
    return bool(facts.characters) and (facts.mean is not None if isinstance(split, PairSplit) else bool(facts.labels))


def _lines(path: Path) -> int:
    """How many lines a file has, whether or not the last one ends."""
    lines, last = 0, b"\n"
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n")


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


def check_split(
    split: Split,
    facts: SplitFacts,
    *,
    gold_range: tuple[float, float] | None = None,
    where: str,
    todo: str = FETCH,
) -> None:
    """Check a split's form, and each fact that its card tells of it.

    Args:
        split: what a reader returned.
        facts: what the card says of the split.
        gold_range: the lowest and the highest gold score there may be.
        where: the split and its source, for the message.
        todo: what to do about it.

    Raises:
        DataError: names the first fact that differs.
    """
    check_form(split, where=where)
    if facts.n is not None:
        _check(where, "rows", split.n, facts.n, todo)
    if facts.characters:
        _check(where, "characters", characters(split), facts.characters, todo)
    if isinstance(split, PairSplit):
        _check_gold(split, facts, gold_range, where)
        _check_pairs(split, facts, where, todo)
    if isinstance(split, LabelledSplit | LabelledPairSplit) and facts.labels:
        counts = np.bincount(split.labels, minlength=len(split.classes)).tolist()
        names = split.classes or [str(label) for label in range(len(counts))]
        _check(where, "rows a class", dict(zip(names, counts, strict=True)), facts.labels, todo)


def _check_gold(split: PairSplit, facts: SplitFacts, gold_range: tuple[float, float] | None, where: str) -> None:
    if gold_range is not None:
        low, high = gold_range
        outside = (split.gold < low) | (split.gold > high)
        if outside.any():
            row = int(np.argmax(outside))
            raise DataError(
                f"{where}: row {row + 1}: gold score {split.gold[row]:g} is outside the card's gold_range, {low:g} to {high:g}"
            )
    if facts.mean is not None and not abs(float(np.mean(split.gold)) - facts.mean) <= 1e-6:
        raise DataError(f"{where}: mean gold score {np.mean(split.gold):.6f}, the card says {facts.mean:.6f}")


def _check_pairs(split: PairSplit, facts: SplitFacts, where: str, todo: str) -> None:
    if facts.subsets and split.subsets_known:
        _check(where, "pairs a subset", dict(Counter(split.subset)), facts.subsets, todo)
    if split.ungraded_known:
        # Two sentences a pair.
        _check(where, "pairs without a gold score", len(split.ungraded) // 2, facts.ungraded, todo)


def _check(where: str, what: str, found: object, expected: object, todo: str) -> None:
    if found != expected:
        raise DataError(f"{where}: {what} {found}, the card says {expected}; {todo}")
