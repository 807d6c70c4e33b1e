"""Results gathered into boards: one a protocol, encoders down, tasks across."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stsbench.cards import Suite
from stsbench.results import Result

TOLD = ("metric", "aggregation")
"""The fields of a protocol that every title names."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One encoder's score on one task: its mean over seeds, and their deviation."""

    score: float
    deviation: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One encoder's cells by task, and their average where none is missing."""

    encoder: str
    cells: Mapping[str, Cell]
    average: float | None
    overlap: str


@dataclass(frozen=True, kw_only=True)
class Board:
    """All results of a suite that were scored by the same protocol, best average first."""

    suite: str
    protocol: Mapping[str, object]
    told: Sequence[str]
    """The protocol's fields that the title names."""
    tasks: Sequence[str]
    rows: Sequence[Row]

    @property
    def title(self) -> str:
        """What the board shows, in one line."""
        facts = ", ".join(f"{'' if key in TOLD else f'{key} '}{self.protocol[key]}" for key in self.told)
        return f"{self.suite}, protocol {self.protocol['name']}" + (f" ({facts})" if facts else "")


def boards(
    results: Sequence[Result], name: str, suite: Suite, *, scored: Mapping[str, str], protocol: str | None = None
) -> list[Board]:
    """Gather results into boards; scores of different protocols never meet in one.

    A task's results count where they are of its scored split, which ``scored`` tells. An encoder
    whose weights or settings changed under the same name gets a row for each fingerprint.
    """
    wanted = [r for r in results if r.task in suite.tasks and r.split == scored[r.task]]
    groups: dict[str, list[Result]] = {}
    for result in wanted:
        if protocol in (None, result.protocol["name"]):
            groups.setdefault(json.dumps(result.protocol, sort_keys=True), []).append(result)
    protocols = {key: json.loads(key) for key in sorted(groups)}
    return [
        Board(
            suite=suite.name or name,
            protocol=fields,
            told=_told(fields, [p for p in protocols.values() if p["name"] == fields["name"]]),
            tasks=suite.tasks,
            rows=_rows(groups[key], suite),
        )
        for key, fields in protocols.items()
    ]


def _told(protocol: Mapping[str, object], namesakes: Sequence[Mapping[str, object]]) -> list[str]:
    """The fields that say most, and those that tell this protocol from others of its name."""
    differing = [key for key in protocol if any(other.get(key) != protocol[key] for other in namesakes)]
    return [key for key in dict.fromkeys([*TOLD, *differing]) if key in protocol]


def _rows(results: Sequence[Result], suite: Suite) -> list[Row]:
    encoders: dict[tuple[str, str | None], list[Result]] = {}
    for result in results:
        encoders.setdefault((result.encoder, result.fingerprint), []).append(result)
    names = [name for name, _ in encoders]
    rows = [
        _row(name if names.count(name) == 1 else f"{name} [{(mark or 'none')[:6]}]", group, suite)
        for (name, mark), group in encoders.items()
    ]
    return sorted(rows, key=lambda row: (row.average is None, -(row.average or 0.0), row.encoder))


def _row(name: str, results: Sequence[Result], suite: Suite) -> Row:
    cells = {}
    for task in suite.tasks:
        mine = [r for r in results if r.task == task]
        if mine:
            scores = [r.score for r in mine]
            deviation = statistics.stdev(scores) if len(scores) > 1 else None
            interval = mine[0].interval if len(scores) == 1 else None
            cells[task] = Cell(score=statistics.fmean(scores), deviation=deviation, interval=interval)
    whole = suite.average and len(cells) == len(suite.tasks)
    average = statistics.fmean(cell.score for cell in cells.values()) if whole else None
    return Row(encoder=name, cells=cells, average=average, overlap=results[0].overlap)
