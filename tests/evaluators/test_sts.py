"""STS scores against a literal computation, every protocol and every input no score can be made of."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, EncoderError, ProtocolError, StsbenchError
from stsbench.data.splits import LabelledSplit, PairSplit
from stsbench.encoders.base import Embeddings
from stsbench.encoders.engine.store import EmbeddingStore, text_keys
from stsbench.evaluators.base import Scores
from stsbench.evaluators.registry import make_task_evaluator
from stsbench.evaluators.sts import PROTOCOLS, StsEvaluator, StsProtocol
from stsbench.numbers.intervals import CORRELATION_INTERVAL_METHOD
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.results.folder import columns_to_numpy

METRICS = ["euclidean_spearman", "kendall", "manhattan_spearman", "pearson", "spearman"]
SUBSETS = {"news": 30, "forum": 12, "headlines": 7}
Floats = npt.NDArray[np.float64]


def make_split(
    subsets: dict[str, int] | None = None, seed: int = 0, *, known: bool = True
) -> PairSplit:
    """Pairs whose gold scores have ties; subsets lie mixed."""
    rng = np.random.default_rng(seed)
    names = [name for name, n in (subsets or SUBSETS).items() for _ in range(n)]
    rng.shuffle(names)
    n = len(names)
    return PairSplit(
        sentences1=[f"left {i}" for i in range(n)],
        sentences2=[f"right {i}" for i in range(n)],
        gold=rng.integers(0, 11, size=n) / 2,
        subset=names,
        subsets_known=known,
    )


class Table:
    """Embeds from a table of rows, through the store's own view."""

    def __init__(self, rows: dict[str, npt.NDArray[np.float32]]) -> None:
        self.shelf = EmbeddingStore(None)
        self.shelf.add(text_keys(list(rows)), np.stack(list(rows.values())))
        self.shelf.flush()

    def __call__(self, sentences: Sequence[str]) -> Embeddings:
        return self.shelf.view(text_keys(sentences))


def make_rows(split: PairSplit, seed: int = 0) -> dict[str, npt.NDArray[np.float32]]:
    """Embeddings whose cosine goes with the gold score, roughly."""
    rng = np.random.default_rng(seed)
    rows = {}
    for s1, s2, gold in zip(split.sentences1, split.sentences2, split.gold, strict=True):
        a, b = rng.normal(size=(2, 16))
        rows[s1], rows[s2] = a.astype(np.float32), (gold * a / 3 + b).astype(np.float32)
    return rows


def score(
    split: PairSplit,
    protocol: str = "simcse",
    *,
    rows: dict[str, npt.NDArray[np.float32]] | None = None,
    seed: int = 0,
) -> Scores:
    embed = Table(make_rows(split) if rows is None else rows)
    return StsEvaluator(protocol=PROTOCOLS[protocol])({"test": split}, embed, seed=seed)


# The score.


def ranks(x: Sequence[float]) -> list[float]:
    """Average ranks, counted one by one."""
    return [sum(b < a for b in x) + (sum(b == a for b in x) + 1) / 2 for a in x]


def literal(metric: str, x: Sequence[float], y: Sequence[float]) -> float:
    if metric == "kendall":
        pairs = [
            (np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i in range(len(x)) for j in range(i)
        ]
        untied = math.sqrt(sum(a != 0 for a, _ in pairs) * sum(b != 0 for _, b in pairs))
        return float(sum(a * b for a, b in pairs) / untied)
    if metric == "spearman":
        x, y = ranks(x), ranks(y)
    mx, my = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return covariance / math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))


def test_every_number_is_that_of_a_literal_computation():
    split = make_split()
    rows = make_rows(split)
    found = score(split, rows=rows)
    similarity = []
    for s1, s2 in zip(split.sentences1, split.sentences2, strict=True):
        a, b = rows[s1].tolist(), rows[s2].tolist()
        dot = math.fsum(p * q for p, q in zip(a, b, strict=True))
        similarity.append(
            dot / math.sqrt(math.fsum(p * p for p in a) * math.fsum(q * q for q in b))
        )
    np.testing.assert_allclose(
        np.asarray(found.per_item["similarity"]), similarity, rtol=0, atol=1e-14
    )
    gold = split.gold.tolist()
    for metric in ("spearman", "pearson", "kendall"):
        at = {name: [i for i, s in enumerate(split.subset) if s == name] for name in SUBSETS}
        each = {
            n: literal(metric, [similarity[i] for i in rows], [gold[i] for i in rows])
            for n, rows in at.items()
        }
        expected = {
            "all": literal(metric, similarity, gold),
            "mean": (each["news"] + each["forum"] + each["headlines"]) / 3,
            "wmean": (30 * each["news"] + 12 * each["forum"] + 7 * each["headlines"]) / 49,
        }
        for aggregation, value in expected.items():
            assert found.scores[f"{metric}.{aggregation}"] == pytest.approx(value, abs=1e-12)
        assert len({round(value, 6) for value in expected.values()}) == 3
        for name, value in each.items():
            assert found.per_subset[name][metric] == pytest.approx(value, abs=1e-12)
    assert {name: values["n"] for name, values in found.per_subset.items()} == SUBSETS
    assert (found.n, found.zero_vectors, found.notes) == (49, 0, ())


@pytest.mark.parametrize(
    ("protocol", "number"),
    [
        ("simcse", "spearman.all"),
        ("wmean", "spearman.wmean"),
        ("mean", "spearman.mean"),
        ("semeval", "pearson.wmean"),
    ],
)
def test_a_protocol_names_the_score(protocol, number):
    found = score(make_split(), protocol)
    assert found.score == found.scores[number]
    assert isinstance(found.score, float)
    assert found.scores == score(make_split()).scores


def test_one_subset_has_no_table_of_subsets():
    found = score(make_split({"": 20}))
    assert found.per_subset == {}
    assert (
        found.scores["spearman.all"]
        == found.scores["spearman.mean"]
        == found.scores["spearman.wmean"]
    )


# The interval.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_interval_is_fishers_over_influences_of_pairs_that_share(protocol):
    split = make_split({"a": 40, "b": 25})
    tied = replace(split, sentences1=[split.sentences1[at - at % 2] for at in range(65)])
    found = score(tied, protocol)
    x, where, chosen = (
        np.asarray(found.per_item["similarity"]),
        np.asarray(split.subset),
        PROTOCOLS[protocol],
    )
    parts = (
        [np.arange(65)]
        if chosen.aggregation == "all"
        else [np.flatnonzero(where == n) for n in ("a", "b")]
    )
    shares, even = np.zeros(65), np.zeros(65)
    for at in parts:
        share = {"all": 1.0, "mean": 1 / 2, "wmean": len(at) / 65}[chosen.aggregation]
        shares[at] = share * CORRELATIONS[chosen.metric].influence(x[at], split.gold[at]) / len(at)
        even[at] = share / len(at)
    sums, weights = (
        np.array([v[2 * k : 2 * k + 2].sum() for k in range(33)]) for v in (shares, even)
    )
    df = 1 / (weights @ weights) - 1
    error = np.sqrt(sums @ sums * (df + 1) / df)
    reach = stats.t.ppf(0.975, df) * error / (1 - found.score**2)
    expected = np.tanh(np.arctanh(found.score) + np.array([-reach, reach]))
    np.testing.assert_allclose(found.interval, expected, rtol=0, atol=1e-12)
    assert found.interval_method == CORRELATION_INTERVAL_METHOD
    assert np.asarray(found.per_item["sentence1"])[0] == np.asarray(found.per_item["sentence1"])[1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"metric": "kendal"},
            "metric: 'kendal' is not one of spearman, pearson, kendall; did you mean 'kendall'",
        ),
        (
            {"aggregation": "meen"},
            "aggregation: 'meen' is not one of all, mean, wmean; did you mean 'mean'",
        ),
        (
            {"similarity": "haming"},
            "similarity: 'haming' is not one of cosine, dot, hamming, euclidean, manhattan; did you mean 'hamming'",
        ),
    ],
)
def test_a_protocol_of_a_name_in_no_table_is_refused(fields, message):
    with pytest.raises(ProtocolError, match=f"protocol 'mine': {message}"):
        StsProtocol(**{"name": "mine", "metric": "spearman", "aggregation": "all", **fields})


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    # Of two normals with correlation r, Spearman's rho is 6 / pi * asin(r / 2).
    r, rounds, hits = 0.6, 60, 0
    truth = 6 / math.pi * math.asin(r / 2)
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        wanted = rng.normal(size=150)
        angle = (
            stats.norm.cdf(wanted) * np.pi
        )  # falling cosine: its rank is the normal's, turned round
        gold = -(r * wanted + math.sqrt(1 - r * r) * rng.normal(size=150))
        others = [f"s{i}" for i in range(150)]
        split = PairSplit(
            sentences1=["pole"] * 150, sentences2=others, gold=gold, subset=[""] * 150
        )
        rows = {
            f"s{i}": np.array([np.cos(a), np.sin(a)], dtype=np.float32) for i, a in enumerate(angle)
        }
        low, high = score(
            split, rows={"pole": np.array([1, 0], dtype=np.float32), **rows}, seed=seed
        ).interval
        hits += low <= truth <= high
    # 0.95 of 60 is 57; fewer than 51 has a chance of 1 in 500.
    assert hits >= 51


# What no score can be made of, and what must be told.


def test_zero_vectors_score_zero_and_are_counted():
    split = make_split()
    rows = make_rows(split)
    for name in ("left 0", "right 0", "right 4"):
        rows[name] = np.zeros(16, dtype=np.float32)
    found = score(split, rows=rows)
    similarity = np.asarray(found.per_item["similarity"])
    assert found.zero_vectors == 2
    assert similarity[[0, 4]].tolist() == [0, 0]
    assert np.count_nonzero(similarity) == 47
    assert found.notes == ("2 pairs with a zero vector: similarity 0",)


@pytest.mark.parametrize("value", [0.0, 0.25])
def test_an_encoder_that_gives_one_embedding_is_refused(value):
    split = make_split()
    rows = dict.fromkeys(make_rows(split), np.full(16, value, dtype=np.float32))
    with pytest.raises(
        EncoderError, match="^the encoder gives every one of 98 sentences the same embedding"
    ):
        score(split, rows=rows)


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ("simcse", r"every pair of the task has the same similarity \(1\)"),
        ("mean", r"every pair of subset '\w+' has the same similarity \(1\)"),
    ],
)
def test_embeddings_that_differ_in_length_alone_are_refused(protocol, message):
    # Their cosines differ by rounding, which must not be ranked.
    split = make_split()
    rng = np.random.default_rng(0)
    direction = rng.normal(size=16)
    rows = {
        name: (rng.uniform(0.1, 10) * direction).astype(np.float32) for name in make_rows(split)
    }
    with pytest.raises(EncoderError, match=message):
        score(split, protocol, rows=rows)


def odd_similarity() -> tuple[PairSplit, dict[str, npt.NDArray[np.float32]], str]:
    split = make_split()
    rows = make_rows(split)
    for i, name in enumerate(split.subset):
        if name == "forum":
            rows[f"right {i}"] = -rows[f"left {i}"]
    return (
        split,
        rows,
        "every pair of subset 'forum' has the same similarity (-1); no correlation exists",
    )


def odd_gold() -> tuple[PairSplit, dict[str, npt.NDArray[np.float32]], str]:
    split = make_split()
    gold = np.where(np.asarray(split.subset) == "forum", 2.5, split.gold)
    reason = "subset 'forum' has fewer than two different gold scores; no correlation exists"
    return replace(split, gold=gold), make_rows(split), reason


@pytest.mark.parametrize("made", [odd_similarity, odd_gold])
def test_one_odd_subset_costs_the_means_over_subsets_alone(made):
    split, rows, reason = made()
    found = score(split, rows=rows)
    assert found.score == found.scores["spearman.all"]
    assert found.score == pytest.approx(
        literal("spearman", np.asarray(found.per_item["similarity"]).tolist(), split.gold.tolist()),
        abs=1e-12,
    )
    assert sorted(found.scores) == [f"{metric}.all" for metric in METRICS]
    assert found.per_subset["forum"] == {"n": SUBSETS["forum"]}
    assert sorted(found.per_subset["news"]) == sorted(["n", *METRICS])
    assert found.notes == (f"{reason}, and no mean over subsets",)
    for protocol in ("mean", "wmean", "semeval"):
        with pytest.raises(StsbenchError, match=f"^{re.escape(reason)}$"):
            score(split, protocol, rows=rows)


def test_spearman_by_minus_the_distances_is_that_of_a_literal_computation():
    split = make_split()
    rows = make_rows(split)
    found = score(split, rows=rows)
    pairs = [(rows[a], rows[b]) for a, b in zip(*split.sides, strict=True)]
    similarities = {
        "euclidean": [-math.dist(a.tolist(), b.tolist()) for a, b in pairs],
        "manhattan": [-math.fsum(map(abs, np.float64(a) - b)) for a, b in pairs],
    }
    gold = split.gold.tolist()
    of_news = [i for i, subset in enumerate(split.subset) if subset == "news"]
    for name, values in similarities.items():
        metric = f"{name}_spearman"
        assert found.scores[f"{metric}.all"] == pytest.approx(literal("spearman", values, gold))
        news = literal("spearman", [values[i] for i in of_news], [gold[i] for i in of_news])
        assert found.per_subset["news"][metric] == pytest.approx(news)
        chosen = StsProtocol(name="simcse", metric="spearman", aggregation="all", similarity=name)
        own = StsEvaluator(protocol=chosen)({"test": split}, Table(rows), seed=0)
        assert own.score == found.scores[f"{metric}.all"]
    # At length 1 the Euclidean distance orders pairs as the cosine does.
    unit = {text: row / np.linalg.norm(row) for text, row in rows.items()}
    same = score(split, rows=unit).scores
    assert same["euclidean_spearman.all"] == pytest.approx(same["spearman.all"], abs=1e-3)
    # Columns of a version without distances make no such score, and all others.
    evaluator = StsEvaluator(protocol=PROTOCOLS["simcse"])
    columns = {name: c for name, c in found.per_item.items() if name not in similarities}
    earlier = evaluator.recompute(columns).scores
    assert earlier == {
        name: value for name, value in found.scores.items() if name in earlier
    } and not any("_spearman" in name for name in earlier)


@pytest.mark.parametrize("gold", [[3.0, 3.0, 3.0], [1.0], []])
def test_gold_scores_without_two_values_are_refused(gold):
    texts = [f"a{i}" for i in range(len(gold))]
    split = PairSplit(
        sentences1=texts,
        sentences2=texts,
        gold=np.array(gold, dtype=float),
        subset=["x"] * len(gold),
    )
    rows = {"other": np.ones(16, dtype=np.float32), **make_rows(split)}
    with pytest.raises(
        DataError, match="has fewer than two different gold scores; no correlation exists"
    ):
        score(split, rows=rows)


def test_unknown_subsets_offer_only_one_correlation():
    split = make_split(known=False, subsets={"": 49})
    found = score(split)
    assert sorted(found.scores) == [f"{metric}.all" for metric in METRICS]
    assert found.per_subset == {}
    assert found.notes == (
        "the data's source does not tell subsets: only the aggregation 'all' is offered",
    )
    for protocol in ("mean", "wmean", "semeval"):
        with pytest.raises(ProtocolError, match=f"'{protocol}' averages over subsets"):
            score(split, protocol)


def test_tiny_subsets_still_have_an_interval():
    # How a correlation of two pairs varies, nobody can tell.
    split = replace(make_split({f"part {i}": 2 for i in range(20)}), gold=np.arange(40) / 8)
    assert score(split, "mean").interval == (-1.0, 1.0)


def test_other_splits_are_refused():
    split = LabelledSplit(sentences=["a"], labels=np.zeros(1, dtype=np.int64))
    with pytest.raises(DataError, match="the evaluator 'sts' scores sentence pairs"):
        StsEvaluator(protocol=PROTOCOLS["simcse"])(
            {"test": split}, Table({"a": np.ones(2, np.float32)}), seed=0
        )


def test_a_part_of_the_items_makes_a_score_of_its_own():
    found = score(make_split({"a": 20, "b": 30}), "wmean")
    items = columns_to_numpy(found.per_item)
    part = {name: column[items["subset"] == "a"] for name, column in items.items()}
    made = StsEvaluator(protocol=PROTOCOLS["wmean"]).recompute(part)
    assert made.score == pytest.approx(found.per_subset["a"]["spearman"], abs=1e-12)


def test_the_evaluator_of_a_result_has_all_of_its_protocol():
    card, protocol = Catalogue().task("sts12"), asdict(PROTOCOLS["semeval"])
    assert make_task_evaluator("sts12", card, protocol).protocol == PROTOCOLS["semeval"]
    del protocol["metric"]
    with pytest.raises(ProtocolError, match="'semeval': 'metric' .* missing"):
        make_task_evaluator("sts12", card, protocol)
