"""The plan of a run: its tasks with their protocols, its encoders, its seeds and its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from stsbench.bench.protocols import PlannedTask, ProtocolRequest, parse_protocols, plan_task
from stsbench.core import settings
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import SourceError, StsbenchError, UnknownName
from stsbench.data.task import AVAILABLE, Task, expand_names, list_available, load_task
from stsbench.encoders.load import expand_recipe
from stsbench.evaluators.registry import EVALUATORS
from stsbench.results.record import Result

TaskSpecs = str | Task | Sequence[str | Task]
"""The tasks of a run as a program may pass them.

A name of a task or a suite, a comma list of names, a Task, or a list of these.
"""


Store = Path | str | None
"""A folder for embeddings, ``default`` for the user's cache folder, or None for memory only."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score of a run: an encoder, a task, a protocol and a seed, as a user names them."""

    encoder: str
    task: str
    protocol: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class EncoderPlan:
    """The plan for one encoder of a run: plain data that can be sent to another process."""

    spec: str
    """The encoder as the user writes it."""
    name: str
    """The name of the encoder in its results."""
    cells: Sequence[Cell]
    """The cells whose data are available."""
    current_results: Mapping[Cell, Result]
    """The valid results that the results folder already has, by their cells."""
    sentences_to_embed: int | None
    """The number of sentences without stored embeddings; None if unknown before fitting."""
    tokens_to_send: int | None = None
    """About how many tokens a server would be sent for them; None if the encoder runs locally."""
    libraries: Sequence[str] = ()
    """The packages that compute its embeddings, as its fingerprint names them."""

    @property
    def missing_cells(self) -> list[Cell]:
        """The cells that are still to be scored."""
        return [cell for cell in self.cells if cell not in self.current_results]


@dataclass(frozen=True)
class CleanScoreSettings:
    """Training text whose sentences are excluded from a further score of each cell."""

    corpora: Sequence[str]
    """Names of corpora and files; ``own`` is the training text that the encoder's recipe names."""
    min_similarity: float | None = None
    """The minimum similarity of near-duplicates to exclude too; None for equal sentences only."""
    folder: Path | None = None
    """The folder of the corpora; None for the one in the user's settings."""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The settings of a run: which encoders are scored on which tasks, and how.

    The command line and :func:`stsbench.evaluate` both make one. The fields from ``results_folder``
    on concern only runs that write result files.
    """

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
    """The names of encoders in results, by spec; by default an encoder has its own name."""
    executor: str = "local"
    """A row of :data:`stsbench.bench.run.EXECUTORS`, or ``ray://HOST:PORT``."""
    devices: Sequence[str] = ()
    """The devices of this machine that get a process each from the executor ``devices``."""
    gpus_per_encoder: int | None = None
    """The number of workers that embed for one encoder; None for all free ones."""
    timeout: float | None = None
    """The seconds after which a job of a worker is cancelled; None for never."""
    clean: CleanScoreSettings | None = None
    """If set, each Result has a further score, without the items of this training text."""

    @property
    def has_one_encoder(self) -> bool:
        """Whether the run has a single encoder, whose errors stop the run."""
        return len(self.encoders) == 1

    @property
    def data_folder(self) -> Path | None:
        """The local data folder: the plan's, else that of the settings; None if there is none."""
        return Path(self.data) if self.data is not None else settings.data_folder()

    @cached_property
    def planned_tasks(self) -> list[PlannedTask]:
        """The tasks of the run, each with the evaluator and the protocol that score it.

        They are computed at the first access. No data are read yet.

        Raises:
            UnknownName: A task, suite or protocol does not exist, or no task has a requested
                protocol.
        """
        # By their names; empty if the user requests none, so that each task has its default.
        requested_protocols = parse_protocols(self.protocol)
        planned_tasks = [
            plan_task(task, requested_protocols, self.split) for task in self._find_tasks()
        ]
        self._check_protocols_are_used(requested_protocols, planned_tasks)
        return planned_tasks

    @property
    def _task_specs(self) -> Sequence[str | Task]:
        # An empty list stands for an empty name, which is refused as unknown.
        return [self.tasks] if isinstance(self.tasks, str | Task) else self.tasks or [""]

    @property
    def has_available_tasks(self) -> bool:
        """Whether all available tasks are requested, and so those too that no encoder suits."""
        return AVAILABLE in self._task_specs

    def _find_tasks(self) -> list[Task]:
        """Return the tasks that the user names in ``self.tasks``, each once, in their order.

        A spec is a Task, which keeps its own data folder; the name of a task; the name of a suite,
        which stands for its tasks in its order; a comma list of names; or ``available``, for all
        tasks with local data. ``self._task_specs`` are the specs of ``self.tasks`` as a list.
        """
        tasks_by_name: dict[str, Task] = {}
        for spec in self._task_specs:
            if isinstance(spec, Task):
                tasks_by_name.setdefault(spec.name, spec)
                continue
            if spec == AVAILABLE:
                names = list_available(self.catalogue, Path(self.data) if self.data else None)
            else:
                names = expand_names(spec, self.catalogue)
            for name in names:
                if name not in tasks_by_name:
                    tasks_by_name[name] = load_task(name, data=self.data, catalogue=self.catalogue)
        return list(tasks_by_name.values())

    @staticmethod
    def _check_protocols_are_used(
        requested_protocols: Mapping[str, ProtocolRequest], planned_tasks: Sequence[PlannedTask]
    ) -> None:
        """Check that each requested protocol, a way of scoring, is used by at least one task.

        Args:
            requested_protocols: The requests of the user, by the names of protocols.
            planned_tasks: The tasks, each with the protocol that was chosen for it.

        Raises:
            UnknownName: A protocol is requested that no task has.
        """
        # As the user wrote them, for example "senteval(kfold=5)", which is also ``request.text``.
        used_protocols = {task.requested_protocol for task in planned_tasks}
        for name, request in requested_protocols.items():
            if request.text in used_protocols:
                continue
            # The protocols that the tasks have: a dict keeps their order, each once.
            available: dict[str, None] = {}
            for planned_task in planned_tasks:
                evaluator_class = EVALUATORS.load(planned_task.task.card.evaluator)
                available |= dict.fromkeys(evaluator_class.PROTOCOLS)
            raise UnknownName(
                "protocol", name, available, hint=f"these tasks have {', '.join(available)}"
            )

    @cached_property
    def cells(self) -> list[Cell]:
        """All that the run scores, in the order encoder, task, seed; no encoder is loaded.

        A cell is one score: an encoder on a task by a protocol with an evaluation seed. A training
        recipe that was run with several seeds is one encoder per seed, such as ``recipe@3``. The
        protocol is the request that chose it, such as ``senteval(kfold=5)``, or else its name.

        Raises:
            StsbenchError: A task, suite, protocol or data folder does not exist.
        """
        planned_tasks = self.planned_tasks
        if self.data_folder is not None and not self.data_folder.is_dir():
            raise SourceError(f"data folder '{self.data_folder}' does not exist")
        # A dict keeps the order of the encoders, each once.
        encoders: dict[str, None] = {}
        for spec in self.encoders:
            encoders |= dict.fromkeys(expand_seeds(spec, self.catalogue))
        return [
            Cell(encoder=encoder, task=task.name, protocol=task.requested_protocol, seed=seed)
            for encoder in encoders
            for task in planned_tasks
            for seed in dict.fromkeys(self.seeds)
        ]


def expand_seeds(spec: str, catalogue: Catalogue) -> list[str]:
    """Return the encoders that a spec stands for: one per seed of a recipe with several seeds."""
    try:
        return expand_recipe(spec, catalogue)
    except StsbenchError:
        # Loading it fails later, and is reported for this encoder only.
        return [spec]
