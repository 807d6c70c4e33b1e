"""Who carries out a sweep: this process, or the workers of Ray Tune."""

from __future__ import annotations

import time
from collections.abc import Callable

from stsbench.errors import StsbenchError
from stsbench.registry.names import Registry
from stsbench.studies.book import Book
from stsbench.studies.sweep import score_of
from stsbench.studies.trials import TrialWatcher, carry_out_trials

Carrier = Callable[[Book, str, int, TrialWatcher], None]
"""Given the book of a sweep, where it is to be (``ray``), the cores of a cell where no GPU is, and who watches; it ends
with all cells done, or the time."""


def one_after_another(book: Book, on: str, cores: int, watcher: TrialWatcher) -> None:
    """Train one cell after the other in this process."""
    sweep = book.sweep
    if sweep.card.halving is not None:
        raise StsbenchError("[halving] compares cells that are trained side by side; pass --on ray, or leave it out")
    started = time.monotonic()
    while not sweep.is_over(time.monotonic() - started) and (cell := book.next()) is not None:
        (outcome,) = carry_out_trials([cell.planned], sweep.workshop, [sweep.scored_on], watcher)
        book.close(cell, score_of(sweep, outcome))


CARRIERS = Registry(
    "place of a sweep",
    {"local": "stsbench.studies.carriers:one_after_another", "ray": "stsbench.studies.on_tune:side_by_side"},
    group="carriers",
    wanted="a function, see stsbench.studies.carriers:Carrier",
)
