"""Means over tasks and seeds: intervals, ranks, letters and ties, and intervals that were computed before."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats

from stsbench.boards.tables.request import TableRequest
from stsbench.boards.tables.table import RANKS
from stsbench.boards.tables.uncertainty import rank_table, rank_tables
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, ProtocolError
from stsbench.numbers.intervals import agreement_interval
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.results.folder import read_states
from stsbench.results.record import Result, digest_columns, items_path
from stsbench.significance.comparison import compare
from stsbench.significance.comparison_record import TestSettings
from stsbench.significance.items import TaskItems, join_items
from stsbench.significance.letters import MAX_GROUPS, assign_letters
from stsbench.significance.means import (
    Interval,
    compute_differences_from,
    compute_mean_interval,
    compute_mean_intervals,
    interval_cache_key,
)
from stsbench.significance.paired import PairedMean, correct_by_holm
from stsbench.significance.ranks import compare_all_pairs, find_rank_intervals, rank_rows
from stsbench.significance.rows import RowItems
from tests.boards.scored import drawn, probe, sts, write
from tests.made import SIMCSE, make_result
from tests.significance.pairs import FEW, SUBSETS, pair, told


def influences(result: Result) -> np.ndarray:
    return CORRELATIONS["spearman"].influence(
        result.per_item["similarity"], result.per_item["gold"]
    )


def test_tasks_without_a_sentence_in_common_add_up():
    one, two = told(pair()[0]), told(pair("sts13", shift=0.9, n=40)[1], 100)
    shares = np.concatenate([influences(one) / 60, influences(two) / 40]) / 2
    weights = np.concatenate([np.full(60, 1 / 60), np.full(40, 1 / 40)]) / 2
    items = 1 / (weights @ weights)
    reach = stats.t.ppf(0.975, items - 1) * np.sqrt(shares @ shares * items / (items - 1))
    mean = (one.score + two.score) / 2
    assert compute_mean_interval([[one], [two]]) == pytest.approx((mean - reach, mean + reach))


def test_pairs_that_tell_no_sentences_are_each_of_their_own():
    results = [pair(task, n=n)[0] for task, n in (("sts12", 40), ("sts13", 60))]
    sharing, _ = join_items(RowItems({"a": [[result] for result in results]}).select((0, 1)))
    assert len(sharing) == 100 and sharing.are_independent


def test_items_of_three_sentences_share_them_over_tasks():
    def triplets(task: str, sentences: list[list[int]]) -> TaskItems[str]:
        paired = PairedMean(values=[np.ones((1, len(sentences)))])
        return TaskItems(
            task=task,
            samples={},
            weights=np.full(len(sentences), 1 / len(sentences)),
            sentences=np.array(sentences),
            knows_sentences=True,
            paired=paired,
        )

    first = triplets("a", [[1, 10, 11], [2, 20, 21], [-1, -1, -1]])
    second = triplets("b", [[5, 10, 12], [6, 20, 22], [-1, -1, -1]])
    sharing, _ = join_items([first, second])
    assert not sharing.are_independent
    numbers = sharing.components.tolist()
    assert (numbers[0], numbers[1], len(set(numbers))) == (numbers[3], numbers[4], 4)


def test_several_seeds_widen_the_interval_of_their_mean():
    a, b = map(told, pair())
    again = msgspec.structs.replace(b, encoder="a", eval_seed=1)
    found, alone = compute_mean_interval([[a, again]]), compute_mean_interval([[a]])
    assert found is not None and alone is not None
    # Two seeds say little of their variance: the interval ends at the highest correlation.
    assert found[1] == 1.0
    assert found[0] < alone[0] - 2 * np.ptp(alone)


def test_an_interval_ends_where_scores_do_and_is_none_without_items():
    right = told(probe("a", "mr", [1] * 9 + [0]))
    found = compute_mean_interval([[right]])
    assert found is not None and found[1] < 1
    assert found == pytest.approx(
        tuple(stats.binomtest(9, 10).proportion_ci(method="wilson")), abs=0.08
    )
    bare = msgspec.structs.replace(right, per_item={})
    assert (
        compute_mean_interval([[bare]]) is None and compute_mean_interval([[right], [bare]]) is None
    )
    # An interval that takes pairs as independent would be too narrow.
    assert compute_mean_interval([[probe("a", "mr", [1] * 9 + [0])]]) is None
    assert (
        compute_mean_interval(
            [[make_result("a", "own", 0.5, per_item={"loss": np.zeros(3)}, items="a")]]
        )
        is None
    )


def test_a_mean_of_perfect_accuracies_is_not_known_for_certain():
    one, two = told(probe("a", "mr", [1] * 40)), told(probe("a", "cr", [1] * 60), 100)
    found = compute_mean_interval([[one], [two]])
    assert found is not None and found[1] == 1.0
    # As that of as many items as two tasks of 40 and 60 are worth: 96.
    assert found[0] == pytest.approx(
        stats.binomtest(96, 96).proportion_ci(method="wilson").low, abs=0.002
    )
    seeds = [
        [msgspec.structs.replace(one, train_seed=seed) for seed in (1, 2)] for one in (one, two)
    ]
    assert compute_mean_interval(seeds) == pytest.approx(found, abs=0.03)


def test_a_mean_of_perfect_correlations_is_not_known_for_certain():
    rng = np.random.default_rng(0)
    results: list[Result] = []
    for task, n in (("sts12", 40), ("sts13", 60)):
        gold = rng.normal(size=n)
        results.append(told(sts("a", task, gold, gold), len(results) * 100))
    found = compute_mean_interval([[result] for result in results])
    assert found is not None and found == agreement_interval(1.0, [1.0], 80)
    # Two tasks that count equally: all items as if both had 40.
    alone = compute_mean_interval([[results[0]]])
    assert alone is not None and alone[0] < found[0] < found[1] == 1.0
    again = [[result, msgspec.structs.replace(result, train_seed=1)] for result in results]
    assert compute_mean_interval(again) == found


def test_several_means_of_an_encoder_and_what_it_lacks(tmp_path):
    a, more = told(pair()[0]), told(pair("sts13", shift=0.9, n=40)[1], 100)
    found = compute_mean_intervals([[a], [more]], [(0, 1), (1,)])
    assert found == (
        {(0, 1): compute_mean_interval([[a], [more]]), (1,): compute_mean_interval([[more]])},
        (),
        [],
    )
    (gone,) = read_states(write(tmp_path, a)).results
    next(tmp_path.glob("a/*.parquet")).unlink()
    assert compute_mean_intervals([[gone], []], [(0,)]) == ({}, [gone], ())
    silent = pair()[0]
    assert compute_mean_intervals([[silent], []], [(0,)]) == ({}, (), [silent])


def different(letters: Sequence[str]) -> np.ndarray:
    """Which pairs a display says are different: those that share no letter."""
    return np.array([[not set(one) & set(other) for other in letters] for one in letters])


def fewest_groups(apart: np.ndarray) -> int:
    """By brute force: in how many groups of encoders that do not differ all such pairs can be held."""
    k = len(apart)
    subsets = [s for size in range(1, k + 1) for s in itertools.combinations(range(k), size)]
    cliques = [set(s) for s in subsets if not apart[np.ix_(s, s)].any()]
    largest = [c for c in cliques if not any(c < other for other in cliques)]
    pairs = [{a, b} for a in range(k) for b in range(a, k) if not apart[a, b]]
    return next(
        count
        for count in range(1, len(largest) + 1)
        for chosen in itertools.combinations(largest, count)
        if all(any(pair <= group for group in chosen) for pair in pairs)
    )


@pytest.mark.parametrize(
    "letters",
    [
        # Tukey's test of Stata's data set "yield", fertilizer by irrigation, as R's agricolae (HSD.test) groups them; Stata's
        # pwcompare gives the same groups.
        ["a", "ab", "abc", "bcd", "cd", "de", "ef", "ef", "f", "f"],
        # The first example of R's multcompView: of A-B, A-C and B-C only the last differs.
        ["ab", "a", "b"],
        ["a"],
        ["a", "a", "a"],
        ["a", "b", "c"],
    ],
)
def test_the_letters_are_those_of_other_software(letters):
    assert assign_letters(different(letters)) == (letters, True)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_of_all_ways_in_which_few_can_differ_every_one_is_told_with_the_fewest_letters(k):
    pairs = list(itertools.combinations(range(k), 2))
    for differ in itertools.product([False, True], repeat=len(pairs)):
        apart = np.zeros((k, k), dtype=bool)
        for (a, b), one in zip(pairs, differ, strict=True):
            apart[a, b] = apart[b, a] = one
        letters, is_exact = assign_letters(apart)
        assert is_exact and np.array_equal(different(letters), apart), apart
        assert len(set("".join(letters))) == fewest_groups(apart), apart


def test_a_letter_all_of_whose_pairs_share_another_is_swept_away():
    # Of six encoders three pairs differ. Splitting alone gives each encoder four of eight letters.
    apart = np.zeros((6, 6), dtype=bool)
    for a, b in ((0, 5), (1, 4), (2, 3)):
        apart[a, b] = apart[b, a] = True
    letters, _ = assign_letters(apart)
    assert letters == ["ab", "ac", "ad", "bc", "bd", "cd"]
    assert np.array_equal(different(letters), apart) and fewest_groups(apart) == 4


def test_letters_go_on_after_the_alphabet():
    letters, is_exact = assign_letters(~np.eye(106, dtype=bool))
    assert is_exact
    assert [letters[at] for at in (0, 25, 26, 51, 52, 103, 104)] == [
        "a",
        "z",
        "A",
        "Z",
        ".a",
        ".Z",
        "..a",
    ]
    assert assign_letters(np.zeros((0, 0), dtype=bool)) == ([], True)


def letters_of(display: str) -> set[str]:
    """The letters of a row, each with the dots before it."""
    return set(re.findall(r"\.*[a-zA-Z]", display))


def shares_letter(displays: Sequence[str]) -> np.ndarray:
    sets = [letters_of(display) for display in displays]
    return np.array([[bool(first & second) for second in sets] for first in sets])


def random_differences(k: int, rng: np.random.Generator, share: float) -> np.ndarray:
    """Pairs of which any differ: encoders with gaps, whose tests are of different tasks."""
    apart = np.triu(rng.random((k, k)) < share, 1)
    return apart | apart.T


def test_more_letters_than_52_are_for_ranges_alone_and_others_say_that_they_stop():
    # Ranges of five neighbours: 196 letters, all of them exact.
    order = np.arange(200)
    apart = np.abs(order[:, None] - order) > 4
    letters, is_exact = assign_letters(apart)
    assert is_exact and np.array_equal(~shares_letter(letters), apart)
    assert len(set().union(*map(letters_of, letters))) == 196
    # Splitting alone would make 2 to the power of 8 groups, of which few are needed.
    crossed = np.zeros((16, 16), dtype=bool)
    for first in range(8):
        crossed[first, 15 - first] = crossed[15 - first, first] = True
    letters, is_exact = assign_letters(crossed)
    assert is_exact and np.array_equal(~shares_letter(letters), crossed)
    # Each of ten encoders differs from the other nine, and so do ten more: 100 pairs that do not.
    sides = np.arange(20) % 2
    apart = (sides[:, None] == sides) & ~np.eye(20, dtype=bool)
    letters, is_exact = assign_letters(apart)
    assert not is_exact and len(set().union(*map(letters_of, letters))) <= MAX_GROUPS
    shared = shares_letter(letters)
    assert shared[~apart].all() and not shared[apart].all()


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_rows_that_do_not_differ_share_a_letter_in_every_display(share):
    rng = np.random.default_rng(7)
    seen = set()
    for k in (1, 2, 6, 12, 40, 90):
        apart = random_differences(k, rng, share)
        letters, is_exact = assign_letters(apart)
        shared = shares_letter(letters)
        seen.add(is_exact)
        assert shared[~apart].all()
        assert (not shared[apart].any()) == is_exact
    assert True in seen


def rank_sets(differences: np.ndarray, p_values: np.ndarray) -> list[tuple[int, int]]:
    """Counted one by one: the ranks that significantly better and worse rows leave."""
    k = len(differences)
    pairs = [pair for pair in itertools.combinations(range(k), 2) if np.isfinite(p_values[pair])]
    corrected = dict(zip(pairs, correct_by_holm([p_values[pair] for pair in pairs]), strict=True))
    sets = []
    for row in range(k):
        rivals = [
            rival
            for rival in range(k)
            if corrected.get((min(row, rival), max(row, rival)), 1.0) < 0.05
        ]
        better = [rival for rival in rivals if differences[row, rival] > 0]
        worse = [rival for rival in rivals if differences[row, rival] < 0]
        sets.append((1 + len(better), k - len(worse)))
    return sets


def significant(p_values: np.ndarray) -> np.ndarray:
    """Pairs whose p-value is below 0.05 after Holm's correction."""
    pairs = np.triu(np.isfinite(p_values), 1)
    found = np.zeros(p_values.shape, dtype=bool)
    found[pairs] = np.array(correct_by_holm(p_values[pairs].tolist())) < 0.05
    return found | found.T


def random_tests(k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Differences of k scores, and p-values of normal tests whose errors depend on each other."""
    scores = rng.normal(size=k)
    influences = rng.normal(size=(k, 40)) * rng.uniform(0.02, 0.1)
    errors = np.sqrt(((influences[:, None] - influences) ** 2).sum(axis=2))
    differences = scores - scores[:, None]
    np.fill_diagonal(errors, np.nan)
    return differences, 2 * stats.norm.sf(np.abs(differences) / errors)


def overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] <= second[1] and second[0] <= first[1]


def test_ranks_are_what_significant_differences_leave_and_a_shared_letter_means_an_overlap():
    rng = np.random.default_rng(3)
    n_shared = n_apart = 0
    for _ in range(300):
        differences, p_values = random_tests(int(rng.integers(1, 12)), rng)
        apart = significant(p_values)
        intervals = find_rank_intervals(differences, apart)
        assert intervals == rank_sets(differences, p_values)
        best_first = np.argsort((differences > 0).sum(axis=1))
        letters, is_exact = assign_letters(apart[np.ix_(best_first, best_first)])
        assert is_exact
        for first, second in itertools.combinations(range(len(letters)), 2):
            if letters_of(letters[first]) & letters_of(letters[second]):
                n_shared += 1
                assert overlap(intervals[best_first[first]], intervals[best_first[second]])
            else:
                n_apart += 1
    assert n_shared > 500 and n_apart > 500


def test_any_p_values_and_missing_pairs_have_ranks_that_agree_with_the_letters():
    rng = np.random.default_rng(4)
    n_widened = 0
    for _ in range(300):
        k = int(rng.integers(2, 10))
        differences, _ = random_tests(k, rng)
        p_values = np.triu(rng.choice([1e-6, 0.5, np.nan], size=(k, k), p=[0.6, 0.3, 0.1]), 1)
        p_values = p_values + p_values.T
        differences[np.isnan(p_values)] = np.nan
        np.fill_diagonal(p_values, np.nan)
        apart = significant(p_values)
        intervals = find_rank_intervals(differences, apart)
        for (best, worst), (low, high) in zip(
            intervals, rank_sets(differences, p_values), strict=True
        ):
            assert 1 <= best == low and high <= worst <= k
            n_widened += worst > high
        for first, second in itertools.combinations(range(k), 2):
            assert apart[first, second] or overlap(intervals[first], intervals[second])
    assert n_widened


def test_missing_pairs_decide_nothing_and_few_rows_have_the_only_ranks():
    differences = np.array([[0.0, np.nan], [np.nan, 0.0]])
    assert find_rank_intervals(differences, np.zeros((2, 2), dtype=bool)) == [(1, 2), (1, 2)]
    assert find_rank_intervals(np.zeros((1, 1)), np.zeros((1, 1), dtype=bool)) == [(1, 1)]
    assert find_rank_intervals(np.zeros((0, 0)), np.zeros((0, 0), dtype=bool)) == []


def test_a_boards_rows_are_ranked_under_their_names(tmp_path):
    a, b = pair(shift=2.0)
    changed = msgspec.structs.replace(a, fingerprint="another")
    wmean = pair(subset=SUBSETS, protocol={**SIMCSE, "name": "wmean", "aggregation": "wmean"})[0]
    b = msgspec.structs.replace(b, train_seed=3)
    found, suite = (
        read_states(write(tmp_path, a, b, changed, wmean)).results,
        Suite(name="One", tasks=["sts12"]),
    )
    board, _ = TableRequest(catalogue=Catalogue(), results=found).make_suite_boards(
        "one", suite, {"sts12": "test"}
    )
    table = rank_table(board)
    assert "b: one training seed, so the rank says nothing of the recipe" in table.measured_notes
    rows = table.rows()
    ranks = {row.label: row.cell(RANKS).measured for row in rows}
    assert {label: one and one.interval for label, one in ranks.items()} == {
        "a [anothe]": (1, 2),
        "a [print ]": (1, 2),
        "b": (3, 3),
    }


def test_a_table_says_that_its_letters_are_not_all(monkeypatch):
    # Two rows of one task and two of another: each pair differs, and nothing is between the two.
    results = []
    for task, names in (("sts12", "ab"), ("sts13", "cd")):
        gold, similarity = drawn(3)
        noise = np.random.default_rng(5).normal(size=60)
        results += [
            sts(name, task, gold, similarity + scale * noise)
            for name, scale in zip(names, (0.0, 2.0), strict=True)
        ]
    suite = Suite(name="Two", tasks=["sts12", "sts13"])
    (board,) = TableRequest(catalogue=Catalogue(), results=results).make_suite_boards(
        "two", suite, {"sts12": "test", "sts13": "test"}
    )
    ties = [note for note in rank_table(board).measured_notes if note.startswith("Ties: ")]
    assert ties == [
        "Ties: rows that share a letter are not significantly different by the mean "
        "(paired tests, Holm's correction over 2 pairs, level 0.05)"
    ]
    monkeypatch.setattr("stsbench.significance.letters.MAX_GROUPS", 3)
    table = rank_table(board)
    assert [note for note in table.measured_notes if note.startswith("Ties: ")] == [
        "Ties: rows that share no letter are significantly different by the mean "
        "(paired tests, Holm's correction over 2 pairs, level 0.05)",
        "Ties: groups are divided up to 3; rows of one letter may differ too",
    ]
    ranks = {row.label: row.cell(RANKS).measured for row in table.rows()}
    assert {label: rank and rank.interval for label, rank in ranks.items()} == {
        "a": (1, 3),
        "b": (2, 4),
        "c": (1, 3),
        "d": (2, 4),
    }


def test_a_table_without_ranks_stays_beside_one_that_has_them():
    a, b = pair()
    bare = [msgspec.structs.replace(result, data="e" * 64, per_item={}) for result in (a, b)]
    suite, scored_on = Suite(name="One", tasks=["sts12"]), {"sts12": "test"}
    ranked, refused = (
        TableRequest(catalogue=Catalogue(), results=results).make_suite_boards(
            "one", suite, scored_on
        )
        for results in ([a, b], bare)
    )
    first, second = rank_tables([*ranked, *refused])
    assert {row.label: bool(row.cell(RANKS).measured) for row in first.rows()} == {
        "a": True,
        "b": True,
    }
    assert [row.label for row in second.rows()] == ["a", "b"]
    assert second.measured_notes[-1].startswith("Rank: no per-item columns of a on sts12")
    with pytest.raises(DataError, match="of a on sts12"):
        rank_tables(refused)


TASKS = ("sts12", "sts13", "sts14")
Rows = dict[str, list[list[Result]]]


def scored(encoder: str, task: str, noise: float, seed: int, **changes: Any) -> Result:
    """An encoder with so much noise on a task; every four pairs share a sentence, also with those of other tasks."""
    gold, similarity = drawn(TASKS.index(task), 120)
    rng = np.random.default_rng([seed, *task.encode(), *encoder.encode()])
    made = sts(encoder, task, gold, similarity + noise * rng.normal(size=120), **changes)
    sentences = {
        "sentence1": np.arange(120, dtype=np.uint32) // 4,
        "sentence2": np.arange(120, dtype=np.uint32) + 1000 * (1 + TASKS.index(task)),
    }
    return msgspec.structs.replace(made, per_item={**made.per_item, **sentences})


def made_rows(noises: dict[str, float], *, seeds: Sequence[int] = ()) -> Rows:
    """A row a name; one whose name has an S has trained with seeds."""
    return {
        name: [
            [scored(name, task, noise, seed, train_seed=seed) for seed in seeds]
            if "S" in name
            else [scored(name, task, noise, 0)]
            for task in TASKS
        ]
        for name, noise in noises.items()
    }


def compared(rows: Rows, first: str, second: str) -> Any:
    """What ``compare`` says of the mean of two rows over the tasks that both have."""
    found = compare(
        {name: [one for seeds in rows[name] for one in seeds] for name in (first, second)},
        settings=FEW,
    )
    return found.differences[-1]


def test_every_pair_is_tested_as_compare_tests_means():
    rows = made_rows({"a": 0.0, "b": 0.1, "cS": 0.3, "d": 0.4, "eS": 0.1}, seeds=[1, 2, 3])
    rows["d"][1], rows["eS"][0] = [], []
    names = list(rows)
    differences, p = compare_all_pairs(RowItems(rows), names)
    for (i, first), (j, second) in itertools.combinations(enumerate(names), 2):
        expected = compared(rows, first, second)
        if len(expected.tasks) > 1:
            assert (differences[i, j], p[i, j]) == pytest.approx(
                (expected.difference, expected.p)
            ), (first, second)
            assert (differences[j, i], p[j, i]) == (-differences[i, j], p[i, j])
    assert np.isnan(np.diag(p)).all() and not np.diag(differences).any()


def test_letters_tell_which_differences_are_significant_after_holm():
    rows = made_rows({"a": 0.0, "b": 0.05, "c": 0.25, "d": 0.3, "e": 0.9})
    found = rank_rows(rows, settings=FEW)
    pairs = list(itertools.combinations(rows, 2))
    corrected = correct_by_holm([compared(rows, *names).p for names in pairs])
    shared = [bool(set(found.rows[a].letters) & set(found.rows[b].letters)) for a, b in pairs]
    assert shared == [p >= 0.05 for p in corrected] and len(set(shared)) == 2
    assert (
        found.tests,
        found.level,
        found.results_without_columns,
        found.results_without_sentences,
    ) == (10, 0.05, [], [])
    p_values = np.full((5, 5), np.nan)
    differences = np.zeros((5, 5))
    for first, second in itertools.combinations(range(5), 2):
        tested = compared(rows, list(rows)[first], list(rows)[second])
        p_values[first, second] = tested.p
        differences[first, second] = tested.difference
        differences[second, first] = -tested.difference
    intervals = [found.rows[name].rank_interval for name in rows]
    assert intervals == rank_sets(differences, p_values) and found.has_exact_letters
    best = min(found.rows, key=lambda name: found.rows[name].rank)
    assert found.rows[best].letters.startswith("a")
    tied = {best} | {
        b if a == best else a
        for (a, b), one in zip(pairs, shared, strict=True)
        if one and best in (a, b)
    }
    assert {name for name, one in found.rows.items() if one.is_best} == tied


def test_a_task_that_a_row_lacks_neither_lowers_nor_raises_it():
    rows = made_rows({"a": 0.0, "b": 0.3, "c": 0.9})
    whole = {name: one.rank for name, one in rank_rows(rows, settings=FEW).rows.items()}
    assert whole == {"a": 1, "b": 2, "c": 3}
    # By plain means over what it has, b would go up without its worst task, and c without its best come no nearer.
    for task in range(3):
        gap = {**rows, "b": [seeds if at != task else [] for at, seeds in enumerate(rows["b"])]}
        found = rank_rows(gap, settings=FEW)
        assert {name: one.rank for name, one in found.rows.items()} == whole
        assert found.rows["b"].tasks == tuple(at for at in range(3) if at != task)
        assert found.rows["b"].rank_interval[0] <= 2 <= found.rows["b"].rank_interval[1]
    # An easy task alone: a hundred points on it do not lift c above encoders that are better there.
    easy = {**rows, "c": [rows["c"][0], [], []]}
    assert rank_rows(easy, settings=FEW).rows["c"].rank == 3


def test_what_has_no_columns_is_told_and_the_rest_ranked():
    rows = made_rows({"a": 0.0, "b": 0.9, "c": 0.3})
    bare = msgspec.structs.replace(rows["a"][1][0], per_item={})
    rows["a"][1] = [bare]
    rows["c"] = [
        [msgspec.structs.replace(one, per_item={}) for one in seeds] for seeds in rows["c"]
    ]
    found = rank_rows(rows, settings=FEW)
    assert list(found.rows) == ["a", "b"] and found.rows["a"].tasks == (0, 2)
    assert {(one.encoder, one.task) for one in found.results_without_columns} == {
        ("a", "sts13"),
        *(("c", task) for task in TASKS),
    }
    assert rank_rows({"c": rows["c"]}, settings=FEW).rows == {}
    assert rank_rows({}, settings=FEW).rows == {}


def test_two_groups_of_items_are_tested_as_two_items():
    sentences = {"sentence1": np.array([0, 0, 1, 1], dtype=np.uint32)}
    rows: Rows = {}
    for name, right in (("a", [1, 0, 0, 0]), ("b", [1, 1, 1, 0])):
        result = probe(name, "mr", right)
        rows[name] = [[msgspec.structs.replace(result, per_item={**result.per_item, **sentences})]]
    differences, p = compare_all_pairs(RowItems(rows), ["a", "b"])
    expected = compute_differences_from("a", rows)["b"]
    assert expected.df == 1
    assert (differences[0, 1], p[0, 1]) == pytest.approx((expected.difference, expected.p))


def test_no_difference_is_known_from_a_row_without_columns():
    rows = made_rows({"a": 0.0, "b": 0.9, "c": 0.3})
    rows["c"][0] = [msgspec.structs.replace(rows["c"][0][0], per_item={})]
    found = compute_differences_from("a", rows)
    assert list(found) == ["b"]
    expected = compared(rows, "a", "b")
    assert found["b"].difference == pytest.approx(expected.difference)
    assert found["b"].interval() == pytest.approx(expected.interval)
    assert compute_differences_from("c", rows) == {}


def test_results_that_do_not_tell_their_sentences_are_told():
    a, b = pair()
    found = rank_rows({"a": [[a]], "b": [[b]]}, settings=FEW)
    assert [one.encoder for one in found.results_without_sentences] == [
        "a",
        "b",
    ] and found.tests == 1
    assert rank_rows(
        {"a": [[a]], "b": [[b]]}, settings=TestSettings(dependence="none")
    ).results_without_sentences == [a, b]


WANTED = [(0, 1)]


def with_own_hash(result: Result) -> Result:
    return msgspec.structs.replace(result, items=digest_columns(result.per_item))


def on_disk(folder: Path, *results: Result) -> list[Result]:
    for one in results:
        write(folder, with_own_hash(one))
    read = {(one.encoder, one.task): one for one in read_states(folder).results}
    return [read[one.encoder, one.task] for one in results]


def damage(result: Result) -> None:
    assert result.path is not None
    items_path(result.path).write_bytes(b"cut")


@pytest.fixture
def row(tmp_path: Path) -> list[list[Result]]:
    one, two = on_disk(tmp_path, told(pair()[0]), told(pair("sts13", n=40)[0], 100))
    return [[one], [two]]


def test_an_interval_computed_before_is_not_computed_again(row: list[list[Result]]):
    known: dict[str, Interval] = {}
    before = compute_mean_intervals(row, WANTED, interval_cache=known)
    assert list(known.values()) == list(before.intervals.values()) and len(known) == 1
    damage(row[0][0])
    # The result still names the columns that the interval is of.
    again = compute_mean_intervals(row, WANTED, interval_cache=known)
    assert again.intervals == before.intervals and not again.results_without_columns
    with pytest.raises(DataError, match="cannot be read"):
        compute_mean_intervals(row, WANTED)


def test_columns_that_are_gone_are_missed_all_the_same(row: list[list[Result]]):
    known: dict[str, Interval] = {}
    compute_mean_intervals(row, WANTED, interval_cache=known)
    assert row[0][0].path is not None
    items_path(row[0][0].path).unlink()
    found = compute_mean_intervals(row, WANTED, interval_cache=known)
    assert found.results_without_columns == row[0] and not found.intervals


@pytest.mark.parametrize(
    "changes",
    [
        {"score": 0.5},
        {"items": "0" * 64},
        {"train_seed": 7},
        {"eval_seed": 1},
        {"protocol": {"name": "own"}},
    ],
)
def test_another_score_or_other_items_seeds_and_protocols_are_another_interval(
    row: list[list[Result]], changes: dict[str, object]
):
    other = msgspec.structs.replace(row[0][0], **changes)
    assert interval_cache_key(row, (0, 1), ()) != interval_cache_key([[other], row[1]], (0, 1), ())


def test_tasks_counts_and_the_score_that_counts_are_part_of_it(row: list[list[Result]]):
    marks = [
        interval_cache_key(row, tasks, scores)
        for tasks in ((0,), (0, 1), (0, 0, 1))
        for scores in ((), ("f1", "f1"))
    ]
    assert None not in marks and len(set(marks)) == len(marks)


def test_rows_without_a_task_in_common_are_not_told_apart():
    rows = made_rows({"a": 0.0, "b": 0.9})
    rows["a"], rows["b"] = [rows["a"][0], [], []], [[], *rows["b"][1:]]
    found = rank_rows(rows, settings=FEW)
    assert found.tests == 0 and {one.letters for one in found.rows.values()} == {"a"}
    assert {(one.rank, one.rank_interval) for one in found.rows.values()} == {(1, (1, 2))}


def test_a_row_that_was_never_tested_against_the_best_is_no_best_if_another_is_better():
    right = {share: np.random.default_rng(1).random(400) < share for share in (0.5, 0.9)}
    rows: Rows = {
        "x": [[probe("x", "mr", right[0.9])], []],
        "y": [[], [probe("y", "cr", right[0.9])]],
        "z": [[], [probe("z", "cr", right[0.5])]],
    }
    found = rank_rows(rows)
    assert {name: one.is_best for name, one in found.rows.items()} == {
        "x": True,
        "y": True,
        "z": False,
    }


def test_ranks_are_by_the_scores_that_a_table_shows():
    """The score of a probe is a mean of rounded accuracies of folds, and not that of its items."""
    shown = {
        name: msgspec.structs.replace(probe(name, "cr", [1] * right + [0] * 50), score=score)
        for name, right, score in (("a", 50, 0.5002), ("b", 50, 0.5001), ("c", 50, 0.5003))
    }
    found = rank_rows({name: [[result]] for name, result in shown.items()})
    assert {name: one.rank for name, one in found.rows.items()} == {"c": 1, "a": 2, "b": 3}


def test_ranks_are_by_the_mean_of_all_results_if_trainings_have_other_numbers_of_evaluations():
    def trained(name: str, right: int, train_seed: int, eval_seed: int) -> Result:
        items = f"{name}{train_seed}{eval_seed}"
        seeds = {"train_seed": train_seed, "eval_seed": eval_seed}
        return probe(name, "mr", np.arange(100) < right, items=items, **seeds)

    a = [*(trained("a", 90, 0, seed) for seed in range(3)), trained("a", 50, 1, 0)]
    b = [trained("b", 75, seed, 0) for seed in range(3)]
    assert np.mean([result.score for result in a]) > np.mean([result.score for result in b])
    found = rank_rows({"b": [b], "a": [a]})
    assert {name: one.rank for name, one in found.rows.items()} == {"a": 1, "b": 2}


def test_rows_of_too_few_items_do_not_differ():
    """A correlation of three items has no error: that of a mean over subsets has none either."""
    wmean = {**SIMCSE, "name": "wmean", "aggregation": "wmean"}
    results = pair(n=300, shift=0.3, subset=["news"] * 297 + ["tiny"] * 3, protocol=wmean)
    found = rank_rows({result.encoder: [[result]] for result in results})
    assert {one.letters for one in found.rows.values()} == {"a"}
    (difference,) = compare({result.encoder: [result] for result in results}).differences
    assert difference.p == 1


def test_scores_made_differently_are_refused():
    a, b = pair()
    other = msgspec.structs.replace(b, data="e" * 64)
    # The first row's data come first.
    with pytest.raises(
        ProtocolError,
        match="sts12: 'a' and 'b' cannot be ranked together: data hash differs.*dddddd.* eeeeee",
    ):
        rank_rows({"a": [[a]], "b": [[other]]}, settings=FEW)
