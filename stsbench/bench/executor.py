"""Who carries out the parts of a run: this process, or whatever else is an :class:`Executor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from stsbench.bench.cells import RunPart
from stsbench.bench.score import score_tasks
from stsbench.bench.work import Work, isolated
from stsbench.registry.names import Registry
from stsbench.results.folder import write_result
from stsbench.results.record import Result


class Executor(Protocol):
    """Carries out parts; they and the settings are plain data, and results go into the settings' folder."""

    def __call__(self, work: Work, parts: Sequence[RunPart]) -> Iterator[Result]:
        """Yield the Result of each cell, in their order; what the folder holds is not done again.

        A cell that fails is told to the listener, and the others go on.
        """
        ...


EXECUTORS = Registry(
    "executor",
    {"local": "stsbench.bench.executor:local", "ray": "stsbench.bench.cluster.executor:on_ray"},
    group="executors",
    wanted="a function of work and parts, see stsbench.bench.executor:Executor",
)


def local(work: Work, parts: Sequence[RunPart]) -> Iterator[Result]:
    """Carry out parts in this process: each task is read once, each encoder's sentences embedded once."""
    settings, listener = work.settings, work.listener
    done_in = None if settings.fresh else settings.out
    for part in parts:
        with isolated(part.name, settings, listener):
            listener.began(part)
            seeds = work.seeds(part.cells)
            embedder = work.embedder(work.encoder(part), list(seeds))
            for result in score_tasks(embedder, seeds, listener=listener, failed=listener.failed, done_in=done_in):
                if result.per_item:
                    write_result(result, settings.out)
                yield result
