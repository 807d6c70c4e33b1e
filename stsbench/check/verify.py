"""Results verified without an encoder: every number is made again from the items, every hash and protocol is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core.cards import task_digest
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.core.wording import join_lines, shorten
from stsbench.evaluators.base import ItemColumns
from stsbench.evaluators.belief import NO_COLUMNS, Standing, VerifiedFile
from stsbench.numbers.statistics import SENTENCE_COLUMNS
from stsbench.results.folder import find_lost_results, has_columns, read_item_columns, read_states
from stsbench.results.record import Result, digest_columns


class LocalData(NamedTuple):
    """The data of one score, where they are at hand: their hash, and the columns of the split that the items must have."""

    digest: str
    columns: Mapping[str, npt.NDArray[Any] | list[str]]


DataAtHand = Callable[[Result], LocalData | None]
"""Gives the data of a Result, None where they are not at hand; raises StsbenchError where they cannot be read."""


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """All files of a results folder."""

    files: Sequence[VerifiedFile]

    def of(self, standing: Standing) -> list[VerifiedFile]:
        """Those of this standing."""
        return [one for one in self.files if one.standing == standing]

    @property
    def exit_code(self) -> int:
        """0: some were verified and none failed; else 2."""
        return 2 if self.of("failed") or not self.of("verified") else 0

    @property
    def summary(self) -> str:
        """How many are of which standing, in one line."""
        counts = [
            f"{len(self.of(one))} {one}"
            for one in ("verified", "failed", "not verified")
            if self.of(one)
        ]
        data = sum(one.data for one in self.files)
        results = "1 result" if len(self.files) == 1 else f"{len(self.files)} results"
        return f"{results}: {', '.join(counts) or 'none'}; data found for {data}"


def verify(
    folder: Path,
    catalogue: Catalogue,
    data: DataAtHand,
    progress: Callable[[int, int], object] | None = None,
) -> VerificationReport:
    """Verify every Result of a results folder, or of one encoder's folder in it.

    Digest, place, protocol and card are looked at always; scores, those of each subset and intervals where the per-item
    columns are beside the Result; the data's hash, gold scores and labels, and scores of each class, where the data are at hand.

    ``data`` gives the data that are at hand; ``progress`` gets how many of the Results are done, and how many there are.

    Raises:
        OutputError: there is no such folder.
    """
    found = read_states(folder)
    files = [
        VerifiedFile(path=one.path, problems=[one.message])
        for one in (*found.problems, *find_lost_results(folder))
    ]
    # Results of the same data have the same gold scores and subsets: one whose own differ from most others' has made them up.
    groups: dict[tuple[str, str, str], list[tuple[VerifiedFile, str]]] = {}
    for done, result in enumerate(found.results, 1):
        one = VerifiedFile(path=result.path or Path(), result=result)
        files.append(one)
        _look_at_card(one, result, catalogue)
        evaluator, columns = one.load_evaluator(result, catalogue), None
        if not has_columns(result):
            one.unknown.append(NO_COLUMNS)
        else:
            with _noted(one.problems):
                columns = read_item_columns(result)
        labels = _look_at_data(one, result, columns, data)
        if columns is not None and not one.problems:
            if evaluator is not None:
                one.compare_with_items(result, columns, evaluator, labels)
            if one.other_interval:
                how = shorten(one.other_interval)
                one.unknown.append(f"its interval was made in another way ('{how}')")
            of_data = {
                name: column for name, column in columns.items() if name in ("gold", "subset")
            }
            if of_data:
                group = groups.setdefault((result.task, result.split, result.data), [])
                group.append((one, digest_columns(of_data)))
        one.check_fields(result)
        if progress:
            progress(done, len(found.results))
    for group in groups.values():
        ((usual, count), *others) = Counter(digest for _, digest in group).most_common()
        for one, digest in group:
            if others and (digest != usual or count == others[0][1]):
                one.problems.append(
                    "column 'gold' or 'subset' differs from that of other results of the same data"
                )
    return VerificationReport(files=sorted(files, key=lambda one: one.path))


@contextmanager
def _noted(lines: list[str], said: str = "") -> Iterator[None]:
    try:
        yield
    except StsbenchError as error:
        lines.append(f"{said}{join_lines(error)}")


def _look_at_card(one: VerifiedFile, result: Result, catalogue: Catalogue) -> None:
    if result.task in catalogue.paths("tasks"):
        due = task_digest(catalogue.task(result.task))
        if due != result.task_card:
            one.problems.append(
                f"field 'task_card': {result.task_card[:12]}, the hash of the card is {due[:12]}"
            )


def _look_at_data(
    one: VerifiedFile,
    result: Result,
    columns: Mapping[str, npt.NDArray[Any]] | None,
    data: DataAtHand,
) -> ItemColumns:
    """The labels of the items, where the data are at hand and have some; notes what is not the data's."""
    known: LocalData | None = None
    with _noted(one.unknown, "its data cannot be read: "):
        known = data(result)
    if known is None:
        return {}
    one.data = known.digest == result.data
    if not one.data:
        one.problems.append(
            f"field 'data': {result.data[:12]}, the hash of the data found is {known.digest[:12]}"
        )
    elif columns is not None:
        for name in ("gold", "subset", *SENTENCE_COLUMNS):
            if {name} <= columns.keys() & known.columns.keys():
                if not np.array_equal(columns[name], np.asarray(known.columns[name])):
                    one.problems.append(f"column '{name}' is not that of the data")
        if {"prediction", "correct"} <= columns.keys() and "labels" in known.columns:
            right = columns["prediction"] == np.asarray(known.columns["labels"])
            if not np.array_equal(columns["correct"].astype(bool), right):
                one.problems.append(
                    "column 'correct' is not what the data's labels make of the predictions"
                )
    return {"label": known.columns["labels"]} if one.data and "labels" in known.columns else {}
