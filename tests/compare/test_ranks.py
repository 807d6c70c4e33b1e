"""Rank intervals."""

from __future__ import annotations

import msgspec
import numpy as np
from scipy import stats

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import Suite
from stsbench.compare.comparison import Effort
from stsbench.compare.ranks import rank_intervals
from stsbench.compare.row_items import RowItems
from stsbench.compare.variance import joint_draws
from stsbench.leaderboard.tables.ranks import rank_table
from stsbench.leaderboard.tables.suite import suite_boards, suite_table
from stsbench.leaderboard.tables.table import RANKS
from stsbench.results.folder import scan_results
from stsbench.results.record import Result
from tests.compare.pairs import FEW, SUBSETS, pair
from tests.leaderboard.scored import drawn, sts, write
from tests.made import SIMCSE


def rows_of(names: str) -> dict[str, list[list[Result]]]:
    """Rows on two tasks, better ones first, the first of all by little."""
    rows: dict[str, list[list[Result]]] = {}
    for task in ("sts12", "sts13"):
        gold, similarity = drawn(3)
        for at, name in enumerate(names):
            noise = np.random.default_rng([at, 5]).normal(size=60)
            close = similarity + (0.0, 0.05, 0.06, 2.0)[at] * noise
            rows.setdefault(name, []).append([sts(name, task, gold, close)])
    return rows


def test_rank_intervals_rank_all_rows_on_the_same_items():
    rows = RowItems(rows_of("abcd"))
    found = rank_intervals(rows, list("abcd"), effort=Effort(draws=200))
    assert found["d"] == (4, 4) and found["a"][0] == 1 and found["b"][0] < found["b"][1] <= 3
    assert rank_intervals(rows, [], effort=FEW) == {}
    # As quantiles of the ranks of the same draws.
    samples = [rows.sample(name, (0, 1)) for name in "abcd"]
    drawn_means = joint_draws(samples, rows.sharing((0, 1)), draws=200, rng=Effort().rng("sts12 sts13"))
    ranks = stats.rankdata(-drawn_means, method="min", axis=0)
    low, high = np.quantile(ranks, [0.025, 0.975], axis=1, method="inverted_cdf")
    assert [found[name] for name in "abcd"] == [(int(a), int(b)) for a, b in zip(low, high, strict=True)]


def test_twice_the_same_encoder_is_never_above_the_other():
    one = rows_of("a")["a"]
    assert rank_intervals(RowItems({1: one, 2: one}), [1, 2], effort=FEW) == {1: (1, 1), 2: (1, 1)}


def test_a_row_with_a_gap_is_ranked_by_the_tasks_that_both_have():
    rows = rows_of("abcd")
    rows["d"][0] = []
    found = rank_intervals(RowItems(rows), list("abcd"), effort=Effort(draws=200))
    whole = rank_intervals(RowItems(rows_of("abcd")), list("abcd"), effort=Effort(draws=200))
    # Half the items tell less.
    assert whole["d"] == (4, 4) and found["d"][0] < 4 == found["d"][1]
    # The same task alone, for all: with no other rows in it the draws are the same.
    alone = {name: [[], cells[1]] for name, cells in rows_of("abcd").items()}
    assert rank_intervals(RowItems(alone), ["d"], effort=FEW) == {"d": (1, 1)}
    assert rank_intervals(RowItems(alone), list("abcd"), effort=Effort(draws=200))["d"][1] == 4


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
