"""Who is told how a run goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stsbench.bench.cells import RunPart
from stsbench.bench.crowd import Crowd
from stsbench.encoders.engine.embed import Progress
from stsbench.results.record import Result


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Who is told how a run goes; every part may be left out."""

    planned: Callable[[Sequence[RunPart]], None] = lambda parts: None
    """Told all that is to be done, before the first batch."""
    began: Callable[[RunPart], None] = lambda part: None
    encoding: Progress = lambda done, total: None
    working: Callable[[Crowd], None] = lambda crowd: None
    """Told now and then what several workers do; then nothing is told of one encoder's turn and of ``encoding``."""
    scoring: Callable[[str], None] = lambda task: None
    scored: Callable[[Result], None] = lambda result: None
    """Told each Result that was made, and not found in the results folder."""
    failed: Callable[[str, Exception], None] = lambda what, error: None
    refused: Callable[[str], None] = lambda why: None
    """Of a result that the folder holds and that is not as it must be: it is scored again."""
    noticed: Callable[[str], None] = lambda line: None
    """Told what is no failure and should be known."""
