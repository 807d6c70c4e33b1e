"""What a run would do: which cells are done, how many sentences it would embed, how long scoring takes. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from stsbench.bench.cells import RunPart, RunSettings
from stsbench.bench.listener import Listener
from stsbench.bench.run import cells_to_do
from stsbench.bench.tasks import ScoredTask
from stsbench.bench.work import Work
from stsbench.results.comparable import protocol_key
from stsbench.results.folder import scan_results
from stsbench.results.record import Result


@dataclass(frozen=True, kw_only=True)
class EncoderForecast:
    """What a run would do for one encoder."""

    part: RunPart
    seconds: float | None
    """Of scoring what is missing, as earlier results took; None where one of its tasks has no earlier result."""


def forecast_run(settings: RunSettings, listener: Listener) -> Iterator[EncoderForecast]:
    """Yield what a run would do, an encoder at a time; data are read, and nothing is embedded, scored or written.

    Raises:
        StsbenchError: as :func:`stsbench.bench.run.run`.
    """
    work = Work(cells_to_do(settings), settings, listener)
    held = scan_results(settings.out).results if settings.out.is_dir() else []
    for part in work.parts():
        seconds = [_usual_seconds(work.tasks[cell.task, cell.protocol], held) for cell in part.missing]
        measured = [one for one in seconds if one is not None]
        yield EncoderForecast(part=part, seconds=sum(measured) if len(measured) == len(seconds) else None)


def _usual_seconds(task: ScoredTask, held: Sequence[Result]) -> float | None:
    """How long earlier results of a task took to score under its protocol, whichever encoder's: the median."""
    same = (task.name, task.split, protocol_key(task.protocol))
    took = [one.run.get("seconds") for one in held if (one.task, one.split, protocol_key(one.protocol)) == same]
    found = [float(one) for one in took if isinstance(one, int | float)]
    return median(found) if found else None
