"""Scores with intervals during a training of sentence-transformers, which is not imported here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from stsbench.api.calls import evaluate
from stsbench.api.results import Results
from stsbench.bench.iteration import EncoderLike
from stsbench.bench.plan import RunPlan, TaskSpecs
from stsbench.bench.progress import RunCallbacks
from stsbench.core.catalogue import CATALOGUE, Catalogue
from stsbench.core.parameters import NAME, PATH, validate_arguments
from stsbench.data.task import check_split_name

PRIMARY_METRIC = "stsbench_score"
"""The key of the score that selects a checkpoint: that of the task, or the mean over tasks."""


class StsbenchEvaluator:
    """An evaluator for sentence-transformers' trainer, which scores the model as it is then.

    Attributes:
        primary_metric: The key of the score that selects a checkpoint. In the trainer's arguments
            it is ``metric_for_best_model="eval_stsbench_score"``.
        greater_is_better: True: a higher score is better.
        description: The title in the model's card.
        results: The Results of the last call; None before it.
    """

    primary_metric = PRIMARY_METRIC
    greater_is_better = True
    description = "Stsbench"

    @validate_arguments(split=NAME, protocol=NAME, data=PATH, catalogue=CATALOGUE)
    def __init__(
        self,
        tasks: TaskSpecs = "stsb",
        *,
        split: str | None = "validation",
        protocol: str | None = None,
        data: Path | str | None = None,
        batch_size: int | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        """Store the arguments with which :func:`stsbench.evaluate` scores the model in training.

        Args:
            tasks: The tasks and suites.
            split: The split of each task to score, by default the one for choices in training;
                None for the usual one, the test.
            protocol: Names of protocols; None for the default of each task.
            data: A local data folder; by default that of the settings, else the Hub.
            batch_size: The largest number of sentences that the model is called with at once.
            catalogue: The cards to look names up in.

        Raises:
            UnknownName: A task, protocol or argument does not exist, or a task has no such split.
        """
        catalogue = catalogue or Catalogue()
        plan = RunPlan(tasks=tasks, split=split, protocol=protocol, data=data, catalogue=catalogue)
        # Wrong names are refused here, not at the first evaluation of a training.
        for planned_task in plan.planned_tasks:
            if split is not None:
                check_split_name(planned_task.task.name, planned_task.task.card, split)
        self.arguments: dict[str, Any] = {
            "tasks": tasks,
            "split": split,
            "protocol": protocol,
            "data": data,
            "batch_size": batch_size,
            "catalogue": catalogue,
        }
        # The Results of the last evaluation.
        self.results: Results | None = None

    def __iter__(self) -> Iterator[StsbenchEvaluator]:
        """Yield itself: the trainer takes an object of another class for a list of evaluators."""
        yield self

    def __call__(
        self, model: EncoderLike, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Score a model; sentence-transformers' trainer calls this with the arguments below.

        Args:
            model: The ``SentenceTransformer``, or anything else that can be evaluated.
            output_path: A folder in which the Results are saved; None to save none.
            epoch: The epoch, which is ignored.
            steps: The steps, which are ignored.

        Returns:
            ``stsbench_score``, and for each task ``<task>_score`` with its 95% interval from
            ``<task>_low`` to ``<task>_high``.

        Raises:
            StsbenchError: The data or the model cannot be used.
        """
        self.results = evaluate(
            encoder=model,
            name="model in training",
            # The weights change from call to call, so that stored embeddings would be of no use.
            store=None,
            # Callbacks that do nothing: no progress is shown, for the trainer shows its own.
            callbacks=RunCallbacks(),
            **self.arguments,
        )
        scores = {PRIMARY_METRIC: fmean(result.score for result in self.results)}
        for result in self.results:
            scores[f"{result.task}_score"] = result.score
            scores[f"{result.task}_low"], scores[f"{result.task}_high"] = result.interval
        if output_path is not None:
            self.results.save(Path(output_path) / "stsbench")
        return scores

    def get_config_dict(self) -> dict[str, str]:
        """Return what is scored, for the model's card."""
        return {key: str(self.arguments[key]) for key in ("tasks", "split")}
