"""Who carries out the cells of a run: this process, or whatever else is an :class:`Executor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Protocol

from stsbench.bench.cells import Cell, RunSettings, task_of
from stsbench.bench.embedder import Embedder, chosen_data_folder, make_embedder
from stsbench.bench.existing import holds_another
from stsbench.bench.listener import Listener
from stsbench.bench.score import score_tasks
from stsbench.bench.tasks import ScoredTask, read_tasks
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.loading import find_encoder
from stsbench.encoders.path_names import apart, shared_ends
from stsbench.errors import EncoderError, OutputError, SourceError, Stopped, StsbenchError
from stsbench.results.folder import write_result
from stsbench.results.record import Result


class Executor(Protocol):
    """Carries out cells; they and the settings are plain data, and results go into the settings' folder."""

    def __call__(self, cells: Sequence[Cell], settings: RunSettings, listener: Listener) -> Iterator[Result]:
        """Yield the Result of each cell, in their order; what the folder holds is not done again.

        A cell that fails is told to the listener, and the others go on.
        """
        ...


def local(cells: Sequence[Cell], settings: RunSettings, listener: Listener) -> Iterator[Result]:
    """Carry out cells in this process: each task is read once, each encoder made and its sentences embedded once."""
    work = Work(cells, settings, listener)
    for encoder, mine in work.encoders():
        with isolated(encoder.name, settings, listener):
            seeds = work.seeds(mine)
            embedder = work.embedder(encoder, list(seeds))
            done_in = None if settings.fresh else settings.out
            for result in score_tasks(embedder, seeds, listener=listener, failed=listener.failed, done_in=done_in):
                if result.per_item:
                    write_result(result, settings.out)
                yield result


@contextmanager
def isolated(
    name: str,
    settings: RunSettings,
    listener: Listener,
    expected: tuple[type[StsbenchError], ...] = (EncoderError, SourceError),
) -> Iterator[None]:
    """Tell the listener what fails of one encoder, so that the others go on; what the only one's code raises is raised."""
    try:
        yield
    except expected as error:
        listener.failed(name, error)
    except (OutputError, Stopped):
        raise
    except Exception as error:
        if len(settings.encoders) == 1:
            raise
        listener.failed(name, error)


@dataclass(frozen=True)
class Work:
    """Cells in this process: their encoders are made one after the other, their tasks are read once."""

    cells: Sequence[Cell]
    settings: RunSettings
    listener: Listener

    def encoders(self) -> Iterator[tuple[KnownEncoder, list[Cell]]]:
        """Yield each encoder with its cells, once under however many names; one that cannot be made is told and left out."""
        known: set[tuple[str, str, int | None]] = set()
        for spec, cells in groupby(self.cells, key=lambda cell: cell.encoder):
            mine, found, state = list(cells), None, ""
            with isolated(spec, self.settings, self.listener, expected=(StsbenchError,)):
                found = find_encoder(spec, params=self.settings.params, catalogue=self.settings.catalogue)
                state = found.fingerprint or spec
            if found is None or not state:
                continue
            named = _named_apart(self.settings, spec, found, self.listener)
            key = (named.name, state, named.train_seed)
            if key not in known:
                known.add(key)
                yield named, mine

    @cached_property
    def tasks(self) -> dict[tuple[str, str], ScoredTask]:
        """The tasks of all cells, by name and protocol, read when the first encoder is there; what fails is told once."""
        wanted = {(cell.task, cell.protocol): cell for cell in self.cells}
        planned = {key: task_of(cell, self.settings) for key, cell in wanted.items()}
        read = set(read_tasks(planned.values(), self.listener.failed))
        return {key: task for key, task in planned.items() if task in read}

    def seeds(self, cells: Sequence[Cell]) -> dict[ScoredTask, list[int]]:
        """The seeds of some cells by task, for all tasks whose data could be had."""
        found: dict[ScoredTask, list[int]] = {}
        for cell in cells:
            task = self.tasks.get((cell.task, cell.protocol))
            if task is not None:
                found.setdefault(task, []).append(cell.seed)
        return found

    def embedder(self, encoder: KnownEncoder, tasks: Sequence[ScoredTask], *, only_look: bool = False) -> Embedder:
        """The embedder of an encoder for some tasks."""
        return make_embedder(
            encoder,
            tasks,
            store=self.settings.store,
            catalogue=self.settings.catalogue,
            data=chosen_data_folder(self.settings.data),
            progress=self.listener.encoding,
            failed=self.listener.failed,
            only_look=only_look,
        )


def _named_apart(settings: RunSettings, spec: str, encoder: KnownEncoder, listener: Listener) -> KnownEncoder:
    """The encoder under a name that neither another folder of this run has, nor another encoder's results."""
    if encoder.told:
        listener.noticed(encoder.told)
    if not encoder.names:
        return encoder
    others = shared_ends(Path(spec), [Path(other) for other in settings.encoders if other != spec])
    names = [name for name in encoder.names if name.partition("+")[0] not in others] or encoder.names
    name = apart(names, lambda name: holds_another(settings.out, name, encoder.fingerprint))
    if name != names[0]:
        listener.noticed(f"{spec}: its results are called '{name}', for '{names[0]}' is another encoder's name")
    return replace(encoder, name=name)
