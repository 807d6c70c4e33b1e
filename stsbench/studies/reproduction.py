"""An ablation carried out: its lines' trials trained once each and scored, its encoders scored, and all put into its table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.kinds import FROM_CHECKPOINT
from stsbench.leaderboard.tables.table import Table
from stsbench.studies.ablations import Ablation, trials_of
from stsbench.studies.beside import Had, scored_on, table_beside
from stsbench.studies.trials import (
    PlannedTrial,
    Trial,
    TrialOutcome,
    TrialWatcher,
    Workshop,
    carry_out_trials,
    plan_trials,
    score_encoder,
)


class Reproduction(NamedTuple):
    """What is to be done for an ablation: the trials of each of its lines, and the runs that these are."""

    ablation: Ablation
    trials: Sequence[Sequence[Trial]]
    planned: Sequence[PlannedTrial]
    base: str = ""

    def lines_of(self, planned: PlannedTrial) -> list[str]:
        """The rows that a run is of."""
        pairs = zip(self.ablation.lines, self.trials, strict=True)
        return [line.label for line, trials in pairs if any(trial in planned.trials for trial in trials)]


def plan_reproduction(
    ablation: Ablation,
    workshop: Workshop,
    *,
    base: str = "",
    seeds: Sequence[int] = (),
    also: Mapping[str, Any] | None = None,
) -> Reproduction:
    """Plan an ablation; for the arguments and errors see :func:`trials_of` and :func:`plan_trials`."""
    trials = [
        trials_of(ablation, line, workshop.catalogue, base=base, seeds=seeds, also=also) for line in ablation.lines
    ]
    return Reproduction(ablation, trials, plan_trials([trial for one in trials for trial in one], workshop), base)


def reproduce(
    reproduction: Reproduction,
    workshop: Workshop,
    watcher: TrialWatcher,
    failed: Callable[[str, Exception], None],
) -> Table:
    """Train what is missing, score all of it, and return the table with the paper's numbers beside.

    Args:
        reproduction: what is to be done.
        workshop: on what, and where results go.
        watcher: told how it goes.
        failed: told each thing that fails, with why; the others go on.
    """
    ablation, catalogue = reproduction.ablation, workshop.catalogue
    tasks = scored_on(ablation, catalogue)
    outcomes: list[TrialOutcome] = []
    for outcome in carry_out_trials(reproduction.planned, workshop, tasks, watcher):
        for what, error in outcome.failures:
            failed(what, error)
        outcomes.append(outcome)
    had = []
    for line, trials in zip(ablation.lines, reproduction.trials, strict=True):
        mine = [one for one in outcomes if any(trial in one.planned.trials for trial in trials)]
        results = [result for one in mine for result in one.results]
        if line.encoder:
            params = _checkpoint(line.encoder, reproduction.base, catalogue)
            failures: list[tuple[str, Exception]] = []
            results = score_encoder(line.encoder, workshop, tasks, watcher.scoring, failures, params=params)
            for what, error in failures:
                failed(what, error)
        had.append(Had(results, [one.run for one in mine if one.run is not None]))
    return table_beside(ablation, had, catalogue)


def _checkpoint(encoder: str, base: str, catalogue: Catalogue) -> dict[str, str]:
    """The base as the checkpoint of an encoder whose card names none, or whose own base's card does."""
    card = catalogue.encoder(encoder.partition("+")[0])
    over = card.params.get("base")
    card = catalogue.encoder(over) if over in catalogue.paths("baselines") else card
    names_one = card.kind not in FROM_CHECKPOINT or {"model", "package"} & {*card.params}
    return {} if names_one or not base else {"model": base}
