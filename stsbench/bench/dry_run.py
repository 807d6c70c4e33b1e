"""What a run would do: which cells are done, how many sentences it would embed, how long scoring takes. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from stsbench.bench.cells import Cell, RunSettings
from stsbench.bench.executor import Work, isolated
from stsbench.bench.existing import done_already
from stsbench.bench.listener import Listener
from stsbench.bench.run import cells_to_do
from stsbench.bench.tasks import ScoredTask
from stsbench.encoders.known import KnownEncoder
from stsbench.results.comparable import protocol_key
from stsbench.results.folder import scan_results
from stsbench.results.record import Result


@dataclass(frozen=True, kw_only=True)
class EncoderForecast:
    """What a run would do for one encoder."""

    name: str
    done: Sequence[Cell]
    missing: Sequence[Cell]
    to_embed: int | None
    """Distinct sentences that the store does not hold; None where only fitting the encoder tells."""
    seconds: float | None
    """Of scoring what is missing, as earlier results took; None where one of its tasks has no earlier result."""


def forecast_run(settings: RunSettings, listener: Listener) -> Iterator[EncoderForecast]:
    """Yield what a run would do, an encoder at a time; data are read, and nothing is embedded, scored or written.

    Raises:
        StsbenchError: as :func:`stsbench.bench.run.run`.
    """
    work = Work(cells_to_do(settings), settings, listener)
    held = scan_results(settings.out).results if settings.out.is_dir() else []
    for encoder, cells in work.encoders():
        with isolated(encoder.name, settings, listener):
            yield _forecast(work, encoder, cells, held)


def _forecast(work: Work, encoder: KnownEncoder, cells: Sequence[Cell], held: Sequence[Result]) -> EncoderForecast:
    seeds = work.seeds(cells)
    embedder = work.embedder(encoder, list(seeds), only_look=True)
    cell_of = {(cell.task, cell.protocol, cell.seed): cell for cell in cells}
    done, missing, todo, seconds = [], [], [], []
    for task in embedder.tasks:
        for seed in seeds[task]:
            cell, found = cell_of[task.name, task.asked, seed], None
            if not work.settings.fresh:
                found = done_already(work.settings.out, task, embedder, seed, work.listener.refused)
            if found is not None:
                done.append(cell)
                continue
            missing.append(cell)
            todo.append(task)
            seconds.append(_usual_seconds(task, held))
    measured = [one for one in seconds if one is not None]
    return EncoderForecast(
        name=encoder.name,
        done=done,
        missing=missing,
        to_embed=embedder.missing(list(dict.fromkeys(todo))),
        seconds=sum(measured) if len(measured) == len(seconds) else None,
    )


def _usual_seconds(task: ScoredTask, held: Sequence[Result]) -> float | None:
    """How long earlier results of a task took to score under its protocol, whichever encoder's: the median."""
    same = (task.name, task.split, protocol_key(task.protocol))
    took = [one.run.get("seconds") for one in held if (one.task, one.split, protocol_key(one.protocol)) == same]
    found = [float(one) for one in took if isinstance(one, int | float)]
    return median(found) if found else None
