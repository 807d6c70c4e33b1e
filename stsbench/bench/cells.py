"""The work of a run as a list of cells: plain data that can be counted, shown and sent to another process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stsbench.bench.shelf import Store
from stsbench.bench.tasks import ScoredTask, plan_tasks
from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.loading import each_seed
from stsbench.errors import StsbenchError


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score that a run makes: an encoder, a task, a protocol and a seed, as the command line names them."""

    encoder: str
    task: str
    protocol: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class RunPart:
    """One encoder of a run: plain data, that can be counted, shown and sent to another process."""

    spec: str
    """The encoder as the user names it."""
    name: str
    """What its results call it."""
    cells: Sequence[Cell]
    """Those whose data could be had."""
    done: Sequence[Cell]
    """Those that the results folder holds."""
    to_embed: int | None
    """Distinct sentences that the store does not hold; None where only fitting the encoder tells."""
    tokens: int | None = None
    """The tokens, or nearly, that a server would be sent for them; None where the encoder runs here."""

    @property
    def missing(self) -> list[Cell]:
        """Those that are to be scored."""
        return [cell for cell in self.cells if cell not in self.done]


@dataclass(frozen=True)
class TextLeftOut:
    """Training text whose sentences a further score of each cell leaves out."""

    corpora: Sequence[str]
    """Names and files as ``--text`` of training takes them; ``own``: what the encoder's recipe names."""
    near: float | None = None
    """The least similarity of near-duplicates that are left out too."""
    folder: Path | None = None
    """Of training text."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What one ``stsbench run`` does: encoders on tasks, into a results folder."""

    encoders: Sequence[str]
    tasks: str
    out: Path
    params: Mapping[str, Any] = field(default_factory=dict)
    protocol: str | None = None
    data: Path | None = None
    split: str | None = None
    seeds: Sequence[int] = (0,)
    store: Store = "default"
    fresh: bool = False
    called: Mapping[str, str] = field(default_factory=dict)
    """What results call an encoder, by what it is given as, where it is not its own name."""
    catalogue: Catalogue = field(default_factory=Catalogue)
    on: str = "local"
    """Who carries it out: a row of :data:`stsbench.bench.executor.EXECUTORS`, or ``ray://HOST:PORT``."""
    gpus_per_encoder: int | None = None
    """How many workers embed for one encoder; None for as many as are free."""
    clean: TextLeftOut | None = None
    """Where it is given, each Result has a score over the items that this text holds nothing of."""


def plan_cells(settings: RunSettings) -> list[Cell]:
    """Return the cells of a run in the order encoder, task, seed; no data are read and no encoder is made.

    A recipe that was trained for several seeds is one encoder a seed, ``recipe@3``.

    Raises:
        UnknownName: a task, suite or protocol that does not exist.
    """
    tasks = plan_tasks(
        settings.tasks, settings.catalogue, protocol=settings.protocol, data=settings.data, split=settings.split
    )
    return [
        Cell(encoder=encoder, task=task.name, protocol=task.asked, seed=seed)
        for encoder in dict.fromkeys(one for spec in settings.encoders for one in seeds_of(spec, settings.catalogue))
        for task in tasks
        for seed in dict.fromkeys(settings.seeds)
    ]


def seeds_of(spec: str, catalogue: Catalogue) -> list[str]:
    """The encoders that a name stands for: of a recipe trained for several seeds one a seed."""
    try:
        return each_seed(spec, catalogue)
    except StsbenchError:
        # It fails when it is loaded, and takes no other encoder with it.
        return [spec]


def task_of(cell: Cell, settings: RunSettings) -> ScoredTask:
    """The task of a cell with its protocol; no data are read yet."""
    (task,) = plan_tasks(
        cell.task, settings.catalogue, protocol=cell.protocol, data=settings.data, split=settings.split
    )
    return task
