"""What a run does: its tasks with their protocols, its encoders and seeds, the cells of it; how far it is, and who hears of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from stsbench.bench.protocols import PlannedTask, parse_protocols, plan_task
from stsbench.core import settings
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import SourceError, StsbenchError, UnknownName
from stsbench.data.task import Task, expand_names, load_task
from stsbench.encoders.load import expand_recipe
from stsbench.evaluators.registry import EVALUATORS
from stsbench.results.record import Result

TaskSpecs = str | Task | Sequence[str | Task]
"""What a program may hand over as tasks: names of tasks and suites, comma lists of them, Tasks, and lists of these."""


Store = Path | str | None
"""Where embeddings are kept: a folder, ``default`` for the user's cache folder, or None for memory alone."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score that a run makes: an encoder, a task, a protocol and a seed, as the command line names them."""

    encoder: str
    task: str
    protocol: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class EncoderPlan:
    """One encoder of a run: plain data, that can be counted, shown and sent to another process."""

    spec: str
    """The encoder as the user names it."""
    name: str
    """What its results call it."""
    cells: Sequence[Cell]
    """Those whose data could be had."""
    current_results: Mapping[Cell, Result]
    """Those that the results folder holds."""
    sentences_to_embed: int | None
    """Distinct sentences that the store does not hold; None where only fitting the encoder tells."""
    tokens_to_send: int | None = None
    """The tokens, or nearly, that a server would be sent for them; None where the encoder runs here."""
    libraries: Sequence[str] = ()
    """The packages that its fingerprint names: those that compute its embeddings."""

    @property
    def missing_cells(self) -> list[Cell]:
        """Those that are to be scored."""
        return [cell for cell in self.cells if cell not in self.current_results]


@dataclass(frozen=True)
class CleanScoreSettings:
    """Training text whose sentences a further score of each cell leaves out."""

    corpora: Sequence[str]
    """Names and files as ``--text`` of training takes them; ``own``: what the encoder's recipe names."""
    min_similarity: float | None = None
    """The least similarity of near-duplicates that are left out too."""
    folder: Path | None = None
    """Of training text."""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What is scored, and how: encoders on tasks. A command and a program say it alike; ``out`` and after are of runs alone."""

    tasks: TaskSpecs
    encoders: Sequence[str] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    protocol: str | Sequence[str] | None = None
    data: Path | str | None = None
    split: str | None = None
    seeds: Sequence[int] = (0,)
    store: Store = "default"
    catalogue: Catalogue = field(default_factory=Catalogue)
    results_folder: Path = Path("results")
    """The results folder."""
    fresh: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    """What results call an encoder, by what it is given as, where it is not its own name."""
    executor: str = "local"
    """Who carries it out: a row of :data:`stsbench.bench.run.EXECUTORS`, or ``ray://HOST:PORT``."""
    gpus_per_encoder: int | None = None
    """How many workers embed for one encoder; None for as many as are free."""
    timeout: float | None = None
    """Seconds after which a worker's piece of work is given up; None for never."""
    clean: CleanScoreSettings | None = None
    """Where it is given, each Result has a score over the items that this text holds nothing of."""

    @property
    def has_one_encoder(self) -> bool:
        """Whether it is of a single encoder, whose mistakes are its own."""
        return len(self.encoders) == 1

    @property
    def data_folder(self) -> Path | None:
        """The local data folder: the one given, else the user's usual one."""
        return Path(self.data) if self.data is not None else settings.data_folder()

    @cached_property
    def planned_tasks(self) -> list[PlannedTask]:
        """The tasks with their protocols, planned once; no data are read yet. A Task that is given has its own data folder.

        Raises UnknownName: a task, suite or protocol that does not exist, or that no chosen task uses.
        """
        asked, chosen = parse_protocols(self.protocol), dict[str, Task]()
        # No task at all is an empty name.
        for one in [self.tasks] if isinstance(self.tasks, str | Task) else self.tasks or [""]:
            if isinstance(one, Task):
                chosen.setdefault(one.name, one)
                continue
            for name in expand_names(one, self.catalogue):
                if name not in chosen:
                    chosen[name] = load_task(name, data=self.data, catalogue=self.catalogue)
        found = [plan_task(task, asked, self.split) for task in chosen.values()]
        used = {one.requested_protocol for one in found}
        for name, (text, _) in asked.items():
            if text not in used:
                known = {
                    name: None
                    for one in found
                    for name in EVALUATORS.load(one.task.card.evaluator).PROTOCOLS
                }
                raise UnknownName(
                    "protocol", name, known, hint=f"these tasks have {', '.join(known)}"
                )
        return found

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells of a run in the order encoder, task, seed; no encoder is made.

        A recipe that was trained for several seeds is one encoder a seed, ``recipe@3``. Raises StsbenchError: a task,
        suite, protocol or data folder that does not exist.
        """
        scored = self.planned_tasks
        if self.data_folder is not None and not self.data_folder.is_dir():
            raise SourceError(f"data folder '{self.data_folder}' does not exist")
        return [
            Cell(encoder=encoder, task=task.name, protocol=task.requested_protocol, seed=seed)
            for encoder in dict.fromkeys(
                one for spec in self.encoders for one in expand_seeds(spec, self.catalogue)
            )
            for task in scored
            for seed in dict.fromkeys(self.seeds)
        ]


def expand_seeds(spec: str, catalogue: Catalogue) -> list[str]:
    """The encoders that a name stands for: of a recipe trained for several seeds one a seed."""
    try:
        return expand_recipe(spec, catalogue)
    except StsbenchError:
        # It fails when it is loaded, and takes no other encoder with it.
        return [spec]
