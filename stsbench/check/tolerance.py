"""How far two scores of the same thing may lie apart: a class for each way in which they were made differently.

The classes and their points: cosines of the same float32 embeddings differ by 3e-6 between
implementations; vLLM's bfloat16 moves STS12 by less than 1e-4, MTEB allows 1e-3; probes drift with torch
(SentEval issues 32 and 43), most where test items are few; independent runs of one checkpoint on STS agree with
printed scores to between 0.01 and 0.07 points (EvalRank's logs against SimCSE's table B.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stsbench.check.lock import LockedCell
from stsbench.errors import StsbenchError, UnknownName
from stsbench.provenance.identity import same_encoder

HALF = ("float16", "bfloat16")
FEW = 1800
"""Fewer test items than this are few: TREC has 500, MRPC 1,725; SST2, the next, 1,821."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """A class of differences: its name, how many points are no regression, and why.

    Rounding moves each pair on its own, and a correlation of n pairs by a share of it that falls with the
    root of n: where ``by_root`` is true, ``points`` are those of 1,000 items, and fewer are allowed more.
    """

    name: str
    points: float
    why: str
    by_root: bool = False

    def allowed(self, n: int) -> float:
        """The points allowed for n items."""
        return self.points * max(1.0, 1000 / n) ** 0.5 if self.by_root else self.points


TOLERANCES = {
    t.name: t
    for t in (
        Tolerance(name="same", points=0.001, why="same encoder, device, dtype and versions"),
        Tolerance(name="other-machine", points=0.01, why="same encoder, another device or other versions"),
        Tolerance(name="half", points=0.1, why="half precision on one side or both", by_root=True),
        Tolerance(name="probe", points=0.5, why="a probe trained by another device or other versions"),
        Tolerance(
            name="probe-few", points=1.5, why="a probe trained by another device or other versions, on few test items"
        ),
        Tolerance(name="changed", points=0.01, why="another encoder"),
        Tolerance(name="published", points=0.1, why="a score printed to two decimals, of another stack"),
    )
}


def classify(new: LockedCell, old: LockedCell) -> Tolerance:
    """The class of two scores that may be compared."""
    same = same_encoder(new.fingerprint, old.fingerprint)
    same_place = (new.device, new.dtype, new.versions) == (old.device, old.dtype, old.versions)
    half = any(cell.dtype in HALF for cell in (new, old))
    if same and same_place and not half:
        return TOLERANCES["same"]
    if not same and not (half and new.dtype != old.dtype):
        return TOLERANCES["changed"]
    if not _is_sts(new.protocol):
        return TOLERANCES["probe-few" if new.n < FEW else "probe"]
    return TOLERANCES["half" if half else "other-machine" if same else "changed"]


def _is_sts(protocol: Mapping[str, object]) -> bool:
    """Whether a score is of embeddings as they are; all else trains something on them."""
    return "similarity" in protocol


def parse_tolerances(texts: Sequence[str]) -> dict[str, Tolerance]:
    """All classes, with the points that a user gave: ``0.5`` for every class, ``half=0.2`` for one.

    Raises:
        UnknownName: a class that does not exist.
        StsbenchError: points that are no number from 0 up.
    """
    found = dict(TOLERANCES)
    # What is given for one class stands, wherever it was typed.
    for text in sorted(texts, key=lambda one: "=" in one):
        name, equals, value = text.rpartition("=")
        if equals and name not in TOLERANCES:
            raise UnknownName("tolerance class", name, TOLERANCES, hint=f"one of {', '.join(TOLERANCES)}")
        try:
            points = float(value)
        except ValueError:
            points = -1.0
        if not 0 <= points < float("inf"):
            raise StsbenchError(f"--tolerance '{text}': give points, such as 0.5 or half=0.2")
        found |= {key: replace(found[key], points=points, by_root=False) for key in ([name] if equals else TOLERANCES)}
    return found
