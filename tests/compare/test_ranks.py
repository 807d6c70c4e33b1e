"""Rank intervals."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import Suite
from stsbench.compare.comparison import Effort
from stsbench.compare.ranks import rank_intervals
from stsbench.errors import ProtocolError
from stsbench.leaderboard.tables.ranks import rank_table
from stsbench.leaderboard.tables.suite import suite_boards, suite_table
from stsbench.leaderboard.tables.table import RANKS
from stsbench.results.folder import scan_results
from stsbench.results.record import Result
from tests.compare.pairs import FEW, SUBSETS, pair
from tests.leaderboard.scored import drawn, sts, write
from tests.made import SIMCSE


def test_rank_intervals_rank_all_rows_on_the_same_items():
    rows: dict[str, list[Result]] = {}
    for task in ("sts12", "sts13"):
        gold, similarity = drawn(3)
        for at, name in enumerate("abcd"):
            noise = np.random.default_rng([at, 5]).normal(size=60)
            close = similarity + (0.0, 0.05, 0.06, 2.0)[at] * noise
            rows.setdefault(name, []).append(sts(name, task, gold, close))
    rows["hole"] = [rows["a"][0]]
    found = rank_intervals(rows, ["sts12", "sts13"], effort=Effort(draws=200))
    assert set(found) == set("abcd") and found["d"] == (4, 4)
    assert found["a"][0] == 1 and found["b"][0] < found["b"][1] <= 3
    assert rank_intervals({}, ["sts12"]) == {}
    # Twice the same encoder: neither is above the other.
    twins = rank_intervals({1: rows["a"], 2: rows["a"]}, ["sts12"], effort=FEW)
    assert twins == {1: (1, 1), 2: (1, 1)}


def test_a_boards_rows_are_ranked_under_their_names(tmp_path):
    a, b = pair(shift=2.0)
    changed = msgspec.structs.replace(a, fingerprint="another")
    wmean = pair(subset=SUBSETS, protocol={**SIMCSE, "name": "wmean", "aggregation": "wmean"})[0]
    found, suite = scan_results(write(tmp_path, a, b, changed, wmean)).results, Suite(name="One", tasks=["sts12"])
    board, _ = suite_boards(found, "one", suite, scored={"sts12": "test"})
    rows = rank_table(suite_table(board, suite, "one", Catalogue()), FEW).rows()
    ranks = {row.label: row.cell(RANKS).measured for row in rows}
    assert {label: one and one.interval for label, one in ranks.items()} == {
        "a [anothe]": (1, 1),
        "a [print ]": (1, 1),
        "b": (3, 3),
    }


def test_ranks_of_scores_made_differently_are_refused():
    a, b = pair()
    other = msgspec.structs.replace(b, data="e" * 64)
    with pytest.raises(ProtocolError, match="sts12: 'a' and 'b' cannot be ranked together: data hash differs"):
        rank_intervals({"a": [a], "b": [other]}, ["sts12"], effort=FEW)
