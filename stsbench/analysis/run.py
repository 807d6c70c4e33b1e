"""One analysis carried out: encoders made one after the other, their embeddings from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from stsbench.analysis.seams import ANALYSES, Analysis, Findings, Subject
from stsbench.bench.embedder import Embedder, make_embedder
from stsbench.bench.listener import Listener
from stsbench.bench.shared import Shared
from stsbench.bench.shelf import Store
from stsbench.bench.tasks import ScoredTask, plan_tasks, read_tasks
from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.loading import check_loadable, each_seed, find_encoder
from stsbench.encoders.seams import Embed, Embeddings
from stsbench.errors import StsbenchError
from stsbench.registry.names import call_with_params
from stsbench.results.folder import read_folder
from stsbench.results.record import Result


@dataclass(frozen=True, kw_only=True)
class AnalysisBed:
    """Encoders and a task as the user names them; read and made when an analysis asks for them."""

    names: Sequence[str]
    planned: ScoredTask
    catalogue: Catalogue
    data: Path | None = None
    store: Store = "default"
    folder: Path = Path("results")
    listener: Listener = field(default_factory=Listener)
    told: Callable[[str, StsbenchError], None] | None = None

    def failed(self, what: str, error: StsbenchError) -> None:
        """Tell an encoder that cannot be measured to who wants to go on; raises it where nobody does."""
        if self.told is None:
            raise error
        self.told(what, error)

    @property
    def task(self) -> str:
        """The task's id."""
        return self.planned.name

    @cached_property
    def read(self) -> ScoredTask:
        """The task with its data; raises DataError where no source has them."""
        return read_tasks([self.planned], _raise)[0]

    def subjects(self) -> Iterator[Subject]:
        """Each encoder on the task, those of all seeds of a recipe one after the other."""
        specs = list(dict.fromkeys(one for name in self.names for one in each_seed(name, self.catalogue)))
        for spec in specs:
            check_loadable(spec, self.catalogue)
        shared = Shared()
        for spec in specs:
            known = find_encoder(spec, catalogue=self.catalogue)
            embedder = make_embedder(
                known,
                [self.read],
                store=self.store,
                catalogue=self.catalogue,
                data=self.data,
                progress=self.listener.encoding,
                failed=_raise,
                shared=shared,
                noticed=self.listener.noticed,
            )
            yield Subject(
                name=known.name if spec in self.names else spec,
                known=known,
                task=self.read,
                embed=_Prepared(embedder, self.read),
                store=self.store,
                catalogue=self.catalogue,
                progress=self.listener.encoding,
            )

    def results(self) -> Sequence[Result]:
        """The folder's results of the task, its split and its protocol."""
        found = read_folder(self.folder)
        for problem in found.problems:
            self.listener.noticed(problem.line)
        task = self.planned
        return [
            one
            for one in found.results
            if (one.task, one.split, one.protocol) == (task.name, task.split, dict(task.protocol))
        ]


def make_analysis(name: str, parameters: Mapping[str, Any]) -> Analysis:
    """Return the analysis of this name, with some of its parameters replaced.

    Raises:
        UnknownName: there is none; CardError: it has no such parameter, or none of this type.
    """
    made: Analysis = call_with_params(ANALYSES.load(name), parameters, where=f"analysis '{name}'")
    return made


def analyse(
    name: str,
    analysis: Analysis,
    encoders: Sequence[str],
    *,
    tasks: str,
    parameters: dict[str, Any],
    catalogue: Catalogue,
    protocol: str | None = None,
    split: str | None = None,
    data: Path | None = None,
    store: Store = "default",
    results: Path = Path("results"),
    listener: Listener | None = None,
    failed: Callable[[str, StsbenchError], None] | None = None,
) -> Findings:
    """Carry out an analysis.

    Args:
        name: what it is called.
        analysis: made with its parameters.
        encoders: as the user names them.
        tasks: one task.
        parameters: what was replaced of the analysis's own.
        catalogue: the cards.
        protocol: how the task is scored.
        split: which split; default the one that is scored.
        data: the data folder.
        store: where embeddings are kept.
        results: the results folder, for what reads one.
        listener: told how it goes.
        failed: told each encoder that cannot be measured; without it that is raised.

    Raises:
        StsbenchError: several tasks are named, or what the analysis needs cannot be had.
    """
    planned = plan_tasks(tasks, catalogue, protocol=protocol, data=data, split=split)
    if len(planned) > 1:
        raise StsbenchError(f"an analysis is of one task; '{tasks}' is {len(planned)}; name one of them")
    bed = AnalysisBed(
        names=encoders,
        planned=planned[0],
        catalogue=catalogue,
        data=data,
        store=store,
        folder=results,
        listener=listener or Listener(),
        told=failed,
    )
    return Findings(
        analysis=name,
        task=planned[0].name,
        split=planned[0].split,
        protocol=planned[0].asked,
        encoders=list(encoders),
        parameters=parameters,
        tables=analysis.tables(bed),
    )


def _raise(what: str, error: StsbenchError) -> NoReturn:
    raise error


@dataclass
class _Prepared:
    """Embeds for a task; the first time, all its sentences together, as a run does."""

    embedder: Embedder
    task: ScoredTask

    @cached_property
    def engine(self) -> Embed:
        self.embedder.prepare([self.task], [self.task])
        return self.embedder.engine(self.task)

    def __call__(self, sentences: Sequence[str]) -> Embeddings:
        return self.engine(sentences)
