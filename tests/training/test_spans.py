"""DeCLUTR's span sampler: the official one's draws, its statistics, and its limits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from stsbench.core.errors import DataError
from stsbench.training.spans import Span, Spans, sample_spans


class Legacy:
    """numpy's old generator, which the official code uses, behind the names of the new one."""

    def __init__(self, seed: int) -> None:
        state = np.random.RandomState(seed)
        self.beta, self.choice, self.integers = state.beta, state.choice, state.randint


def spans(n: int, rng: Any, strategy: Any = "both", **changes: int) -> Spans:
    numbers: dict[str, Any] = {
        "anchors": 2,
        "positives": 2,
        "min_len": 32,
        "max_len": 512,
        **changes,
    }
    return sample_spans(n, strategy=strategy, rng=rng, **numbers)


# Drawn by the official sampler (JohnGiorgi/DeCLUTR, commit b78ac57) after np.random.seed(seed).
OFFICIAL: list[tuple[int, int, str, tuple[int, int, int, int], list[Span], list[list[Span]]]] = [
    (2048, 0, "both", (2, 2, 32, 512), [(595, 1003), (1565, 1924)], [[(838, 909), (840, 1132)], [(1552, 1692), (1797, 1935)]]),
    (2048, 1, "adjacent", (2, 1, 32, 512), [(1536, 1993), (68, 309)], [[(1353, 1536)], [(309, 733)]]),
    (2049, 2, "subsuming", (2, 2, 32, 512), [(7, 349), (1603, 2031)], [[(225, 317), (177, 344)], [(1634, 1833), (1666, 1895)]]),
    (5000, 3, "both", (2, 2, 32, 512), [(1610, 2017), (11, 512)], [[(1844, 2008), (1857, 1926)], [(405, 684), (184, 380)]]),
    (1000, 4, "both", (5, 1, 8, 100), [(9, 73), (266, 295), (403, 469), (811, 885), (625, 699)], [[(3, 64)], [(251, 298)], [(402, 420)], [(820, 896)], [(637, 655)]]),
    (1024, 5, "both", (1, 2, 32, 512), [(100, 507)], [[(399, 650), (65, 233)]]),
    (512, 6, "adjacent", (2, 3, 16, 128), [(25, 99), (258, 352)], [[(99, 166), (99, 151), (99, 170)], [(352, 449), (215, 258), (352, 425)]]),
    (700, 7, "subsuming", (3, 1, 20, 100), [(9, 99), (605, 676), (203, 296)], [[(16, 58)], [(639, 672)], [(226, 254)]]),
]  # fmt: skip


@pytest.mark.parametrize(("n", "seed", "strategy", "numbers", "anchors", "positives"), OFFICIAL)
def test_the_official_draws(n, seed, strategy, numbers, anchors, positives):
    a, p, shortest, longest = numbers
    drawn = spans(
        n, Legacy(seed), strategy, anchors=a, positives=p, min_len=shortest, max_len=longest
    )
    assert drawn == (anchors, positives)


@pytest.mark.parametrize("n", [2048, 3000])
def test_anchors_stay_apart_and_inside_the_document(n):
    rng = np.random.default_rng(1)
    for _ in range(2000):
        drawn = spans(n, rng)
        (_, end), (start, _) = sorted(drawn.anchors)
        # A whole block and more lies between the blocks of two anchors.
        assert start - end >= 512
        for (first, last), group in zip(drawn.anchors, drawn.positives, strict=True):
            assert first // 512 == (last - 1) // 512
            assert 32 <= last - first <= 512
            for a, b in group:
                assert 0 <= a < b <= n and 32 <= b - a <= 512
                assert a <= last and b >= first


def test_a_positive_at_the_document_s_start_is_taken_where_it_is_the_only_one():
    # Two blocks, spans that fill one: beside the second block there is only the first. The official code fails here.
    rng = np.random.default_rng(5)
    drawn = [spans(70, rng, "adjacent", anchors=1, min_len=35, max_len=35) for _ in range(50)]
    assert {(tuple(one.anchors), tuple(one.positives[0])) for one in drawn} == {
        (((0, 35),), ((35, 70), (35, 70))),
        (((35, 70),), ((0, 35), (0, 35))),
    }


def test_a_short_document_is_one_line():
    rng = np.random.default_rng(0)
    assert spans(2048, rng)
    message = "articles.txt, line 7: 2,047 tokens; 2 anchors of up to 512 tokens need 2,048: leave short documents out"
    with pytest.raises(DataError, match=re.escape(message)):
        sample_spans(
            2047,
            anchors=2,
            positives=2,
            min_len=32,
            max_len=512,
            rng=rng,
            label="articles.txt, line 7",
        )
