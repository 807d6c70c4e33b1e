"""Whole runs of encoders, tasks and seeds, into a results folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stsbench import settings as places
from stsbench.bench.cells import Cell, RunSettings, plan_cells
from stsbench.bench.clean import Cleaner
from stsbench.bench.embedder import chosen_data_folder
from stsbench.bench.executor import EXECUTORS, Executor
from stsbench.bench.listener import Listener
from stsbench.bench.work import Work
from stsbench.data.task import expand_names
from stsbench.errors import SourceError
from stsbench.files.whole import remove, remove_stale, write_whole
from stsbench.results.record import Result


def run(settings: RunSettings, listener: Listener, *, executor: Executor | None = None) -> Iterator[Result]:
    """Carry out a run, writing each Result as soon as it is there; what the folder holds is not done again.

    All encoders are found and all data read before the first batch, and the listener is told what is to be done.
    An encoder or task that fails is told to the listener, and the run goes on.

    Args:
        settings: what is run, and on what.
        listener: told how it goes.
        executor: carries it out; default the one that the settings name.

    Raises:
        StsbenchError: nothing at all can be done (unknown task, no data), or results cannot be written.
    """
    executor = executor or EXECUTORS.load_at(settings.on)
    work = Work(cells_to_do(settings), settings, listener)
    check_writable(settings.out)
    parts = list(work.parts())
    cleaner = Cleaner(settings.clean, work, parts) if settings.clean is not None else None
    listener.planned(parts)
    for result in executor(work, parts):
        yield result if cleaner is None else cleaner(result)


def cells_to_do(settings: RunSettings) -> list[Cell]:
    """The cells of a run, its data folder looked for before.

    Raises:
        StsbenchError: a task, suite, protocol or data folder that does not exist.
    """
    expand_names(settings.tasks, settings.catalogue)
    data = chosen_data_folder(settings.data)
    if data is not None and not data.is_dir():
        raise SourceError(f"data folder '{data}' does not exist")
    return plan_cells(settings)


def check_writable(folder: Path) -> None:
    """Fail before the work rather than after it."""
    probe = write_whole(folder / ".stsbench-writable", b"")
    remove(probe)
    # Also what this run will not write beside: other encoders' results, stores and fits.
    remove_stale(folder, "*.partial", "*/*.partial")
    remove_stale(places.cache_folder(), "*/*.partial", "*/*/*.partial")
