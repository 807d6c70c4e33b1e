"""The work of a run before its first batch: encoders found, data read, and what is there of each encoder's scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

from stsbench.bench.cells import Cell, RunPart, RunSettings, seeds_of, task_of
from stsbench.bench.embedder import Embedder, chosen_data_folder, make_embedder
from stsbench.bench.existing import done_already, holds_another
from stsbench.bench.listener import Listener
from stsbench.bench.shared import Shared
from stsbench.bench.tasks import ScoredTask, read_tasks
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.loading import find_encoder
from stsbench.encoders.path_names import apart, shared_ends
from stsbench.errors import EncoderError, OutputError, SourceError, Stopped, StsbenchError


@dataclass(frozen=True)
class Work:
    """Cells in this process: their encoders are made one after the other, their tasks are read once."""

    cells: Sequence[Cell]
    settings: RunSettings
    listener: Listener
    _only: dict[str, KnownEncoder] = field(default_factory=dict)
    """The only encoder of a run, made once; many are made again when their turn comes: they may not fit in memory together."""
    _shared: Shared = field(default_factory=Shared)

    def parts(self) -> Iterator[RunPart]:
        """Yield the part of each encoder, once under however many names; one that cannot be made is told and left out."""
        known: set[tuple[str, str, int | None]] = set()
        for spec, cells in groupby(self.cells, key=lambda cell: cell.encoder):
            mine, part = list(cells), None
            with isolated(spec, self.settings, self.listener, expected=(StsbenchError,)):
                encoder = self._named_apart(spec, self._make(spec))
                key = (encoder.name, encoder.fingerprint or spec, encoder.train_seed)
                if key not in known:
                    known.add(key)
                    part = self._job(spec, encoder, mine)
            if part is not None:
                yield part

    def encoder(self, part: RunPart) -> KnownEncoder:
        """The encoder of a part, under the name of its results."""
        return replace(self._make(part.spec), name=part.name)

    def _make(self, spec: str) -> KnownEncoder:
        made = self._only.get(spec)
        if made is None:
            made = find_encoder(spec, params=self.settings.params, catalogue=self.settings.catalogue)
            if all(cell.encoder == spec for cell in self.cells):
                self._only[spec] = made
        return made

    def _named_apart(self, spec: str, encoder: KnownEncoder) -> KnownEncoder:
        """The encoder under a name that neither another folder of this run has, nor another encoder's results."""
        settings = self.settings
        if encoder.told:
            self.listener.noticed(encoder.told)
        if spec in self._called:
            return replace(encoder, name=self._called[spec])
        if not encoder.names:
            return encoder
        others = shared_ends(Path(spec), [Path(other) for other in settings.encoders if other != spec])
        names = [name for name in encoder.names if name.partition("+")[0] not in others] or encoder.names
        name = apart(names, lambda name: holds_another(settings.out, name, encoder.fingerprint))
        if name != names[0]:
            self.listener.noticed(
                f"{spec}: its results are called '{name}', for '{names[0]}' is another encoder's name"
            )
        return replace(encoder, name=name)

    @cached_property
    def _called(self) -> dict[str, str]:
        """The names that the user has chosen, by encoder."""
        given, catalogue = self.settings.called, self.settings.catalogue
        return {one: name for spec, name in given.items() for one in seeds_of(spec, catalogue)}

    def _job(self, spec: str, encoder: KnownEncoder, cells: Sequence[Cell]) -> RunPart:
        seeds = self.seeds(cells)
        embedder = self.embedder(encoder, list(seeds), only_look=True)
        cell_of = {(cell.task, cell.protocol, cell.seed): cell for cell in cells}
        mine: dict[Cell, ScoredTask] = {}
        done: list[Cell] = []
        for task, seed in [(one, seed) for one in embedder.tasks for seed in seeds[one]]:
            cell = cell_of[task.name, task.asked, seed]
            mine[cell] = task
            if not self.settings.fresh and done_already(self.settings.out, task, embedder, seed, self.listener.refused):
                done.append(cell)
        todo = dict.fromkeys(task for cell, task in mine.items() if cell not in done)
        missing = embedder.missing(list(todo))
        to_embed, tokens = missing if missing is not None else (None, None)
        return RunPart(spec=spec, name=encoder.name, cells=list(mine), done=done, to_embed=to_embed, tokens=tokens)

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
            shared=self._shared,
            noticed=self.listener.noticed,
            only_look=only_look,
        )


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
