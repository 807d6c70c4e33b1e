"""Results as a file ``.eval_results/<name>.yaml`` of a model's repository, which its page and a dataset's leaderboard show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.errors import DataError
from stsbench.leaderboard.exports.measured import SOURCE, MeasuredScore, measured
from stsbench.leaderboard.exports.tasks import mteb_task
from stsbench.results.record import Result


class EvalResultsExport(NamedTuple):
    """The file's text, and the cells that it does not hold, each with the reason."""

    text: str
    left_out: list[str]


def eval_results(results: Sequence[Result], catalogue: Catalogue) -> EvalResultsExport:
    """The YAML of one encoder's results on tasks that are datasets on the Hub, as ``huggingface_hub`` writes its entries.

    The dataset is MTEB's where the data are, and the task is then called as MTEB calls it. Values are as in results, from 0 to 1;
    ``notes`` hold the protocol, without which no two values may be compared, and the 95% interval.

    Args:
        results: one encoder's; several seeds are their mean.
        catalogue: cards of the project and of the user.

    Raises:
        DataError: no task of theirs is a dataset on the Hub.
    """
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
    from yaml import safe_dump  # type: ignore[import-untyped]

    entries, left_out = [], []
    for one in measured(results, catalogue):
        found = _dataset(one, catalogue)
        if found is None:
            left_out.append(f"{one.first.encoder} on {one.first.task}: it is no dataset of its own on the Hub")
        else:
            repo, task, revision = found
            entries.append(
                EvalResultEntry(
                    dataset_id=repo,
                    task_id=task,
                    value=one.score.mean,
                    dataset_revision=revision,
                    date=one.newest,
                    source_url=SOURCE,
                    source_name="stsbench",
                    notes=_notes(one),
                )
            )
    if not entries:
        raise DataError(f"nothing to export: {left_out[0]}")
    text: str = safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True, width=1000)
    return EvalResultsExport(text, left_out)


def _dataset(one: MeasuredScore, catalogue: Catalogue) -> tuple[str, str, str] | None:
    """Repository, task and revision."""
    theirs = mteb_task(one.first.task, catalogue) if one.card else None
    if theirs is not None:
        return theirs.repo, theirs.name if theirs.subset == "default" else theirs.subset, theirs.revision
    hub = one.card.hub if one.card else None
    return (hub.repo, hub.config or one.first.task, hub.revision) if hub and not hub.archive else None


def _notes(one: MeasuredScore) -> str:
    first, protocol = one.first, one.first.protocol
    told = f"{one.metric.name}, {first.split} split, n = {first.n}, protocol {protocol['name']}"
    over = ""
    if one.score.deviation is not None:
        told, over = (
            f"{told}; mean of {len(one.results)} seeds, deviation {one.score.deviation:.4f}",
            " over items and seeds",
        )
    interval = one.interval
    return f"{told}; 95% interval{over} {interval.low:.4f} to {interval.high:.4f}" if interval else told
