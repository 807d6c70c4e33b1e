"""A suite's boards: a table card for each protocol that its tasks were scored by, and the results of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import Suite
from stsbench.compare.means import OnRow, unwatched
from stsbench.leaderboard.published.specs import AverageFacts, BoardFacts, TableCard
from stsbench.leaderboard.tables.added import Added
from stsbench.leaderboard.tables.build import make_table
from stsbench.leaderboard.tables.table import Table
from stsbench.results.comparable import protocol_key
from stsbench.results.record import Result

TOLD = ("metric", "aggregation")
"""The fields of a protocol that every title names."""


class SuiteBoard(NamedTuple):
    """The card of one board, and the results that may be in it."""

    card: TableCard
    results: Sequence[Result]


def suite_boards(
    results: Sequence[Result],
    name: str,
    suite: Suite,
    *,
    scored: Mapping[str, str],
    protocol: str | None = None,
    published: bool = False,
) -> list[SuiteBoard]:
    """A board for each protocol; scores of different protocols never meet in one.

    Args:
        results: any results.
        name: the suite's key, by which published averages are known.
        suite: its tasks are the columns.
        scored: each task's scored split; results of others do not count.
        protocol: only the protocols of this name.
        published: whether published rows of the protocol stand beside the measured ones.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        wanted = result.task in suite.tasks and result.split == scored[result.task]
        if wanted and protocol in (None, result.protocol["name"]):
            groups.setdefault(protocol_key(result.protocol), []).append(result)
    protocols = {key: json.loads(key) for key in sorted(groups)}
    return [
        SuiteBoard(suite_card(name, suite, fields, list(protocols.values()), published=published), groups[key])
        for key, fields in protocols.items()
    ]


def suite_card(
    name: str, suite: Suite, protocol: dict[str, Any], others: Sequence[Mapping[str, Any]] = (), *, published: bool
) -> TableCard:
    """The card of a suite's board by one protocol; the title tells it from those of the same name among ``others``."""
    namesakes = [other for other in others if other["name"] == protocol["name"]]
    differing = [key for key in protocol if any(other.get(key) != protocol[key] for other in namesakes)]
    told = [key for key in dict.fromkeys([*TOLD, *differing]) if key in protocol]
    facts = ", ".join(f"{'' if key in TOLD else f'{key} '}{protocol[key]}" for key in told)
    return TableCard(
        title=f"{suite.name or name}, protocol {protocol['name']}" + (f" ({facts})" if facts else ""),
        protocol=str(protocol["name"]),
        fields=protocol,
        columns=list(suite.tasks),
        average=AverageFacts(task=name, rounding="never") if suite.average else None,
        board=BoardFacts(published=published),
    )


def suite_table(
    board: SuiteBoard,
    suite: Suite,
    name: str,
    catalogue: Catalogue,
    added: Sequence[Added] = (),
    progress: OnRow = unwatched,
) -> Table:
    """The table of a suite's board; rows that are asked for have the labels that are."""
    return make_table(suite.name or name, board.card, board.results, catalogue, added, progress)
